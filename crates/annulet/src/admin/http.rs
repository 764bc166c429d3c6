//! Asks a running node over HTTP, once.

use crate::failure::{FAILED, Failure};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long to wait for a connection, and for an answer: a change that not every node confirms is given up after a minute.
const CONNECT_MAX: Duration = Duration::from_secs(5);
const ANSWER_MAX: Duration = Duration::from_secs(65);

/// The largest answer taken: a thousand bucket types are two megabytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// An answer.
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its body; null if there is none.
    pub body: Value,
}

/// Which node.
#[derive(clap::Args)]
pub struct Node {
    /// Where the node serves HTTP.
    #[arg(
        long = "node",
        value_name = "ADDR:PORT",
        env = "ANNULET_HTTP",
        default_value = "127.0.0.1:8098",
        global = true
    )]
    address: String,
}

impl Node {
    /// The node at this address and port.
    pub fn at(address: &str) -> Node {
        Node { address: address.to_owned() }
    }

    /// Sends a request and takes the answer.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Result<Answer, Failure> {
        let failed = |what: &dyn std::fmt::Display| Failure::new(FAILED, format!("{}: {what}", self.address));
        let answer = self.exchange(method, path, body).map_err(|error| failed(&error))?;
        let text = String::from_utf8_lossy(&answer);
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| failed(&"no HTTP answer"))?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| failed(&"no HTTP answer"))?;
        // Whoever is in between may answer something else than JSON.
        let body = match body {
            "" => Value::Null,
            body => serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.trim().to_owned())),
        };
        Ok(Answer { status, body })
    }

    fn exchange(&self, method: &str, path: &str, body: &str) -> std::io::Result<Vec<u8>> {
        let mut last = std::io::Error::other("no address to connect to");
        for address in self.address.to_socket_addrs()? {
            let mut stream = match TcpStream::connect_timeout(&address, CONNECT_MAX) {
                Ok(stream) => stream,
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            stream.set_read_timeout(Some(ANSWER_MAX))?;
            let head = format!(
                "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n",
                self.address,
                body.len()
            );
            stream.write_all(head.as_bytes())?;
            stream.write_all(body.as_bytes())?;
            let mut answer = Vec::new();
            stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
            return Ok(answer);
        }
        Err(last)
    }
}

/// A name as it stands in a path.
pub fn encoded(name: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.iter()
        .copied()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded() {
        assert_eq!(encoded("a-b c/ü".as_bytes()), "a-b%20c%2F%C3%BC");
    }
}
