//! Secondary index entries as clients send them with a value: kept and returned verbatim, checked as Riak checks.
//!
//! A field's suffix is its type: `_bin` terms are any bytes, `_int` terms are integers in decimal. `$bucket` and
//! `$key` are the two fields that every object has. Riak stores entries of these names, which no query finds; here they
//! are refused.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

/// One index entry of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IndexEntry {
    /// The field, with its suffix.
    pub field: Bytes,
    /// The term, as sent.
    pub value: Bytes,
}

/// What is wrong with one index entry. Ordered as Erlang orders the same terms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum IndexError {
    /// An `_int` field's term is not an integer of 64 bits.
    FieldParsingFailed {
        /// The field.
        field: Bytes,
        /// The term.
        value: Bytes,
    },
    /// The field has neither suffix, or is one of those that every object has by itself.
    UnknownFieldType {
        /// The field.
        field: Bytes,
    },
}

/// Everything wrong with a value's index entries, each once, in order. Its text is Riak's answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct IndexErrors(pub Vec<IndexError>);

/// Checks the entries of one value.
///
/// # Errors
/// [`IndexErrors`] with every entry that is wrong.
pub fn validate<'a>(entries: impl IntoIterator<Item = &'a IndexEntry>) -> Result<(), IndexErrors> {
    let mut errors: Vec<_> = entries.into_iter().filter_map(|entry| check(entry).err()).collect();
    if errors.is_empty() {
        return Ok(());
    }
    errors.sort();
    errors.dedup();
    Err(IndexErrors(errors))
}

fn check(entry: &IndexEntry) -> Result<(), IndexError> {
    let field = entry.field.as_ref();
    if is_of_integers(field) {
        return match parse_integer(&entry.value) {
            Some(_) => Ok(()),
            None => {
                Err(IndexError::FieldParsingFailed { field: entry.field.clone(), value: entry.value.clone() })
            }
        };
    }
    if field.ends_with(b"_bin") {
        return Ok(());
    }
    Err(IndexError::UnknownFieldType { field: entry.field.clone() })
}

/// The integer in the term of an `_int` field, or `None` if it is not one of 64 bits.
pub fn parse_integer(term: &[u8]) -> Option<i64> {
    std::str::from_utf8(term).ok()?.parse().ok()
}

/// The term of an entry as it is ordered: the bytes of `_bin` as they are, the integers of `_int` in eight bytes,
/// big-endian with the sign's bit flipped. `None` where there is no entry: `$key` and `$bucket` every object has, other
/// fields have no type.
pub fn term(field: &[u8], value: &[u8]) -> Option<Bytes> {
    ordered(field, value).map(|term| Bytes::copy_from_slice(&term))
}

/// [`term`], borrowed where it can be.
pub(crate) fn ordered<'a>(field: &[u8], value: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    if field.ends_with(b"_bin") {
        return Some(Cow::Borrowed(value));
    }
    if !is_of_integers(field) {
        return None;
    }
    let number = parse_integer(value)?.cast_unsigned() ^ SIGN;
    Some(Cow::Owned(number.to_be_bytes().to_vec()))
}

/// Whether a field's terms are integers, which clients write otherwise than they are ordered.
pub fn is_of_integers(field: &[u8]) -> bool {
    field.ends_with(b"_int")
}

/// Appends a term of such a field as clients write it, from how it is ordered; what is no integer as it is.
pub fn put_integer(term: &[u8], out: &mut Vec<u8>) {
    match term.try_into() {
        Ok(number) => {
            let number = (u64::from_be_bytes(number) ^ SIGN).cast_signed();
            out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        }
        Err(_) => out.extend_from_slice(term),
    }
}

const SIGN: u64 = 1 << 63;

impl fmt::Display for IndexErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{precommit_fail,[")?;
        for (at, error) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{error}")?;
        }
        f.write_str("]}")
    }
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexError::FieldParsingFailed { field, value } => {
                write!(f, "{{field_parsing_failed,{{{},{}}}}}", Binary(field), Binary(value))
            }
            IndexError::UnknownFieldType { field } => {
                write!(f, "{{unknown_field_type,{}}}", Binary(field))
            }
        }
    }
}

/// Prints bytes as Erlang prints a binary: as text if it is printable, else as numbers.
pub struct Binary<'a>(pub &'a [u8]);

impl fmt::Display for Binary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<<")?;
        if !self.0.is_empty() && self.0.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            f.write_str("\"")?;
            for &byte in self.0 {
                let escape = if matches!(byte, b'"' | b'\\') { "\\" } else { "" };
                write!(f, "{escape}{}", char::from(byte))?;
            }
            f.write_str("\"")?;
        } else {
            for (at, byte) in self.0.iter().enumerate() {
                let comma = if at > 0 { "," } else { "" };
                write!(f, "{comma}{byte}")?;
            }
        }
        f.write_str(">>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(field: &'static str, value: &'static str) -> IndexEntry {
        IndexEntry { field: Bytes::from(field), value: Bytes::from(value) }
    }

    fn text(entries: &[IndexEntry]) -> String {
        validate(entries).expect_err("they are wrong").to_string()
    }

    #[test]
    fn errors_read_as_in_riak() {
        assert_eq!(
            text(&[entry("n_int", "abc")]),
            r#"{precommit_fail,[{field_parsing_failed,{<<"n_int">>,<<"abc">>}}]}"#
        );
        assert_eq!(text(&[entry("f", "1")]), r#"{precommit_fail,[{unknown_field_type,<<"f">>}]}"#);
        assert_eq!(
            text(&[entry("f", "1"), entry("n_int", ""), entry("f", "2"), entry("ok_bin", "x")]),
            r#"{precommit_fail,[{field_parsing_failed,{<<"n_int">>,<<>>}},{unknown_field_type,<<"f">>}]}"#
        );
        assert_eq!(
            text(&[entry("a\"b", "1"), entry("\u{1}\n", "1")]),
            r#"{precommit_fail,[{unknown_field_type,<<1,10>>},{unknown_field_type,<<"a\"b">>}]}"#
        );
    }

    #[test]
    fn integers_and_bytes_pass() {
        for value in ["0", "-1", "42", "007", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(validate(&[entry("n_int", value)]), Ok(()), "{value}");
        }
        for value in ["", " 1", "1.0", "0x1", "9223372036854775808", "é"] {
            assert!(validate(&[entry("n_int", value)]).is_err(), "{value}");
        }
        assert_eq!(validate(&[entry("f_bin", "")]), Ok(()));
        for field in ["$key", "$bucket"] {
            let errors = validate(&[entry(field, "x")]).unwrap_err();
            assert_eq!(
                errors.to_string(),
                format!("{{precommit_fail,[{{unknown_field_type,<<\"{field}\">>}}]}}")
            );
        }
    }
}
