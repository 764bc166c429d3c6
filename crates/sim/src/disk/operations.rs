//! What each operation does to a simulated disk, and the faults that can befall it.

use super::config::Region;
use super::device::{Begun, Device, OpenFile, error};
use super::file::{ChangeNumber, SimFile};
use super::image::parts;
use super::tree::{Entry, Inode};
use crate::fault::{Fault, Odds};
use crate::seed::index_below;
use base::disk::{DiskAnswer, DiskOp, FileId, OpenMode};
use base::{DiskError, DiskErrorKind, Rng};
use bytes::Bytes;
use std::path::{Path, PathBuf};

type Answer = Result<DiskAnswer, DiskError>;

impl Device {
    /// Lets an operation take effect, faults included.
    pub(super) fn execute(&mut self, begun: Begun) -> Answer {
        let (file, fails) = (begun.file, begun.fails);
        match begun.op {
            DiskOp::Open { path, mode } => match fails {
                true => Err(io(&path, "cannot open")),
                false => self.open(&path, mode),
            },
            DiskOp::Close { file: id } => {
                self.open.remove(&id);
                self.sweep();
                file.map(|_| DiskAnswer::Done).ok_or_else(not_open)
            }
            DiskOp::Write { offset, ref data, room, sync, .. } => {
                let file = writable(file)?;
                let made = self.make_room(file.inode, room);
                let written = self.write(file.inode, offset, &data.joined(), fails)?;
                let own = made.unwrap_or(written);
                if sync { self.sync(file.inode, begun.after, Some(own), false) } else { Ok(DiskAnswer::Done) }
            }
            DiskOp::Sync { .. } => self.sync(file.ok_or_else(not_open)?.inode, begun.after, None, fails),
            DiskOp::Read { offset, len, .. } => {
                self.read(file.ok_or_else(not_open)?.inode, offset, len, fails)
            }
            DiskOp::Truncate { len, .. } => self.truncate(writable(file)?.inode, len, fails),
            DiskOp::SyncDir { path } => self.sync_dir(&path, begun.after, fails),
            DiskOp::List { path } => match self.tree.is_dir(&path) {
                _ if fails => Err(io(&path, "cannot list")),
                true => Ok(DiskAnswer::Names(self.tree.list(&path))),
                false => Err(missing(&path)),
            },
            DiskOp::Space { .. } => Ok(DiskAnswer::Space { free: self.free() }),
            DiskOp::Lock { path } => match self.locks.contains(&path) {
                true => Err(error(DiskErrorKind::Locked, &path, "another process has the lock")),
                false => {
                    self.find_or_make(&path)?;
                    self.locks.insert(path);
                    Ok(DiskAnswer::Done)
                }
            },
            DiskOp::Rename { from: path, .. }
            | DiskOp::Link { to: path, .. }
            | DiskOp::Remove { path }
            | DiskOp::CreateDir { path }
                if fails =>
            {
                Err(io(&path, "cannot change the directory"))
            }
            DiskOp::Rename { from, to } => self.rename(&from, &to),
            DiskOp::Link { from, to } => self.link(&from, &to),
            DiskOp::Remove { path } => self.remove(&path),
            DiskOp::CreateDir { path } => self.create_dir(&path),
        }
    }

    /// Lets an operation take effect in the moment of its process's death: without faults, and without a sync,
    /// which cannot have ended.
    pub(super) fn happen_unheard(&mut self, begun: Begun) {
        let file = begun.file.filter(|file| file.writable).map(|file| file.inode);
        let number = self.change();
        // Whether it works or meets an error, nobody is left to be told.
        match (begun.op, file) {
            (DiskOp::Write { offset, data, room, .. }, Some(inode)) => {
                self.make_room(inode, room);
                let number = self.change();
                self.file(inode).write(number, offset, data.joined());
            }
            (DiskOp::Truncate { len, .. }, Some(inode)) => self.file(inode).truncate(number, len),
            (DiskOp::Open { path, mode: OpenMode::Create }, _) => drop(self.open(&path, OpenMode::Create)),
            (DiskOp::Rename { from, to }, _) => drop(self.rename(&from, &to)),
            (DiskOp::Link { from, to }, _) => drop(self.link(&from, &to)),
            (DiskOp::Remove { path }, _) => drop(self.remove(&path)),
            (DiskOp::CreateDir { path }, _) => drop(self.create_dir(&path)),
            _ => {}
        }
    }

    pub(super) fn try_read(&mut self, file: FileId, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let inode = self.open.get(&file)?.inode;
        if self.config.odds.cold_read.fires(&mut self.rng) {
            self.counts.count("try-read cold");
            self.trace.fault(Fault::ColdRead, format_args!("{} f{}@{offset}", self.name, file.0));
            return None;
        }
        let mut len = self.file(inode).read(offset, buf);
        if len == 0 {
            return None;
        }
        if len > 1 && self.config.odds.short_read.fires(&mut self.rng) {
            len = 1 + index_below(&mut self.rng, len - 1);
            self.counts.count("try-read short");
            self.trace.fault(Fault::ShortRead, format_args!("{} f{}@{offset}+{len}", self.name, file.0));
        } else {
            self.counts.count("try-read");
        }
        self.counts.bytes_read += len as u64;
        Some(len)
    }

    fn open(&mut self, path: &Path, mode: OpenMode) -> Answer {
        let inode = match (self.tree.get(path), mode) {
            (Some(_), OpenMode::Create | OpenMode::CreatePrivate) => {
                return Err(error(DiskErrorKind::Exists, path, "it exists"));
            }
            (None, OpenMode::Create | OpenMode::CreatePrivate) => self.make_file(path)?,
            (Some(Entry::File(inode)), _) => inode,
            (Some(Entry::Dir), _) => return Err(io(path, "it is a directory")),
            (None, _) => return Err(missing(path)),
        };
        let file = FileId(u32::try_from(self.number()).expect("a world opens fewer files than that"));
        self.open.insert(file, OpenFile { inode, writable: mode != OpenMode::Read });
        Ok(DiskAnswer::Opened { file, len: self.file(inode).len() })
    }

    fn find_or_make(&mut self, path: &Path) -> Result<Inode, DiskError> {
        match self.tree.get(path) {
            Some(Entry::File(inode)) => Ok(inode),
            Some(Entry::Dir) => Err(io(path, "it is a directory")),
            None => self.make_file(path),
        }
    }

    fn make_file(&mut self, path: &Path) -> Result<Inode, DiskError> {
        if !path.parent().is_some_and(|dir| self.tree.is_dir(dir)) {
            return Err(missing(path));
        }
        let (inode, number) = (Inode(self.number()), self.change());
        self.files.insert(inode, SimFile::default());
        self.tree.put(number, path, Entry::File(inode));
        Ok(inode)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Answer {
        let Some(entry @ Entry::File(_)) = self.tree.get(from) else { return Err(missing(from)) };
        let number = self.change();
        self.tree.rename(number, from, to, entry);
        Ok(DiskAnswer::Done)
    }

    fn link(&mut self, from: &Path, to: &Path) -> Answer {
        let Some(entry @ Entry::File(_)) = self.tree.get(from) else { return Err(missing(from)) };
        if self.tree.get(to).is_some() {
            return Err(error(DiskErrorKind::Exists, to, "the name is taken"));
        }
        let number = self.change();
        self.tree.put(number, to, entry);
        Ok(DiskAnswer::Done)
    }

    fn remove(&mut self, path: &Path) -> Answer {
        let Some(Entry::File(_)) = self.tree.get(path) else { return Err(missing(path)) };
        let number = self.change();
        self.tree.remove(number, path);
        Ok(DiskAnswer::Done)
    }

    fn create_dir(&mut self, path: &Path) -> Answer {
        let above: Vec<&Path> = path.ancestors().collect();
        for dir in above.into_iter().rev() {
            match self.tree.get(dir) {
                Some(Entry::Dir) => {}
                Some(Entry::File(_)) => return Err(io(dir, "it is a file")),
                None => {
                    let number = self.change();
                    self.tree.put(number, dir, Entry::Dir);
                }
            }
        }
        Ok(DiskAnswer::Done)
    }

    /// Writes, not durably, and returns the number of its first change.
    fn write(
        &mut self,
        inode: Inode,
        offset: u64,
        data: &Bytes,
        fails: bool,
    ) -> Result<ChangeNumber, DiskError> {
        let odds = self.config.odds;
        let place = Place { inode, offset, len: data.len() };
        let own = self.change();
        self.counts.bytes_written += data.len() as u64;
        let full = self.is_full(inode, offset + data.len() as u64);
        if let Some(path) = self.fails(full, odds.no_space, Fault::NoSpace, place) {
            self.write_in_part(inode, own, offset, data);
            return Err(error(DiskErrorKind::NoSpace, &path, "no space is left"));
        }
        if let Some(path) = self.fails(fails, odds.write_error, Fault::WriteError, place) {
            self.write_in_part(inode, own, offset, data);
            return Err(io(&path, "the write failed"));
        }
        if self.spoils(odds.misdirect, Fault::Misdirect, place) && self.misdirect(inode, offset, data) {
            return Ok(own);
        }
        let mut data = data.clone();
        if self.spoils(odds.bit_flip, Fault::BitFlip, place) && !data.is_empty() {
            data = self.flipped(inode, offset, &data);
        }
        self.file(inode).write(own, offset, data);
        Ok(own)
    }

    /// Makes room if there is some, and tells the change's number. Faults keep to the write behind it.
    fn make_room(&mut self, inode: Inode, len: u64) -> Option<ChangeNumber> {
        if len <= self.file(inode).len() || self.is_full(inode, len) {
            return None;
        }
        let number = self.change();
        self.file(inode).make_room(number, len);
        Some(number)
    }

    fn write_in_part(&mut self, inode: Inode, number: ChangeNumber, offset: u64, data: &Bytes) {
        let part = data.slice(..index_below(&mut self.rng, data.len() + 1));
        self.file(inode).write(number, offset, part);
    }

    fn flipped(&mut self, inode: Inode, offset: u64, data: &Bytes) -> Bytes {
        let mut bytes = data.to_vec();
        let at = index_below(&mut self.rng, bytes.len());
        bytes[at] ^= 1 << self.rng.below(8);
        let region = self.region(Place { inode, offset: offset + at as u64, len: 1 });
        self.note_damage(Fault::BitFlip, region);
        bytes.into()
    }

    /// Writes all but one block, and that one in another block's place; not if there is no such place.
    fn misdirect(&mut self, inode: Inode, offset: u64, data: &Bytes) -> bool {
        let block_len = self.config.block_len;
        let lens = self.files.iter().map(|(inode, file)| (*inode, file.len()));
        let targets: Vec<_> = lens.filter(|(_, len)| *len > 0).collect();
        let blocks: Vec<_> = parts(offset, data.len(), block_len).collect();
        if targets.is_empty() || blocks.is_empty() {
            return false;
        }
        let part = blocks[index_below(&mut self.rng, blocks.len())];
        let (target, len) = targets[index_below(&mut self.rng, targets.len())];
        let at = block_len * self.rng.below(len.div_ceil(block_len));
        let mut image = vec![0; usize::try_from(block_len).expect("a block fits memory")];
        let hit = self.region(Place { inode: target, offset: at, len: image.len() });
        if (target, at / block_len) == (inode, part.block)
            || !self.config.atlas.allows(Fault::Misdirect, &hit)
        {
            return false;
        }
        self.file(inode).read(part.block * block_len, &mut image);
        let within = usize::try_from(part.offset % block_len).expect("a block fits memory");
        image[within..within + part.len].copy_from_slice(&data[part.start..part.start + part.len]);
        self.file(target).damage(at, &image);
        for piece in blocks.iter().filter(|piece| piece.block != part.block) {
            let (number, data) = (self.change(), data.slice(piece.start..piece.start + piece.len));
            self.file(inode).write(number, piece.offset, data);
        }
        let missed = self.region(Place { inode, offset: part.offset, len: part.len });
        self.note_damage(Fault::Misdirect, hit);
        self.damage.push((Fault::Misdirect, missed));
        true
    }

    fn truncate(&mut self, inode: Inode, len: u64, fails: bool) -> Answer {
        let place = Place { inode, offset: len, len: 0 };
        if let Some(path) = self.fails(fails, self.config.odds.write_error, Fault::WriteError, place) {
            return Err(io(&path, "the truncation failed"));
        }
        let number = self.change();
        self.file(inode).truncate(number, len);
        Ok(DiskAnswer::Done)
    }

    fn sync(&mut self, inode: Inode, after: ChangeNumber, own: Option<ChangeNumber>, fails: bool) -> Answer {
        let place = Place { inode, offset: 0, len: 0 };
        if let Some(path) = self.fails(fails, self.config.odds.sync_error, Fault::SyncError, place) {
            let rule = self.crash_rule();
            let file = self.files.get_mut(&inode).expect(FILE_LIVES);
            file.sync_failed(after, own, rule, &mut self.rng);
            return Err(io(&path, "the sync failed"));
        }
        self.file(inode).sync(after, own);
        Ok(DiskAnswer::Done)
    }

    fn sync_dir(&mut self, path: &Path, after: ChangeNumber, fails: bool) -> Answer {
        if !self.tree.is_dir(path) {
            return Err(missing(path));
        }
        let region = Region { path: path.to_path_buf(), offset: 0, len: 0 };
        let drawn = self.config.odds.sync_error.fires(&mut self.rng);
        if fails || drawn && self.config.atlas.allows(Fault::SyncError, &region) {
            self.trace.fault(Fault::SyncError, format_args!("{} {region}", self.name));
            self.tree.sync_failed(path, after, &mut self.rng);
            return Err(io(path, "the sync failed"));
        }
        self.tree.sync(path, after);
        self.sweep();
        Ok(DiskAnswer::Done)
    }

    fn read(&mut self, inode: Inode, offset: u64, len: usize, fails: bool) -> Answer {
        let place = Place { inode, offset, len };
        if let Some(path) = self.fails(fails, self.config.odds.read_error, Fault::ReadError, place) {
            return Err(io(&path, "the read failed"));
        }
        let file = self.file(inode);
        let left = usize::try_from(file.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut buf = vec![0; len.min(left)];
        file.read(offset, &mut buf);
        self.counts.bytes_read += buf.len() as u64;
        Ok(DiskAnswer::Data(buf.into()))
    }

    /// Whether an operation fails: because it must, or by odds where the atlas allows it. Tells whose name the
    /// error is to carry.
    fn fails(&mut self, must: bool, odds: Odds, fault: Fault, place: Place) -> Option<PathBuf> {
        if must || self.spoils(odds, fault, place) {
            let region = self.region(place);
            self.trace.fault(fault, format_args!("{} {region}", self.name));
            return Some(region.path);
        }
        None
    }

    fn spoils(&mut self, odds: Odds, fault: Fault, place: Place) -> bool {
        odds.fires(&mut self.rng) && self.config.atlas.allows(fault, &self.region(place))
    }

    /// Whether growing the file to `len` would take more space than there is.
    fn is_full(&self, inode: Inode, len: u64) -> bool {
        let had = self.files.get(&inode).map_or(0, SimFile::len);
        len.saturating_sub(had) > self.free()
    }

    fn free(&self) -> u64 {
        let taken = || self.files.values().map(SimFile::allocated).sum();
        self.config.space_max.map_or(u64::MAX, |max| max.saturating_sub(taken()))
    }

    fn region(&self, place: Place) -> Region {
        let name = self.tree.files().find(|(_, named)| *named == place.inode);
        let path = name.map_or_else(|| PathBuf::from("(removed)"), |(path, _)| path.to_path_buf());
        Region { path, offset: place.offset, len: place.len as u64 }
    }

    fn file(&mut self, inode: Inode) -> &mut SimFile {
        self.files.get_mut(&inode).expect(FILE_LIVES)
    }
}

const FILE_LIVES: &str = "a file lives while it is open, has a name or an operation under way";

/// A stretch of a file, whatever its name.
#[derive(Clone, Copy)]
struct Place {
    inode: Inode,
    offset: u64,
    len: usize,
}

fn writable(file: Option<OpenFile>) -> Result<OpenFile, DiskError> {
    let file = file.ok_or_else(not_open)?;
    if file.writable { Ok(file) } else { Err(io(Path::new("?"), "the file is open to read only")) }
}

fn not_open() -> DiskError {
    io(Path::new("?"), "the file is not open")
}

fn missing(path: &Path) -> DiskError {
    error(DiskErrorKind::NotFound, path, "no such file or directory")
}

fn io(path: &Path, message: &str) -> DiskError {
    error(DiskErrorKind::Io, path, message)
}
