//! A disk in memory on which every operation is over when `submit` returns: no file system and no cache of the
//! kernel decides which way the code under measurement goes.
//!
//! It promises nothing about crashes and does not check its callers; the simulated disk does both, and is not
//! used because its own work would be most of what is counted.

use base::disk::{Completion, Disk, DiskAnswer, DiskError, DiskErrorKind, DiskOp, FileId, OpenMode, Token};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A handle. Clones are of the same disk.
#[derive(Clone, Default)]
pub struct MemoryDisk {
    files: Arc<Mutex<Files>>,
    finished: Vec<Completion>,
}

#[derive(Default)]
struct Files {
    by_name: BTreeMap<PathBuf, FileId>,
    /// By id; ids are never used again, and what has no name any more stays.
    contents: Vec<Vec<u8>>,
}

impl MemoryDisk {
    /// Another handle, as the engine wants one for each thread.
    pub fn handle(&self) -> Box<dyn Disk> {
        Box::new(MemoryDisk { files: Arc::clone(&self.files), finished: Vec::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn execute(&mut self, op: DiskOp) -> Result<DiskAnswer, DiskError> {
        match op {
            DiskOp::Open { path, mode } => return self.open(path, mode),
            DiskOp::Read { file, offset, len } => {
                let bytes = self.content(file);
                let from = index(offset).min(bytes.len());
                let to = from.saturating_add(len).min(bytes.len());
                return Ok(DiskAnswer::Data(bytes[from..to].to_vec().into()));
            }
            DiskOp::List { path } => return Ok(DiskAnswer::Names(self.list(&path))),
            // More than any case writes.
            DiskOp::Space { .. } => return Ok(DiskAnswer::Space { free: 1 << 40 }),
            DiskOp::Write { file, offset, data, .. } => {
                let (bytes, from) = (self.content(file), index(offset));
                let to = from + data.len();
                if bytes.len() < to {
                    bytes.resize(to, 0);
                }
                bytes[from..to].copy_from_slice(&data.joined());
            }
            DiskOp::Truncate { file, len } => self.content(file).resize(index(len), 0),
            DiskOp::Rename { from, to } => {
                let file = self.by_name.remove(&from).ok_or_else(|| missing(&from))?;
                self.by_name.insert(to, file);
            }
            DiskOp::Remove { path } => {
                self.by_name.remove(&path).ok_or_else(|| missing(&path))?;
            }
            _ => {}
        }
        Ok(DiskAnswer::Done)
    }

    fn open(&mut self, path: PathBuf, mode: OpenMode) -> Result<DiskAnswer, DiskError> {
        let file = match (self.by_name.get(&path), mode) {
            (Some(_), OpenMode::Create) => return Err(failed(DiskErrorKind::Exists, &path)),
            (Some(&file), _) => file,
            (None, OpenMode::Create) => {
                let file = FileId(u32::try_from(self.contents.len()).expect("there are few files"));
                self.contents.push(Vec::new());
                self.by_name.insert(path, file);
                file
            }
            (None, _) => return Err(missing(&path)),
        };
        Ok(DiskAnswer::Opened { file, len: self.content(file).len() as u64 })
    }

    fn list(&self, folder: &Path) -> Vec<String> {
        let names = self.by_name.keys().filter(|path| path.parent() == Some(folder));
        names.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect()
    }

    fn content(&mut self, file: FileId) -> &mut Vec<u8> {
        &mut self.contents[file.0 as usize]
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("a file in memory is far below 4 GiB")
}

fn missing(path: &Path) -> DiskError {
    failed(DiskErrorKind::NotFound, path)
}

fn failed(kind: DiskErrorKind, path: &Path) -> DiskError {
    DiskError { kind, path: path.display().to_string(), message: format!("{kind:?}") }
}

impl Disk for MemoryDisk {
    fn submit(&mut self, op: DiskOp, token: Token) {
        let result = self.lock().execute(op);
        self.finished.push(Completion { token, result });
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.finished);
    }

    fn wait(&mut self) {}

    fn try_read(&mut self, file: FileId, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let mut files = self.lock();
        let bytes = files.content(file);
        let from = index(offset).min(bytes.len());
        let len = buf.len().min(bytes.len() - from);
        buf[..len].copy_from_slice(&bytes[from..from + len]);
        Some(len)
    }
}
