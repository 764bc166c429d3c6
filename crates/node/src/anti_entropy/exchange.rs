//! Exchanges with other nodes ([`kv::aae`]): what this shard compares with them, and what it answers when they compare.
//!
//! 1. A *round* begins every so often. All roots that this node compares with a node are sent in one question; which of two
//!    nodes asks about a partition is settled by its number.
//! 2. The trees that differ are looked into, one after the other ([`Exchange`]).
//! 3. Keys that differ are read for nobody, so that their replicas are repaired: in slices with pauses while clients are served
//!    (`share.rs`). After an exchange there is a pause, too.
//!
//! A tree that was looked into and does not have what the fold has found is made anew: it may be wrong about what it is
//! the hash of, and nothing else.
//!
//! Invariants: one question, one exchange and a slice of repairs at a time from a shard; others wait meanwhile until what they have found
//! is compared once more. While partitions move nothing is compared: who
//! has them is about to change.

use crate::anti_entropy::trees::{NVals, placed_leaf};
use crate::handoff::throttle::HandoffThrottle;
use crate::peer::{AskId, NodeId, PeerMessage};
use crate::request::task::Task;
use crate::shard::Shard;
use crate::shard::effect::Effect;
use crate::shard::reply_to::ReplyTo;
use crate::shard::store_error::store_error;
use crate::topology::nodes;
use base::Monotonic;
use bytes::Bytes;
use engine::fold::{Control, FoldEnd, FoldId, FoldRequest, JournalCheck, KeySegments, What};
use kv::Error;
use kv::aae::{
    CONFIRM_AFTER, Exchange, Grouping, Input, KEYS_MAX, KeyPage, Outcome, Output, ROOTS_MAX, Range,
    SEGMENTS_MAX, Tree, TreeAnswer, TreeAsk, TreeId, day_of,
};
use ring::Partition;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long an answer may take: a fold over some segments, behind everything else on the link.
const ASK_MAX: Duration = Duration::from_secs(10);

const _: () = assert!(kv::props::TTL_MAX as usize / 86_400 + 2 < ROOTS_MAX, "all days are in one question");

/// Bytes of keys on a page.
const PAGE_BYTES_MAX: usize = 256 << 10;

/// Groups in one question that are answered.
const GROUPS_MAX: usize = 65_536;

/// Trees that differ which wait to be looked into; the rest is found by the next round.
const DIFFERING_MAX: usize = 4096;

/// Folds for other nodes at a time.
const FOLDS_MAX: usize = 2;

/// Keys that are repaired at a time while no client is served.
const REPAIRS_MAX: usize = 32;

/// How long nothing is compared after an exchange while clients are served: so many times as long as it took, at most.
const REST: u32 = 7;
const REST_MAX: Duration = Duration::from_secs(1);

/// Exchanges that wait until what differs is compared once more, while others go on: each has some segments' numbers. So many find
/// differences in a thousand partitions within some seconds, where one after the other takes half a second each.
const PAUSED_MAX: usize = 64;

/// In the shares of time the one who takes part.
const REPAIRS: u64 = 1;

/// Who waits for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Ours,
    Theirs(NodeId, AskId),
}

/// Keys that are looked for.
struct Looking {
    whose: Whose,
    tree: TreeId,
    range: Range,
    found: Arc<Mutex<KeyPage>>,
    /// The version of the tree, if the fold sees all that is in it.
    version: Option<Option<u64>>,
}

/// A question that has no answer yet.
#[derive(Debug)]
struct Question {
    id: u64,
    to: NodeId,
    until: Monotonic,
    /// The roots that it is about; none if it is an exchange's.
    roots: Vec<TreeId>,
}

/// An exchange under way.
struct Current {
    with: NodeId,
    exchange: Exchange,
    /// Since when it is busy.
    began: Monotonic,
    /// Keys that are to be repaired, and how many are.
    waiting: VecDeque<Bytes>,
    under_way: usize,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Exchanges {
    next_round: Option<Monotonic>,
    /// Roots that are to be sent.
    roots: VecDeque<(NodeId, Vec<TreeId>)>,
    differing: VecDeque<(NodeId, TreeId)>,
    question: Option<Question>,
    current: Option<Current>,
    /// Those that wait for their confirmation, and when they go on; the first first.
    paused: VecDeque<(Monotonic, Current)>,
    looking: BTreeMap<FoldId, Looking>,
    share: HandoffThrottle,
    /// Whether a key has been repaired since it was last seen to.
    is_repaired: bool,
    /// When the next exchange may begin.
    rests_until: Monotonic,
}

impl Exchanges {
    /// Whether the next exchange may begin, or the next one that pauses go on.
    fn can_go_on(&self, now: Monotonic) -> bool {
        let is_due = self.paused.front().is_some_and(|(resumes, _)| *resumes <= now);
        (is_due || !self.differing.is_empty())
            && self.current.is_none()
            && self.question.is_none()
            && self.rests_until <= now
    }
}

impl Shard {
    /// Goes on with whatever is due.
    pub(crate) fn tick_exchanges(&mut self, now: Monotonic) {
        let Some(interval) = self.env.knobs.anti_entropy.filter(|_| !self.env.peers.is_alone()) else {
            return;
        };
        if self.exchanges.question.as_ref().is_some_and(|question| question.until <= now) {
            self.exchanges.question = None;
            self.fail_current(now);
        }
        let due = *self.exchanges.next_round.get_or_insert_with(|| {
            // Nodes that were started together do not all ask at the same moment.
            let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
            now + Duration::from_nanos(self.env.rng.next_u64() % nanos)
        });
        let is_idle = self.exchanges.roots.is_empty() && self.exchanges.differing.is_empty();
        if due <= now
            && is_idle
            && self.exchanges.current.is_none()
            && self.exchanges.paused.is_empty()
            && !self.trees.are_first_due()
        {
            self.exchanges.next_round = Some(now + interval);
            self.begin_round();
        }
        self.go_on_exchanging(now);
    }

    /// Has the trees of a partition, or of all that this shard has, compared with all others that have them: now, and not in the next
    /// round. What waits to be compared goes with it. Tells how many partitions that are: none while partitions move.
    pub fn compare_trees(&mut self, partition: Option<Partition>) -> usize {
        let is_it =
            |first: &&u16| partition.is_none_or(|it| it == self.env.ownership().partition_of(**first));
        let firsts: Vec<u16> = self.trees.whole.iter().filter(is_it).copied().collect();
        if self.env.knobs.anti_entropy.is_none() || !self.env.topology.is_at_rest() {
            return 0;
        }
        self.exchanges.rests_until = Monotonic(0);
        self.ask_roots(&firsts, |_, _| true);
        firsts.len()
    }

    /// All roots that this node compares with others.
    fn begin_round(&mut self) {
        if !self.env.topology.is_at_rest() {
            return;
        }
        let (here, firsts) = (self.env.peers.here(), self.trees.whole.iter().copied().collect::<Vec<u16>>());
        self.ask_roots(&firsts, |other, partition| asks(here, other, partition));
    }

    /// Has the roots of these partitions sent to the other nodes that this one is to ask about them.
    fn ask_roots(&mut self, firsts: &[u16], asks: impl Fn(NodeId, u32) -> bool) {
        // Those of an earlier question that are still to be sent are sent with these, once.
        let waiting = std::mem::take(&mut self.exchanges.roots);
        let mut roots: BTreeMap<NodeId, BTreeSet<TreeId>> = BTreeMap::new();
        for (node, trees) in waiting {
            roots.entry(node).or_default().extend(trees);
        }
        let (here, n_vals, ring) = (self.env.peers.here(), self.env.n_vals_kept(), &self.env.topology.ring);
        for &first in firsts {
            let at = self.env.ownership().position(first);
            let number = ring.size().partition(at).0;
            for &n_val in &n_vals {
                let list = nodes(ring, at, n_val);
                if !list.contains(&here) {
                    continue;
                }
                let endless = TreeId { first, n_val, day: 0 };
                let ending = self.trees.of_all_days(endless).map(|(tree, _)| *tree);
                let trees: Vec<TreeId> = ending.chain([endless]).collect();
                for other in list.into_iter().filter(|&other| other != here && asks(other, number)) {
                    roots.entry(other).or_default().extend(&trees);
                }
            }
        }
        for (node, trees) in roots {
            self.exchanges.roots.extend(questions(trees).into_iter().map(|trees| (node, trees)));
        }
    }

    fn go_on_exchanging(&mut self, now: Monotonic) {
        if self.exchanges.current.is_some() {
            return self.repair_keys(now);
        }
        let exchanges = &mut self.exchanges;
        if exchanges.question.is_some() || exchanges.rests_until > now || self.env.store.fenced().is_some() {
            return;
        }
        if let Some((_, paused)) = exchanges.paused.pop_front_if(|(resumes, _)| *resumes <= now) {
            exchanges.current = Some(Current { began: now, ..paused });
            self.step_exchange(Input::Resumed, now);
        } else if exchanges.paused.len() < PAUSED_MAX
            && let Some((with, tree)) = exchanges.differing.pop_front()
        {
            // What has moved since is compared with whoever has it now.
            if !self.env.topology.is_at_rest() || !self.env.peers.is_up(with) {
                return;
            }
            let exchange = Exchange::new(tree);
            let (waiting, under_way) = (VecDeque::new(), 0);
            let current = Current { with, exchange, began: now, waiting, under_way };
            self.exchanges.current = Some(current);
            self.step_exchange(Input::Start, now);
        } else if let Some((to, trees)) = exchanges.roots.pop_front()
            && self.env.peers.is_up(to)
        {
            let wall = self.env.clock.wall();
            let comparable = trees.into_iter().filter(|tree| tree.is_comparable(wall));
            let roots: Vec<_> = comparable.map(|tree| (tree, self.trees.root(tree))).collect();
            if !roots.is_empty() {
                self.ask_tree(to, TreeAsk::Roots { roots }, now);
            }
        }
    }

    fn ask_tree(&mut self, to: NodeId, ask: TreeAsk, now: Monotonic) {
        let name = self.env.next_id();
        let roots = match &ask {
            TreeAsk::Roots { roots } => roots.iter().map(|(tree, _)| *tree).collect(),
            _ => Vec::new(),
        };
        self.exchanges.question = Some(Question { id: name, to, until: now + ASK_MAX, roots });
        let (id, partitions) = (self.env.ask_id(name), self.env.topology.ring.size().partitions());
        self.env.send(to, PeerMessage::AskTree { id, partitions, ask });
    }

    fn step_exchange(&mut self, input: Input, now: Monotonic) {
        let Some(current) = &mut self.exchanges.current else { return };
        let empty = Tree::new(kv::aae::BITS_MAX);
        let tree = self.trees.get(current.exchange.tree()).map_or(&empty, |kept| &kept.tree);
        let (with, id) = (current.with, current.exchange.tree());
        match current.exchange.step(input, tree) {
            Output::Wait => {}
            Output::Ask(ask) => self.ask_tree(with, ask, now),
            Output::Pause => {
                let current = self.rest_after_exchange(now);
                self.exchanges.paused.extend(current.map(|current| (now + CONFIRM_AFTER, current)));
            }
            Output::Keys(range) => {
                let Range { bits, segments, from } = range.clone();
                match self.fold_keys(Whose::Ours, id, range) {
                    Ok(()) => self.ask_tree(with, TreeAsk::Keys { tree: id, bits, segments, from }, now),
                    Err(_) => self.fail_current(now),
                }
            }
            Output::Repair(keys) => {
                current.waiting = keys.into();
                self.repair_keys(now);
            }
            Output::Over(outcome) => self.end_exchange(outcome, now),
        }
    }

    fn end_exchange(&mut self, outcome: Outcome, now: Monotonic) {
        self.env.counters.exchanges += 1;
        self.env.counters.exchange_keys += outcome.keys;
        if let Some(current) = &self.exchanges.current {
            self.trees.notes.add_differed(current.exchange.tree().first, outcome.keys);
        }
        drop(self.rest_after_exchange(now));
    }

    fn fail_current(&mut self, now: Monotonic) {
        // What is being repaired is, whoever is down; it asks nobody anything.
        if self.exchanges.current.as_ref().is_some_and(|current| current.under_way == 0) {
            self.env.counters.exchanges_failed += 1;
            drop(self.rest_after_exchange(now));
        }
    }

    /// Takes an exchange that is over, or pauses.
    fn rest_after_exchange(&mut self, now: Monotonic) -> Option<Current> {
        let current = self.exchanges.current.take()?;
        self.exchanges.question = None;
        self.exchanges.looking.retain(|_, looking| looking.whose != Whose::Ours);
        if self.env.activity.yields(now) {
            let rest = now.since(current.began).saturating_mul(REST).min(REST_MAX);
            self.exchanges.rests_until = now + rest;
        }
        Some(current)
    }

    /// Reads as many of the keys that differ as may be read now.
    fn repair_keys(&mut self, now: Monotonic) {
        let yields = self.env.activity.yields(now);
        loop {
            let Exchanges { current, share, .. } = &mut self.exchanges;
            let Some(current) = current else { return };
            if current.under_way == 0 {
                share.end(REPAIRS, now);
            }
            if current.waiting.is_empty() {
                break;
            }
            if !yields {
                if current.under_way >= REPAIRS_MAX {
                    return;
                }
            } else {
                if current.under_way == 0 {
                    share.begin(REPAIRS, (0, 0), now);
                }
                if !share.take(REPAIRS) {
                    return;
                }
            }
            let Some(key) = current.waiting.pop_front() else { return };
            current.under_way += 1;
            match Task::repair(key, ReplyTo::Exchange, &self.env) {
                Some(task) => self.env.start(task),
                None => self.env.raise(Effect::KeyRepaired),
            }
        }
        let Some(current) = &mut self.exchanges.current else { return };
        if current.under_way == 0 {
            self.step_exchange(Input::Repaired, now);
        }
    }

    /// A key could be read.
    pub(crate) fn note_repair(&mut self) {
        if let Some(current) = self.exchanges.current.as_ref() {
            self.trees.notes.add_repaired(current.exchange.tree().first);
        }
    }

    /// A key has been read, and its replicas were sent what they lacked. What comes next does when the turn ends.
    pub(crate) fn on_key_repaired(&mut self) {
        if let Some(current) = &mut self.exchanges.current {
            current.under_way -= 1;
            self.exchanges.is_repaired = true;
        }
    }

    /// Once in a turn.
    pub(crate) fn take_turn_exchanging(&mut self, now: Monotonic) {
        if std::mem::take(&mut self.exchanges.is_repaired) {
            let now = self.env.now();
            self.repair_keys(now);
            self.go_on_exchanging(now);
        } else if self.exchanges.can_go_on(now) {
            self.go_on_exchanging(now);
        }
    }

    /// Looks for keys of some segments of a tree.
    fn fold_keys(&mut self, whose: Whose, tree: TreeId, range: Range) -> Result<(), Error> {
        let segments = KeySegments::new(range.bits, range.segments.iter().copied()).map_err(store_error)?;
        let over = self.env.ownership().keys_of(tree.first, range.from.clone());
        let request = FoldRequest {
            segments: Some(segments),
            past_losses: true,
            // What differs is looked up next, here by the repair and there for it.
            keeps_blocks: true,
            ..FoldRequest::over(over, What::Heads(JournalCheck::None))
        };
        let found: Arc<Mutex<KeyPage>> = Arc::default();
        let (page, mut n_vals, mut bytes) = (Arc::clone(&found), NVals::new(self.env.props.clone()), 0);
        let visitor = move |item: &engine::fold::Visited<'_>| {
            if n_vals.of(item.key) != Some(tree.n_val) || day_of(item.head) != tree.day {
                return Control::Next;
            }
            let mut page = page.lock().unwrap_or_else(PoisonError::into_inner);
            bytes += item.key.len();
            page.keys.push((Bytes::copy_from_slice(item.key), placed_leaf(item.key, item.head).1));
            match page.keys.len() >= KEYS_MAX || bytes >= PAGE_BYTES_MAX {
                true => Control::Stop,
                false => Control::Next,
            }
        };
        let is_all_shown =
            self.env.store.acknowledged() == self.env.store.last_written() && range.from.is_none();
        let version = is_all_shown.then(|| self.trees.get(tree).map(|kept| kept.version));
        let fold = self.env.store.fold_acknowledged(request, Box::new(visitor)).map_err(store_error)?;
        self.exchanges.looking.insert(fold, Looking { whose, tree, range, found, version });
        Ok(())
    }

    /// Takes the end of a fold, if it was one for keys.
    pub(crate) fn on_keys_fold(&mut self, id: FoldId, end: Result<FoldEnd, engine::Error>) {
        let Some(looking) = self.exchanges.looking.remove(&id) else { return };
        let now = self.env.now();
        let has_left_out = end.as_ref().is_ok_and(|end| end.has_left_out);
        let page = end.map_err(store_error).map(|end| {
            let mut page = std::mem::take(&mut *looking.found.lock().unwrap_or_else(PoisonError::into_inner));
            page.next = end.next.map(|place| place.key);
            page
        });
        if let Ok(page) = &page {
            self.check_tree(&looking, page, has_left_out);
        }
        match (looking.whose, page) {
            (Whose::Theirs(to, id), page) => {
                self.env.send(to, PeerMessage::Tree { id, answer: page.map(TreeAnswer::Keys) });
            }
            (Whose::Ours, Ok(page)) => self.step_exchange(Input::Ours(page), now),
            (Whose::Ours, Err(_)) => self.fail_current(now),
        }
        self.go_on_exchanging(now);
    }

    /// Holds a tree against what a fold has found of it, where nothing has changed meanwhile. Where something was lost, or `has_left_out`
    /// says that it cannot be read, it is no wonder that they differ.
    fn check_tree(&mut self, looking: &Looking, page: &KeyPage, has_left_out: bool) {
        let kept = self.trees.get(looking.tree);
        let is_as_it_was = looking.version == Some(kept.map(|kept| kept.version));
        if !is_as_it_was || page.next.is_some() || !self.trees.whole.contains(&looking.tree.first) {
            return;
        }
        let bits = looking.range.bits;
        let mut hashes: BTreeMap<u32, u32> = looking.range.segments.iter().map(|&it| (it, 0)).collect();
        for (key, hash) in &page.keys {
            *hashes.entry(KeySegments::number_of(key, bits)).or_default() ^= hash;
        }
        let group = |segment: u32| kept.map_or(0, |kept| kept.tree.group(segment, bits));
        let is_right = hashes.into_iter().all(|(segment, hash)| group(segment) == hash);
        let is_finer = kept.is_some_and(|kept| kept.tree.bits() < bits);
        if !is_right && !is_finer {
            let keys = self.env.ownership().keys_of(looking.tree.first, None);
            let is_known = kept.is_some_and(|kept| kept.unsure)
                || has_left_out
                // Clocks have a say in what is there of it.
                || looking.tree.day != 0
                || self.env.store.check_range(&keys.start, &keys.end).is_err();
            self.env.counters.trees_wrong += u64::from(!is_known);
            self.trees.make_anew(looking.tree.first);
        }
    }

    /// Another node asks about trees.
    pub(crate) fn on_ask_tree(&mut self, (from, id): (NodeId, AskId), partitions: u32, ask: TreeAsk) {
        let answer = match ask {
            _ if self.env.knobs.anti_entropy.is_none()
                || partitions != self.env.topology.ring.size().partitions() =>
            {
                Err(Error::NotCovered)
            }
            TreeAsk::Roots { roots } => Ok(self.compare_roots(from, roots)),
            TreeAsk::Groups { tree, .. } | TreeAsk::Keys { tree, .. }
                if !self.trees.whole.contains(&tree.first) =>
            {
                Err(Error::Unreachable)
            }
            TreeAsk::Groups { tree, by, groups } => self.compare_groups(tree, by, &groups),
            TreeAsk::Keys { tree, bits, segments, from: start } => {
                let folds = self.exchanges.looking.values().filter(|it| it.whose != Whose::Ours).count();
                let range = Range { bits, segments, from: start };
                let begun = match folds < FOLDS_MAX && range.segments.len() <= SEGMENTS_MAX {
                    true => self.fold_keys(Whose::Theirs(from, id), tree, range),
                    false => Err(Error::Overload),
                };
                match begun {
                    Ok(()) => return,
                    Err(error) => Err(error),
                }
            }
        };
        self.env.send(from, PeerMessage::Tree { id, answer });
    }

    /// Also of days on which keys end here, and none there.
    fn compare_roots(&mut self, from: NodeId, roots: Vec<(TreeId, u32)>) -> TreeAnswer {
        let (now, wall) = (self.env.now(), self.env.clock.wall());
        let (mut differ, mut others) = (Vec::new(), Vec::new());
        let told: BTreeSet<TreeId> = roots.iter().map(|(tree, _)| *tree).collect();
        for (tree, root) in roots.into_iter().take(ROOTS_MAX) {
            if self.env.knobs.layout.shard_of(tree.first) != self.env.knobs.id.0 {
                others.push(tree);
            } else if self.trees.whole.contains(&tree.first) {
                self.trees.notes.set_compared(tree.first, from, now);
                if self.trees.root(tree) != root && tree.is_comparable(wall) {
                    differ.push(tree);
                }
                if tree.day == 0 {
                    let here = self.trees.of_all_days(tree).map(|(tree, _)| *tree);
                    differ.extend(here.filter(|it| !told.contains(it) && it.is_comparable(wall)));
                }
            }
        }
        TreeAnswer::Roots { differ, others }
    }

    fn compare_groups(&self, tree: TreeId, by: Grouping, groups: &[(u32, u32)]) -> Result<TreeAnswer, Error> {
        if groups.len() > GROUPS_MAX {
            return Err(Error::Overload);
        }
        let kept = self.trees.get(tree).map(|kept| &kept.tree);
        let hash = |number| kept.map_or(0, |tree| tree.group_by(by, number));
        let differ =
            groups.iter().filter(|(number, theirs)| hash(*number) != *theirs).map(|(number, _)| *number);
        // An empty tree tells apart whatever the other does.
        let bits = kept.map_or(kv::aae::BITS_MAX, Tree::bits);
        Ok(TreeAnswer::Groups { bits, differ: differ.collect() })
    }

    /// The answer to a question about trees.
    pub(crate) fn on_tree_answer(&mut self, from: NodeId, question: u64, answer: Result<TreeAnswer, Error>) {
        let now = self.env.now();
        let is_it = |asked: &mut Question| asked.id == question && asked.to == from;
        let Some(asked) = self.exchanges.question.take_if(is_it) else { return };
        match answer {
            Ok(TreeAnswer::Roots { differ, others }) if !asked.roots.is_empty() => {
                let left: BTreeSet<TreeId> = others.iter().copied().collect();
                for tree in asked.roots.iter().filter(|tree| !left.contains(tree)) {
                    self.trees.notes.set_compared(tree.first, from, now);
                }
                let room = DIFFERING_MAX.saturating_sub(self.exchanges.differing.len());
                let wall = self.env.clock.wall();
                let is_known =
                    |tree: &TreeId| self.trees.whole.contains(&tree.first) && tree.is_comparable(wall);
                let known = differ.into_iter().filter(is_known);
                self.exchanges.differing.extend(known.take(room).map(|tree| (from, tree)));
                // Fewer each time, since whoever was asked tells of the first.
                if others.len() < asked.roots.len() {
                    self.ask_others(from, others);
                }
            }
            Ok(TreeAnswer::Groups { bits, differ }) if asked.roots.is_empty() => {
                self.step_exchange(Input::Groups { bits, differ }, now);
            }
            Ok(TreeAnswer::Keys(page)) if asked.roots.is_empty() => {
                self.step_exchange(Input::Theirs(page), now)
            }
            _ => self.fail_current(now),
        }
        self.go_on_exchanging(now);
    }

    /// Roots that another shard of the node can tell of.
    fn ask_others(&mut self, node: NodeId, others: Vec<TreeId>) {
        let others: Vec<TreeId> =
            others.into_iter().filter(|tree| self.trees.whole.contains(&tree.first)).collect();
        if !others.is_empty() {
            self.exchanges.roots.push_front((node, others));
        }
    }

    /// Another node will not answer.
    pub(crate) fn fail_exchange(&mut self, node: NodeId) {
        let is_asked = |question: &mut Question| question.to == node;
        if self.exchanges.question.take_if(is_asked).is_some() {
            self.fail_current(self.env.now());
        }
        let paused = self.exchanges.paused.len();
        self.exchanges.paused.retain(|(_, current)| current.with != node);
        self.env.counters.exchanges_failed += (paused - self.exchanges.paused.len()) as u64;
        self.exchanges.roots.retain(|(to, _)| *to != node);
        self.exchanges.differing.retain(|(with, _)| *with != node);
    }
}

/// Trees in questions of at most [`ROOTS_MAX`]. Those that differ only in the day are in one: so whoever is asked knows which of its own are not
/// among them.
fn questions(trees: BTreeSet<TreeId>) -> Vec<Vec<TreeId>> {
    let trees: Vec<TreeId> = trees.into_iter().collect();
    let mut questions: Vec<Vec<TreeId>> = Vec::new();
    for alike in trees.chunk_by(|a, b| (a.first, a.n_val) == (b.first, b.n_val)) {
        match questions.last_mut() {
            Some(last) if last.len() + alike.len() <= ROOTS_MAX => last.extend(alike),
            _ => questions.push(alike.to_vec()),
        }
    }
    questions
}

/// Whether the first of two nodes is the one that asks about a partition: half of them each.
fn asks(here: NodeId, other: NodeId, partition: u32) -> bool {
    (here < other) == partition.is_multiple_of(2)
}
