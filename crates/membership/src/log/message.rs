//! Messages between logs: `docs/formats/membership.md`. Checksums and encryption are the link's.
//!
//! Invariant: no input makes [`Message::read`] panic or take memory that the bytes do not back.

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader};
use raft::eraftpb;
use ring::NodeId;

use super::entry::{Entry, Epoch, Snapshot, entries, number, put_entries};
use super::library;
use super::refusal::Refusal;
use crate::ClusterId;
use crate::state::{Command, POLICY_BYTES_MAX, POLICY_CHANGES_BYTES_MAX, Rejected, SLOT_BYTES_MAX};

/// The format written, and the only one read.
pub const VERSION: u8 = 2;

/// A message's bytes, at most: the largest state fits (1,000 members, 65,536 owners, the slots of 10,000 buckets, and a
/// full security policy).
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Entries of one message of news, at most; who lacks more asks again.
pub(super) const ENTRIES_MAX: usize = 64;

const _: () = {
    // Slots of 10,000 buckets, a policy with its keys, and all else.
    let state = 10_000 * SLOT_BYTES_MAX + 2 * POLICY_BYTES_MAX + (8 << 20);
    assert!(state < MESSAGE_BYTES_MAX, "a snapshot fits");
    // Each change has a length and an option in front; most are longer than that.
    assert!(2 * ENTRIES_MAX * POLICY_CHANGES_BYTES_MAX < MESSAGE_BYTES_MAX, "news of large commands fits");
};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its history.
    pub epoch: Epoch,
    /// Its node.
    pub from: NodeId,
    /// How often its data folder was started.
    pub starts: u32,
    /// Its process.
    pub start: u64,
}

/// What became of a proposal.
pub type Outcome = Result<(), Failed>;

/// Why a proposal was not carried out, or may not have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// The state does not allow it.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// No leader is known: a majority of the voters cannot be reached.
    #[error("no leader: a majority of the voters cannot be reached")]
    NoLeader,
    /// Too many proposals wait.
    #[error("too many proposals wait")]
    Busy,
    /// Nobody knows: it may have been carried out or not. The version that it expects keeps it from being done twice.
    #[error("not known whether it was carried out: look before trying again")]
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    /// Of the consensus among the voters.
    Consensus(Box<eraftpb::Message>),
    /// To a leader: this voter does not have what it had acknowledged, and must not count.
    Forgot,
    /// What is committed, as a whole.
    Snapshot(Snapshot),
    Have {
        commit: u64,
    },
    Pull {
        commit: u64,
    },
    /// Committed entries.
    News {
        commit: u64,
        entries: Vec<Entry>,
    },
    Propose {
        id: u64,
        command: Command,
    },
    Proposed {
        id: u64,
        outcome: Outcome,
    },
    Refused(Refusal),
}

impl Message {
    pub(super) fn encode(&self, envelope: &Envelope) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        out.put_u64_le(envelope.cluster.0);
        envelope.epoch.put(&mut out);
        out.put_u16_le(envelope.from.0);
        out.put_u32_le(envelope.starts);
        out.put_u64_le(envelope.start);
        self.put(&mut out);
        out.freeze()
    }

    fn put(&self, out: &mut BytesMut) {
        match self {
            Message::Consensus(message) => {
                out.put_u8(1);
                library::put_message(out, message);
            }
            Message::Forgot => out.put_u8(2),
            Message::Snapshot(snapshot) => {
                out.put_u8(5);
                snapshot.put(out);
            }
            Message::Have { commit } => {
                out.put_u8(6);
                out.put_u64_le(*commit);
            }
            Message::Pull { commit } => {
                out.put_u8(7);
                out.put_u64_le(*commit);
            }
            Message::News { commit, entries } => {
                out.put_u8(8);
                out.put_u64_le(*commit);
                put_entries(out, entries);
            }
            Message::Propose { id, command } => {
                out.put_u8(9);
                out.put_u64_le(*id);
                command.encode(out);
            }
            Message::Proposed { id, outcome } => {
                out.put_u8(10);
                out.put_u64_le(*id);
                put_outcome(out, outcome);
            }
            Message::Refused(refusal) => {
                out.put_u8(11);
                refusal.put(out);
            }
        }
    }

    pub(super) fn read(bytes: Bytes) -> Result<(Envelope, Result<Message, u8>), Malformed> {
        let mut fields = Reader::new(bytes);
        let fields = &mut fields;
        let version = fields.u8()?;
        let envelope = Envelope {
            cluster: ClusterId(fields.u64()?),
            epoch: Epoch::read(fields)?,
            from: NodeId(fields.u16()?),
            starts: fields.u32()?,
            start: fields.u64()?,
        };
        let kind = fields.u8()?;
        // Refusals are the same in all versions.
        if version != VERSION && kind != 11 {
            return Ok((envelope, Err(version)));
        }
        let message = match kind {
            1 => Message::Consensus(library::read_message(fields)?.into()),
            2 => Message::Forgot,
            5 => Message::Snapshot(Snapshot::read(fields)?),
            6 => Message::Have { commit: number(fields)? },
            7 => Message::Pull { commit: number(fields)? },
            8 => match (number(fields)?, entries(fields)?) {
                (_, entries) if entries.len() > ENTRIES_MAX => return Err(Malformed("too many entries")),
                (commit, entries) => Message::News { commit, entries },
            },
            9 => Message::Propose { id: fields.u64()?, command: Command::read(fields)? },
            10 => Message::Proposed { id: fields.u64()?, outcome: outcome(fields)? },
            11 => Message::Refused(Refusal::read(fields)?),
            _ => return Err(Malformed("an unknown message")),
        };
        fields.end()?;
        Ok((envelope, Ok(message)))
    }
}

fn put_outcome(out: &mut BytesMut, outcome: &Outcome) {
    let (code, number) = match outcome {
        Ok(()) => (0, 0),
        Err(Failed::NoLeader) => (1, 0),
        Err(Failed::Busy) => (2, 0),
        Err(Failed::Unknown) => (3, 0),
        Err(Failed::Rejected(rejected)) => rejected.code(),
    };
    out.put_u8(code);
    out.put_u32_le(number);
}

fn outcome(fields: &mut Reader) -> Result<Outcome, Malformed> {
    let (code, number) = (fields.u8()?, fields.u32()?);
    Ok(match code {
        0 => Ok(()),
        1 => Err(Failed::NoLeader),
        2 => Err(Failed::Busy),
        3 => Err(Failed::Unknown),
        _ => Err(Failed::Rejected(Rejected::of_code(code, number).ok_or(Malformed("an unknown outcome"))?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;
    use std::collections::BTreeSet;

    use raft::eraftpb::MessageType;

    use crate::log::entry::NUMBER_MAX;
    use crate::log::{Conf, Payload, VoterChange};

    fn envelope() -> Envelope {
        let epoch = Epoch { number: 2, nonce: 3 };
        Envelope { cluster: ClusterId(0xC1), epoch, from: NodeId(4), starts: 5, start: 6 }
    }

    /// A message of the library of every kind, with all that the kind has.
    fn library_messages(entries: &[Entry], snapshot: &Snapshot) -> Vec<Message> {
        let kinds = [
            MessageType::MsgAppend,
            MessageType::MsgAppendResponse,
            MessageType::MsgRequestVote,
            MessageType::MsgRequestVoteResponse,
            MessageType::MsgRequestPreVote,
            MessageType::MsgRequestPreVoteResponse,
            MessageType::MsgHeartbeat,
            MessageType::MsgHeartbeatResponse,
            MessageType::MsgSnapshot,
        ];
        let message = |kind| {
            let mut message = eraftpb::Message::default();
            message.set_msg_type(kind);
            (message.term, message.log_term, message.index) = (4, 3, 6);
            (message.commit, message.commit_term, message.reject_hint, message.reject) = (5, 2, 1, true);
            match kind {
                MessageType::MsgAppend => {
                    message.set_entries(entries.iter().map(library::entry_of).collect());
                }
                MessageType::MsgSnapshot => message.set_snapshot(library::snapshot_of(snapshot)),
                _ => {}
            }
            Message::Consensus(message.into())
        };
        kinds.into_iter().map(message).collect()
    }

    fn messages() -> Vec<Message> {
        let command =
            Command::Slot { name: Bytes::from_static(b"n"), before: None, value: Some(Bytes::new()) };
        let voters = BTreeSet::from([NodeId(1)]);
        let change = Payload::Voters(VoterChange::Vote(NodeId(1)));
        let payloads = [Payload::Nothing, change, Payload::Command(command.clone())];
        let entries: Vec<Entry> =
            (7..).zip(payloads).map(|(index, payload)| Entry { index, term: 3, payload }).collect();
        let conf = Conf { voters, learners: BTreeSet::from([NodeId(2)]) };
        let snapshot = Snapshot { index: 9, term: 2, conf, state: Bytes::from_static(b"state") };
        let epoch = envelope().epoch;
        let mut messages = library_messages(&entries, &snapshot);
        messages.extend([
            Message::Forgot,
            Message::Snapshot(snapshot),
            Message::Have { commit: 8 },
            Message::Pull { commit: 8 },
            Message::News { commit: 9, entries },
            Message::Propose { id: 1, command },
            Message::Proposed { id: 1, outcome: Ok(()) },
            Message::Proposed { id: 2, outcome: Err(Failed::Rejected(Rejected::Restored { starts: 7 })) },
            Message::Refused(Refusal::Fork { ours: epoch, theirs: Epoch::NONE }),
            Message::Refused(Refusal::NotMember { node: NodeId(1), commit: 2 }),
        ]);
        messages
    }

    #[test]
    fn golden_bytes() {
        let bytes = Message::Have { commit: 7 }.encode(&envelope());
        let head = b"\x02\xC1\0\0\0\0\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\x04\0\x05\0\0\0\x06\0\0\0\0\0\0\0";
        assert_eq!(bytes, [&head[..], b"\x06\x07\0\0\0\0\0\0\0"].concat());
        let mut append = eraftpb::Message::default();
        append.set_msg_type(MessageType::MsgAppend);
        (append.term, append.log_term, append.index, append.commit) = (3, 2, 6, 5);
        let payload = Payload::Voters(VoterChange::Remove(NodeId(4)));
        append.set_entries(vec![library::entry_of(&Entry { index: 7, term: 3, payload })].into());
        let bytes = Message::Consensus(append.into()).encode(&envelope());
        let numbers: Vec<u8> = [3_u64, 2, 6, 5, 0, 0].into_iter().flat_map(u64::to_le_bytes).collect();
        let entry = b"\x01\x07\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x01\x02\x04\0";
        assert_eq!(bytes, [&head[..], b"\x01\x00", &numbers, b"\0", entry].concat());
    }

    #[test]
    fn what_is_written_is_read() {
        for message in messages() {
            let bytes = message.encode(&envelope());
            for len in 0..bytes.len() {
                assert!(Message::read(bytes.slice(..len)).is_err(), "{message:?} of {len} bytes");
            }
            assert_eq!(Message::read(bytes), Ok((envelope(), Ok(message))));
        }
    }

    #[test]
    fn terms_and_indexes_out_of_range_are_refused() {
        let out_of_range = Err(Malformed("a term or an index is out of range"));
        let conf = Conf { voters: BTreeSet::from([NodeId(1)]), learners: BTreeSet::new() };
        let snapshot = |index, term| {
            Message::Snapshot(Snapshot { index, term, conf: conf.clone(), state: Bytes::new() })
        };
        let news = |commit, index, term| {
            let entries = vec![Entry { index, term, payload: Payload::Nothing }];
            Message::News { commit, entries }
        };
        for number in [NUMBER_MAX, u64::MAX] {
            let messages = [
                Message::Have { commit: number },
                Message::Pull { commit: number },
                snapshot(number, 1),
                snapshot(1, number),
                news(number, 1, 1),
                news(1, number, 1),
                news(1, 1, number),
            ];
            for message in messages {
                assert_eq!(Message::read(message.encode(&envelope())), out_of_range, "{message:?}");
            }
        }
        let last = NUMBER_MAX - 1;
        assert!(Message::read(news(last, last, last).encode(&envelope())).is_ok());
    }

    #[test]
    fn a_refusal_of_another_version_can_be_read() {
        let refusal = Message::Refused(Refusal::Version { ours: 3, theirs: 2 });
        let mut bytes = refusal.encode(&envelope()).to_vec();
        bytes[0] = 3;
        assert_eq!(Message::read(bytes.into()), Ok((envelope(), Ok(refusal))));
        let mut other = Message::Have { commit: 1 }.encode(&envelope()).to_vec();
        other[0] = 3;
        assert_eq!(Message::read(other.into()), Ok((envelope(), Err(3))));
    }

    #[test]
    fn random_bytes_make_no_panic() {
        let mut rng = SplitMix64::new(8);
        let good: Vec<Bytes> = messages().iter().map(|message| message.encode(&envelope())).collect();
        for _ in 0..50_000 {
            let at = usize::try_from(rng.below(good.len() as u64)).unwrap();
            let mut bad = good[at].to_vec();
            for _ in 0..=rng.below(4) {
                let at = usize::try_from(rng.below(bad.len() as u64)).unwrap();
                bad[at] = u8::try_from(rng.below(256)).unwrap();
            }
            let len = bad.len();
            if let Ok((_, Ok(message))) = Message::read(bad.into()) {
                assert!(message.encode(&envelope()).len() <= 2 * len);
            }
        }
    }
}
