//! Purges: tombstones that are reaped, or objects that are deleted, because a fold finds them. One at a time on a node,
//! asked for by operators. What one asks for is [`kv::purge`]'s to say; here it is asked, waited for, and told about.
//!
//! How far it is is told to whoever asks, and how it ended until the next one begins. It runs on the thread of the
//! connection that began it, and is over when the node stops: who wants the rest begins it again, and what is done is
//! not found any more.
//!
//! Left out: knowing whether a tombstone was reaped. That is decided later, and counted in the node's statistics.

use crate::connections::Connections;
use crate::local::Local;
use crate::membership::Answered;
use kv::fold::Purge;
use kv::purge::{Progress, PurgeError, RATE_MAX, Step};
use kv::{Bucket, PurgeJob, PurgeTask};
use node::http::{PurgePage, put_name};
use serde::Serialize;
use serde_json::{Value, json};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

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
    progress: Progress,
    /// Whether it is to end.
    stop: bool,
    /// How it ended.
    ended: Option<Result<(), PurgeError>>,
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
                _ => Answered::wrong(409, "no reap or erase is running"),
            },
            PurgePage::Begin(_) if last.as_ref().is_some_and(|state| state.ended.is_none()) => {
                Answered::wrong(409, "a reap or erase is running already")
            }
            PurgePage::Begin(task) if !(1..=RATE_MAX).contains(&task.rate()) => {
                Answered::wrong(400, format!("per_second must be from 1 to {RATE_MAX}"))
            }
            PurgePage::Begin(task) => {
                let (purge, bucket) = (task.purge, task.bucket.clone());
                let state = State { purge, bucket, progress: Progress::default(), stop: false, ended: None };
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

    async fn run(&self, task: PurgeTask, local: &Local, about: &Connections) -> Result<(), PurgeError> {
        let (mut job, fold) = PurgeJob::new(task);
        let mut pages = local.ask(fold);
        loop {
            if about.stopping() || self.lock().last.as_ref().is_none_or(|state| state.stop) {
                job.stop();
            }
            match job.step() {
                Step::Page { goes_on } => {
                    if goes_on {
                        pages.proceed();
                    }
                    let (answer, more) = pages.next().await;
                    job.on_page(answer, more);
                }
                Step::Ask(request) => {
                    let begun = Instant::now();
                    let (result, _) = local.ask(*request).next().await;
                    let rest = job.on_answer(&result, begun.elapsed());
                    self.lock().count(job.progress());
                    tokio::time::sleep(rest).await;
                }
                Step::Over(end) => return end,
            }
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
    /// The purge under way has come as far as this.
    fn count(&mut self, progress: Progress) {
        if let Some(state) = &mut self.last {
            self.figures.purge_keys += progress.found - state.progress.found;
            self.figures.purge_keys_failed += progress.failed - state.progress.failed;
            state.progress = progress;
        }
    }
}

impl State {
    fn show(&self) -> Value {
        let Progress { found, done, failed } = self.progress;
        let mut shown = json!({
            "purge": self.purge.as_str(),
            "found": found,
            "done": done,
            "failed": failed,
            "state": match &self.ended {
                None if self.stop => "stopping",
                None => "running",
                Some(Ok(())) => "done",
                Some(Err(_)) => "failed",
            },
        });
        if let Some(object) = shown.as_object_mut() {
            put_name(object, "bucket-type", &self.bucket.bucket_type);
            put_name(object, "bucket", &self.bucket.name);
        }
        if let Some(Err(error)) = &self.ended {
            shown["error"] = error.to_string().into();
        }
        shown
    }
}
