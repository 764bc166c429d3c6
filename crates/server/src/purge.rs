//! Purges: tombstones that are reaped, or objects that are deleted, because a fold finds them. One at a time on a node, asked
//! for by operators.
//!
//! 1. A fold over the cluster tells of them a page at a time ([`kv::fold`]); the next page is asked for when this one is done.
//! 2. A tombstone is read, with all replicas asked: a read that finds it at all primaries proposes to reap it, and all
//!    members have to agree (record 8). An object is deleted with the context that was found: what was written since stays.
//! 3. After each key the purge rests for `REST` times as long as that took, so that whatever is busy slows it down, and it stays below
//!    a rate: clients go first.
//!
//! How far it is is told to whoever asks, and how it ended until the next one begins. It runs on the thread of the connection that began
//! it, and is over when the node stops: who wants the rest begins it again, and what is done is not found any more.
//!
//! Left out: knowing whether a tombstone was reaped. That is decided later, and counted in the node's statistics.

use crate::connections::Connections;
use crate::local::Local;
use crate::membership::Answered;
use kv::fold::{FoldRequest, Folded, KeyClock, Purge, Sum};
use kv::{Bucket, DeleteRequest, Error, GetRequest, Quorum, Request, Response};
use node::http::{PurgePage, PurgeTask};
use serde::Serialize;
use serde_json::{Value, json};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long it rests after a key, in keys: it gets a quarter of what it would take alone.
const REST: u32 = 3;

/// The longest rest: a key that takes longer than a third of it met a node that does not answer rather than a busy one.
const REST_MAX: Duration = Duration::from_millis(500);

/// Keys in a second unless said otherwise: a shard begins a few hundred reapings in a second, and remembers each for two minutes.
const RATE_DEFAULT: u32 = 100;

/// The highest rate that can be asked for: beyond it, tombstones wait in queues that are full.
const RATE_MAX: u32 = 10_000;

/// The purge of a node that is under way, or the last one, and what all have come to.
#[derive(Default)]
pub struct Purges(Mutex<Known>);

#[derive(Default)]
struct Known {
    last: Option<State>,
    figures: PurgeFigures,
}

/// What purges have come to since the node's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PurgeFigures {
    /// Those that were begun.
    purges: u64,
    /// Keys that they found, and those of them that could not be asked for.
    purge_keys: u64,
    purge_keys_failed: u64,
}

/// How far one is.
struct State {
    purge: Purge,
    bucket: Bucket,
    /// Keys that were found, those of them that were asked for without an error, and the others.
    found: u64,
    done: u64,
    failed: u64,
    /// Whether it is to end.
    stop: bool,
    /// How it ended.
    ended: Option<Result<(), String>>,
}

impl Purges {
    /// Answers an operator. Does not wait.
    pub fn ask(self: &Arc<Self>, page: PurgePage, local: &Rc<Local>, about: &Rc<Connections>) -> Answered {
        let mut known = self.lock();
        let Known { last, figures } = &mut *known;
        match page {
            PurgePage::Show => Answered { status: 200, body: last.as_ref().map_or(json!({}), State::show) },
            PurgePage::Stop => match last {
                Some(state) if state.ended.is_none() => {
                    state.stop = true;
                    Answered { status: 200, body: state.show() }
                }
                _ => Answered::wrong(409, "nothing is being purged"),
            },
            PurgePage::Begin(_) if last.as_ref().is_some_and(|state| state.ended.is_none()) => {
                Answered::wrong(409, "something is being purged already")
            }
            PurgePage::Begin(task) if !(1..=RATE_MAX).contains(&task.rate(RATE_DEFAULT)) => {
                Answered::wrong(400, format!("per_second is to be from 1 to {RATE_MAX}"))
            }
            PurgePage::Begin(task) => {
                let (purge, bucket) = (task.purge, task.bucket.clone());
                let state = State { purge, bucket, found: 0, done: 0, failed: 0, stop: false, ended: None };
                let body = last.insert(state).show();
                figures.purges += 1;
                let (purges, local, about) = (Arc::clone(self), Rc::clone(local), Rc::clone(about));
                tokio::task::spawn_local(async move {
                    let end = purges.run(*task, &local, &about).await;
                    if let Some(state) = &mut purges.lock().last {
                        state.ended = Some(end);
                    }
                });
                Answered { status: 202, body }
            }
        }
    }

    async fn run(&self, task: PurgeTask, local: &Local, about: &Connections) -> Result<(), String> {
        let least = Duration::from_secs(1) / task.rate(RATE_DEFAULT);
        let fold = FoldRequest { fold: task.fold, timeout: Some(u32::MAX), stream: true };
        let mut pages = local.ask(Request::Fold(Box::new(fold)));
        loop {
            let (answer, more) = pages.next().await;
            for found in found(answer).map_err(|error| error.to_string())? {
                if about.stopping() || self.lock().last.as_ref().is_none_or(|state| state.stop) {
                    return Err("it was stopped".to_owned());
                }
                let begun = Instant::now();
                let (result, _) = local.ask(request(task.purge, found)).next().await;
                self.lock().count(&result);
                let took = begun.elapsed();
                let rest = (took * REST).min(REST_MAX).max(least.saturating_sub(took));
                tokio::time::sleep(rest).await;
            }
            if !more {
                return Ok(());
            }
            pages.proceed();
        }
    }

    /// What they have come to.
    pub fn figures(&self) -> PurgeFigures {
        self.lock().figures
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn count(&mut self, result: &Result<Response, Error>) {
        let failed = u64::from(result.is_err());
        self.figures.purge_keys += 1;
        self.figures.purge_keys_failed += failed;
        if let Some(state) = &mut self.last {
            state.found += 1;
            state.failed += failed;
            state.done += 1 - failed;
        }
    }
}

impl State {
    fn show(&self) -> Value {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let mut shown = json!({
            "purge": self.purge.as_str(),
            "bucket-type": text(&self.bucket.bucket_type),
            "bucket": text(&self.bucket.name),
            "found": self.found,
            "done": self.done,
            "failed": self.failed,
            "state": match &self.ended {
                None if self.stop => "stopping",
                None => "running",
                Some(Ok(())) => "done",
                Some(Err(_)) => "failed",
            },
        });
        if let Some(Err(error)) = &self.ended {
            shown["error"] = error.clone().into();
        }
        shown
    }
}

/// The keys on a page.
fn found(answer: Result<Response, Error>) -> Result<Vec<KeyClock>, Error> {
    match answer? {
        Response::Folded(folded) => match *folded {
            Folded { sum: Sum::Clocks(clocks), .. } => Ok(clocks),
            other => unreachable!("the fold is for keys with contexts and answered {other:?}"),
        },
        other => unreachable!("the shard was asked for a fold and answered {other:?}"),
    }
}

/// What is asked for a key that was found.
fn request(purge: Purge, KeyClock { bucket, key, clock }: KeyClock) -> Request {
    match purge {
        Purge::Reap => {
            Request::Get(GetRequest { r: Quorum::All, head: true, ..GetRequest::new(bucket, key) })
        }
        Purge::Erase => {
            Request::Delete(DeleteRequest { context: Some(clock), ..DeleteRequest::new(bucket, key) })
        }
    }
}
