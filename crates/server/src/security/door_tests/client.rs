//! Clients of the doors: of protocol buffers, in plaintext and under TLS, and of HTTP.

use crate::security::tls::tests::Certificates;
use protocol::messages::{AuthReq, ErrorResp, GetReq};
use protocol::{Message, codes};
use rustls::{ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Sends a message; the code of its answer, and the text if that is an error.
pub(super) fn ask(stream: &mut (impl Read + Write), code: u8, body: &[u8]) -> (u8, String) {
    let len = u32::try_from(body.len() + 1).unwrap();
    stream.write_all(&[&len.to_be_bytes()[..], &[code], body].concat()).unwrap();
    stream.flush().unwrap();
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    let mut frame = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut frame).unwrap();
    let is_error = frame[0] == codes::ERROR_RESP;
    let text = is_error.then(|| ErrorResp::decode(&frame[1..]).unwrap().errmsg.to_vec());
    (frame[0], String::from_utf8(text.unwrap_or_default()).unwrap())
}

pub(super) fn auth(user: &str, password: &str) -> Vec<u8> {
    let bytes = |text: &str| text.as_bytes().to_vec().into();
    AuthReq { user: bytes(user), password: bytes(password) }.encode_to_vec()
}

pub(super) fn get() -> Vec<u8> {
    GetReq { bucket: "b".into(), key: "k".into(), ..GetReq::default() }.encode_to_vec()
}

/// A connection that goes on under TLS.
pub(super) fn secured(
    certificates: &Certificates,
    name: Option<&str>,
    address: SocketAddr,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut tcp = TcpStream::connect(address).unwrap();
    assert_eq!(ask(&mut tcp, codes::START_TLS, b"").0, codes::START_TLS);
    certificates.client(name, tcp)
}

pub(super) const PONG: (u8, String) = (codes::PING_RESP, String::new());

/// The base64 of `alice:secret`, and of other logins.
pub(super) const ALICE: &str = "YWxpY2U6c2VjcmV0";
pub(super) const ALICE_WRONG: &str = "YWxpY2U6d3Jvbmc=";
pub(super) const BOB: &str = "Ym9iOng=";

/// The head of the answer to a ping with these headers.
pub(super) fn ping(stream: &mut (impl Read + Write), headers: &str) -> String {
    http_head(stream, "GET /ping", headers)
}

/// The head of the answer to a request with these headers.
pub(super) fn http_head(stream: &mut (impl Read + Write), request: &str, headers: &str) -> String {
    write!(stream, "{request} HTTP/1.1\r\nHost: h\r\n{headers}\r\n").unwrap();
    stream.flush().unwrap();
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        answer.extend_from_slice(&byte);
    }
    let head = String::from_utf8(answer).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    head
}
