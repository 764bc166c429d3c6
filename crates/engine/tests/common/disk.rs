//! A disk in memory that can be killed, lose power, be damaged and fail. The simulator's disk is stricter about what a
//! crash may leave; this one is for many small stores.

use base::disk::{Completion, DiskAnswer, DiskError, DiskErrorKind, DiskOp, FileId, OpenMode, Token};
use base::{Disk, Rng};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// What reaches a disk as a whole.
const BLOCK: usize = 512;

#[derive(Clone, Default)]
struct File {
    bytes: Vec<u8>,
    /// What the last sync made durable.
    synced: Vec<u8>,
}

#[derive(Default)]
struct State {
    files: Vec<File>,
    names: BTreeMap<PathBuf, usize>,
    /// As of the last sync of each name's directory.
    durable_names: BTreeMap<PathBuf, usize>,
    open: BTreeMap<FileId, usize>,
    opened: u32,
    locked: BTreeSet<PathBuf>,
    ops: u64,
    announced: u64,
    fail_from: u64,
    fail_until: u64,
    /// Operations that need room, and from which to which there is none.
    takes: u64,
    full_from: u64,
    full_until: u64,
    /// Bytes that all files together may have.
    space: Option<u64>,
    /// Nobody is told how many of them are left.
    hides_space: bool,
    refused: u64,
    /// Writes whose sync made a new length durable.
    lengthened: u64,
    /// Files that may be open at a time.
    handles_max: Option<usize>,
    tries: u64,
}

/// A handle; clones are of the same disk.
#[derive(Clone, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
    finished: Vec<Completion>,
}

impl MemoryDisk {
    /// What is there after the process was killed: everything that was written.
    pub fn after_kill(&self) -> MemoryDisk {
        let state = self.state();
        let (files, names) = (state.files.clone(), state.names.clone());
        MemoryDisk::of(files, names)
    }

    /// What is there after a power cut: what was synced.
    pub fn after_power_cut(&self) -> MemoryDisk {
        let state = self.state();
        let lost = |file: &File| File { bytes: file.synced.clone(), synced: file.synced.clone() };
        MemoryDisk::of(state.files.iter().map(lost).collect(), state.durable_names.clone())
    }

    /// The same, with some of what was not synced: each block of it is there or not, in one file and another.
    pub fn after_uneven_power_cut(&self, rng: &mut dyn Rng) -> MemoryDisk {
        let state = self.state();
        let mut left = |file: &File| {
            let mut bytes = file.synced.clone();
            // Of some files most is there, and of others little.
            let (of, most) = (2 + rng.below(30), rng.chance(1, 2));
            for (at, block) in (0..).step_by(BLOCK).zip(file.bytes.chunks(BLOCK)) {
                if bytes.get(at..at + block.len()) == Some(block) || rng.chance(1, of) == most {
                    continue;
                }
                bytes.resize(bytes.len().max(at + block.len()), 0);
                bytes[at..at + block.len()].copy_from_slice(block);
            }
            File { synced: bytes.clone(), bytes }
        };
        MemoryDisk::of(state.files.iter().map(&mut left).collect(), state.durable_names.clone())
    }

    fn of(files: Vec<File>, names: BTreeMap<PathBuf, usize>) -> MemoryDisk {
        let state = State { files, durable_names: names.clone(), names, ..State::default() };
        MemoryDisk { state: Arc::new(Mutex::new(state)), finished: Vec::new() }
    }

    /// Lets `count` operations fail, from the one numbered `from` on; the first is 1.
    pub fn fail(&self, from: u64, count: u64) {
        let mut state = self.state();
        (state.fail_from, state.fail_until) = (from, from.saturating_add(count));
    }

    /// Lets `count` operations that need room find none, from the one numbered `from` on; the first is 1.
    pub fn fill(&self, from: u64, count: u64) {
        let mut state = self.state();
        (state.full_from, state.full_until) = (from, from.saturating_add(count));
    }

    /// Bounds the files that may be open at a time.
    pub fn bound_handles(&self, handles_max: usize) {
        self.state().handles_max = Some(handles_max);
    }

    /// Bounds the bytes that all files together may have.
    pub fn bound(&self, space: Option<u64>) {
        self.state().space = space;
    }

    /// Tells nobody how many bytes are left.
    pub fn hide_space(&self) {
        self.state().hides_space = true;
    }

    /// How many operations that need room have been asked for, and how many did not find it.
    pub fn takes(&self) -> (u64, u64) {
        let state = self.state();
        (state.takes, state.refused)
    }

    /// How many writes there were whose sync made a new length durable.
    pub fn lengthened(&self) -> u64 {
        self.state().lengthened
    }

    /// The file's bytes.
    pub fn bytes(&self, path: &Path) -> Vec<u8> {
        let state = self.state();
        state.files[state.names[path]].bytes.clone()
    }

    /// Bytes of which somebody said that they would be read.
    pub fn announced(&self) -> u64 {
        self.state().announced
    }

    /// How many operations have been asked for.
    pub fn ops(&self) -> u64 {
        self.state().ops
    }

    /// All files.
    pub fn names(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }

    /// Changes a file behind everybody's back.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        let file = state.names[path];
        change(&mut state.files[file].bytes);
    }

    /// Removes a file behind everybody's back.
    pub fn remove(&self, path: &Path) {
        let mut state = self.state();
        state.names.remove(path);
        state.durable_names.remove(path);
    }

    /// Puts a file of another disk in its place.
    pub fn copy(&self, from: &MemoryDisk, path: &Path) {
        let (other, mut state) = (from.state(), self.state());
        state.files.push(other.files[other.names[path]].clone());
        let number = state.files.len() - 1;
        state.names.insert(path.to_path_buf(), number);
        state.durable_names.insert(path.to_path_buf(), number);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    fn perform(&mut self, op: DiskOp) -> Result<DiskAnswer, DiskError> {
        self.ops += 1;
        if (self.fail_from..self.fail_until).contains(&self.ops) {
            return Err(error(DiskErrorKind::Io, Path::new("injected")));
        }
        if self.is_full_for(&op) {
            self.refused += 1;
            // A part may be there.
            if let DiskOp::Write { file, offset, data, .. } = op {
                let part = data.joined().slice(..data.len() / 2);
                self.write(file, offset, &part);
            }
            return Err(error(DiskErrorKind::NoSpace, Path::new("full")));
        }
        match op {
            DiskOp::Space { path } if self.hides_space => return Err(error(DiskErrorKind::Io, &path)),
            DiskOp::Space { .. } => return Ok(DiskAnswer::Space { free: self.free() }),
            DiskOp::Open { path, mode } => return self.open(&path, mode),
            DiskOp::Close { file } => drop(self.open.remove(&file)),
            DiskOp::Write { file, offset, data, room, sync } => {
                self.make_room(file, room as usize);
                self.write(file, offset, &data.joined());
                let file = &mut self.files[self.open[&file]];
                if sync {
                    self.lengthened += u64::from(file.synced.len() != file.bytes.len());
                    file.synced.clone_from(&file.bytes);
                }
            }
            DiskOp::Sync { file } => {
                let file = &mut self.files[self.open[&file]];
                file.synced.clone_from(&file.bytes);
            }
            DiskOp::Truncate { file, len } => self.files[self.open[&file]].bytes.resize(len as usize, 0),
            DiskOp::Read { file, offset, len } => {
                let bytes = &self.files[self.open[&file]].bytes;
                let start = bytes.len().min(offset as usize);
                let end = bytes.len().min(start.saturating_add(len));
                return Ok(DiskAnswer::Data(Bytes::copy_from_slice(&bytes[start..end])));
            }
            DiskOp::Rename { from, to } => {
                let file = self.names.remove(&from).ok_or_else(|| error(DiskErrorKind::NotFound, &from))?;
                self.names.insert(to, file);
            }
            DiskOp::Link { from, to } => {
                let file = *self.names.get(&from).ok_or_else(|| error(DiskErrorKind::NotFound, &from))?;
                if self.names.contains_key(&to) {
                    return Err(error(DiskErrorKind::Exists, &to));
                }
                self.names.insert(to, file);
            }
            DiskOp::Remove { path } => {
                self.names.remove(&path).ok_or_else(|| error(DiskErrorKind::NotFound, &path))?;
            }
            DiskOp::SyncDir { path } => {
                self.durable_names.retain(|name, _| name.parent() != Some(&path));
                let here = self.names.iter().filter(|(name, _)| name.parent() == Some(&path));
                self.durable_names.extend(here.map(|(name, file)| (name.clone(), *file)));
            }
            DiskOp::List { path } => {
                let here = self.names.keys().filter(|name| name.parent() == Some(&path));
                let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
                return Ok(DiskAnswer::Names(here.map(name).collect()));
            }
            DiskOp::Lock { path } => {
                if !self.locked.insert(path.clone()) {
                    return Err(error(DiskErrorKind::Locked, &path));
                }
                self.files.push(File::default());
                self.names.entry(path).or_insert(self.files.len() - 1);
            }
            DiskOp::CreateDir { .. } => {}
        }
        Ok(DiskAnswer::Done)
    }

    fn write(&mut self, file: FileId, offset: u64, data: &[u8]) {
        let file = &mut self.files[self.open[&file]];
        let end = offset as usize + data.len();
        file.bytes.resize(file.bytes.len().max(end), 0);
        file.bytes[offset as usize..end].copy_from_slice(data);
    }

    /// Extends a file, if there is so much room.
    fn make_room(&mut self, file: FileId, len: usize) {
        let free = self.free();
        let bytes = &mut self.files[self.open[&file]].bytes;
        if len > bytes.len() && (len - bytes.len()) as u64 <= free {
            bytes.resize(len, 0);
        }
    }

    fn free(&self) -> u64 {
        let taken = || self.names.values().map(|&file| self.files[file].bytes.len() as u64).sum();
        self.space.map_or(u64::MAX, |space| space.saturating_sub(taken()))
    }

    fn is_full_for(&mut self, op: &DiskOp) -> bool {
        let needs = match op {
            DiskOp::Write { data, .. } => data.len() as u64,
            DiskOp::Open { mode: OpenMode::Create, .. }
            | DiskOp::CreateDir { .. }
            | DiskOp::Rename { .. }
            | DiskOp::Link { .. }
            | DiskOp::Truncate { .. } => 0,
            _ => return false,
        };
        self.takes += 1;
        (self.full_from..self.full_until).contains(&self.takes) || needs > self.free()
    }

    fn open(&mut self, path: &Path, mode: OpenMode) -> Result<DiskAnswer, DiskError> {
        match (mode, self.names.contains_key(path)) {
            (OpenMode::Create | OpenMode::CreatePrivate, true) => {
                return Err(error(DiskErrorKind::Exists, path));
            }
            (OpenMode::Create | OpenMode::CreatePrivate, false) => {
                self.files.push(File::default());
                self.names.insert(path.to_path_buf(), self.files.len() - 1);
            }
            (_, false) => return Err(error(DiskErrorKind::NotFound, path)),
            (_, true) => {}
        }
        if self.handles_max.is_some_and(|max| self.open.len() >= max) {
            return Err(error(DiskErrorKind::NoHandles, path));
        }
        self.opened += 1;
        let (file, number) = (FileId(self.opened), self.names[path]);
        self.open.insert(file, number);
        Ok(DiskAnswer::Opened { file, len: self.files[number].bytes.len() as u64 })
    }
}

impl Disk for MemoryDisk {
    fn submit(&mut self, op: DiskOp, token: Token) {
        let result = self.state().perform(op);
        self.finished.push(Completion { token, result });
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.finished);
    }

    fn wait(&mut self) {}

    /// Two in three are in the page cache.
    fn try_read(&mut self, file: FileId, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let mut state = self.state();
        state.tries += 1;
        let bytes = &state.files[*state.open.get(&file)?].bytes;
        let end = (offset as usize).checked_add(buf.len()).filter(|&end| end <= bytes.len())?;
        if state.tries.is_multiple_of(3) {
            return None;
        }
        buf.copy_from_slice(&bytes[offset as usize..end]);
        Some(buf.len())
    }

    fn will_read(&mut self, _: FileId, _: u64, len: usize) {
        self.state().announced += len as u64;
    }
}

fn error(kind: DiskErrorKind, path: &Path) -> DiskError {
    DiskError { kind, path: path.display().to_string(), message: format!("{kind:?}") }
}
