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

/// Messages of one lane, by founding.
type Sections = BTreeMap<(u8, u64), Vec<(GroupId, Bytes)>>;

/// Messages for one shard.
#[derive(Default)]
struct Queue {
    lanes: BTreeMap<Lane, Sections>,
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
        let lane = queue.lanes.entry(Lane::of(&message)).or_default();
        lane.entry((group.n_val, group.founding)).or_default().push((group, message));
    }

    /// Takes the envelopes that leave now; the liveness lane of a receiver first.
    pub fn take(&mut self, now: Monotonic) -> Vec<(Endpoint, Envelope)> {
        let mut taken = Vec::new();
        for (&to, queue) in &mut self.queues {
            let is_due = queue.noted.is_some_and(|noted| now.since(noted) >= NOTE_HELD_MAX);
            if is_due || !queue.lanes.is_empty() {
                queue.take_notes();
            }
            for (lane, sections) in std::mem::take(&mut queue.lanes) {
                let messages = sections.into_values().flatten().collect();
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
    /// Lets the notes leave with the other messages.
    fn take_notes(&mut self) {
        self.noted = None;
        for (group, note) in std::mem::take(&mut self.notes) {
            let lane = self.lanes.entry(Lane::Liveness).or_default();
            lane.entry((group.n_val, group.founding)).or_default().push((group, note));
        }
    }
}

/// Whether a message is a heartbeat that confirms no read.
fn is_note(message: &Bytes) -> bool {
    // The context is its last field, and a number ends with a zero byte only if it is zero.
    kind::of(message) == Some(kind::HEARTBEAT) && message.last() == Some(&0)
}

/// Cuts messages into envelopes within the bounds.
fn split(messages: Vec<(GroupId, Bytes)>) -> Vec<Vec<(GroupId, Bytes)>> {
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
