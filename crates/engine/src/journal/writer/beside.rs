//! Syncs that jobs make while groups go on, where writers do not wait for syncs.
//!
//! 1. Behind [`SYNC_BESIDE_BYTES`] that were written, or when someone wants what was written to be durable, one begins.
//! 2. A segment whose last group was written has ended. If it is not durable, it is the next to be synced, whatever is
//!    written to the one behind it meanwhile; then it is sealed.
//!
//! Invariants
//! * One sync is under way at a time, so what becomes durable does in the order in which it was written.
//! * A segment is sealed once all of its records are durable: a seal vouches for them.

use super::{Durability, UNSYNCED_BYTES_MAX, Writer};
use crate::entry::{Jsn, Seq};
use crate::journal::seal::SealJob;
use crate::journal::segment::{Position, SealBuilder, SegmentId};
use base::DiskError;
use base::disk::FileId;

/// Behind so many a sync beside the groups begins, early enough to be over before one of them has to be synced itself.
const SYNC_BESIDE_BYTES: u64 = UNSYNCED_BYTES_MAX / 4;

/// A sync of what was written before it, beside the groups.
#[derive(Clone, Copy, Debug)]
pub struct SyncBeside {
    /// The file that has all of it which was not synced.
    pub file: FileId,
    last_seq: Seq,
    end_jsn: Jsn,
    end: Position,
}

/// A segment all of which was written, and that is not sealed yet.
#[derive(Debug)]
pub(super) struct Ended {
    file: FileId,
    /// Where its records end.
    end: Position,
    /// The newest version in it, or before it.
    last_seq: Seq,
    /// The number after its last record's.
    end_jsn: Jsn,
    heads: SealBuilder,
}

impl Ended {
    pub(super) fn segment(&self) -> SegmentId {
        self.end.segment
    }
}

impl Writer {
    /// Asks that everything appended so far become durable, and that nothing need wait for it.
    pub fn want_durable(&mut self) {
        if self.durability == Durability::Sync {
            return self.want_sync();
        }
        self.durable_wanted = self.next_jsn;
        self.want_push();
    }

    /// A sync for a job to make, if it is time for one; [`Writer::end_sync_beside`] is to be told of its end.
    pub fn begin_sync_beside(&mut self) -> Option<SyncBeside> {
        let is_due = self.unsynced >= SYNC_BESIDE_BYTES
            || self.ended_unsynced().is_some()
            || (self.durable_jsn < self.durable_wanted && self.written_jsn >= self.durable_wanted);
        let may = !self.syncs_beside && !self.is_syncing() && self.fenced.is_none();
        if !may || !is_due || self.durable_jsn == self.written_jsn {
            return None;
        }
        self.syncs_beside = true;
        self.counters.syncs += 1;
        if let Some(&Ended { file, last_seq, end_jsn, end, .. }) = self.ended_unsynced() {
            return Some(SyncBeside { file, last_seq, end_jsn, end });
        }
        self.unsynced = self.in_flight.as_ref().map_or(0, |group| group.len as u64);
        let (file, end) = self.written_end;
        Some(SyncBeside { file, last_seq: self.written, end_jsn: self.written_jsn, end })
    }

    /// Takes the disk's answer for a sync beside the groups.
    pub fn end_sync_beside(&mut self, beside: SyncBeside, result: Result<(), DiskError>) {
        self.syncs_beside = false;
        let result = if base::planted!(FailedSyncForgotten) { Ok(()) } else { result };
        match result {
            Ok(()) => {
                assert!(self.durable_position <= beside.end, "no group is synced meanwhile");
                (self.durable, self.durable_jsn) = (beside.last_seq, beside.end_jsn);
                self.durable_position = beside.end;
            }
            Err(error) => self.fence(error.into()),
        }
    }

    /// The job that seals the segment that has ended, once it is durable.
    pub fn take_seal(&mut self) -> Option<SealJob> {
        if self.ended_unsynced().is_some() {
            return None;
        }
        let Ended { file, end, heads, .. } = self.ended.take()?;
        Some(SealJob::new(end.segment, file, end.offset, heads))
    }

    /// The segment that has ended, if it is not durable yet.
    pub(super) fn ended_unsynced(&self) -> Option<&Ended> {
        self.ended.as_ref().filter(|ended| ended.end > self.durable_position)
    }

    /// Notes that a segment has ended: all of it, up to `end`, was written.
    pub(super) fn note_ended(&mut self, file: FileId, end: Position, heads: SealBuilder) {
        assert!(self.ended.is_none(), "a segment ends when the one before it is durable");
        self.unsynced = 0;
        let (last_seq, end_jsn) = (self.written, self.written_jsn);
        self.ended = Some(Ended { file, end, last_seq, end_jsn, heads });
    }
}
