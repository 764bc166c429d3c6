//! Partitions that this shard has and this node is not to have: they are dropped.
//!
//! 1. Once nothing moves any more, a scan names the partitions that have objects here and are nobody's list's business.
//! 2. Another one names those of which hints are kept: their objects go home first.
//! 3. The rest is dropped, a range at a time. What had to stay is looked at again after a while.
//!
//! Invariants: nothing is dropped while some request may go by a ring that lists this node; nothing for which there is a
//! hint, or has been since the scan began. So a drop takes only what those on the list have too.

use super::Shard;
use ::object::key;
use base::Monotonic;
use bytes::Bytes;
use engine::Write;
use engine::fold::{ScanId, ScanPage, ScanRequest, Visit, Visitor};
use std::collections::BTreeSet;
use std::time::Duration;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// Partitions on one page.
const PAGE_MAX: usize = 4096;
/// Ranges that are dropped at a time: the manifest lists them until merges have removed what is in them.
const DROPS_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Objects,
    Hints,
}

/// What is known of them.
#[derive(Default)]
pub(super) struct Strays {
    scan: Option<(ScanId, Step)>,
    found: BTreeSet<u16>,
    /// Those of which hints are kept.
    hinted: BTreeSet<u16>,
    /// When they are looked for next.
    again: Option<Monotonic>,
}

impl Strays {
    /// To be looked for now: owners have changed.
    pub(super) fn look_at(&mut self, now: Monotonic) {
        *self = Strays { again: Some(now), ..Strays::default() };
    }

    pub(super) fn note_hint(&mut self, prefix: u16) {
        if self.scan.is_some() {
            self.hinted.insert(prefix);
        }
    }
}

impl Shard {
    pub(super) fn tick_strays(&mut self, now: Monotonic) {
        let strays = &self.moves.strays;
        let is_due = strays.scan.is_none() && strays.again.is_some_and(|at| at <= now);
        let moves = self.moves.is_moving() && !base::planted!(RangeDroppedEarly);
        if is_due && !moves && self.store.fenced().is_none() {
            self.moves.strays.found.clear();
            self.moves.strays.hinted.clear();
            self.scan_strays(Step::Objects, key::objects().start.into(), now);
        }
    }

    fn scan_strays(&mut self, step: Step, start: Bytes, now: Monotonic) {
        let (visitor, end): (Visitor, Vec<u8>) = match step {
            Step::Objects => (self.strays(), key::objects().end),
            Step::Hints => (hinted(), key::all_hints().end),
        };
        let request = ScanRequest { start, end: end.into(), items_max: PAGE_MAX, visitor };
        let strays = &mut self.moves.strays;
        strays.scan = self.store.scan(request).ok().map(|scan| (scan, step));
        strays.again = strays.scan.is_none().then_some(now + PAUSE);
    }

    /// Takes a key of each partition that this node is not to have.
    fn strays(&self) -> Visitor {
        let (topology, here) = (self.moves.topology.clone(), self.peers.here());
        let n_val = topology.n_val_max();
        Box::new(move |key, _| {
            let prefix = key::prefix_of(key);
            let end = key::objects_at(prefix).end;
            let keeps = match base::planted!(RangeDroppedEarly) {
                true => crate::topology::nodes(&topology.ring, ring::Partition(prefix.into()), n_val)
                    .contains(&here),
                false => topology.is_keeper(here, ring::Partition(prefix.into()), n_val),
            };
            if keeps { Visit::Seek(end) } else { Visit::TakeAndSeek(end) }
        })
    }

    pub(super) fn on_stray_page(
        &mut self,
        scan: ScanId,
        page: Result<ScanPage, engine::Error>,
    ) -> Result<(), Result<ScanPage, engine::Error>> {
        let Some((_, step)) = self.moves.strays.scan.filter(|(of, _)| *of == scan) else { return Err(page) };
        let now = self.config.clock.now();
        let strays = &mut self.moves.strays;
        let Ok(page) = page else {
            (strays.scan, strays.again) = (None, Some(now + PAUSE));
            return Ok(());
        };
        let prefixes = page.items.iter().map(|(key, _)| key::prefix_of(key::hinted(key).unwrap_or(key)));
        match step {
            Step::Objects => strays.found.extend(prefixes),
            Step::Hints => strays.hinted.extend(prefixes),
        }
        match (page.next, step) {
            (Some(next), step) => self.scan_strays(step, next, now),
            (None, Step::Objects) if strays.found.is_empty() => strays.scan = None,
            (None, Step::Objects) => self.scan_strays(Step::Hints, key::all_hints().start.into(), now),
            (None, Step::Hints) => self.drop_strays(now),
        }
        Ok(())
    }

    fn drop_strays(&mut self, now: Monotonic) {
        let strays = std::mem::take(&mut self.moves.strays);
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for &prefix in strays.found.difference(&strays.hinted) {
            match ranges.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(prefix) => *last = prefix,
                _ => ranges.push((prefix, prefix)),
            }
        }
        let is_all = strays.found.is_disjoint(&strays.hinted) && ranges.len() <= DROPS_MAX;
        ranges.truncate(DROPS_MAX);
        let bounds: Vec<(Vec<u8>, Vec<u8>)> = ranges
            .iter()
            .map(|&(first, last)| (key::objects_at(first).start, key::objects_at(last).end))
            .collect();
        let drops: Vec<Write<'_>> =
            bounds.iter().map(|(start, end)| Write::DropRange { start, end }).collect();
        let dropped = drops.is_empty() || self.store.write(&drops).is_ok();
        self.moves.strays.again = (!is_all || !dropped).then_some(now + PAUSE);
    }
}

/// Takes a hint of each node for each partition.
fn hinted() -> Visitor {
    Box::new(|key, _| match (key::hinted(key), key::hinted_node(key)) {
        (Ok(object), Ok(node)) => {
            Visit::TakeAndSeek(key::hint(node, &key::objects_at(key::prefix_of(object)).end))
        }
        _ => Visit::Skip,
    })
}
