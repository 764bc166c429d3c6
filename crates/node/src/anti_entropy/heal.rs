//! Objects that the scrub and rebuilds have found damaged are read, so that the other replicas heal them.
//!
//! A read whose own copy is damaged takes the value from another replica and writes it here anew. A client's read does
//! that for its key; this does it for keys that no client reads. A few are read at a time, behind clients.
//!
//! The keys of a damaged block of a table are not known. The trees of its partition are made anew without them, so that
//! exchanges find them ([`Trees::rebuild_lost`](super::trees::Trees::rebuild_lost)).
//!
//! Left out: an end of the lost range. A key that other nodes lack, too, stays an error until `annulet check --repair`
//! makes tables again. A node alone has nobody to heal it.

use super::rebuilds::DAMAGED_MAX;
use crate::request::task::Task;
use crate::shard::env::Env;
use crate::shard::reply_to::ReplyTo;
use bytes::Bytes;
use std::collections::VecDeque;

/// Keys begun in one tick, of which there are a few in a second: more is damaged only by a disk that is to be replaced.
const HEALS_AT_ONCE: usize = 8;

/// Keys that wait, beyond which they are left to the scrub's next pass; rebuilds wait.
const WAITING_MAX: usize = 4096;

/// Keys that wait to be healed.
#[derive(Default)]
pub(crate) struct HealQueue {
    waiting: VecDeque<Bytes>,
}

impl HealQueue {
    /// Has these healed, as many as may wait.
    pub fn want(&mut self, keys: Vec<Bytes>) {
        let room = WAITING_MAX.saturating_sub(self.waiting.len());
        self.waiting.extend(keys.into_iter().take(room));
    }

    /// Whether all that a part of a rebuild finds may wait.
    pub fn has_room(&self) -> bool {
        self.waiting.len() + DAMAGED_MAX <= WAITING_MAX
    }

    /// Begins some reads.
    pub fn tick(&mut self, env: &mut Env) {
        let found = env.store.take_damaged_keys();
        if env.peers.is_alone() {
            return;
        }
        self.want(found);
        for _ in 0..HEALS_AT_ONCE {
            let Some(key) = self.waiting.pop_front() else { return };
            if let Some(task) = Task::repair(key, ReplyTo::Nobody, env) {
                env.start(task);
                env.counters.heals += 1;
            }
        }
    }

    /// The relations of its fields.
    pub fn invariants(&self) {
        assert!(self.waiting.len() <= WAITING_MAX, "keys that wait are bounded");
    }
}
