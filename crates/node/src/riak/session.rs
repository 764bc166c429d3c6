//! One client's connection: bytes in, requests out; responses in, bytes out.
//!
//! 1. [`Session::receive`] cuts a frame off the input. What concerns the connection alone (ping, server info,
//!    client ids, whatever cannot be served) it answers itself; anything else is a request for the node.
//!    With security, nothing but the code of a frame is looked at before a login, and no request passes without the
//!    permissions that it needs (`needs`).
//! 2. The node answers with [`Session::respond`], several times for a listing. The shell carries out a switch to TLS
//!    and the check of a login.
//! 3. Only then is the next frame looked at: one request at a time, and what a client sends ahead waits.
//!
//! Invariants: frames are answered in the order they came; every frame gets an answer or costs the connection.
//! A malformed frame gets its answer first, as in Riak.

use std::sync::Arc;

use base::Reservation;
use bytes::{Bytes, BytesMut};
use kv::{Error, Response};
use protocol::frame::{FRAME_MAX, arriving_bytes};
use protocol::messages::AuthReq;
use protocol::request::DecodeError;
use protocol::{Frame, FrameError, Limits, codes, errors, next_frame, response};
use security::{Access, Denied, Mode};

use super::needs::needs;
use super::{decode, encode};

/// Longest client id that is kept: Riak's are four bytes.
const CLIENT_ID_LEN_MAX: usize = 64;

/// The largest frame before a login: names and passwords are short.
const FRAME_BEFORE_LOGIN_MAX: usize = 64 << 10;

/// Failed logins of a connection, after which it is closed, as in Riak.
pub const LOGINS_FAILED_MAX: u32 = 3;

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name, as `name@host`.
    pub node: String,
    /// Its version: three numbers with dots, which is what clients parse.
    pub version: String,
}

/// What a step of the connection came to.
#[derive(Debug, PartialEq)]
pub enum Incoming {
    /// More bytes must be read first; the input has room for some.
    Wait,
    /// A frame was answered: bytes were appended to the output.
    Answered,
    /// A request for the node. [`Session::respond`] comes before the next [`Session::receive`].
    Request(kv::Request),
    /// Send what the output holds, and go on under TLS; then [`Session::on_secure`] comes.
    StartTls,
    /// A login that is to be verified. [`Session::on_login`] comes before the next [`Session::receive`].
    Login(AuthReq),
    /// Send what the output holds and close.
    Close,
}

/// What the answer under way is to, as far as its form depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// An object.
    Object,
    /// A listing or a bucket's properties.
    Bucket,
    /// A bucket type's properties.
    Type,
    /// Buckets, all in one answer.
    AllBuckets,
    /// What an index query finds, in pieces.
    Stream,
}

/// A connection's state.
#[derive(Debug)]
pub struct Session {
    identity: Arc<Identity>,
    limits: Limits,
    /// The largest frame that this node has memory for.
    frame_max: usize,
    /// Memory for the frame that is arriving, if it is large.
    memory: Option<Reservation>,
    client_id: Bytes,
    asked: Asked,
    closing: bool,
    access: Access,
    /// Whether the node has a certificate for clients.
    has_tls: bool,
    logins_failed: u32,
    /// Memory for an object's context as the client sees it, kept so that a read allocates nothing.
    context: Vec<u8>,
}

impl Session {
    /// A new connection to the node of this identity.
    pub fn new(identity: Arc<Identity>) -> Session {
        Session {
            identity,
            limits: Limits::BEFORE_FIRST,
            frame_max: FRAME_MAX,
            memory: None,
            client_id: Bytes::from_static(&[0; 4]),
            asked: Asked::Object,
            closing: false,
            access: Access::default(),
            has_tls: false,
            logins_failed: 0,
            context: Vec::new(),
        }
    }

    /// Whether a client may go on under TLS: the node has a certificate.
    pub fn offer_tls(&mut self, has_tls: bool) {
        self.has_tls = has_tls;
    }

    /// The rights of the connection.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The rights of the connection, to have it go by a newer policy.
    pub fn access_mut(&mut self) -> &mut Access {
        &mut self.access
    }

    /// Answers the request under way, which the policy does not allow any more.
    pub fn deny(&mut self, why: &Denied, out: &mut Vec<u8>) {
        response::error(out, &why.to_string());
    }

    /// The connection is under TLS now.
    pub fn on_secure(&mut self) {
        self.access.secure();
    }

    /// Answers the login that [`Session::receive`] gave out last: the client is the user of this name, or of none.
    pub fn on_login(&mut self, name: Option<&[u8]>, out: &mut Vec<u8>) {
        match name {
            Some(name) => {
                self.access.log_in(name);
                response::empty(out, codes::AUTH_RESP);
            }
            None => {
                self.logins_failed += 1;
                self.closing |= self.logins_failed >= LOGINS_FAILED_MAX;
                response::error(out, errors::AUTHENTICATION_FAILED);
            }
        }
    }

    /// Refuses frames that are larger than this: the node has no memory for them.
    pub fn bound(&mut self, frame_max: usize) {
        self.frame_max = frame_max;
        self.limits = self.limits.within(frame_max);
    }

    /// Bytes that the frame at the front of `input` needs memory for, and has not: all of it, as soon as its length is
    /// known.
    pub fn wants_memory(&self, input: &[u8]) -> usize {
        if self.memory.is_some() { 0 } else { arriving_bytes(input) }
    }

    /// Gives memory to the frame that is arriving, until nobody holds a part of it.
    pub fn hold(&mut self, memory: Reservation) {
        self.memory = Some(memory);
    }

    /// Takes the next frame off `input`, if it is complete.
    pub fn receive(&mut self, input: &mut BytesMut, out: &mut Vec<u8>) -> Incoming {
        if self.closing {
            return Incoming::Close;
        }
        let limits = match self.access.mode() == Mode::On && self.access.admits().is_err() {
            false => self.limits,
            true => self.limits.within(FRAME_BEFORE_LOGIN_MAX),
        };
        match next_frame(input, limits) {
            Ok(None) => Incoming::Wait,
            Ok(Some(frame)) if frame.code == codes::START_TLS && self.has_tls => self.start_tls(input, out),
            Ok(Some(mut frame)) => {
                if let Some(memory) = self.memory.take() {
                    frame.body = memory.hold(frame.body);
                }
                self.on_frame(frame, out)
            }
            Err(error) => self.on_frame_error(error, out),
        }
    }

    /// Answers the request that [`Session::receive`] gave out last.
    pub fn respond(&mut self, result: Result<Response, Error>, out: &mut Vec<u8>) {
        match result {
            Ok(answer) => encode::response(&answer, self.asked, &mut self.context, out),
            Err(error) => {
                // Riak fails to decode such a clock and closes; so that clients see one behaviour, so do we.
                self.closing |= error == Error::BadContext;
                response::error(out, &encode::error_text(&error, self.asked));
            }
        }
    }

    /// Goes on under TLS. A client waits for the answer before it begins the handshake. Bytes that came before it were
    /// put there by somebody else, to be taken for a part of the encrypted stream.
    fn start_tls(&mut self, input: &BytesMut, out: &mut Vec<u8>) -> Incoming {
        if self.access.is_secure() {
            let unknown = || DecodeError::UnknownCode(codes::START_TLS).to_string();
            let text = self.access.admits().err().map_or_else(unknown, |denied| denied.to_string());
            response::error(out, &text);
            return Incoming::Answered;
        }
        if !input.is_empty() && !base::planted!(StartTlsPlaintextKept) {
            self.closing = true;
            return Incoming::Close;
        }
        response::empty(out, codes::START_TLS);
        Incoming::StartTls
    }

    fn on_frame(&mut self, frame: Frame, out: &mut Vec<u8>) -> Incoming {
        if self.access.mode() == Mode::Off {
            // Riak has no such code then, so nothing of the body is looked at.
            if frame.code == codes::AUTH_REQ {
                return self.on_decode_error(&DecodeError::UnknownCode(codes::AUTH_REQ), out);
            }
        } else if !matches!(frame.code, codes::START_TLS | codes::AUTH_REQ)
            && let Err(denied) = self.access.admits()
        {
            response::error(out, &denied.to_string());
            return Incoming::Answered;
        }
        let decoded = protocol::Request::decode(frame.code, frame.body);
        let incoming = decoded.and_then(|request| self.on_request(request, out));
        match incoming {
            Ok(incoming) => {
                self.limits = Limits::ESTABLISHED.within(self.frame_max);
                incoming
            }
            Err(error) => self.on_decode_error(&error, out),
        }
    }

    fn on_request(&mut self, request: protocol::Request, out: &mut Vec<u8>) -> Result<Incoming, DecodeError> {
        use protocol::Request as R;
        self.access.end();
        if self.access.mode() != Mode::Off
            && let Err(denied) = self.begin(&request)
        {
            response::error(out, &denied.to_string());
            return Ok(Incoming::Answered);
        }
        match request {
            R::Ping => response::empty(out, codes::PING_RESP),
            R::GetClientId => response::client_id(out, &self.client_id),
            R::SetClientId(message) if message.client_id.len() > CLIENT_ID_LEN_MAX => {
                return Err(DecodeError::Refused("client id too long"));
            }
            R::SetClientId(message) => {
                self.client_id = Bytes::copy_from_slice(&message.client_id);
                response::empty(out, codes::SET_CLIENT_ID_RESP);
            }
            R::GetServerInfo => response::server_info(out, &self.identity.node, &self.identity.version),
            R::StartTls => response::error(out, errors::NO_START_TLS),
            R::Auth(_) if self.access.has_user() => {
                return Err(DecodeError::UnknownCode(codes::AUTH_REQ));
            }
            R::Auth(_) if !self.access.is_secure() => response::error(out, &Denied::Plaintext.to_string()),
            R::Auth(login) => return Ok(Incoming::Login(login)),
            request => {
                let request = decode::request(request)?;
                self.asked = asked(&request);
                return Ok(Incoming::Request(request));
            }
        }
        Ok(Incoming::Answered)
    }

    /// Checks the permissions of a message, and keeps its needs if its answer lasts.
    #[inline(never)]
    fn begin(&mut self, request: &protocol::Request) -> Result<(), Denied> {
        self.access.begin(needs(request), lasts(request))
    }

    fn on_decode_error(&mut self, error: &DecodeError, out: &mut Vec<u8>) -> Incoming {
        self.closing |= error.closes();
        response::error(out, &error.to_string());
        Incoming::Answered
    }

    fn on_frame_error(&mut self, error: FrameError, out: &mut Vec<u8>) -> Incoming {
        self.closing = true;
        match error {
            FrameError::TooLarge { len, max } if max == self.frame_max && len <= FRAME_MAX => {
                let text = format!(
                    "too large: a request of {len} bytes, and this node has memory for {max} (--memory)"
                );
                response::error(out, &text);
            }
            error => error.reply().into_iter().for_each(|text| response::error(out, &text)),
        }
        Incoming::Close
    }
}

/// Whether an answer comes in pieces, or after a long time.
fn lasts(request: &protocol::Request) -> bool {
    use protocol::Request as R;
    matches!(request, R::ListKeys(_) | R::ListBuckets(_) | R::Index(_) | R::FoldNVal(..) | R::FoldRange(..))
}

fn asked(request: &kv::Request) -> Asked {
    use kv::Request as R;
    match request {
        R::Get(_) | R::Put(_) | R::Delete(_) | R::GetPreflist(..) => Asked::Object,
        R::ListBuckets(list) if !list.stream => Asked::AllBuckets,
        R::Index(index) if index.stream => Asked::Stream,
        R::Index(_)
        | R::Fold(_)
        | R::ListBuckets(_)
        | R::ListKeys(_)
        | R::GetProps(_)
        | R::SetProps(..)
        | R::ResetProps(_) => Asked::Bucket,
        R::GetTypeProps(_) | R::ChangeType(..) | R::ListTypes | R::ListMembers | R::Query(_) => Asked::Type,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;
    use protocol::Message;
    use protocol::messages as pb;

    const PING: &[u8] = &[0, 0, 0, 1, codes::PING_REQ];
    const PONG: &[u8] = &[0, 0, 0, 1, codes::PING_RESP];

    fn session() -> Session {
        Session::new(Arc::new(Identity { node: "n@h".into(), version: "1.2.3".into() }))
    }

    fn frame(code: u8, message: &impl Message) -> Vec<u8> {
        let body = message.encode_to_vec();
        let len = u32::try_from(body.len() + 1).unwrap();
        [&len.to_be_bytes()[..], &[code], &body].concat()
    }

    fn get(key: &'static str) -> Vec<u8> {
        let (bucket, key) = (Bytes::from_static(b"b"), Bytes::from(key));
        frame(codes::GET_REQ, &pb::GetReq { bucket, key, ..pb::GetReq::default() })
    }

    fn error_of(out: &[u8]) -> String {
        assert_eq!(out[4], codes::ERROR_RESP);
        String::from_utf8(pb::ErrorResp::decode(&out[5..]).unwrap().errmsg.to_vec()).unwrap()
    }

    #[test]
    fn a_frame_that_there_is_no_memory_for_names_the_limit() {
        let (mut session, mut out) = (session(), Vec::new());
        session.bound(100);
        let mut input = BytesMut::from(&b"\0\0\0\xc8\x0b"[..]);
        assert_eq!(session.receive(&mut input, &mut out), Incoming::Close);
        assert!(String::from_utf8_lossy(&out).contains("200 bytes, and this node has memory for 100"));
    }

    #[test]
    fn a_large_frame_holds_its_memory_until_its_request_is_dropped() {
        let budget = base::Budget::new(1 << 20);
        let (mut session, mut out) = (session(), Vec::new());
        let content = pb::Content { value: Bytes::from(vec![b'v'; 70_000]), ..pb::Content::default() };
        let bucket = Bytes::from_static(b"b");
        let put = frame(codes::PUT_REQ, &pb::PutReq { bucket, content, ..pb::PutReq::default() });
        let mut input = BytesMut::from(&put[..100]);
        assert_eq!(session.receive(&mut input, &mut out), Incoming::Wait);
        assert_eq!(session.wants_memory(&input), put.len());
        session.hold(budget.reserve(put.len()).unwrap());
        assert_eq!(session.wants_memory(&input), 0);
        input.extend_from_slice(&put[100..]);
        let Incoming::Request(kv::Request::Put(request)) = session.receive(&mut input, &mut out) else {
            panic!("it is whole");
        };
        let value = request.value.clone();
        drop(request);
        assert_eq!((value.len(), budget.used()), (70_000, put.len()));
        drop(value);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_request_that_comes_byte_by_byte_is_one_request() {
        let (mut session, mut input, mut out) = (session(), BytesMut::new(), Vec::new());
        let bytes = get("k");
        let (last, rest) = bytes.split_last().unwrap();
        for &byte in rest {
            input.extend_from_slice(&[byte]);
            assert_eq!(session.receive(&mut input, &mut out), Incoming::Wait);
        }
        input.extend_from_slice(&[*last]);
        assert!(matches!(session.receive(&mut input, &mut out), Incoming::Request(kv::Request::Get(_))));
        assert!(input.is_empty() && out.is_empty());
    }

    #[test]
    fn what_is_sent_ahead_waits_and_is_answered_in_order() {
        let (mut session, mut out) = (session(), Vec::new());
        let mut input = BytesMut::from(&[PING, &get("k"), PING].concat()[..]);
        assert_eq!(session.receive(&mut input, &mut out), Incoming::Answered);
        assert!(matches!(session.receive(&mut input, &mut out), Incoming::Request(_)));
        assert_eq!(&input[..], PING);
        session.respond(Ok(Response::NotFound { deleted_context: None }), &mut out);
        assert_eq!(session.receive(&mut input, &mut out), Incoming::Answered);
        assert_eq!(out, [PONG, &[0, 0, 0, 1, codes::GET_RESP], PONG].concat());
    }

    #[test]
    fn errors_close_or_stay_open_as_in_riak() {
        let run = |bytes: &[u8]| {
            let (mut session, mut input, mut out) = (session(), BytesMut::from(bytes), Vec::new());
            input.extend_from_slice(PING);
            assert_ne!(session.receive(&mut input, &mut out), Incoming::Wait);
            let closes = session.receive(&mut input, &mut Vec::new()) == Incoming::Close;
            (error_of(&out), closes)
        };
        assert_eq!(run(&[0, 0, 0, 1, 200]), ("Unknown message code: 200".into(), false));
        for answer in [codes::ERROR_RESP, codes::PING_RESP, codes::GET_RESP, codes::PUT_RESP, 254] {
            let unknown = format!("Unknown message code: {answer}");
            assert_eq!(run(&[0, 0, 0, 1, answer]), (unknown, false), "an answer is no request");
        }
        assert_eq!(run(&get("")), ("Key cannot be zero-length".into(), false));
        let (text, closes) = run(&[0, 0, 0, 2, codes::GET_REQ, 0xFF]);
        assert!(text.starts_with("Error processing incoming message: ") && closes, "{text}");
        assert_eq!(run(&[0x7F, 0xFF, 0xFF, 0xFF]), ("Invalid message packet, reason: invalid".into(), true));
        let bad_repl = pb::BucketProps { repl: Some(9), ..pb::BucketProps::default() };
        let set = pb::SetBucketReq { bucket: Bytes::from_static(b"b"), props: bad_repl, bucket_type: None };
        assert!(run(&frame(codes::SET_BUCKET_REQ, &set)).1);
    }

    #[test]
    fn a_bad_context_closes_after_its_answer() {
        let (mut session, mut out) = (session(), Vec::new());
        let mut input = BytesMut::from(&[&get("k")[..], PING].concat()[..]);
        assert!(matches!(session.receive(&mut input, &mut out), Incoming::Request(_)));
        session.respond(Err(Error::BadContext), &mut out);
        assert!(error_of(&out).starts_with("Error processing incoming message: "));
        assert_eq!(session.receive(&mut input, &mut out), Incoming::Close);
    }

    #[test]
    fn errors_are_told_in_riaks_words() {
        let unsatisfied =
            |need, want, got| encode::error_text(&Error::Unsatisfied { need, want, got }, Asked::Object);
        assert_eq!(unsatisfied(kv::need::Need::Pw, 2, 1), "{pw_val_unsatisfied,2,1}");
        assert_eq!(unsatisfied(kv::need::Need::NodeConfirms, 2, 1), "{node_confirms_val_unsatisfied,2,1}");
        let reasons = vec![
            ("n_val", kv::props::Reason::Word("not_integer")),
            ("allow_mult", kv::props::Reason::Text("no \"way\"".into())),
        ];
        assert_eq!(
            encode::error_text(&Error::InvalidProps(reasons), Asked::Bucket),
            r#"Invalid bucket properties: [{n_val,not_integer},{allow_mult,"no \"way\""}]"#
        );
        assert_eq!(encode::error_text(&Error::Timeout, Asked::Object), "timeout");
        assert_eq!(encode::error_text(&Error::Overload, Asked::Object), "overload");
    }

    #[test]
    fn every_property_survives_the_way_in_and_out() {
        let name = |name: &'static str| Some(Bytes::from(name));
        let fun = pb::ModFun { module: Bytes::from("m"), function: Bytes::from("f") };
        let (module, function) = (Bytes::from("riak_core_util"), Bytes::from("chash_bucketonly_keyfun"));
        let props = pb::BucketProps {
            n_val: Some(5),
            allow_mult: Some(true),
            last_write_wins: Some(true),
            precommit: vec![pb::CommitHook { modfun: Some(fun.clone()), name: None }],
            has_precommit: Some(true),
            postcommit: vec![pb::CommitHook { modfun: None, name: name("js") }],
            has_postcommit: Some(true),
            chash_keyfun: Some(pb::ModFun { module, function }),
            linkfun: Some(fun),
            old_vclock: Some(1),
            young_vclock: Some(2),
            big_vclock: Some(3),
            small_vclock: Some(4),
            pr: Some(1),
            r: Some(0xFFFF_FFFE),
            w: Some(0xFFFF_FFFC),
            pw: Some(2),
            dw: Some(3),
            rw: Some(0xFFFF_FFFD),
            basic_quorum: Some(true),
            notfound_ok: Some(false),
            backend: None,
            search: Some(false),
            repl: Some(1),
            search_index: name("_dont_index_"),
            datatype: None,
            consistent: None,
            write_once: Some(false),
            hll_precision: Some(12),
        };
        let set = pb::SetBucketReq { bucket: Bytes::from("b"), props: props.clone(), bucket_type: None };
        let (mut session, mut out) = (session(), Vec::new());
        let mut input = BytesMut::from(&frame(codes::SET_BUCKET_REQ, &set)[..]);
        let Incoming::Request(kv::Request::SetProps(_, changes)) = session.receive(&mut input, &mut out)
        else {
            panic!("no request to set properties");
        };
        let changed = Arc::new(kv::BucketProps::default().with(&changes).unwrap());
        session.respond(Ok(Response::Props(changed)), &mut out);
        assert_eq!(pb::GetBucketResp::decode(&out[5..]).unwrap().props, props);
    }

    #[test]
    fn random_bytes_never_panic_and_always_end() {
        let mut rng = SplitMix64::new(11);
        let seeds = [get("key"), PING.to_vec(), frame(codes::SET_BUCKET_REQ, &pb::SetBucketReq::default())];
        for round in 0..10_000 {
            let mut bytes = seeds[round % seeds.len()].clone();
            for _ in 0..=rng.below(4) {
                let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
                bytes[at] = rng.next_u64().to_le_bytes()[0];
            }
            let (mut session, mut input, mut out) = (session(), BytesMut::from(&bytes[..]), Vec::new());
            for _ in 0..bytes.len() {
                match session.receive(&mut input, &mut out) {
                    Incoming::Wait | Incoming::Close => break,
                    Incoming::Answered => assert!(!out.is_empty()),
                    Incoming::Request(_) => session.respond(Err(Error::Overload), &mut out),
                    Incoming::StartTls | Incoming::Login(_) => unreachable!("security is off"),
                }
            }
        }
    }
}
