//! Bytes of a segment that are not what was written, and whether anybody was promised them.
//!
//! A fault is **torn** when it begins at or after the durable mark, the largest position that any group mark
//! says was synced (or that the caller knows from elsewhere): such bytes were never acknowledged. A fault before
//! the mark is **damage**.
//!
//! Follows "Protocol-Aware Recovery" (Alagappan and others, FAST 2018): a crash is told from corruption by what is
//! known to have been persisted.

use super::record::{Header, Kind};
use super::segment::{self, Position, SegmentId};
use crate::entry::{Jsn, Seq};
use crate::error::Damage;
use bytes::Bytes;

/// What is left of a record whose value is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remains {
    /// Its checked header.
    pub header: Header,
    /// Its key.
    pub key: Bytes,
    /// Its head.
    pub head: Bytes,
}

/// The numbers among which those of lost records are: at or after `from` and before `to`, as far as the records
/// around them tell. Nothing was lost when both are known and equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Lost {
    /// The number after the record before.
    pub from_jsn: Option<Jsn>,
    /// The number of the record after.
    pub to_jsn: Option<Jsn>,
    /// The seq after the record before, where seqs ascend as jsns do.
    pub from_seq: Option<Seq>,
    /// The seq of the record after, likewise.
    pub to_seq: Option<Seq>,
}

impl Lost {
    /// Whether it is certain that no numbered record was lost.
    pub fn is_nothing(&self) -> bool {
        self.from_jsn.is_some() && self.from_jsn == self.to_jsn
    }
}

/// Bytes that are not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The segment.
    pub segment: SegmentId,
    /// The first bad byte's record or structure.
    pub from: u64,
    /// Where good bytes begin again, or the file ends.
    pub to: u64,
    /// What failed.
    pub what: &'static str,
    /// The record, if its key is known and only its value is damaged.
    pub remains: Option<Remains>,
    /// Otherwise, which records may have been there.
    pub lost: Lost,
    /// The kind of the record, if its header is sound and its key or head is damaged.
    pub kind: Option<Kind>,
    /// Whether only heads or a seal can have been there, which are made again from the records.
    pub(super) derived: bool,
}

impl Fault {
    /// The error that names this place.
    pub fn damage(&self) -> Damage {
        Damage { file: segment::path_in_store(self.segment), offset: self.from, what: self.what }
    }

    /// The same fault at the end of a segment, where the next segment's first record has this number.
    pub fn followed_by(mut self, jsn: Option<Jsn>) -> Fault {
        self.lost.to_jsn = jsn;
        self
    }

    /// Whether a record may have been here whose key is not known now.
    pub fn may_have_lost_a_key(&self) -> bool {
        self.remains.is_none() && !self.derived && !self.lost.is_nothing()
    }

    /// Whether it can only be a record of a consistent group's log, or a commit mark: no key of the ledger is lost.
    pub fn is_of_groups(&self) -> bool {
        let kind = self.kind.or(self.remains.as_ref().map(|remains| remains.header.kind));
        matches!(kind, Some(Kind::Proposed | Kind::CommitMark))
    }

    /// Where it begins.
    pub fn position(&self) -> Position {
        Position { segment: self.segment, offset: self.from }
    }
}

/// What a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was not synced: a crash did this, and nobody was promised these bytes.
    Torn,
    /// It was synced: the disk broke its promise.
    Damage,
}

/// The rule: what begins before the durable mark was promised.
pub fn classify(fault: Position, durable: Position) -> Verdict {
    if fault < durable { Verdict::Damage } else { Verdict::Torn }
}
