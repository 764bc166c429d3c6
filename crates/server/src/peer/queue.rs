//! The queue of a link, in lanes.

use base::Monotonic;
use kv::fold::Sum;
use kv::replica::{Answer, Ask};
use kv::{Found, Request, Response};
use node::{Lane, PeerMessage, ShardId};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// The most messages and bytes of each lane, in the lanes' order, so that a lane that is full leaves the others
/// their room.
///
/// * Liveness: small, and of use only while it is new.
/// * Requests: as many as a shard works on ([`node::shard::WORK_MAX`]); a tenth of a second of a 2.5 Gbit/s link.
/// * Listings: a page for each listing of another node, which asks again for what is dropped.
/// * Repair: what is dropped is repaired when it is read again.
/// * Handoff: its sender waits for answers, so a few chunks.
const BOUNDS: [(usize, usize); Lane::ALL.len()] =
    [(64, 64 << 10), (node::shard::WORK_MAX, 32 << 20), (256, 8 << 20), (1024, 8 << 20), (1024, 8 << 20)];

/// What a message is counted for beside its keys and values: fields, and its place in the queue.
const MESSAGE_BYTES: usize = 256;

/// What a name is counted for beside its bytes.
const NAME_BYTES: usize = 48;

/// Messages of this weight and above hold values that a budget of the node counts; only smaller ones take room here.
const COUNTED_ELSEWHERE: usize = 256 << 10;

/// Room for the small messages of all links of a shard: nodes that take nothing hold it, and nothing else bounds how
/// many they are.
#[derive(Debug)]
pub(super) struct Room {
    used: Cell<usize>,
    max: usize,
}

impl Room {
    /// Room for so many bytes.
    pub(super) fn new(max: usize) -> Rc<Room> {
        Rc::new(Room { used: Cell::new(0), max })
    }
}

/// A message that waits.
#[derive(Debug, PartialEq)]
pub(super) struct Waiting {
    /// Whose it is.
    pub(super) from: ShardId,
    pub(super) message: PeerMessage,
    /// Since when.
    pub(super) since: Monotonic,
}

/// Messages for one node.
pub(super) struct Queue {
    lanes: [LaneQueue; Lane::ALL.len()],
    room: Rc<Room>,
}

#[derive(Default)]
struct LaneQueue {
    messages: VecDeque<Waiting>,
    bytes: usize,
}

impl Queue {
    /// Empty, with a part in the room that links share.
    pub(super) fn new(room: Rc<Room>) -> Queue {
        Queue { lanes: Default::default(), room }
    }

    /// Appends a message to its lane, or gives it back if that is full. An empty lane takes any message.
    #[must_use]
    pub(super) fn push(&mut self, waiting: Waiting) -> Option<PeerMessage> {
        let lane = waiting.message.lane() as usize;
        let (messages_max, bytes_max) = BOUNDS[lane];
        let lane = &mut self.lanes[lane];
        let bytes = weight(&waiting.message);
        let used = self.room.used.get() + counted(bytes);
        let fits = lane.messages.len() < messages_max
            && lane.bytes + bytes <= bytes_max
            && (used <= self.room.max || counted(bytes) == 0);
        if !fits && !lane.messages.is_empty() {
            return Some(waiting.message);
        }
        self.room.used.set(used);
        lane.bytes += bytes;
        lane.messages.push_back(waiting);
        None
    }

    /// The first message of the most urgent lane that has one.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let lane = self.lanes.iter_mut().find(|lane| !lane.messages.is_empty())?;
        let waiting = lane.messages.pop_front()?;
        let bytes = weight(&waiting.message);
        lane.bytes -= bytes;
        self.room.used.set(self.room.used.get() - counted(bytes));
        Some(waiting)
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.messages.is_empty())
    }
}

/// What a message of this weight takes of the room.
fn counted(weight: usize) -> usize {
    if weight < COUNTED_ELSEWHERE { weight } else { 0 }
}

/// The memory that a message holds, about.
fn weight(message: &PeerMessage) -> usize {
    let held = match message {
        PeerMessage::Ask { key, ask, .. } => key.len() + weight_of_ask(ask),
        PeerMessage::Answer { result: Ok(Answer::Read(Some(stored))), .. } => {
            stored.head.len() + stored.value.as_ref().map_or(0, |value| value.len())
        }
        PeerMessage::Membership { bytes } => bytes.len(),
        PeerMessage::AskPage { ask, .. } => 2 * ask.partitions.len(),
        PeerMessage::Page { page: Ok(page), .. } => {
            let names = page.names.iter().map(|name| NAME_BYTES + name.len()).sum::<usize>();
            names + page.sum.as_ref().map_or(0, Sum::bytes)
        }
        PeerMessage::AskRows { ask, .. } => 8 * ask.prefixes.words().len(),
        PeerMessage::Rows { page: Ok(page), .. } => 2 * NAME_BYTES * page.rows.len() + page.rows.bytes(),
        PeerMessage::Forward { request, .. } => match &**request {
            Request::Put(put) => put.value.len(),
            _ => 0,
        },
        PeerMessage::Forwarded { result, .. } => match &**result {
            Ok(Response::Found(found) | Response::Put { object: Some(found), .. }) => weight_of_found(found),
            _ => 0,
        },
        _ => 0,
    };
    MESSAGE_BYTES + held
}

fn weight_of_ask(ask: &Ask) -> usize {
    match ask {
        Ask::Merge { head, value, .. } => head.len() + value.len(),
        Ask::Reap { tombstone, .. } => tombstone.len(),
        Ask::Read { .. } => 0,
    }
}

fn weight_of_found(found: &Found) -> usize {
    found.head.len() + found.value.as_ref().map_or(0, |value| value.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use kv::replica::Reason;
    use node::{AskId, Load};

    fn merge(id: u64, bytes: usize, reason: Reason) -> PeerMessage {
        let value = Bytes::from(vec![0; bytes]);
        let ask = Ask::Merge { head: Bytes::new(), value, hints: Vec::new(), reason };
        PeerMessage::Ask { id: AskId(id), ttl_ms: 1, life: 0, key: Bytes::new(), ask }
    }

    fn push(queue: &mut Queue, message: PeerMessage) -> Option<PeerMessage> {
        queue.push(Waiting { from: ShardId(0), message, since: Monotonic(0) })
    }

    fn ping(id: u64) -> PeerMessage {
        PeerMessage::Ping { id: AskId(id), life: 0, load: Load(0), props: None, promise: None }
    }

    #[test]
    fn urgent_lanes_go_first_and_each_keeps_its_order() {
        let mut queue = Queue::new(Room::new(usize::MAX));
        let late = [
            merge(1, 0, Reason::Handoff),
            merge(2, 0, Reason::Repair),
            merge(3, 0, Reason::Write),
            merge(4, 0, Reason::Write),
            ping(5),
        ];
        for message in &late {
            assert_eq!(push(&mut queue, message.clone()), None);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|waiting| waiting.message).collect();
        assert_eq!(order, [4, 2, 3, 1, 0].map(|at: usize| late[at].clone()));
        assert!(queue.is_empty() && queue.lanes.iter().all(|lane| lane.bytes == 0));
    }

    #[test]
    fn a_full_lane_gives_messages_back_and_leaves_the_others_their_room() {
        let mut queue = Queue::new(Room::new(usize::MAX));
        let (_, bytes_max) = BOUNDS[Lane::Handoff as usize];
        let (_, too_large) = BOUNDS[Lane::Repair as usize];
        assert_eq!(push(&mut queue, merge(0, too_large * 2, Reason::Repair)), None);
        assert!(push(&mut queue, merge(1, 0, Reason::Repair)).is_some(), "only an empty lane takes any size");
        for id in 0..4 {
            assert_eq!(push(&mut queue, merge(id, bytes_max / 4 - MESSAGE_BYTES, Reason::Handoff)), None);
        }
        let refused = merge(9, 0, Reason::Handoff);
        assert_eq!(push(&mut queue, refused.clone()), Some(refused));
        let (pings_max, _) = BOUNDS[Lane::Liveness as usize];
        let taken = (0..1000).filter(|&id| push(&mut queue, ping(id)).is_none()).count();
        assert_eq!(taken, pings_max);
        assert_eq!(push(&mut queue, merge(7, 0, Reason::Write)), None);
    }

    #[test]
    fn links_share_the_room_for_small_messages() {
        let room = Room::new(10 << 10);
        let (mut one, mut other) = (Queue::new(Rc::clone(&room)), Queue::new(room));
        let taken =
            (0..100).filter(|&id| push(&mut one, merge(id, 1 << 10, Reason::Write)).is_none()).count();
        assert!((5..10).contains(&taken), "{taken}");
        assert_eq!(push(&mut other, merge(0, 1 << 10, Reason::Write)), None, "an empty lane takes one");
        assert!(push(&mut other, merge(1, 1 << 10, Reason::Write)).is_some());
        assert_eq!(push(&mut other, merge(2, COUNTED_ELSEWHERE, Reason::Write)), None);
        while one.pop().is_some() {}
        assert_eq!(push(&mut other, merge(1, 1 << 10, Reason::Write)), None);
        while other.pop().is_some() {}
        assert_eq!(other.room.used.get(), 0);
    }
}
