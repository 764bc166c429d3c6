//! Riak's HTTP, of an Annulet or a Riak: HTTP/1.1 over kept connections. With a login each connection is under TLS, and
//! each request has the user and the password.

use super::pool::{Asked, Codec, Decoded};
use super::{Answer, Command, Common, ErrorKind, IndexRange, Request, Row, Rows};
use crate::login::{Login, ServerTls};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;

/// No head of an answer is longer.
const HEAD_MAX: usize = 64 << 10;

/// The protocol's codec.
pub struct Http {
    /// `/types/T`, or nothing.
    prefix: String,
    /// The lines of every head that name the server, and the login if there is one.
    host_lines: String,
    tls: Option<ServerTls>,
    /// What follows the path of reads and writes.
    read_query: String,
    put_query: String,
    delete_query: String,
    values: Vec<Range<usize>>,
    /// An answer's body, where it came in chunks.
    body: Vec<u8>,
    rows: Vec<Row>,
    /// The texts of rows, one after the other, and where the next page begins.
    texts: Vec<u8>,
    continuation: Option<String>,
    text: String,
}

impl Http {
    /// With what every request has, to a server that is called `host`.
    pub fn new(common: &Common, host: &str) -> Http {
        let query = |names: &[&str], more: &[&str]| {
            let named =
                names.iter().filter_map(|name| Some(format!("{name}={}", common.quorums.get(*name)?)));
            let fields: Vec<String> = named.chain(more.iter().map(|&field| field.to_owned())).collect();
            if fields.is_empty() { String::new() } else { format!("?{}", fields.join("&")) }
        };
        // Only an answer with the object has its context.
        let returned: &[&str] = if common.returns_context { &["returnbody=true"] } else { &[] };
        let mut prefix = Vec::new();
        if let Some(name) = &common.bucket_type {
            prefix.extend_from_slice(b"/types/");
            put_escaped(&mut prefix, name.as_bytes());
        }
        Http {
            prefix: String::from_utf8_lossy(&prefix).into_owned(),
            host_lines: format!("Host: {host}\r\n"),
            tls: None,
            read_query: query(&["r", "pr", "n_val"], &[]),
            put_query: query(&["w", "pw", "dw", "n_val"], returned),
            delete_query: query(&["w", "pw", "dw", "n_val"], &[]),
            values: Vec::new(),
            body: Vec::new(),
            rows: Vec::new(),
            texts: Vec::new(),
            continuation: None,
            text: String::new(),
        }
    }

    /// The same for servers that ask for a login.
    pub fn secured(mut self, login: &Login, tls: ServerTls) -> Http {
        if let Some((user, password)) = login.user.as_ref().zip(login.password.as_ref()) {
            let login = BASE64_STANDARD.encode(format!("{user}:{password}"));
            self.host_lines += &format!("Authorization: Basic {login}\r\n");
        }
        Http { tls: Some(tls), ..self }
    }

    fn put_path(&self, out: &mut Vec<u8>, method: &str, request: &Request<'_>) {
        out.extend_from_slice(method.as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.prefix.as_bytes());
        out.extend_from_slice(b"/buckets/");
        put_escaped(out, request.bucket);
        if !request.key.is_empty() {
            out.extend_from_slice(b"/keys/");
            put_escaped(out, request.key);
        }
    }

    fn put_head(&self, out: &mut Vec<u8>, query: &str) {
        for part in [query, " HTTP/1.1\r\n", &self.host_lines] {
            out.extend_from_slice(part.as_bytes());
        }
    }

    fn put_index(&self, out: &mut Vec<u8>, request: &Request<'_>, range: IndexRange<'_>) {
        self.put_path(out, "GET", request);
        for part in [&b"/index/"[..], range.index.as_bytes(), b"/"] {
            out.extend_from_slice(part);
        }
        put_escaped(out, range.from);
        if !range.is_exact() {
            out.push(b'/');
            put_escaped(out, range.to);
        }
        out.extend_from_slice(if range.return_terms {
            b"?return_terms=true"
        } else {
            b"?return_terms=false"
        });
        if let Some(regex) = range.term_regex {
            out.extend_from_slice(b"&term_regex=");
            put_escaped(out, regex.as_bytes());
        }
        if let Some(max) = range.max_results {
            write!(out, "&max_results={max}").expect("a Vec takes everything");
        }
        if let Some(continuation) = range.continuation {
            out.extend_from_slice(b"&continuation=");
            put_escaped(out, continuation);
        }
        self.put_head(out, "");
    }
}

impl Codec for Http {
    fn tls_at_first(&self) -> Option<&ServerTls> {
        self.tls.as_ref()
    }

    fn encode(&mut self, request: &Request<'_>, _stream: u16, out: &mut Vec<u8>) {
        match request.command {
            Command::Get => {
                self.put_path(out, "GET", request);
                self.put_head(out, &self.read_query);
                // Siblings come with their values, all in one answer.
                out.extend_from_slice(b"Accept: multipart/mixed, */*;q=0.9\r\n\r\n");
            }
            Command::Head => {
                self.put_path(out, "HEAD", request);
                self.put_head(out, &self.read_query);
                out.extend_from_slice(b"\r\n");
            }
            Command::Put { value, context, indexes } => {
                self.put_path(out, "PUT", request);
                self.put_head(out, &self.put_query);
                out.extend_from_slice(b"Content-Type: application/octet-stream\r\n");
                if let Some(context) = context {
                    put_header(out, "X-Riak-Vclock", context);
                }
                for (name, term) in indexes {
                    out.extend_from_slice(b"X-Riak-Index-");
                    put_header(out, name, term);
                }
                write!(out, "Content-Length: {}\r\n\r\n", value.len()).expect("a Vec takes everything");
                out.extend_from_slice(value);
            }
            Command::Delete { context } => {
                self.put_path(out, "DELETE", request);
                self.put_head(out, &self.delete_query);
                if let Some(context) = context {
                    put_header(out, "X-Riak-Vclock", context);
                }
                out.extend_from_slice(b"\r\n");
            }
            Command::Query(range) => {
                self.put_index(out, &Request { key: &[], ..*request }, range);
                out.extend_from_slice(b"\r\n");
            }
            Command::ListKeys => {
                self.put_path(out, "GET", &Request { key: &[], ..*request });
                self.put_head(out, "/keys?keys=true");
                out.extend_from_slice(b"\r\n");
            }
            Command::ListBuckets => {
                for part in ["GET ", &self.prefix, "/buckets"] {
                    out.extend_from_slice(part.as_bytes());
                }
                self.put_head(out, "?buckets=true");
                out.extend_from_slice(b"\r\n");
            }
            Command::Ping | Command::Reconnect => {
                out.extend_from_slice(b"GET /ping");
                self.put_head(out, "");
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    fn frame_len(&self, asked: Asked, input: &[u8]) -> Result<Option<usize>, String> {
        let Some(head) = Head::find(input)? else { return Ok(None) };
        let has_no_body = asked == Asked::Head || head.status < 200 || matches!(head.status, 204 | 304);
        if has_no_body {
            return Ok(Some(head.len));
        }
        if head.header("transfer-encoding").is_some_and(|it| it.eq_ignore_ascii_case("chunked")) {
            return Ok(chunks(&input[head.len..], |_| {})?.map(|len| head.len + len));
        }
        let length = head.header("content-length").ok_or("an answer without a length")?;
        let length: usize = length.parse().map_err(|_| "an answer with a strange length")?;
        Ok(Some(head.len.saturating_add(length)))
    }

    fn decode<'a>(&'a mut self, asked: Asked, listed: u64, frame: &'a [u8]) -> Decoded<'a> {
        let nonsense = Answer::Failed { kind: ErrorKind::Protocol, text: "an answer that cannot be read" };
        let Ok(Some(head)) = Head::find(frame) else { return Decoded::Answer(nonsense) };
        if head.status < 200 {
            return Decoded::Part(listed);
        }
        let raw = &frame[head.len..];
        let is_chunked =
            head.header("transfer-encoding").is_some_and(|it| it.eq_ignore_ascii_case("chunked"));
        let body: &[u8] = if is_chunked && asked != Asked::Head {
            self.body.clear();
            let whole = chunks(raw, |chunk| self.body.extend_from_slice(chunk));
            if !matches!(whole, Ok(Some(_))) {
                return Decoded::Answer(nonsense);
            }
            &self.body
        } else {
            raw
        };
        let answer = match (asked, head.status) {
            (Asked::Read, 200 | 300) => {
                self.values.clear();
                match parts(&head, body, &mut self.values) {
                    Some(()) if self.values.is_empty() => Answer::NotFound,
                    Some(()) => {
                        let context = head.header("x-riak-vclock").unwrap_or_default().as_bytes();
                        Answer::Found { context, values: &self.values, body }
                    }
                    None => nonsense,
                }
            }
            (Asked::Head, 200 | 300) => Answer::Done,
            (Asked::Write, 200 | 201 | 204 | 300) => match head.header("x-riak-vclock") {
                Some(context) => Answer::Stored { context: context.as_bytes() },
                None => Answer::Done,
            },
            // Of a write: a delete found nothing to delete.
            (Asked::Read | Asked::Head | Asked::Write, 404) => Answer::NotFound,
            (Asked::List, 200) => count(body).map_or(nonsense, Answer::Listed),
            (Asked::Rows, 200) => match found(body, &mut self.rows, &mut self.texts) {
                Some(continuation) => {
                    self.continuation = continuation;
                    let continuation = self.continuation.as_deref().map(str::as_bytes);
                    Answer::Rows(Rows { places: &self.rows, body: &self.texts, continuation })
                }
                None => nonsense,
            },
            (_, status) => {
                self.text.clear();
                self.text.push_str(String::from_utf8_lossy(body).trim());
                let kind = match (status, ErrorKind::of_text(&self.text)) {
                    (412 | 409, _) => ErrorKind::Precondition,
                    (404 | 405 | 501, _) => ErrorKind::Unsupported,
                    (503, ErrorKind::Other) => ErrorKind::Unavailable,
                    (_, kind) => kind,
                };
                Answer::Failed { kind, text: &self.text }
            }
        };
        Decoded::Answer(answer)
    }

    fn closes(&self, frame: &[u8]) -> bool {
        let head = Head::find(frame).ok().flatten();
        head.is_some_and(|head| head.header("connection").is_some_and(|it| it.eq_ignore_ascii_case("close")))
    }
}

/// The head of an answer.
struct Head<'a> {
    status: u16,
    headers: &'a str,
    /// Its length, with the empty line.
    len: usize,
}

impl<'a> Head<'a> {
    fn find(input: &'a [u8]) -> Result<Option<Head<'a>>, String> {
        let within = &input[..input.len().min(HEAD_MAX)];
        let Some(end) = within.windows(4).position(|window| window == b"\r\n\r\n") else {
            return if within.len() == HEAD_MAX { Err("an endless head".to_owned()) } else { Ok(None) };
        };
        let text = std::str::from_utf8(&input[..end]).map_err(|_| "a head that is no text")?;
        let (first, headers) = text.split_once("\r\n").unwrap_or((text, ""));
        let mut words = first.split(' ');
        let is_http = words.next().is_some_and(|word| word.starts_with("HTTP/1."));
        let status = words.next().and_then(|word| word.parse().ok()).filter(|_| is_http);
        let status = status.ok_or("a head without a status")?;
        Ok(Some(Head { status, headers, len: end + 4 }))
    }

    fn header(&self, name: &str) -> Option<&'a str> {
        header(self.headers, name)
    }
}

fn header<'a>(headers: &'a str, name: &str) -> Option<&'a str> {
    headers.split("\r\n").find_map(|line| {
        let (left, right) = line.split_once(':')?;
        left.eq_ignore_ascii_case(name).then_some(right.trim())
    })
}

/// Goes through a chunked body; its length once the last chunk is there.
fn chunks<'a>(input: &'a [u8], mut take: impl FnMut(&'a [u8])) -> Result<Option<usize>, String> {
    let mut at = 0;
    loop {
        let Some(line) = line_end(&input[at..]) else { return Ok(None) };
        let size = std::str::from_utf8(&input[at..at + line]).ok().and_then(|text| {
            usize::from_str_radix(text.split(';').next().unwrap_or_default().trim(), 16).ok()
        });
        let size = size.ok_or("a chunk of a strange size")?;
        at += line + 2;
        if size == 0 {
            break;
        }
        let end = at.checked_add(size).ok_or("a chunk of a strange size")?;
        if input.len() < end.saturating_add(2) {
            return Ok(None);
        }
        take(&input[at..end]);
        at = end + 2;
    }
    // Trailers, until an empty line.
    loop {
        let Some(line) = line_end(&input[at..]) else { return Ok(None) };
        at += line + 2;
        if line == 0 {
            return Ok(Some(at));
        }
    }
}

fn line_end(input: &[u8]) -> Option<usize> {
    input.windows(2).position(|window| window == b"\r\n")
}

/// Where the values are in a body: all of it, or its parts that are no tombstones.
fn parts(head: &Head<'_>, body: &[u8], values: &mut Vec<Range<usize>>) -> Option<()> {
    let content_type = head.header("content-type").unwrap_or_default();
    if head.status == 200 {
        values.push(0..body.len());
        return Some(());
    }
    let boundary = content_type.split(';').find_map(|field| field.trim().strip_prefix("boundary="))?;
    let mark = [b"--", boundary.trim_matches('"').as_bytes()].concat();
    let find = |from: usize, what: &[u8]| {
        body[from..].windows(what.len()).position(|window| window == what).map(|at| from + at)
    };
    let mut at = find(0, &mark)? + mark.len();
    while !body[at..].starts_with(b"--") {
        let headers = find(at, b"\r\n\r\n")?;
        let end = find(headers + 4, &mark)?;
        let text = std::str::from_utf8(&body[at..headers]).ok()?;
        if header(text, "x-riak-deleted").is_none() {
            values.push(headers + 4..end.checked_sub(2).filter(|&end| end >= headers + 4)?);
        }
        at = end + mark.len();
    }
    Some(())
}

/// How many keys or buckets a listing has.
fn count(body: &[u8]) -> Option<u64> {
    let all: Value = serde_json::from_slice(body).ok()?;
    let lists = ["keys", "buckets"].into_iter().filter_map(|name| all.get(name)?.as_array());
    Some(lists.map(|list| list.len() as u64).sum())
}

/// What an index query is answered with: keys, or pairs of a term and a key.
#[derive(Deserialize)]
struct Found {
    #[serde(default)]
    keys: Vec<String>,
    #[serde(default)]
    results: Vec<BTreeMap<String, String>>,
    continuation: Option<String>,
}

/// Puts the rows of an answer, and their texts, in place of what is there; answers where the next page begins.
fn found(body: &[u8], rows: &mut Vec<Row>, texts: &mut Vec<u8>) -> Option<Option<String>> {
    rows.clear();
    texts.clear();
    let all: Found = serde_json::from_slice(body).ok()?;
    let mut put = |text: &str| {
        let begin = texts.len();
        texts.extend_from_slice(text.as_bytes());
        begin..texts.len()
    };
    for key in &all.keys {
        rows.push(Row { term: None, key: put(key) });
    }
    for pair in &all.results {
        // One pair is one row.
        let (term, key) = pair.first_key_value().filter(|_| pair.len() == 1)?;
        rows.push(Row { term: Some(put(term)), key: put(key) });
    }
    Some(all.continuation)
}

fn put_header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

fn put_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
