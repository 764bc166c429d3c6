//! Term regexes: which terms a query takes. A match takes time linear in the term, whatever the pattern; so there are no
//! back references and no look-around. Both are bytes, as terms are.

use bytes::Bytes;
use regex::bytes::{Regex, RegexBuilder};

use crate::error::Error;

/// The longest pattern: a line of text by far.
pub const PATTERN_BYTES_MAX: usize = 4 << 10;

/// What a compiled pattern may take in memory: it is compiled on each shard that is asked.
const COMPILED_BYTES_MAX: usize = 256 << 10;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Compiles it.
    ///
    /// # Errors
    /// [`Error::BadQuery`] if it is no pattern, or too large.
    pub fn new(pattern: &Bytes) -> Result<Pattern, Error> {
        let refused = |reason: &str| {
            let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Error::BadQuery(format!(
                "Invalid term regular expression {} : {reason:?}",
                object::index::Binary(pattern)
            ))
        };
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(refused("it is too long"));
        }
        let text = std::str::from_utf8(pattern).map_err(|_| refused("it is not UTF-8"))?;
        let compiled = RegexBuilder::new(text).unicode(false).size_limit(COMPILED_BYTES_MAX).build();
        compiled.map(Pattern).map_err(|error| refused(&error.to_string()))
    }

    /// Whether it is found in a term.
    #[inline]
    pub fn is_match(&self, term: &[u8]) -> bool {
        self.0.is_match(term)
    }

    /// The compiled pattern.
    pub fn regex(&self) -> &Regex {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn text(pattern: &'static str) -> String {
        Pattern::new(&Bytes::from(pattern)).unwrap_err().to_string()
    }

    #[test]
    fn terms_are_bytes() {
        let pattern = Pattern::new(&Bytes::from_static(b"^a.c\\d$")).unwrap();
        assert!(pattern.is_match(b"a\xFFc1") && !pattern.is_match(b"xa\xFFc1"));
    }

    #[test]
    fn what_is_no_pattern_is_told_as_riak_tells_it() {
        assert!(
            text("(").starts_with("Invalid term regular expression <<\"(\">> : \"unclosed group"),
            "{}",
            text("(")
        );
        assert!(text("a{1000}{1000}").contains("size limit"), "{}", text("a{1000}{1000}"));
        assert!(text("(a)\\1").starts_with("Invalid term regular expression"));
        let long = Bytes::from(vec![b'a'; PATTERN_BYTES_MAX + 1]);
        assert!(Pattern::new(&long).is_err());
        assert!(Pattern::new(&Bytes::from_static(b"\xFF")).is_err());
    }
}
