//! Tombstones that nobody proposes to reap any more: sweeps over all heads of this shard find them.
//!
//! A tombstone is proposed by the delete that wrote it, by the delivery of a hint, and by reads (`reaper.rs`). None of
//! these comes again after a stop or a kill, when too many waited, when a member was away, or when a copy or a restored
//! disk brought it.
//!
//! 1. A pass over the heads is due after a start, after a proposal was dropped or met a member that is away, and every
//!    [`PERIOD`]. It waits until all members can be reached, since nothing is reaped before.
//! 2. The heads are scanned in parts, as rebuilds go through them (`parts.rs`): a part is short and followed by a long
//!    rest while clients are served. Every backend has scans, with anti-entropy or without.
//! 3. Each tombstone that is found is read with all its replicas, as for a client: those that lack it are sent it, and
//!    if all have it, it is proposed.
//! 4. While a pass finds tombstones the next one comes after a pause, which doubles.
//! 5. A key whose reaping was refused is read again after a pause, which doubles while others are refused too.
//!
//! Invariant: a sweep decides nothing. It proposes what a read would, and the rounds of a reaping decide.
//!
//! Left out: tombstones on nodes that are no primary of their key, while no primary has them.

use super::reaper::Reaper;
use crate::anti_entropy::parts::{PartSize, Parts};
use crate::request::task::Task;
use crate::request::task::placed;
use crate::shard::effect::Effect;
use crate::shard::env::Env;
use crate::shard::owners::ScanOwner;
use crate::shard::reply_to::ReplyTo;
use base::{Clock, Monotonic};
use bytes::Bytes;
use engine::Durability;
use engine::fold::{JournalCheck, ScanId, ScanPage, ScanRequest, Visit, Visitor};
use object::{HeadView, key};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Between a cause and its pass, between passes that find something, and before a key is read again: far above the time
/// that a reaping takes, and soon enough for an operator who watches.
const SOON: Duration = Duration::from_secs(10);

/// The longest of these pauses, and the time between passes that find nothing.
const PERIOD: Duration = Duration::from_secs(3600);

/// The time between passes is as many times that of one pass at least: so much of a job's thread they take at rest.
const REST: u32 = 64;

/// Tombstones that one part finds: a quarter of a megabyte of keys and heads.
const PART_TOMBSTONES_MAX: usize = 1024;

/// Reads under way: as many as hints have, with clients and without.
const UNDER_WAY_MAX: usize = 32;
const UNDER_WAY_BUSY_MAX: usize = 4;

/// Reads that begin between two ticks while clients are served: 320 a second.
const READS_OF_TICK_MAX: usize = 32;

/// Keys that wait to be read again, some hundred kilobytes. Beyond them a pass finds the rest.
const REFUSED_MAX: usize = 4096;

/// Sweeps of one shard.
#[derive(Default)]
pub(crate) struct Sweeper {
    /// When the next pass is to begin.
    due: Option<Monotonic>,
    pass: Option<Pass>,
    /// Before the next pass, should this one find something.
    pause: Duration,
    parts: Parts,
    /// Keys of tombstones that were found, to be read.
    found: VecDeque<Bytes>,
    under_way: usize,
    /// How many reads may begin before the next tick.
    left: usize,
    /// Whether more of them can be read at once, and nobody will wake the shard for it.
    has_more: bool,
    /// Keys to be read again, and when.
    refused: VecDeque<(Monotonic, Bytes)>,
    refused_pause: Duration,
    /// When that pause was doubled last.
    doubled: Monotonic,
}

/// A pass under way.
struct Pass {
    began: Monotonic,
    /// Where the next part begins.
    from: Bytes,
    part: Option<Part>,
    has_found: bool,
}

/// The part of a pass that is under way.
struct Part {
    scan: ScanId,
    began: Monotonic,
    /// The key before which it has stopped by itself.
    stopped: Arc<Mutex<Option<Bytes>>>,
}

impl Sweeper {
    /// Of a process that begins: its first pass is due soon.
    pub fn starting(now: Monotonic) -> Sweeper {
        Sweeper { due: Some(now + SOON), pause: SOON, refused_pause: SOON, ..Sweeper::default() }
    }

    /// Something was left that a pass is to find.
    pub fn want_pass(&mut self, now: Monotonic) {
        let at = now + SOON;
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// A reaping was refused: its key is to be read again.
    fn note_refused(&mut self, key: Bytes, now: Monotonic) {
        if self.refused.len() >= REFUSED_MAX {
            return self.want_pass(now);
        }
        self.refused.push_back((now + self.refused_pause, key));
        if now.since(self.doubled) >= self.refused_pause {
            self.refused_pause = (self.refused_pause * 2).min(PERIOD);
            self.doubled = now;
        }
    }

    /// A tombstone was reaped: refused ones may succeed by now.
    pub fn note_reaped(&mut self) {
        self.refused_pause = SOON;
    }

    /// Whether the next turn is to come at once.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    fn is_idle(&self) -> bool {
        self.pass.is_none() && self.found.is_empty() && self.under_way == 0
    }

    /// A pass has come to its end.
    fn end_pass(&mut self, now: Monotonic) {
        let Some(pass) = self.pass.take() else { return };
        let rest = now.since(pass.began).saturating_mul(REST);
        let pause = match pass.has_found {
            true => self.pause,
            false => PERIOD,
        };
        self.pause = if pass.has_found { (self.pause * 2).min(PERIOD) } else { SOON };
        let next = now + pause.max(rest);
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
    }

    /// A tombstone stays for now.
    pub(crate) fn sweep_again(&mut self, env: &mut Env, key: &Bytes) {
        let now = env.now();
        match may_sweep(env) {
            true => self.note_refused(key.clone(), now),
            false => self.want_pass(now),
        }
    }

    /// Begins the reads and proposals that are due.
    pub fn tick(&mut self, env: &mut Env, reaper: &Reaper, now: Monotonic) {
        if env.knobs.reaping.delay.is_none() {
            return;
        }
        self.left = READS_OF_TICK_MAX;
        while self.found.len() < PART_TOMBSTONES_MAX
            && may_sweep(env)
            && let Some((_, key)) = self.refused.pop_front_if(|(at, _)| *at <= now)
        {
            self.found.push_back(key);
        }
        if self.pass.is_none() && self.due.is_some_and(|due| due <= now) && may_sweep(env) {
            self.due = None;
            let from = Bytes::from(key::objects().start);
            self.pass = Some(Pass { began: now, from, part: None, has_found: false });
        }
        if !self.is_idle() {
            env.peers.note_used();
            self.go_on_sweeping(env, reaper, now);
        }
    }

    /// Reads the keys that were found, and looks for more once all of them are read.
    #[inline]
    pub fn go_on_sweeping(&mut self, env: &mut Env, reaper: &Reaper, now: Monotonic) {
        if !self.is_idle() {
            self.sweep_on(env, reaper, now);
        }
    }

    fn sweep_on(&mut self, env: &mut Env, reaper: &Reaper, now: Monotonic) {
        let yields = env.activity.yields(now);
        let most = if yields { UNDER_WAY_BUSY_MAX } else { UNDER_WAY_MAX };
        self.has_more = false;
        for _ in 0..UNDER_WAY_MAX {
            let must_wait = yields && self.left == 0 || !reaper.has_room();
            if must_wait || self.under_way >= most {
                return;
            }
            let Some(key) = self.found.pop_front() else { break };
            self.left = self.left.saturating_sub(1);
            self.under_way += 1;
            env.counters.reaps_swept += 1;
            match Task::repair(key, ReplyTo::Sweep, env) {
                Some(task) => env.start(task),
                None => env.raise(Effect::TombstoneRead),
            }
        }
        match self.found.is_empty() {
            true => self.scan_part(env, yields, now),
            false => self.has_more = true,
        }
    }

    /// Scans the next part of the pass, if it may begin.
    fn scan_part(&mut self, env: &mut Env, yields: bool, now: Monotonic) {
        let waits = env.gauges.queued() > 0;
        let Some(pass) = &mut self.pass else { return };
        if pass.part.is_some() || !self.parts.may_begin(waits, now) {
            return;
        }
        let size = PartSize::of(JournalCheck::None, yields);
        let stopped = Arc::default();
        let request = ScanRequest {
            start: pass.from.clone(),
            end: key::objects().end.into(),
            items_max: PART_TOMBSTONES_MAX,
            visitor: tombstones(size, Arc::clone(&env.clock), Arc::clone(&stopped)),
            past_losses: true,
        };
        match env.store.scan(request) {
            Ok(scan) => {
                env.scan_owners.note(scan, ScanOwner::Sweep);
                pass.part = Some(Part { scan, began: now, stopped });
            }
            Err(_) => self.end_pass(now),
        }
    }

    /// Takes the end of a part. It may be of a pass that has ended since.
    pub fn on_scan(
        &mut self,
        env: &mut Env,
        reaper: &Reaper,
        scan: ScanId,
        page: Result<ScanPage, engine::Error>,
    ) {
        let pass = self.pass.as_mut();
        let part = pass.and_then(|pass| pass.part.take_if(|part| part.scan == scan));
        let Some(Part { began, stopped, .. }) = part else { return };
        let now = env.now();
        let yields = env.activity.yields(now);
        self.parts.end(now.since(began), yields, false, now);
        // The next pass finds keys again that cannot be read now.
        let Ok(page) = page else {
            self.end_pass(now);
            return;
        };
        let stopped = stopped.lock().unwrap_or_else(PoisonError::into_inner).take();
        let found = page.items.into_iter().map(|(key, _)| key).filter(|key| is_to_be_swept(env, reaper, key));
        let found: VecDeque<Bytes> = found.collect();
        let Some(pass) = &mut self.pass else { return };
        pass.has_found |= !found.is_empty();
        self.found.extend(found);
        match page.next.or(stopped) {
            Some(next) => pass.from = next,
            None => self.end_pass(now),
        }
    }

    /// A key has been read.
    pub fn on_swept(&mut self) {
        self.under_way -= 1;
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        let part = self.pass.as_ref().and_then(|pass| pass.part.as_ref());
        let owner = part.map(|part| env.scan_owners.of(part.scan));
        assert!(
            owner.is_none_or(|owner| owner == Some(&ScanOwner::Sweep)),
            "the scan of a part is under way"
        );
        assert!(self.under_way <= UNDER_WAY_MAX, "few reads are under way");
        assert!(!self.has_more || !self.found.is_empty(), "more of the found keys are to be read");
        assert!(self.found.len() <= 2 * PART_TOMBSTONES_MAX, "a part begins when all found were read");
        assert!(self.refused.len() <= REFUSED_MAX, "the next pass finds keys beyond the bound");
        assert!(self.left <= READS_OF_TICK_MAX, "few reads begin between two ticks");
        let mut pauses = [self.pause, self.refused_pause].into_iter();
        assert!(pauses.all(|pause| (SOON..=PERIOD).contains(&pause)), "pauses stay between their bounds");
    }
}

/// Whether tombstones could be reaped now.
fn may_sweep(env: &Env) -> bool {
    let is_able = env.peers.is_alone()
        || env.store.durability() == Durability::Sync
        || matches!(env.store, crate::store::Store::Routed(_));
    let is_at_rest = env.peers.all_up() && env.topology.is_at_rest() && !env.gauges.is_stopping;
    is_able && is_at_rest && env.store.fenced().is_none()
}

/// Whether this node may have a tombstone reaped, and does not know of it already.
fn is_to_be_swept(env: &Env, reaper: &Reaper, key: &Bytes) -> bool {
    let Ok((prefix, bucket)) = placed(key) else { return false };
    let props = env.props.get_as_replica(&bucket).ok().filter(|props| !props.consistent);
    let Some(props) = props else { return false };
    let is_primary = env.ownership().is_primary(prefix, props.n_val);
    is_primary && env.can_reap(key) && !reaper.knows(key)
}

/// Takes tombstones, until a part has come to its end: `stopped` then says where.
fn tombstones(size: PartSize, clock: Arc<dyn Clock>, stopped: Arc<Mutex<Option<Bytes>>>) -> Visitor {
    let (mut seen, mut until) = (0_u64, None);
    Box::new(move |key, head| {
        let is_late = seen.is_multiple_of(size.look_every) && {
            let now = clock.now();
            *until.get_or_insert(now + size.time) <= now
        };
        if is_late || seen >= size.keys {
            *stopped.lock().unwrap_or_else(PoisonError::into_inner) = Some(Bytes::copy_from_slice(key));
            return Visit::Seek(object::key::objects().end);
        }
        seen += 1;
        match HeadView::may_be_tombstone(head) {
            true => Visit::Take,
            false => Visit::Skip,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    fn pass(began: Monotonic, has_found: bool) -> Pass {
        Pass { began, from: Bytes::new(), part: None, has_found }
    }

    #[test]
    fn passes_come_less_often_the_less_they_change() {
        let mut sweeper = Sweeper::starting(at(0));
        assert_eq!(sweeper.due, Some(at(10)));
        let mut dues = Vec::new();
        for has_found in [true, true, true, false, true] {
            sweeper.due = None;
            sweeper.pass = Some(pass(at(100), has_found));
            sweeper.end_pass(at(100));
            dues.push(sweeper.due.unwrap());
        }
        assert_eq!(dues, [110, 120, 140, 3700, 110].map(at));
        // One that takes long is rare.
        sweeper.pass = Some(pass(at(0), false));
        sweeper.due = None;
        sweeper.end_pass(at(600));
        assert_eq!(sweeper.due, Some(at(600 + 64 * 600)));
        // Unless it is wanted.
        sweeper.want_pass(at(600));
        assert_eq!(sweeper.due, Some(at(610)));
    }

    #[test]
    fn what_is_refused_again_and_again_is_read_less_often() {
        let mut sweeper = Sweeper::starting(at(0));
        for second in [100, 100, 105, 121] {
            sweeper.note_refused(Bytes::from_static(b"k"), at(second));
        }
        let dues: Vec<Monotonic> = sweeper.refused.iter().map(|(due, _)| *due).collect();
        assert_eq!(dues, [110, 120, 125, 141].map(at));
        sweeper.note_reaped();
        sweeper.note_refused(Bytes::from_static(b"k"), at(122));
        assert_eq!(sweeper.refused.back().unwrap().0, at(132));
        for _ in 0..REFUSED_MAX {
            sweeper.note_refused(Bytes::from_static(b"k"), at(123));
        }
        assert_eq!((sweeper.refused.len(), sweeper.due), (REFUSED_MAX, Some(at(10))));
    }
}
