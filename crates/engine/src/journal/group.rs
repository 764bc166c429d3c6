//! A group: the records that go to the disk together, with one write and at most one sync.
//!
//! It begins with a mark that says what was durable when it was handed over ([`Kind::GroupMark`]), lies in one segment, and is
//! the writer's (`writer.rs`) until the disk has it.

use super::buffer::{Buffer, Spares};
use super::record::{self, Kind};
use super::segment::{DURABLE_MARK_BYTES, Position, SealBuilder, SegmentId, durable_mark};
use crate::entry::{Jsn, Seq};
use base::disk::{FileId, Pieces};

/// Records on their way to the disk.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) segment: SegmentId,
    pub(super) file: FileId,
    pub(super) offset: u64,
    pub(super) data: Buffer,
    pub(super) last_seq: Seq,
    /// The numbers that the group's mark carries.
    pub(super) mark: (Jsn, Seq),
    /// What it says was durable; nothing where there is no mark yet.
    pub(super) marked: Option<Position>,
    pub(super) sync: bool,
    /// The finished segment's summary, on the last group of a segment.
    pub(super) seal: Option<SealBuilder>,
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
    pub(super) mark: (Jsn, Seq),
    pub(super) sync: bool,
    pub(super) seal: Option<SealBuilder>,
}

impl InFlight {
    /// The group as it was before it was handed over.
    pub(super) fn put_back(self) -> Group {
        let InFlight { segment, file, offset, data, len: _, last_seq, mark, sync, seal } = self;
        Group { segment, file, offset, data: Buffer::thaw(data), last_seq, mark, marked: None, sync, seal }
    }
}

impl Group {
    /// A group of nothing.
    pub(super) fn new(segment: SegmentId, file: FileId, offset: u64, last_seq: Seq) -> Group {
        Group {
            segment,
            file,
            offset,
            data: Buffer::default(),
            last_seq,
            mark: (Jsn(0), Seq(0)),
            marked: None,
            sync: false,
            seal: None,
        }
    }

    /// Begins with the mark.
    pub(super) fn begin(&mut self, durable: Position, spares: &mut Spares) {
        let Group { segment, offset, mark, .. } = *self;
        put_mark(self.data.end(MARK_BYTES, spares), segment, offset, mark, durable);
        self.marked = Some(durable);
    }

    /// States anew what is durable, if that is more by now.
    pub(super) fn renew_mark(&mut self, durable: Position) {
        // The number before the group's first record cannot be known to be durable later than the group itself, so
        // the mark's numbers stay.
        if self.marked != Some(durable) {
            let mut mark = Vec::with_capacity(MARK_BYTES);
            put_mark(&mut mark, self.segment, self.offset, self.mark, durable);
            self.data.start()[..mark.len()].copy_from_slice(&mark);
            self.marked = Some(durable);
        }
    }
}

/// A mark's record: a header and a position.
const MARK_BYTES: usize = record::HEADER_BYTES + DURABLE_MARK_BYTES;

fn put_mark(out: &mut Vec<u8>, segment: SegmentId, offset: u64, (jsn, seq): (Jsn, Seq), durable: Position) {
    let mark = durable_mark(durable);
    record::encode_record(out, segment, offset, Kind::GroupMark, 0, jsn, seq, &[], &mark, &[]);
}
