//! The journal's segments, as the store knows them: which one holds a record.

use crate::entry::Jsn;
use crate::journal::segment::SegmentId;
use crate::manifest::SegmentRecord;
use base::disk::FileId;

/// An open segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its id.
    pub id: SegmentId,
    /// Its file.
    pub file: FileId,
    /// The first record that it holds or will hold. Segments hold disjoint ranges, ascending with their ids.
    pub first_jsn: Jsn,
}

impl Segment {
    /// What the manifest says of it: enough to notice its loss. Lengths are left to the seal.
    pub fn record(&self) -> SegmentRecord {
        SegmentRecord { id: self.id.0, first_jsn: self.first_jsn, last_jsn: Jsn(0), len: 0, sealed: false }
    }
}

/// All segments, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// Adds the newest segment.
    pub fn push(&mut self, segment: Segment) {
        if let Some(last) = self.0.last() {
            assert!(segment.id > last.id && segment.first_jsn >= last.first_jsn, "segments ascend");
        }
        self.0.push(segment);
    }

    /// The segment that holds record `jsn`.
    pub fn find(&self, jsn: Jsn) -> Option<(SegmentId, FileId)> {
        let after = self.0.partition_point(|segment| segment.first_jsn <= jsn);
        let segment = self.0.get(after.checked_sub(1)?)?;
        Some((segment.id, segment.file))
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_in_the_last_segment_that_begins_at_or_before_it() {
        let mut segments = Segments::default();
        assert_eq!(segments.find(Jsn(1)), None);
        for (id, first) in [(1, 1), (2, 10), (3, 10), (5, 20)] {
            segments.push(Segment { id: SegmentId(id), file: FileId(id as u32), first_jsn: Jsn(first) });
        }
        let of = |jsn| segments.find(Jsn(jsn)).map(|(id, _)| id.0);
        assert_eq!(
            (of(0), of(1), of(9), of(10), of(19), of(25)),
            (None, Some(1), Some(1), Some(3), Some(3), Some(5))
        );
    }
}
