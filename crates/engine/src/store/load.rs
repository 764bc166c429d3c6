//! What a sorted load ([`crate::load`]) does to a store: appends past the memtable, and tables from outside.

use super::maintenance::{Edit, position};
use super::{Store, Write};
use crate::entry::Seq;
use crate::error::Error;
use crate::manifest::LEVELS;
use crate::table::{Table, TableId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Store {
    /// Puts the memtable aside for its flush, full or not. Nothing if it is empty, or if too many wait already.
    pub fn begin_flush(&mut self) {
        if !self.memtable.is_empty() && self.frozen.len() < super::MEMTABLES_FROZEN_MAX {
            self.freeze();
        }
    }

    /// Whether everything written so far is in tables, and every manifest that says so is durable.
    pub fn is_flushed(&self) -> bool {
        self.memtable.is_empty() && self.frozen.is_empty() && !self.edits_pending()
    }

    /// Appends one put to the journal and encodes its ledger entry; the caller puts that into a table.
    pub(crate) fn append_loaded(&mut self, write: &Write<'_>, entry: &mut Vec<u8>) -> Result<Seq, Error> {
        self.begin_batch(std::slice::from_ref(write))?;
        let (key, head, value, expires_ms) = match *write {
            Write::Put { key, head, value } => (key, head, value, None),
            Write::PutUntil { key, head, value, expires_ms } => (key, head, value, Some(expires_ms)),
            Write::Delete { .. } | Write::DropRange { .. } => unreachable!("a load is made of puts"),
        };
        let (at, location) = self.append_put(key, head, value, expires_ms, 0);
        entry.clear();
        let inline = if location == crate::Location::Inline { value } else { &[] };
        crate::Entry { jsn: at.jsn, location, head, inline: &[], expires_ms }.encode_prefix(entry);
        entry.extend_from_slice(head);
        inline.iter().for_each(|part| entry.extend_from_slice(part));
        self.writer.remember(at, key, &[entry]);
        self.accounts.count(location, at.len);
        Ok(at.seq)
    }

    /// The number of a table that the caller will make.
    pub(crate) fn next_table_id(&self) -> TableId {
        TableId(self.maintenance.next_table.fetch_add(1, Ordering::Relaxed))
    }

    /// Takes loaded tables, whose keys ascend from one to the next and which are newer than all else: the memtables
    /// are empty, and nothing is under way. They show once the manifest names them.
    pub(crate) fn install(&mut self, tables: Vec<Arc<Table>>, last_seq: Seq) {
        assert!(self.is_flushed(), "a load ends on a store at rest");
        let level = self.level_for(&tables);
        self.writer.want_sync();
        let account = self.accounts.of(self.writer.active().0);
        self.maintenance.edits.push(Edit {
            added: tables.into_iter().map(|table| (level, table)).collect(),
            needs_durable: last_seq,
            needs_synced: self.writer.next_jsn(),
            oldest_entry: self.groups.as_ref().and_then(|groups| groups.oldest()),
            replay_from: Some((position(self.writer.position()), self.writer.next_jsn(), account)),
            ..Edit::default()
        });
    }

    /// The highest level that is large enough, or else the deepest, of those where nothing overlaps the tables.
    fn level_for(&self, tables: &[Arc<Table>]) -> usize {
        let (Some(first), Some(last)) = (tables.first(), tables.last()) else { return 0 };
        let (min, max) = (&first.meta().min_key, &last.meta().max_key);
        let bytes: u64 = tables.iter().map(|table| table.len()).sum();
        let options = self.options.levels();
        let mut chosen = 0;
        for level in 0..LEVELS {
            if !self.version.overlapping(level, min, max).is_empty() {
                break;
            }
            chosen = level;
            if level > 0 && self.version.level_bytes(level) + bytes <= options.level_bytes_target(level) {
                break;
            }
        }
        chosen
    }
}
