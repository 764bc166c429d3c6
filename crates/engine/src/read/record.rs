//! A record of the journal that a ledger entry points at: where it is, and whether it is that very record.

use crate::compression::{Codec, Unreadable};
use crate::entry::{Jsn, Seq};
use crate::error::{Damage, Error};
use crate::journal::record::{self, Kind, ParseError, Record};
use crate::journal::segment::{self, SegmentId};
use crate::proposals::record::ProposedHead;
use crate::store::{Found, Segment, Segments};
use base::disk::FileId;
use bytes::Bytes;

/// Where a version's record stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordAt {
    pub segment: SegmentId,
    pub file: FileId,
    pub offset: u32,
    /// So many bytes are to be read: all of it, and of its padding at most.
    pub len: u32,
    pub jsn: Jsn,
    pub seq: Seq,
}

impl RecordAt {
    /// Finds the segment of record `jsn`, which made version `seq`.
    pub fn new(segments: &Segments, jsn: Jsn, seq: Seq, offset: u32, len: u32) -> Result<RecordAt, Error> {
        let found = segments.find(jsn).and_then(|found| Some((found, found.place_of(jsn, (offset, len))?)));
        let (Segment { id: segment, file, .. }, (offset, len)) =
            found.map(|(found, at)| (&**found, at)).ok_or_else(|| {
                let file = segment::FOLDER.into();
                Damage { file, offset: u64::from(offset), what: "no segment holds this record" }
            })?;
        let (segment, file) = (*segment, *file);
        if found.is_some_and(|(found, _)| found.is_missing()) {
            let (file, offset) = (segment::path_in_store(segment), offset.into());
            return Err(Damage { file, offset, what: "the segment is missing" }.into());
        }
        Ok(RecordAt { segment, file, offset, len, jsn, seq })
    }

    /// Checks the record in `data`. Anything but the very record of `key` is damage.
    pub fn check(&self, key: &[u8], data: Bytes) -> Result<Found, Error> {
        let record = self.parse(key, &data)?;
        let (seq, expires_ms) = (self.seq, record.expires_ms);
        let value = match Codec::of_flags(record.flags) {
            None => data.slice_ref(record.value),
            Some(codec) => self.decompress(codec, record.value)?,
        };
        let head = match record.kind {
            // The bytes before it are of the group's log.
            Kind::Proposed => ProposedHead::split(record.head).map_or(record.head, |(_, head)| head),
            _ => record.head,
        };
        Ok(Found { seq, head: data.slice_ref(head), value: Some(value), expires_ms })
    }

    /// [`RecordAt::check`], with the value as it is stored.
    pub fn check_stored(&self, key: &[u8], data: Bytes) -> Result<(Bytes, Option<Codec>), Error> {
        let record = self.parse(key, &data)?;
        Ok((data.slice_ref(record.value), Codec::of_flags(record.flags)))
    }

    /// The value that `stored` stands for.
    pub fn decompress(&self, codec: Codec, stored: &[u8]) -> Result<Bytes, Error> {
        codec.decompress(stored).map_err(|unreadable| match unreadable {
            Unreadable::Malformed => self.damage("compressed value"),
            Unreadable::NotBuilt => Error::Format {
                file: segment::path_in_store(self.segment),
                what: "a value that is compressed with zstd, which this build leaves out".to_owned(),
            },
        })
    }

    fn parse<'a>(&self, key: &[u8], data: &'a [u8]) -> Result<Record<'a>, Error> {
        let record = match record::parse(data, self.segment, u64::from(self.offset)) {
            Ok(record) => record,
            Err(ParseError::BadValue { .. }) => return Err(self.damage("value checksum")),
            Err(_) => return Err(self.damage("record header checksum")),
        };
        if record.jsn != self.jsn || record.key != key {
            return Err(self.damage("another record stands here"));
        }
        Ok(record)
    }

    fn damage(&self, what: &'static str) -> Error {
        let (file, offset) = (segment::path_in_store(self.segment), u64::from(self.offset));
        Damage { file, offset, what }.into()
    }
}
