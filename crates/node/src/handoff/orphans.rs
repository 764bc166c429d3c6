//! What this shard has and this node is not to have: it is dropped, in the end, whatever goes wrong on the way.
//!
//! 1. Once nothing moves any more, a scan names the partitions of which hints are kept. What is kept for nodes that are gone
//!    is kept for others from now on ([`Shard::bring_hints`]).
//! 2. Another one names those that have objects here and are nobody's list's business. If there are hints, these go home
//!    first, and their objects are forgotten one by one.
//! 3. The rest is dropped, a range at a time; so are hints for this node itself, which come with a copy of another's disk.
//! 4. Where hints may have been lost, nothing is: all that have the partition get a hint about each of its objects anew. So they do
//!    where this process has not seen that others were given what is here: owners changed while it was away or counted as down.
//! 5. It is looked again, after a pause that grows, while something had to stay, while hints are kept (what a hint was for may be left
//!    without one), and while work is not over that began before the owners changed.
//!
//! Invariants: nothing is dropped while some request may go by a ring that lists this node; nothing for which there is a
//! hint, or has been since the scan began; and only partitions that this node had by a ring whose successors copied from it, or was
//! to have by a target that was given up. So a drop takes only what those on the list have too.

use crate::peer::NodeId;
use crate::request::task::placed;
use crate::shard::Shard;
use crate::shard::effect::Effect;
use crate::topology::nodes;
use ::object::key;
use base::Monotonic;
use bytes::Bytes;
use engine::fold::{ScanId, ScanPage, ScanRequest, Visit, Visitor};
use engine::{Error, Write};
use ring::{Position, Ring};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks, at first; twice as long each time that nothing can be dropped.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest of it: a look leaps over what is to be here, so many thousand partitions cost some milliseconds.
const PAUSE_MAX: Duration = Duration::from_secs(16);
/// Partitions on one page.
const PAGE_MAX: usize = 4096;
/// Objects on one page that get new hints: one batch for each.
const REHINTED_MAX: usize = 256;
/// Ranges that are dropped at a time: the manifest lists them until merges have removed what is in them.
const DROPS_MAX: usize = 64;

/// Rings that were left which are remembered. What was given by those before goes object by object, to be sure.
const LEFT_MAX: usize = 8;

/// A ring that is not gone by any more.
pub(crate) struct Left {
    pub had: Arc<Ring>,
    /// The one in its place.
    pub has: Arc<Ring>,
    /// Whether others have what this node had, or was to have, by the first.
    pub given: bool,
}

/// What is being looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Partitions with hints.
    Hints,
    /// Partitions with objects.
    TaskTable,
    /// The objects of those that are found, to be hinted anew.
    Unsure,
}

/// What is known of them, by prefix.
#[derive(Default)]
pub(crate) struct OrphanedRanges {
    scan: Option<(ScanId, Step)>,
    found: BTreeSet<u16>,
    /// Those of which hints are kept.
    hinted: BTreeSet<u16>,
    /// For whom.
    hinted_nodes: BTreeSet<NodeId>,
    /// Whether a hint was kept since the look began.
    noted: bool,
    /// Whether hints may have been lost.
    unsure: bool,
    /// Whether the last look found nothing, and nothing has come since.
    clean: bool,
    /// When they are looked for next.
    again: Option<Monotonic>,
    /// The pause before that.
    pause: Duration,
    /// For whom hints are kept that hold up what is to be dropped, as of the last look.
    kept_for: BTreeSet<NodeId>,
    /// Tasks up to this name began before the owners changed, and may still write what is not to be here.
    older: u64,
    /// Rings that this process has seen left since nothing was here that is not to be, the last one last.
    left: Vec<Left>,
}

impl OrphanedRanges {
    /// To be looked for now: owners have changed. Tasks up to `older` has begun before.
    pub(crate) fn look_from(&mut self, now: Monotonic, older: u64) {
        let left = std::mem::take(&mut self.left);
        *self = OrphanedRanges { again: Some(now), older, pause: PAUSE, left, ..OrphanedRanges::default() };
    }

    /// A ring is left.
    pub(crate) fn note_left(&mut self, left: Left) {
        if self.left.len() == LEFT_MAX {
            self.left.remove(0);
        }
        self.left.push(left);
    }

    /// Whether others have what this node has at a position, as far as this process has seen.
    fn is_given(&self, here: NodeId, at: Position, n_val: u32) -> bool {
        let lists = |ring: &Arc<Ring>| nodes(ring, at, n_val).contains(&here);
        self.left.iter().fold(false, |given, left| match (lists(&left.has), lists(&left.had)) {
            (true, _) => false,
            (false, true) => left.given,
            (false, false) => given,
        })
    }

    /// Whether none is left, as far as is known.
    pub(crate) fn is_done(&self) -> bool {
        self.scan.is_none() && self.again.is_none()
    }

    /// A hint is kept, and with it something that may not be to stay.
    pub(crate) fn note_hint(&mut self, prefix: u16, now: Monotonic) {
        self.clean = false;
        if self.scan.is_some() {
            self.noted = true;
            self.hinted.insert(prefix);
        } else if self.again.is_none() {
            self.again = Some(now + self.pause);
        }
    }

    /// To be looked for once more.
    fn look_again(&mut self, now: Monotonic) {
        self.again = Some(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

impl Shard {
    /// Whether this node is to have nothing, and nothing is left here that others may lack, nor any request: it may go.
    pub fn is_vacated(&self) -> bool {
        self.env.ownership().is_gone(self.env.peers.here()) && self.moves.strays.clean && self.is_idle()
    }

    /// Whom this shard keeps hints for that hold up what it is to drop, as of its last look. They go home when these can be
    /// reached.
    pub fn kept_for(&self) -> Vec<NodeId> {
        self.moves.strays.kept_for.iter().copied().collect()
    }

    pub(crate) fn tick_orphans(&mut self, now: Monotonic) {
        let strays = &mut self.moves.strays;
        let is_due = strays.scan.is_none() && strays.again.is_some_and(|at| at <= now);
        // Before anything was published this node has only its configuration's word for what is not its own.
        let is_known = self.env.topology.epoch > crate::Epoch(0);
        let moves = !self.env.topology.is_at_rest() && !base::planted!(RangeDroppedEarly);
        if !is_due || !is_known || moves || self.env.store.fenced().is_some() {
            return;
        }
        let OrphanedRanges { older, pause, .. } = *strays;
        let (kept_for, left) = (std::mem::take(&mut strays.kept_for), std::mem::take(&mut strays.left));
        *strays = OrphanedRanges { older, pause, kept_for, left, ..OrphanedRanges::default() };
        self.scan_orphans(Step::Hints, key::all_hints().start.into(), now);
    }

    fn scan_orphans(&mut self, step: Step, start: Bytes, now: Monotonic) {
        let request = |visitor, end: Vec<u8>, items_max, past_losses| ScanRequest {
            start: start.clone(),
            end: end.into(),
            items_max,
            visitor,
            past_losses,
        };
        let scan = match step {
            Step::TaskTable => {
                self.env.store.scan(request(self.strays(), key::objects().end, PAGE_MAX, true))
            }
            Step::Unsure => {
                self.env.store.scan(request(self.unsure(), key::objects().end, REHINTED_MAX, true))
            }
            Step::Hints => {
                let end = key::all_hints().end;
                match self.env.store.scan(request(hinted(), end.clone(), PAGE_MAX, false)) {
                    Err(Error::Damaged(_)) => {
                        self.moves.strays.unsure = true;
                        self.env.store.scan(request(hinted(), end, PAGE_MAX, true))
                    }
                    scan => scan,
                }
            }
        };
        let strays = &mut self.moves.strays;
        match scan {
            Ok(scan) => strays.scan = Some((scan, step)),
            Err(_) => {
                strays.scan = None;
                strays.look_again(now);
            }
        }
    }

    /// Takes a key of each partition that this node is not to have, by the finest of the rings.
    fn strays(&self) -> Visitor {
        let (topology, layout, here) =
            (self.env.topology.clone(), self.env.knobs.layout, self.env.peers.here());
        let (n_val, finest) = (topology.n_val_max(), topology.finest());
        Box::new(move |key, _| {
            let at = layout.position(key::prefix_of(key));
            let prefixes = layout.prefixes_of(finest.partition(at), finest);
            let end = key::objects_at(*prefixes.end()).end;
            let keeps = match base::planted!(RangeDroppedEarly) {
                true => nodes(&topology.ring, at, n_val).contains(&here),
                false => topology.is_keeper(here, at, n_val),
            };
            if keeps { Visit::Seek(end) } else { Visit::TakeAndSeek(end) }
        })
    }

    /// All prefixes of the partition that this one is in.
    fn neighbours(&self, prefix: u16) -> RangeInclusive<u16> {
        let (layout, finest) = (&self.env.knobs.layout, self.env.topology.finest());
        layout.prefixes_of(finest.partition(layout.position(prefix)), finest)
    }

    /// Takes the keys of the partitions that were found.
    fn unsure(&self) -> Visitor {
        let wanted = self.moves.strays.found.clone();
        Box::new(move |key, _| {
            let prefix = key::prefix_of(key);
            if wanted.contains(&prefix) { Visit::Take } else { Visit::Seek(key::objects_at(prefix).end) }
        })
    }

    pub(crate) fn on_orphan_scan(
        &mut self,
        scan: ScanId,
        page: Result<ScanPage, Error>,
    ) -> Result<(), Result<ScanPage, Error>> {
        let Some((_, step)) = self.moves.strays.scan.filter(|(of, _)| *of == scan) else { return Err(page) };
        let (now, here) = (self.env.now(), self.env.peers.here());
        let strays = &mut self.moves.strays;
        strays.scan = None;
        // What cannot be read may be something that is to be passed on first.
        let Ok(ScanPage { items, next, has_left_out: false }) = page else {
            strays.look_again(now);
            return Ok(());
        };
        match step {
            Step::TaskTable => {
                let prefixes = items.iter().flat_map(|(key, _)| self.neighbours(key::prefix_of(key)));
                let prefixes: Vec<u16> = prefixes.collect();
                self.moves.strays.found.extend(prefixes);
            }
            Step::Hints => {
                for (key, _) in items.iter() {
                    let (Ok(object), Ok(node)) = (key::hinted(key), key::hinted_node(key)) else { continue };
                    strays.hinted_nodes.insert(NodeId(node));
                    if NodeId(node) != here {
                        strays.hinted.insert(key::prefix_of(object));
                    }
                }
            }
            Step::Unsure => {
                if items.into_iter().any(|(key, _)| !self.hint_orphan(&key)) {
                    self.moves.strays.look_again(now);
                    return Ok(());
                }
            }
        }
        if let Some(next) = next {
            self.scan_orphans(step, next, now);
            return Ok(());
        }
        match step {
            Step::Hints => {
                let nodes = self.moves.strays.hinted_nodes.clone();
                let gone =
                    nodes.into_iter().filter(|&node| node != here && self.env.ownership().is_gone(node));
                gone.collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|node| self.env.raise(Effect::BringHints(node)));
                self.scan_orphans(Step::TaskTable, key::objects().start.into(), now);
            }
            Step::TaskTable => self.end_look(now),
            Step::Unsure => self.moves.strays.look_again(now),
        }
        Ok(())
    }

    /// All is known that is to be known.
    fn end_look(&mut self, now: Monotonic) {
        let here = self.env.peers.here();
        let leaves = self.env.ownership().is_gone(here);
        let oldest = self.objects.oldest_name();
        let ungiven: Vec<u16> = self.ungiven_orphans();
        let strays = &mut self.moves.strays;
        strays.kept_for = match leaves || strays.found.iter().any(|prefix| strays.hinted.contains(prefix)) {
            true => strays.hinted_nodes.iter().copied().filter(|&node| node != here).collect(),
            false => BTreeSet::new(),
        };
        if strays.found.is_empty() && !strays.hinted_nodes.contains(&here) {
            let is_older = oldest.is_some_and(|name| name <= strays.older);
            strays.clean = strays.hinted.is_empty() && !is_older;
            strays.left.clear();
            if strays.noted || is_older || leaves && !strays.clean {
                strays.look_again(now);
            }
        } else if strays.unsure || !ungiven.is_empty() {
            if !strays.unsure {
                strays.found = ungiven.into_iter().collect();
            }
            let hinted = std::mem::take(&mut strays.hinted);
            strays.found.retain(|prefix| !hinted.contains(prefix));
            self.scan_orphans(Step::Unsure, key::objects().start.into(), now);
        } else {
            self.drop_orphans(now);
        }
    }

    /// Partitions that were found, have no hints, and that others may not have: not from this node.
    fn ungiven_orphans(&self) -> Vec<u16> {
        let (strays, here) = (&self.moves.strays, self.env.peers.here());
        let n_val = self.env.topology.n_val_max();
        let found = strays.found.difference(&strays.hinted).copied();
        let is_ungiven = |&prefix: &u16| {
            !strays.is_given(here, self.env.ownership().position(prefix), n_val)
                && !base::planted!(RangeDroppedEarly)
        };
        found.filter(is_ungiven).collect()
    }

    /// Has an object brought to all that have its partition. False if nothing can be written.
    fn hint_orphan(&mut self, key: &Bytes) -> bool {
        let Ok((prefix, bucket)) = placed(key) else { return true };
        // One whose bucket type is not known here yet is seen again.
        let Ok(n_val) = self.env.props.get_as_replica(&bucket).map(|props| props.n_val) else { return true };
        self.hint_for_all(key, prefix, n_val, &[]).is_ok()
    }

    fn drop_orphans(&mut self, now: Monotonic) {
        let strays = &self.moves.strays;
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for &prefix in strays.found.difference(&strays.hinted) {
            match ranges.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(prefix) => *last = prefix,
                _ => ranges.push((prefix, prefix)),
            }
        }
        ranges.truncate(DROPS_MAX);
        let mut bounds: Vec<(Vec<u8>, Vec<u8>)> = ranges
            .iter()
            .map(|&(first, last)| (key::objects_at(first).start, key::objects_at(last).end))
            .collect();
        let here = self.env.peers.here();
        if strays.hinted_nodes.contains(&here) {
            let own = key::hints(here.0);
            bounds.push((own.start, own.end));
        }
        let drops: Vec<Write<'_>> =
            bounds.iter().map(|(start, end)| Write::DropRange { start, end }).collect();
        let dropped = !drops.is_empty() && self.env.store.write(&drops).is_ok();
        if dropped {
            self.env.raise(Effect::RangesDropped);
        }
        let strays = &mut self.moves.strays;
        if dropped {
            strays.pause = PAUSE;
        }
        // Also when all is dropped: the next look says so.
        strays.look_again(now);
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
