//! Hashes of Riak as operators import them: `pbkdf2-hmac-sha1:ITERATIONS:SALT:HASH`, the salt and the hash in
//! hexadecimal digits.
//!
//! Riak keeps the fields `iterations`, `salt` (bytes) and `hash_pass` (hexadecimal digits) for each user.

use bytes::Bytes;

use super::CommandError;
use crate::credential::{Credential, PBKDF2_ROUNDS_MAX, VERIFIER_BYTES_MAX};

/// The one scheme: all versions of Riak KV make it.
const SCHEME: &str = "pbkdf2-hmac-sha1";

/// Bytes of a hash of Riak.
const HASH_BYTES: usize = 20;

/// Reads the words of a hash.
pub(super) fn read(text: &[u8]) -> Result<Credential, CommandError> {
    let text = std::str::from_utf8(text).map_err(|_| CommandError::PasswordHash)?;
    let mut parts = text.split(':');
    let (Some(SCHEME), Some(rounds), Some(salt), Some(hash), None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(CommandError::PasswordHash);
    };
    let rounds: u32 = rounds.parse().map_err(|_| CommandError::PasswordHash)?;
    let (salt, hash) = (bytes_of(salt)?, bytes_of(hash)?);
    let is_within = (1..=PBKDF2_ROUNDS_MAX).contains(&rounds)
        && salt.len() <= VERIFIER_BYTES_MAX
        && hash.len() == HASH_BYTES;
    if is_within {
        Ok(Credential::RiakPbkdf2 { rounds, salt, hash })
    } else {
        Err(CommandError::PasswordHash)
    }
}

/// The bytes that hexadecimal digits stand for.
fn bytes_of(digits: &str) -> Result<Bytes, CommandError> {
    let pair = |pair: &[u8]| {
        let digit = |at: usize| pair.get(at).and_then(|&byte| char::from(byte).to_digit(16));
        let byte = digit(0).zip(digit(1)).map(|(high, low)| (high << 4 | low) as u8);
        byte.ok_or(CommandError::PasswordHash)
    };
    digits.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_riak_are_read() {
        let hash = "4b007901b765489abead49d926f721d065a429c1";
        let credential = read(format!("pbkdf2-hmac-sha1:4096:73616C74:{hash}").as_bytes()).unwrap();
        let Credential::RiakPbkdf2 { rounds, salt, hash: read_hash } = credential else { panic!("argon2id") };
        assert_eq!((rounds, &salt[..], read_hash[..3].to_vec()), (4096, &b"salt"[..], vec![0x4b, 0, 0x79]));
        for bad in [
            String::new(),
            hash.to_owned(),
            format!("pbkdf2-hmac-sha1:0:73616c74:{hash}"),
            format!("pbkdf2-hmac-sha1:{}:73616c74:{hash}", PBKDF2_ROUNDS_MAX + 1),
            format!("pbkdf2-hmac-sha1:4096:73616c7:{hash}"),
            format!("pbkdf2-hmac-sha1:4096:73616c7g:{hash}"),
            format!("pbkdf2-hmac-sha1:4096:73616c74:{hash}00"),
            format!("pbkdf2-hmac-sha1:4096:73616c74:{hash}:"),
            format!("pbkdf2-hmac-sha256:4096:73616c74:{hash}"),
        ] {
            assert_eq!(read(bad.as_bytes()), Err(CommandError::PasswordHash), "{bad}");
        }
    }
}
