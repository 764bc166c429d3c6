//! What the scrub and rebuilds have found damaged is read, so that the other replicas heal it.
//!
//! A read whose own copy is damaged takes the value from another replica and writes it here anew: what a client's read
//! does for a key that is asked for, this does for those that nobody asks for. A few are read at a time, behind
//! clients.
//!
//! Which keys were in a damaged block of a table is not known. The trees of its partition are made anew without them,
//! so that exchanges find what is missing here ([`Trees::rebuild_lost`](super::trees::Trees::rebuild_lost)).
//!
//! Left out: an end of the range that was lost. What others have not got goes on to be an error until `annulet check
//! --repair` makes tables again. A node alone has nobody to heal it.

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
        debug_assert!(self.waiting.len() <= WAITING_MAX, "keys that wait are bounded");
    }
}
