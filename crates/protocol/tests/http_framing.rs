//! Raw bytes against the reader of requests: what two readers could frame differently is refused, whatever the
//! pieces it comes in; what is sound is read.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use bytes::BytesMut;
use protocol::http::{Framing, Method, Progress, Reader, Refused, Waits};

/// Bodies of the tests are at most so long.
const BODY_MAX: usize = 100;

/// What came of reading a stream to its end.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// These requests, by target and body, and then so many bytes of one that is not complete.
    Read(Vec<(String, Vec<u8>)>, Waits),
    Refused(u16),
}

fn read_in_steps(stream: &[u8], step: usize) -> Outcome {
    let mut reader = Reader::new(BODY_MAX);
    let mut input = BytesMut::new();
    let mut requests = Vec::new();
    let mut waits = Waits::Request;
    for piece in stream.chunks(step) {
        input.extend_from_slice(piece);
        loop {
            match reader.next(&mut input) {
                Ok(Progress::Wait(for_what)) => {
                    waits = for_what;
                    break;
                }
                Ok(Progress::Continue) => {}
                Ok(Progress::Request(head, body)) => {
                    let target = String::from_utf8(head.target().to_vec()).unwrap();
                    requests.push((target, body.to_vec()));
                }
                Err(Refused { status, .. }) => return Outcome::Refused(status),
            }
        }
    }
    Outcome::Read(requests, waits)
}

fn read(stream: &[u8]) -> Outcome {
    let whole = read_in_steps(stream, stream.len().max(1));
    assert_eq!(read_in_steps(stream, 1), whole, "{}", stream.escape_ascii());
    assert_eq!(read_in_steps(stream, 3), whole, "{}", stream.escape_ascii());
    whole
}

/// A request with these header lines and this body, which is nothing if the headers are refused.
fn put(headers: &str, body: &str) -> Vec<u8> {
    format!("PUT /x HTTP/1.1\r\nHost: h\r\n{headers}\r\n{body}").into_bytes()
}

/// A smuggled request, as an attacker would append it.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn lengths_that_two_readers_could_read_differently() {
    let cases = [
        // Both lengths, in any order and spelling.
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 4\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked\r\nX: y\r\nContent-Length: 4\r\n",
        // A length twice, alike or not.
        "Content-Length: 4\r\nContent-Length: 4\r\n",
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Content-Length: 4, 4\r\n",
        "Content-Length: 4, 5\r\n",
        "Content-Length: 4,\r\n",
        // What is no number, or one to some.
        "Content-Length: \r\n",
        "Content-Length: +4\r\n",
        "Content-Length: -4\r\n",
        "Content-Length: -0\r\n",
        "Content-Length: 4.0\r\n",
        "Content-Length: 0x4\r\n",
        "Content-Length: 4e0\r\n",
        "Content-Length: 4 4\r\n",
        "Content-Length: 4_0\r\n",
        "Content-Length: four\r\n",
        "Content-Length: \"4\"\r\n",
        "Content-Length: 4;\r\n",
        "Content-Length: \u{0664}\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 99999999999999999999999999999999\r\n",
        // Codings that are not chunked, once.
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunkedx\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding: chunked,\r\n",
        "Transfer-Encoding: ,chunked\r\n",
        "Transfer-Encoding: \r\n",
        "Transfer-Encoding: \u{b}chunked\r\n",
        "Transfer-Encoding: chunked\u{c}\r\n",
        // Headers that another reader may take for a length.
        "Content-Length : 4\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding\t: chunked\r\n",
        " Content-Length: 4\r\n",
        "X: y\r\n Content-Length: 4\r\n",
        "X: y\r\n\tTransfer-Encoding: chunked\r\n",
        "Content-Length:\r\n 4\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "Content-Length\r\n",
        ": 4\r\n",
        "Content-Length\0: 4\r\n",
        "Content-Length: 4\0\r\n",
        "Content Length: 4\r\n",
        "Content-Length: 4\rX: y\r\n",
        "X: y\nContent-Length: 4\r\n",
        "X: y\rContent-Length: 4\r\n",
        "X: y\r\r\nContent-Length: 4\r\n",
        "X: y\r\nContent-Length: 4\n",
    ];
    for headers in cases {
        let stream = put(headers, &format!("0\r\n\r\n{SMUGGLED}"));
        assert_eq!(read(&stream), Outcome::Refused(400), "{}", headers.escape_default());
    }
    // A chunked body is none of HTTP/1.0's.
    let old = b"PUT /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(read(old), Outcome::Refused(400));
}

#[test]
fn chunks_that_two_readers_could_read_differently() {
    let cases = [
        "g\r\n",
        "-1\r\n",
        "+4\r\nabcd\r\n0\r\n\r\n",
        " 4\r\nabcd\r\n0\r\n\r\n",
        "4 \r\nabcd\r\n0\r\n\r\n",
        "0x4\r\nabcd\r\n0\r\n\r\n",
        "4;ext\r\nabcd\r\n0\r\n\r\n",
        "4;a=b\r\nabcd\r\n0\r\n\r\n",
        "4;\nabcd\r\n0\r\n\r\n",
        "\r\nabcd\r\n0\r\n\r\n",
        "\r\n\r\n",
        "\n",
        "4\nabcd\r\n0\r\n\r\n",
        "4\rabcd\r\n0\r\n\r\n",
        "4\r\rabcd\r\n0\r\n\r\n",
        "4\r\nabcde\r\n0\r\n\r\n",
        "4\r\nabc\r\n0\r\n\r\n",
        "4\r\nabcd\n0\r\n\r\n",
        "4\r\nabcd\r0\r\n\r\n",
        "4\r\nabcd0\r\n\r\n",
        "0\r\nX: y\r\n\r\n",
        "0\r\nContent-Length: 4\r\n\r\n",
        "0\n\n",
        "0\r\n\n",
        "0\r\nGET",
        "000000004\r\nabcd\r\n0\r\n\r\n",
        "ffffffffffffffff\r\n",
        "10000000000000000\r\n",
        "fffffffffffffffe\r\nab",
        "4\u{a0}\r\nabcd\r\n0\r\n\r\n",
        "\u{ff14}\r\nabcd\r\n0\r\n\r\n",
    ];
    let headers = "Transfer-Encoding: chunked\r\n";
    for body in cases {
        let outcome = read(&put(headers, &format!("{body}{SMUGGLED}")));
        assert_eq!(outcome, Outcome::Refused(400), "{}", body.escape_default());
    }
    for body in ["65\r\n", "ffffffff\r\n", "64\r\n"] {
        let one_more = format!("{}\r\n1\r\na\r\n0\r\n\r\n", "x".repeat(100));
        let outcome = read(&put(headers, &format!("{body}{one_more}")));
        assert_eq!(outcome, Outcome::Refused(413), "{body:?}");
    }
}

#[test]
fn heads_that_are_none() {
    let rest = " HTTP/1.1\r\nHost: h\r\n\r\n";
    let bad = [
        "\r\nGET /x HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
        "\nGET /x HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        " GET /x HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "\0GET /x HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "GET /x HTTP/1.1\nHost: h\n\n".into(),
        "GET /x HTTP/1.1\r\nHost: h\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: h\r\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: h\n\n".into(),
        "GET  /x HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "GET /x  HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "GET\t/x HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "GET /x HTTP/1.1 \r\nHost: h\r\n\r\n".into(),
        "GET /x\r\nHost: h\r\n\r\n".into(),
        "GET /x\r\n\r\n".into(),
        "GET\r\n\r\n".into(),
        "G(T /x HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        format!("GET http://h/x{rest}"),
        format!("GET https://h/x{rest}"),
        format!("GET //h@e/x\0{rest}"),
        format!("GET x{rest}"),
        format!("GET ?x{rest}"),
        format!("OPTIONS *{rest}"),
        format!("CONNECT h:80{rest}"),
        format!("GET /x#y{rest}"),
        format!("GET /x y{rest}"),
        format!("GET /\u{7f}{rest}"),
        format!("GET /\u{1}{rest}"),
        format!("GET /\u{e9}{rest}"),
        "GET /x HTTP/1.1\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: a, b\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: a b\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: a/b\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: u@a\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost : a\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: h\r\nX y: z\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: h\r\nX\u{e9}: z\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: h\r\nX(: z\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: h\r\nX: \u{1}\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: h\r\nX: \u{7f}\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: h\r\nX: a\r\n folded\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: h\r\nX: a\r\n\tfolded\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\n Host: h\r\n\r\n".into(),
        "GET /x HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n".into(),
    ];
    for head in &bad {
        // What is in the place of the version may be taken for one.
        let outcome = read(head.as_bytes());
        assert!(matches!(outcome, Outcome::Refused(400 | 505)), "{}: {outcome:?}", head.escape_default());
    }
    for version in [
        "HTTP/2.0",
        "HTTP/0.9",
        "HTTP/1.2",
        "HTTP/1.10",
        "HTTP/3",
        "http/1.1",
        "HTTP/11",
        "HTTP/1,1",
        "XTTP/1.1",
    ] {
        let head = format!("GET /x {version}\r\nHost: h\r\n\r\n");
        let Outcome::Refused(status) = read(head.as_bytes()) else { panic!("{version} was read") };
        assert!(matches!(status, 400 | 505), "{version}: {status}");
    }
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    assert!(matches!(read(preface), Outcome::Refused(400 | 505)));
    for expect in ["101-continue", "100-continue, x", ""] {
        let outcome = read(&put(&format!("Expect: {expect}\r\n"), ""));
        assert_eq!(outcome, Outcome::Refused(417), "{expect}");
    }
}

#[test]
fn limits() {
    let head = |line: usize| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(line));
    let overhead = head(0).len();
    assert!(matches!(read(head((64 << 10) - overhead).as_bytes()), Outcome::Read(..)));
    assert_eq!(read_in_steps(head((64 << 10) - overhead + 1).as_bytes(), 4096), Outcome::Refused(431));
    assert_eq!(read_in_steps(head(1 << 20).as_bytes(), 4096), Outcome::Refused(414));
    let header = format!("X: {}\r\n", "y".repeat(1 << 20));
    assert_eq!(read_in_steps(&put(&header, ""), 4096), Outcome::Refused(431));
    let headers = |count| put(&"X: y\r\n".repeat(count), "");
    assert!(matches!(read_in_steps(&headers(999), 4096), Outcome::Read(..)));
    assert_eq!(read_in_steps(&headers(1000), 4096), Outcome::Refused(431));
    assert_eq!(read(&put("Content-Length: 101\r\n", "")), Outcome::Refused(413));
    assert_eq!(read(&put("Content-Length: 18446744073709551615\r\n", "")), Outcome::Refused(413));
}

#[test]
fn what_is_sound_is_read() {
    let requests = |stream: &[u8]| match read(stream) {
        Outcome::Read(requests, Waits::Request) => requests,
        other => panic!("{}: {other:?}", stream.escape_ascii()),
    };
    let one = |body: &str| vec![("/x".to_owned(), body.as_bytes().to_vec())];
    assert_eq!(requests(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"), one(""));
    assert_eq!(requests(b"GET /x HTTP/1.0\r\n\r\n"), one(""));
    assert_eq!(requests(b"GET /x HTTP/1.1\r\nHost:\r\nX:\r\n\r\n"), one(""));
    assert_eq!(requests(b"GET /x HTTP/1.1\r\nHoSt: [::1]:8098\r\nX: a\tb \xe9 \r\n\r\n"), one(""));
    assert_eq!(requests(&put("Content-Length: 4\r\n", "a\r\n\0")), one("a\r\n\0"));
    assert_eq!(requests(&put("Content-Length: 0004\r\n", "abcd")), one("abcd"));
    assert_eq!(requests(&put("Transfer-Encoding: Chunked\r\n", "4\r\nabcd\r\n00\r\n\r\n")), one("abcd"));
    assert_eq!(
        requests(&put("Transfer-Encoding: chunked\r\n", "3\r\nab\r\r\n000A\r\n\ncdefghijk\r\n0\r\n\r\n")),
        one("ab\r\ncdefghijk")
    );
    let pipelined = [&put("Content-Length: 1\r\n", "a")[..], SMUGGLED.as_bytes(), &put("", "")].concat();
    assert_eq!(requests(&pipelined), [one("a"), vec![("/smuggled".into(), vec![])], one("")].concat());
    assert_eq!(read(b""), Outcome::Read(vec![], Waits::Request));
    assert_eq!(read(b"GET /x HTTP/1.1\r\n"), Outcome::Read(vec![], Waits::Head));
    assert_eq!(read(&put("Content-Length: 4\r\n", "abc")), Outcome::Read(vec![], Waits::Body));
    assert_eq!(
        read(&put("Transfer-Encoding: chunked\r\n", "4\r\nabcd\r\n0\r\n\r")),
        Outcome::Read(vec![], Waits::Body)
    );
}

#[test]
fn a_head_says_what_it_says() {
    let head = |stream: &[u8]| {
        let mut input = BytesMut::from(stream);
        match Reader::default().next(&mut input) {
            Ok(Progress::Request(head, _)) => head,
            other => panic!("{other:?}"),
        }
    };
    let get = |version, headers: &str| {
        head(format!("GET /x?y HTTP/{version}\r\nHost: h\r\n{headers}\r\n").as_bytes())
    };
    assert!(get("1.1", "").keep_alive && !get("1.0", "").keep_alive);
    assert!(!get("1.1", "Connection: Close\r\n").keep_alive);
    assert!(!get("1.1", "Connection: keep-alive, close\r\n").keep_alive);
    assert!(get("1.0", "Connection: x, Keep-Alive\r\n").keep_alive);
    let read = get("1.1", "A: 1\r\nb:  2 \r\nA: 3\r\n");
    assert_eq!(
        (read.method, read.framing, &read.target()[..]),
        (Method::Get, Framing::Length(0), &b"/x?y"[..])
    );
    assert_eq!(read.header("a"), Some(&b"1"[..]));
    assert_eq!(read.header("B"), Some(&b"2"[..]));
    assert_eq!(read.header("c"), None);
    assert_eq!(read.all("a").collect::<Vec<_>>(), [b"1", b"3"]);
    assert_eq!(read.headers().count(), 4);
}

#[test]
fn who_waits_for_a_word_gets_it_once() {
    let mut reader = Reader::default();
    let mut input = BytesMut::from(&put("Content-Length: 3\r\nExpect: 100-Continue\r\n", "")[..]);
    assert!(matches!(reader.next(&mut input), Ok(Progress::Continue)));
    assert!(matches!(reader.next(&mut input), Ok(Progress::Wait(Waits::Body))));
    input.extend_from_slice(b"abc");
    assert!(matches!(reader.next(&mut input), Ok(Progress::Request(_, body)) if body == "abc"));
    // Nor does one whose body is there already, or will not come.
    let mut input = BytesMut::from(&put("Content-Length: 3\r\nExpect: 100-continue\r\n", "a")[..]);
    assert!(matches!(reader.next(&mut input), Ok(Progress::Wait(Waits::Body))));
    let mut input = BytesMut::from(&put("Content-Length: 0\r\nExpect: 100-continue\r\n", "")[..]);
    assert!(matches!(Reader::default().next(&mut input), Ok(Progress::Request(..))));
    let mut input = BytesMut::from(&put("Content-Length: 999999999\r\nExpect: 100-continue\r\n", "")[..]);
    assert!(matches!(Reader::default().next(&mut input), Err(Refused { status: 413, .. })));
}

#[test]
fn a_claim_takes_little_memory() {
    let mut reader = Reader::default();
    let mut input = BytesMut::from(&put("Content-Length: 52428800\r\n", "a")[..]);
    assert!(matches!(reader.next(&mut input), Ok(Progress::Wait(Waits::Body))));
    assert!(input.capacity() <= 256 << 10, "{}", input.capacity());
    let mut input = BytesMut::from(&put("Transfer-Encoding: chunked\r\n", "3000000\r\na")[..]);
    let mut reader = Reader::default();
    assert!(matches!(reader.next(&mut input), Ok(Progress::Wait(Waits::Body))));
    assert!(input.capacity() <= 256 << 10, "{}", input.capacity());
}
