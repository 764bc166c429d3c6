//! Verifies a store that nobody has open: every checksum, and what no checksum can tell.
//!
//! 1. Take the store's lock, so that nothing moves.
//! 2. Read the manifest and its copy, and tell the ranges of which it says that versions are lost.
//! 3. Go through every segment of the journal, as a start would (`journal.rs`): each record's header, key and
//!    value, the block of heads, the seal, the trailer; and no number missing between them.
//! 4. Go through every table (`tables.rs`): footer, meta data, index, filter, every block, the order of keys; and
//!    for each entry whose value is in the journal, that its record stands where the entry says.
//!
//! Whether index entries are those of the objects is a check of its own (`index.rs`).
//!
//! An entry whose record is gone is no fault if a newer version of its key is there: then compaction has dropped it.
//!
//! Invariants: nothing is changed; memory is bounded by one window of the journal, the indexes and filters of tables,
//! the keys of what no table has, and a bounded list of faults; what a crash leaves behind is told from damage by the
//! same rule as at a start ([`crate::journal::replay`]).
//!
//! Left out: repair ([`crate::recovery`]). With no manifest that can be read, the tables are checked all the same, but
//! not whether they are all there.

mod index;
mod journal;
mod tables;
#[cfg(test)]
mod tests;

pub use index::check_index;

use crate::compaction::Newest;
use crate::error::{Damage, Error};
use crate::journal::segment::{FOLDER, Position};
use crate::manifest::{self, MANIFEST_COPY_FILE, MANIFEST_FILE, ManifestState};
use crate::scrub::{MARK_FILE, Mark};
use crate::store::{LOCK_FILE, TABLES_DIR};
use base::disk::{self, DiskErrorKind, DiskOp};
use base::{Disk, FastMap};
use std::path::Path;

/// So many faults of the journal are remembered, so that an entry whose record is one of them is not told as a
/// second fault. More than that is a lost disk, of which some places may be told twice.
const FAULTS_REMEMBERED_MAX: usize = 4096;

/// What a finding means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// Stored bytes are not what was written, or are missing.
    Damage,
    /// The end of something that a crash cut off before it was synced. The next start drops it.
    Torn,
    /// A file that belongs to nothing any more: a crash came before its removal. The next start removes it.
    Leftover,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it means.
    pub kind: FindingKind,
    /// The file, named relative to the store's folder.
    pub file: String,
    /// The first byte of what failed its check.
    pub offset: u64,
    /// What failed.
    pub what: String,
}

/// What was gone through, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Tables.
    pub tables: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// Ledger entries in the blocks.
    pub entries: u64,
    /// Segments of the journal.
    pub segments: u64,
    /// Numbered records in them.
    pub records: u64,
    /// Lengths of all files together.
    pub bytes: u64,
    /// Entries whose record is gone or damaged.
    pub entries_lost: u64,
    /// Ranges of keys of which versions are lost, as the manifest says.
    pub lost_ranges: u64,
    /// Findings of the kind [`FindingKind::Damage`].
    pub damaged: u64,
    /// Findings of the kind [`FindingKind::Torn`].
    pub torn: u64,
    /// Findings of the kind [`FindingKind::Leftover`].
    pub leftovers: u64,
}

impl Summary {
    /// Adds another store's figures.
    pub fn add(&mut self, other: &Summary) {
        let Summary {
            tables,
            blocks,
            entries,
            segments,
            records,
            bytes,
            entries_lost,
            lost_ranges,
            damaged,
            torn,
            leftovers,
        } = other;
        for (mine, other) in [
            (&mut self.tables, tables),
            (&mut self.blocks, blocks),
            (&mut self.entries, entries),
            (&mut self.segments, segments),
            (&mut self.records, records),
            (&mut self.bytes, bytes),
            (&mut self.entries_lost, entries_lost),
            (&mut self.lost_ranges, lost_ranges),
            (&mut self.damaged, damaged),
            (&mut self.torn, torn),
            (&mut self.leftovers, leftovers),
        ] {
            *mine += other;
        }
    }
}

/// Checks the store in `dir` and hands each finding to `on_finding`. Blocks. The store stays locked until `disk`
/// and its other handles are dropped. An error says that the check could not be made: the store is open elsewhere,
/// or there is none; what is wrong with the store's own bytes is a finding.
pub fn check_store(
    disk: &mut dyn Disk,
    dir: &Path,
    on_finding: &mut dyn FnMut(Finding),
) -> Result<Summary, Error> {
    lock(disk, dir)?;
    let mut check = Check {
        disk,
        dir,
        on_finding,
        summary: Summary::default(),
        faults: Vec::new(),
        stopped: None,
        recent: FastMap::default(),
        newest: None,
    };
    let state = check.manifest()?;
    let segments = check.journal(state.as_ref())?;
    check.tables(state.as_ref(), &segments)?;
    segments.close(check.disk);
    check.mark();
    check.stopped.map_or(Ok(check.summary), Err)
}

/// Takes the lock of a store, and nothing that is none.
pub(crate) fn lock(disk: &mut dyn Disk, dir: &Path) -> Result<(), Error> {
    let names = disk::list(disk, dir)?;
    let is_store = names.iter().any(|name| name == MANIFEST_FILE)
        || disk::list(disk, &dir.join(FOLDER)).is_ok()
        || disk::list(disk, &dir.join(TABLES_DIR)).is_ok();
    if !is_store {
        return Err(Error::Format {
            file: dir.display().to_string(),
            what: "there is no store here".to_owned(),
        });
    }
    // To lock a file that is not there would make it; a store that is open has one.
    if names.iter().any(|name| name == LOCK_FILE) {
        disk::run(disk, DiskOp::Lock { path: dir.join(LOCK_FILE) })?;
    }
    Ok(())
}

/// A check under way.
struct Check<'a> {
    disk: &'a mut dyn Disk,
    dir: &'a Path,
    on_finding: &'a mut dyn FnMut(Finding),
    summary: Summary,
    /// From where to where the journal is damaged or cut off.
    faults: Vec<(Position, u64)>,
    /// Why the check says nothing in the end, though nothing is wrong: a file could not be opened for want of handles.
    stopped: Option<Error>,
    /// Hashes of the keys that were written since the last flush: as many as memtables hold.
    recent: FastMap<u64, ()>,
    /// All tables, once an entry is met whose record is gone: compaction may have dropped it.
    newest: Option<Newest>,
}

impl Check<'_> {
    fn manifest(&mut self) -> Result<Option<ManifestState>, Error> {
        let temporary = Path::new(MANIFEST_FILE).with_extension("tmp").display().to_string();
        if disk::list(self.disk, self.dir)?.contains(&temporary) {
            self.find(FindingKind::Leftover, temporary, 0, "a manifest that was not finished");
        }
        let state = match manifest::read(self.disk, self.dir) {
            Ok(Some(state)) => Some(state),
            Ok(None) => {
                self.find(FindingKind::Damage, MANIFEST_FILE, 0, "the manifest is missing");
                None
            }
            Err(error) => {
                self.fail(MANIFEST_FILE, error);
                None
            }
        };
        let copy = match manifest::read_copy(self.disk, self.dir) {
            Ok(Some(copy)) => Some(copy),
            Ok(None) => {
                let what = "the manifest's copy is missing; the next start makes one";
                self.find(FindingKind::Damage, MANIFEST_COPY_FILE, 0, what);
                None
            }
            Err(error) => {
                self.fail(MANIFEST_COPY_FILE, error);
                None
            }
        };
        let state = state.or(copy);
        for lost in state.iter().flat_map(|state| &state.lost) {
            let what = format!(
                "versions of keys from \"{}\" up to \"{}\" were lost here",
                lost.start.escape_ascii(),
                lost.end.escape_ascii()
            );
            self.summary.lost_ranges += 1;
            self.find(FindingKind::Damage, lost.damage.file.clone(), lost.damage.offset, what);
        }
        Ok(state)
    }

    /// The scrub's note, which need not be there.
    fn mark(&mut self) {
        match Mark::read(self.disk, self.dir) {
            Ok(Some(_)) => {}
            Ok(None) => {
                let what = "the note of how far the scrub is makes no sense; its next pass begins anew";
                self.find(FindingKind::Damage, MARK_FILE, 0, what);
            }
            Err(error) if error.kind == DiskErrorKind::NotFound => {}
            Err(error) => self.fail(MARK_FILE, error.into()),
        }
    }

    fn find(&mut self, kind: FindingKind, file: impl Into<String>, offset: u64, what: impl Into<String>) {
        if self.stopped.is_some() {
            // What could not be opened is not missing, nor what is in it.
            return;
        }
        match kind {
            FindingKind::Damage => self.summary.damaged += 1,
            FindingKind::Torn => self.summary.torn += 1,
            FindingKind::Leftover => self.summary.leftovers += 1,
        }
        (self.on_finding)(Finding { kind, file: file.into(), offset, what: what.into() });
    }

    /// Whatever keeps `file` from being read is a finding: a sector that the disk gives up is damage, too.
    fn fail(&mut self, file: &str, error: Error) {
        match error {
            Error::Damaged(Damage { offset, what, .. }) => self.find(FindingKind::Damage, file, offset, what),
            Error::Format { what, .. } => self.find(FindingKind::Damage, file, 0, what),
            Error::Disk(error) if error.kind == DiskErrorKind::NotFound => {
                self.find(FindingKind::Damage, file, 0, "the file is missing");
            }
            Error::Exhausted(_) => drop(self.stopped.get_or_insert(error)),
            other => self.find(FindingKind::Damage, file, 0, other.to_string()),
        }
    }
}

/// The files in a folder of the store; none where the folder is missing, which the manifest will notice.
fn list(disk: &mut dyn Disk, folder: &Path) -> Result<Vec<String>, Error> {
    match disk::list(disk, folder) {
        Err(error) if error.kind == DiskErrorKind::NotFound => Ok(Vec::new()),
        other => Ok(other?),
    }
}
