//! The client against a listener in this process that answers from a script.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use protocol::messages::{GetReq, PutReq};
use protocol::response::{self, Body};
use protocol::{Limits, Request, codes, next_frame};

use super::*;

/// Serves one connection: for each piece of the script, reads one request and answers those bytes. Returns
/// the requests it read, after the client has gone or the script has ended.
fn serve(script: Vec<Vec<u8>>) -> (SocketAddr, JoinHandle<Vec<Request>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buf = BytesMut::new();
        let mut requests = Vec::new();
        for answer in script {
            let frame = loop {
                if let Some(frame) = next_frame(&mut buf, Limits::ESTABLISHED).unwrap() {
                    break frame;
                }
                let mut chunk = [0; 1024];
                let n = stream.read(&mut chunk).unwrap();
                if n == 0 {
                    return requests;
                }
                buf.extend_from_slice(&chunk[..n]);
            };
            requests.push(Request::decode(frame.code, frame.body).unwrap());
            stream.write_all(&answer).unwrap();
        }
        requests
    });
    (addr, server)
}

fn answer(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn connect(addr: SocketAddr) -> Client {
    Client::connect(addr, Timeouts::default()).unwrap()
}

fn content(value: &'static str) -> Content {
    Content { value: value.into(), ..Content::default() }
}

#[test]
fn a_session() {
    let (addr, server) = serve(vec![
        answer(|out| response::empty(out, codes::PING_RESP)),
        answer(|out| response::server_info(out, "a@127.0.0.1", "3.2.3")),
        answer(|out| response::put_done(out, Some(b"invented"))),
        answer(|out| response::get(out, [content("x"), content("y")], b"clock", Body::Full)),
        answer(|out| response::put(out, [content("z")], b"later", None, Body::Full)),
        answer(|out| response::empty(out, codes::DEL_RESP)),
        answer(|out| response::get_notfound(out, None)),
        answer(|out| response::get_notfound(out, Some(b"tombstone"))),
    ]);
    let mut client = connect(addr);
    client.ping().unwrap();
    let info = client.server_info().unwrap();
    assert_eq!((info.node.as_str(), info.version.as_str()), ("a@127.0.0.1", "3.2.3"));
    let stored = client.put(Some(b"t"), b"b", None, content("x"), &WriteOptions::default()).unwrap();
    assert_eq!(stored, Stored { key: Some("invented".into()), object: None });
    let read = ReadOptions { r: Quorum::All, ..ReadOptions::default() };
    let fetched = client.get(None, b"b", b"k", &read).unwrap().unwrap();
    assert_eq!(fetched, Fetched { siblings: vec![content("x"), content("y")], vclock: "clock".into() });
    let write = WriteOptions { vclock: Some(fetched.vclock), return_body: true, ..WriteOptions::default() };
    let stored = client.put(None, b"b", Some(b"k"), content("z"), &write).unwrap();
    let object = Fetched { siblings: vec![content("z")], vclock: "later".into() };
    assert_eq!(stored, Stored { key: None, object: Some(object) });
    client.delete(None, b"b", b"k", &WriteOptions::default()).unwrap();
    assert_eq!(client.get(None, b"b", b"k", &ReadOptions::default()).unwrap(), None);
    let tombstone = client.head(None, b"b", b"k", &ReadOptions::default()).unwrap().unwrap();
    assert!(tombstone.siblings.is_empty());

    let requests = server.join().unwrap();
    assert_eq!(requests[0], Request::Ping);
    let Request::Put(first) = &requests[2] else { panic!("not a put") };
    assert_eq!((first.bucket_type.as_deref(), &first.key, first.w), (Some(&b"t"[..]), &None, None));
    let get = GetReq { bucket: "b".into(), key: "k".into(), r: Some(0xFFFF_FFFC), ..GetReq::default() };
    assert_eq!(requests[3], Request::Get(get));
    let put = PutReq {
        bucket: "b".into(),
        key: Some("k".into()),
        vclock: Some("clock".into()),
        content: content("z"),
        return_body: Some(true),
        ..PutReq::default()
    };
    assert_eq!(requests[4], Request::Put(Box::new(put)));
    let Request::Get(head) = &requests[7] else { panic!("not a get") };
    assert_eq!(head.head, Some(true));
}

#[test]
fn listings_are_read_to_the_end_and_properties_round_trip() {
    let none: [&[u8]; 0] = [];
    let props = BucketProps { n_val: Some(3), ..BucketProps::default() };
    let (addr, server) = serve(vec![
        answer(|out| {
            response::list_keys(out, ["k1", "k2"], false);
            response::list_keys(out, ["k3"], false);
            response::list_keys(out, none, true);
        }),
        answer(|out| {
            response::list_buckets(out, ["b1"], false);
            response::list_buckets(out, ["b2"], true);
        }),
        answer(|out| response::bucket_props(out, &props)),
        answer(|out| response::empty(out, codes::SET_BUCKET_RESP)),
        answer(|out| response::empty(out, codes::RESET_BUCKET_RESP)),
    ]);
    let mut client = connect(addr);
    let mut keys: Vec<Bytes> = Vec::new();
    client.list_keys(None, b"b", |key| keys.push(key)).unwrap();
    assert_eq!(keys, ["k1", "k2", "k3"]);
    assert_eq!(client.list_buckets(None).unwrap(), ["b1", "b2"]);
    assert_eq!(client.get_props(None, b"b").unwrap(), props);
    client.set_props(None, b"b", props.clone()).unwrap();
    client.reset_props(None, b"b").unwrap();
    let requests = server.join().unwrap();
    let Request::SetBucket(set) = &requests[3] else { panic!("not a set") };
    assert_eq!(set.props, props);
}

#[test]
fn a_server_error_leaves_the_connection_alive() {
    let (addr, server) = serve(vec![
        answer(|out| response::error(out, "{n_val_violation,3}")),
        answer(|out| response::empty(out, codes::PING_RESP)),
    ]);
    let mut client = connect(addr);
    match client.get(None, b"b", b"k", &ReadOptions::default()) {
        Err(Error::Server(text)) => assert_eq!(text, "{n_val_violation,3}"),
        other => panic!("{other:?}"),
    }
    client.ping().unwrap();
    server.join().unwrap();
}

/// It was sent as it was, and refused with "Invalid message packet".
#[test]
fn a_connection_does_not_begin_with_a_large_request() {
    let done = || answer(|out| response::put_done(out, None));
    let (addr, server) = serve(vec![answer(|out| response::empty(out, codes::PING_RESP)), done(), done()]);
    let mut client = connect(addr);
    for key in [&b"one"[..], b"two"] {
        let value = Bytes::from(vec![7; 9 << 20]);
        let content = Content { value, ..Content::default() };
        client.put(None, b"b", Some(key), content, &WriteOptions::default()).unwrap();
    }
    let requests = server.join().unwrap();
    assert!(matches!(&requests[..], [Request::Ping, Request::Put(_), Request::Put(_)]), "{}", requests.len());
}

#[test]
fn a_wrong_answer_kills_the_connection() {
    let (addr, server) = serve(vec![answer(|out| response::empty(out, codes::DEL_RESP)), Vec::new()]);
    let mut client = connect(addr);
    assert!(matches!(client.ping(), Err(Error::Protocol(_))));
    // Not sent: its answer could be that of another request.
    assert!(matches!(client.ping(), Err(Error::Protocol(_))));
    drop(client);
    assert_eq!(server.join().unwrap().len(), 1);
}

#[test]
fn a_server_that_goes_or_hangs_is_an_io_error() {
    let (addr, server) = serve(vec![b"\0\0".to_vec()]);
    let mut client = connect(addr);
    assert!(matches!(client.ping(), Err(Error::Io(_))));
    server.join().unwrap();

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let timeouts = Timeouts { io: Duration::from_millis(10), ..Timeouts::default() };
    let mut client = Client::connect(silent.local_addr().unwrap(), timeouts).unwrap();
    assert!(matches!(client.ping(), Err(Error::Io(_))));
    assert!(matches!(client.ping(), Err(Error::Protocol(_))));
}

#[test]
fn frames_can_be_sent_as_they_are() {
    let (addr, server) = serve(vec![answer(|out| response::error(out, "no"))]);
    let mut client = connect(addr);
    client.send_frame(codes::PING_REQ, b"").unwrap();
    let frame = client.recv_frame().unwrap();
    assert_eq!((frame.code, &frame.body[..]), (0, &b"\x0a\x02no\x10\x00"[..]));
    server.join().unwrap();
}

#[test]
fn a_value_beyond_a_frame_is_not_sent() {
    let (addr, server) = serve(vec![Vec::new()]);
    let mut client = connect(addr);
    let content = Content { value: vec![0; protocol::frame::FRAME_MAX].into(), ..Content::default() };
    let stored = client.put(None, b"b", Some(b"k"), content, &WriteOptions::default());
    assert!(matches!(stored, Err(Error::Protocol(_))));
    drop(client);
    assert!(server.join().unwrap().is_empty());
}
