//! Orphaned ranges: objects here that this node is not to have. They are dropped in the end, after any fault on the
//! way.
//!
//! 1. Once nothing moves any more, a scan names the partitions of which hints are kept. Hints for nodes that are gone
//!    are kept for others from now on (`hint_rounds.rs`).
//! 2. Another one names the partitions with objects here that no list gives to this node. If there are hints, these go
//!    home first, and their objects are forgotten one by one.
//! 3. The rest is dropped, a range at a time; so are hints for this node itself, which come with a copy of another's
//!    disk.
//! 4. Where hints may have been lost, nothing is dropped: all that have the partition get a hint about each of its
//!    objects anew. The same holds where this process has not seen that others were given the objects: owners changed
//!    while it was away or counted as down.
//! 5. It is looked again, after a pause that grows, while something had to stay, while hints are kept (their objects
//!    may be left without one), and while tasks are not over that began before the owners changed.
//!
//! Invariants: nothing is dropped while some request may go by a ring that lists this node; nothing for which there is
//! a hint, or has been since the scan began; and only partitions that this node had by a ring whose successors copied
//! from it, or was to have by a target that was given up. So all that is dropped is on the nodes of the list.

use crate::peer::NodeId;
use crate::request::hint_writer::hint_for_all;
use crate::request::task::placed;
use crate::shard::effect::Effect;
use crate::shard::env::Env;
use crate::shard::owners::ScanOwner;
use crate::topology::{Topology, lists};
use ::object::key;
use base::Monotonic;
use bytes::Bytes;
use engine::fold::{ScanId, ScanPage, ScanRequest, Visit, Visitor};
use engine::{Error, Write};
use ring::{MemberState, Position, Ring};
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
    /// Tasks up to this name began before the owners changed, and may still write objects that are not to be here.
    older: u64,
    /// Rings that this process has seen left since nothing was here that is not to be, the last one last.
    left: Vec<Left>,
}

impl OrphanedRanges {
    /// To be looked for now: owners have changed. Tasks up to `older` have begun before.
    pub(crate) fn look_from(&mut self, now: Monotonic, older: u64) {
        let left = std::mem::take(&mut self.left);
        *self = OrphanedRanges { again: Some(now), older, pause: PAUSE, left, ..OrphanedRanges::default() };
    }

    /// Takes note of the ranges that this node loses by the next topology, and whether others were given them.
    pub fn note_given(&mut self, last: &Topology, next: &Topology, here: NodeId) {
        let Topology { epoch, ring, target, .. } = last;
        let (had, has) = (Arc::clone(ring), Arc::clone(&next.ring));
        if had.owners() != has.owners() {
            // The step after a copy that this node has said to take part in, and has.
            let was_giver = |target: &Arc<Ring>| {
                let lives = target.members().get(here).is_some_and(|it| it.state != MemberState::Down);
                lives && target.owners() == has.owners()
            };
            let is_next = next.before.is_some() && next.epoch.0 == epoch.0 + 1;
            let given = is_next && target.as_ref().is_some_and(was_giver);
            self.note_left(Left { had, has, given });
        } else if let Some(target) = target
            && next.target.as_ref().is_none_or(|next| next.version() != target.version())
        {
            // It was given up. Other nodes have all that was copied for it.
            self.note_left(Left { had: Arc::clone(target), has, given: true });
        }
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        let owner = self.scan.map(|(scan, _)| env.scan_owners.of(scan));
        let is_owner = owner.is_none_or(|owner| owner == Some(&ScanOwner::OrphanedRanges));
        assert!(is_owner, "the scan of a look is under way");
        assert!(self.scan.is_none() || self.again.is_none(), "the next look is set when one has ended");
        assert!(!self.clean || self.found.is_empty(), "all that was found is dropped before a look is clean");
        assert!(!self.clean || self.hinted.is_empty(), "hints go home before all is clean");
        assert!(!self.clean || self.scan.is_none(), "all is clean when a look has ended");
        assert!(!self.kept_for.contains(&env.peers.here()), "hints are kept for other nodes");
        assert!(self.left.len() <= LEFT_MAX, "few rings are remembered");
        assert!(self.pause <= PAUSE_MAX, "the pause is bounded");
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
        let lists = |ring: &Arc<Ring>| lists(ring, at, n_val, here);
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

impl OrphanedRanges {
    /// Whether this node is to have nothing, and nothing is left here that others may lack, nor any request: it may go.
    pub fn is_vacated(&self, env: &Env) -> bool {
        env.ownership().is_gone(env.peers.here()) && self.clean
    }

    /// Whom this shard keeps hints for that hold up its drops, as of its last look. They go home when these
    /// can be reached.
    pub fn kept_for(&self) -> Vec<NodeId> {
        self.kept_for.iter().copied().collect()
    }

    pub(crate) fn tick(&mut self, env: &mut Env, now: Monotonic) {
        let is_due = self.scan.is_none() && self.again.is_some_and(|at| at <= now);
        // Before anything was published this node has only its configuration's word for what is not its own.
        let is_known = env.topology.epoch > crate::Epoch(0);
        let moves = !env.topology.is_at_rest() && !base::planted!(RangeDroppedEarly);
        if !is_due || !is_known || moves || env.store.fenced().is_some() {
            return;
        }
        let OrphanedRanges { older, pause, .. } = *self;
        let (kept_for, left) = (std::mem::take(&mut self.kept_for), std::mem::take(&mut self.left));
        *self = OrphanedRanges { older, pause, kept_for, left, ..OrphanedRanges::default() };
        self.scan_orphans(env, Step::Hints, key::all_hints().start.into(), now);
    }

    fn scan_orphans(&mut self, env: &mut Env, step: Step, start: Bytes, now: Monotonic) {
        let request = |visitor, end: Vec<u8>, items_max, past_losses| ScanRequest {
            start: start.clone(),
            end: end.into(),
            items_max,
            visitor,
            past_losses,
        };
        let scan = match step {
            Step::TaskTable => env.store.scan(request(self.strays(env), key::objects().end, PAGE_MAX, true)),
            Step::Unsure => env.store.scan(request(self.unsure(env), key::objects().end, REHINTED_MAX, true)),
            Step::Hints => {
                let end = key::all_hints().end;
                match env.store.scan(request(hinted(), end.clone(), PAGE_MAX, false)) {
                    Err(Error::Damaged(_)) => {
                        self.unsure = true;
                        env.store.scan(request(hinted(), end, PAGE_MAX, true))
                    }
                    scan => scan,
                }
            }
        };
        match scan {
            Ok(scan) => {
                env.scan_owners.note(scan, ScanOwner::OrphanedRanges);
                self.scan = Some((scan, step));
            }
            Err(_) => {
                self.scan = None;
                self.look_again(now);
            }
        }
    }

    /// Takes a key of each partition that this node is not to have, by the finest of the rings.
    fn strays(&self, env: &Env) -> Visitor {
        let (topology, layout, here) = (env.topology.clone(), env.knobs.layout, env.peers.here());
        let (n_val, finest) = (topology.n_val_max(), topology.finest());
        Box::new(move |key, _| {
            let at = layout.position(key::prefix_of(key));
            let prefixes = layout.prefixes_of(finest.partition(at), finest);
            let end = key::objects_at(*prefixes.end()).end;
            let keeps = match base::planted!(RangeDroppedEarly) {
                true => lists(&topology.ring, at, n_val, here),
                false => topology.is_keeper(here, at, n_val),
            };
            if keeps { Visit::Seek(end) } else { Visit::TakeAndSeek(end) }
        })
    }

    /// All prefixes of the partition that this one is in.
    fn neighbours(&self, env: &Env, prefix: u16) -> RangeInclusive<u16> {
        let (layout, finest) = (&env.knobs.layout, env.topology.finest());
        layout.prefixes_of(finest.partition(layout.position(prefix)), finest)
    }

    /// Takes the keys of the partitions that were found.
    fn unsure(&self, _env: &Env) -> Visitor {
        let wanted = self.found.clone();
        Box::new(move |key, _| {
            let prefix = key::prefix_of(key);
            if wanted.contains(&prefix) { Visit::Take } else { Visit::Seek(key::objects_at(prefix).end) }
        })
    }

    pub(crate) fn on_scan(
        &mut self,
        env: &mut Env,
        scan: ScanId,
        page: Result<ScanPage, Error>,
        oldest_task: Option<u64>,
    ) {
        let Some((_, step)) = self.scan.filter(|(of, _)| *of == scan) else { return };
        let (now, here) = (env.now(), env.peers.here());
        self.scan = None;
        // What cannot be read may be something that is to be passed on first.
        let Ok(ScanPage { items, next, has_left_out: false }) = page else {
            self.look_again(now);
            return;
        };
        match step {
            Step::TaskTable => {
                let prefixes = items.iter().flat_map(|(key, _)| self.neighbours(env, key::prefix_of(key)));
                let prefixes: Vec<u16> = prefixes.collect();
                self.found.extend(prefixes);
            }
            Step::Hints => {
                for (key, _) in items.iter() {
                    let (Ok(object), Ok(node)) = (key::hinted(key), key::hinted_node(key)) else { continue };
                    self.hinted_nodes.insert(NodeId(node));
                    if NodeId(node) != here {
                        self.hinted.insert(key::prefix_of(object));
                    }
                }
            }
            Step::Unsure => {
                if items.into_iter().any(|(key, _)| !self.hint_orphan(env, &key)) {
                    self.look_again(now);
                    return;
                }
            }
        }
        if let Some(next) = next {
            self.scan_orphans(env, step, next, now);
            return;
        }
        match step {
            Step::Hints => {
                let nodes = self.hinted_nodes.clone();
                let gone = nodes.into_iter().filter(|&node| node != here && env.ownership().is_gone(node));
                gone.collect::<Vec<_>>().into_iter().for_each(|node| env.raise(Effect::BringHints(node)));
                self.scan_orphans(env, Step::TaskTable, key::objects().start.into(), now);
            }
            Step::TaskTable => self.end_look(env, oldest_task, now),
            Step::Unsure => self.look_again(now),
        }
    }

    /// All is known that is to be known.
    fn end_look(&mut self, env: &mut Env, oldest: Option<u64>, now: Monotonic) {
        let here = env.peers.here();
        let leaves = env.ownership().is_gone(here);
        let ungiven: Vec<u16> = self.ungiven_orphans(env);
        self.kept_for = match leaves || self.found.iter().any(|prefix| self.hinted.contains(prefix)) {
            true => self.hinted_nodes.iter().copied().filter(|&node| node != here).collect(),
            false => BTreeSet::new(),
        };
        if self.found.is_empty() && !self.hinted_nodes.contains(&here) {
            let is_older = oldest.is_some_and(|name| name <= self.older);
            self.clean = self.hinted.is_empty() && !is_older;
            self.left.clear();
            if self.noted || is_older || leaves && !self.clean {
                self.look_again(now);
            }
        } else if self.unsure || !ungiven.is_empty() {
            if !self.unsure {
                self.found = ungiven.into_iter().collect();
            }
            let hinted = std::mem::take(&mut self.hinted);
            self.found.retain(|prefix| !hinted.contains(prefix));
            self.scan_orphans(env, Step::Unsure, key::objects().start.into(), now);
        } else {
            self.drop_orphans(env, now);
        }
    }

    /// Partitions that were found, have no hints, and that others may not have: not from this node.
    fn ungiven_orphans(&self, env: &Env) -> Vec<u16> {
        let here = env.peers.here();
        let n_val = env.topology.n_val_max();
        let found = self.found.difference(&self.hinted).copied();
        let is_ungiven = |&prefix: &u16| {
            !self.is_given(here, env.ownership().position(prefix), n_val)
                && !base::planted!(RangeDroppedEarly)
        };
        found.filter(is_ungiven).collect()
    }

    /// Has an object brought to all that have its partition. False if nothing can be written.
    fn hint_orphan(&mut self, env: &mut Env, key: &Bytes) -> bool {
        let Ok((prefix, bucket)) = placed(key) else { return true };
        // One whose bucket type is not known here yet is seen again.
        let Ok(props) = env.props.get_as_replica(&bucket) else { return true };
        if props.consistent {
            // Its group has it, and takes no hints.
            return true;
        }
        let n_val = props.n_val;
        hint_for_all(env, key, prefix, n_val, &[]).is_ok()
    }

    fn drop_orphans(&mut self, env: &mut Env, now: Monotonic) {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for &prefix in self.found.difference(&self.hinted) {
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
        let here = env.peers.here();
        if self.hinted_nodes.contains(&here) {
            let own = key::hints(here.0);
            bounds.push((own.start, own.end));
        }
        let drops: Vec<Write<'_>> =
            bounds.iter().map(|(start, end)| Write::DropRange { start, end }).collect();
        let dropped = !drops.is_empty() && env.store.write(&drops).is_ok();
        if dropped {
            env.raise(Effect::RangesDropped);
        }
        if dropped {
            self.pause = PAUSE;
        }
        // Also when all is dropped: the next look says so.
        self.look_again(now);
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
