//! A driver that lies, to see whether the checks find out.
//!
//! It stands before an honest one. A write that it drops is acknowledged and not sent. For stale reads it remembers the
//! last value but one that was written of some keys, and answers one read of so many with it; a read whose key it has
//! nothing older of waits for the next, so that the number asked for is planted. A write whose entries are dropped is
//! sent without them.

use super::{Answer, Command, Driver, Request, Sink};
use crate::Error;
use crate::workload::Plant;
use base::FastMap;
use std::time::Duration;

/// Keys whose older values are remembered.
const OLDER_MAX: usize = 100_000;

/// Lies of one driver.
pub struct Planted<D> {
    inner: D,
    plant: Plant,
    writes: u64,
    reads: u64,
    indexed: u64,
    /// The last two values of some keys, older first.
    older: FastMap<u64, [Vec<u8>; 2]>,
    /// Tokens whose operations were not sent.
    dropped: Vec<u32>,
    /// Reads under way and what they will be answered with.
    stale: FastMap<u32, Vec<u8>>,
}

impl<D: Driver> Planted<D> {
    /// Lies as `plant` says, in what goes to `inner`.
    pub fn new(inner: D, plant: Plant) -> Planted<D> {
        let (older, stale) = Default::default();
        Planted { inner, plant, writes: 0, reads: 0, indexed: 0, older, dropped: Vec::new(), stale }
    }

    fn remember(&mut self, key: u64, value: &[u8]) {
        if self.plant.stale_reads.is_none()
            || (self.older.len() >= OLDER_MAX && !self.older.contains_key(&key))
        {
            return;
        }
        let pair = self.older.entry(key).or_default();
        pair.swap(0, 1);
        pair[1].clear();
        pair[1].extend_from_slice(value);
    }
}

fn is_turn(count: &mut u64, every: Option<u64>) -> bool {
    let Some(every) = every else { return false };
    *count += 1;
    *count >= every
}

fn key_of(request: &Request<'_>) -> u64 {
    let crc = |bytes: &[u8]| u64::from(base::checksum::crc32c(bytes));
    crc(request.bucket) << 32 ^ crc(request.key).rotate_left(7) ^ (request.key.len() as u64) << 48
}

impl<D: Driver> Driver for Planted<D> {
    fn ready(&self) -> usize {
        self.inner.ready()
    }

    fn submit(&mut self, request: &Request<'_>) -> Result<(), Error> {
        match request.command {
            Command::Put { value, context, .. } => {
                if is_turn(&mut self.writes, self.plant.drop_writes) {
                    self.writes = 0;
                    self.dropped.push(request.token);
                    return Ok(());
                }
                self.remember(key_of(request), value);
                if is_turn(&mut self.indexed, self.plant.drop_entries) {
                    self.indexed = 0;
                    let command = Command::Put { value, context, indexes: &[] };
                    return self.inner.submit(&Request { command, ..*request });
                }
            }
            Command::Get if is_turn(&mut self.reads, self.plant.stale_reads) => {
                let older = self.older.get(&key_of(request)).filter(|pair| !pair[0].is_empty());
                if let Some(pair) = older {
                    self.stale.insert(request.token, pair[0].clone());
                    self.reads = 0;
                }
            }
            _ => {}
        }
        self.inner.submit(request)
    }

    fn poll(&mut self, timeout: Duration, sink: &mut dyn Sink) -> Result<(), Error> {
        let timeout = if self.dropped.is_empty() { timeout } else { Duration::ZERO };
        for token in self.dropped.drain(..) {
            sink.answered(token, Answer::Done);
        }
        self.inner.poll(timeout, &mut Liar { stale: &mut self.stale, sink })
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        Box::new(self.inner).finish()
    }
}

struct Liar<'a> {
    stale: &'a mut FastMap<u32, Vec<u8>>,
    sink: &'a mut dyn Sink,
}

impl Sink for Liar<'_> {
    fn answered(&mut self, token: u32, answer: Answer<'_>) {
        match (self.stale.remove(&token), answer) {
            (Some(older), Answer::Found { context, .. }) => {
                let values = [0..older.len()];
                self.sink.answered(token, Answer::Found { context, values: &values, body: &older });
            }
            _ => self.sink.answered(token, answer),
        }
    }
}
