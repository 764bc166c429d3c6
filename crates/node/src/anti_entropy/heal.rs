//! What the scrub and rebuilds have found damaged is read, so that the other replicas heal it.
//!
//! A read whose own copy is damaged takes the value from another replica and writes it here anew: what a client's read
//! does for a key that is asked for, this does for those that nobody asks for. A few are read at a time, behind clients.
//!
//! Which keys were in a damaged block of a table is not known. The trees of its partition are made anew without them, so that
//! exchanges find what is missing here ([`Shard::rebuild_lost`]).
//!
//! Left out: an end of the range that was lost. What others have not got goes on to be an error until `annulet check --repair` makes
//! tables again. A node alone has nobody to heal it.

use crate::anti_entropy::rebuilds::DAMAGED_MAX;
use crate::request::task::Task;
use crate::shard::Shard;
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
    pub fn have_room(&self) -> bool {
        self.waiting.len() + DAMAGED_MAX <= WAITING_MAX
    }
}

impl Shard {
    pub(crate) fn tick_heals(&mut self) {
        let found = self.env.store.take_damaged_keys();
        if self.env.peers.is_alone() {
            return;
        }
        self.heals.want(found);
        for _ in 0..HEALS_AT_ONCE {
            let Some(key) = self.heals.waiting.pop_front() else { return };
            if let Some(task) = Task::repair(key, ReplyTo::Nobody, &self.env) {
                self.env.start(task);
                self.env.counters.heals += 1;
            }
        }
    }
}
