//! Hashes of passwords: argon2id, and the verification of Riak's PBKDF2 with HMAC-SHA1.
//!
//! A hash takes some 15 ms and [`HASH_BYTES`] of memory, so it is made on a thread of its own, never on a shard's.
//! Parameters are the first choice of OWASP's password storage cheat sheet for 19 MiB.

use ::security::Credential;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use bytes::Bytes;
use ring_crypto::{pbkdf2, rand};
use std::num::NonZeroU32;

/// Memory of one hash.
pub(crate) const HASH_BYTES: usize = 19 << 20;

/// Passes over that memory.
const PASSES: u32 = 2;

/// Bytes of a salt.
pub(crate) const SALT_BYTES: usize = 16;

/// The verifier of a password, under a salt that nobody can foresee.
pub(crate) fn hash(password: &[u8], salt: &[u8; SALT_BYTES]) -> Credential {
    let hash = hasher().hash_password_with_salt(password, salt);
    let hash = hash.expect("a salt of 16 bytes and the parameters are within the bounds of argon2");
    Credential::Argon2id(Bytes::from(hash.to_string()))
}

/// Bytes that nobody can foresee: salts and keys. No simulation has them, so they come from the library of the hashes.
///
/// # Panics
/// If the system has no randomness.
pub(crate) fn secret_bytes<const N: usize>() -> [u8; N]
where
    [u8; N]: rand::RandomlyConstructable,
{
    let bytes = rand::generate(&rand::SystemRandom::new()).expect("the system has randomness");
    bytes.expose()
}

/// Whether a password is the one of a credential. A verifier that cannot be read fits no password.
pub(crate) fn fits(password: &[u8], credential: &Credential) -> bool {
    match credential {
        Credential::Argon2id(verifier) => {
            let verifier = std::str::from_utf8(verifier).ok().and_then(|text| PasswordHash::new(text).ok());
            verifier.is_some_and(|verifier| hasher().verify_password(password, &verifier).is_ok())
        }
        Credential::RiakPbkdf2 { rounds, salt, hash } => NonZeroU32::new(*rounds).is_some_and(|rounds| {
            pbkdf2::verify(pbkdf2::PBKDF2_HMAC_SHA1, rounds, salt, password, hash).is_ok()
        }),
    }
}

fn hasher() -> Argon2<'static> {
    let params = Params::new((HASH_BYTES >> 10) as u32, PASSES, 1, None);
    let params = params.expect("the parameters are within the bounds of argon2");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_fits_its_verifier() {
        let credential = hash(b"secret", &[7; SALT_BYTES]);
        let Credential::Argon2id(text) = &credential else { panic!("another kind of verifier") };
        assert!(text.starts_with(b"$argon2id$v=19$m=19456,t=2,p=1$"));
        assert!(text.len() <= ::security::VERIFIER_BYTES_MAX);
        assert!(fits(b"secret", &credential) && !fits(b"Secret", &credential) && !fits(b"", &credential));
        assert!(!fits(b"secret", &Credential::Argon2id(Bytes::from_static(b"$argon2id$broken"))));
    }

    #[test]
    fn hashes_of_riak_are_verified() {
        // RFC 6070: password "password", salt "salt", 4,096 rounds.
        let hash = b"\x4b\x00\x79\x01\xb7\x65\x48\x9a\xbe\xad\x49\xd9\x26\xf7\x21\xd0\x65\xa4\x29\xc1";
        let (salt, hash) = (Bytes::from_static(b"salt"), Bytes::from_static(hash));
        let credential = Credential::RiakPbkdf2 { rounds: 4096, salt, hash };
        assert!(fits(b"password", &credential) && !fits(b"passwort", &credential));
    }
}
