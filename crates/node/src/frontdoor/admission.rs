//! Admission of clients' requests: which are begun, which wait, and which are refused because there are too many.
//!
//! Requests that were begun go before new ones: other nodes wait for them, and so does memory. So a shard that cannot
//! keep up leaves new requests waiting, and refuses those that it will not come to in time.
//!
//! 1. A pass over the connections, from the first request in it to the end of the turn, is to take [`PASS_MAX`]. It
//!    begins requests for no longer than that. The *window*, how much may be under way, shrinks with a pass that took
//!    longer, to the load that would have fitted, and grows a little with each other pass.
//! 2. Requests that come when the pass or the window is full wait, in order, and are begun by a later turn.
//! 3. Requests are refused at once while the first that waits has done so for [`WAIT_MAX`], or if those that wait will
//!    take more than [`WAIT_MAX`] to be begun at the pace of the last passes; if so much is under way that this is no
//!    slip of the scheduler. A waiting request will be begun: it is refused only after [`STAY_MAX`], when nothing
//!    moves.
//!
//! Invariants: nothing of a refused request was done; a request that waits is neither begun before one that has waited
//! for longer, nor after its client has gone.
//!
//! The time of a pass decides, not a count: a thousand writes that wait for one sync make short passes and are no
//! overload, and a hundred large ones may be. (CoDel, Nichols and Jacobson, 2012, says so of packets; the window grows
//! as TCP's does. It does not shrink by a fixed part, since it is far too large when an overload begins.) The last is
//! refused and not the first: the first is about to be begun, and a request that is answered in the pass in which it is
//! read costs a quarter of one that waits, and tells its client sooner. Left out: requests of other shards, which have
//! waited there, and those of other nodes, which are part of something begun.

use crate::hop::{RequestId, RequestTimes};
use crate::shard::env::Env;
use crate::shard::gauges::Gauges;
use crate::shard::knobs::{OVERLOAD_WORK_MIN, TIMEOUT_DEFAULT, WORK_MAX};
use crate::shard::reply_to::ReplyTo;
use base::Monotonic;
use kv::{Error, Request};
use std::collections::VecDeque;
use std::time::Duration;

/// How long a pass is to take. A request waits for one at each node on its way, three or four times in all.
pub const PASS_MAX: Duration = Duration::from_millis(8);

/// How long requests wait before those that come are refused: a pass, after which most are begun.
pub const WAIT_MAX: Duration = PASS_MAX;

/// How long a request waits until it is refused itself: two passes. An answer that says so is to come within 50 ms, and
/// before and after it has waited here it waits in sockets, for a pass each, which are longer while an overload begins.
pub const STAY_MAX: Duration = Duration::from_millis(16);

/// The least that the window shrinks to: of three nodes that have all three replicas, some five milliseconds of the
/// work of one, so that a pass can be within its time with room to spare.
const WINDOW_MIN: usize = 64;

/// By how much the window grows with a pass that took no longer than it may: by a hundred in 25 passes, which are some
/// fifth of a second in an overload and a hundredth otherwise. With four times as much, each pass that fits is followed
/// by one that does not.
const GROW: usize = 4;

/// A request that is to begin now.
pub(crate) struct AdmittedRequest {
    /// The request.
    pub id: RequestId,
    /// Its content.
    pub request: Request,
    /// Its times.
    pub times: RequestTimes,
}

struct Waiting {
    id: RequestId,
    request: Request,
    since: Monotonic,
}

/// How much of the pace is that of the last pass.
const PACE_WEIGHT: u32 = 4;

/// Requests that wait to be begun, and how much may be under way.
pub(crate) struct Admission {
    /// When the first request since the last turn came.
    pass_began: Option<Monotonic>,
    window: usize,
    waiting: VecDeque<Waiting>,
    backlog: Backlog,
}

/// How fast waiting requests are begun, while there always are some.
#[derive(Default)]
struct Backlog {
    /// Whether something has waited in this pass.
    now: bool,
    /// Requests begun in this pass.
    begun: u32,
    /// When the last pass ended, if something waited in it.
    since: Option<Monotonic>,
    /// From one begun to the next, in the mean; `None` unless passes with something that waited have followed each
    /// other.
    each: Option<Duration>,
}

/// How much makes a pass of [`PASS_MAX`], if so much made one that took longer (Little, 1961).
fn fitting(begun: usize, took: Duration) -> usize {
    let fits = begun as u128 * PASS_MAX.as_nanos() / took.as_nanos();
    usize::try_from(fits).expect("no more than it was")
}

impl Backlog {
    /// Ends a pass.
    fn end_pass(&mut self, now: Monotonic) {
        let pass = std::mem::take(self);
        if !pass.now {
            return;
        }
        self.since = Some(now);
        let took = pass.since.map(|since| now.since(since) / pass.begun.max(1));
        self.each = match (pass.each, took) {
            (Some(each), Some(took)) => Some((each * (PACE_WEIGHT - 1) + took) / PACE_WEIGHT),
            (each, took) => took.or(each),
        };
    }

    /// How long it will take to begin so many.
    fn takes(&self, waiting: usize) -> Duration {
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        self.each.map_or(Duration::ZERO, |each| each.saturating_mul(waiting))
    }
}

impl Default for Admission {
    fn default() -> Admission {
        Admission {
            pass_began: None,
            window: WORK_MAX,
            waiting: VecDeque::new(),
            backlog: Backlog::default(),
        }
    }
}

impl Admission {
    fn push(&mut self, waiting: Waiting, gauges: &mut Gauges) {
        gauges.waiting += 1;
        gauges.waiting_bytes += waiting.request.value_len();
        self.waiting.push_back(waiting);
        self.backlog.now = true;
    }

    fn pop(&mut self, gauges: &mut Gauges) -> Option<Waiting> {
        let first = self.waiting.pop_front()?;
        gauges.waiting -= 1;
        gauges.waiting_bytes -= first.request.value_len();
        Some(first)
    }

    /// Ends a pass with so much under way.
    fn end_pass(&mut self, now: Monotonic, begun: usize) {
        let Some(began) = self.pass_began.take() else { return };
        let took = now.since(began);
        self.window = if took > PASS_MAX {
            fitting(self.window.min(begun), took).max(WINDOW_MIN)
        } else {
            (self.window + GROW).min(WORK_MAX)
        };
        self.backlog.now |= !self.waiting.is_empty();
        self.backlog.end_pass(now);
    }

    /// Forgets a request whose client is gone.
    pub fn forget(&mut self, id: RequestId, gauges: &mut Gauges) {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.id == id) else { return };
        let gone = self.waiting.remove(at).expect("it was just found");
        gauges.waiting -= 1;
        gauges.waiting_bytes -= gone.request.value_len();
    }

    /// Takes a client's request: it is begun now, if it is returned, or waits, or was refused.
    pub fn offer(&mut self, env: &mut Env, id: RequestId, request: Request) -> Option<AdmittedRequest> {
        let now = env.now();
        let began = *self.pass_began.get_or_insert(now);
        let waiting = Waiting { id, request, since: now };
        if self.waiting.is_empty() && now.since(began) < PASS_MAX && self.has_room(&env.gauges) {
            return Some(self.begin(waiting));
        }

        let is_full =
            env.gauges.requests() >= WORK_MAX || env.gauges.bytes() >= env.knobs.limits.work_bytes_max;
        match is_full || self.would_wait(&env.gauges, now) {
            true => refuse(env, id),
            false => self.push(waiting, &mut env.gauges),
        }
        None
    }

    /// The next of those that wait, if it may begin in a turn that began then.
    pub fn next(&mut self, env: &mut Env, began: Monotonic) -> Option<AdmittedRequest> {
        if self.waiting.is_empty() || env.now().since(began) >= PASS_MAX || !self.has_room(&env.gauges) {
            return None;
        }
        let waiting = self.pop(&mut env.gauges)?;
        Some(self.begin(waiting))
    }

    /// Refuses those that have waited for too long.
    pub fn refuse_late(&mut self, env: &mut Env) {
        if self.waiting.is_empty() {
            return;
        }
        let now = env.now();
        let stay_max = if base::planted!(RefusedLate) { 20 * STAY_MAX } else { STAY_MAX };
        while self.waits(&env.gauges, stay_max, now) {
            let first = self.pop(&mut env.gauges).expect("it was just looked at");
            refuse(env, first.id);
        }
    }

    /// Ends a pass.
    pub fn end_turn(&mut self, env: &Env) {
        if self.pass_began.is_some() {
            self.end_pass(env.now(), begun(&env.gauges));
        }
    }

    /// Whether the next turn can begin some of those that wait.
    pub fn can_begin(&self, env: &Env) -> bool {
        !self.waiting.is_empty() && self.has_room(&env.gauges)
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        assert_eq!(env.gauges.waiting, self.waiting.len(), "all that wait are counted");
        let bytes: usize = self.waiting.iter().map(|waiting| waiting.request.value_len()).sum();
        assert_eq!(env.gauges.waiting_bytes, bytes, "their bytes are counted");
        let in_order = self.waiting.iter().is_sorted_by_key(|waiting| waiting.since);
        assert!(in_order, "the first has waited for longest");
        assert!((WINDOW_MIN..=WORK_MAX).contains(&self.window), "the window stays between its bounds");
        let Backlog { since, each, .. } = &self.backlog;
        assert!(each.is_none() || since.is_some(), "a pace is that of passes in which something waited");
    }

    fn has_room(&self, gauges: &Gauges) -> bool {
        begun(gauges) < self.window
    }

    /// Whether a request that comes now would wait for too long, because of others.
    fn would_wait(&self, gauges: &Gauges, now: Monotonic) -> bool {
        let is_far = self.backlog.takes(self.waiting.len()) > WAIT_MAX;
        (self.waits(gauges, WAIT_MAX, now) || is_far && is_loaded(gauges)) && !base::planted!(RefusedLate)
    }

    /// Whether requests wait, the first for so long, because of others.
    fn waits(&self, gauges: &Gauges, long: Duration, now: Monotonic) -> bool {
        self.waiting.front().is_some_and(|first| now.since(first.since) >= long) && is_loaded(gauges)
    }

    fn begin(&mut self, waiting: Waiting) -> AdmittedRequest {
        let Waiting { id, request, since } = waiting;
        self.backlog.begun += 1;
        let timeout = request.timeout().filter(|&ms| ms > 0).map(|ms| Duration::from_millis(ms.into()));
        let times = RequestTimes { came: since, deadline: since + timeout.unwrap_or(TIMEOUT_DEFAULT) };
        AdmittedRequest { id, request, times }
    }
}

/// Requests that were begun and have no answer.
fn begun(gauges: &Gauges) -> usize {
    gauges.load().0 as usize - gauges.queued()
}

fn is_loaded(gauges: &Gauges) -> bool {
    gauges.load().0 as usize >= OVERLOAD_WORK_MIN && !base::planted!(QueueUnbounded)
}

fn refuse(env: &mut Env, id: RequestId) {
    env.counters.refused += 1;
    env.reply(ReplyTo::Client(id), Err(Error::Overload));
}
