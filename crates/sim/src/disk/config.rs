//! What a simulated disk is like, and what it may do wrong where.

use crate::fault::{Fault, Odds};
use crate::trace::Trace;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A stretch of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Region {
    /// The file's name at the time.
    pub path: PathBuf,
    /// Where the stretch begins.
    pub offset: u64,
    /// How long it is.
    pub len: u64,
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}+{}", self.path.display(), self.offset, self.len)
    }
}

/// Where faults are allowed: a cluster stays able to heal only while some copy of everything is good, and only
/// the world knows which (the fault atlas of TigerBeetle's simulator). What a power cut does is not asked for
/// here: that is the disk's contract.
#[derive(Clone)]
pub struct Atlas(Arc<Allows>);

type Allows = dyn Fn(Fault, &Region) -> bool + Send + Sync;

impl Atlas {
    /// Faults may be where `allows` says so.
    pub fn new(allows: impl Fn(Fault, &Region) -> bool + Send + Sync + 'static) -> Atlas {
        Atlas(Arc::new(allows))
    }

    /// Faults may be anywhere.
    pub fn everywhere() -> Atlas {
        Atlas::new(|_, _| true)
    }

    /// Errors, which tell that they are there, may be anywhere; silent damage nowhere.
    pub fn loud() -> Atlas {
        Atlas::new(|fault, _| !matches!(fault, Fault::BitFlip | Fault::Misdirect))
    }

    /// Whether `fault` may be in `region`.
    pub fn allows(&self, fault: Fault, region: &Region) -> bool {
        self.0(fault, region)
    }
}

impl fmt::Debug for Atlas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Atlas")
    }
}

/// How likely each fault is, per operation that can have it.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskOdds {
    /// A read fails. It may work the next time.
    pub read_error: Odds,
    /// A write or truncation fails, in part done.
    pub write_error: Odds,
    /// A sync fails, of a file or directory.
    pub sync_error: Odds,
    /// A write finds no space.
    pub no_space: Odds,
    /// A [`base::Disk::try_read`] comes back short.
    pub short_read: Odds,
    /// A [`base::Disk::try_read`] finds nothing in memory.
    pub cold_read: Odds,
    /// A queued operation takes long.
    pub slow: Odds,
    /// A write stores one bit wrong.
    pub bit_flip: Odds,
    /// A write's block goes to another place.
    pub misdirect: Odds,
    /// A block that a crash takes is there in part.
    pub torn: Odds,
}

impl DiskOdds {
    /// Nothing goes wrong, but for crashes.
    pub const SOUND: DiskOdds = DiskOdds {
        read_error: Odds::NEVER,
        write_error: Odds::NEVER,
        sync_error: Odds::NEVER,
        no_space: Odds::NEVER,
        short_read: Odds::NEVER,
        cold_read: Odds::NEVER,
        slow: Odds::NEVER,
        bit_flip: Odds::NEVER,
        misdirect: Odds::NEVER,
        torn: Odds::NEVER,
    };

    /// Tells `trace` which faults these odds mean to have.
    pub(super) fn enable(&self, trace: &Trace) {
        let odds = [
            (self.read_error, Fault::ReadError),
            (self.write_error, Fault::WriteError),
            (self.sync_error, Fault::SyncError),
            (self.no_space, Fault::NoSpace),
            (self.short_read, Fault::ShortRead),
            (self.cold_read, Fault::ColdRead),
            (self.slow, Fault::SlowDisk),
            (self.bit_flip, Fault::BitFlip),
            (self.misdirect, Fault::Misdirect),
            (self.torn, Fault::TornBlock),
        ];
        odds.iter().filter(|(odds, _)| odds.enabled()).for_each(|(_, fault)| trace.enable(*fault));
    }
}

/// What a disk is like.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// The directory that is there from the start, durably.
    pub root: PathBuf,
    /// The unit that reaches the platter whole or torn: 512 or 4096.
    pub block_len: u64,
    /// The space there is, if that is to run out.
    pub space_max: Option<u64>,
    /// The least time that a queued operation takes.
    pub latency_min: Duration,
    /// The most time that a queued operation takes while no fault fires.
    pub latency_max: Duration,
    /// The most time that a slow one takes.
    pub slow_max: Duration,
    /// What goes wrong.
    pub odds: DiskOdds,
    /// And where.
    pub atlas: Atlas,
}

impl DiskConfig {
    /// A sound disk with 512-byte blocks and the latency of a good SSD.
    pub fn sound(root: impl AsRef<Path>) -> DiskConfig {
        DiskConfig {
            root: root.as_ref().to_path_buf(),
            block_len: 512,
            space_max: None,
            latency_min: Duration::from_micros(10),
            latency_max: Duration::from_micros(500),
            slow_max: Duration::from_millis(100),
            odds: DiskOdds::SOUND,
            atlas: Atlas::everywhere(),
        }
    }
}
