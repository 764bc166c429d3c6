//! The tables' part of a check.

use super::journal::Segments;
use super::{Check, FindingKind, list};
use crate::compaction::Newest;
use crate::entry::{Entry, Jsn, Location, Seq};
use crate::error::Error;
use crate::journal::segment::{Position, path_in_store};
use crate::manifest::{LEVELS, ManifestState, TableRecord, Version};
use crate::memtable::hash;
use crate::store::TABLES_DIR;
use crate::table::{Block, BlockHandle, Table, TableId};
use base::disk;
use std::sync::Arc;

/// What a walk through a table has come upon.
#[derive(Default)]
struct Walk {
    last_key: Vec<u8>,
    /// The hashes of its keys.
    hashes: Vec<u64>,
    /// How many of them are in each block and those before.
    block_ends: Vec<usize>,
    /// Whether every block so far was whole.
    whole: bool,
}

impl Check<'_> {
    /// Goes through every table of the store.
    pub(super) fn tables(&mut self, state: Option<&ManifestState>, journal: &Segments) -> Result<(), Error> {
        let listed = list(self.disk, &self.dir.join(TABLES_DIR))?;
        let Some(state) = state else {
            for id in listed.iter().filter_map(|name| TableId::from_file_name(name)) {
                self.table(id, None, journal, &ManifestState::default());
            }
            return Ok(());
        };
        let named: Vec<_> = state.levels.iter().flatten().map(|record| record.id.file_name()).collect();
        for name in listed.iter().filter(|name| !named.contains(name)) {
            self.find(
                FindingKind::Leftover,
                format!("{TABLES_DIR}/{name}"),
                0,
                "the manifest does not name it",
            );
        }
        for (level, records) in state.levels.iter().enumerate() {
            for record in records {
                self.table(record.id, Some(record), journal, state);
            }
            // Tables of level 0 may overlap; the newest counts.
            for pair in records.windows(2).filter(|_| level > 0) {
                if pair[0].meta.max_key >= pair[1].meta.min_key {
                    self.find(
                        FindingKind::Damage,
                        file_of(pair[1].id),
                        0,
                        "it overlaps a table of its level",
                    );
                }
            }
        }
        Ok(())
    }

    fn table(
        &mut self,
        id: TableId,
        record: Option<&TableRecord>,
        journal: &Segments,
        state: &ManifestState,
    ) {
        let table = match Table::open(self.disk, &self.dir.join(TABLES_DIR), id) {
            Ok(table) => table,
            Err(error) => return self.fail(&file_of(id), error),
        };
        self.summary.tables += 1;
        self.summary.bytes += table.len();
        if record.is_some_and(|record| !record.describes(&table)) {
            self.find(FindingKind::Damage, file_of(id), 0, "it is not the table that the manifest names");
        }
        self.walk(&table, journal, state);
        // It was only read: nothing is lost if it does not close.
        disk::run(self.disk, table.close_op()).ok();
    }

    fn walk(&mut self, table: &Table, journal: &Segments, state: &ManifestState) {
        let mut walk = Walk { whole: true, ..Walk::default() };
        for handle in (0..).map_while(|number| table.block(number)) {
            self.summary.blocks += 1;
            let checked = table.read_block(self.disk, handle).and_then(|block| {
                (0..block.count()).try_for_each(|index| {
                    self.item(table, handle, &block, index, &mut walk, (journal, state))
                })
            });
            if let Err(error) = checked {
                walk.whole = false;
                self.fail(&file_of(table.id()), error);
            }
            walk.block_ends.push(walk.hashes.len());
        }
        let entries = walk.hashes.len() as u64;
        self.summary.entries += entries;
        if walk.whole && (entries != table.meta().entries || walk.last_key != table.meta().max_key) {
            self.find(
                FindingKind::Damage,
                file_of(table.id()),
                table.len(),
                "its entries differ from its metadata",
            );
        }
        self.segments(table, &walk);
    }

    fn segments(&mut self, table: &Table, walk: &Walk) {
        let checked = table.check_segments(self.disk).and_then(|()| match walk.whole {
            true => table.has_segments_of(self.disk, &walk.hashes, &walk.block_ends),
            false => Ok(true),
        });
        match checked {
            Ok(true) => {}
            Ok(false) => {
                let what = "the segments are those of other keys";
                self.find(FindingKind::Damage, file_of(table.id()), table.len(), what);
            }
            Err(error) => self.fail(&file_of(table.id()), error),
        }
    }

    fn item(
        &mut self,
        table: &Table,
        handle: BlockHandle,
        block: &Block,
        index: usize,
        walk: &mut Walk,
        (journal, state): (&Segments, &ManifestState),
    ) -> Result<(), Error> {
        let (key, entry) = entry_at(block, index)?;
        let mut wrong = |what| self.find(FindingKind::Damage, file_of(table.id()), handle.offset, what);
        if !walk.hashes.is_empty() && key <= walk.last_key {
            wrong("keys out of order");
        } else if table.find_block(&key) != Some(handle) {
            wrong("the index leads elsewhere");
        }
        let hash = hash(&key);
        if !table.may_contain(hash) || block.find_hashed(&key, hash)?.is_none() {
            wrong("a key that no lookup finds");
        }
        walk.hashes.push(hash);
        let entry = Entry::decode(entry)?;
        if let Location::Journal { offset, len } = entry.location
            && let Err(at) = journal.find_record(self.disk, &key, &entry, offset, len)
            && !self.is_replaced(&key, hash, entry.jsn, state)
        {
            self.lost_record(table.id(), handle, at);
        }
        walk.last_key = key;
        Ok(())
    }

    /// Whether a newer version of the key is there: then nobody reads the record. The newer one is in a table above.
    /// Its number may be the lower one: a proposal that is moved before its commit gets the number of its new record.
    fn is_replaced(&mut self, key: &[u8], hash: u64, jsn: Jsn, state: &ManifestState) -> bool {
        if self.recent.contains_key(&hash) {
            return true;
        }
        let mut newest = self.newest.take().unwrap_or_else(|| self.all_tables(state));
        let known = newest.find(self.disk, key, hash);
        self.newest = Some(newest);
        known.is_ok_and(|known| known.is_some_and(|known| known.jsn != jsn))
    }

    /// The tables that can be opened. They stay open as long as the disk's handle.
    fn all_tables(&mut self, state: &ManifestState) -> Newest {
        let mut levels: [Vec<Arc<Table>>; LEVELS] = Default::default();
        for (tables, records) in levels.iter_mut().zip(&state.levels) {
            for record in records {
                match Table::open(self.disk, &self.dir.join(TABLES_DIR), record.id) {
                    Ok(table) => tables.extend(record.describes(&table).then(|| Arc::new(table))),
                    Err(error @ Error::Exhausted(_)) => drop(self.stopped.get_or_insert(error)),
                    // It is told of where the table is checked.
                    Err(_) => {}
                }
            }
        }
        Newest::new(Seq(u64::MAX), Vec::new(), Arc::new(Version::new(levels)), Arc::default())
    }

    /// An entry's record is not `at` its place. Where the journal is known to be damaged there, that was told.
    fn lost_record(&mut self, table: TableId, handle: BlockHandle, at: Option<Position>) {
        self.summary.entries_lost += 1;
        let Some(at) = at else {
            return self.find(
                FindingKind::Damage,
                file_of(table),
                handle.offset,
                "an entry with a missing segment",
            );
        };
        let told =
            |(from, to): &(Position, u64)| *from <= at && from.segment == at.segment && at.offset < *to;
        if !self.faults.iter().any(told) {
            let what = format!("not the record that an entry of {} names", file_of(table));
            self.find(FindingKind::Damage, path_in_store(at.segment), at.offset, what);
        }
    }
}

/// The key and the ledger entry at `index` of a block.
fn entry_at(block: &Block, index: usize) -> Result<(Vec<u8>, &[u8]), Error> {
    let item = block.item(index)?;
    let key = [block.prefix(), &block.bytes()[item.suffix]].concat();
    Ok((key, &block.bytes()[item.entry]))
}

fn file_of(id: TableId) -> String {
    format!("{TABLES_DIR}/{}", id.file_name())
}
