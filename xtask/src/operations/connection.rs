//! A connection that asks a node for one path after another, as Prometheus does: it stays open.
//!
//! Every answer must have status 200 and a `Content-Length`.

use crate::Result;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Time for one answer; Prometheus waits as long if nothing else is configured.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Bytes of an answer: four times the bar for 100 peers. More is a fault of the node.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Bytes that one read takes.
const READ_BYTES: usize = 16 << 10;

/// The connection.
pub struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Connection {
    /// Opens it.
    pub fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, input: Vec::new() })
    }

    /// The body of the answer for a path.
    pub fn get(&mut self, path: &str) -> Result<Vec<u8>> {
        self.ask("GET", path, "")
    }

    /// Sends a body; the body of the answer.
    pub fn send(&mut self, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
        let fields =
            format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        self.ask(method, path, &fields)
    }

    /// Asks with these further fields and a body.
    fn ask(&mut self, method: &str, path: &str, rest: &str) -> Result<Vec<u8>> {
        let rest = if rest.is_empty() { "\r\n" } else { rest };
        let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{rest}");
        self.stream.write_all(request.as_bytes())?;
        self.input.clear();

        let mut piece = vec![0; READ_BYTES];
        loop {
            if let Some(body) = body_of(&self.input).map_err(|why| format!("{method} {path}: {why}"))? {
                return Ok(body.to_vec());
            }
            let len = self.stream.read(&mut piece)?;
            if len == 0 || self.input.len() + len > ANSWER_BYTES_MAX {
                return Err(format!("{method} {path}: the answer is cut off or too long").into());
            }
            self.input.extend_from_slice(&piece[..len]);
        }
    }
}

/// The body of an answer; `None` if more bytes must come.
fn body_of(answer: &[u8]) -> std::result::Result<Option<&[u8]>, String> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let (head, body) = (String::from_utf8_lossy(&answer[..end]), &answer[end + 4..]);
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("answered with {status}"));
    }

    let mut fields = lines.filter_map(|line| line.split_once(':'));
    let len = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let len: usize = len.and_then(|(_, len)| len.trim().parse().ok()).ok_or("no Content-Length")?;
    Ok(body.get(..len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_cut_from_an_answer() {
        let answer = b"HTTP/1.1 200 OK\r\nServer: a\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(body_of(answer), Ok(Some(&b"abc"[..])));
        (0..answer.len()).for_each(|len| assert_eq!(body_of(&answer[..len]), Ok(None), "{len}"));
        for wrong in
            ["HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"]
        {
            body_of(wrong.as_bytes()).unwrap_err();
        }
    }
}
