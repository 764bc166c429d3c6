//! Exchanges with other nodes ([`kv::aae`]): this shard's questions about trees, and its answers to those of others.
//!
//! 1. A *round* begins every so often. All roots that this node compares with a node are sent in one question. The
//!    number of a partition settles which of two nodes asks about it.
//! 2. The trees that differ are looked into, one after the other ([`Exchange`]).
//! 3. Keys that differ are read for nobody, so that their replicas are repaired: in slices with pauses while clients
//!    are served (`throttle.rs`). After an exchange there is a pause, too.
//!
//! A tree without the keys that a fold has found is made anew: it may be wrong about its objects, and about nothing
//! else.
//!
//! Invariants: one question, one exchange and a slice of repairs at a time from a shard; meanwhile others wait until
//! their differences are compared once more. While partitions move nothing is compared: their owners are about to
//! change.

use super::change::placed_leaf;
use super::compare::{check_tree, compare_groups, compare_roots};
use super::kept::KeptTree;
use super::n_vals::NVals;
use super::trees::Trees;
use crate::handoff::throttle::HandoffThrottle;
use crate::peer::{AskId, NodeId, PeerMessage};
use crate::request::task::Task;
use crate::shard::effect::Effect;
use crate::shard::env::Env;
use crate::shard::owners::FoldOwner;
use crate::shard::reply_to::ReplyTo;
use crate::shard::store_error::store_error;
use crate::topology::nodes;
use base::Monotonic;
use bytes::Bytes;
use engine::fold::{Control, FoldEnd, FoldId, FoldRequest, JournalCheck, KeySegments, What};
use kv::Error;
use kv::aae::{
    CONFIRM_AFTER, Exchange, Input, KEYS_MAX, KeyPage, Outcome, Output, ROOTS_MAX, Range, SEGMENTS_MAX, Tree,
    TreeAnswer, TreeAsk, TreeId, day_of,
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

/// Trees that differ which wait to be looked into; the rest is found by the next round.
const DIFFERING_MAX: usize = 4096;

/// Folds for other nodes at a time.
const FOLDS_MAX: usize = 2;

/// Keys that are repaired at a time while no client is served.
const REPAIRS_MAX: usize = 32;

/// How long nothing is compared after an exchange while clients are served: so many times as long as it took, at most.
const REST: u32 = 7;
const REST_MAX: Duration = Duration::from_secs(1);

/// Exchanges that wait until their differences are compared once more, while others go on: each has some segments'
/// numbers. So many find differences in a thousand partitions within some seconds, where one after the other takes half
/// a second each.
const PAUSED_MAX: usize = 64;

/// The name of repairs in the shares of time.
const REPAIRS: u64 = 1;

/// The asker of keys.
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

/// Exchanges of a shard, with their questions and folds.
#[derive(Default)]
pub(super) struct Exchanges {
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

    /// Goes on with all that is due.
    pub fn tick(&mut self, env: &mut Env, trees: &mut Trees, now: Monotonic) {
        let Some(interval) = env.knobs.anti_entropy.filter(|_| !env.peers.is_alone()) else {
            return;
        };
        if self.question.as_ref().is_some_and(|question| question.until <= now) {
            self.question = None;
            self.fail_current(env, now);
        }
        let due = *self.next_round.get_or_insert_with(|| {
            // Nodes that were started together do not all ask at the same moment.
            let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
            now + Duration::from_nanos(env.rng.next_u64() % nanos)
        });
        let is_idle = self.roots.is_empty() && self.differing.is_empty();
        if due <= now && is_idle && self.current.is_none() && self.paused.is_empty() && !trees.are_first_due()
        {
            self.next_round = Some(now + interval);
            self.begin_round(env, trees);
        }
        self.go_on(env, trees, now);
    }

    /// Has the trees of a partition, or of all that this shard has, compared with all others that have them: now, and
    /// not in the next round. Trees that wait to be compared go with them. Tells how many partitions that are: none
    /// while partitions move.
    pub fn compare(&mut self, env: &Env, trees: &Trees, partition: Option<Partition>) -> usize {
        let is_it = |first: &&u16| partition.is_none_or(|it| it == env.ownership().partition_of(**first));
        let firsts: Vec<u16> = trees.whole().iter().filter(is_it).copied().collect();
        if env.knobs.anti_entropy.is_none() || !env.topology.is_at_rest() {
            return 0;
        }
        self.rests_until = Monotonic(0);
        self.ask_roots(env, trees, &firsts, |_, _| true);
        firsts.len()
    }

    /// The first prefixes of partitions whose trees are compared, or wait to be.
    pub fn under_way(&self) -> BTreeSet<u16> {
        let asked = self.question.iter().flat_map(|question| &question.roots);
        let roots = self.roots.iter().flat_map(|(_, trees)| trees).chain(asked).copied();
        let differing = self.differing.iter().map(|&(_, tree)| tree);
        let paused = self.paused.iter().map(|(_, paused)| paused);
        let exchanges = self.current.iter().chain(paused).map(|current| current.exchange.tree());
        roots.chain(differing).chain(exchanges).map(|tree| tree.first).collect()
    }

    /// All roots that this node compares with others.
    fn begin_round(&mut self, env: &Env, trees: &Trees) {
        if !env.topology.is_at_rest() {
            return;
        }
        let (here, firsts) = (env.peers.here(), trees.whole().iter().copied().collect::<Vec<u16>>());
        self.ask_roots(env, trees, &firsts, |other, partition| asks(here, other, partition));
    }

    /// Has the roots of these partitions sent to the other nodes that this one is to ask about them.
    fn ask_roots(&mut self, env: &Env, trees: &Trees, firsts: &[u16], asks: impl Fn(NodeId, u32) -> bool) {
        // Those of an earlier question that are still to be sent are sent with these, once.
        let waiting = std::mem::take(&mut self.roots);
        let mut roots: BTreeMap<NodeId, BTreeSet<TreeId>> = BTreeMap::new();
        for (node, trees) in waiting {
            roots.entry(node).or_default().extend(trees);
        }
        let (here, n_vals, ring) = (env.peers.here(), env.n_vals_kept(), &env.topology.ring);
        for &first in firsts {
            let at = env.ownership().position(first);
            let number = ring.size().partition(at).0;
            for &n_val in &n_vals {
                let list = nodes(ring, at, n_val);
                if !list.contains(&here) {
                    continue;
                }
                let endless = TreeId { first, n_val, day: 0 };
                let ending = trees.of_all_days(endless);
                let trees: Vec<TreeId> = ending.chain([endless]).collect();
                for other in list.into_iter().filter(|&other| other != here && asks(other, number)) {
                    roots.entry(other).or_default().extend(&trees);
                }
            }
        }
        for (node, trees) in roots {
            self.roots.extend(questions(trees).into_iter().map(|trees| (node, trees)));
        }
    }

    fn go_on(&mut self, env: &mut Env, trees: &mut Trees, now: Monotonic) {
        if self.current.is_some() {
            return self.repair_keys(env, trees, now);
        }
        if self.question.is_some() || self.rests_until > now || env.store.fenced().is_some() {
            return;
        }
        if let Some((_, paused)) = self.paused.pop_front_if(|(resumes, _)| *resumes <= now) {
            self.current = Some(Current { began: now, ..paused });
            self.step(env, trees, Input::Resumed, now);
        } else if self.paused.len() < PAUSED_MAX
            && let Some((with, tree)) = self.differing.pop_front()
        {
            // A partition that has moved since is compared with its owner of now.
            if !env.topology.is_at_rest() || !env.peers.is_up(with) {
                return;
            }
            let exchange = Exchange::new(tree);
            let (waiting, under_way) = (VecDeque::new(), 0);
            let current = Current { with, exchange, began: now, waiting, under_way };
            self.current = Some(current);
            self.step(env, trees, Input::Start, now);
        } else if let Some((to, asked)) = self.roots.pop_front()
            && env.peers.is_up(to)
        {
            let wall = env.clock.wall();
            let comparable = asked.into_iter().filter(|tree| tree.is_comparable(wall));
            let roots: Vec<_> = comparable.map(|tree| (tree, trees.root(tree))).collect();
            if !roots.is_empty() {
                self.ask(env, to, TreeAsk::Roots { roots }, now);
            }
        }
    }

    fn ask(&mut self, env: &mut Env, to: NodeId, ask: TreeAsk, now: Monotonic) {
        let name = env.next_id();
        let roots = match &ask {
            TreeAsk::Roots { roots } => roots.iter().map(|(tree, _)| *tree).collect(),
            _ => Vec::new(),
        };
        self.question = Some(Question { id: name, to, until: now + ASK_MAX, roots });
        let (id, partitions) = (env.ask_id(name), env.topology.ring.size().partitions());
        env.send(to, PeerMessage::AskTree { id, partitions, ask });
    }

    fn step(&mut self, env: &mut Env, trees: &mut Trees, input: Input, now: Monotonic) {
        let Some(current) = &mut self.current else { return };
        let empty = Tree::new(kv::aae::BITS_MAX);
        let tree = trees.get(current.exchange.tree()).map_or(&empty, KeptTree::tree);
        let (with, id) = (current.with, current.exchange.tree());
        match current.exchange.step(input, tree) {
            Output::Wait => {}
            Output::Ask(ask) => self.ask(env, with, ask, now),
            Output::Pause => {
                let current = self.rest(env, now);
                self.paused.extend(current.map(|current| (now + CONFIRM_AFTER, current)));
            }
            Output::Keys(range) => {
                let Range { bits, segments, from } = range.clone();
                match self.fold_keys(env, trees, Whose::Ours, id, range) {
                    Ok(()) => self.ask(env, with, TreeAsk::Keys { tree: id, bits, segments, from }, now),
                    Err(_) => self.fail_current(env, now),
                }
            }
            Output::Repair(keys) => {
                current.waiting = keys.into();
                self.repair_keys(env, trees, now);
            }
            Output::Over(outcome) => self.end(env, trees, outcome, now),
        }
    }

    fn end(&mut self, env: &mut Env, trees: &mut Trees, outcome: Outcome, now: Monotonic) {
        env.counters.exchanges += 1;
        env.counters.exchange_keys += outcome.keys;
        if let Some(current) = &self.current {
            trees.notes().add_differed(current.exchange.tree().first, outcome.keys);
        }
        drop(self.rest(env, now));
    }

    fn fail_current(&mut self, env: &mut Env, now: Monotonic) {
        // Repairs under way go on, whichever node is down; they ask it nothing.
        if self.current.as_ref().is_some_and(|current| current.under_way == 0) {
            env.counters.exchanges_failed += 1;
            drop(self.rest(env, now));
        }
    }

    /// Takes an exchange that is over, or pauses.
    fn rest(&mut self, env: &Env, now: Monotonic) -> Option<Current> {
        let current = self.current.take()?;
        self.question = None;
        self.looking.retain(|_, looking| looking.whose != Whose::Ours);
        if env.activity.yields(now) {
            let rest = now.since(current.began).saturating_mul(REST).min(REST_MAX);
            self.rests_until = now + rest;
        }
        Some(current)
    }

    /// Reads as many of the keys that differ as may be read now.
    fn repair_keys(&mut self, env: &mut Env, trees: &mut Trees, now: Monotonic) {
        let yields = env.activity.yields(now);
        loop {
            let Exchanges { current, share, .. } = self;
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
            match Task::repair(key, ReplyTo::Exchange, env) {
                Some(task) => env.start(task),
                None => env.raise(Effect::KeyRepaired),
            }
        }
        let Some(current) = &mut self.current else { return };
        if current.under_way == 0 {
            self.step(env, trees, Input::Repaired, now);
        }
    }

    /// A key could be read.
    pub fn note_repair(&mut self, trees: &mut Trees) {
        if let Some(current) = self.current.as_ref() {
            trees.notes().add_repaired(current.exchange.tree().first);
        }
    }

    /// A key has been read, and its replicas were sent all that they lacked. The next step comes when the turn ends.
    pub fn on_key_repaired(&mut self) {
        if let Some(current) = &mut self.current {
            current.under_way -= 1;
            self.is_repaired = true;
        }
    }

    /// Once in a turn.
    pub fn take_turn(&mut self, env: &mut Env, trees: &mut Trees, now: Monotonic) {
        if std::mem::take(&mut self.is_repaired) {
            let now = env.now();
            self.repair_keys(env, trees, now);
            self.go_on(env, trees, now);
        } else if self.can_go_on(now) {
            self.go_on(env, trees, now);
        }
    }

    /// Looks for keys of some segments of a tree.
    fn fold_keys(
        &mut self,
        env: &mut Env,
        trees: &Trees,
        whose: Whose,
        tree: TreeId,
        range: Range,
    ) -> Result<(), Error> {
        let segments = KeySegments::new(range.bits, range.segments.iter().copied()).map_err(store_error)?;
        let over = env.ownership().keys_of(tree.first, range.from.clone());
        let request = FoldRequest {
            segments: Some(segments),
            past_losses: true,
            // Keys that differ are looked up next, here by the repair and there for it.
            keeps_blocks: true,
            ..FoldRequest::over(over, What::Heads(JournalCheck::None))
        };
        let found: Arc<Mutex<KeyPage>> = Arc::default();
        let (page, mut n_vals, mut bytes) = (Arc::clone(&found), NVals::new(env.props.clone()), 0);
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
        let is_all_shown = env.store.acknowledged() == env.store.last_written() && range.from.is_none();
        let version = is_all_shown.then(|| trees.get(tree).map(|kept| kept.version()));
        let fold = env.store.fold_acknowledged(request, Box::new(visitor)).map_err(store_error)?;
        env.fold_owners.note(fold, FoldOwner::BranchKeys);
        self.looking.insert(fold, Looking { whose, tree, range, found, version });
        Ok(())
    }

    /// Takes the end of a fold for keys.
    pub fn on_fold(
        &mut self,
        env: &mut Env,
        trees: &mut Trees,
        id: FoldId,
        end: Result<FoldEnd, engine::Error>,
    ) {
        let Some(looking) = self.looking.remove(&id) else { return };
        let now = env.now();
        let has_left_out = end.as_ref().is_ok_and(|end| end.has_left_out);
        let page = end.map_err(store_error).map(|end| {
            let mut page = std::mem::take(&mut *looking.found.lock().unwrap_or_else(PoisonError::into_inner));
            page.next = end.next.map(|place| place.key);
            page
        });
        if let Ok(page) = &page {
            check_tree(env, trees, (looking.tree, looking.version), &looking.range, page, has_left_out);
        }
        match (looking.whose, page) {
            (Whose::Theirs(to, id), page) => {
                env.send(to, PeerMessage::Tree { id, answer: page.map(TreeAnswer::Keys) });
            }
            (Whose::Ours, Ok(page)) => self.step(env, trees, Input::Ours(page), now),
            (Whose::Ours, Err(_)) => self.fail_current(env, now),
        }
        self.go_on(env, trees, now);
    }

    /// Another node asks about trees.
    pub fn on_ask(
        &mut self,
        env: &mut Env,
        trees: &mut Trees,
        (from, id): (NodeId, AskId),
        partitions: u32,
        ask: TreeAsk,
    ) {
        let answer = match ask {
            _ if env.knobs.anti_entropy.is_none() || partitions != env.topology.ring.size().partitions() => {
                Err(Error::NotCovered)
            }
            TreeAsk::Roots { roots } => Ok(compare_roots(env, trees, from, roots)),
            TreeAsk::Groups { tree, .. } | TreeAsk::Keys { tree, .. } if !trees.is_whole(tree.first) => {
                Err(Error::Unreachable)
            }
            TreeAsk::Groups { tree, by, groups } => compare_groups(trees, tree, by, &groups),
            TreeAsk::Keys { tree, bits, segments, from: start } => {
                let folds = self.looking.values().filter(|it| it.whose != Whose::Ours).count();
                let range = Range { bits, segments, from: start };
                let begun = match folds < FOLDS_MAX && range.segments.len() <= SEGMENTS_MAX {
                    true => self.fold_keys(env, trees, Whose::Theirs(from, id), tree, range),
                    false => Err(Error::Overload),
                };
                match begun {
                    Ok(()) => return,
                    Err(error) => Err(error),
                }
            }
        };
        env.send(from, PeerMessage::Tree { id, answer });
    }

    /// The answer to a question about trees.
    pub fn on_answer(
        &mut self,
        env: &mut Env,
        trees: &mut Trees,
        from: NodeId,
        question: u64,
        answer: Result<TreeAnswer, Error>,
    ) {
        let now = env.now();
        let is_it = |asked: &mut Question| asked.id == question && asked.to == from;
        let Some(asked) = self.question.take_if(is_it) else { return };
        match answer {
            Ok(TreeAnswer::Roots { differ, others }) if !asked.roots.is_empty() => {
                let left: BTreeSet<TreeId> = others.iter().copied().collect();
                for tree in asked.roots.iter().filter(|tree| !left.contains(tree)) {
                    trees.notes().set_compared(tree.first, from, now);
                }
                let room = DIFFERING_MAX.saturating_sub(self.differing.len());
                let wall = env.clock.wall();
                let is_known = |tree: &TreeId| trees.is_whole(tree.first) && tree.is_comparable(wall);
                let known = differ.into_iter().filter(is_known);
                self.differing.extend(known.take(room).map(|tree| (from, tree)));
                // Fewer each time, since the answer covers the first.
                if others.len() < asked.roots.len() {
                    self.ask_others(trees, from, others);
                }
            }
            Ok(TreeAnswer::Groups { bits, differ }) if asked.roots.is_empty() => {
                self.step(env, trees, Input::Groups { bits, differ }, now);
            }
            Ok(TreeAnswer::Keys(page)) if asked.roots.is_empty() => {
                self.step(env, trees, Input::Theirs(page), now)
            }
            _ => self.fail_current(env, now),
        }
        self.go_on(env, trees, now);
    }

    /// Roots that another shard of the node can tell of.
    fn ask_others(&mut self, trees: &Trees, node: NodeId, others: Vec<TreeId>) {
        let others: Vec<TreeId> = others.into_iter().filter(|tree| trees.is_whole(tree.first)).collect();
        if !others.is_empty() {
            self.roots.push_front((node, others));
        }
    }

    /// Another node will not answer.
    pub fn fail(&mut self, env: &mut Env, node: NodeId) {
        let is_asked = |question: &mut Question| question.to == node;
        if self.question.take_if(is_asked).is_some() {
            self.fail_current(env, env.now());
        }
        let paused = self.paused.len();
        self.paused.retain(|(_, current)| current.with != node);
        env.counters.exchanges_failed += (paused - self.paused.len()) as u64;
        self.roots.retain(|(to, _)| *to != node);
        self.differing.retain(|(with, _)| *with != node);
    }
    /// The relations of its fields.
    pub fn invariants(&self, env: &Env) {
        for &fold in self.looking.keys() {
            assert_eq!(
                env.fold_owners.of(fold),
                Some(&FoldOwner::BranchKeys),
                "folds for keys are under way"
            );
        }
        let is_busy = self.current.is_some();
        let asks = self.question.as_ref().is_some_and(|question| question.roots.is_empty());
        let looks = self.looking.values().any(|looking| looking.whose == Whose::Ours);
        assert!(is_busy || !asks, "a question about a tree is of the exchange under way");
        assert!(is_busy || !looks, "a fold for keys is of the exchange under way");
        if let Some(question) = &self.question {
            assert!(question.roots.len() <= ROOTS_MAX, "the roots of a question are bounded");
            assert!(asks || !is_busy, "roots are asked for between exchanges");
            let with = self.current.as_ref().map(|current| current.with);
            assert!(with.is_none_or(|with| with == question.to), "an exchange asks its own node");
        }
        self.share.invariants();
        let theirs = self.looking.values().filter(|looking| looking.whose != Whose::Ours).count();
        assert!(theirs <= FOLDS_MAX, "folds for other nodes are bounded");
        assert!(self.paused.len() <= PAUSED_MAX, "exchanges that pause are bounded");
        assert!(self.differing.len() <= DIFFERING_MAX, "trees that wait are bounded");
        let ends = self.paused.front().zip(self.paused.back());
        assert!(ends.is_none_or(|((first, _), (last, _))| first <= last), "the first to go on is the first");
    }
}

/// Trees in questions of at most [`ROOTS_MAX`]. Those that differ only in the day are in one: so the receiver knows
/// which of its own are not among them.
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
