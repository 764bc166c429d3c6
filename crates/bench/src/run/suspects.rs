//! Reads that answered something too old, until it is known why.
//!
//! 1. A suspect is read again at once, and after 200 ms: by then reads have gone to another replica, or repairs have
//!    had time. What is seen then was stale.
//! 2. What is still out of sight may be lost, or behind a cut network. It is *open*: read again every second, and its
//!    key is not written meanwhile, for what is written over cannot be told from what came back.
//! 3. When the load has ended and a second has passed, it is read for the last time. What is not there then is lost.

use crate::check::{Found, Resolution, Suspicion, Table};
use std::collections::BTreeMap;

/// How long the second look waits after the first.
const LOOK_AGAIN_AFTER_NS: u64 = 200_000_000;

/// Looks before a suspect is open.
const LOOKS: u32 = 2;

/// How often what is open is looked at, and how long after the load the last look comes.
const WATCH_EVERY_NS: u64 = 1_000_000_000;

/// How long after the load somebody must have answered. Nothing is said of what nobody could be asked.
const LAST_LOOK_WITHIN_NS: u64 = 10_000_000_000;

/// Suspects of a worker at a time, and open ones among them: more would be the same story.
const SUSPECTS_MAX: usize = 2000;
const OPEN_MAX: usize = 1000;

/// One of them.
#[derive(Debug)]
pub struct Suspect {
    pub suspicion: Suspicion,
    /// The read's operation and key.
    pub operation: usize,
    pub id: u64,
    looks: u32,
    is_open: bool,
}

/// Those of a worker.
#[derive(Debug, Default)]
pub struct Suspects {
    /// By the time of their next look, and the order in which they came to wait for it.
    waiting: BTreeMap<(u64, u64), Suspect>,
    queued: u64,
    open: usize,
    load_ended: Option<u64>,
}

impl Suspects {
    /// Adds one; false if there are too many.
    pub fn add(&mut self, now: u64, suspicion: Suspicion, operation: usize, id: u64) -> bool {
        if self.waiting.len() >= SUSPECTS_MAX {
            return false;
        }
        self.wait(now, Suspect { suspicion, operation, id, looks: 0, is_open: false });
        true
    }

    /// The next one to be read again by now.
    pub fn due(&mut self, now: u64) -> Option<Suspect> {
        self.waiting.first_entry().filter(|first| first.key().0 <= now).map(|first| first.remove())
    }

    /// When the next look is due.
    pub fn next_at(&self) -> Option<u64> {
        self.waiting.keys().next().map(|(at, _)| *at)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The load is over.
    pub fn end_load(&mut self, now: u64) {
        self.load_ended.get_or_insert(now);
    }

    /// Judges by a look that began at `sent` and found something. None: it will be looked at again.
    pub fn judge(
        &mut self,
        mut suspect: Suspect,
        (sent, now): (u64, u64),
        found: Found,
        table: &Table,
    ) -> Option<Resolution> {
        if let Some(resolution) = suspect.suspicion.explain(found) {
            return self.close(&suspect, resolution, table);
        }
        suspect.looks += 1;
        if suspect.looks < LOOKS {
            return self.wait(now + LOOK_AGAIN_AFTER_NS, suspect);
        }
        if !suspect.is_open {
            // It has to be lived with: the load may go on finding it.
            if !table.tolerate(suspect.suspicion.key, found) {
                return Some(Resolution::Known);
            }
            if self.open >= OPEN_MAX {
                return Some(Resolution::Unresolved);
            }
            self.open += 1;
            suspect.is_open = true;
            table.freeze(suspect.suspicion.key);
        }
        if self.load_ended.is_some_and(|ended| sent >= ended + WATCH_EVERY_NS) {
            let resolution = suspect.suspicion.conclude(table);
            return self.close(&suspect, resolution, table);
        }
        self.wait(now + WATCH_EVERY_NS, suspect)
    }

    /// A look that nobody answered. None: it will be tried again.
    pub fn unanswered(&mut self, suspect: Suspect, now: u64, table: &Table) -> Option<Resolution> {
        match self.load_ended {
            Some(ended) if now > ended + LAST_LOOK_WITHIN_NS => {
                self.close(&suspect, Resolution::Unresolved, table)
            }
            _ => self.wait(now + LOOK_AGAIN_AFTER_NS, suspect),
        }
    }

    fn wait(&mut self, at: u64, suspect: Suspect) -> Option<Resolution> {
        self.queued += 1;
        self.waiting.insert((at, self.queued), suspect);
        None
    }

    fn close(&mut self, suspect: &Suspect, resolution: Resolution, table: &Table) -> Option<Resolution> {
        if suspect.is_open {
            self.open -= 1;
            table.thaw(suspect.suspicion.key);
        }
        Some(resolution)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Cause, Judgement, Key, Outcome};

    const KEY: Key = 42;
    const SECOND: u64 = 1_000_000_000;

    fn write(table: &Table) -> u32 {
        let ticket = table.begin_write(KEY, false);
        table.end_write(KEY, ticket, Outcome::Acknowledged);
        ticket.sequence
    }

    /// A key that was written twice, and a read that saw the first.
    fn suspected() -> (Table, Suspects, u32, u32) {
        let table = Table::new(1 << 20, 1);
        let (old, new) = (write(&table), write(&table));
        let mut suspects = Suspects::default();
        let Judgement::Suspect(suspicion) = table.end_read(KEY, table.begin_read(KEY), Found::Version(old))
        else {
            panic!("it is too old")
        };
        assert!(suspects.add(0, suspicion, 0, 7));
        (table, suspects, old, new)
    }

    /// Looks whenever a look is due, until it is judged: how, and when.
    fn look_on(
        suspects: &mut Suspects,
        table: &Table,
        finds: impl Fn(u64) -> Option<u32>,
    ) -> (Resolution, u64) {
        loop {
            let now = suspects.next_at().unwrap();
            let suspect = suspects.due(now).unwrap();
            let resolution = match finds(now) {
                Some(version) => suspects.judge(suspect, (now, now), Found::Version(version), table),
                None => suspects.unanswered(suspect, now, table),
            };
            if let Some(resolution) = resolution {
                assert!(suspects.is_empty() && !table.is_frozen(KEY));
                return (resolution, now);
            }
        }
    }

    #[test]
    fn what_comes_back_after_a_cut_was_not_lost() {
        let (table, mut suspects, old, new) = suspected();
        let heals = 30 * SECOND;
        let judged = look_on(&mut suspects, &table, |now| Some(if now < heals { old } else { new }));
        assert_eq!(judged.0, Resolution::Cause(Cause::Stale));
        assert!((heals..heals + 2 * SECOND).contains(&judged.1));
    }

    #[test]
    fn what_is_not_there_in_the_end_is_lost_and_counted_once() {
        let (table, mut suspects, old, _) = suspected();
        let Judgement::Suspect(again) = table.end_read(KEY, table.begin_read(KEY), Found::Nothing) else {
            panic!("it is too old")
        };
        for look in 0..5 {
            let now = suspects.next_at().unwrap();
            let suspect = suspects.due(now).unwrap();
            assert_eq!(suspects.judge(suspect, (now, now), Found::Version(old), &table), None, "{look}");
            assert_eq!(table.is_frozen(KEY), look > 0, "{look}");
        }
        suspects.end_load(100 * SECOND);
        let judged = look_on(&mut suspects, &table, |_| Some(old));
        assert_eq!(judged.0, Resolution::Cause(Cause::Lost));
        assert_eq!(again.conclude(&table), Resolution::Known, "the same loss, seen by another");
    }

    #[test]
    fn nothing_is_said_of_what_nobody_answers() {
        let (table, mut suspects, ..) = suspected();
        suspects.end_load(0);
        let (resolution, at) = look_on(&mut suspects, &table, |_| None);
        assert_eq!(resolution, Resolution::Unresolved);
        assert!(at > LAST_LOOK_WITHIN_NS);
    }

    #[test]
    fn there_is_a_bound() {
        let (_, mut suspects, ..) = suspected();
        let suspicion = suspects.due(0).unwrap().suspicion;
        let added = (0..2 * SUSPECTS_MAX as u64).filter(|id| suspects.add(0, suspicion, 0, *id)).count();
        assert_eq!(added, SUSPECTS_MAX);
    }
}
