//! Which requests of clients are begun, and which are refused because there are too many.
//!
//! What has been begun goes before what has not: other nodes wait for it, and so does memory. So a shard that cannot
//! keep up leaves new requests waiting, and tells those that it will not come to in time.
//!
//! 1. A pass over the connections begins requests for [`PASS_MAX`]; those that come later in it wait, in order.
//! 2. Each turn begins those that wait, again for [`PASS_MAX`].
//! 3. What has then waited for [`WAIT_MAX`] is refused, if so much is under way that this is no slip of the scheduler.
//!
//! Invariants: nothing of a refused request was done; a request that waits is neither begun before one that has waited
//! for longer, nor after its client has gone.
//!
//! Time decides, not a count: a thousand writes that wait for one sync are no overload, and a hundred large ones may
//! be. (CoDel, Nichols and Jacobson, 2012, says so of packets.) Left out: requests of other shards, which have waited there,
//! and those of other nodes, which are part of something begun.

use super::{Origin, Shard, TIMEOUT_DEFAULT, WORK_BYTES_MAX, WORK_MAX};
use crate::hop::RequestId;
use base::Monotonic;
use kv::{Error, Request};
use std::collections::VecDeque;
use std::time::Duration;

/// How long a pass begins requests. What is already under way waits for so long at each node on its way, three or four times,
/// and with what it does itself that is to stay well below [`WAIT_MAX`] twice over.
pub const PASS_MAX: Duration = Duration::from_millis(10);

/// How long a request waits until it is refused: an answer that says so is to come within 50 ms, and before and after
/// it has waited here it waits in sockets, for a pass each.
pub const WAIT_MAX: Duration = Duration::from_millis(25);

/// Requests without an answer below which nothing is refused: fewer are no burden, so whatever takes long is not their
/// number.
pub const OVERLOAD_WORK_MIN: usize = 256;

struct Waiting {
    id: RequestId,
    request: Request,
    since: Monotonic,
}

/// What waits to be begun.
#[derive(Default)]
pub(super) struct Admission {
    /// When the first request since the last turn came.
    pass_began: Option<Monotonic>,
    waiting: VecDeque<Waiting>,
    /// Bytes of values in it.
    bytes: usize,
}

impl Admission {
    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of values that they hold.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn push(&mut self, waiting: Waiting) {
        self.bytes += waiting.request.value_len();
        self.waiting.push_back(waiting);
    }

    fn pop(&mut self) -> Option<Waiting> {
        let first = self.waiting.pop_front()?;
        self.bytes -= first.request.value_len();
        Some(first)
    }

    /// Whether the pass that `now` belongs to begins nothing more.
    fn is_over(&mut self, now: Monotonic) -> bool {
        let began = *self.pass_began.get_or_insert(now);
        !self.waiting.is_empty() || now.since(began) >= PASS_MAX
    }

    fn forget(&mut self, id: RequestId) {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.id == id) else { return };
        let gone = self.waiting.remove(at).expect("it was just found");
        self.bytes -= gone.request.value_len();
    }
}

impl Shard {
    /// Takes a client's request. `id` must not be that of another request under way.
    pub fn request(&mut self, id: RequestId, request: Request) {
        let now = self.config.clock.now();
        if !self.admission.is_over(now) {
            self.begin(Waiting { id, request, since: now });
        } else if self.work() >= WORK_MAX || self.work_bytes() >= WORK_BYTES_MAX {
            self.refuse(id);
        } else {
            self.admission.push(Waiting { id, request, since: now });
        }
    }

    /// Begins what waits, and refuses what has waited for too long.
    pub(super) fn admit(&mut self) {
        self.admission.pass_began = None;
        if self.admission.len() == 0 {
            return;
        }
        let began = self.config.clock.now();
        let mut now = began;
        while now.since(began) < PASS_MAX
            && let Some(waiting) = self.admission.pop()
        {
            self.begin(waiting);
            now = self.config.clock.now();
        }
        while self.load().0 as usize >= OVERLOAD_WORK_MIN
            && self.admission.waiting.front().is_some_and(|first| now.since(first.since) >= WAIT_MAX)
        {
            let first = self.admission.pop().expect("it was just looked at");
            self.refuse(first.id);
        }
    }

    fn begin(&mut self, waiting: Waiting) {
        let Waiting { id, request, since } = waiting;
        let timeout = request.timeout().filter(|&ms| ms > 0).map(|ms| Duration::from_millis(ms.into()));
        self.accept(Origin::Here(id), request, since + timeout.unwrap_or(TIMEOUT_DEFAULT));
    }

    fn refuse(&mut self, id: RequestId) {
        self.counters.refused += 1;
        self.reply(Origin::Here(id), Err(Error::Overload));
    }

    /// Forgets a client's request whose client is gone. A write that has begun goes on.
    pub fn forget(&mut self, id: RequestId) {
        self.admission.forget(id);
        self.listings.forget(id);
    }
}
