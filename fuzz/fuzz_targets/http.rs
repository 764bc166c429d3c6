//! A connection's bytes, in two pieces: every request is answered or refused, whatever comes, and reading ends.
#![no_main]

use bytes::BytesMut;
use kv::{Error, Response};
use libfuzzer_sys::fuzz_target;
use node::http::{Incoming, Session};

fuzz_target!(|input: (u16, &[u8])| {
    let (cut, bytes) = input;
    let (first, second) = bytes.split_at(usize::from(cut).min(bytes.len()));
    let (mut session, mut pending, mut out) = (Session::new(), BytesMut::new(), Vec::new());
    for piece in [first, second] {
        pending.extend_from_slice(piece);
        loop {
            out.clear();
            match session.receive(1_795_263_371, &mut pending, &mut out) {
                Incoming::Wait(_) => break,
                Incoming::Close => return assert!(!out.is_empty()),
                Incoming::Answered => assert!(!out.is_empty()),
                Incoming::Login(_) => session.on_login(None, 1_795_263_371, &mut out),
                Incoming::Question(_) => session.answer(200, "a/b", b"", &mut out),
                Incoming::Request(kv::Request::Get(_)) => {
                    let answer = Response::NotFound { deleted_context: None };
                    assert_eq!(session.respond(Ok(answer), &mut out), None);
                }
                Incoming::Request(_) => assert_eq!(session.respond(Err(Error::Overload), &mut out), None),
            }
        }
    }
});
