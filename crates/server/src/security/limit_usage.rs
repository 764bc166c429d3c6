//! The use of users' limits at this node's doors, and the lines of the audit log about it.
//!
//! 1. [`LimitUsage::admit`] decides on a request for the node, once its permissions are known to be there.
//! 2. [`LimitUsage::charge`] adds the bytes of its answer.
//! 3. [`LimitUsage::tell_refused`] writes, for each user with refusals, one line each [`TELL_EACH`].
//!
//! Answers that no shard gives are free: pings, statistics, administration. A user without limits pays one look at the
//! policy. Each node counts for itself: clients that use all of n nodes evenly have n times the limit.
//!
//! The arithmetic is of `security::Meters`.

use ::security::{Access, Limits, Meters, Name};
use base::Clock;
use bytes::Bytes;
use os::OsClock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Time between two lines of the audit log about a user. A figure counts at once.
const TELL_EACH: Duration = Duration::from_secs(10);

/// The use of users' limits.
pub(crate) struct LimitUsage {
    meters: Mutex<Meters>,
    clock: OsClock,
    noted: Notify,
    refused: AtomicU64,
}

/// A request under limits that was admitted, until its answer is charged.
pub(crate) struct AdmittedRequest {
    bucket_type: Bytes,
}

/// A request that a limit has no room for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RateLimited {
    /// The time until there is room.
    pub(crate) wait: Duration,
}

impl LimitUsage {
    pub(super) fn new() -> LimitUsage {
        let (meters, noted, refused) = Default::default();
        LimitUsage { meters, clock: OsClock::new(), noted, refused }
    }

    /// Admits a request for the node; `None` for one without limits.
    ///
    /// # Errors
    /// [`RateLimited`]; then nothing is charged.
    #[inline]
    pub(crate) fn admit(
        &self,
        access: &Access,
        request: &kv::Request,
    ) -> Result<Option<AdmittedRequest>, RateLimited> {
        match access.limits() {
            Some((user, limits)) => self.admit_within(user, limits, request).map(Some),
            None => Ok(None),
        }
    }

    #[inline(never)]
    fn admit_within(
        &self,
        user: &Name,
        limits: &Limits,
        request: &kv::Request,
    ) -> Result<AdmittedRequest, RateLimited> {
        let bucket_type = request.bucket().map(|bucket| bucket.bucket_type.clone()).unwrap_or_default();
        let bytes = request.value_len() as u64;
        let admitted = self.meters().admit(user, (limits, &bucket_type), bytes, self.clock.now());
        admitted.map_err(|wait| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            self.noted.notify_one();
            RateLimited { wait }
        })?;
        Ok(AdmittedRequest { bucket_type })
    }

    /// Charges the bytes of an answer, or of a part of one.
    #[inline]
    pub(crate) fn charge(&self, access: &Access, request: Option<&AdmittedRequest>, bytes: usize) {
        if let Some(request) = request
            && let Some((user, limits)) = access.limits()
        {
            self.meters().charge(user, (limits, &request.bucket_type), bytes as u64, self.clock.now());
        }
    }

    /// Requests that were refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Tells how many requests of each user were refused, for ever.
    pub(crate) async fn tell_refused(&self) {
        loop {
            self.noted.notified().await;
            tokio::time::sleep(TELL_EACH).await;
            let refused = self.meters().take_refused();
            for (user, count) in refused {
                let user = String::from_utf8_lossy(&user);
                tracing::info!(target: "audit", %user, rate_limited = count, "audit");
            }
        }
    }

    fn meters(&self) -> MutexGuard<'_, Meters> {
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
