//! A request's head: method, target, headers, and what they say of the body.
//!
//! `httparse` finds the parts; what it lets pass for the sake of old peers is refused here, before and after it.

use std::mem::MaybeUninit;

use bytes::Bytes;

use super::refused::Refused;

/// The largest head: far above any client's, and what a connection can make us keep before it has asked anything.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

/// The most headers of a head: as many as Riak takes, so that an object's metadata and index entries that it took
/// pass here too.
pub const HEADERS_MAX: usize = 1000;

/// Headers for which room is made at first: more than requests usually have.
const HEADERS_USUAL: usize = 48;

/// What is to be done with the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Read.
    Get,
    /// Read without the body.
    Head,
    /// Write.
    Put,
    /// Write, perhaps under a name that the server invents.
    Post,
    /// Delete.
    Delete,
    /// One of HTTP's that is nowhere allowed here.
    NotAllowed,
    /// One that HTTP does not know.
    Unknown,
}

impl Method {
    fn of(name: &str) -> Method {
        match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "PUT" => Method::Put,
            "POST" => Method::Post,
            "DELETE" => Method::Delete,
            "OPTIONS" | "TRACE" | "CONNECT" | "PATCH" => Method::NotAllowed,
            _ => Method::Unknown,
        }
    }
}

/// How long a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes.
    Length(u64),
    /// Chunks tell.
    Chunked,
}

/// A part of the head's bytes. They are fewer than 2^32 by [`HEAD_BYTES_MAX`].
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    len: u32,
}

const _: () = assert!(HEAD_BYTES_MAX < u32::MAX as usize, "a span names any part of a head");

/// A request's head.
#[derive(Clone, Debug)]
pub struct Head {
    bytes: Bytes,
    target: Span,
    headers: Vec<(Span, Span)>,
    /// The method.
    pub method: Method,
    /// Whether the client speaks HTTP/1.1, not 1.0.
    pub is_http11: bool,
    /// Whether the connection is to stay open.
    pub keep_alive: bool,
    /// Whether the client waits for a word before it sends the body.
    pub expects_continue: bool,
    /// How long the body is.
    pub framing: Framing,
}

impl Head {
    /// Reads a head, up to and including the empty line.
    pub(super) fn parse(bytes: Bytes) -> Result<Head, Refused> {
        match Head::parse_within::<HEADERS_USUAL>(&bytes) {
            Err(Refused { status: 431, .. }) => Head::parse_within::<HEADERS_MAX>(&bytes),
            parsed => parsed,
        }
    }

    fn parse_within<const HEADERS: usize>(bytes: &Bytes) -> Result<Head, Refused> {
        check_bytes(bytes)?;
        let mut headers = [const { MaybeUninit::uninit() }; HEADERS];
        let mut request = httparse::Request::new(&mut []);
        match request.parse_with_uninit_headers(bytes, &mut headers) {
            Ok(httparse::Status::Complete(len)) if len == bytes.len() => {}
            Ok(_) => return Err(Refused::bad("the head does not end where it should")),
            Err(error) => return Err(refused(error)),
        }
        let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version)
        else {
            return Err(Refused::bad("the request line is incomplete"));
        };
        if !target.starts_with('/') || target.bytes().any(|byte| matches!(byte, b'#' | 0x80..)) {
            return Err(Refused::bad("the target is not a path"));
        }
        let is_http11 = version == 1;
        let span = |part: &[u8]| span_in(bytes, part);
        let fields = Fields::read(request.headers, is_http11)?;
        Ok(Head {
            target: span(target.as_bytes()),
            headers: request.headers.iter().map(|h| (span(h.name.as_bytes()), span(h.value))).collect(),
            method: Method::of(method),
            is_http11,
            keep_alive: if is_http11 { !fields.close } else { fields.keep_alive && !fields.close },
            expects_continue: fields.expects_continue && is_http11,
            framing: fields.framing(is_http11)?,
            bytes: bytes.clone(),
        })
    }

    /// The target as it was sent.
    pub fn target(&self) -> Bytes {
        self.bytes.slice(self.target.range())
    }

    /// The value of the first header of this name, in whatever case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers()
            .find(|(header, _)| header.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// The values of all headers of this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.headers()
            .filter(move |(header, _)| header.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// All headers, in their order: name and value, without spaces around it.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.headers.iter().map(|(name, value)| (&self.bytes[name.range()], &self.bytes[value.range()]))
    }

    /// A part of this head, which shares its memory.
    pub fn share(&self, part: &[u8]) -> Bytes {
        self.bytes.slice_ref(part)
    }
}

impl Span {
    fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

fn span_in(whole: &[u8], part: &[u8]) -> Span {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    let short = |at: usize| u32::try_from(at).expect("a head is shorter than that");
    Span { start: short(start), len: short(part.len()) }
}

/// What no line of a head may hold, whatever the parser thinks of it.
fn check_bytes(bytes: &[u8]) -> Result<(), Refused> {
    // An empty line before the request, which a parser may skip and another not.
    if !bytes.first().is_some_and(u8::is_ascii_alphabetic) {
        return Err(Refused::bad("the request line does not begin with a method"));
    }
    // Each of these is one pass over the head, many bytes at a time.
    let count = |wanted| bytes.iter().filter(|&&byte| byte == wanted).count();
    let line_ends = bytes.iter().zip(&bytes[1..]).filter(|&(&cr, &lf)| cr == b'\r' && lf == b'\n').count();
    if count(b'\r') != line_ends || count(b'\n') != line_ends {
        return Err(Refused::bad("a line does not end with CR LF"));
    }
    if bytes.contains(&0) {
        return Err(Refused::bad("a NUL in the head"));
    }
    Ok(())
}

fn refused(error: httparse::Error) -> Refused {
    match error {
        httparse::Error::Version => Refused::new(505, "only HTTP/1.0 and HTTP/1.1 are spoken"),
        httparse::Error::TooManyHeaders => Refused::new(431, format!("more than {HEADERS_MAX} headers")),
        httparse::Error::HeaderName => Refused::bad("a header's name is malformed"),
        httparse::Error::HeaderValue => Refused::bad("a header's value is malformed"),
        _ => Refused::bad("the request line is malformed"),
    }
}

/// What the headers say that concern the connection.
#[derive(Default)]
struct Fields {
    length: Option<u64>,
    chunked: bool,
    hosts: usize,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
}

impl Fields {
    fn read(headers: &[httparse::Header<'_>], is_http11: bool) -> Result<Fields, Refused> {
        let mut fields = Fields::default();
        for header in headers {
            // Most headers are none of these, and are told apart by their length.
            match header.name.len() {
                4 if header.name.eq_ignore_ascii_case("host") => fields.on_host(header.value)?,
                6 if header.name.eq_ignore_ascii_case("expect") => fields.on_expect(header.value)?,
                10 if header.name.eq_ignore_ascii_case("connection") => fields.on_connection(header.value),
                14 if header.name.eq_ignore_ascii_case("content-length") => fields.on_length(header.value)?,
                17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                    fields.on_transfer_encoding(header.value)?;
                }
                _ => {}
            }
        }
        if fields.hosts == 0 && is_http11 {
            return Err(Refused::bad("there is no Host header"));
        }
        Ok(fields)
    }

    fn on_host(&mut self, value: &[u8]) -> Result<(), Refused> {
        self.hosts += 1;
        let is_host =
            |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b',' | b'/' | b'@' | b'?' | b'#');
        if self.hosts > 1 || !value.iter().all(is_host) {
            return Err(Refused::bad("the Host header is not one host"));
        }
        Ok(())
    }

    fn on_expect(&mut self, value: &[u8]) -> Result<(), Refused> {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(Refused::new(417, "the only expectation that can be met is 100-continue"));
        }
        self.expects_continue = true;
        Ok(())
    }

    fn on_connection(&mut self, value: &[u8]) {
        for word in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            self.close |= word.eq_ignore_ascii_case(b"close");
            self.keep_alive |= word.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn on_length(&mut self, value: &[u8]) -> Result<(), Refused> {
        // Digits alone: a sign, a list or a space is read differently elsewhere.
        let digits = value.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(value).ok()).flatten();
        let length = digits.and_then(|digits| digits.parse().ok());
        if self.length.is_some() || length.is_none() {
            return Err(Refused::bad("the Content-Length is not one number"));
        }
        self.length = length;
        Ok(())
    }

    fn on_transfer_encoding(&mut self, value: &[u8]) -> Result<(), Refused> {
        if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Refused::bad("the only Transfer-Encoding is chunked, once"));
        }
        self.chunked = true;
        Ok(())
    }

    fn framing(&self, is_http11: bool) -> Result<Framing, Refused> {
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(Refused::bad("both Content-Length and Transfer-Encoding")),
            (true, None) if !is_http11 => Err(Refused::bad("HTTP/1.0 has no Transfer-Encoding")),
            (true, None) => Ok(Framing::Chunked),
            (false, length) => Ok(Framing::Length(length.unwrap_or(0))),
        }
    }
}
