//! Writes responses: complete ones, or a head whose body comes in chunks.

use super::date::DATE_LEN;
use super::escape::{Part, escape};

/// Who answers, as `Server` says.
const SERVER: &str = "Annulet";

/// What keeps a browser from running an answer as a page of this host: without these a stored HTML object could write.
const SANDBOX: &[u8] = b"Content-Security-Policy: sandbox\r\nX-Content-Type-Options: nosniff\r\n";

/// What answers have to know of their request and their connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Whether the request came by HTTP/1.1, not 1.0.
    pub is_http11: bool,
    /// Whether the connection stays open.
    pub keep_alive: bool,
    /// Whether the client asked for the head only.
    pub head_only: bool,
    /// Whether a browser is to run nothing that the answer holds, and to give it no origin.
    pub sandboxed: bool,
    /// The time, as a header has it.
    pub date: [u8; DATE_LEN],
}

/// A response that is being written. It ends with [`Answer::body`], [`Answer::empty`] or [`Answer::stream`].
#[derive(Debug)]
pub struct Answer<'a> {
    out: &'a mut Vec<u8>,
    connection: Connection,
}

impl<'a> Answer<'a> {
    /// Begins a response.
    pub fn new(out: &'a mut Vec<u8>, connection: Connection, status: u16) -> Answer<'a> {
        out.extend_from_slice(b"HTTP/1.1 ");
        put_number(out, status.into());
        out.push(b' ');
        out.extend_from_slice(reason(status).as_bytes());
        out.extend_from_slice(b"\r\nServer: ");
        out.extend_from_slice(SERVER.as_bytes());
        out.extend_from_slice(b"\r\nDate: ");
        out.extend_from_slice(&connection.date);
        out.extend_from_slice(b"\r\n");
        match (connection.keep_alive, connection.is_http11) {
            (true, true) => {}
            (true, false) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
            (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
        }
        if connection.sandboxed {
            out.extend_from_slice(SANDBOX);
        }
        Answer { out, connection }
    }

    /// Begins the head of a part of a multipart body. It ends with [`Answer::empty`]; the value comes after it.
    pub fn part(out: &'a mut Vec<u8>) -> Answer<'a> {
        let connection = Connection {
            is_http11: true,
            keep_alive: true,
            head_only: false,
            sandboxed: false,
            date: [b' '; DATE_LEN],
        };
        Answer { out, connection }
    }

    /// Adds a header whose name ends with `name`, and whose values stand with commas between. All of them may hold
    /// anything and are escaped.
    pub fn named_header<'v>(
        &mut self,
        prefix: &str,
        name: &[u8],
        part: Part,
        values: impl IntoIterator<Item = &'v [u8]>,
    ) {
        self.out.extend_from_slice(prefix.as_bytes());
        escape(name, Part::Name, self.out);
        for (at, value) in values.into_iter().enumerate() {
            self.out.extend_from_slice(if at == 0 { b": " } else { b", " });
            escape(value, part, self.out);
        }
        self.out.extend_from_slice(b"\r\n");
    }

    /// Adds a header whose value may hold anything and is escaped.
    pub fn escaped_header(&mut self, name: &str, value: &[u8]) {
        self.header_with(name, |out| escape(value, Part::Value, out));
    }

    /// Adds a header.
    pub fn header(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        put_value(value.as_ref(), self.out);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Adds a header whose value `write` appends, which must not hold line ends.
    pub fn header_with(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        let start = self.out.len();
        write(self.out);
        debug_assert!(!self.out[start..].contains(&b'\n'), "a header of two lines");
        self.out.extend_from_slice(b"\r\n");
    }

    /// Ends the head and appends the body, unless only the head was asked for.
    pub fn body(mut self, body: &[u8]) {
        self.header_with("Content-Length", |out| put_number(out, body.len() as u64));
        self.out.extend_from_slice(b"\r\n");
        if !self.connection.head_only {
            self.out.extend_from_slice(body);
        }
    }

    /// Ends a response of a status that has no body (204, 304).
    pub fn empty(self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// Ends the head of a response whose body comes by [`chunk`]. Only HTTP/1.1 has chunks, so a caller sees to it
    /// that an older client gets a body.
    pub fn stream(mut self) {
        self.header("Transfer-Encoding", "chunked");
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Appends a part of a body. An empty one would end it, and is left out.
pub fn chunk(out: &mut Vec<u8>, part: &[u8]) {
    if !part.is_empty() {
        out.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

/// Ends a body in chunks.
pub fn last_chunk(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}

/// Appends a header's value. Metadata may come by a protocol that lets it hold anything; what cannot be in a header
/// is percent-encoded, so that nobody writes headers of their own into another client's answer.
pub(super) fn put_value(value: &[u8], out: &mut Vec<u8>) {
    let is_plain = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
    if value.iter().all(is_plain) {
        return out.extend_from_slice(value);
    }
    for byte in value {
        match is_plain(byte) {
            true => out.push(*byte),
            false => super::target::encode(&[*byte], out),
        }
    }
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        300 => "Multiple Choices",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Object Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        412 => "Precondition Failed",
        413 => "Request Entity Too Large",
        414 => "Request-URI Too Large",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        507 => "Insufficient Storage",
        505 => "HTTP Version Not Supported",
        _ => "Status",
    }
}
