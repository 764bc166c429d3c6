//! The log of slow requests.
//!
//! 1. A request that waits keeps a record of its stages ([`StageClock`]).
//! 2. Its component looks at those that wait when the threshold of one may have passed ([`SlowLooks`]), and writes a
//!    line then ([`SlowRequest`]).
//! 3. The end of a slow request is a line, too.
//! 4. [`SlowLog`] decides which lines are written, and keeps the last of them.
//!
//! The shards of a node share one [`SlowRequests`], so the bounds are those of the node. A shard takes its lock for a
//! slow request only. An operator may change the threshold at any time.
//!
//! Left out: requests for properties, types and members, which read no objects.

mod line;
mod log;
mod looks;
mod request;
mod stages;

pub use line::{ReplicaWait, SlowKeys, SlowLine, SlowOp};
pub use log::{LINES_KEPT, LINES_PER_SECOND, SlowLog};
pub use stages::{STAGES, SlowStage};

pub(crate) use looks::SlowLooks;
pub(crate) use request::SlowRequest;
pub(crate) use stages::StageClock;

use base::Monotonic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The threshold in nanoseconds of a log that is off: no request takes as long.
const OFF: u64 = u64::MAX;

/// The log of slow requests, as the shards of a node share it.
#[derive(Debug)]
pub struct SlowRequests {
    threshold_nanos: AtomicU64,
    keys: SlowKeys,
    log: Mutex<SlowLog>,
}

impl SlowRequests {
    /// A log of requests that take `threshold` or longer; `None`: it is off.
    pub fn new(threshold: Option<Duration>, keys: SlowKeys) -> Arc<SlowRequests> {
        let slow = SlowRequests { threshold_nanos: AtomicU64::new(OFF), keys, log: Mutex::default() };
        slow.set_threshold(threshold);
        Arc::new(slow)
    }

    /// A log that is off.
    pub fn off() -> Arc<SlowRequests> {
        SlowRequests::new(None, SlowKeys::Hash)
    }

    /// The least time of a slow request; `None`: the log is off.
    #[inline]
    pub fn threshold(&self) -> Option<Duration> {
        let nanos = self.threshold_nanos.load(Ordering::Relaxed);
        (nanos != OFF).then(|| Duration::from_nanos(nanos))
    }

    /// Changes the threshold; `None` turns the log off.
    pub fn set_threshold(&self, threshold: Option<Duration>) {
        let nanos = threshold.map_or(OFF, |time| u64::try_from(time.as_nanos()).unwrap_or(OFF));
        self.threshold_nanos.store(nanos, Ordering::Relaxed);
    }

    /// The form of keys in lines.
    pub fn keys(&self) -> SlowKeys {
        self.keys
    }

    /// The last lines, the oldest first, and the number of all lines that were left out.
    pub fn read(&self) -> (Vec<Arc<SlowLine>>, u64) {
        let log = self.log();
        (log.lines().cloned().collect(), log.left_out())
    }

    /// Writes a line, unless there were too many; then it is counted.
    pub(crate) fn write(&self, now: Monotonic, line: impl FnOnce() -> SlowLine) -> Option<Arc<SlowLine>> {
        self.log().write(now, line)
    }

    /// When there is room for a line.
    pub(crate) fn room_at(&self) -> Monotonic {
        self.log().room_at()
    }

    fn log(&self) -> MutexGuard<'_, SlowLog> {
        // A line is whole before it is kept.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
