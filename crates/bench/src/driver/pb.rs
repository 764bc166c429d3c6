//! Riak's protocol buffers, of an Annulet or a Riak: requests written and answers read field by field, without messages
//! in between. With a login each connection begins with STARTTLS, and then with the user and the password.

use super::pool::{Asked, Codec, Decoded};
use super::{Answer, Command, Common, ErrorKind, Request, Row, Rows};
use crate::login::{Login, ServerTls};
use protocol::codes;
use std::ops::Range;

/// `RpbIndexReq` and `RpbIndexResp`.
const INDEX_REQ: u8 = 25;
const INDEX_RESP: u8 = 26;

/// The field of `RpbPutReq` that asks for the head of the new version.
const RETURN_HEAD: u32 = 11;

const HEADER_LEN: usize = 5;
const CONTENT_TYPE: &[u8] = b"application/octet-stream";

/// The protocol's codec.
pub struct Pb {
    bucket_type: Option<Vec<u8>>,
    /// Fields that every get and every put has, encoded.
    get_options: Vec<u8>,
    put_options: Vec<u8>,
    delete_options: Vec<u8>,
    values: Vec<Range<usize>>,
    rows: Vec<Row>,
    text: String,
    tls: Option<ServerTls>,
    /// The message that logs in, under TLS.
    auth: Option<Vec<u8>>,
}

impl Pb {
    /// With what every request has.
    pub fn new(common: &Common) -> Pb {
        let options = |fields: &[(&str, u32)]| {
            let mut out = Vec::new();
            for (name, number) in fields {
                if let Some(&value) = common.quorums.get(*name) {
                    put_number(&mut out, *number, value.into());
                }
            }
            out
        };
        let mut put_options = options(&[("w", 5), ("dw", 6), ("pw", 8), ("n_val", 15)]);
        if common.returns_context {
            put_number(&mut put_options, RETURN_HEAD, 1);
        }
        Pb {
            bucket_type: common.bucket_type.as_ref().map(|name| name.clone().into_bytes()),
            get_options: options(&[("r", 3), ("pr", 4), ("n_val", 12)]),
            put_options,
            delete_options: options(&[("r", 5), ("w", 6), ("pr", 7), ("pw", 8), ("dw", 9), ("n_val", 12)]),
            values: Vec::new(),
            rows: Vec::new(),
            text: String::new(),
            tls: None,
            auth: None,
        }
    }

    /// The same for servers that ask for a login.
    pub fn secured(self, login: &Login, tls: ServerTls) -> Pb {
        let auth = login.user.as_ref().map(|user| {
            let mut body = Vec::new();
            put_bytes(&mut body, 1, user.as_bytes());
            put_bytes(&mut body, 2, login.password.as_deref().unwrap_or_default().as_bytes());
            body
        });
        Pb { tls: Some(tls), auth, ..self }
    }

    fn put_type(&self, out: &mut Vec<u8>, field: u32) {
        if let Some(name) = &self.bucket_type {
            put_bytes(out, field, name);
        }
    }
}

impl Codec for Pb {
    fn greet(&self, step: usize, out: &mut Vec<u8>) -> bool {
        let (code, body) = match (step, &self.tls, &self.auth) {
            (0, Some(_), _) => (codes::START_TLS, &[][..]),
            (1, Some(_), Some(auth)) => (codes::AUTH_REQ, &auth[..]),
            _ => return false,
        };
        let len = u32::try_from(body.len() + 1).expect("a name and a password are short");
        out.extend_from_slice(&len.to_be_bytes());
        out.push(code);
        out.extend_from_slice(body);
        true
    }

    fn greeted(&mut self, step: usize, frame: &[u8]) -> Result<(), String> {
        let code = frame.get(HEADER_LEN - 1).copied();
        let expected = if step == 0 { codes::START_TLS } else { codes::AUTH_RESP };
        match code {
            Some(code) if code == expected => Ok(()),
            _ if step == 0 => Err("the server offers no TLS".to_owned()),
            _ => Err("the login is refused".to_owned()),
        }
    }

    fn tls_after(&self, step: usize) -> Option<&ServerTls> {
        self.tls.as_ref().filter(|_| step == 0)
    }

    fn encode(&mut self, request: &Request<'_>, _stream: u16, out: &mut Vec<u8>) {
        let Request { bucket, key, command, .. } = request;
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_LEN]);
        let code = match command {
            Command::Get | Command::Head => {
                put_bytes(out, 1, bucket);
                put_bytes(out, 2, key);
                out.extend_from_slice(&self.get_options);
                if matches!(command, Command::Head) {
                    put_number(out, 8, 1);
                }
                self.put_type(out, 13);
                codes::GET_REQ
            }
            Command::Put { value, context, indexes } => {
                put_bytes(out, 1, bucket);
                put_bytes(out, 2, key);
                if let Some(context) = context {
                    put_bytes(out, 3, context);
                }
                put_content(out, value, indexes);
                out.extend_from_slice(&self.put_options);
                self.put_type(out, 16);
                codes::PUT_REQ
            }
            Command::Delete { context } => {
                put_bytes(out, 1, bucket);
                put_bytes(out, 2, key);
                if let Some(context) = context {
                    put_bytes(out, 4, context);
                }
                out.extend_from_slice(&self.delete_options);
                self.put_type(out, 13);
                codes::DEL_REQ
            }
            Command::Query(range) => {
                put_bytes(out, 1, bucket);
                put_bytes(out, 2, range.index.as_bytes());
                put_number(out, 3, (!range.is_exact()).into());
                if range.is_exact() {
                    put_bytes(out, 4, range.from);
                } else {
                    put_bytes(out, 5, range.from);
                    put_bytes(out, 6, range.to);
                }
                put_number(out, 7, range.return_terms.into());
                if let Some(max) = range.max_results {
                    put_number(out, 9, max.into());
                }
                if let Some(continuation) = range.continuation {
                    put_bytes(out, 10, continuation);
                }
                self.put_type(out, 12);
                if let Some(regex) = range.term_regex {
                    put_bytes(out, 13, regex.as_bytes());
                }
                INDEX_REQ
            }
            Command::ListKeys => {
                put_bytes(out, 1, bucket);
                self.put_type(out, 3);
                codes::LIST_KEYS_REQ
            }
            Command::ListBuckets => {
                put_number(out, 2, 1);
                self.put_type(out, 3);
                codes::LIST_BUCKETS_REQ
            }
            Command::Ping | Command::Reconnect => codes::PING_REQ,
        };
        let len = u32::try_from(out.len() - start - 4).expect("values are bounded far below 4 GiB");
        out[start..start + 4].copy_from_slice(&len.to_be_bytes());
        out[start + 4] = code;
    }

    fn frame_len(&self, _asked: Asked, input: &[u8]) -> Result<Option<usize>, String> {
        let Some(length) = input.first_chunk::<4>() else { return Ok(None) };
        match u32::from_be_bytes(*length) as usize {
            0 => Err("a frame without a message".to_owned()),
            len => Ok(Some(4 + len)),
        }
    }

    fn decode<'a>(&'a mut self, asked: Asked, listed: u64, frame: &'a [u8]) -> Decoded<'a> {
        let (code, body) = (frame[4], &frame[HEADER_LEN..]);
        let read = match (asked, code) {
            (_, codes::ERROR_RESP) => self.decode_error(body),
            (Asked::Read, codes::GET_RESP) => self.decode_object(body),
            (Asked::Head, codes::GET_RESP) => self.decode_object(body).map(|answer| match answer {
                Answer::Found { .. } => Answer::Done,
                other => other,
            }),
            (Asked::Write, codes::PUT_RESP) => decode_stored(body),
            (Asked::Write, codes::DEL_RESP | codes::PING_RESP) => Some(Answer::Done),
            (Asked::List, codes::LIST_KEYS_RESP | codes::LIST_BUCKETS_RESP) => {
                return decode_list(listed, body);
            }
            (Asked::Rows, INDEX_RESP) => self.decode_rows(body),
            _ => None,
        };
        let nonsense = Answer::Failed { kind: ErrorKind::Protocol, text: "an answer that cannot be read" };
        Decoded::Answer(read.unwrap_or(nonsense))
    }

    fn closes(&self, _frame: &[u8]) -> bool {
        false
    }
}

impl Pb {
    fn decode_error<'a>(&'a mut self, body: &[u8]) -> Option<Answer<'a>> {
        self.text.clear();
        for field in Fields(body) {
            if let (1, Value::Bytes(text)) = field? {
                self.text.push_str(&String::from_utf8_lossy(&body[text]));
            }
        }
        Some(Answer::Failed { kind: ErrorKind::of_text(&self.text), text: &self.text })
    }

    fn decode_object<'a>(&'a mut self, body: &'a [u8]) -> Option<Answer<'a>> {
        self.values.clear();
        let mut context: &[u8] = &[];
        for field in Fields(body) {
            match field? {
                (1, Value::Bytes(content)) => self.values.extend(value_of(body, content)?),
                (2, Value::Bytes(bytes)) => context = &body[bytes],
                _ => {}
            }
        }
        if self.values.is_empty() {
            return Some(Answer::NotFound);
        }
        Some(Answer::Found { context, values: &self.values, body })
    }

    fn decode_rows<'a>(&'a mut self, body: &'a [u8]) -> Option<Answer<'a>> {
        self.rows.clear();
        let mut continuation = None;
        for field in Fields(body) {
            match field? {
                (1, Value::Bytes(key)) => self.rows.push(Row { term: None, key }),
                (2, Value::Bytes(pair)) => self.rows.push(row_of(body, pair)?),
                (3, Value::Bytes(at)) => continuation = Some(&body[at]),
                _ => {}
            }
        }
        Some(Answer::Rows(Rows { places: &self.rows, body, continuation }))
    }
}

/// The answer to a put, which has a context if one was asked for.
fn decode_stored(body: &[u8]) -> Option<Answer<'_>> {
    let mut stored = Answer::Done;
    for field in Fields(body) {
        if let (2, Value::Bytes(context)) = field? {
            stored = Answer::Stored { context: &body[context] };
        }
    }
    Some(stored)
}

/// Where the value of a sibling is; an empty option for a tombstone.
fn value_of(body: &[u8], content: Range<usize>) -> Option<Option<Range<usize>>> {
    let (mut value, mut deleted) = (None, false);
    for field in Fields(&body[content.clone()]) {
        match field? {
            (1, Value::Bytes(at)) => value = Some(content.start + at.start..content.start + at.end),
            (11, Value::Number(number)) => deleted = number != 0,
            _ => {}
        }
    }
    Some(value.filter(|_| !deleted))
}

/// Keys or buckets, which may come in several parts.
fn decode_list(listed: u64, body: &[u8]) -> Decoded<'_> {
    let (mut count, mut done) = (listed, false);
    for field in Fields(body) {
        match field {
            Some((2, Value::Number(number))) => done = number != 0,
            Some((1, Value::Bytes(_))) => count += 1,
            Some(_) => {}
            None => {
                return Decoded::Answer(Answer::Failed {
                    kind: ErrorKind::Protocol,
                    text: "an answer that cannot be read",
                });
            }
        }
    }
    if done { Decoded::Answer(Answer::Listed(count)) } else { Decoded::Part(count) }
}

/// A pair of a term and a key.
fn row_of(body: &[u8], pair: Range<usize>) -> Option<Row> {
    let within = |at: Range<usize>| pair.start + at.start..pair.start + at.end;
    let mut row = Row { term: None, key: 0..0 };
    for field in Fields(&body[pair.clone()]) {
        match field? {
            (1, Value::Bytes(at)) => row.term = Some(within(at)),
            (2, Value::Bytes(at)) => row.key = within(at),
            _ => {}
        }
    }
    row.term.is_some().then_some(row)
}

fn put_content(out: &mut Vec<u8>, value: &[u8], indexes: &[(&str, Vec<u8>)]) {
    let pair_len = |name: &str, term: &[u8]| delimited(name.len()) + delimited(term.len());
    let pairs: usize = indexes.iter().map(|(name, term)| delimited(pair_len(name, term))).sum();
    put_varint(out, 4 << 3 | 2);
    put_varint(out, (delimited(value.len()) + delimited(CONTENT_TYPE.len()) + pairs) as u64);
    put_bytes(out, 1, value);
    put_bytes(out, 2, CONTENT_TYPE);
    for (name, term) in indexes {
        put_varint(out, 10 << 3 | 2);
        put_varint(out, pair_len(name, term) as u64);
        put_bytes(out, 1, name.as_bytes());
        put_bytes(out, 2, term);
    }
}

/// The length of a field of so many bytes whose number is below 16.
fn delimited(len: usize) -> usize {
    let bits = 64 - (len as u64 | 1).leading_zeros() as usize;
    1 + bits.div_ceil(7) + len
}

fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_varint(out, u64::from(field << 3 | 2));
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_number(out: &mut Vec<u8>, field: u32, value: u64) {
    put_varint(out, u64::from(field << 3));
    put_varint(out, value);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

enum Value {
    Number(u64),
    Bytes(Range<usize>),
    Fixed,
}

/// The fields of a message: number and value, by their places. `None` once where it makes no sense.
struct Fields<'a>(&'a [u8]);

impl<'a> IntoIterator for Fields<'a> {
    type Item = Option<(u64, Value)>;
    type IntoIter = FieldIter<'a>;

    fn into_iter(self) -> FieldIter<'a> {
        FieldIter { bytes: self.0, at: 0 }
    }
}

struct FieldIter<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl FieldIter<'_> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7F).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn skip(&mut self, len: u64) -> Option<Range<usize>> {
        let end = self.at.checked_add(usize::try_from(len).ok()?).filter(|&end| end <= self.bytes.len())?;
        let begin = std::mem::replace(&mut self.at, end);
        Some(begin..end)
    }

    fn field(&mut self) -> Option<(u64, Value)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.skip(8).map(|_| Value::Fixed)?,
            2 => {
                let len = self.varint()?;
                Value::Bytes(self.skip(len)?)
            }
            5 => self.skip(4).map(|_| Value::Fixed)?,
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

impl Iterator for FieldIter<'_> {
    type Item = Option<(u64, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.at = self.bytes.len();
        }
        Some(field)
    }
}

#[cfg(test)]
#[path = "pb_tests.rs"]
mod tests;
