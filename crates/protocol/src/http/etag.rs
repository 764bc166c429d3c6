//! Entity tags: lists of them in conditions (RFC 9110, section 8.8.3).

/// One tag of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag<'a> {
    /// The tag without its quotes.
    pub tag: &'a [u8],
    /// Whether it may stand for several representations, and so proves nothing to a write.
    pub is_weak: bool,
}

/// The tags of a condition's value. `None` if it is `*`. Old clients leave the quotes out; what they write is a tag
/// up to the next comma.
pub fn list(value: &[u8]) -> Option<impl Iterator<Item = Tag<'_>>> {
    let value = value.trim_ascii();
    (value != b"*").then_some(Tags(value))
}

struct Tags<'a>(&'a [u8]);

impl<'a> Iterator for Tags<'a> {
    type Item = Tag<'a>;

    fn next(&mut self) -> Option<Tag<'a>> {
        while let [b',' | b' ' | b'\t', rest @ ..] = self.0 {
            self.0 = rest;
        }
        if self.0.is_empty() {
            return None;
        }
        let (is_weak, rest) = match self.0 {
            [b'W', b'/', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let (tag, rest) = match rest {
            [b'"', quoted @ ..] => cut(quoted, b'"'),
            plain => cut(plain, b','),
        };
        self.0 = rest;
        Some(Tag { tag: tag.trim_ascii(), is_weak })
    }
}

/// What is before the first `end`, and what is after it.
fn cut(text: &[u8], end: u8) -> (&[u8], &[u8]) {
    match text.iter().position(|&byte| byte == end) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_taken_apart() {
        let tags = |value: &'static str| -> Vec<(&[u8], bool)> {
            list(value.as_bytes()).unwrap().map(|tag| (tag.tag, tag.is_weak)).collect()
        };
        assert_eq!(tags("\"a\""), [(&b"a"[..], false)]);
        assert_eq!(tags("\"a,b\", W/\"c\" ,d"), [(&b"a,b"[..], false), (b"c", true), (b"d", false)]);
        assert_eq!(tags("plain , \"open"), [(&b"plain"[..], false), (b"open", false)]);
        assert_eq!(tags(" ,, "), []);
        assert_eq!(tags("\"\""), [(&b""[..], false)]);
        assert!(list(b" * ").is_none());
    }
}
