//! Messages that wait until the writes that they speak of are synced.
//!
//! The library numbers its writes. A message of a voter that does not lead waits until all writes up to its
//! number are synced; a leader's leaves at once, before its own sync.
//!
//! Invariant: messages leave in the order of their numbers.

use std::collections::VecDeque;

use raft::eraftpb;

/// Messages behind writes.
#[derive(Default)]
pub(super) struct Outbox {
    /// Numbers of writes that are not synced yet.
    writes: VecDeque<u64>,
    /// Messages by number, not empty.
    held: VecDeque<(u64, Vec<eraftpb::Message>)>,
    /// The last number.
    last: u64,
}

impl Outbox {
    /// Whether a write is not synced yet.
    pub(super) fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Takes the messages of a number; gives those that may leave at once.
    pub(super) fn hold(
        &mut self,
        number: u64,
        has_write: bool,
        messages: Vec<eraftpb::Message>,
    ) -> Vec<eraftpb::Message> {
        assert!(number > self.last, "numbers grow");
        self.last = number;
        if has_write {
            self.writes.push_back(number);
        }
        if self.writes.is_empty() || base::planted!(EntryAckedBeforeSync) {
            return messages;
        }
        if !messages.is_empty() {
            self.held.push_back((number, messages));
        }
        Vec::new()
    }

    /// Notes that all writes up to a number are synced; gives the messages that may leave.
    pub(super) fn on_synced(&mut self, number: u64) -> Vec<eraftpb::Message> {
        while self.writes.front().is_some_and(|write| *write <= number) {
            self.writes.pop_front();
        }
        let through = self.synced();
        let mut released = Vec::new();
        while self.held.front().is_some_and(|(number, _)| *number <= through) {
            released.extend(self.held.pop_front().into_iter().flat_map(|(_, messages)| messages));
        }
        released
    }

    /// The last number.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The last number up to which all writes are synced.
    pub(super) fn synced(&self) -> u64 {
        self.writes.front().map_or(self.last, |first| first - 1)
    }

    pub(super) fn invariants(&self) {
        debug_assert!(self.writes.iter().is_sorted(), "writes are numbered in order");
        debug_assert!(
            self.held.front().is_none_or(|(number, _)| *number > self.synced()),
            "no message waits for a write that is synced"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(index: u64) -> Vec<eraftpb::Message> {
        let mut message = eraftpb::Message::default();
        (message.index, message.term) = (index, 1);
        vec![message]
    }

    fn indexes(messages: Vec<eraftpb::Message>) -> Vec<u64> {
        messages.iter().map(|message| message.index).collect()
    }

    #[test]
    fn messages_leave_in_order_behind_their_writes() {
        let mut outbox = Outbox::default();
        assert_eq!(indexes(outbox.hold(1, false, message(10))), [10], "nothing is to be synced");
        assert_eq!(indexes(outbox.hold(2, true, message(20))), []);
        assert_eq!(indexes(outbox.hold(3, false, message(30))), [], "behind the write of the one before");
        assert_eq!(indexes(outbox.hold(4, true, message(40))), []);
        assert_eq!((outbox.synced(), outbox.has_writes()), (1, true));
        assert_eq!(indexes(outbox.on_synced(2)), [20, 30]);
        assert_eq!(outbox.synced(), 3);
        assert_eq!(indexes(outbox.on_synced(2)), [], "told twice");
        assert_eq!(indexes(outbox.on_synced(4)), [40]);
        assert_eq!((outbox.synced(), outbox.has_writes()), (4, false));
    }
}
