//! Term regexes: the terms that a query takes. A match takes time linear in the term for every pattern; so there
//! are no back references and no look-around.
//!
//! Terms are bytes, and so is a pattern: `.` takes one byte, `\w` an ASCII letter, as in Riak. A pattern that needs
//! Unicode is matched by characters of UTF-8: one with a Unicode class (`\p{L}`), with other than ASCII characters in
//! brackets, or with such characters where case is ignored.

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
        let compile = |by_characters: bool| {
            RegexBuilder::new(text).unicode(by_characters).size_limit(COMPILED_BYTES_MAX).build()
        };
        let by_bytes = if folds_characters(text) { compile(true) } else { compile(false) };
        let compiled = by_bytes.or_else(|error| match error {
            // A Unicode class is an error of syntax only where bytes are matched.
            regex::Error::Syntax(_) => compile(true),
            error => Err(error),
        });
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

/// Whether case is ignored somewhere in a pattern that has other than ASCII characters, or escapes that may stand for
/// such. A wrong guess
/// costs only the match of bytes that are no UTF-8.
fn folds_characters(pattern: &str) -> bool {
    let is_beyond_ascii =
        !pattern.is_ascii() || ["\\x", "\\u", "\\U"].iter().any(|escape| pattern.contains(escape));
    let ignores_case = pattern.split("(?").skip(1).any(|group| {
        let flags = group.split([':', ')', '-', '<', 'P']).next().unwrap_or_default();
        flags.contains('i')
    });
    is_beyond_ascii && ignores_case
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
    fn unicode_is_matched_by_characters_where_a_pattern_needs_it() {
        let matches = |pattern: &'static str, term: &str| {
            Pattern::new(&Bytes::from(pattern)).unwrap().is_match(term.as_bytes())
        };
        assert!(matches(r"^\p{Lu}", "Éa") && !matches(r"^\p{Lu}", "éa"));
        assert!(matches("^[à-ü]$", "é") && !matches("^[à-ü]$", "e"));
        assert!(matches("(?i)^STRASSE É$", "strasse é") && matches(r"(?i)\xE9", "É"));
        assert!(matches("^(?:x|(?si:é))", "É") && !matches("(?-i)É", "é"));
        assert!(matches("^é..$", "éé"), "without need, bytes are matched");
        assert!(matches("(?i)abc", "xABC"));
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
