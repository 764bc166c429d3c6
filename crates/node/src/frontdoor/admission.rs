//! Which requests of clients are begun, and which are refused because there are too many.
//!
//! What has been begun goes before what has not: other nodes wait for it, and so does memory. So a shard that cannot
//! keep up leaves new requests waiting, and tells those that it will not come to in time.
//!
//! 1. A pass over the connections, from the first request in it to the end of the turn, is to take [`PASS_MAX`]. It begins
//!    requests for no longer than that, and the *window*, how much may be under way, shrinks with a pass that took longer, to
//!    what would have fitted, and grows a little with each that did not.
//! 2. What comes when the pass or the window is full waits, in order, and is begun by a later turn.
//! 3. What comes is refused at once while the first that waits has done so for [`WAIT_MAX`], or if those that wait will take
//!    more than [`WAIT_MAX`] to be begun at the pace of the last passes; if so much is under way that this is no slip of the
//!    scheduler. What waits will be begun: it is refused only after [`STAY_MAX`], when nothing moves.
//!
//! Invariants: nothing of a refused request was done; a request that waits is neither begun before one that has waited
//! for longer, nor after its client has gone.
//!
//! The time of a pass decides, not a count: a thousand writes that wait for one sync make short passes and are no
//! overload, and a hundred large ones may be. (CoDel, Nichols and Jacobson, 2012, says so of packets; the window grows as
//! TCP's does. It does not shrink by a fixed part, since it is far too large when an overload begins.) The last is refused
//! and not the first: the first is about to be begun, and a request that is answered in the pass in which it is read costs
//! a quarter of one that waits, and tells its client sooner. Left out: requests of other shards, which have waited there,
//! and those of other nodes, which are part of something begun.

use crate::hop::RequestId;
use crate::shard::Shard;
use crate::shard::gauges::Gauges;
use crate::shard::knobs::WORK_MAX;
use crate::shard::knobs::{OVERLOAD_WORK_MIN, TIMEOUT_DEFAULT};
use crate::shard::reply_to::ReplyTo;
use base::Monotonic;
use kv::{Error, Request};
use std::collections::VecDeque;
use std::time::Duration;

/// How long a pass is to take. What is under way waits for one at each node on its way, three or four times in all.
pub const PASS_MAX: Duration = Duration::from_millis(8);

/// How long requests wait before those that come are refused: a pass, after which most are begun.
pub const WAIT_MAX: Duration = PASS_MAX;

/// How long a request waits until it is refused itself: two passes. An answer that says so is to come within 50 ms, and before
/// and after it has waited here it waits in sockets, for a pass each, which are longer while an overload begins.
pub const STAY_MAX: Duration = Duration::from_millis(16);

/// The least that the window shrinks to: of three nodes that have all three replicas, some five milliseconds of the work of one, so
/// that a pass can be within its time with room to spare.
const WINDOW_MIN: usize = 64;

/// By how much the window grows with a pass that took no longer than it may: by a hundred in 25 passes, which are some fifth of a second in an
/// overload and a hundredth otherwise. With four times as much, each pass that fits is followed by one that does not.
const GROW: usize = 4;

struct Waiting {
    id: RequestId,
    request: Request,
    since: Monotonic,
}

/// How much of the pace is that of the last pass.
const PACE_WEIGHT: u32 = 4;

/// What waits to be begun, and how much may be under way.
pub(crate) struct Admission {
    /// When the first request since the last turn came.
    pass_began: Option<Monotonic>,
    window: usize,
    waiting: VecDeque<Waiting>,
    backlog: Backlog,
}

/// How fast what waits is begun, while something always does.
#[derive(Default)]
struct Backlog {
    /// Whether something has waited in this pass.
    now: bool,
    /// Requests begun in this pass.
    begun: u32,
    /// When the last pass ended, if something waited in it.
    since: Option<Monotonic>,
    /// From one begun to the next, in the mean; `None` unless passes with something that waited have followed each other.
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
    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

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

    fn forget(&mut self, id: RequestId, gauges: &mut Gauges) {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.id == id) else { return };
        let gone = self.waiting.remove(at).expect("it was just found");
        gauges.waiting -= 1;
        gauges.waiting_bytes -= gone.request.value_len();
    }
}

impl Shard {
    /// Takes a client's request. `id` must not be that of another request under way.
    pub fn request(&mut self, id: RequestId, request: Request) {
        let now = self.env.now();
        let began = *self.admission.pass_began.get_or_insert(now);
        let may_begin = self.admission.len() == 0 && now.since(began) < PASS_MAX && self.has_room();
        let waiting = Waiting { id, request, since: now };
        if may_begin {
            self.begin(waiting);
        } else if self.env.gauges.requests() >= WORK_MAX
            || self.env.gauges.bytes() >= self.env.knobs.limits.work_bytes_max
            || self.would_wait(now)
        {
            self.refuse(id);
        } else {
            self.admission.push(waiting, &mut self.env.gauges);
        }
        self.drain();
    }

    /// Whether requests wait to be begun, or copies for their turn: a turn should come within some milliseconds, to refuse those
    /// that it comes too late for.
    pub fn has_waiting(&self) -> bool {
        self.env.gauges.queued() > 0 || self.handoff.outbound.are_waiting()
    }

    /// Whether the next turn can begin some of them.
    pub fn can_begin(&self) -> bool {
        self.admission.len() > 0 && self.has_room()
    }

    fn has_room(&self) -> bool {
        self.begun() < self.admission.window
    }

    /// Tasks that were begun and have no answer.
    fn begun(&self) -> usize {
        self.env.gauges.load().0 as usize - self.env.gauges.queued()
    }

    /// Ends a pass: begins what waits, and refuses what has waited for too long.
    pub(crate) fn admit(&mut self) {
        self.pace_writes();
        if self.admission.len() > 0 {
            self.begin_waiting();
        }
        if self.admission.pass_began.is_some() {
            self.admission.end_pass(self.env.now(), self.begun());
        }
    }

    fn begin_waiting(&mut self) {
        let began = self.env.now();
        let mut now = began;
        while now.since(began) < PASS_MAX
            && self.has_room()
            && let Some(waiting) = self.admission.pop(&mut self.env.gauges)
        {
            self.begin(waiting);
            now = self.env.now();
        }
        let stay_max = if base::planted!(RefusedLate) { 20 * STAY_MAX } else { STAY_MAX };
        while self.waits(stay_max, now) {
            let first = self.admission.pop(&mut self.env.gauges).expect("it was just looked at");
            self.refuse(first.id);
        }
    }

    /// Whether what comes now would wait for too long, because of others.
    fn would_wait(&self, now: Monotonic) -> bool {
        let is_far = self.admission.backlog.takes(self.admission.len()) > WAIT_MAX;
        (self.waits(WAIT_MAX, now) || is_far && self.is_loaded()) && !base::planted!(RefusedLate)
    }

    /// Whether requests wait, the first for so long, because of others.
    fn waits(&self, long: Duration, now: Monotonic) -> bool {
        self.admission.waiting.front().is_some_and(|first| now.since(first.since) >= long) && self.is_loaded()
    }

    fn is_loaded(&self) -> bool {
        self.env.gauges.load().0 as usize >= OVERLOAD_WORK_MIN && !base::planted!(QueueUnbounded)
    }

    fn begin(&mut self, waiting: Waiting) {
        let Waiting { id, request, since } = waiting;
        self.admission.backlog.begun += 1;
        let timeout = request.timeout().filter(|&ms| ms > 0).map(|ms| Duration::from_millis(ms.into()));
        self.accept(ReplyTo::Client(id), request, since + timeout.unwrap_or(TIMEOUT_DEFAULT));
    }

    fn refuse(&mut self, id: RequestId) {
        self.env.counters.refused += 1;
        self.env.reply(ReplyTo::Client(id), Err(Error::Overload));
    }

    /// Forgets a client's request whose client is gone. A write that has begun goes on.
    pub fn forget(&mut self, id: RequestId) {
        self.admission.forget(id, &mut self.env.gauges);
        self.pacer.forget(id, &mut self.env.gauges);
        self.listings.forget(id);
        self.searches.forget(id);
        self.publish_coverage();
    }
}
