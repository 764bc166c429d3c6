//! A purge: tombstones that are reaped, or objects that are deleted, because a fold finds them. What it asks for, and
//! how long it rests in between.
//!
//! 1. A fold over the cluster tells of keys with their contexts, a page at a time ([`crate::fold`]); the next page is
//!    asked for when this one is done.
//! 2. A tombstone is read, with all replicas asked: a read that finds it at all primaries proposes to reap it, and all
//!    members have to agree (decision 8). An object is deleted with the context that was found: a later write stays.
//! 3. After each key it rests for `REST` times as long as that took, so that whatever is busy slows it down, and it
//!    stays below a rate: clients go first.
//!
//! Invariant: an erase takes what its fold has found of a key, and nothing else, however long the key has waited on its
//! page.
//!
//! Left out: who asks, and waits; how it is told about. Whether a tombstone was reaped: that is decided later.

use std::time::Duration;
use std::vec::IntoIter;

use crate::bucket::Bucket;
use crate::error::Error;
use crate::fold::{Fold, FoldRequest, Folded, KeyClock, Purge, Scope, Sum};
use crate::quorum::Quorum;
use crate::request::{DeleteRequest, GetRequest, Request};
use crate::response::Response;

/// How long it rests after a key, in keys: it gets a quarter of what it would take alone.
const REST: u32 = 3;

/// The longest rest: a key that takes longer than a third of it met a node that does not answer rather than a busy one.
const REST_MAX: Duration = Duration::from_millis(500);

/// How long a key may take, in milliseconds: whoever does not answer by then is away, and the purge goes on without it.
/// A key that failed is found again by the next purge.
const KEY_TIMEOUT: u32 = 10_000;

/// Keys in a second unless said otherwise: a shard begins a few hundred reapings in a second, and remembers each for
/// two minutes.
pub const RATE_DEFAULT: u32 = 100;

/// The highest rate that can be asked for: beyond it, tombstones wait in queues that are full.
pub const RATE_MAX: u32 = 10_000;

/// A purge that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeTask {
    /// What is done.
    pub purge: Purge,
    /// In which bucket.
    pub bucket: Bucket,
    /// The fold that finds the keys.
    pub fold: Fold,
    /// Keys in a second at most, 1 to [`RATE_MAX`]; [`RATE_DEFAULT`] if it does not say.
    pub per_second: Option<u32>,
}

impl PurgeTask {
    /// One over a whole bucket.
    pub fn new(purge: Purge, bucket: Bucket) -> PurgeTask {
        let fold = Fold::new(Scope::Bucket(bucket.clone()), purge.finds());
        PurgeTask { purge, bucket, fold, per_second: None }
    }

    /// Keys in a second at most.
    pub fn rate(&self) -> u32 {
        self.per_second.unwrap_or(RATE_DEFAULT)
    }
}

/// How far a purge is, in keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// That were found and asked for.
    pub found: u64,
    /// That were asked for without an error.
    pub done: u64,
    /// The others.
    pub failed: u64,
}

/// Why a purge ended before its fold did.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PurgeError {
    /// Somebody wished so.
    #[error("it was stopped")]
    Stopped,
    /// The keys were not found.
    #[error(transparent)]
    Fold(Error),
}

/// What whoever runs a purge is to do next.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// To wait for the fold's next page, and tell [`PurgeJob::on_page`].
    Page {
        /// Whether the fold is to go on first: all that it has told so far is done.
        goes_on: bool,
    },
    /// To ask for this, to tell [`PurgeJob::on_answer`], and to wait for as long as that says.
    Ask(Box<Request>),
    /// Nothing more. The fold is given up if it has more to tell.
    Over(Result<(), PurgeError>),
}

/// A purge under way.
#[derive(Debug)]
pub struct PurgeJob {
    purge: Purge,
    /// The least time from one key to the next.
    least: Duration,
    /// What is left of the page.
    page: IntoIter<KeyClock>,
    /// Whether there was a page yet.
    has_begun: bool,
    /// Whether the fold has more to tell.
    more: bool,
    failed: Option<Error>,
    is_stopped: bool,
    progress: Progress,
}

impl PurgeJob {
    /// The purge that is asked for, and the request for its fold, whose answers are its pages.
    pub fn new(task: PurgeTask) -> (PurgeJob, Request) {
        let job = PurgeJob {
            purge: task.purge,
            least: Duration::from_secs(1) / task.rate().max(1),
            page: Vec::new().into_iter(),
            has_begun: false,
            more: true,
            failed: None,
            is_stopped: false,
            progress: Progress::default(),
        };
        let fold = FoldRequest { fold: task.fold, timeout: Some(u32::MAX), stream: true };
        (job, Request::Fold(Box::new(fold)))
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// It asks for nothing more.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Asserts relations that hold after each step.
    pub fn invariants(&self) {
        let Progress { found, done, failed } = self.progress;
        debug_assert_eq!(found, done + failed, "each key that was asked for was done or has failed");
    }

    /// What is to be done next.
    pub fn step(&mut self) -> Step {
        if cfg!(debug_assertions) {
            self.invariants();
        }
        if let Some(error) = self.failed.take() {
            return Step::Over(Err(PurgeError::Fold(error)));
        }
        if self.page.len() == 0 && !self.more {
            return Step::Over(Ok(()));
        }
        if self.is_stopped {
            return Step::Over(Err(PurgeError::Stopped));
        }
        match self.page.next() {
            Some(found) => Step::Ask(Box::new(request(self.purge, found))),
            None => Step::Page { goes_on: self.has_begun },
        }
    }

    /// Takes an answer to the fold, and whether more are to come.
    ///
    /// # Panics
    /// If it is no answer to this fold.
    pub fn on_page(&mut self, answer: Result<Response, Error>, more: bool) {
        (self.has_begun, self.more) = (true, more);
        match answer {
            Ok(Response::Folded(folded)) => match *folded {
                Folded { sum: Sum::Clocks(clocks), .. } => self.page = clocks.into_iter(),
                other => unreachable!("the fold is for keys with contexts and answered {other:?}"),
            },
            Ok(other) => unreachable!("the shard was asked for a fold and answered {other:?}"),
            Err(error) => self.failed = Some(error),
        }
    }

    /// Takes the answer for a key, which took this long, and tells how long to rest.
    pub fn on_answer(&mut self, result: &Result<Response, Error>, took: Duration) -> Duration {
        let failed = u64::from(result.is_err());
        self.progress.found += 1;
        self.progress.failed += failed;
        self.progress.done += 1 - failed;
        took.saturating_mul(REST).min(REST_MAX).max(self.least.saturating_sub(took))
    }
}

/// What is asked for a key that was found.
fn request(purge: Purge, KeyClock { bucket, key, clock }: KeyClock) -> Request {
    let timeout = Some(KEY_TIMEOUT);
    match purge {
        Purge::Reap => {
            Request::Get(GetRequest { r: Quorum::All, head: true, timeout, ..GetRequest::new(bucket, key) })
        }
        Purge::Erase => {
            let context = Some(clock).filter(|_| !base::planted!(ErasedUnseen));
            Request::Delete(DeleteRequest { context, timeout, ..DeleteRequest::new(bucket, key) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::{Branches, Finds};
    use bytes::Bytes;
    use std::sync::Arc;

    fn bucket() -> Bucket {
        Bucket::untyped(Bytes::from_static(b"b"))
    }

    fn page(keys: &[&'static str]) -> Result<Response, Error> {
        let found = |key: &&'static str| {
            let clock = Bytes::from(format!("clock of {key}"));
            KeyClock { bucket: bucket(), key: Bytes::from_static(key.as_bytes()), clock }
        };
        let sum = Sum::Clocks(keys.iter().map(found).collect());
        let fold = Arc::new(PurgeTask::new(Purge::Erase, bucket()).fold);
        Ok(Response::Folded(Box::new(Folded { fold, sum, tree: Branches::default(), done: false })))
    }

    /// What it asks for next, which is done without an error in a millisecond.
    fn asked(job: &mut PurgeJob) -> Request {
        let Step::Ask(request) = job.step() else { panic!("a key is left") };
        job.on_answer(&Ok(Response::Deleted), Duration::from_millis(1));
        *request
    }

    #[test]
    fn each_key_of_each_page_is_asked_for_with_what_was_found() {
        let (mut job, fold) = PurgeJob::new(PurgeTask::new(Purge::Erase, bucket()));
        let Request::Fold(fold) = fold else { panic!("keys are found by a fold") };
        assert_eq!((fold.fold.finds, fold.stream), (Finds::Objects, true));
        assert_eq!(job.step(), Step::Page { goes_on: false });
        job.on_page(page(&["k", "l"]), true);
        for key in ["k", "l"] {
            let Request::Delete(delete) = asked(&mut job) else { panic!("objects are deleted") };
            let clock = Bytes::from(format!("clock of {key}"));
            assert_eq!((&delete.key[..], delete.context), (key.as_bytes(), Some(clock)));
        }
        assert_eq!(job.step(), Step::Page { goes_on: true });
        job.on_page(page(&["m"]), true);
        asked(&mut job);
        assert_eq!(job.step(), Step::Page { goes_on: true });
        job.on_page(page(&[]), false);
        assert_eq!(job.step(), Step::Over(Ok(())));
        assert_eq!(job.progress(), Progress { found: 3, done: 3, failed: 0 });
    }

    #[test]
    fn a_tombstone_is_read_at_all_replicas() {
        let (mut job, _) = PurgeJob::new(PurgeTask::new(Purge::Reap, bucket()));
        job.on_page(page(&["k"]), false);
        let Request::Get(get) = asked(&mut job) else { panic!("tombstones are read") };
        assert_eq!((get.r, get.head), (Quorum::All, true));
        assert_eq!(job.step(), Step::Over(Ok(())));
    }

    #[test]
    fn it_rests_for_longer_than_a_key_took_and_keeps_to_its_rate() {
        let task = PurgeTask { per_second: Some(10), ..PurgeTask::new(Purge::Erase, bucket()) };
        let (mut job, _) = PurgeJob::new(task);
        let ms = Duration::from_millis;
        let mut rest = |took: Duration| job.on_answer(&Err(Error::Timeout), took);
        assert_eq!([1, 50, 1000].map(|took| rest(ms(took))), [ms(99), ms(150), REST_MAX]);
        assert_eq!(rest(Duration::MAX), REST_MAX);
        assert_eq!(job.progress(), Progress { found: 4, done: 0, failed: 4 });
    }

    #[test]
    fn it_ends_when_it_is_stopped_or_its_fold_fails() {
        let (mut job, _) = PurgeJob::new(PurgeTask::new(Purge::Erase, bucket()));
        job.on_page(page(&["k", "l"]), true);
        asked(&mut job);
        job.stop();
        assert_eq!(job.step(), Step::Over(Err(PurgeError::Stopped)));
        let (mut job, _) = PurgeJob::new(PurgeTask::new(Purge::Erase, bucket()));
        job.on_page(Err(Error::NotCovered), false);
        assert_eq!(job.step(), Step::Over(Err(PurgeError::Fold(Error::NotCovered))));
    }
}
