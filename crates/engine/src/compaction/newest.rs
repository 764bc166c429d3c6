//! The newest durable version of a key, for a job that asks for many.

use crate::entry::{Entry, Jsn, Location, Seq};
use crate::error::Error;
use crate::lost::LostRanges;
use crate::manifest::Version;
use crate::memtable::MemtableReader;
use crate::table::{Block, TableId};
use base::{Disk, FastMap};
use std::sync::Arc;

/// What the ledger has of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub jsn: Jsn,
    pub seq: Seq,
    pub location: Location,
}

/// The ledger as of a durable seq. A version that a crash could take back must not make an older one superfluous.
pub(crate) struct Newest {
    durable: Seq,
    /// Newest first.
    memtables: Vec<MemtableReader>,
    version: Arc<Version>,
    /// Where versions were lost: what is found there may not be the newest.
    lost: Arc<LostRanges>,
    /// Of each table the block that was asked last: keys come in order.
    blocks: FastMap<TableId, (u32, Block)>,
}

impl Newest {
    /// The ledger of these memtables, newest first, and this version, up to `durable`.
    pub fn new(
        durable: Seq,
        memtables: Vec<MemtableReader>,
        version: Arc<Version>,
        lost: Arc<LostRanges>,
    ) -> Newest {
        Newest { durable, memtables, version, lost, blocks: FastMap::default() }
    }

    /// Has memory fetched that finding this key looks at first, for whoever will do so in a moment.
    pub fn prefetch(&self, key: &[u8], hash: u64) {
        self.memtables.iter().for_each(|memtable| memtable.prefetch(hash));
        self.version.tables_for(key).for_each(|table| table.prefetch_filter(hash));
    }

    /// The newest version of `key`, which has this hash. [`Error::Damaged`] where that is not known.
    pub fn find(&mut self, disk: &mut dyn Disk, key: &[u8], hash: u64) -> Result<Option<Known>, Error> {
        for memtable in &self.memtables {
            if let Some((seq, entry)) = memtable.get_hashed(key, hash, self.durable.0) {
                self.lost.check_found(key, Seq(seq))?;
                return known(entry, Seq(seq)).map(Some);
            }
        }
        let version = Arc::clone(&self.version);
        for table in version.tables_for(key) {
            if !table.may_contain(hash) {
                continue;
            }
            let Some(handle) = table.find_block(key) else { continue };
            let at_hand = self.blocks.get(&table.id()).is_some_and(|(index, _)| *index == handle.index);
            if !at_hand {
                self.blocks.insert(table.id(), (handle.index, table.read_block(disk, handle)?));
            }
            let (_, block) = &self.blocks[&table.id()];
            if let Some((seq, entry)) = block.find(key)? {
                self.lost.check_found(key, seq)?;
                return known(entry, seq).map(Some);
            }
        }
        self.lost.check_missing(key)?;
        Ok(None)
    }
}

fn known(entry: &[u8], seq: Seq) -> Result<Known, Error> {
    let entry = Entry::decode(entry)?;
    Ok(Known { jsn: entry.jsn, seq, location: entry.location })
}
