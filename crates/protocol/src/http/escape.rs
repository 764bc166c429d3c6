//! Names and values that a header cannot hold as they are, percent-encoded so that they read back as they were.
//!
//! Metadata may come by a protocol that lets it hold anything. Riak writes it into headers as it is, and so does this
//! store, but for bytes that would change or break the header: line ends, a blank at an end, a comma between terms.
//!
//! 1. A byte that a header cannot hold becomes `%XX`.
//! 2. A text that looks like such a byte (`%`, any number of `25`, `XX`) gets one more `25`.
//! 3. Reading undoes both, and leaves every other `%` alone.
//!
//! Invariants: reading what was written gives it back, whatever it is; and writing what was read gives that back, so a
//! client that encodes its values itself finds them as it has sent them. Nothing written holds a line end.

use bytes::Bytes;

/// The part of a header; it decides which bytes are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The end of a header's name. Names are read in either case.
    Name,
    /// A header's whole value.
    Value,
    /// One of several values with commas between.
    Item,
}

impl Part {
    /// Whether a header cannot hold a byte there.
    fn escapes(self, byte: u8, is_end: bool) -> bool {
        match (self, byte) {
            (Part::Name, byte) => !byte.is_ascii_alphanumeric() && !b"!#$%&'*+-.^_`|~".contains(&byte),
            (_, b'\t' | b' ') => is_end,
            (_, b',') => self == Part::Item,
            (_, byte) => byte.is_ascii_control(),
        }
    }

    fn digit(self, byte: u8) -> Option<u8> {
        match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'A'..=b'F' => Some(byte - b'A' + 10),
            // Clients write names in lower case.
            b'a'..=b'f' if self == Part::Name => Some(byte - b'a' + 10),
            _ => None,
        }
    }
}

/// `%`, any number of `25`, and the two digits of a byte that is escaped.
struct Chain {
    len: usize,
    /// How many `25` there are.
    depth: usize,
    byte: u8,
}

impl Chain {
    /// The one that begins at `at`.
    fn at(text: &[u8], at: usize, part: Part) -> Option<Chain> {
        if text[at] != b'%' {
            return None;
        }
        let mut end = at + 1;
        while text[end..].starts_with(b"25") {
            end += 2;
        }
        let digit = |at: usize| part.digit(*text.get(at)?);
        let byte = digit(end)? << 4 | digit(end + 1)?;
        let is_end = at == 0 || end + 2 == text.len();
        let chain = Chain { len: end + 2 - at, depth: (end - at - 1) / 2, byte };
        part.escapes(byte, is_end).then_some(chain)
    }
}

/// Appends a name or a value.
pub fn escape(text: &[u8], part: Part, out: &mut Vec<u8>) {
    // Nearly all of them.
    let is_plain = |byte: &u8| *byte != b'%' && !part.escapes(*byte, false);
    let is_plain_end = |byte: Option<&u8>| byte.is_none_or(|byte| !part.escapes(*byte, true));
    if text.iter().all(is_plain) && is_plain_end(text.first()) && is_plain_end(text.last()) {
        return out.extend_from_slice(text);
    }
    let is_escaped = |at: usize| part.escapes(text[at], at == 0 || at + 1 == text.len());
    for (at, &byte) in text.iter().enumerate() {
        if is_escaped(at) {
            super::target::percent(byte, out);
            continue;
        }
        out.push(byte);
        if Chain::at(text, at, part).is_some() {
            out.extend_from_slice(b"25");
        }
    }
}

/// The plain text of a name or a value; `None` if nothing in it is escaped.
pub fn unescape(text: &[u8], part: Part) -> Option<Bytes> {
    if !text.contains(&b'%') {
        return None;
    }
    let mut read = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match Chain::at(text, at, part) {
            Some(Chain { len, depth: 0, byte }) => {
                read.push(byte);
                at += len;
            }
            Some(Chain { len, .. }) => {
                read.push(b'%');
                read.extend_from_slice(&text[at + 3..at + len]);
                at += len;
            }
            None => {
                read.push(text[at]);
                at += 1;
            }
        }
    }
    (read != text).then(|| Bytes::from(read))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    const PARTS: [Part; 3] = [Part::Name, Part::Value, Part::Item];

    fn written(text: &[u8], part: Part) -> Vec<u8> {
        let mut out = Vec::new();
        escape(text, part, &mut out);
        out
    }

    fn read(text: &[u8], part: Part) -> Vec<u8> {
        unescape(text, part).map_or_else(|| text.to_vec(), |read| read.to_vec())
    }

    #[test]
    fn plain_text_is_written_as_it_is() {
        for text in
            ["", "plain", "100%", "50%25 off", "a%20b", "caf\u{e9}", "%zz", "a b", "%2c", "\"x\"", "a;b=c"]
        {
            assert_eq!(written(text.as_bytes(), Part::Item), text.as_bytes());
            assert_eq!(read(text.as_bytes(), Part::Item), text.as_bytes());
        }
        assert_eq!(written(b"a, b", Part::Value), b"a, b");
    }

    #[test]
    fn what_a_header_cannot_hold_is_escaped() {
        for (text, part, expected) in [
            (&b"a, b"[..], Part::Item, "a%2C b"),
            (b"a%2C b", Part::Item, "a%252C b"),
            (b"a%252C b", Part::Item, "a%25252C b"),
            (b" a ", Part::Value, "%20a%20"),
            (b" ", Part::Value, "%20"),
            (b"%20a%20b", Part::Value, "%2520a%20b"),
            (b"a\r\nSet-Cookie: x\0", Part::Value, "a%0D%0ASet-Cookie: x%00"),
            (b"\ta\tb", Part::Value, "%09a\tb"),
            (b"a b:\xC3\xA9%", Part::Name, "a%20b%3A%C3%A9%"),
        ] {
            assert_eq!(written(text, part), expected.as_bytes());
            assert_eq!(read(expected.as_bytes(), part), text);
        }
        assert_eq!(read(b"a%3ab", Part::Name), b"a:b", "clients write names in lower case");
    }

    #[test]
    fn reading_undoes_writing_and_writing_reading() {
        let mut rng = SplitMix64::new(16);
        let alphabet = b"%%%22550055CcAa2, \t\n\rx\0\xFF";
        for _ in 0..50_000 {
            let len = usize::try_from(rng.below(12)).unwrap();
            let draw = |_| alphabet[usize::try_from(rng.below(alphabet.len() as u64)).unwrap()];
            let text: Vec<u8> = (0..len).map(draw).collect();
            for part in PARTS {
                let header = written(&text, part);
                assert_eq!(read(&header, part), text, "{header:?}");
                let is_end = |at: usize| at == 0 || at + 1 == header.len();
                assert!(!header.iter().enumerate().any(|(at, &byte)| part.escapes(byte, is_end(at))));
                // As a client may have written it itself.
                if part != Part::Name {
                    assert_eq!(written(&read(&header, part), part), header);
                }
            }
        }
    }

    #[test]
    fn a_long_chain_takes_no_longer_than_its_length() {
        let text = [&b"%"[..], &b"25".repeat(1 << 15), b"0A"].concat();
        assert_eq!(read(&written(&text, Part::Value), Part::Value), text);
        let none = [&b"%"[..], &b"25".repeat(1 << 15)].concat();
        assert_eq!(written(&none, Part::Value), none);
    }
}
