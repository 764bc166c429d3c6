//! What tests of stores on a real file system share: files that are cut and changed between two lives of one.

use crate::backend::{Backend, What};
use base::disk::{self, Disk, DiskOp, OpenMode};
use bytes::Bytes;
use engine::Machine;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The real one.
pub fn machine() -> Machine {
    Machine::new(os::OsDisk::blocking().blocking_handles(), os::OsClock::new(), os::OsRng::new())
}

/// A handle of it.
pub fn disk() -> Box<dyn Disk> {
    machine().disk()
}

/// Files whose names end so.
pub fn names(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let names = disk::list(&mut *disk(), folder).unwrap();
    names.into_iter().filter(|name| name.ends_with(suffix)).map(|name| folder.join(name)).collect()
}

/// What is in a file.
pub fn content(path: &Path) -> Vec<u8> {
    let mut disk = disk();
    let (file, len) = disk::open(&mut *disk, path, OpenMode::Read).unwrap();
    disk::read(&mut *disk, file, 0, len as usize).unwrap().to_vec()
}

/// Cuts a file.
pub fn cut(path: &Path, len: u64) {
    let mut disk = disk();
    let (file, _) = disk::open(&mut *disk, path, OpenMode::Write).unwrap();
    disk::run(&mut *disk, DiskOp::Truncate { file, len }).unwrap();
}

/// Flips a bit of a byte.
pub fn flip(path: &Path, at: usize) {
    let mut disk = disk();
    let (file, _) = disk::open(&mut *disk, path, OpenMode::Write).unwrap();
    let byte = Bytes::from(vec![content(path)[at] ^ 0x40]);
    let op = DiskOp::Write { file, offset: at as u64, data: byte.into(), room: 0, sync: false };
    disk::run(&mut *disk, op).unwrap();
}

/// All keys and values of a store.
pub fn all(store: &mut dyn Backend) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut visit = |item: crate::backend::Item<'_>| {
        all.insert(item.key.to_vec(), item.value.to_vec());
        ControlFlow::Continue(())
    };
    store.fold(&[], &[], What::Objects, &mut visit).unwrap();
    all
}
