//! The state of a group as its store keeps it, and the log that the store found, for the machine.
//!
//! A stored state is the group's own, the version of the last drop of its keys, and the record of a catch-up that is
//! under way. The format is in docs/formats/strong.md.
//!
//! Invariants: bytes of a start before this one are read, or refused with the reason; none make a panic.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use engine::{FoundContents, FoundEntry, FoundGroup, LogPlace, Seq};
use kv::consistent::{join_object, version_of};
use protocol::peer::{Malformed, Reader};
use strong::catch_up::Checkpoint;
use strong::group::{Entry, GroupState, Payload, Progress, Stored, VoterId, Write};

/// A group's state as its store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredState {
    pub state: GroupState,
    /// The record of a catch-up.
    pub checkpoint: Option<Checkpoint>,
    /// The version of the last drop of the group's keys; 0 for none.
    pub dropped_at: Seq,
}

/// The byte before the version of a drop. Versions of checkpoints, which may stand in its place, are lower.
const DROP_MARK: u8 = 0x80;

/// The stored bytes of a state: the length of the group's state (u16), the group's state, the version of the last drop
/// of the group's keys and the record of a catch-up, if there are such.
pub(super) fn put_state(state: &GroupState, checkpoint: Option<&Checkpoint>, dropped_at: Seq) -> Bytes {
    let state = state.encode();
    let mut out = BytesMut::with_capacity(2 + state.len());
    out.put_u16_le(u16::try_from(state.len()).expect("a state has a few voters"));
    out.put_slice(&state);
    if dropped_at > Seq(0) {
        out.put_u8(DROP_MARK);
        out.put_u64_le(dropped_at.0);
    }
    if let Some(checkpoint) = checkpoint.map(Checkpoint::encode).filter(|it| it.len() <= CHECKPOINT_MAX) {
        out.put_slice(&checkpoint);
    }
    out.freeze()
}

/// Bytes of a catch-up's record beside the group's state: the engine takes 4 KiB together. The place of a longer key is
/// not written; a start then goes on at the place before.
const CHECKPOINT_MAX: usize = 3 << 10;

/// The group's state, of stored bytes.
pub(super) fn read_state(bytes: &Bytes) -> Result<StoredState, Malformed> {
    let mut fields = Reader::new(bytes.clone());
    let len = usize::from(fields.u16()?);
    let mut rest = fields.rest();
    if len > rest.len() {
        return Err(Malformed("the state of a group is cut off"));
    }
    let state = GroupState::read(rest.slice(..len))?;
    rest.advance(len);
    let mut dropped_at = Seq(0);
    if rest.first() == Some(&DROP_MARK) {
        let mut fields = Reader::new(rest.slice(1..));
        dropped_at = Seq(fields.u64()?);
        rest = fields.rest();
    }
    let checkpoint = if rest.is_empty() { None } else { Some(Checkpoint::read(rest)?) };
    Ok(StoredState { state, checkpoint, dropped_at })
}

/// The epoch of a group's state, of stored bytes.
pub(super) fn read_epoch(bytes: &[u8]) -> Option<u16> {
    GroupState::epoch_of(bytes.get(size_of::<u16>()..)?)
}

/// The entry of a log, of an entry that the store found.
pub(super) fn entry_of(found: FoundEntry) -> Result<Entry, Malformed> {
    let payload = match found.contents {
        FoundContents::Other(bytes) => Payload::read(bytes)?,
        FoundContents::Put { key, head, value } => {
            let is_tombstone = matches!(version_of(&head), Ok(None));
            let object = (!is_tombstone).then(|| join_object(&head, &value));
            Payload::Write(Write { key, object })
        }
    };
    Ok(Entry { index: found.place.index, term: found.place.term, payload })
}

/// The part of a stored state that is about the group's keys.
#[derive(Default)]
pub(super) struct KeysRecord {
    pub checkpoint: Option<Checkpoint>,
    pub dropped_at: Seq,
}

/// The reason why a found group does not take part.
pub(super) enum Refused {
    /// Its state is of another founding or epoch, or of an earlier birth of the store.
    Foreign,
    /// Its state was lost, or contradicts its entries.
    Contradiction,
}

/// All that the store kept of a group, for the machine. A state that does not name the voter is one of an earlier
/// birth.
pub(super) fn stored_of(
    found: FoundGroup,
    (founding, epoch): (u64, u16),
    voter: VoterId,
) -> Result<(Stored, KeysRecord), Refused> {
    let bytes = found.state.as_ref().ok_or(Refused::Contradiction)?;
    let StoredState { state, checkpoint, dropped_at } =
        read_state(bytes).map_err(|_| Refused::Contradiction)?;
    if (state.founding, state.epoch) != (founding, epoch) || !state.configuration.has(voter) {
        return Err(Refused::Foreign);
    }
    let entries: Result<Vec<Entry>, Malformed> = found.entries.into_iter().map(entry_of).collect();
    let base = (found.applied.index, found.applied.term);
    let stored = Stored {
        state,
        progress: Progress { applied: base, commit: found.commit.max(base.0) },
        base,
        entries: entries.map_err(|_| Refused::Contradiction)?,
        suspect_through: found.suspect_through,
        is_incomplete: checkpoint.as_ref().is_some_and(|known| known.is_incomplete),
    };
    Ok((stored, KeysRecord { checkpoint, dropped_at }))
}

/// The place of an entry, as the engine names it.
pub(super) fn place_of((index, term): (u64, u64)) -> LogPlace {
    LogPlace { index, term }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strong::catch_up::Place;
    use strong::group::Configuration;

    #[test]
    fn a_stored_state_has_the_records_of_its_keys_behind_it() {
        let voter = VoterId::of_number(0x1_0000_0000_0007).expect("it has a birth");
        let state = GroupState::found(9, Configuration::of_voters([voter]));
        let place = Place::Key(Bytes::from_static(b"k"));
        let checkpoint =
            Checkpoint { number: 5, base: 1, is_incomplete: false, place, snapshot: (2, 1), left_out: 0 };
        let plain = put_state(&state, None, Seq(0));
        let both = put_state(&state, Some(&checkpoint), Seq(0));
        assert_eq!(plain[..2], u16::try_from(state.encode().len()).expect("it is short").to_le_bytes());
        assert_eq!(both, [&plain[..], &checkpoint.encode()].concat());
        let stored = |checkpoint, dropped_at| StoredState { state: state.clone(), checkpoint, dropped_at };
        assert_eq!(read_state(&plain), Ok(stored(None, Seq(0))));
        assert_eq!(read_epoch(&plain), Some(state.epoch));
        assert_eq!(read_state(&both), Ok(stored(Some(checkpoint.clone()), Seq(0))));
        for len in (0..both.len()).filter(|len| *len != plain.len()) {
            assert!(read_state(&both.slice(..len)).is_err(), "{len} bytes");
        }

        let dropped = put_state(&state, None, Seq(0x0102));
        assert_eq!(dropped, [&plain[..], b"\x80\x02\x01\0\0\0\0\0\0"].concat());
        assert_eq!(read_state(&dropped), Ok(stored(None, Seq(0x0102))));
        let all = put_state(&state, Some(&checkpoint), Seq(0x0102));
        assert_eq!(all, [&dropped[..], &checkpoint.encode()].concat());
        assert_eq!(read_state(&all), Ok(stored(Some(checkpoint.clone()), Seq(0x0102))));

        let long = Place::Key(vec![b'k'; CHECKPOINT_MAX].into());
        let long = Checkpoint { place: long, ..checkpoint };
        assert_eq!(put_state(&state, Some(&long), Seq(0)), plain, "it is left out");
    }
}
