//! Answers of HTTP, as they are read from a connection that stays open.
//!
//! Every answer must have status 200 and a `Content-Length`.

use crate::Result;
use std::io::Read;

/// Bytes of an answer: four times the bar for 100 peers. More is a fault of the node.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Bytes that one read takes.
const READ_BYTES: usize = 16 << 10;

/// Reads an answer into `input`, which it empties before. Returns its body.
pub fn read<'a>(stream: &mut dyn Read, input: &'a mut Vec<u8>) -> Result<&'a [u8]> {
    input.clear();
    let mut piece = [0; READ_BYTES];
    while body_of(input)?.is_none() {
        let len = stream.read(&mut piece)?;
        if len == 0 || input.len() + len > ANSWER_BYTES_MAX {
            return Err("the answer is cut off or too long".into());
        }
        input.extend_from_slice(&piece[..len]);
    }
    Ok(body_of(input)?.unwrap_or_default())
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
