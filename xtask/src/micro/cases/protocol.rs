//! A connection's state machine over protocol buffers: frames in, answers out.

use super::{Operation, VALUE_BYTES, key, value};
use crate::Result;
use bytes::{Bytes, BytesMut};
use kv::{Request, Response};
use node::riak::{Identity, Incoming, Session};
use protocol::messages as pb;
use protocol::{Message, codes};
use std::sync::Arc;

pub const BUCKET: Bytes = Bytes::from_static(b"bench");

/// A connection whose first frame has been.
pub fn session() -> Session {
    let identity = Identity { node: "n@127.0.0.1".into(), version: node::riak::RIAK_VERSION.into() };
    Session::new(Arc::new(identity))
}

pub fn frame(code: u8, message: &impl Message) -> Vec<u8> {
    let body = message.encode_to_vec();
    let len = u32::try_from(body.len() + 1).expect("a frame is small");
    [&len.to_be_bytes()[..], &[code], &body].concat()
}

pub fn get_frame(key: Vec<u8>) -> Vec<u8> {
    typed_get_frame(None, key)
}

pub fn put_frame(key: Vec<u8>) -> Vec<u8> {
    typed_put_frame(None, key)
}

/// A read of a key of a bucket type.
pub fn typed_get_frame(bucket_type: Option<Bytes>, key: Vec<u8>) -> Vec<u8> {
    let get = pb::GetReq { bucket: BUCKET, key: key.into(), bucket_type, ..pb::GetReq::default() };
    frame(codes::GET_REQ, &get)
}

/// A write of 1 KiB under a key of a bucket type.
pub fn typed_put_frame(bucket_type: Option<Bytes>, key: Vec<u8>) -> Vec<u8> {
    let content_type = Some(Bytes::from_static(b"application/octet-stream"));
    let content = pb::Content { value: value(), content_type, ..pb::Content::default() };
    let put =
        pb::PutReq { bucket: BUCKET, key: Some(key.into()), content, bucket_type, ..pb::PutReq::default() };
    frame(codes::PUT_REQ, &put)
}

/// Takes one request off a connection on which `bytes` have come.
pub fn receive(session: &mut Session, input: &mut BytesMut, bytes: &[u8], out: &mut Vec<u8>) -> Request {
    input.extend_from_slice(bytes);
    match session.receive(input, out) {
        Incoming::Request(request) => request,
        other => panic!("a request came in and {other:?} out"),
    }
}

fn decode(bytes: Vec<u8>) -> Operation {
    let (mut session, mut input, mut out) = (session(), BytesMut::new(), Vec::new());
    Box::new(move |_| {
        out.clear();
        std::hint::black_box(receive(&mut session, &mut input, &bytes, &mut out));
    })
}

pub fn decode_get() -> Result<Operation> {
    Ok(decode(get_frame(key(1))))
}

pub fn decode_put() -> Result<Operation> {
    Ok(decode(put_frame(key(1))))
}

pub fn encode_get() -> Result<Operation> {
    let found = super::shard::found()?;
    let (mut session, mut out) = (session(), Vec::new());
    receive(&mut session, &mut BytesMut::new(), &get_frame(key(1)), &mut out);
    Ok(Box::new(move |_| {
        out.clear();
        let answer: Response = found.clone();
        session.respond(Ok(answer), &mut out);
        assert!(out.len() > VALUE_BYTES);
    }))
}
