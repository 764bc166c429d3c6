//! A disk in memory that keeps exactly what [`base::disk`] promises and nothing more.
//!
//! A [`SimDisk`] is one machine's disk; it outlives the processes on it. A process reaches it through any
//! number of [`DiskHandle`]s, *queued* for a shard or *immediate* for start-up and jobs, which share its files
//! and file ids. A queued operation takes effect at the moment when it finishes, which the seed chose when it
//! was submitted; so operations of one handle pass each other freely.
//!
//! * [`SimDisk::power_cut`]: each operation under way has happened or not; of everything not synced, the seed
//!   picks what is there (`file.rs` and `tree.rs` say how). [`SimDisk::kill`]: the process is gone, the system's
//!   memory stays. Either way all handles, open files and locks are dead, and the next process starts over.
//! * [`SimDisk::arm`]: the same, or an error, at the k-th operation from now, so that a crash can fall inside
//!   a start-up or a job's slice.
//! * Faults by odds ([`DiskOdds`]), where the [`Atlas`] allows them; silent damage is kept in a list, so that a
//!   checker knows which data may rightly be lost.
//!
//! Left out: hard and symbolic links, permissions, directories that are removed or renamed, errors that stay
//! with a sector, and a page cache that forgets clean pages before a crash.

mod config;
mod device;
mod file;
mod handle;
mod image;
mod operations;
#[cfg(test)]
mod tests;
mod tree;

pub use config::{Atlas, DiskConfig, DiskOdds, Region};
pub use device::{Armed, Counts, HandleId, OperationId, Started};
pub use handle::DiskHandle;

use crate::clock::SimTime;
use crate::fault::Fault;
use crate::trace::{Keep, Trace};
use base::rng::SplitMix64;
use device::Device;
use file::SimFile;
use handle::Mode;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tree::{Inode, Tree};

/// One machine's disk. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk(Arc<Mutex<Device>>);

/// The contents of a disk at some moment.
#[derive(Clone, Debug)]
pub struct DiskImage {
    tree: Tree,
    files: BTreeMap<Inode, SimFile>,
}

impl SimDisk {
    /// An empty disk, called `name` in the trace.
    pub fn new(name: &str, config: DiskConfig, rng: SplitMix64, trace: Trace) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(Device::new(name, config, rng, trace))))
    }

    /// A copy of this disk as it stands, with operations under way, that goes its own way from here: for
    /// trying many crashes of one moment. It has none of this disk's handles.
    pub fn fork(&self, rng: SplitMix64, trace: Trace) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(self.lock().fork(rng, trace))))
    }

    /// A copy of what would be there if the power were cut now: a backup taken at this moment, or what is left
    /// of a machine.
    pub fn image(&self, rng: SplitMix64) -> DiskImage {
        let nobody = Trace::new(SimTime::default(), Keep::Hash);
        let mut device = self.lock().fork(rng, nobody);
        device.power_cut();
        DiskImage { tree: device.tree.clone(), files: device.files.clone() }
    }

    /// Puts `image` in the place of everything on this disk, or with `None` wipes it. The process on it has
    /// died before.
    pub fn replace(&self, image: Option<&DiskImage>) {
        self.lock().replace(image.map(|image| (&image.tree, &image.files)));
    }

    /// A handle whose operations finish when the world says: a shard's.
    pub fn queued(&self) -> DiskHandle {
        DiskHandle::new(self.clone(), Mode::Queued)
    }

    /// A handle whose operations finish within `submit`: for start-up, tools and jobs.
    pub fn immediate(&self) -> DiskHandle {
        DiskHandle::new(self.clone(), Mode::Immediate)
    }

    /// The queued operations that began since the last call, for the world to schedule their ends.
    pub fn take_started(&self) -> Vec<Started> {
        std::mem::take(&mut self.lock().started)
    }

    /// Ends a queued operation. Returns the handle that has a completion to poll; none if the operation's
    /// process has died or its handle was dropped.
    pub fn finish(&self, operation: OperationId) -> Option<HandleId> {
        self.lock().finish(operation)
    }

    /// Cuts the power: what was not synced is there or not, and all handles are dead.
    pub fn power_cut(&self) {
        self.lock().power_cut();
    }

    /// Kills the process: what the system has in memory stays, and all handles are dead.
    pub fn kill(&self) {
        self.lock().kill();
    }

    /// Lets `what` happen at the `operations`-th operation from now on (1 is the next), instead of what was
    /// armed before.
    pub fn arm(&self, operations: u64, what: Armed) {
        assert!(operations > 0, "the operation before the next one is past");
        self.lock().armed = Some((operations, what));
    }

    /// Takes back what was armed and has not happened.
    pub fn disarm(&self) {
        self.lock().armed = None;
    }

    /// How many times the processes on this disk have died. A world compares it before and after each step to
    /// see an armed crash.
    pub fn deaths(&self) -> u64 {
        self.lock().deaths
    }

    /// Changes what goes wrong from now on.
    pub fn set_odds(&self, odds: DiskOdds) {
        let mut device = self.lock();
        odds.enable(&device.trace);
        device.config.odds = odds;
    }

    /// Flips a bit of what is stored, if the atlas allows it there and there is such a byte.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> bool {
        self.lock().flip_bit(path, offset, bit)
    }

    /// Puts the stored block of `len` bytes at `from` in the place of the one at `to`, as a misdirected write
    /// does, if the atlas allows it there and both are whole.
    pub fn copy_block(&self, from: (&Path, u64), to: (&Path, u64), len: u64) -> bool {
        self.lock().copy_block(from, to, len)
    }

    /// Flips one random bit of what is stored, if it finds a place where the atlas allows it.
    pub fn rot(&self) -> Option<Region> {
        self.lock().rot()
    }

    /// The silent damage done so far.
    pub fn damage(&self) -> Vec<(Fault, Region)> {
        self.lock().damage.clone()
    }

    /// What the disk has been asked to do so far.
    pub fn counts(&self) -> Counts {
        self.lock().counts.clone()
    }

    /// All files as the system shows them, with their lengths, by name.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        self.lock().list_files()
    }

    /// The same with the ends of what was written, without the room that was made ahead.
    pub fn written(&self) -> Vec<(PathBuf, u64)> {
        self.lock().list_written()
    }

    // A panic while holding this lock ends the world, so what its poison protects is of no more use; handles
    // must still be able to drop.
    fn lock(&self) -> MutexGuard<'_, Device> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
