//! Names of users and groups, by Riak's rules.

use std::fmt;

use bytes::Bytes;

/// Bytes of a name: room for an address of mail, and short enough for a line of a log.
pub const NAME_BYTES_MAX: usize = 255;

/// Words of the command line in the place of a name.
const RESERVED: [&[u8]; 5] = [b"all", b"on", b"to", b"from", b"any"];

/// The name of a user or a group: in lower case, 1 to [`NAME_BYTES_MAX`] bytes, none of them a control character or one
/// that the command line needs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(Bytes);

/// Why bytes are no name. Its `Display` is Riak's text, where Riak has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty.
    #[error("A name must not be empty")]
    Empty,
    /// It is longer than [`NAME_BYTES_MAX`].
    #[error("A name has at most {NAME_BYTES_MAX} bytes")]
    TooLong,
    /// It is a word of the command line.
    #[error("This name is reserved for system use")]
    Reserved,
    /// It has a byte that no name has.
    #[error("Illegal character(s) in name")]
    Illegal,
}

impl Name {
    /// A name that is created: in lower case from here on.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn create(bytes: &[u8]) -> Result<Name, NameError> {
        Name::check(Bytes::from(bytes.to_ascii_lowercase()))
    }

    /// A name that was created, such as one on a disk.
    ///
    /// # Errors
    /// [`NameError`], also for upper case.
    pub fn check(bytes: Bytes) -> Result<Name, NameError> {
        if bytes.is_empty() {
            return Err(NameError::Empty);
        }
        if bytes.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong);
        }
        if RESERVED.contains(&&bytes[..]) {
            return Err(NameError::Reserved);
        }
        let is_illegal =
            |byte: &u8| matches!(byte, 0..=44 | 58..=63 | 127..=191) || byte.is_ascii_uppercase();
        if bytes.iter().any(is_illegal) {
            return Err(NameError::Illegal);
        }
        Ok(Name(bytes))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

/// Lets a map be asked with the bytes that a client sent.
impl std::borrow::Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_riaks_rules() {
        assert_eq!(Name::create(b"Alice").unwrap().to_string(), "alice");
        assert_eq!(Name::create(b"a-b.c/d@e_1").unwrap().to_string(), "a-b.c/d@e_1");
        for reserved in ["all", "ON", "to", "from", "any"] {
            assert_eq!(Name::create(reserved.as_bytes()), Err(NameError::Reserved), "{reserved}");
        }
        for illegal in ["a b", "a,b", "a:b", "a=b", "a?b", "a\u{7f}", "\u{e9}"] {
            assert_eq!(Name::create(illegal.as_bytes()), Err(NameError::Illegal), "{illegal}");
        }
        assert_eq!(Name::create(b""), Err(NameError::Empty));
        assert!(Name::create(&[b'a'; NAME_BYTES_MAX]).is_ok());
        assert_eq!(Name::create(&[b'a'; NAME_BYTES_MAX + 1]), Err(NameError::TooLong));
        assert_eq!(Name::check(Bytes::from_static(b"Alice")), Err(NameError::Illegal));
    }
}
