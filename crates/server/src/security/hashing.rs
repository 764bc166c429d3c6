//! The hashing of new passwords: one at a time, on a thread of its own.
//!
//! A hash takes some 15 ms and 19 MiB, so a shard's thread makes none, and two at once would take twice the memory.

use super::password::{self, secret_bytes};
use ::security::Credential;
use std::sync::Arc;
use tokio::sync::{Semaphore, oneshot};
use zeroize::Zeroizing;

/// Passwords that are hashed or wait for it: operators are few.
const WAITING_MAX: usize = 32;

/// The turn to hash, and places to wait for it.
#[derive(Clone)]
pub(crate) struct Hashing {
    turn: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Hashing {
    /// With nobody waiting.
    pub(crate) fn new() -> Hashing {
        Hashing { turn: Arc::new(Semaphore::new(1)), places: Arc::new(Semaphore::new(WAITING_MAX)) }
    }

    /// The verifier of a password, whose memory is overwritten; `None` if too many wait, or no thread can be started.
    pub(crate) async fn hash(&self, password: Zeroizing<Vec<u8>>) -> Option<Credential> {
        let _place = self.places.try_acquire().ok()?;
        let turn = Arc::clone(&self.turn).acquire_owned().await.ok()?;
        let (tell, told) = oneshot::channel();
        let body = move || {
            // The caller may have gone.
            tell.send(password::hash(&password, &secret_bytes())).ok();
            drop(turn);
        };
        std::thread::Builder::new().name("annulet-hash".to_owned()).spawn(body).ok()?;
        told.await.ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn equal_passwords_have_different_verifiers() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let hashing = Hashing::new();
        let hash = || runtime.block_on(hashing.hash(b"secret".to_vec().into())).unwrap();
        let (first, second) = (hash(), hash());
        assert_ne!(first, second);
        assert!(password::fits(b"secret", &first) && password::fits(b"secret", &second));
    }
}
