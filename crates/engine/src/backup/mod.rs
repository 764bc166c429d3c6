//! Which files make up a store, for a backup of it, and how such files become a store again.
//!
//! A backup is whole files under their own names, `journal/...` and `tables/...`, and a manifest that names them. All
//! but a few of them never change again ([`StoreFile::is_fixed`]), so a second name for them is as good as a copy, and
//! what an earlier backup of the same store has need not be copied again.
//!
//! * Of an open store: [`Store::begin_backup`](crate::Store::begin_backup), a snapshot that holds its files.
//! * Of one that is stopped: [`StoreFiles::of_stopped`].
//! * [`renewed`]: the manifest of the store that is made of them elsewhere, which is another one: two that go on from
//!   the same past must not number their versions as one.
//!
//! Left out: where backups lie, checksums over files, and what belongs to a node: crate `backup`.

use crate::error::Error;
use crate::journal::segment::{self, SegmentId};
use crate::manifest::{self, MANIFEST_COPY_FILE, MANIFEST_FILE, ManifestState, Version};
use crate::store::{LEASE_COUNTERS, LOCK_FILE, Segments, TABLES_DIR, WHOLE_FILE};
use base::Disk;
use base::disk::{self, DiskErrorKind, DiskOp};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folders of a store that hold a backup's files.
pub const FOLDERS: [&str; 2] = [segment::FOLDER, TABLES_DIR];

/// The file that says that the journal has every value. A backup has it if the store has it when it is made.
pub const JOURNAL_IS_WHOLE: &str = WHOLE_FILE;

/// The names under which a store has its manifest.
pub const MANIFEST_FILES: [&str; 2] = [MANIFEST_FILE, MANIFEST_COPY_FILE];

/// A file of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFile {
    /// Its name, relative to the store's folder.
    pub name: String,
    /// Whether nothing is written to it any more, nor cut from it, by whichever store has it.
    pub is_fixed: bool,
}

/// What a store is made up of at one moment. As long as this is held, the store keeps the files.
pub struct StoreFiles {
    dir: PathBuf,
    manifest: ManifestState,
    files: Vec<StoreFile>,
    _shared: Option<(Arc<Version>, Arc<Segments>)>,
}

impl StoreFiles {
    /// Those of the store that is open in `dir`: of the segments, those that the manifest names.
    pub(crate) fn of_open(
        dir: &Path,
        manifest: ManifestState,
        version: Arc<Version>,
        segments: Arc<Segments>,
    ) -> StoreFiles {
        let named = |id| manifest.segments.iter().any(|record| record.id == id);
        let there = segments.iter().filter(|segment| named(segment.id.0) && !segment.is_missing());
        let tables = version.tables().map(|(_, table)| table_name(&table.id().file_name()));
        let names = there.map(|segment| segment::path_in_store(segment.id)).chain(tables);
        let files = names.map(|name| StoreFile { name, is_fixed: true }).collect();
        StoreFiles { dir: dir.to_path_buf(), manifest, files, _shared: Some((version, segments)) }
    }

    /// Those of a store that nobody has open; `None` if there is none in `dir`. It stays locked until `disk` and its
    /// other handles are dropped. After an unclean stop the next start may cut what the journal ends with, so that part
    /// of it is not fixed. Blocks.
    ///
    /// # Errors
    /// If it is open elsewhere, or its manifest cannot be read.
    pub fn of_stopped(disk: &mut dyn Disk, dir: &Path) -> Result<Option<StoreFiles>, Error> {
        let Some(manifest) = manifest::read(disk, dir)? else { return Ok(None) };
        disk::run(disk, DiskOp::Lock { path: dir.join(LOCK_FILE) })?;
        let named = |id: SegmentId| manifest.segments.iter().any(|record| record.id == id.0);
        let mut files = Vec::new();
        for name in disk::list(disk, &dir.join(segment::FOLDER))? {
            let Some(id) = segment::parse_file_name(&name) else { continue };
            let is_newer = !id.is_compacted() && id.0 >= manifest.replay_position.segment;
            if is_newer || named(id) {
                let is_fixed = !is_newer || manifest.clean.is_some();
                files.push(StoreFile { name: segment::path_in_store(id), is_fixed });
            }
        }
        for table in manifest.levels.iter().flatten() {
            let name = table_name(&table.id.file_name());
            match disk::open(disk, &dir.join(&name), disk::OpenMode::Read) {
                Ok((file, _)) => disk::run(disk, DiskOp::Close { file })?,
                Err(error) if error.kind == DiskErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            files.push(StoreFile { name, is_fixed: true });
        }
        Ok(Some(StoreFiles { dir: dir.to_path_buf(), manifest, files, _shared: None }))
    }

    /// The store's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The manifest that names the files.
    pub fn manifest(&self) -> &ManifestState {
        &self.manifest
    }

    /// The files beside the manifest.
    pub fn files(&self) -> &[StoreFile] {
        &self.files
    }

    pub(crate) fn has_segment(&self, id: SegmentId) -> bool {
        self.manifest.segments.iter().any(|record| record.id == id.0)
    }
}

impl std::fmt::Debug for StoreFiles {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("StoreFiles").field("dir", &self.dir).field("files", &self.files.len()).finish()
    }
}

/// The manifest of a store that is made of a backup with this one: another store, so with an incarnation of its own.
/// What the backup's store gives out of dots from then on, and what this one does, is never the same.
pub fn renewed(mut manifest: ManifestState, incarnation: u64) -> ManifestState {
    // Kept as well as the incarnation changed: whoever has the old one's dots finds none of them here.
    if let Some(clean) = manifest.clean.as_mut() {
        clean.dot_counter = manifest.dot_lease_end;
    }
    manifest.dot_lease_end += LEASE_COUNTERS;
    // What its groups have told others since the backup was made is not here.
    if let Some(groups) = &mut manifest.groups {
        groups.may_be_lost = true;
    }
    ManifestState { incarnation, ..manifest }
}

fn table_name(file_name: &str) -> String {
    format!("{TABLES_DIR}/{file_name}")
}
