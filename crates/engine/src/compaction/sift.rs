//! Which records of a compaction's inputs are kept.
//!
//! Let V be the newest durable version that the ledger has of a record's key.
//!
//! | the record | V is that very version | V is newer | there is no V |
//! |---|---|---|---|
//! | has its value | kept | dropped | dropped |
//! | has its value and has ended | if it covers | dropped | if it covers |
//! | its value is inline | if it covers | dropped | if it covers |
//! | is a deletion | kept | dropped | if it covers |
//!
//! A version that has ended is a deletion in the ledger, with the same jsn, or is gone from it. What is kept of its
//! record is a deletion, too.
//!
//! "If it covers": kept while an older record of the key is left in an older segment. So the invariant holds that the
//! newest record of a key stays while any other does: where V is newer, V's own record is under this rule and the
//! dropped record is one of those that keep it; where there is no V, a deletion came last, and its record is under the
//! rule likewise. Within the inputs nothing needs to be looked for: what is older there is dropped, or kept by the
//! same rule.
//!
//! An entry of a group's log ([`crate::proposals`]) is judged when tables have it, or it never takes effect. It is a
//! version exactly if V is made of it, and the table's first line of columns counts; otherwise it is dropped, whatever
//! its jsn. Versions made of entries are not in the order of jsns: where V is one, and older by its jsn, it is newer by
//! its seq.
//!
//! Where the ledger cannot be read, or answers what cannot be, the record is kept.
//!
//! An inline value that no older record stands behind ([`Ground`]) goes whatever V is, so V is not looked for: not once
//! the version is in a table that no damage is known of. To look it up was most of what a small object costs
//! (docs/decisions/0082). If any other record of the inputs meets something that cannot be, those that were not looked
//! for are kept, too: an older record of such a key may be.

use super::newest::{Known, Newest};
use super::reader::Listed;
use crate::entry::{Entry, Location, Seq};
use crate::error::Error;
use crate::index::Indexing;
use crate::memtable;
use crate::prefetch::prefetch;
use crate::table::{common_prefix, hint};
use base::{Disk, FastMap};

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    Drop,
    /// A deletion is kept of it if an older segment has a record of the key.
    DeletionIfItCovers,
    /// Kept if an older segment has a record of the key.
    IfItCovers,
}

/// What becomes of a record in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Kept,
    /// A deletion is kept of it.
    Deletion,
    Dropped,
    /// Dropped without a look at the ledger, unless that turns out to be in doubt.
    Unseen,
}

/// The rule above.
pub(super) fn verdict(listed: &Listed, entry: &Entry<'_>, newest: Option<Known>) -> Verdict {
    match newest {
        known if listed.is_proposed && known.is_none_or(|known| known.jsn != entry.jsn) => Verdict::Drop,
        Some(known) if known.jsn > entry.jsn => Verdict::Drop,
        Some(known) if known.jsn < entry.jsn && known.seq > listed.seq => Verdict::Drop,
        Some(known) if known.jsn < entry.jsn => Verdict::Keep,
        Some(known) => match entry.location {
            Location::Journal { .. } if known.location == Location::Deleted => Verdict::DeletionIfItCovers,
            Location::Journal { .. }
                if base::planted!(LiveRecordDropped) && entry.jsn.0.is_multiple_of(7) =>
            {
                Verdict::Drop
            }
            Location::Journal { .. } | Location::Deleted => Verdict::Keep,
            Location::Inline => Verdict::IfItCovers,
        },
        None => match entry.location {
            Location::Journal { .. } if entry.expires_ms.is_some() => Verdict::DeletionIfItCovers,
            Location::Journal { .. } => Verdict::Drop,
            Location::Inline | Location::Deleted => Verdict::IfItCovers,
        },
    }
}

/// A record whose verdict depends on older segments.
struct Undecided {
    at: usize,
    bytes: u64,
    /// Of its key.
    hash: u64,
    /// Whether it has the inline value of a version that is of use.
    is_value: bool,
}

/// What is known of all records of a compaction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ground {
    /// Which keys are index entries.
    pub indexing: Option<Indexing>,
    /// Whether no segment is older than the inputs, for sure.
    pub is_oldest: bool,
    /// Versions up to this one are in tables, and nothing is lost there.
    pub in_tables: Seq,
}

/// The verdicts on one input's records, in their order.
#[derive(Default)]
pub(super) struct Sieve {
    ground: Ground,
    keep: Vec<Fate>,
    /// Versions of the entries of groups' logs that are known to be applied.
    applied: FastMap<usize, Seq>,
    /// Records whose verdict depends on older segments.
    undecided: Vec<Undecided>,
    /// Bytes of records that are [`Fate::Unseen`].
    unseen_bytes: u64,
    /// Whether one of them has a value that may be of use.
    unseen_value: bool,
    /// Whether the ledger could not be read somewhere, or answered what cannot be.
    pub in_doubt: bool,
    /// Whether a value that is of use goes on in tables alone.
    pub drops_inlines: bool,
    pub bytes_kept: u64,
    pub bytes_seen: u64,
}

impl Sieve {
    /// Of a compaction of which this is known.
    pub fn new(ground: Ground) -> Sieve {
        Sieve { ground, ..Sieve::default() }
    }

    /// Judges a chunk of records. Keys are looked up in their order, so that each block is read once.
    pub fn judge(&mut self, disk: &mut dyn Disk, newest: &mut Newest, chunk: &[Listed]) -> Result<(), Error> {
        let first = self.keep.len();
        self.keep.resize(first + chunk.len(), Fate::Kept);
        let order = in_order(chunk, |at, listed| Ok(!self.drops_unseen(first + at, listed)?))?;
        for (now, &Place { at, hash, .. }) in order.iter().enumerate() {
            if let Some(later) = order.get(now + 2 * AHEAD) {
                prefetch(&raw const chunk[later.at]);
                prefetch(&raw const chunk[later.at].entry);
            }
            if let Some(later) = order.get(now + AHEAD) {
                newest.prefetch(&chunk[later.at].key, later.hash);
                prefetch(chunk[later.at].entry.as_ptr());
            }
            let listed = &chunk[at];
            let entry = Entry::decode(&listed.entry)?;
            let bytes = record_bytes(&listed.key, &entry);
            self.bytes_seen += bytes;
            let mut is_value = false;
            let verdict = match newest.find(disk, &listed.key, hash) {
                Ok(known) => {
                    if listed.is_proposed {
                        self.applied.extend(known.map(|known| (first + at, known.seq)));
                    } else {
                        let is_older = |known: Known| known.jsn < entry.jsn && known.seq <= listed.seq;
                        self.in_doubt |= known.is_some_and(is_older);
                    }
                    is_value = entry.location == Location::Inline
                        && known.is_some_and(|known| known.jsn == entry.jsn)
                        && !self.is_index_entry(&listed.key);
                    verdict(listed, &entry, known)
                }
                Err(Error::Damaged(_) | Error::Malformed(_)) => {
                    self.in_doubt = true;
                    Verdict::Keep
                }
                Err(error) => return Err(error),
            };
            self.keep[first + at] = match verdict {
                Verdict::Drop => Fate::Dropped,
                Verdict::DeletionIfItCovers => Fate::Deletion,
                Verdict::Keep | Verdict::IfItCovers => Fate::Kept,
            };
            match verdict {
                Verdict::Keep => self.bytes_kept += bytes,
                Verdict::Drop => {}
                Verdict::IfItCovers | Verdict::DeletionIfItCovers => {
                    self.undecided.push(Undecided { at: first + at, bytes, hash, is_value });
                }
            }
        }
        Ok(())
    }

    /// Has the record numbered `at` dropped without a look at the ledger, if nothing that may be there would keep it;
    /// whether it did.
    fn drops_unseen(&mut self, at: usize, listed: &Listed) -> Result<bool, Error> {
        if !self.ground.is_oldest || listed.is_proposed || listed.seq > self.ground.in_tables {
            return Ok(false);
        }
        let entry = Entry::decode(&listed.entry)?;
        if entry.location != Location::Inline {
            return Ok(false);
        }
        let bytes = record_bytes(&listed.key, &entry);
        self.bytes_seen += bytes;
        self.unseen_bytes += bytes;
        self.keep[at] = Fate::Unseen;
        // Whether it is the newest version is not known; that it may be is enough for a mark.
        self.unseen_value = self.unseen_value || !self.is_index_entry(&listed.key);
        Ok(true)
    }

    /// An index entry is in its object's head, too.
    fn is_index_entry(&self, key: &[u8]) -> bool {
        self.ground.indexing.is_some_and(|indexing| indexing.is_entry(key))
    }

    /// Drops what was not looked for, or keeps it if anything in the inputs is in doubt.
    pub fn settle_unseen(&mut self, in_doubt: bool) {
        let fate = if in_doubt { Fate::Kept } else { Fate::Dropped };
        self.keep.iter_mut().filter(|kept| **kept == Fate::Unseen).for_each(|kept| *kept = fate);
        match in_doubt {
            true => self.bytes_kept += self.unseen_bytes,
            false => self.drops_inlines |= self.unseen_value,
        }
    }

    /// The version that the ledger has of the record numbered `at`, of an entry of a group's log.
    pub fn applied(&self, at: usize) -> Option<Seq> {
        self.applied.get(&at).copied()
    }

    /// What becomes of the record numbered `at`.
    pub fn fate(&self, at: usize) -> Fate {
        self.keep.get(at).copied().unwrap_or(Fate::Kept)
    }

    /// Drops the undecided records whose key `older` does not have; keeps all if nothing is known of older ones.
    pub fn settle(&mut self, older: Option<&OlderKeys>) {
        for Undecided { at, bytes, hash, is_value } in self.undecided.drain(..) {
            if older.is_none_or(|older| older.has(hash)) {
                self.bytes_kept += bytes;
            } else {
                self.keep[at] = Fate::Dropped;
                self.drops_inlines |= is_value;
            }
        }
    }

    /// Bytes of records whose verdict depends on older segments.
    pub fn undecided_bytes(&self) -> u64 {
        self.undecided.iter().map(|undecided| undecided.bytes).sum()
    }
}

/// Of so many keys ahead memory is asked for, and of twice as many where their records stand: looking up one takes some
/// times as long as waiting for memory.
const AHEAD: usize = 4;

/// Where a record of a chunk is.
struct Place {
    /// Eight bytes of the key, behind what all keys of the chunk begin with.
    hint: u64,
    at: usize,
    /// Of the key.
    hash: u64,
}

/// The records that have a ledger entry and are `wanted`, by key.
fn in_order(
    chunk: &[Listed],
    mut wanted: impl FnMut(usize, &Listed) -> Result<bool, Error>,
) -> Result<Vec<Place>, Error> {
    let mut order = Vec::new();
    let mut shared: Option<&[u8]> = None;
    for (at, listed) in chunk.iter().enumerate().filter(|(_, listed)| listed.has_entry()) {
        if wanted(at, listed)? {
            let first = shared.unwrap_or(&listed.key);
            shared = Some(&first[..common_prefix(first, &listed.key)]);
            order.push(Place { hint: 0, at, hash: memtable::hash(&listed.key) });
        }
    }
    let shared = shared.map_or(0, <[u8]>::len);
    order.iter_mut().for_each(|place| place.hint = hint(&chunk[place.at].key[shared..]));
    order.sort_unstable_by(|a, b| a.hint.cmp(&b.hint).then_with(|| chunk[a.at].key.cmp(&chunk[b.at].key)));
    Ok(order)
}

/// Which of the undecided keys older segments have, by hash: one that is taken for another keeps a record too many.
#[derive(Default)]
pub(super) struct OlderKeys(FastMap<u64, bool>);

impl OlderKeys {
    /// Asks for the keys of undecided records.
    pub fn ask_for(&mut self, sieve: &Sieve) {
        self.0.extend(sieve.undecided.iter().map(|undecided| (undecided.hash, false)));
    }

    /// A key that an older segment has.
    pub fn note(&mut self, key: &[u8]) {
        if let Some(found) = self.0.get_mut(&memtable::hash(key)) {
            *found = true;
        }
    }

    fn has(&self, hash: u64) -> bool {
        self.0.get(&hash).copied().unwrap_or(true)
    }
}

/// What the record takes in a segment, padding aside.
fn record_bytes(key: &[u8], entry: &Entry<'_>) -> u64 {
    match entry.location {
        Location::Journal { len, .. } => u64::from(len),
        _ => {
            (crate::journal::record::HEADER_BYTES + key.len() + entry.head.len() + entry.inline.len()) as u64
        }
    }
}
