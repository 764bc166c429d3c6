//! Messages of one shard on their way into envelopes.
//!
//! Most leave with the turn. A *note* is a heartbeat that confirms no read: it tells how far entries are committed. It
//! waits a little for other messages to the same shard, and a newer note of its group takes its place.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Monotonic;
use bytes::Bytes;

use super::{ENVELOPE_BYTES_MAX, ENVELOPE_MESSAGES_MAX, Envelope, GroupId, Lane};
use crate::endpoint::Endpoint;
use crate::group::kind;

/// Time that a note waits for company: a follower hears so soon that an entry is committed.
pub const NOTE_HELD_MAX: Duration = Duration::from_millis(20);

/// Messages for one shard, of each lane in order of coming.
#[derive(Default)]
struct Queue {
    liveness: Vec<(GroupId, Bytes)>,
    requests: Vec<(GroupId, Bytes)>,
    /// At most one of a group, so bounded by the groups.
    notes: BTreeMap<GroupId, Bytes>,
    /// When the first note came.
    noted: Option<Monotonic>,
}

/// Messages by receiver.
pub struct Outgoing {
    here: Endpoint,
    queues: BTreeMap<Endpoint, Queue>,
}

impl Outgoing {
    /// No messages of a shard.
    pub fn new(here: Endpoint) -> Outgoing {
        Outgoing { here, queues: BTreeMap::new() }
    }

    /// Adds a message of a group.
    pub fn push(&mut self, to: Endpoint, group: GroupId, message: Bytes, now: Monotonic) {
        let queue = self.queues.entry(to).or_default();
        if is_note(&message) {
            queue.notes.insert(group, message);
            queue.noted.get_or_insert(now);
            return;
        }
        if matches!(kind::of(&message), Some(kind::APPEND | kind::HEARTBEAT)) {
            // It says all that the note does.
            queue.notes.remove(&group);
        }
        queue.lane(Lane::of(&message)).push((group, message));
    }

    /// Takes the envelopes that leave now; the liveness lane of a receiver first.
    pub fn take(&mut self, now: Monotonic) -> Vec<(Endpoint, Envelope)> {
        let mut taken = Vec::new();
        for (&to, queue) in &mut self.queues {
            let is_due = queue.noted.is_some_and(|noted| now.since(noted) >= NOTE_HELD_MAX);
            if is_due || !queue.liveness.is_empty() || !queue.requests.is_empty() {
                queue.take_notes();
            }
            for lane in [Lane::Liveness, Lane::Requests] {
                let mut messages = std::mem::take(queue.lane(lane));
                // Messages of a founding in a row; those of a group keep their order.
                messages.sort_by_key(|(group, _)| (group.n_val, group.founding));
                let envelopes = split(messages).into_iter();
                let from = self.here;
                taken.extend(envelopes.map(|messages| (to, Envelope { from, to, lane, messages })));
            }
        }
        self.queues.retain(|_, queue| !queue.notes.is_empty());
        taken
    }

    /// When notes have to leave that nothing else has taken along.
    pub fn next_timer(&self) -> Option<Monotonic> {
        self.queues.values().filter_map(|queue| queue.noted).min().map(|noted| noted + NOTE_HELD_MAX)
    }
}

impl Queue {
    fn lane(&mut self, lane: Lane) -> &mut Vec<(GroupId, Bytes)> {
        match lane {
            Lane::Liveness => &mut self.liveness,
            Lane::Requests => &mut self.requests,
        }
    }

    /// Lets the notes leave with the other messages.
    fn take_notes(&mut self) {
        self.noted = None;
        self.liveness.extend(std::mem::take(&mut self.notes));
    }
}

/// Whether a message is a heartbeat that confirms no read.
fn is_note(message: &Bytes) -> bool {
    // The context is its last field, and a number ends with a zero byte only if it is zero.
    kind::of(message) == Some(kind::HEARTBEAT) && message.last() == Some(&0)
}

/// Cuts messages into envelopes within the bounds.
fn split(messages: Vec<(GroupId, Bytes)>) -> Vec<Vec<(GroupId, Bytes)>> {
    let bytes: usize = messages.iter().map(|(_, message)| message.len()).sum();
    if !messages.is_empty() && messages.len() <= ENVELOPE_MESSAGES_MAX && bytes <= ENVELOPE_BYTES_MAX {
        return vec![messages];
    }
    let mut envelopes: Vec<Vec<(GroupId, Bytes)>> = Vec::new();
    let mut bytes = 0;
    for (group, message) in messages {
        let size = message.len();
        match envelopes.last_mut() {
            Some(last) if bytes + size <= ENVELOPE_BYTES_MAX && last.len() < ENVELOPE_MESSAGES_MAX => {
                bytes += size;
                last.push((group, message));
            }
            _ => {
                bytes = size;
                envelopes.push(vec![(group, message)]);
            }
        }
    }
    envelopes
}
