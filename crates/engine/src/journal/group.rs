//! A group: the records that go to the disk together, with one write and at most one sync.
//!
//! It lies in one segment, and is the writer's (`writer.rs`) until the disk has it. It begins with a mark that says
//! what was durable when it was handed over ([`Kind::GroupMark`]), unless the marks before it say so too, and often
//! enough ([`Stated`]).

use super::buffer::{Buffer, Spares};
use super::record::{self, Kind};
use super::segment::{
    DURABLE_MARK_BYTES, Position, SEGMENT_HEADER_BYTES, SealBuilder, SegmentId, durable_mark,
};
use crate::entry::{Jsn, Seq};
use base::Reservation;
use base::disk::{FileId, Pieces};

/// Records on their way to the disk.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) segment: SegmentId,
    pub(super) file: FileId,
    pub(super) offset: u64,
    pub(super) data: Buffer,
    pub(super) last_seq: Seq,
    /// The number after its last record's.
    pub(super) end_jsn: Jsn,
    /// What it begins with, unless it has no mark, or nothing at all yet.
    pub(super) mark: Option<Mark>,
    pub(super) sync: bool,
    /// The finished segment's summary, on the last group of a segment.
    pub(super) seal: Option<SealBuilder>,
    /// What its large records take of the memory that stores share.
    pub(super) memory: Vec<Reservation>,
}

/// A group that the disk has.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) segment: SegmentId,
    pub(super) file: FileId,
    pub(super) offset: u64,
    pub(super) data: Pieces,
    pub(super) len: usize,
    pub(super) last_seq: Seq,
    pub(super) end_jsn: Jsn,
    pub(super) mark: Option<Mark>,
    pub(super) sync: bool,
    pub(super) seal: Option<SealBuilder>,
    pub(super) memory: Vec<Reservation>,
}

impl InFlight {
    /// The group as it was before it was handed over.
    pub(super) fn put_back(self) -> Group {
        let InFlight { segment, file, offset, data, len: _, last_seq, end_jsn, mark, sync, seal, memory } =
            self;
        Group { segment, file, offset, data: Buffer::thaw(data), last_seq, end_jsn, mark, sync, seal, memory }
    }
}

impl Group {
    /// A group of nothing.
    pub(super) fn new(segment: SegmentId, file: FileId, offset: u64, last_seq: Seq, end_jsn: Jsn) -> Group {
        Group {
            segment,
            file,
            offset,
            data: Buffer::default(),
            last_seq,
            end_jsn,
            mark: None,
            sync: false,
            seal: None,
            memory: Vec::new(),
        }
    }

    /// Begins with the mark.
    pub(super) fn begin(&mut self, mark: Mark, spares: &mut Spares) {
        mark.put(self.data.end(MARK_BYTES, spares), self.segment, self.offset);
        self.mark = Some(mark);
    }

    /// States anew what is durable, if the group has a mark and more is by now; whether it did.
    pub(super) fn renew_mark(&mut self, durable: Position) -> bool {
        // The number before the group's first record cannot be known to be durable later than the group itself, so
        // the mark's numbers stay.
        let Some(mark) = self.mark.as_mut().filter(|mark| mark.durable != durable) else { return false };
        mark.durable = durable;
        let mut bytes = Vec::with_capacity(MARK_BYTES);
        mark.put(&mut bytes, self.segment, self.offset);
        self.data.start()[..bytes.len()].copy_from_slice(&bytes);
        true
    }
}

/// What a group begins with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// The number of the group's first record.
    pub(super) jsn: Jsn,
    /// Its version's.
    pub(super) seq: Seq,
    /// All before it was synced.
    pub(super) durable: Position,
}

/// A mark's record: a header and a position.
const MARK_BYTES: usize = record::HEADER_BYTES + DURABLE_MARK_BYTES;

impl Mark {
    fn put(&self, out: &mut Vec<u8>, segment: SegmentId, offset: u64) {
        let head = durable_mark(self.durable);
        record::encode_record(out, segment, offset, Kind::GroupMark, 0, self.jsn, self.seq, &[], &head, &[]);
    }
}

/// The last mark of the segment that is written to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stated {
    /// What it says is durable.
    pub(super) durable: Position,
    /// Where it stands.
    pub(super) offset: u64,
}

impl Stated {
    /// Whether a group at `offset` is to state `durable`, too.
    ///
    /// One mark would do, were it not for damage that takes it together with what stands before it: a start could not
    /// tell that from a torn tail. So it is stated again each time that what came behind the durable position has
    /// doubled, and damage that takes all marks takes at least half of that.
    pub(super) fn needs_another(&self, durable: Position, segment: SegmentId, offset: u64) -> bool {
        let from = if durable.segment == segment { durable.offset } else { SEGMENT_HEADER_BYTES as u64 };
        self.durable != durable || offset - from >= 2 * (self.offset - from)
    }
}
