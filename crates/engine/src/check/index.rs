//! Whether a store's index entries are those of its objects.
//!
//! 1. Go through all heads, and through all entries: as many, and the same by a sum of their hashes, is the same.
//! 2. Where they differ, go through both once more, the heads' entries sorted in memory, to name those that are missing
//!    or belong to nothing.
//!
//! Only tables are looked at, so the store must have been stopped cleanly. Nothing is said of one that has lost
//! versions, or whose index is to be made anew: its next start does that.

use super::{Finding, FindingKind, lock};
use crate::drops::DroppedRanges;
use crate::entry::{Entry, Seq};
use crate::error::Error;
use crate::index::{self, Indexing};
use crate::lost::LostRanges;
use crate::manifest::{self, LEVELS, Version};
use crate::memtable::hash;
use crate::merge::{MergeIter, Source};
use crate::read::Snapshot;
use crate::store::{TABLES_DIR, open_table};
use base::Disk;
use base::disk;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;

/// Differences that are named; more is a lost index.
const NAMED_MAX: usize = 64;

/// How many entries there are, and the sum of their hashes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    count: u64,
    hashes: u64,
}

impl Sum {
    fn add(&mut self, entry: &[u8]) {
        self.count += 1;
        self.hashes = self.hashes.wrapping_add(hash(entry));
    }
}

/// Checks the index of the store in `dir`, which nobody has open, as of `now_ms`, in milliseconds since 1970. Tells how
/// many entries there are, and `None` of an index of which nothing can be said. Blocks. The store stays locked as for
/// [`check_store`](super::check_store), which is to be called first: damage is its affair.
pub fn check_index(
    disk: &mut dyn Disk,
    dir: &Path,
    indexing: &Indexing,
    now_ms: u64,
    on_finding: &mut dyn FnMut(Finding),
) -> Result<Option<u64>, Error> {
    lock(disk, dir)?;
    let Some(snapshot) = stopped(disk, dir, indexing, now_ms)? else { return Ok(None) };
    let compared = compare(disk, &snapshot, indexing, on_finding);
    for (_, table) in snapshot.version.tables() {
        // It was only read: nothing is lost if it does not close.
        disk::run(disk, table.close_op()).ok();
    }
    compared
}

fn compare(
    disk: &mut dyn Disk,
    snapshot: &Snapshot,
    indexing: &Indexing,
    on_finding: &mut dyn FnMut(Finding),
) -> Result<Option<u64>, Error> {
    let (mut of_heads, mut of_entries) = (Sum::default(), Sum::default());
    each_head(disk, snapshot, indexing, &mut |_, entry| {
        of_heads.add(entry);
        Ok(())
    })?;
    let mut is_marked = false;
    each_item(disk, snapshot, indexing.entries, &mut |key, _| {
        match key == indexing.mark() {
            true => is_marked = true,
            false => of_entries.add(key),
        }
        Ok(())
    })?;
    if !is_marked {
        return Ok(None);
    }
    if of_heads != of_entries {
        name_differences(disk, snapshot, indexing, on_finding)?;
    }
    Ok(Some(of_entries.count))
}

/// What the tables have of a store that was stopped cleanly, and has lost nothing.
fn stopped(
    disk: &mut dyn Disk,
    dir: &Path,
    indexing: &Indexing,
    now_ms: u64,
) -> Result<Option<Snapshot>, Error> {
    let found = match manifest::find(disk, dir) {
        Ok(Some(found)) => found.state,
        Ok(None) | Err(Error::Damaged(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    if found.clean.is_none() || !found.lost.is_empty() {
        return Ok(None);
    }
    let mut levels: [Vec<Arc<crate::table::Table>>; LEVELS] = Default::default();
    for (tables, records) in levels.iter_mut().zip(&found.levels) {
        for record in records {
            match open_table(disk, &dir.join(TABLES_DIR), record)? {
                Ok(table) => tables.push(Arc::new(table)),
                Err(_) => return Ok(None),
            }
        }
    }
    Ok(Some(Snapshot {
        seq: Seq(u64::MAX),
        now_ms,
        dropped: DroppedRanges::with_index(found.drops, Some(*indexing)),
        memtables: Vec::new(),
        version: Arc::new(Version::new(levels)),
        segments: Arc::default(),
        lost: Arc::<LostRanges>::default(),
    }))
}

type Each<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<(), Error>;

/// Hands over keys and heads of a range.
fn each_item(
    disk: &mut dyn Disk,
    snapshot: &Snapshot,
    (start, end): (&[u8], &[u8]),
    each: Each<'_>,
) -> Result<(), Error> {
    let mut iter = snapshot.iter();
    iter.seek(disk, start)?;
    while let Some(item) = iter.item().filter(|item| item.key < end) {
        let entry = Entry::decode(item.entry)?;
        if !snapshot.is_gone(item.key, item.seq, &entry) {
            each(item.key, entry.head)?;
        }
        iter.next(disk)?;
    }
    Ok(())
}

/// Hands over objects' keys with each of their entries.
fn each_head(
    disk: &mut dyn Disk,
    snapshot: &Snapshot,
    indexing: &Indexing,
    each: Each<'_>,
) -> Result<(), Error> {
    each_item(disk, snapshot, indexing.objects, &mut |key, head| {
        let mut bytes = Vec::new();
        let entries = index::entries(indexing, key, head, &mut bytes);
        entries.into_iter().try_for_each(|entry| each(key, &bytes[entry]))
    })
}

/// Names entries that are missing, and those that belong to nothing.
fn name_differences(
    disk: &mut dyn Disk,
    snapshot: &Snapshot,
    indexing: &Indexing,
    on_finding: &mut dyn FnMut(Finding),
) -> Result<(), Error> {
    let mut named = 0;
    let mut name = |what: &str, key: &[u8]| {
        named += 1;
        if named <= NAMED_MAX {
            let what = format!("{what}: \"{}\"", key.escape_ascii());
            on_finding(Finding { kind: FindingKind::Damage, file: TABLES_DIR.to_owned(), offset: 0, what });
        }
    };
    let mut wanted = Vec::new();
    each_head(disk, snapshot, indexing, &mut |_, entry| {
        wanted.push(Bytes::copy_from_slice(entry));
        Ok(())
    })?;
    wanted.sort_unstable();
    let mut wanted = wanted.into_iter().peekable();
    let mut iter = snapshot.iter();
    iter.seek(disk, indexing.mark())?;
    while let Some(key) = next_live(disk, &mut iter, snapshot, indexing)? {
        while let Some(missing) = wanted.next_if(|entry| entry[..] < key[..]) {
            name("an object's index entry is missing", &missing);
        }
        if wanted.next_if(|entry| entry[..] == key[..]).is_none() && key != indexing.mark() {
            name("an index entry of no object", &key);
        }
    }
    wanted.for_each(|missing| name("an object's index entry is missing", &missing));
    Ok(())
}

/// The next entry that is not gone.
fn next_live(
    disk: &mut dyn Disk,
    iter: &mut MergeIter,
    snapshot: &Snapshot,
    indexing: &Indexing,
) -> Result<Option<Bytes>, Error> {
    loop {
        let Some(item) = iter.item().filter(|item| item.key < indexing.entries.1) else { return Ok(None) };
        let is_gone = snapshot.is_gone(item.key, item.seq, &Entry::decode(item.entry)?);
        let key = Bytes::copy_from_slice(item.key);
        iter.next(disk)?;
        if !is_gone {
            return Ok(Some(key));
        }
    }
}
