//! The journal's segments, as the store knows them: which one holds a record.
//!
//! A list of segments is replaced, never changed, like a version of the ledger: whoever shares one finds the records
//! that its snapshot points at, though compaction has moved them since.

use crate::entry::Jsn;
use crate::journal::index::SegmentIndex;
use crate::journal::segment::SegmentId;
use base::disk::FileId;
use std::sync::Arc;

/// An open segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its id.
    pub id: SegmentId,
    /// Its file.
    pub file: FileId,
    /// The first record that it holds or will hold. Segments hold disjoint ranges.
    pub first_jsn: Jsn,
    /// Where its records stand, if compaction wrote it: then what ledger entries say is stale.
    pub index: Option<SegmentIndex>,
}

/// The file of a segment that is missing: none.
const MISSING: FileId = FileId(u32::MAX);

impl Segment {
    /// A segment whose file is missing: what it held is an error that names it, until it is put back.
    pub fn missing(id: SegmentId, first_jsn: Jsn) -> Segment {
        Segment { id, file: MISSING, first_jsn, index: None }
    }

    /// Whether its file is missing.
    pub fn is_missing(&self) -> bool {
        self.file == MISSING
    }

    /// Where record `jsn` stands and how many bytes it takes there, of which a ledger entry says `hint`; `None` if it
    /// is not here. Compaction may have compressed it: then it takes less.
    pub fn place_of(&self, jsn: Jsn, hint: (u32, u32)) -> Option<(u32, u32)> {
        let Some(index) = &self.index else { return Some(hint) };
        let (offset, room) = index.place(jsn)?;
        Some((offset, room.map_or(hint.1, |room| room.min(hint.1))))
    }

    /// The bytes that a record takes here of which its ledger entry says `bytes`; `None` if it is not here.
    pub fn bytes_of(&self, jsn: Jsn, bytes: u32) -> Option<u32> {
        self.place_of(jsn, (0, bytes)).map(|(_, bytes)| bytes)
    }
}

/// All segments, in the order of their records.
#[derive(Clone, Debug, Default)]
pub struct Segments(Vec<Arc<Segment>>);

impl Segments {
    /// Adds the newest segment.
    pub fn push(&mut self, segment: Segment) {
        if let Some(last) = self.0.last() {
            assert!(segment.first_jsn >= last.first_jsn, "segments ascend");
        }
        self.0.push(Arc::new(segment));
    }

    /// The segment that holds record `jsn`, if any does.
    pub fn find(&self, jsn: Jsn) -> Option<&Arc<Segment>> {
        let after = self.0.partition_point(|segment| segment.first_jsn <= jsn);
        self.0.get(after.checked_sub(1)?)
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Segment>> {
        self.0.iter()
    }

    /// All of them, oldest first.
    pub fn as_slice(&self) -> &[Arc<Segment>] {
        &self.0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The list with `added`, which stands for the same records, in the place of `removed`.
    pub fn replace(&self, removed: &[Arc<Segment>], added: Option<&Arc<Segment>>) -> Segments {
        let first = removed.first().expect("something is replaced").id;
        let is_removed = |id| removed.iter().any(|segment| segment.id == id);
        let mut segments = Vec::with_capacity(self.0.len());
        for segment in &self.0 {
            if segment.id == first {
                segments.extend(added.cloned());
            }
            if !is_removed(segment.id) {
                segments.push(Arc::clone(segment));
            }
        }
        Segments(segments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(id: u64, first: u64) -> Segment {
        Segment { id: SegmentId(id), file: FileId(id as u32), first_jsn: Jsn(first), index: None }
    }

    #[test]
    fn a_record_is_in_the_last_segment_that_begins_at_or_before_it() {
        let mut segments = Segments::default();
        assert_eq!(segments.find(Jsn(1)), None);
        for (id, first) in [(1, 1), (2, 10), (3, 10), (5, 20)] {
            segments.push(segment(id, first));
        }
        let of = |segments: &Segments, jsn| segments.find(Jsn(jsn)).map(|segment| segment.id.0);
        let all = |segments: &Segments| [0, 1, 9, 10, 19, 25].map(|jsn| of(segments, jsn));
        assert_eq!(all(&segments), [None, Some(1), Some(1), Some(3), Some(3), Some(5)]);
        let removed: Vec<_> = segments.as_slice()[1..3].to_vec();
        let added = Arc::new(segment(9, 10));
        let replaced = segments.replace(&removed, Some(&added));
        assert_eq!(all(&replaced), [None, Some(1), Some(1), Some(9), Some(9), Some(5)]);
        assert_eq!(segments.replace(&removed, None).len(), 2);
    }
}
