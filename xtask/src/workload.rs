//! What is asked of a server, and what a right answer is.
//!
//! A request is encoded once; for each operation only the key's digits (and the value's, which begins with
//! its key) are patched in place. An answer's length and kind are checked always and cheaply, its content
//! only when asked for. Keys are twelve digits, values bytes that do not compress, [`VALUE_LEN`] unless a [`Shape`]
//! says otherwise.

mod http;

pub use http::Http;

use crate::Result;
use bytes::Bytes;
use protocol::errors::OVERLOAD;
use protocol::messages::{Content, ErrorResp, GetReq, GetResp, PutReq};
use protocol::{Message, Request, codes};

/// The length of values for which nothing else is said.
pub const VALUE_LEN: usize = 1024;

/// The length of every key.
pub const KEY_LEN: usize = 12;

/// Keys from here on are never written.
pub const MISSING_FROM: u64 = 500_000_000_000;

/// The bucket of all keys.
pub const BUCKET: &[u8] = b"figures";

/// Where a key goes, in a request before its first patch. No digits, so it is found nowhere else.
const KEY_MARK: [u8; KEY_LEN] = [b'#'; KEY_LEN];

/// A kind of operation against one kind of server.
pub trait Workload {
    /// The request for a key.
    fn request(&mut self, key: u64) -> &[u8];

    /// The length of the answer at the front of `input`, as far as it can be told yet.
    fn answer_len(&self, input: &[u8]) -> Option<usize>;

    /// Whether a whole answer is of the right kind; cheap.
    fn check(&self, answer: &[u8]) -> Result<()>;

    /// Whether it holds what it must hold for this key.
    fn verify(&self, key: u64, answer: &[u8]) -> Result<()>;

    /// Whether a whole answer says that the server has too much to do.
    fn refuses(&self, answer: &[u8]) -> bool;
}

/// The operations that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read a value.
    Get,
    /// Write a value.
    Put,
    /// Read all but the value.
    Head,
    /// Ask for a key that is not there.
    Miss,
}

impl Op {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Op::Get => "get",
            Op::Put => "put",
            Op::Head => "head",
            Op::Miss => "miss",
        }
    }
}

/// What values are like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How long they are.
    pub len: usize,
    /// Which of the values that a key has had.
    pub version: u64,
}

impl Shape {
    /// Where nothing else is said.
    pub const PLAIN: Shape = Shape { len: VALUE_LEN, version: 1 };

    /// The value that is stored under a key.
    pub fn value_of(self, key: u64) -> Vec<u8> {
        let mut value = self.filler();
        write_digits(&mut value[..KEY_LEN], key);
        value
    }

    /// Bytes without a pattern.
    fn filler(self) -> Vec<u8> {
        let mut rng = SplitMix(self.version);
        (0..self.len).map(|_| (rng.next() >> 56) as u8).collect()
    }
}

fn write_digits(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// A small generator of numbers for keys: fast, and good enough to be without pattern (splitmix64).
pub struct SplitMix(u64);

impl SplitMix {
    /// A generator; the same seed gives the same numbers.
    pub fn new(seed: u64) -> SplitMix {
        SplitMix(seed)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Which keys are asked for.
pub enum Keys {
    /// One after the other.
    Sequence {
        /// The next of them.
        next: u64,
    },
    /// Any of a range, each as likely.
    Uniform {
        /// The first key of the range.
        from: u64,
        /// How many there are.
        count: u64,
        /// What draws them.
        rng: SplitMix,
    },
}

impl Keys {
    /// The next key.
    pub fn next(&mut self) -> u64 {
        match self {
            Keys::Sequence { next } => {
                *next += 1;
                *next - 1
            }
            Keys::Uniform { from, count, rng } => *from + rng.below(*count),
        }
    }
}

/// An encoded request with the places to be patched.
struct Template {
    bytes: Vec<u8>,
    key_at: usize,
    value_at: Option<usize>,
}

impl Template {
    /// Finds the places: the mark of a key, and where the value's filler stands.
    fn new(bytes: Vec<u8>, filler: &[u8]) -> Template {
        let find = |part: &[u8]| bytes.windows(part.len()).position(|window| window == part);
        let key_at = find(&KEY_MARK).expect("every request names a key");
        let value_at = find(filler);
        Template { bytes, key_at, value_at }
    }

    fn patched(&mut self, key: u64) -> &[u8] {
        write_digits(&mut self.bytes[self.key_at..self.key_at + KEY_LEN], key);
        if let Some(at) = self.value_at {
            write_digits(&mut self.bytes[at..at + KEY_LEN], key);
        }
        &self.bytes
    }
}

/// Operations over Riak's protocol buffers.
pub struct Riak {
    op: Op,
    shape: Shape,
    template: Template,
}

/// Length field and message code.
const RIAK_HEADER_LEN: usize = 5;

impl Riak {
    /// Operations of one kind.
    pub fn new(op: Op) -> Riak {
        Riak::shaped(op, Shape::PLAIN)
    }

    /// The same on values of this shape.
    pub fn shaped(op: Op, shape: Shape) -> Riak {
        let filler = shape.filler();
        let (bucket, key) = (Bytes::from_static(BUCKET), Bytes::copy_from_slice(&KEY_MARK));
        let get = GetReq { bucket: bucket.clone(), key: key.clone(), ..GetReq::default() };
        let request = match op {
            Op::Get | Op::Miss => Request::Get(get),
            Op::Head => Request::Get(GetReq { head: Some(true), ..get }),
            Op::Put => {
                let value = Bytes::copy_from_slice(&filler);
                let content_type = Some(Bytes::from_static(b"application/octet-stream"));
                let content = Content { value, content_type, ..Content::default() };
                Request::Put(Box::new(PutReq { bucket, key: Some(key), content, ..PutReq::default() }))
            }
        };
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        Riak { op, shape, template: Template::new(bytes, &filler) }
    }

    /// One request, for who keeps it.
    pub fn request_of(mut self, key: u64) -> Vec<u8> {
        self.request(key).to_vec()
    }

    fn complaint(&self, answer: &[u8]) -> crate::Failure {
        let text = String::from_utf8_lossy(&answer[RIAK_HEADER_LEN.min(answer.len())..answer.len().min(200)]);
        format!("a {} was answered by {} bytes, {text:?}", self.op.name(), answer.len()).into()
    }
}

impl Workload for Riak {
    fn request(&mut self, key: u64) -> &[u8] {
        self.template.patched(key + if self.op == Op::Miss { MISSING_FROM } else { 0 })
    }

    fn answer_len(&self, input: &[u8]) -> Option<usize> {
        let length = input.first_chunk::<4>()?;
        Some(4 + u32::from_be_bytes(*length) as usize)
    }

    fn check(&self, answer: &[u8]) -> Result<()> {
        let (code, lengths) = match self.op {
            Op::Get => (codes::GET_RESP, self.shape.len..usize::MAX),
            Op::Head => (codes::GET_RESP, RIAK_HEADER_LEN + 1..self.shape.len),
            Op::Miss => (codes::GET_RESP, RIAK_HEADER_LEN..RIAK_HEADER_LEN + 1),
            Op::Put => (codes::PUT_RESP, RIAK_HEADER_LEN..RIAK_HEADER_LEN + 1),
        };
        if answer.get(4) == Some(&code) && lengths.contains(&answer.len()) {
            return Ok(());
        }
        Err(self.complaint(answer))
    }

    fn verify(&self, key: u64, answer: &[u8]) -> Result<()> {
        let value = match self.op {
            Op::Get => self.shape.value_of(key),
            Op::Head => Vec::new(),
            Op::Put | Op::Miss => return Ok(()),
        };
        let body = Bytes::copy_from_slice(&answer[RIAK_HEADER_LEN..]);
        let right = GetResp::decode(body).is_ok_and(|get| {
            matches!(&get.content[..], [only] if only.value == value) && get.vclock.is_some()
        });
        if right { Ok(()) } else { Err(format!("key {key}: {}", self.complaint(answer)).into()) }
    }

    fn refuses(&self, answer: &[u8]) -> bool {
        let is_error = answer.get(4) == Some(&codes::ERROR_RESP);
        is_error
            && ErrorResp::decode(Bytes::copy_from_slice(&answer[RIAK_HEADER_LEN..]))
                .is_ok_and(|error| error.errmsg == OVERLOAD)
    }
}

/// Operations over Redis's own protocol.
pub struct Redis {
    op: Op,
    template: Template,
}

impl Redis {
    /// Operations of one kind: [`Op::Get`] or [`Op::Put`].
    pub fn new(op: Op) -> Redis {
        let value = Shape::PLAIN.filler();
        let words: &[&[u8]] = match op {
            Op::Put => &[b"SET", &KEY_MARK, &value],
            _ => &[b"GET", &KEY_MARK],
        };
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        Redis { op, template: Template::new(bytes, &value) }
    }
}

impl Workload for Redis {
    fn request(&mut self, key: u64) -> &[u8] {
        self.template.patched(key)
    }

    fn answer_len(&self, input: &[u8]) -> Option<usize> {
        let line = input.iter().position(|&byte| byte == b'\n')? + 1;
        match input[0] {
            b'$' => match std::str::from_utf8(&input[1..line - 2]).ok()?.parse::<usize>() {
                Ok(len) => Some(line + len + 2),
                // Nothing there is told by a length of -1.
                Err(_) => Some(line),
            },
            _ => Some(line),
        }
    }

    fn check(&self, answer: &[u8]) -> Result<()> {
        let right = match self.op {
            Op::Put => answer == b"+OK\r\n",
            _ => answer[0] == b'$' && answer.len() > VALUE_LEN,
        };
        if right { Ok(()) } else { Err(format!("Redis said {:?}", String::from_utf8_lossy(answer)).into()) }
    }

    fn verify(&self, key: u64, answer: &[u8]) -> Result<()> {
        let value = Shape::PLAIN.value_of(key);
        if self.op == Op::Put || answer.windows(VALUE_LEN).any(|window| window == value) {
            return Ok(());
        }
        Err(format!("Redis has another value for key {key}").into())
    }

    fn refuses(&self, _answer: &[u8]) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use protocol::{Limits, next_frame};

    fn value_of(key: u64) -> Vec<u8> {
        Shape::PLAIN.value_of(key)
    }

    fn decoded(bytes: &[u8]) -> Request {
        let frame = next_frame(&mut BytesMut::from(bytes), Limits::ESTABLISHED).unwrap().unwrap();
        assert_eq!(frame.body.len() + RIAK_HEADER_LEN, bytes.len());
        Request::decode(frame.code, frame.body).unwrap()
    }

    #[test]
    fn patched_requests_decode_to_what_is_meant() {
        let mut put = Riak::new(Op::Put);
        put.request(7);
        let Request::Put(request) = decoded(put.request(123)) else { panic!("not a put") };
        assert_eq!(request.key.unwrap(), "000000000123");
        assert_eq!(request.content.value, value_of(123));
        let Request::Get(head) = decoded(Riak::new(Op::Head).request(9)) else { panic!("not a get") };
        assert_eq!((head.head, &head.key[..]), (Some(true), &b"000000000009"[..]));
        let Request::Get(miss) = decoded(Riak::new(Op::Miss).request(9)) else { panic!("not a get") };
        assert_eq!(miss.key, "500000000009");
    }

    fn answer(value: Vec<u8>) -> Vec<u8> {
        let content = vec![Content { value: value.into(), ..Content::default() }];
        let get = GetResp { content, vclock: Some(Bytes::from_static(b"clock")), unchanged: None };
        let mut bytes = Vec::new();
        protocol::frame::put_message(&mut bytes, codes::GET_RESP, &get);
        bytes
    }

    #[test]
    fn riak_answers_are_told_apart() {
        let (get, head, miss) = (Riak::new(Op::Get), Riak::new(Op::Head), Riak::new(Op::Miss));
        let full = answer(value_of(5));
        assert_eq!(get.answer_len(&full[..3]), None);
        assert_eq!(get.answer_len(&full[..9]), Some(full.len()));
        get.check(&full).unwrap();
        get.verify(5, &full).unwrap();
        get.verify(6, &full).unwrap_err();
        head.check(&full).unwrap_err();
        let empty = answer(Vec::new());
        head.check(&empty).unwrap();
        head.verify(5, &empty).unwrap();
        get.check(&empty).unwrap_err();
        miss.check(&empty).unwrap_err();
        miss.check(&[0, 0, 0, 1, codes::GET_RESP]).unwrap();
        get.check(&[0, 0, 0, 1, codes::GET_RESP]).unwrap_err();
        Riak::new(Op::Put).check(&[0, 0, 0, 1, codes::PUT_RESP]).unwrap();
        Riak::new(Op::Put).check(&[0, 0, 0, 1, codes::ERROR_RESP]).unwrap_err();
    }

    #[test]
    fn a_refusal_is_told_from_other_errors() {
        let error = |text: &'static str| {
            let mut bytes = Vec::new();
            let error = ErrorResp { errmsg: Bytes::from_static(text.as_bytes()), errcode: 0 };
            protocol::frame::put_message(&mut bytes, codes::ERROR_RESP, &error);
            bytes
        };
        let get = Riak::new(Op::Get);
        assert!(get.refuses(&error("overload")));
        assert!(!get.refuses(&error("timeout")));
        assert!(!get.refuses(&answer(value_of(5))));
        assert!(!get.refuses(&[0, 0, 0, 1, codes::ERROR_RESP]));
    }

    #[test]
    fn shapes_differ_in_length_and_version() {
        let (old, new) = (Shape { len: 8192, version: 1 }, Shape { len: 8192, version: 2 });
        let mut put = Riak::shaped(Op::Put, new);
        let Request::Put(request) = decoded(put.request(77)) else { panic!("not a put") };
        assert_eq!(request.content.value, new.value_of(77));
        let full = answer(new.value_of(77));
        Riak::shaped(Op::Get, new).verify(77, &full).unwrap();
        Riak::shaped(Op::Get, old).verify(77, &full).unwrap_err();
    }

    #[test]
    fn redis_requests_and_answers() {
        let mut get = Redis::new(Op::Get);
        assert_eq!(get.request(42), b"*2\r\n$3\r\nGET\r\n$12\r\n000000000042\r\n");
        let mut set = Redis::new(Op::Put);
        assert!(set.request(42).ends_with(&[&value_of(42)[..], b"\r\n"].concat()));
        set.check(b"+OK\r\n").unwrap();
        set.check(b"-ERR full\r\n").unwrap_err();
        let full = [b"$1024\r\n", &value_of(42)[..], b"\r\n"].concat();
        assert_eq!(get.answer_len(&full[..4]), None);
        assert_eq!(get.answer_len(&full[..20]), Some(full.len()));
        get.check(&full).unwrap();
        get.verify(42, &full).unwrap();
        get.verify(43, &full).unwrap_err();
        assert_eq!(get.answer_len(b"$-1\r\n"), Some(5));
        get.check(b"$-1\r\n").unwrap_err();
    }

    #[test]
    fn keys_stay_in_their_range() {
        let mut uniform = Keys::Uniform { from: 10, count: 5, rng: SplitMix::new(3) };
        let mut seen: Vec<u64> = (0..200).map(|_| uniform.next()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [10, 11, 12, 13, 14]);
        let mut sequence = Keys::Sequence { next: 3 };
        assert_eq!((sequence.next(), sequence.next()), (3, 4));
    }
}
