//! Opening: the files, and the index from all blocks in the order of the log.

use super::block::{
    BLOCK_HEADER_BYTES, Content, END_BYTES, Kind, Life, SUPERBLOCK_BYTES, Superblock, padded,
};
use super::index::{ALIGN, BLOCK_BYTES_MAX, Place};
use super::{BLOCKS, Block, Hash, Newest, SUPERBLOCK, State, damaged, failed};
use crate::error::Error;
use crate::folder;
use base::Rng;
use base::disk::{self, Disk, DiskErrorKind, DiskOp, FileId, OpenMode};
use std::path::Path;

/// Opens the files of the store in `folder`, made with blocks of so many bytes if there is none: what it was made with,
/// its blocks, and how long they are.
pub(super) fn files(
    disk: &mut dyn Disk,
    folder: &Path,
    block_bytes: u32,
    rng: &mut dyn Rng,
) -> Result<(Superblock, FileId, u64), Error> {
    folder::prepare(disk, folder).map_err(|error| failed(&error))?;
    let path = folder.join(SUPERBLOCK);
    match disk::open(disk, &path, OpenMode::Read) {
        Ok((file, _)) => {
            let bytes = disk::read(disk, file, 0, SUPERBLOCK_BYTES + 1).map_err(|error| failed(&error))?;
            disk::run(disk, DiskOp::Close { file }).map_err(|error| failed(&error))?;
            let superblock = Superblock::parse(&bytes).map_err(|version| match version {
                0 => Error::damaged(SUPERBLOCK, "its checksum"),
                version => Error::Refused(format!("{SUPERBLOCK}: version {version} is newer")),
            })?;
            let least = (BLOCK_HEADER_BYTES + END_BYTES) as u32;
            let is_aligned = (superblock.block_bytes as usize).is_multiple_of(ALIGN);
            if !is_aligned || !(least..=BLOCK_BYTES_MAX).contains(&superblock.block_bytes) {
                return Err(Error::damaged(SUPERBLOCK, "a length of blocks that is none"));
            }
            let (file, len) = disk::open(disk, &folder.join(BLOCKS), OpenMode::Write).map_err(|error| {
                match error.kind {
                    DiskErrorKind::NotFound => Error::damaged(BLOCKS, "it is not there"),
                    _ => failed(&error),
                }
            })?;
            Ok((superblock, file, len))
        }
        Err(error) if error.kind == DiskErrorKind::NotFound => {
            let superblock = Superblock::new(block_bytes, rng.next_u64());
            let file = make(disk, folder, &superblock)?;
            Ok((superblock, file, 0))
        }
        Err(error) => Err(failed(&error)),
    }
}

/// Makes the files of a store: the blocks first, so that with a superblock they are there.
fn make(disk: &mut dyn Disk, folder: &Path, superblock: &Superblock) -> Result<FileId, Error> {
    let path = folder.join(BLOCKS);
    let opened = match disk::open(disk, &path, OpenMode::Create) {
        // A crash came between the two. Without a superblock nothing was ever written to it.
        Err(error) if error.kind == DiskErrorKind::Exists => disk::open(disk, &path, OpenMode::Write),
        opened => opened,
    };
    let (file, len) = opened.map_err(|error| failed(&error))?;
    if len > 0 {
        return Err(Error::damaged(SUPERBLOCK, "it is not there"));
    }
    disk::run(disk, DiskOp::SyncDir { path: folder.to_path_buf() }).map_err(|error| failed(&error))?;
    let replaced = disk::replace_file(disk, &folder.join(SUPERBLOCK), superblock.encode());
    replaced.map_err(|error| failed(&error))?;
    Ok(file)
}

impl Hash {
    /// Reads the blocks, which are `len` bytes long, and ends the newest one where a crash has not left it whole.
    pub(super) fn load(&mut self, len: u64) -> Result<(), Error> {
        let count = len.div_ceil(self.superblock.block_bytes.into());
        let count = u32::try_from(count).map_err(|_| Error::damaged(BLOCKS, "it is too long"))?;
        let mut lives: Vec<Life> = Vec::new();
        for number in 0..count {
            let header = self.read_at(number, 0, BLOCK_HEADER_BYTES)?;
            let seq = self.superblock.parse_header(number, &header);
            lives.extend(seq.map(|seq| self.superblock.life(number, seq)));
        }
        lives.sort_unstable_by_key(|life| life.seq);
        if let Some(twice) = lives.windows(2).find(|two| two[0].seq == two[1].seq) {
            return Err(damaged(twice[1].block, 0, "two blocks are the same part of the log"));
        }
        self.blocks = vec![Block { state: State::Blank, live_bytes: 0 }; count as usize];
        let newest = match lives.last() {
            Some(&newest) => newest,
            None => return self.check_next(0, &lives),
        };
        self.seq = newest.seq;
        let bytes = self.read_block(newest.block)?;
        let content = newest.read(&bytes, true);
        match content.next {
            Some(next) => {
                // The system alone may have the end, from a process that was killed before its sync. The next block is
                // begun where this end says so.
                self.run(DiskOp::Sync { file: self.file })?;
                self.check_next(next, &lives)?;
                // What it has is covered by what is behind it, and may be written over in part.
                lives.retain(|life| life.block != next);
            }
            None => {
                if newest.is_damage(&bytes, content.end) {
                    return Err(damaged(newest.block, content.end, "a record that should be here"));
                }
                self.check_headers(None, &lives)?;
            }
        }
        for life in lives {
            self.blocks[life.block as usize].state = State::Full(life.seq);
            if life == newest {
                self.enter(life.block, &content);
                continue;
            }
            let bytes = self.read_block(life.block)?;
            let content = life.read(&bytes, false);
            if content.next.is_none() {
                return Err(damaged(life.block, content.end, "a record that should be here"));
            }
            self.enter(life.block, &content);
        }
        if content.next.is_none() {
            // Nothing goes behind what a crash left: it could be taken for part of it.
            self.blocks[newest.block as usize].state = State::Newest;
            self.newest = Some(Newest { life: newest, len: content.end, synced: 0 });
            self.end_block()?;
        }
        Ok(())
    }

    /// Lets the log go on in `next`, in which nothing may be that was synced.
    fn check_next(&mut self, next: u32, lives: &[Life]) -> Result<(), Error> {
        self.check_headers(Some(next), lives)?;
        if next as usize > self.blocks.len() {
            return Err(damaged(next, 0, "the log goes on beyond the last block"));
        }
        let bytes = self.read_block(next)?;
        if self.superblock.life(next, self.seq + 1).is_damage(&bytes, 0) {
            return Err(damaged(next, 0, "the header of a block"));
        }
        self.next = next;
        Ok(())
    }

    /// All blocks begin soundly but the one where the log goes on: a crash may have come while that was begun.
    fn check_headers(&self, next: Option<u32>, lives: &[Life]) -> Result<(), Error> {
        let mut has_header = vec![false; self.blocks.len()];
        let sound = lives.iter().map(|life| life.block).chain(next);
        sound.for_each(|block| has_header.get_mut(block as usize).into_iter().for_each(|it| *it = true));
        match has_header.iter().position(|it| !it) {
            Some(block) => Err(damaged(block as u32, 0, "the header of a block")),
            None => Ok(()),
        }
    }

    fn enter(&mut self, block: u32, content: &Content<'_>) {
        for (offset, record) in &content.records {
            let place = Place { block, offset: *offset, len: padded(record.stored_len()) as u32 };
            self.apply(record.key, place, record.kind == Kind::Delete);
        }
    }
}
