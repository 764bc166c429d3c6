//! Files of tables and segments that nobody reads any more are removed: segments in the order of their records, so that
//! no deletion goes, from the disk itself, before what it covers. They may be kept aside for a time.

use super::compaction::RETRY_AFTER;
use crate::entry::Jsn;
use crate::journal::segment::{self, SegmentId};
use crate::store::open::JOURNAL_DIR;
use crate::store::room::LOOK_EVERY;
use crate::store::{Segment, Store};
use crate::table::Table;
use base::disk::{self, DiskErrorKind, DiskOp};
use base::spawn::Outcome;
use base::{Disk, DiskError, Job, Monotonic, Progress};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where compacted segments are kept for a while ([`Options::waste_retention`](crate::Options)).
pub(in crate::store) const WASTE_DIR: &str = "waste";

/// How often it is looked at while there is something in it.
const WASTE_LOOK: Duration = Duration::from_secs(60);

impl Store {
    // A table's file goes when only this list knows it: snapshots, parked lookups and jobs hold theirs.
    pub(super) fn remove_obsolete(&mut self) {
        if self.maintenance.obsolete.is_empty() {
            return;
        }
        let mut unused = Vec::new();
        self.maintenance.obsolete.retain(|table| {
            let last = Arc::strong_count(table) == 1;
            if last {
                unused.push(Arc::clone(table));
            }
            !last
        });
        if !unused.is_empty() {
            self.spawn.spawn(Box::new(RemoveTables(unused)));
            self.room.look_soon();
        }
    }

    // A segment's file goes when only this list knows it, and no older one waits: see the module's text.
    pub(super) fn remove_segments(&mut self, now: Monotonic) {
        if let Some(Removing { outcome, .. }) = &self.maintenance.removing {
            let Some(Removed { segments: done, kept }) = outcome.take() else { return };
            let Removing { asked, .. } = self.maintenance.removing.take().expect("just looked");
            let compaction = &mut self.maintenance.compaction;
            compaction.waste = Some((kept, now));
            compaction.removal_retry_at = (done < asked.len()).then(|| now + RETRY_AFTER);
            compaction.note_removed(&asked[..done], self.segments.as_slice());
            self.room.look_soon();
            if done > 0 {
                compaction.obsolete_since = (!compaction.obsolete.is_empty()).then_some(now);
            }
        }
        let compaction = &self.maintenance.compaction;
        let obsolete = &compaction.obsolete;
        let unused: Vec<_> =
            obsolete.iter().take_while(|segment| Arc::strong_count(segment) == 1).map(Arc::clone).collect();
        let may =
            self.maintenance.closing.is_none() && compaction.removal_retry_at.is_none_or(|at| now >= at);
        if may && (!unused.is_empty() || self.is_waste_due(now)) {
            let outcome = Outcome::new();
            let asked = unused.iter().map(|segment| (segment.id, segment.first_jsn)).collect();
            let job = RemoveSegments {
                folder: self.dir.join(JOURNAL_DIR),
                waste: self.dir.join(WASTE_DIR),
                segments: unused,
                now_ms: self.now_ms(),
                retention: self.options.waste_retention,
                wanted: if self.is_nearly_low() { self.comfortable() } else { 0 },
                outcome: outcome.clone(),
            };
            self.spawn.spawn(Box::new(job));
            self.maintenance.removing = Some(Removing { asked, outcome });
        }
    }

    /// Whether files of segments are being removed, or are about to be.
    pub(in crate::store) fn is_removing(&self) -> bool {
        let compaction = &self.maintenance.compaction;
        let is_unused = |segment: &Arc<Segment>| Arc::strong_count(segment) == 1;
        self.maintenance.removing.is_some()
            || compaction.removal_retry_at.is_none() && compaction.obsolete.first().is_some_and(is_unused)
    }

    /// Whether it is time to look for segments that have been kept for long enough.
    fn is_waste_due(&self, now: Monotonic) -> bool {
        match self.maintenance.compaction.waste {
            None => self.options.waste_retention > Duration::ZERO,
            Some((kept, looked_at)) => {
                let pause = if self.is_nearly_low() { LOOK_EVERY } else { WASTE_LOOK };
                kept > 0 && now.since(looked_at) >= pause
            }
        }
    }
}

/// Segments whose files are being removed.
pub(super) struct Removing {
    /// The oldest first, each with its first record.
    asked: Vec<(SegmentId, Jsn)>,
    outcome: Outcome<Removed>,
}

/// Segments whose names have gone from the journal, the first of those that were to go, and those that are kept aside.
pub(super) struct Removed {
    segments: usize,
    kept: usize,
}

/// Removes the files of segments, or puts them aside, each name durably before the next goes. Where one does not go, it
/// and the rest are tried again later, or at the next start, and what they cover is kept as long as they are there.
/// Then it removes what has been aside for long enough.
///
/// A file that is aside has the time when it was put there before its name, in milliseconds since 1970 and 16
/// hexadecimal digits. Nothing reads it: it is for people, who may open it as a segment.
struct RemoveSegments {
    folder: PathBuf,
    waste: PathBuf,
    segments: Vec<Arc<Segment>>,
    now_ms: u64,
    retention: Duration,
    /// What is aside goes before its time, the oldest first, until so many bytes are free.
    wanted: u64,
    outcome: Outcome<Removed>,
}

impl RemoveSegments {
    fn remove(&self, disk: &mut dyn Disk, segment: &Segment) -> Result<(), DiskError> {
        let name = segment::file_name(segment.id);
        let path = self.folder.join(&name);
        let gone = match self.put_aside(disk, &name, &path) {
            None => disk::run(disk, DiskOp::Remove { path }).map(drop),
            // Without room for its name it cannot be kept.
            Some(Err(error)) if error.kind == DiskErrorKind::NoSpace => {
                disk::run(disk, DiskOp::Remove { path }).map(drop)
            }
            Some(renamed) => renamed,
        };
        match gone {
            Err(error) if error.kind != DiskErrorKind::NotFound => return Err(error),
            _ => {}
        }
        disk::run(disk, DiskOp::SyncDir { path: self.folder.clone() })?;
        // The name is gone, and the handle was only read.
        disk::run(disk, DiskOp::Close { file: segment.file }).ok();
        Ok(())
    }

    /// Renames a segment into the folder where it is kept for a while, if that is wanted.
    fn put_aside(&self, disk: &mut dyn Disk, name: &str, path: &Path) -> Option<Result<(), DiskError>> {
        if self.retention == Duration::ZERO {
            return None;
        }
        if let Err(error) = disk::run(disk, DiskOp::CreateDir { path: self.waste.clone() }) {
            return Some(Err(error));
        }
        let to = self.waste.join(format!("{:016x}-{name}", self.now_ms));
        Some(disk::run(disk, DiskOp::Rename { from: path.to_path_buf(), to }).map(drop))
    }

    fn is_room_wanted(&self, disk: &mut dyn Disk) -> bool {
        self.wanted > 0 && disk::space(disk, &self.folder).is_ok_and(|free| free < self.wanted)
    }

    /// Removes what has been aside for long enough, or is in the way; tells how much is left. What cannot be removed is
    /// tried again.
    fn purge(&self, disk: &mut dyn Disk) -> usize {
        // No folder is no waste.
        let Ok(mut names) = disk::list(disk, &self.waste) else { return 0 };
        names.sort_unstable();
        let retention_ms = u64::try_from(self.retention.as_millis()).unwrap_or(u64::MAX);
        let is_over = |name: &str| {
            let aside_ms = name.split_once('-').and_then(|(at, _)| u64::from_str_radix(at, 16).ok());
            aside_ms.is_some_and(|at| at.saturating_add(retention_ms) <= self.now_ms)
        };
        let mut kept = 0;
        for name in names {
            let path = self.waste.join(&name);
            let goes = is_over(&name) || self.is_room_wanted(disk);
            let gone = goes && disk::run(disk, DiskOp::Remove { path }).is_ok();
            kept += usize::from(!gone);
        }
        kept
    }
}

impl Job for RemoveSegments {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        let done = self.segments.iter().take_while(|segment| self.remove(disk, segment).is_ok()).count();
        self.segments.clear();
        let kept = self.purge(disk);
        self.outcome.set(Removed { segments: done, kept });
        Progress::Done
    }
}

/// Removes the files of tables. One that stays, because of an error or a crash, is removed at the next start.
struct RemoveTables(Vec<Arc<Table>>);

impl Job for RemoveTables {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        for table in self.0.drain(..) {
            let closed = disk::run(disk, table.close_op());
            let removed = disk::run(disk, table.remove_op());
            drop((closed, removed));
        }
        Progress::Done
    }
}
