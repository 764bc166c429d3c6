//! Nothing but a map in memory that answers at once: what the generator itself can do.
//!
//! It keeps the newest value of each key, so that all checks run as against a server. All workers of a run share it.

use super::{Answer, Command, Driver, Request, Sink};
use crate::Error;
use crate::rng::mix;
use base::FastMap;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Locks: far more than threads.
const STRIPES: usize = 256;

/// Operations of a worker that wait for the next poll, at most: it answers at once, so no more are ever needed.
const BATCH_MAX: usize = 1024;

type Objects = FastMap<u64, Arc<[u8]>>;

/// The objects.
#[derive(Clone)]
pub struct Store(Arc<[Mutex<Objects>]>);

impl Default for Store {
    fn default() -> Store {
        Store((0..STRIPES).map(|_| Mutex::default()).collect())
    }
}

enum Ended {
    Found(Arc<[u8]>),
    NotFound,
    Done,
    Listed,
}

/// A worker's way to them.
pub struct NullDriver {
    store: Store,
    ended: VecDeque<(u32, Ended)>,
}

impl NullDriver {
    /// Of a store that others may share.
    pub fn new(store: Store) -> NullDriver {
        NullDriver { store, ended: VecDeque::with_capacity(BATCH_MAX) }
    }
}

impl Driver for NullDriver {
    fn ready(&self) -> usize {
        BATCH_MAX - self.ended.len()
    }

    fn submit(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let id = hash(request.bucket, request.key);
        let stripe = &self.store.0[(mix(id) >> 32) as usize % STRIPES];
        let mut objects = stripe.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = match request.command {
            Command::Get => objects.get(&id).map_or(Ended::NotFound, |value| Ended::Found(Arc::clone(value))),
            Command::Head => objects.get(&id).map_or(Ended::NotFound, |_| Ended::Done),
            Command::Put { value, .. } => {
                // In place where it fits and nobody reads it, so that a write costs no allocation.
                match objects.get_mut(&id).and_then(Arc::get_mut).filter(|old| old.len() == value.len()) {
                    Some(old) => old.copy_from_slice(value),
                    None => drop(objects.insert(id, value.into())),
                }
                Ended::Done
            }
            Command::Delete => {
                objects.remove(&id);
                Ended::Done
            }
            Command::Query(_) | Command::ListKeys | Command::ListBuckets => Ended::Listed,
            Command::Ping | Command::Reconnect => Ended::Done,
        };
        self.ended.push_back((request.token, ended));
        Ok(())
    }

    fn poll(&mut self, timeout: Duration, sink: &mut dyn Sink) -> Result<(), Error> {
        if self.ended.is_empty() && !timeout.is_zero() {
            std::thread::sleep(timeout);
        }
        while let Some((token, ended)) = self.ended.pop_front() {
            let answer = match &ended {
                Ended::Found(value) => {
                    let values = [0..value.len()];
                    sink.answered(token, Answer::Found { context: b"null", values: &values, body: value });
                    continue;
                }
                Ended::NotFound => Answer::NotFound,
                Ended::Done => Answer::Done,
                Ended::Listed => Answer::Listed(0),
            };
            sink.answered(token, answer);
        }
        Ok(())
    }
}

/// A number for a bucket and a key.
fn hash(bucket: &[u8], key: &[u8]) -> u64 {
    [bucket, key].iter().fold(0, |hash, part| {
        part.chunks(8).fold(mix(hash ^ part.len() as u64), |hash, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            mix(hash ^ u64::from_le_bytes(word))
        })
    })
}
