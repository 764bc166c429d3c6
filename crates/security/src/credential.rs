//! Credentials: the stored forms of passwords. No password is in one, and `Debug` shows no byte of one.

use std::fmt;

use bytes::Bytes;

/// Bytes of an argon2id verifier (its text with parameters, salt and hash), several times the usual ones.
pub const VERIFIER_BYTES_MAX: usize = 512;

/// Rounds of an imported hash. Riak makes 65,536; more than these would hold the hashing thread for seconds.
pub const PBKDF2_ROUNDS_MAX: u32 = 1 << 20;

/// The verifier of a password.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// The verifier of argon2id, as the text that names its parameters.
    Argon2id(Bytes),
    /// A hash of Riak (PBKDF2 with HMAC-SHA1), imported; it is replaced at the first login.
    RiakPbkdf2 {
        /// Rounds, 1 to [`PBKDF2_ROUNDS_MAX`].
        rounds: u32,
        /// The salt.
        salt: Bytes,
        /// The derived key.
        hash: Bytes,
    },
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Credential::Argon2id(_) => "Argon2id(..)",
            Credential::RiakPbkdf2 { .. } => "RiakPbkdf2(..)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_credential_is_shown() {
        let verifier = Credential::Argon2id(Bytes::from_static(b"$argon2id$secret"));
        let imported = Credential::RiakPbkdf2 { rounds: 1, salt: "salt".into(), hash: "hash".into() };
        assert_eq!(format!("{verifier:?} {imported:?}"), "Argon2id(..) RiakPbkdf2(..)");
    }
}
