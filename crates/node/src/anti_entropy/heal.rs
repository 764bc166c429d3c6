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
use crate::request::task::{Coordinator, Task, placed};
use crate::shard::Shard;
use crate::shard::reply_to::ReplyTo;
use ::object::key;
use bytes::Bytes;
use kv::GetRequest;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Keys begun in one tick, of which there are a few in a second: more is damaged only by a disk that is to be replaced.
const HEALS_AT_ONCE: usize = 8;

/// Keys that wait, beyond which they are left to the scrub's next pass; rebuilds wait.
const WAITING_MAX: usize = 4096;

/// How long a key's replicas may take.
const HEAL_MAX: Duration = Duration::from_secs(10);

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
            if self.read_for_nobody(key, ReplyTo::Nobody) {
                self.env.counters.heals += 1;
            }
        }
    }

    /// Reads a key for no client, so that its replicas are repaired. One that is no object's, or whose bucket is not known, is left
    /// as it is: then it tells false.
    pub(crate) fn read_for_nobody(&mut self, key: Bytes, reply_to: ReplyTo) -> bool {
        let Ok((prefix, bucket)) = placed(&key) else { return false };
        let Ok(name) = key::decode_object_key(&key).map(|parts| key.slice_ref(parts.key)) else {
            return false;
        };
        let Ok(props) = self.env.props.get_as_replica(&bucket).map(Arc::clone) else { return false };
        if self.env.ownership().is_moving(prefix, props.n_val) {
            // Its owners are about to change, and who has it then reads it all.
            return false;
        }
        let request = GetRequest {
            // What an exchange has found differs in its heads, and a tombstone has no value: a value is read where one
            // is to be sent.
            head: reply_to != ReplyTo::Nobody,
            ..GetRequest::new(bucket, name)
        };
        let deadline = self.env.now() + HEAL_MAX;
        let mut work = Task::new(reply_to, Coordinator::get(request), key, props, deadline);
        work.epoch = Some(self.env.topology.epoch);
        self.start_work(work);
        true
    }
}
