//! Messages between the voters of a group: `docs/formats/strong.md`.
//!
//! The frame around a message has its checksum, its sender and its group. The consensus library's own encoding is not
//! used: bytes of a peer are read here, within bounds, and only then become a message of the library.
//!
//! Invariants: no input makes [`Message::read`] panic, or take memory that the bytes do not back; a message that was
//! read follows the rules that can be checked without the receiver's log. `guard.rs` checks the others.

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_varint};
use raft::eraftpb::{self, MessageType};
use ring::NodeId;

use super::configuration::Configuration;
use super::entry::{Entry, Payload, number};

/// The version of the encoding that is written for messages without the number of a promise.
pub const MESSAGE_VERSION: u8 = 1;

/// The version of answers to a leader that carry the number of a promise behind the fields of version 1.
pub const PROMISED_VERSION: u8 = 2;

/// Kinds that an envelope tells apart by the second byte of a message.
pub(crate) mod kind {
    pub(crate) const APPEND: u8 = 0;
    pub(crate) const APPEND_REPLY: u8 = 1;
    pub(crate) const HEARTBEAT: u8 = 2;
    pub(crate) const SNAPSHOT: u8 = 9;

    /// The kind of an encoded message.
    pub(crate) fn of(message: &[u8]) -> Option<u8> {
        message.get(1).copied()
    }
}

/// Room for all fields of most messages but entries.
const FIELDS_BYTES: usize = 40;

/// The library's mark of a vote request that a leader asked for.
const TRANSFER: &[u8] = b"CampaignTransfer";

/// A message from one voter to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A leader's entries.
    Append {
        /// The leader's term.
        term: u64,
        /// Index and term of the entry before the first one.
        previous: (u64, u64),
        /// The last committed entry.
        commit: u64,
        /// The last committed entry that the receiver has acknowledged, as far as the leader knows.
        acknowledged: u64,
        /// Entries, each the successor of the one before.
        entries: Vec<Entry>,
    },
    /// A voter has the entries of an append, or cannot take them.
    AppendReply {
        /// The sender's term.
        term: u64,
        /// The last entry that it has, or the one that it was asked to append to.
        index: u64,
        /// The last entry that it knows to be committed.
        commit: u64,
        /// For a rejection: index and term of an entry from which on to try.
        rejected: Option<(u64, u64)>,
    },
    /// A leader's sign of life.
    Heartbeat {
        /// The leader's term.
        term: u64,
        /// The last committed entry that the receiver has acknowledged, as far as the leader knows.
        commit: u64,
        /// The read that the answer confirms; zero for none.
        context: u64,
    },
    /// The answer to a heartbeat.
    HeartbeatReply {
        /// The sender's term.
        term: u64,
        /// The last entry that it knows to be committed.
        commit: u64,
        /// The heartbeat's.
        context: u64,
    },
    /// A candidate asks for a vote.
    VoteRequest {
        /// The term that it wants to lead.
        term: u64,
        /// Index and term of its last entry.
        last: (u64, u64),
        /// Index and term of the last entry that it knows to be committed.
        commit: (u64, u64),
        /// It only asks whether it would get the vote.
        is_pre: bool,
        /// The leader asked it to.
        is_transfer: bool,
    },
    /// The answer to a vote request.
    VoteReply {
        /// The term of a granted request, or the sender's.
        term: u64,
        /// Index and term of the last committed entry, for a candidate that is refused; zeros otherwise.
        commit: (u64, u64),
        /// It answers a question whether the candidate would get the vote.
        is_pre: bool,
        /// The vote was refused.
        is_rejected: bool,
    },
    /// The leader wants the receiver to lead.
    TimeoutNow {
        /// The leader's term.
        term: u64,
    },
    /// The leader does not hear a majority: others are to stand for election.
    Resigned {
        /// The leader's term.
        term: u64,
    },
    /// All entries up to an index: the receiver's store has their effect, so there is no data.
    Snapshot {
        /// The leader's term.
        term: u64,
        /// Index and term of the last entry.
        last: (u64, u64),
        /// The index through which the sender's tombstones may be reaped.
        reaped: u64,
        /// Voters and learners as of that entry.
        configuration: Configuration,
    },
    /// The sender's store has dropped the group's keys, and wants them anew.
    Incomplete {
        /// The leader's term.
        term: u64,
    },
    /// A follower asks for the index of a read. It had accepted no later term when it asked.
    ReadQuestion {
        /// The term of the leader that it asks, and its own.
        term: u64,
        /// The read.
        context: u64,
    },
    /// The answer to a read question.
    ReadReply {
        /// The question's.
        term: u64,
        /// The question's.
        context: u64,
        /// The entry that is to be applied before the read is served; zero if the read was not confirmed.
        index: u64,
    },
    /// The sender does not vote: it, or the leader that it follows, has a promise. To that leader it is the question
    /// whether it leads that term yet.
    Refused {
        /// The leader's term.
        term: u64,
        /// The node of the leader; the sender's own if it has just started.
        node: NodeId,
        /// The life of the leader's process.
        life: u64,
        /// Milliseconds for which the promise stands, if it is not renewed.
        left_ms: u64,
    },
    /// This voter lost entries that it had acknowledged, and never takes part again under this birth.
    Forgot,
}

impl Message {
    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = self.room();
        out.put_u8(MESSAGE_VERSION);
        self.put(&mut out);
        out.freeze()
    }

    /// An empty buffer for its bytes.
    fn room(&self) -> BytesMut {
        let entries = match self {
            Message::Append { entries, .. } => entries.iter().map(Entry::size).sum(),
            _ => 0,
        };
        BytesMut::with_capacity(FIELDS_BYTES + entries)
    }

    /// Its bytes, with the number of the sender's promise to the leader that it answers.
    pub fn encode_promised(&self, number: Option<u64>) -> Bytes {
        let Some(number) = number else { return self.encode() };
        let mut out = self.room();
        out.put_u8(PROMISED_VERSION);
        self.put(&mut out);
        put_varint(&mut out, number);
        out.freeze()
    }

    fn put(&self, out: &mut BytesMut) {
        let mut head = |kind: u8, numbers: &[u64]| {
            out.put_u8(kind);
            numbers.iter().for_each(|number| put_varint(out, *number));
        };
        match self {
            Message::Append { term, previous, commit, acknowledged, entries } => {
                head(
                    kind::APPEND,
                    &[*term, previous.0, previous.1, *commit, *acknowledged, entries.len() as u64],
                );
                entries.iter().for_each(|entry| put_entry(out, entry));
            }
            Message::AppendReply { term, index, commit, rejected } => {
                let (hint, hint_term) = rejected.unwrap_or_default();
                head(kind::APPEND_REPLY, &[*term, *index, *commit, hint, hint_term]);
                out.put_u8(rejected.is_some().into());
            }
            Message::Heartbeat { term, commit, context } => {
                head(kind::HEARTBEAT, &[*term, *commit, *context])
            }
            Message::HeartbeatReply { term, commit, context } => head(3, &[*term, *commit, *context]),
            Message::VoteRequest { term, last, commit, is_pre, is_transfer } => {
                head(4, &[*term, last.0, last.1, commit.0, commit.1]);
                out.put_u8(u8::from(*is_pre) | u8::from(*is_transfer) << 1);
            }
            Message::VoteReply { term, commit, is_pre, is_rejected } => {
                head(5, &[*term, commit.0, commit.1]);
                out.put_u8(u8::from(*is_pre) | u8::from(*is_rejected) << 1);
            }
            Message::TimeoutNow { term } => head(6, &[*term]),
            Message::Forgot => head(7, &[]),
            Message::Resigned { term } => head(8, &[*term]),
            Message::Snapshot { term, last, reaped, configuration } => {
                head(kind::SNAPSHOT, &[*term, last.0, last.1, *reaped]);
                configuration.put(out);
            }
            Message::Incomplete { term } => head(10, &[*term]),
            Message::ReadQuestion { term, context } => head(11, &[*term, *context]),
            Message::ReadReply { term, context, index } => head(12, &[*term, *context, *index]),
            Message::Refused { term, node, life, left_ms } => {
                head(13, &[*term, node.0.into(), *life, *left_ms]);
            }
        }
    }

    /// The message in bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(bytes: Bytes) -> Result<Message, Malformed> {
        Message::read_promised(bytes).map(|(message, _)| message)
    }

    /// The message in bytes, and the number of the promise of an answer.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read_promised(bytes: Bytes) -> Result<(Message, Option<u64>), Malformed> {
        let mut fields = Reader::new(bytes);
        let fields = &mut fields;
        let version = fields.u8()?;
        if version != MESSAGE_VERSION && version != PROMISED_VERSION {
            return Err(Malformed("an unknown version of a message"));
        }
        let message = Message::read_kind(fields)?;
        let number = (version == PROMISED_VERSION).then(|| fields.varint()).transpose()?;
        fields.end()?;
        let is_answer = matches!(message, Message::AppendReply { .. } | Message::HeartbeatReply { .. });
        if number.is_some_and(|number| number == 0 || !is_answer) {
            return Err(Malformed("a promise where none belongs"));
        }
        Ok((message, number))
    }

    /// The message behind its version.
    fn read_kind(fields: &mut Reader) -> Result<Message, Malformed> {
        let message = match fields.u8()? {
            kind::APPEND => read_append(fields)?,
            kind::APPEND_REPLY => {
                let (term, index, commit) = (term(fields)?, number(fields)?, number(fields)?);
                let hint = (number(fields)?, number(fields)?);
                let rejected = flags(fields, 1)? != 0;
                Message::AppendReply { term, index, commit, rejected: rejected.then_some(hint) }
            }
            kind::HEARTBEAT => {
                let (term, commit, context) = (term(fields)?, number(fields)?, fields.varint()?);
                Message::Heartbeat { term, commit, context }
            }
            3 => {
                let (term, commit, context) = (term(fields)?, number(fields)?, fields.varint()?);
                Message::HeartbeatReply { term, commit, context }
            }
            4 => {
                let (term, last) = (term(fields)?, (number(fields)?, number(fields)?));
                let (commit, flags) = ((number(fields)?, number(fields)?), flags(fields, 3)?);
                let (is_pre, is_transfer) = (flags & 1 != 0, flags & 2 != 0);
                Message::VoteRequest { term, last, commit, is_pre, is_transfer }
            }
            5 => {
                let (term, commit) = (term(fields)?, (number(fields)?, number(fields)?));
                let flags = flags(fields, 3)?;
                let (is_pre, is_rejected) = (flags & 1 != 0, flags & 2 != 0);
                Message::VoteReply { term, commit, is_pre, is_rejected }
            }
            6 => Message::TimeoutNow { term: term(fields)? },
            7 => Message::Forgot,
            8 => Message::Resigned { term: term(fields)? },
            kind::SNAPSHOT => {
                let (term, last) = (term(fields)?, (number(fields)?, number(fields)?));
                if last.0 == 0 || last.1 == 0 || last.1 > term {
                    return Err(Malformed("a snapshot of no entry"));
                }
                let (reaped, configuration) = (number(fields)?, Configuration::read(fields)?);
                Message::Snapshot { term, last, reaped, configuration }
            }
            10 => Message::Incomplete { term: term(fields)? },
            11 => Message::ReadQuestion { term: term(fields)?, context: fields.varint()? },
            12 => {
                let (term, context) = (term(fields)?, fields.varint()?);
                Message::ReadReply { term, context, index: number(fields)? }
            }
            13 => {
                let (term, node) = (term(fields)?, u16::try_from(fields.varint()?));
                let node = NodeId(node.map_err(|_| Malformed("a node out of range"))?);
                Message::Refused { term, node, life: fields.varint()?, left_ms: fields.varint()? }
            }
            _ => return Err(Malformed("an unknown message")),
        };
        Ok(message)
    }

    /// Its term; none for one that has none.
    pub(super) fn term(&self) -> Option<u64> {
        match *self {
            Message::Append { term, .. }
            | Message::AppendReply { term, .. }
            | Message::Heartbeat { term, .. }
            | Message::HeartbeatReply { term, .. }
            | Message::VoteRequest { term, .. }
            | Message::VoteReply { term, .. }
            | Message::TimeoutNow { term }
            | Message::Snapshot { term, .. }
            | Message::Incomplete { term }
            | Message::ReadQuestion { term, .. }
            | Message::ReadReply { term, .. }
            | Message::Refused { term, .. }
            | Message::Resigned { term } => Some(term),
            Message::Forgot => None,
        }
    }

    /// A message of the library; none for one that does not go from voter to voter.
    ///
    /// `acknowledged` is the last committed entry that the receiver has acknowledged.
    pub(super) fn of_library(message: &eraftpb::Message, acknowledged: u64) -> Option<Message> {
        let eraftpb::Message { term, log_term, index, commit, commit_term, reject, reject_hint, .. } =
            *message;
        Some(match message.get_msg_type() {
            MessageType::MsgAppend => {
                let entries = message.get_entries().iter().map(Entry::of_library).collect();
                Message::Append { term, previous: (index, log_term), commit, acknowledged, entries }
            }
            MessageType::MsgAppendResponse => Message::AppendReply {
                term,
                index,
                commit,
                rejected: reject.then_some((reject_hint, log_term)),
            },
            MessageType::MsgHeartbeat => {
                Message::Heartbeat { term, commit, context: context_of(&message.context) }
            }
            MessageType::MsgHeartbeatResponse => {
                Message::HeartbeatReply { term, commit, context: context_of(&message.context) }
            }
            kind @ (MessageType::MsgRequestVote | MessageType::MsgRequestPreVote) => Message::VoteRequest {
                term,
                last: (index, log_term),
                commit: (commit, commit_term),
                is_pre: kind == MessageType::MsgRequestPreVote,
                is_transfer: message.context == TRANSFER,
            },
            kind @ (MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse) => {
                let is_pre = kind == MessageType::MsgRequestPreVoteResponse;
                Message::VoteReply { term, commit: (commit, commit_term), is_pre, is_rejected: reject }
            }
            MessageType::MsgTimeoutNow => Message::TimeoutNow { term },
            MessageType::MsgSnapshot => {
                let snapshot = message.get_snapshot();
                let metadata = snapshot.get_metadata();
                let (last, reaped) = ((metadata.index, metadata.term), context_of(&snapshot.data));
                let configuration = Configuration::of_conf_state(metadata.get_conf_state())?;
                Message::Snapshot { term, last, reaped, configuration }
            }
            _ => return None,
        })
    }

    /// As the library has it; none for one that is not the library's.
    pub(super) fn to_library(&self) -> Option<eraftpb::Message> {
        let term = self.term()?;
        let mut message = eraftpb::Message::default();
        match self {
            Message::Append { previous, commit, entries, .. } => {
                message.set_msg_type(MessageType::MsgAppend);
                (message.index, message.log_term, message.commit) = (previous.0, previous.1, *commit);
                let entries: Vec<_> = entries.iter().map(Entry::to_library).collect();
                message.set_entries(entries.into());
            }
            Message::AppendReply { index, commit, rejected, .. } => {
                message.set_msg_type(MessageType::MsgAppendResponse);
                (message.index, message.commit, message.reject) = (*index, *commit, rejected.is_some());
                (message.reject_hint, message.log_term) = rejected.unwrap_or_default();
            }
            Message::Heartbeat { commit, context, .. } => {
                message.set_msg_type(MessageType::MsgHeartbeat);
                (message.commit, message.context) = (*commit, context_bytes(*context).into());
            }
            Message::HeartbeatReply { commit, context, .. } => {
                message.set_msg_type(MessageType::MsgHeartbeatResponse);
                (message.commit, message.context) = (*commit, context_bytes(*context).into());
            }
            Message::VoteRequest { last, commit, is_pre, is_transfer, .. } => {
                let kinds = [MessageType::MsgRequestVote, MessageType::MsgRequestPreVote];
                message.set_msg_type(kinds[usize::from(*is_pre)]);
                (message.index, message.log_term) = *last;
                (message.commit, message.commit_term) = *commit;
                if *is_transfer {
                    message.context = Bytes::from_static(TRANSFER);
                }
            }
            Message::VoteReply { commit, is_pre, is_rejected, .. } => {
                let kinds = [MessageType::MsgRequestVoteResponse, MessageType::MsgRequestPreVoteResponse];
                message.set_msg_type(kinds[usize::from(*is_pre)]);
                (message.commit, message.commit_term) = *commit;
                message.reject = *is_rejected;
            }
            Message::TimeoutNow { .. } => message.set_msg_type(MessageType::MsgTimeoutNow),
            Message::Snapshot { last, reaped, configuration, .. } => {
                message.set_msg_type(MessageType::MsgSnapshot);
                let snapshot = message.mut_snapshot();
                snapshot.data = reaped.to_le_bytes().to_vec().into();
                let metadata = snapshot.mut_metadata();
                (metadata.index, metadata.term) = *last;
                metadata.set_conf_state(configuration.conf_state());
            }
            Message::Resigned { .. }
            | Message::Incomplete { .. }
            | Message::ReadQuestion { .. }
            | Message::ReadReply { .. }
            | Message::Refused { .. }
            | Message::Forgot => return None,
        }
        message.term = term;
        Some(message)
    }
}

/// The library's bytes of a read's context; none for zero.
pub(super) fn context_bytes(context: u64) -> Vec<u8> {
    if context == 0 { Vec::new() } else { context.to_le_bytes().to_vec() }
}

/// The context in the library's bytes; zero if there is none.
pub(super) fn context_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Reads a term; the library takes a message of term zero to be its own.
fn term(fields: &mut Reader) -> Result<u64, Malformed> {
    match number(fields)? {
        0 => Err(Malformed("a message of no term")),
        term => Ok(term),
    }
}

/// Reads flags up to a mask.
fn flags(fields: &mut Reader, mask: u8) -> Result<u8, Malformed> {
    match fields.u8()? {
        flags if flags & !mask == 0 => Ok(flags),
        _ => Err(Malformed("an unknown flag")),
    }
}

/// An entry of an append: its index is that of its place.
fn put_entry(out: &mut BytesMut, entry: &Entry) {
    put_varint(out, entry.term);
    entry.payload.put_with_len(out);
}

fn read_append(fields: &mut Reader) -> Result<Message, Malformed> {
    let (term, previous) = (term(fields)?, (number(fields)?, number(fields)?));
    let (commit, acknowledged, count) = (number(fields)?, number(fields)?, fields.count()?);
    // The library says term 0 of an entry that it does not have, and would take that for agreement.
    if previous.0 == 0 || previous.1 == 0 || previous.1 > term {
        return Err(Malformed("entries behind no entry"));
    }
    let mut entries = Vec::new();
    let (mut index, mut entry_term) = previous;
    for _ in 0..count {
        index += 1;
        let next_term = number(fields)?;
        let data = fields.bytes()?;
        if next_term < entry_term || next_term > term || index >= super::entry::NUMBER_MAX {
            return Err(Malformed("entries that do not follow"));
        }
        entry_term = next_term;
        entries.push(Entry { index, term: entry_term, payload: Payload::read(data)? });
    }
    Ok(Message::Append { term, previous, commit, acknowledged, entries })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::group::VoterId;
    use crate::group::entry::{NUMBER_MAX, Write};

    fn entries() -> Vec<Entry> {
        let write = |object| Payload::Write(Write { key: Bytes::from_static(b"key"), object });
        vec![
            Entry { index: 7, term: 3, payload: Payload::First },
            Entry { index: 8, term: 3, payload: write(Some(Bytes::from_static(b"value"))) },
            Entry { index: 9, term: 4, payload: write(None) },
            Entry { index: 10, term: 4, payload: Payload::Reap { through: 8 } },
            Entry { index: 11, term: 4, payload: Payload::Configuration(configuration()) },
        ]
    }

    fn configuration() -> Configuration {
        Configuration::of_voters(
            [0x1_0000_0000_0007, 0x2_0000_0000_0008].map(|it| VoterId::of_number(it).unwrap()),
        )
    }

    fn messages() -> Vec<Message> {
        vec![
            Message::Append { term: 4, previous: (6, 3), commit: 5, acknowledged: 2, entries: entries() },
            Message::AppendReply { term: 4, index: 9, commit: 5, rejected: None },
            Message::AppendReply { term: 4, index: 9, commit: 5, rejected: Some((6, 3)) },
            Message::Heartbeat { term: 4, commit: 5, context: 0 },
            Message::HeartbeatReply { term: 4, commit: 5, context: 300 },
            Message::VoteRequest { term: 4, last: (9, 3), commit: (5, 2), is_pre: true, is_transfer: false },
            Message::VoteRequest { term: 4, last: (9, 3), commit: (5, 2), is_pre: false, is_transfer: true },
            Message::VoteReply { term: 4, commit: (0, 0), is_pre: false, is_rejected: false },
            Message::VoteReply { term: 4, commit: (5, 2), is_pre: true, is_rejected: true },
            Message::TimeoutNow { term: 4 },
            Message::Forgot,
            Message::Resigned { term: 4 },
            Message::Snapshot { term: 4, last: (9, 3), reaped: 7, configuration: configuration() },
            Message::Incomplete { term: 4 },
            Message::ReadQuestion { term: 4, context: 300 },
            Message::ReadReply { term: 4, context: 300, index: 9 },
            Message::Refused { term: 4, node: NodeId(300), life: 5, left_ms: 600 },
        ]
    }

    #[test]
    fn golden_bytes() {
        let expected: [&[u8]; 17] = [
            b"\x01\0\x04\x06\x03\x05\x02\x05\x03\0\x03\x0A\x01\x03keyvalue\x04\x04\0key\x04\x02\x02\x08\x04\x14\x03\x02\x07\0\0\0\0\0\x01\0\x08\0\0\0\0\0\x02\0\0\0",
            b"\x01\x01\x04\x09\x05\0\0\0",
            b"\x01\x01\x04\x09\x05\x06\x03\x01",
            b"\x01\x02\x04\x05\0",
            b"\x01\x03\x04\x05\xAC\x02",
            b"\x01\x04\x04\x09\x03\x05\x02\x01",
            b"\x01\x04\x04\x09\x03\x05\x02\x02",
            b"\x01\x05\x04\0\0\0",
            b"\x01\x05\x04\x05\x02\x03",
            b"\x01\x06\x04",
            b"\x01\x07",
            b"\x01\x08\x04",
            b"\x01\x09\x04\x09\x03\x07\x02\x07\0\0\0\0\0\x01\0\x08\0\0\0\0\0\x02\0\0\0",
            b"\x01\x0A\x04",
            b"\x01\x0B\x04\xAC\x02",
            b"\x01\x0C\x04\xAC\x02\x09",
            b"\x01\x0D\x04\xAC\x02\x05\xD8\x04",
        ];
        for (message, expected) in messages().into_iter().zip(expected) {
            assert_eq!(message.encode(), expected, "{message:?}");
        }
    }

    #[test]
    fn encoded_messages_are_read() {
        for message in messages() {
            let bytes = message.encode();
            for length in 0..bytes.len() {
                assert!(Message::read(bytes.slice(..length)).is_err(), "{message:?} of {length} bytes");
            }
            assert_eq!(Message::read(bytes), Ok(message));
        }
    }

    #[test]
    fn answers_carry_a_promise() {
        let answers = [
            Message::AppendReply { term: 4, index: 9, commit: 5, rejected: None },
            Message::HeartbeatReply { term: 4, commit: 5, context: 0 },
        ];
        let expected: [&[u8]; 2] = [b"\x02\x01\x04\x09\x05\0\0\0\xAC\x02", b"\x02\x03\x04\x05\0\xAC\x02"];
        for (message, expected) in answers.into_iter().zip(expected) {
            assert_eq!(message.encode_promised(None), message.encode());
            let bytes = message.encode_promised(Some(300));
            assert_eq!(bytes, expected);
            assert!(Message::read_promised(bytes.slice(..bytes.len() - 2)).is_err(), "no number");
            assert_eq!(Message::read(bytes.clone()).as_ref(), Ok(&message));
            assert_eq!(Message::read_promised(bytes), Ok((message, Some(300))));
        }
        for bytes in [&b"\x02\x03\x04\x05\0\0"[..], b"\x02\x02\x04\x05\0\x01"] {
            assert!(Message::read(Bytes::from_static(bytes)).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn the_library_keeps_all_that_a_message_has() {
        for message in messages() {
            let is_ours = matches!(
                message,
                Message::Forgot
                    | Message::Resigned { .. }
                    | Message::Incomplete { .. }
                    | Message::ReadQuestion { .. }
                    | Message::ReadReply { .. }
                    | Message::Refused { .. }
            );
            let library = message.to_library();
            assert_eq!(library.is_none(), is_ours);
            if let Some(library) = library {
                assert_eq!(Message::of_library(&library, 2), Some(message));
            }
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let append = |term, previous, entries: &[Entry]| Message::Append {
            term,
            previous,
            commit: 0,
            acknowledged: 0,
            entries: entries.to_vec(),
        };
        let entries = entries();
        let snapshot = |last| Message::Snapshot { term: 4, last, reaped: 0, configuration: configuration() };
        let refused = [
            (append(0, (6, 3), &[]), "a message of no term"),
            (append(NUMBER_MAX, (6, 3), &[]), "a term or an index is out of range"),
            (append(4, (0, 0), &entries), "entries behind no entry"),
            (append(4, (6, 0), &entries), "entries behind no entry"),
            (append(4, (6, 5), &[]), "entries behind no entry"),
            (append(3, (6, 3), &entries), "entries that do not follow"),
            (append(4, (6, 4), &entries), "entries that do not follow"),
            (append(4, (NUMBER_MAX - 1, 3), &entries), "entries that do not follow"),
            (snapshot((0, 3)), "a snapshot of no entry"),
            (snapshot((9, 0)), "a snapshot of no entry"),
            (snapshot((9, 5)), "a snapshot of no entry"),
        ];
        for (message, error) in refused {
            assert_eq!(Message::read(message.encode()), Err(Malformed(error)), "{message:?}");
        }
    }

    proptest! {
        #[test]
        fn changed_bytes_make_no_panic(at in 0_usize..17, changes: Vec<(u16, u8)>) {
            let mut bytes = messages()[at].encode().to_vec();
            for (place, value) in changes {
                let place = usize::from(place) % bytes.len();
                bytes[place] = value;
            }
            if let Ok(message) = Message::read(bytes.into()) {
                prop_assert_eq!(Message::read(message.encode()), Ok(message));
            }
        }

        #[test]
        fn random_bytes_make_no_panic(mut bytes: Vec<u8>) {
            if let Some(version) = bytes.first_mut() {
                *version = MESSAGE_VERSION;
            }
            drop(Message::read(bytes.into()));
        }
    }
}
