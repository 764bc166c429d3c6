//! The same operations over HTTP.

use super::{BUCKET, KEY_MARK, MISSING_FROM, Op, Shape, Template, Workload};
use crate::Result;

/// Operations over HTTP, on connections that stay open.
pub struct Http {
    op: Op,
    template: Template,
}

/// The end of a head.
const HEAD_END: &[u8] = b"\r\n\r\n";

impl Http {
    /// Operations of one kind, on values of the usual shape.
    pub fn new(op: Op) -> Http {
        let value = Shape::PLAIN.filler();
        let method = match op {
            Op::Get | Op::Miss => "GET",
            Op::Head => "HEAD",
            Op::Put => "PUT",
        };
        let text = |bytes: &'static [u8]| String::from_utf8_lossy(bytes);
        let mut bytes = format!(
            "{method} /buckets/{}/keys/{} HTTP/1.1\r\nHost: 127.0.0.1:8098\r\nAccept: */*\r\n",
            text(BUCKET),
            text(&KEY_MARK)
        )
        .into_bytes();
        if op == Op::Put {
            let headers =
                format!("Content-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n", value.len());
            bytes.extend_from_slice(headers.as_bytes());
            bytes.extend_from_slice(&value);
        } else {
            bytes.extend_from_slice(b"\r\n");
        }
        Http { op, template: Template::new(bytes, &value) }
    }

    fn complaint(&self, answer: &[u8]) -> crate::Failure {
        let text = String::from_utf8_lossy(&answer[..answer.len().min(200)]);
        format!("a {} was answered by {} bytes, {text:?}", self.op.name(), answer.len()).into()
    }
}

/// The length of a head with the empty line after it, if it is complete.
fn head_len(input: &[u8]) -> Option<usize> {
    let end = input.windows(HEAD_END.len()).position(|window| window == HEAD_END)?;
    Some(end + HEAD_END.len())
}

impl Workload for Http {
    fn request(&mut self, key: u64) -> &[u8] {
        self.template.patched(key + if self.op == Op::Miss { MISSING_FROM } else { 0 })
    }

    fn answer_len(&self, input: &[u8]) -> Option<usize> {
        let head = head_len(input)?;
        let text = std::str::from_utf8(&input[..head]).ok()?;
        let length = text.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length = length.filter(|_| self.op != Op::Head).map_or(Some(0), |length| length.parse().ok());
        Some(head + length?)
    }

    fn check(&self, answer: &[u8]) -> Result<()> {
        let status: &[u8] = match self.op {
            Op::Get | Op::Head => b"HTTP/1.1 200 ",
            Op::Miss => b"HTTP/1.1 404 ",
            Op::Put => b"HTTP/1.1 204 ",
        };
        if answer.starts_with(status) { Ok(()) } else { Err(self.complaint(answer)) }
    }

    fn verify(&self, key: u64, answer: &[u8]) -> Result<()> {
        let right = self.op != Op::Get || answer.ends_with(&Shape::PLAIN.value_of(key));
        if right { Ok(()) } else { Err(format!("key {key}: {}", self.complaint(answer)).into()) }
    }

    fn refuses(&self, answer: &[u8]) -> bool {
        answer.starts_with(b"HTTP/1.1 503 ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers() {
        let mut put = Http::new(Op::Put);
        put.request(3);
        let text = String::from_utf8_lossy(put.request(42)).into_owned();
        assert!(text.starts_with("PUT /buckets/figures/keys/000000000042 HTTP/1.1\r\n"), "{text}");
        assert!(put.request(42).ends_with(&Shape::PLAIN.value_of(42)));
        put.check(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        let get = Http::new(Op::Get);
        let answer =
            [&b"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n"[..], &Shape::PLAIN.value_of(5)].concat();
        assert_eq!(get.answer_len(&answer[..30]), None);
        assert_eq!(get.answer_len(&answer[..50]), Some(answer.len()));
        get.check(&answer).unwrap();
        get.verify(5, &answer).unwrap();
        get.verify(6, &answer).unwrap_err();
        put.check(&answer).unwrap_err();
        assert!(get.refuses(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"));
    }
}
