//! What logs send each other: `docs/formats/membership.md`. Checksums and encryption are the link's.
//!
//! Invariant: no input makes [`Message::read`] panic or take memory that the bytes do not back.

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_varint};
use ring::NodeId;

use super::Refusal;
use super::entry::{Entry, Epoch, Snapshot};
use crate::ClusterId;
use crate::state::{Command, Rejected};

/// The format written, and the only one read.
pub const VERSION: u8 = 1;

/// A message's bytes, at most: the largest state fits (1,000 members, 65,536 owners and the slots of 10,000 buckets).
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Entries of one message, at most; what is left follows when these are acknowledged.
pub(super) const ENTRIES_MAX: usize = 64;

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

/// What a leader sends to a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Append {
    pub(super) term: u64,
    /// Comes back in the answer.
    pub(super) round: u64,
    /// The entry before the first of these.
    pub(super) prev_index: u64,
    pub(super) prev_term: u64,
    /// The leader's last committed entry.
    pub(super) commit: u64,
    pub(super) entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Vote {
        pre: bool,
        term: u64,
        last_index: u64,
        last_term: u64,
    },
    Voted {
        pre: bool,
        term: u64,
        granted: bool,
    },
    Append(Append),
    /// `index`: up to where the sender agrees; where it does not, up to where it may.
    Appended {
        term: u64,
        round: u64,
        agreed: bool,
        prev_index: u64,
        index: u64,
    },
    /// From a leader with its term, or to one that asked with term zero.
    Snapshot {
        term: u64,
        round: u64,
        snapshot: Snapshot,
    },
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
            Message::Vote { pre, term, last_index, last_term } => {
                out.put_u8(1);
                out.put_u8((*pre).into());
                [term, last_index, last_term].into_iter().for_each(|number| out.put_u64_le(*number));
            }
            Message::Voted { pre, term, granted } => {
                out.put_u8(2);
                out.put_u8((*pre).into());
                out.put_u64_le(*term);
                out.put_u8((*granted).into());
            }
            Message::Append(Append { term, round, prev_index, prev_term, commit, entries }) => {
                out.put_u8(3);
                [term, round, prev_index, prev_term, commit]
                    .into_iter()
                    .for_each(|number| out.put_u64_le(*number));
                put_entries(out, entries);
            }
            Message::Appended { term, round, agreed, prev_index, index } => {
                out.put_u8(4);
                [term, round, prev_index, index].into_iter().for_each(|number| out.put_u64_le(*number));
                out.put_u8((*agreed).into());
            }
            Message::Snapshot { term, round, snapshot } => {
                out.put_u8(5);
                [term, round].into_iter().for_each(|number| out.put_u64_le(*number));
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
        let flag = |byte: u8| byte != 0;
        let message = match kind {
            1 => Message::Vote {
                pre: flag(fields.u8()?),
                term: fields.u64()?,
                last_index: fields.u64()?,
                last_term: fields.u64()?,
            },
            2 => Message::Voted { pre: flag(fields.u8()?), term: fields.u64()?, granted: flag(fields.u8()?) },
            3 => Message::Append(Append {
                term: fields.u64()?,
                round: fields.u64()?,
                prev_index: fields.u64()?,
                prev_term: fields.u64()?,
                commit: fields.u64()?,
                entries: entries(fields)?,
            }),
            4 => Message::Appended {
                term: fields.u64()?,
                round: fields.u64()?,
                prev_index: fields.u64()?,
                index: fields.u64()?,
                agreed: flag(fields.u8()?),
            },
            5 => Message::Snapshot {
                term: fields.u64()?,
                round: fields.u64()?,
                snapshot: Snapshot::read(fields)?,
            },
            6 => Message::Have { commit: fields.u64()? },
            7 => Message::Pull { commit: fields.u64()? },
            8 => Message::News { commit: fields.u64()?, entries: entries(fields)? },
            9 => Message::Propose { id: fields.u64()?, command: Command::read(fields)? },
            10 => Message::Proposed { id: fields.u64()?, outcome: outcome(fields)? },
            11 => Message::Refused(Refusal::read(fields)?),
            _ => return Err(Malformed("an unknown message")),
        };
        fields.end()?;
        Ok((envelope, Ok(message)))
    }
}

fn put_entries(out: &mut BytesMut, entries: &[Entry]) {
    put_varint(out, entries.len() as u64);
    entries.iter().for_each(|entry| entry.put(out));
}

/// Entries, each the successor of the one before.
fn entries(fields: &mut Reader) -> Result<Vec<Entry>, Malformed> {
    let count = fields.count()?;
    if count > ENTRIES_MAX {
        return Err(Malformed("too many entries"));
    }
    let mut entries: Vec<Entry> = Vec::new();
    for _ in 0..count {
        let entry = Entry::read(fields)?;
        if entries
            .last()
            .is_some_and(|last| last.index.checked_add(1) != Some(entry.index) || last.term > entry.term)
        {
            return Err(Malformed("entries out of order"));
        }
        entries.push(entry);
    }
    Ok(entries)
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

    use crate::log::Payload;

    fn envelope() -> Envelope {
        let epoch = Epoch { number: 2, nonce: 3 };
        Envelope { cluster: ClusterId(0xC1), epoch, from: NodeId(4), starts: 5, start: 6 }
    }

    fn messages() -> Vec<Message> {
        let command =
            Command::Slot { name: Bytes::from_static(b"n"), before: None, value: Some(Bytes::new()) };
        let voters = BTreeSet::from([NodeId(1)]);
        let payloads = [Payload::Nothing, Payload::Voters(voters.clone()), Payload::Command(command.clone())];
        let entries: Vec<Entry> =
            (7..).zip(payloads).map(|(index, payload)| Entry { index, term: 3, payload }).collect();
        let snapshot = Snapshot { index: 9, term: 2, voters, state: Bytes::from_static(b"state") };
        let epoch = envelope().epoch;
        vec![
            Message::Vote { pre: true, term: 1, last_index: 2, last_term: 3 },
            Message::Voted { pre: false, term: 4, granted: true },
            Message::Append(Append {
                term: 1,
                round: 2,
                prev_index: 6,
                prev_term: 3,
                commit: 5,
                entries: entries.clone(),
            }),
            Message::Appended { term: 1, round: 2, agreed: true, prev_index: 3, index: 4 },
            Message::Snapshot { term: 0, round: 1, snapshot },
            Message::Have { commit: 8 },
            Message::Pull { commit: 8 },
            Message::News { commit: 9, entries },
            Message::Propose { id: 1, command },
            Message::Proposed { id: 1, outcome: Ok(()) },
            Message::Proposed { id: 2, outcome: Err(Failed::Rejected(Rejected::Restored { starts: 7 })) },
            Message::Refused(Refusal::Fork { ours: epoch, theirs: Epoch::NONE }),
            Message::Refused(Refusal::NotMember { node: NodeId(1), commit: 2 }),
        ]
    }

    #[test]
    fn golden_bytes() {
        let bytes = Message::Vote { pre: true, term: 1, last_index: 2, last_term: 3 }.encode(&envelope());
        let head = b"\x01\xC1\0\0\0\0\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\x04\0\x05\0\0\0\x06\0\0\0\0\0\0\0";
        let fields = b"\x01\x01\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0";
        assert_eq!(bytes, [&head[..], fields].concat());
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
    fn a_refusal_of_another_version_can_be_read() {
        let refusal = Message::Refused(Refusal::Version { ours: 2, theirs: 1 });
        let mut bytes = refusal.encode(&envelope()).to_vec();
        bytes[0] = 2;
        assert_eq!(Message::read(bytes.into()), Ok((envelope(), Ok(refusal))));
        let mut other = Message::Have { commit: 1 }.encode(&envelope()).to_vec();
        other[0] = 2;
        assert_eq!(Message::read(other.into()), Ok((envelope(), Err(2))));
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
