//! A connection that asks a node for one path after another, as Prometheus does: it stays open.
//!
//! [`answer`] reads what comes back.

use crate::{Result, answer};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Time for one answer; Prometheus waits as long if nothing else is configured.
const ANSWER_MAX: Duration = Duration::from_secs(10);

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
        let body = answer::read(&mut self.stream, &mut self.input);
        Ok(body.map_err(|why| format!("{method} {path}: {why}"))?.to_vec())
    }
}
