//! Hints: what is kept here for primaries that were away, and how it comes home.
//!
//! A hint is an entry of the ledger, (node, key), without content: what is to be brought is whatever is stored here
//! under the key when its turn comes. It is written in one batch with the version it is for, so a crash leaves both
//! or neither.
//!
//! 1. When a peer comes up, its hints are scanned, a page at a time.
//! 2. Each hint of a page is a [`kv::Deliver`], a few at a time; each forgets its hint when it is home.
//! 3. When a page is done, the next one is scanned: where it begins is the checkpoint. An interruption costs what
//!    was under way, no more.
//! 4. After the last page: if hints stayed, new ones were kept meanwhile, or some could not be acknowledged yet when the round began, so that
//!    its scan may have missed them, the next round begins after a pause.
//!
//! While the disk has no room for a hint it is remembered here, and written when there is.
//!
//! Invariant: a hint that is in the ledger when its peer is up is tried again until it is home.

use crate::peer::NodeId;
use crate::request::task::{Coordinator, Task, placed};
use crate::shard::Shard;
use crate::shard::effect::Effect;
use crate::shard::reply_to::ReplyTo;
use crate::topology::nodes;
use base::Monotonic;
use bytes::Bytes;
use engine::fold::{ScanId, ScanPage, ScanRequest, Visit};
use engine::{Error, Seq, Write};
use object::key;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Hints on a page: some tens of kilobytes of keys.
const PAGE_HINTS_MAX: usize = 256;

/// Deliveries under way for one peer: enough to fill a link's batch, few enough that clients do not notice.
const UNDER_WAY_MAX: usize = 32;

/// Deliveries under way while clients keep this shard busy.
const UNDER_WAY_BUSY_MAX: usize = 4;

/// Load beyond which this shard counts as busy here: what it may have before it can be overloaded.
const LOAD_BUSY: usize = crate::shard::knobs::OVERLOAD_WORK_MIN;

/// How long one delivery may take: a large object over a slow link.
const DELIVERY_MAX: Duration = Duration::from_secs(30);

/// Between two rounds.
const PAUSE: Duration = Duration::from_secs(1);

/// Hints that are remembered while the disk has no room for them: some megabytes. Each was a coordinator's a moment ago.
const UNKEPT_MAX: usize = 16_384;

/// What is done about one peer's hints.
#[derive(Default)]
struct Round {
    scan: Option<ScanId>,
    /// Where the next page begins; `None` when this is the last.
    next: Option<Bytes>,
    /// Hints of this page that have not been begun.
    waiting: VecDeque<Bytes>,
    under_way: usize,
    /// Whether the round is going on.
    active: bool,
    /// When the next one is due, if one is.
    again: Option<Monotonic>,
    /// Whether something was delivered or tried in this round.
    tried: bool,
    /// Whether a hint was kept since the last round began.
    kept: bool,
    /// What was written with hints when the round began, and could not be acknowledged yet: its scan sees only what may be.
    unseen: Option<Seq>,
}

/// The hints of all peers.
#[derive(Default)]
pub(crate) struct Hints {
    /// By whom they are for.
    rounds: BTreeMap<NodeId, Round>,
    scans: BTreeMap<ScanId, NodeId>,
    /// Keys with whom their hints are for, which could not be written yet.
    unkept: VecDeque<(Bytes, Vec<NodeId>)>,
}

impl Shard {
    /// The ledger keys of hints about a key.
    pub(crate) fn hint_keys(&mut self, nodes: &[NodeId], object_key: &[u8]) -> Vec<Vec<u8>> {
        let prefix = key::prefix_of(object_key);
        self.env.raise(Effect::HintsKept { prefix, nodes: nodes.to_vec() });
        self.env.counters.hints += nodes.len() as u64;
        nodes.iter().map(|node| key::hint(node.0, object_key)).collect()
    }

    /// Hints are kept: a round is to bring them home.
    pub(crate) fn on_hints_kept(&mut self, prefix: u16, nodes: &[NodeId]) {
        let now = self.env.now();
        self.moves.strays.note_hint(prefix, now);
        for &node in nodes {
            let round = self.hints.rounds.entry(node).or_default();
            round.kept = true;
            if !round.active && round.again.is_none() {
                round.again = Some(now + PAUSE);
            }
        }
    }

    /// Keeps hints about what is stored here under the work's key.
    pub(crate) fn keep_hints(&mut self, work: &Task, nodes: &[NodeId]) -> Result<Seq, Error> {
        let written = self.write_hints(&work.key, nodes);
        match written {
            Err(Error::Exhausted(_)) if self.hints.unkept.len() < UNKEPT_MAX => {
                self.hints.unkept.push_back((work.key.clone(), nodes.to_vec()));
            }
            Err(_) => self.env.counters.hints_lost += nodes.len() as u64,
            Ok(_) => {}
        }
        written
    }

    fn write_hints(&mut self, object_key: &[u8], nodes: &[NodeId]) -> Result<Seq, Error> {
        let keys = self.hint_keys(nodes, object_key);
        let writes: Vec<_> = keys.iter().map(|key| Write::Put { key, head: &[], value: &[] }).collect();
        self.env.store.write(&writes)
    }

    /// Writes what there was no room for.
    fn keep_unkept(&mut self) {
        while let Some((key, nodes)) = self.hints.unkept.pop_front() {
            // They were counted when they were to be kept first.
            self.env.counters.hints -= nodes.len() as u64;
            match self.write_hints(&key, &nodes) {
                Ok(_) => {}
                Err(Error::Exhausted(_)) => return self.hints.unkept.push_front((key, nodes)),
                Err(_) => self.env.counters.hints_lost += nodes.len() as u64,
            }
        }
    }

    /// Whether a hint about this key is yet to be written.
    pub(crate) fn has_unkept(&self, key: &Bytes) -> bool {
        self.hints.unkept.iter().any(|(about, _)| about == key)
    }

    /// Forgets a hint that is home, and with `object` the key that was kept for it alone.
    pub(crate) fn forget_hint(&mut self, work: &Task, node: NodeId, object: bool) {
        let hint = key::hint(node.0, &work.key);
        // It may have become this node's to keep since.
        let object = object && !self.env.ownership().keeps(&work.key, work.props.n_val);
        let both = [Write::Delete { key: &work.key }, Write::Delete { key: &hint }];
        let written = match object {
            true => self.env.store.write_over(&both, work.prior.before(self.env.store.has_entries())),
            false => self.env.store.write(&both[1..]),
        };
        if object {
            self.actors.forget(&work.key);
            // It may be in a tree: that of the partition, which this node has for buckets with more replicas.
            self.note_written(work, None, &written);
        }
        // A hint that cannot be removed is brought once more.
        if written.is_ok() {
            self.env.counters.hints_home += 1;
        }
    }

    /// Begins to bring a peer's hints home.
    pub(crate) fn bring_hints(&mut self, node: NodeId) {
        let (written, acknowledged) = (self.env.store.last_written(), self.env.store.acknowledged());
        let round = self.hints.rounds.entry(node).or_default();
        if !round.active {
            let with_hints = if round.kept { Some(written) } else { round.unseen };
            let unseen = with_hints.filter(|seq| *seq > acknowledged);
            *round = Round { active: true, unseen, under_way: round.under_way, ..Round::default() };
            self.env.counters.hint_rounds += 1;
            self.scan_hints(node, Bytes::from(key::hints(node.0).start));
        }
    }

    /// Begins rounds that are due.
    pub(crate) fn tick_hints(&mut self, now: Monotonic) {
        self.keep_unkept();
        let due = |round: &Round| !round.active && round.again.is_some_and(|at| at <= now);
        let due: Vec<NodeId> =
            self.hints.rounds.iter().filter(|(_, round)| due(round)).map(|(&node, _)| node).collect();
        for node in due {
            if self.env.peers.is_up(node) || self.env.ownership().is_gone(node) {
                self.bring_hints(node);
            }
        }
    }

    fn scan_hints(&mut self, node: NodeId, start: Bytes) {
        let end = Bytes::from(key::hints(node.0).end);
        let visitor = Box::new(|_: &[u8], _: &[u8]| Visit::Take);
        // Of hints that were lost nothing is known; the others come home.
        let request = ScanRequest { start, end, items_max: PAGE_HINTS_MAX, visitor, past_losses: true };
        match self.env.store.scan(request) {
            Ok(scan) => {
                self.hints.scans.insert(scan, node);
                self.hints.rounds.entry(node).or_default().scan = Some(scan);
            }
            Err(_) => self.fail_round(node),
        }
    }

    /// Takes a page of hints, if the scan was for one.
    pub(crate) fn on_hints(
        &mut self,
        scan: ScanId,
        page: Result<ScanPage, Error>,
    ) -> Result<(), Result<ScanPage, Error>> {
        let Some(node) = self.hints.scans.remove(&scan) else { return Err(page) };
        let round = self.hints.rounds.entry(node).or_default();
        round.scan = None;
        match page {
            Ok(page) => {
                round.next = page.next;
                round.waiting.extend(page.items.into_iter().map(|(key, _)| key));
                self.deliver_hints(node);
            }
            Err(_) => self.fail_round(node),
        }
        Ok(())
    }

    fn deliver_hints(&mut self, node: NodeId) {
        if !self.env.peers.is_up(node) && !self.env.ownership().is_gone(node) {
            return self.end_round(node);
        }
        let most =
            if self.env.gauges.load().0 as usize > LOAD_BUSY { UNDER_WAY_BUSY_MAX } else { UNDER_WAY_MAX };
        loop {
            let round = self.hints.rounds.entry(node).or_default();
            if !round.active || round.under_way >= most {
                return;
            }
            let Some(hint) = round.waiting.pop_front() else { break };
            round.under_way += 1;
            round.tried = true;
            self.deliver(node, &hint);
        }
        let round = self.hints.rounds.entry(node).or_default();
        if round.under_way > 0 || round.scan.is_some() {
            return;
        }
        match round.next.take() {
            Some(next) => self.scan_hints(node, next),
            None => self.end_round(node),
        }
    }

    fn deliver(&mut self, node: NodeId, hint: &Bytes) {
        let deadline = self.env.now() + DELIVERY_MAX;
        let made = key::hinted(hint).and_then(|object_key| {
            let object_key = hint.slice_ref(object_key);
            let (prefix, bucket) = placed(&object_key)?;
            Ok((object_key, prefix, bucket))
        });
        let work = made.ok().and_then(|(key, prefix, bucket)| {
            let props = Arc::clone(self.env.props.get_as_replica(&bucket).ok()?);
            if self.env.ownership().is_keeper_gone(node, prefix, props.n_val) {
                self.hint_anew(node, &key, prefix, props.n_val);
                return None;
            }
            let others = self.env.ownership().other_primaries(prefix, props.n_val, node);
            let deliver = Coordinator::Deliver(kv::Deliver::new(node, others));
            Some(Task::new(ReplyTo::Nobody, deliver, key, props, deadline))
        });
        match work {
            Some(work) => self.env.start(work),
            None => self.env.raise(Effect::HintDelivered(node)),
        }
    }

    /// The node has given the partition up: what was kept for it is kept for all that have it now.
    fn hint_anew(&mut self, node: NodeId, key: &Bytes, prefix: u16, n_val: u32) {
        let before = key::hint(node.0, key);
        // One that cannot be changed now is tried again with the next round.
        let changed = self.hint_for_all(key, prefix, n_val, &[Write::Delete { key: &before }]);
        self.env.counters.hints_lost += u64::from(changed.is_err());
    }

    /// Keeps a hint for all others that have the partition, in one batch with what else is to be written.
    pub(crate) fn hint_for_all(
        &mut self,
        key: &Bytes,
        prefix: u16,
        n_val: u32,
        more: &[Write<'_>],
    ) -> Result<Seq, Error> {
        let mut nodes = nodes(&self.env.topology.ring, self.env.ownership().position(prefix), n_val);
        nodes.retain(|&other| other != self.env.peers.here());
        let keys = self.hint_keys(&nodes, key);
        let hints = keys.iter().map(|key| Write::Put { key, head: &[], value: &[] });
        let writes: Vec<_> = hints.chain(more.iter().copied()).collect();
        self.env.store.write(&writes)
    }

    /// A delivery is over, one way or the other.
    pub(crate) fn on_delivered(&mut self, node: NodeId) {
        let round = self.hints.rounds.entry(node).or_default();
        round.under_way = round.under_way.saturating_sub(1);
        if round.active {
            self.deliver_hints(node);
        }
    }

    /// What could not be read may be hints: the next round looks again.
    fn fail_round(&mut self, node: NodeId) {
        self.hints.rounds.entry(node).or_default().kept = true;
        self.end_round(node);
    }

    fn end_round(&mut self, node: NodeId) {
        let again = self.env.now() + PAUSE;
        let round = self.hints.rounds.entry(node).or_default();
        let &mut Round { tried, kept, unseen, under_way, .. } = round;
        let more = tried || kept || unseen.is_some() || !round.waiting.is_empty() || round.next.is_some();
        *round = Round { under_way, kept, unseen, again: more.then_some(again), ..Round::default() };
    }
}
