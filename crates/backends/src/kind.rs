//! The names of backends, what they can be told, and how each is opened.

use crate::annulet::Annulet;
use crate::backend::Backend;
use crate::bitcask::Bitcask;
use crate::error::Error;
use crate::hash::Hash;
use crate::memory::Memory;
use engine::{Durability, Machine};
use std::collections::BTreeMap;
use std::path::Path;

/// What every backend can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// When a write is safe. Some engines have no [`Durability::Interval`], and refuse it.
    pub durability: Durability,
    /// Memory for the engine's own cache, as far as it has one beside the system's. Default: 64 MiB, as our engine has
    /// by default.
    pub cache_bytes: usize,
    /// About how large a file of the log is, where the engine is ours; of it the size of blocks is a part, where a log
    /// has these. Default: 128 MiB.
    pub segment_bytes: u64,
    /// What the store may use of the machine's memory, the page cache's part included, where that is less than the
    /// machine has. Our engine takes sizes that fit; the others have their own. Default: nothing is said.
    pub memory_bytes: Option<u64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            durability: Durability::Sync,
            cache_bytes: 64 << 20,
            segment_bytes: 128 << 20,
            memory_bytes: None,
        }
    }
}

/// A backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Our engine.
    #[default]
    Annulet,
    /// A map in memory.
    Memory,
    /// A log, with its keys in memory.
    Bitcask,
    /// Blocks, with a hash index in memory.
    Hash,
    /// Fjall.
    Fjall,
    /// Fjall, with large values in files of their own.
    FjallBlob,
    /// LMDB.
    Lmdb,
    /// MDBX.
    Mdbx,
    /// Redb.
    Redb,
    /// RocksDB.
    RocksDb,
    /// RocksDB, with large values in blob files.
    RocksDbBlob,
    /// WiredTiger.
    WiredTiger,
}

impl Kind {
    /// All, those that this program was built without included.
    pub const ALL: [Kind; 12] = [
        Kind::Annulet,
        Kind::Memory,
        Kind::Bitcask,
        Kind::Hash,
        Kind::Fjall,
        Kind::FjallBlob,
        Kind::Lmdb,
        Kind::Mdbx,
        Kind::Redb,
        Kind::RocksDb,
        Kind::RocksDbBlob,
        Kind::WiredTiger,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Annulet => "annulet",
            Kind::Memory => "memory",
            Kind::Bitcask => "bitcask",
            Kind::Hash => "hash",
            Kind::Fjall => "fjall",
            Kind::FjallBlob => "fjall-blob",
            Kind::Lmdb => "lmdb",
            Kind::Mdbx => "mdbx",
            Kind::Redb => "redb",
            Kind::RocksDb => "rocksdb",
            Kind::RocksDbBlob => "rocksdb-blob",
            Kind::WiredTiger => "wiredtiger",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The one with this name, if this program has it; the error says what is wrong.
    pub fn read(name: &str) -> Result<Kind, String> {
        let names = || Kind::ALL.map(Kind::name).join(", ");
        let kind = Kind::named(name).ok_or_else(|| format!("{name:?} is none of {}", names()))?;
        match kind.feature().filter(|_| !kind.is_built()) {
            Some(feature) => Err(format!("this build leaves {name} out (cargo feature `{feature}`)")),
            None => Ok(kind),
        }
    }

    /// The feature that a program with it is built with; `None` if every program has it.
    pub fn feature(self) -> Option<&'static str> {
        match self {
            Kind::Annulet | Kind::Memory | Kind::Bitcask | Kind::Hash => None,
            Kind::Fjall | Kind::FjallBlob => Some("fjall"),
            Kind::Lmdb => Some("lmdb"),
            Kind::Mdbx => Some("mdbx"),
            Kind::Redb => Some("redb"),
            Kind::RocksDb | Kind::RocksDbBlob => Some("rocksdb"),
            Kind::WiredTiger => Some("wiredtiger"),
        }
    }

    /// Whether this program has it.
    pub fn is_built(self) -> bool {
        match self {
            Kind::Annulet | Kind::Memory | Kind::Bitcask | Kind::Hash => true,
            Kind::Fjall | Kind::FjallBlob => cfg!(feature = "fjall"),
            Kind::Lmdb => cfg!(feature = "lmdb"),
            Kind::Mdbx => cfg!(feature = "mdbx"),
            Kind::Redb => cfg!(feature = "redb"),
            Kind::RocksDb | Kind::RocksDbBlob => cfg!(feature = "rocksdb"),
            Kind::WiredTiger => cfg!(feature = "wiredtiger"),
        }
    }

    /// Whether what is written is there after a restart.
    pub fn is_kept(self) -> bool {
        self != Kind::Memory
    }

    /// Whether a call waits for nothing, so that whoever must not wait may make it.
    pub fn is_immediate(self) -> bool {
        self == Kind::Memory
    }

    /// Whether a fold finds its first key without passing by those before it. Where it does not, a fold over little
    /// costs what one over all does.
    pub fn is_ordered(self) -> bool {
        self != Kind::Hash
    }

    /// Whether many threads may use one store of it at once ([`Backend::another`]).
    pub fn has_handles(self) -> bool {
        match self {
            Kind::Annulet | Kind::Memory | Kind::Bitcask | Kind::Hash => false,
            Kind::Fjall | Kind::FjallBlob | Kind::Lmdb | Kind::Mdbx => true,
            Kind::Redb | Kind::RocksDb | Kind::RocksDbBlob | Kind::WiredTiger => true,
        }
    }

    /// Whether other threads may read what the owner of a store writes ([`Backend::reader`]).
    pub fn has_readers(self) -> bool {
        self == Kind::Annulet
    }

    /// What an engine is told, for whoever wants to compare: everything that is not its library's default.
    pub fn options(self, settings: &Settings) -> BTreeMap<String, String> {
        let durability = format!("{:?}", settings.durability).to_lowercase();
        let mut options = BTreeMap::from([("backend".to_owned(), self.name().to_owned())]);
        options.insert("durability".to_owned(), if self.is_kept() { durability } else { "none".to_owned() });
        let cache = match self {
            Kind::Memory => None,
            Kind::Bitcask | Kind::Hash | Kind::Lmdb | Kind::Mdbx => Some("the system's".to_owned()),
            _ => Some(settings.cache_bytes.to_string()),
        };
        options.extend(cache.map(|cache| ("cache_bytes".to_owned(), cache)));
        let own = match self {
            #[cfg(feature = "fjall")]
            Kind::Fjall | Kind::FjallBlob => crate::fjall::options(self == Kind::FjallBlob),
            #[cfg(feature = "lmdb")]
            Kind::Lmdb => crate::lmdb::options(),
            #[cfg(feature = "mdbx")]
            Kind::Mdbx => crate::mdbx::options(),
            #[cfg(feature = "redb")]
            Kind::Redb => crate::redb::options(settings),
            #[cfg(feature = "rocksdb")]
            Kind::RocksDb | Kind::RocksDbBlob => crate::rocksdb::options(self == Kind::RocksDbBlob),
            #[cfg(feature = "wiredtiger")]
            Kind::WiredTiger => crate::wiredtiger::options(settings),
            Kind::Annulet => crate::annulet::options(settings),
            Kind::Bitcask => crate::bitcask::options(settings),
            Kind::Hash => crate::hash::options(settings),
            _ => Vec::new(),
        };
        options.extend(own.into_iter().map(|(name, value)| (name.to_owned(), value)));
        options
    }

    /// Opens the store in `folder`, which is there, or makes one. `machine` is what our own run on.
    pub fn open(
        self,
        folder: &Path,
        settings: &Settings,
        machine: Machine,
    ) -> Result<Box<dyn Backend>, Error> {
        if settings.durability == Durability::Interval && self != Kind::Annulet {
            let what = format!("{} has no durability {:?}: it is none or sync", self.name(), "interval");
            return Err(Error::Refused(what));
        }
        match self {
            Kind::Annulet => Ok(Box::new(Annulet::open(folder, settings, machine)?)),
            Kind::Memory => Ok(Box::new(Memory::default())),
            Kind::Bitcask => Ok(Box::new(Bitcask::open(folder, settings, &machine)?)),
            Kind::Hash => Ok(Box::new(Hash::open(folder, settings, &machine)?)),
            #[cfg(feature = "fjall")]
            Kind::Fjall | Kind::FjallBlob => {
                Ok(Box::new(crate::fjall::Fjall::open(folder, settings, self == Kind::FjallBlob)?))
            }
            #[cfg(feature = "lmdb")]
            Kind::Lmdb => Ok(Box::new(crate::lmdb::Lmdb::open(folder, settings)?)),
            #[cfg(feature = "mdbx")]
            Kind::Mdbx => Ok(Box::new(crate::mdbx::Mdbx::open(folder, settings)?)),
            #[cfg(feature = "redb")]
            Kind::Redb => Ok(Box::new(crate::redb::Redb::open(folder, settings)?)),
            #[cfg(feature = "rocksdb")]
            Kind::RocksDb | Kind::RocksDbBlob => {
                let has_blobs = self == Kind::RocksDbBlob;
                Ok(Box::new(crate::rocksdb::RocksDb::open(folder, settings, has_blobs)?))
            }
            #[cfg(feature = "wiredtiger")]
            Kind::WiredTiger => Ok(Box::new(crate::wiredtiger::WiredTiger::open(folder, settings)?)),
            #[allow(unreachable_patterns, reason = "there are none where all are built")]
            other => {
                let (name, feature) = (other.name(), other.feature().unwrap_or_default());
                let what = format!("this program has no {name}: it is built with --features {feature}");
                Err(Error::Refused(what))
            }
        }
    }
}
