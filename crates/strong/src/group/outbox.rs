//! Messages that wait until what they say is durable.
//!
//! The library numbers what it wants written. A message of a voter that does not lead waits until all writes up to its
//! number are synced; a leader's leaves at once, before its own sync.
//!
//! Invariant: messages leave in the order of their numbers.

use std::collections::VecDeque;

use raft::eraftpb;
use raft::eraftpb::MessageType;

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
        mut messages: Vec<eraftpb::Message>,
    ) -> Vec<eraftpb::Message> {
        assert!(number > self.last, "numbers grow");
        self.last = number;
        if has_write {
            self.writes.push_back(number);
        }
        if self.writes.is_empty() {
            return messages;
        }

        let mut released = Vec::new();
        if base::planted!(EntryAckedBeforeSync) {
            let is_ack =
                |message: &eraftpb::Message| message.get_msg_type() == MessageType::MsgAppendResponse;
            (released, messages) = messages.into_iter().partition(is_ack);
        }
        if !messages.is_empty() {
            self.held.push_back((number, messages));
        }
        released
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
