//! Index entries beside objects ([`crate::index`]): written with them, and made anew where they are not whole.

use super::write::BATCH_WRITES_MAX;
use super::{Store, Write};
use crate::entry::Seq;
use crate::error::Error;
use crate::index::{Before, Building, Change, Indexing, Page, Step};
use base::Monotonic;
use bytes::Bytes;
use std::time::Duration;

/// How long the making of entries waits when the disk has failed it.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

impl Store {
    /// [`Store::write`] of a batch whose first write is that of an object which was `before`, together with what
    /// changes among its index entries. `before` must be the newest version, unacknowledged or not.
    pub fn write_over(&mut self, batch: &[Write<'_>], before: Before<'_>) -> Result<Seq, Error> {
        let (Some(indexing), Some(first)) = (self.options.indexing, batch.first()) else {
            return self.write(batch);
        };
        // Entries of a version that cannot be read are somewhere, if there are any, and if it was lost since they were
        // made.
        let is_lost = before == Before::Unknown
            && self.has_entries
            && self.building.is_none()
            && first.key().is_none_or(|key| !self.lost.were_before(key, self.indexed_at));
        let Some(change) = Change::of(&indexing, first, before, is_lost || self.building.is_some()) else {
            return if is_lost { self.write_anew(batch, &indexing, None) } else { self.write(batch) };
        };
        if is_lost {
            return self.write_anew(batch, &indexing, Some(&change));
        }
        let writes: Vec<Write<'_>> = batch.iter().copied().chain(change.writes()).collect();
        let seq = self.write_derived(&writes, batch.len())?;
        self.touch(first);
        Ok(seq)
    }

    /// Writes a batch behind the drop of all entries, which are made anew from then on.
    #[cold]
    fn write_anew(
        &mut self,
        batch: &[Write<'_>],
        indexing: &Indexing,
        change: Option<&Change>,
    ) -> Result<Seq, Error> {
        let (start, end) = indexing.entries;
        let drop = std::iter::once(Write::DropRange { start, end });
        let entries = change.into_iter().flat_map(Change::writes);
        let writes: Vec<Write<'_>> = drop.chain(batch.iter().copied()).chain(entries).collect();
        let seq = self.write_derived(&writes, batch.len())?;
        self.building = Some(Building::from_start(indexing, seq));
        Ok(seq)
    }

    /// Has all entries made anew: some may be of versions that are lost.
    pub(super) fn drop_entries(&mut self) -> Result<(), Error> {
        if let Some(indexing) = self.options.indexing.filter(|_| self.has_entries) {
            let (start, end) = indexing.entries;
            let seq = self.write(&[Write::DropRange { start, end }])?;
            self.building = Some(Building::from_start(&indexing, seq));
        }
        Ok(())
    }

    /// Writes what was derived from a batch of so many writes.
    fn write_derived(&mut self, writes: &[Write<'_>], given: usize) -> Result<Seq, Error> {
        super::write::within("a batch's number of writes", given, BATCH_WRITES_MAX)?;
        let seq = self.write_all(writes)?;
        self.has_entries = true;
        Ok(seq)
    }

    fn touch(&mut self, write: &Write<'_>) {
        let seq = self.writer.last_seq();
        if let (Some(building), Some(key)) = (&mut self.building, write.key()) {
            building.touch(key, seq);
        }
    }

    /// Whether all entries of all objects are there. While they are made anew nobody may rely on them.
    pub fn is_indexed(&self) -> bool {
        self.options.indexing.is_some() && self.building.is_none()
    }

    /// Whether there may be index entries: if not, an object that is replaced without having been read leaves none
    /// behind.
    pub fn has_entries(&self) -> bool {
        self.has_entries
    }

    /// Goes on with making entries.
    pub(super) fn step_index(&mut self, now: Monotonic) {
        let Some(indexing) = self.options.indexing else { return };
        let Some(mut building) = self.building.take() else { return };
        if let Step::Reading(from, outcome) = &building.step
            && let Some(read) = outcome.take()
        {
            let from = from.clone();
            building.step = match read {
                Ok(page) => Step::Write(from, page),
                Err(_) => {
                    building.again_at = Some(now + AGAIN_AFTER);
                    Step::Read(from)
                }
            };
        }
        let is_held = self.maintenance.closing.is_some()
            || self.unfinished().is_some()
            || building.again_at.is_some_and(|at| now < at);
        if is_held {
            self.building = Some(building);
            return;
        }
        building.again_at = None;
        let step = std::mem::replace(&mut building.step, Step::Mark);
        match self.build(step, &mut building, indexing) {
            Ok(true) => {}
            Ok(false) => self.building = Some(building),
            // There is no room in memory for now.
            Err(step) => {
                building.step = step;
                self.building = Some(building);
            }
        }
    }

    /// Makes a step; tells whether it was the last. `Err` has the step that is to be made again.
    fn build(&mut self, step: Step, building: &mut Building, indexing: Indexing) -> Result<bool, Step> {
        match step {
            Step::Drop => {
                let (start, end) = indexing.entries;
                let seq = self.write(&[Write::DropRange { start, end }]).map_err(|_| Step::Drop)?;
                *building = Building::from_start(&indexing, seq);
            }
            Step::Read(from) if building.not_before <= self.acknowledged() => {
                let job = building.read(from, self.snapshot(), indexing);
                self.spawn.spawn(job);
            }
            Step::Write(from, page) => match self.write_page(&page, building) {
                Ok(()) => building.step = Building::behind(page),
                Err(_) => return Err(Step::Write(from, page)),
            },
            Step::Mark => {
                let key = indexing.mark();
                let mark = Write::Put { key, head: &[], value: &[] };
                building.step = Step::Marked(self.write(&[mark]).map_err(|_| Step::Mark)?);
            }
            Step::Marked(seq) if seq <= self.acknowledged() => {
                self.indexed_at = seq;
                return Ok(true);
            }
            waiting @ (Step::Read(_) | Step::Reading(..) | Step::Marked(_)) => building.step = waiting,
        }
        Ok(false)
    }

    /// Writes the entries of a page. What was written before it failed is written again.
    fn write_page(&mut self, page: &Page, building: &Building) -> Result<(), Error> {
        let mut writes = Vec::new();
        for object in page.objects.iter().filter(|object| !building.is_touched(&object.key)) {
            writes.extend(object.entries.iter().map(|key| entry_write(key, object.expires_ms)));
        }
        for batch in writes.chunks(BATCH_WRITES_MAX) {
            self.write(batch)?;
            self.has_entries = true;
        }
        Ok(())
    }
}

fn entry_write(key: &Bytes, expires_ms: Option<u64>) -> Write<'_> {
    match expires_ms {
        None => Write::Put { key, head: &[], value: &[] },
        Some(expires_ms) => Write::PutUntil { key, head: &[], value: &[], expires_ms },
    }
}
