//! Rounds of hints: objects that are kept here for primaries that were away, on their way home.
//!
//! A hint is an entry of the ledger, (node, key), without content: the object that is stored here under the key is
//! brought when its turn comes. It is written in one batch with the version it is for, so a crash leaves both or
//! neither (`request/hint_writer.rs`).
//!
//! 1. When a peer comes up, its hints are scanned, a page at a time.
//! 2. Each hint of a page is a [`kv::Deliver`], a few at a time; each forgets its hint when it is home.
//! 3. When a page is done, the next one is scanned: its beginning is the checkpoint. An interruption costs the
//!    deliveries under way, no more.
//! 4. After the last page: if hints stayed, new ones were kept meanwhile, or some could not be acknowledged yet when
//!    the round began, so that its scan may have missed them, the next round begins after a pause.
//!
//! Invariant: a hint that is in the ledger when its peer is up is tried again until it is home.

use crate::peer::NodeId;
use crate::request::hint_writer::hint_for_all;
use crate::request::task::{Coordinator, Task, placed};
use crate::shard::effect::Effect;
use crate::shard::env::Env;
use crate::shard::owners::ScanOwner;
use crate::shard::reply_to::ReplyTo;
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

/// Load beyond which this shard counts as busy here: below it nothing is overloaded.
const LOAD_BUSY: usize = crate::shard::knobs::OVERLOAD_WORK_MIN;

/// How long one delivery may take: a large object over a slow link.
const DELIVERY_MAX: Duration = Duration::from_secs(30);

/// Between two rounds.
const PAUSE: Duration = Duration::from_secs(1);

/// The round of one peer's hints.
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
    /// The last write with hints when the round began, if it could not be acknowledged yet: the scan does not see it.
    unseen: Option<Seq>,
}

impl Round {
    /// Takes a page of hints; false if it is not the one that the round waits for, but that of a round that has ended.
    fn take_page(&mut self, scan: ScanId, next: Option<Bytes>, hints: impl Iterator<Item = Bytes>) -> bool {
        if self.scan != Some(scan) {
            return false;
        }
        self.scan = None;
        self.next = next;
        self.waiting.extend(hints);
        true
    }

    /// Whether hints may be left when the round ends.
    fn may_leave_hints(&self) -> bool {
        let is_unread = self.scan.is_some() || self.next.is_some();
        self.tried || self.kept || self.unseen.is_some() || !self.waiting.is_empty() || is_unread
    }
}

/// The hints of all peers.
#[derive(Default)]
pub(crate) struct HintRounds {
    /// By whom they are for.
    rounds: BTreeMap<NodeId, Round>,
    scans: BTreeMap<ScanId, NodeId>,
}

impl HintRounds {
    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        for (node, round) in &self.rounds {
            assert!(!round.active || round.again.is_none(), "the next round is set when one has ended");
            assert!(round.active || round.waiting.is_empty(), "hints wait in a round that goes on");
            assert!(round.active || round.next.is_none(), "pages are left in a round that goes on");
            assert!(round.under_way <= UNDER_WAY_MAX, "few deliveries of a round are under way");
            assert!(round.active || round.scan.is_none(), "a page is read for a round that goes on");
            assert!(round.scan.is_none() || round.waiting.is_empty(), "a page is read when none is left");
            let of = round.scan.and_then(|scan| self.scans.get(&scan));
            assert_eq!(of.is_some(), round.scan.is_some(), "the page of a round has a scan");
            assert!(of.is_none_or(|of| of == node), "a scan reads hints of one node, and its round knows it");
        }
        for &scan in self.scans.keys() {
            assert_eq!(env.scan_owners.of(scan), Some(&ScanOwner::HintRound), "scans of hints are under way");
        }
    }

    /// Hints are kept: a round is to bring them home.
    pub fn note_kept(&mut self, nodes: &[NodeId], now: Monotonic) {
        for &node in nodes {
            let round = self.rounds.entry(node).or_default();
            round.kept = true;
            if !round.active && round.again.is_none() {
                round.again = Some(now + PAUSE);
            }
        }
    }

    /// Begins to bring a peer's hints home.
    pub fn bring(&mut self, env: &mut Env, node: NodeId) {
        let (written, acknowledged) = (env.store.last_written(), env.store.acknowledged());
        let round = self.rounds.entry(node).or_default();
        if !round.active {
            let with_hints = if round.kept { Some(written) } else { round.unseen };
            let unseen = with_hints.filter(|seq| *seq > acknowledged);
            *round = Round { active: true, unseen, under_way: round.under_way, ..Round::default() };
            env.counters.hint_rounds += 1;
            self.scan_hints(env, node, Bytes::from(key::hints(node.0).start));
        }
    }

    /// Begins rounds that are due.
    pub fn tick(&mut self, env: &mut Env, now: Monotonic) {
        let due = |round: &Round| !round.active && round.again.is_some_and(|at| at <= now);
        let due: Vec<NodeId> =
            self.rounds.iter().filter(|(_, round)| due(round)).map(|(&node, _)| node).collect();
        for node in due {
            if env.peers.is_up(node) || env.ownership().is_gone(node) {
                self.bring(env, node);
            }
        }
    }

    fn scan_hints(&mut self, env: &mut Env, node: NodeId, start: Bytes) {
        let end = Bytes::from(key::hints(node.0).end);
        let visitor = Box::new(|_: &[u8], _: &[u8]| Visit::Take);
        // Of hints that were lost nothing is known; the others come home.
        let request = ScanRequest { start, end, items_max: PAGE_HINTS_MAX, visitor, past_losses: true };
        match env.store.scan(request) {
            Ok(scan) => {
                env.scan_owners.note(scan, ScanOwner::HintRound);
                self.scans.insert(scan, node);
                self.rounds.entry(node).or_default().scan = Some(scan);
            }
            Err(_) => self.fail_round(env, node),
        }
    }

    /// Takes a page of hints. One of a round that has ended since is dropped: its hints are in the ledger.
    pub(crate) fn on_scan(&mut self, env: &mut Env, scan: ScanId, page: Result<ScanPage, Error>) {
        let Some(node) = self.scans.remove(&scan) else { return };
        let round = self.rounds.entry(node).or_default();
        match page {
            Ok(page) => {
                let hints = page.items.into_iter().map(|(key, _)| key);
                if round.take_page(scan, page.next, hints) {
                    self.deliver_hints(env, node);
                }
            }
            Err(_) if round.scan == Some(scan) => self.fail_round(env, node),
            Err(_) => {}
        }
    }

    fn deliver_hints(&mut self, env: &mut Env, node: NodeId) {
        if !env.peers.is_up(node) && !env.ownership().is_gone(node) {
            return self.end_round(env, node);
        }
        let most = if env.gauges.load().0 as usize > LOAD_BUSY { UNDER_WAY_BUSY_MAX } else { UNDER_WAY_MAX };
        loop {
            let round = self.rounds.entry(node).or_default();
            if !round.active || round.under_way >= most {
                return;
            }
            let Some(hint) = round.waiting.pop_front() else { break };
            round.under_way += 1;
            round.tried = true;
            self.deliver(env, node, &hint);
        }
        let round = self.rounds.entry(node).or_default();
        if round.under_way > 0 || round.scan.is_some() {
            return;
        }
        match round.next.take() {
            Some(next) => self.scan_hints(env, node, next),
            None => self.end_round(env, node),
        }
    }

    fn deliver(&mut self, env: &mut Env, node: NodeId, hint: &Bytes) {
        let deadline = env.now() + DELIVERY_MAX;
        let made = key::hinted(hint).and_then(|object_key| {
            let object_key = hint.slice_ref(object_key);
            let (prefix, bucket) = placed(&object_key)?;
            Ok((object_key, prefix, bucket))
        });
        let work = made.ok().and_then(|(key, prefix, bucket)| {
            let props = Arc::clone(env.props.get_as_replica(&bucket).ok()?);
            if env.ownership().is_keeper_gone(node, prefix, props.n_val) {
                self.hint_anew(env, node, &key, prefix, props.n_val);
                return None;
            }
            let others = env.ownership().other_primaries(prefix, props.n_val, node);
            let deliver = Coordinator::Deliver(kv::Deliver::new(node, others));
            Some(Task::new(ReplyTo::Nobody, deliver, key, props, deadline))
        });
        match work {
            Some(work) => env.start(work),
            None => env.raise(Effect::HintDelivered(node)),
        }
    }

    /// The node has given the partition up: its hints are kept for all that have it now.
    fn hint_anew(&mut self, env: &mut Env, node: NodeId, key: &Bytes, prefix: u16, n_val: u32) {
        let before = key::hint(node.0, key);
        // One that cannot be changed now is tried again with the next round.
        let changed = hint_for_all(env, key, prefix, n_val, &[Write::Delete { key: &before }]);
        env.counters.hints_lost += u64::from(changed.is_err());
    }

    /// A delivery is over, one way or the other.
    pub(crate) fn on_delivered(&mut self, env: &mut Env, node: NodeId) {
        let round = self.rounds.entry(node).or_default();
        round.under_way = round.under_way.saturating_sub(1);
        if round.active {
            self.deliver_hints(env, node);
        }
    }

    /// The unread part may have hints: the next round looks again.
    fn fail_round(&mut self, env: &mut Env, node: NodeId) {
        self.rounds.entry(node).or_default().kept = true;
        self.end_round(env, node);
    }

    fn end_round(&mut self, env: &mut Env, node: NodeId) {
        let again = env.now() + PAUSE;
        let round = self.rounds.entry(node).or_default();
        let again = round.may_leave_hints().then_some(again);
        let &mut Round { kept, unseen, under_way, .. } = round;
        *round = Round { under_way, kept, unseen, again, ..Round::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_an_ended_round_is_dropped() {
        let hint = || std::iter::once(Bytes::from_static(b"hint"));
        let (old, new) = (ScanId(1), ScanId(2));

        // The peer went away while the page was read.
        let mut round = Round { active: true, scan: Some(old), ..Round::default() };
        assert!(round.may_leave_hints(), "the page is not read");
        round = Round::default();
        assert!(!round.take_page(old, None, hint()));
        assert!(round.waiting.is_empty(), "hints wait in a round that goes on");

        // It is back, and another round reads the same page.
        round = Round { active: true, scan: Some(new), ..Round::default() };
        assert!(!round.take_page(old, Some(Bytes::from_static(b"next")), hint()));
        assert_eq!((round.scan, round.next.is_some(), round.waiting.len()), (Some(new), false, 0));
        assert!(round.take_page(new, None, hint()));
        assert_eq!((round.scan, round.waiting.len()), (None, 1));
    }
}
