//! Operators who have nodes purge buckets while everything happens: jobs that have tombstones reaped or objects erased, one on a node at
//! a time, several in the cluster perhaps. What a job asks for, and how long it rests, is [`kv::purge`]'s to say, as on
//! real nodes; the world does what a node's shell does: it asks, waits, and stops the job with the node. As the lister
//! it needs no network.
//!
//! What an erase may take of a key is what its fold has told, whatever it asks for: so the checkers are told
//! ([`Checks::on_erase`](crate::check::cluster::Checks::on_erase)). The keys that a fold finds are checked as a
//! listing.

use super::{BUCKETS, ONCE, PURGER, World, lister};
use crate::check::Verdict;
use crate::report::Purged;
use crate::seed::index_below;
use crate::show;
use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use bytes::Bytes;
use kv::fold::{Purge, Sum};
use kv::purge::{PurgeJob, PurgeTask, Step};
use kv::{Error, Request, Response};
use node::RequestId;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Of so many ticks, one begins a job on some node: a few in a life.
const EVERY: u64 = 150;
/// Keys in a second at most: what is written while a key waits on its page is what an erase may take wrongly.
const RATES: [u32; 3] = [5, 20, 100];

/// Who purges, and what.
#[derive(Debug)]
pub(super) struct Purger {
    rng: SplitMix64,
    /// By node.
    jobs: BTreeMap<usize, Job>,
    pub(super) purged: Purged,
}

/// A job under way.
#[derive(Debug)]
struct Job {
    job: PurgeJob,
    purge: Purge,
    shard: usize,
    /// The request for its fold, while that has more to tell.
    fold: Option<u64>,
    /// What the fold has told and the job has not taken.
    pages: VecDeque<(Result<Response, Error>, bool)>,
    /// Whether it waits for a page.
    awaits_page: bool,
    /// The request for a key, and since when it is under way.
    asked: Option<(u64, Monotonic)>,
    rests_until: Monotonic,
    /// What its fold has told of each key, and when.
    told: BTreeMap<Bytes, (Bytes, Monotonic)>,
}

impl Purger {
    pub(super) fn new(rng: SplitMix64) -> Purger {
        Purger { rng, jobs: BTreeMap::new(), purged: Purged::default() }
    }

    /// The process of a node has died, and its job with it.
    pub(super) fn on_death(&mut self, node: usize) {
        self.jobs.remove(&node);
    }

    /// Whether this is a request of the job of this node.
    pub(super) fn awaits(&self, node: usize, id: RequestId) -> bool {
        let is_its = |job: &Job| job.fold == Some(id.0) || job.asked.is_some_and(|(asked, _)| asked == id.0);
        self.jobs.get(&node).is_some_and(is_its)
    }

    /// The context that the fold of this node's job has told of a key, and when.
    pub(super) fn told(&self, node: usize, key: &Bytes) -> Option<(&Bytes, Monotonic)> {
        self.jobs.get(&node)?.told.get(key).map(|(context, told)| (context, *told))
    }
}

impl Job {
    /// The fold tells a page.
    fn on_page(&mut self, answer: Result<Response, Error>, more: bool, now: Monotonic) {
        if let Ok(Response::Folded(folded)) = &answer
            && let Sum::Clocks(clocks) = &folded.sum
        {
            self.told.extend(clocks.iter().map(|found| (found.key.clone(), (found.clock.clone(), now))));
        }
        self.fold = self.fold.filter(|_| more);
        self.pages.push_back((answer, more));
    }
}

impl World {
    /// Goes on with all jobs, and now and then begins one.
    pub(super) fn purge_something(&mut self) -> Verdict {
        let nodes: Vec<usize> = self.purger.jobs.keys().copied().collect();
        for at in nodes {
            self.go_on_purging(at)?;
        }
        if !self.plan.purges || !self.phase.has_clients() || !self.purger.rng.chance(1, EVERY) {
            return Ok(());
        }
        let rng = &mut self.purger.rng;
        let at = index_below(rng, self.hosts.len());
        let shard = index_below(rng, usize::from(self.hosts[at].machine.layout.shards));
        // Where nothing is reaped, a job that reaps reads.
        let reaps = self.plan.reaping.delay.is_some();
        let purge = if rng.chance(1, if reaps { 2 } else { 8 }) { Purge::Reap } else { Purge::Erase };
        // As clients, it deletes no keys that are written once where tombstones are reaped.
        let buckets = if reaps && purge == Purge::Erase { ONCE } else { BUCKETS.len() };
        let bucket = super::client::bucket(index_below(rng, buckets));
        let per_second = Some(RATES[index_below(rng, RATES.len())]);
        if self.purger.jobs.contains_key(&at) || self.hosts[at].held.is_some() || !self.listens(at, shard) {
            return Ok(());
        }
        let (job, fold) = PurgeJob::new(PurgeTask { per_second, ..PurgeTask::new(purge, bucket) });
        self.purger.purged.jobs += 1;
        let job = Job {
            job,
            purge,
            shard,
            // The number that it will have.
            fold: Some(self.numbers + 1),
            pages: VecDeque::new(),
            awaits_page: false,
            asked: None,
            rests_until: self.events.now(),
            told: BTreeMap::new(),
        };
        self.purger.jobs.insert(at, job);
        self.ask_to_purge(at, shard, fold)
    }

    fn ask_to_purge(&mut self, at: usize, shard: usize, request: Request) -> Verdict {
        let timeout = Duration::from_millis(request.timeout().expect("it says how long it waits").into());
        self.on_ask((PURGER, 0), (at, shard), request, timeout)
    }

    /// Goes on with the job of a node as far as it can.
    fn go_on_purging(&mut self, at: usize) -> Verdict {
        let now = self.events.now();
        loop {
            let Some(mut job) = self.purger.jobs.remove(&at) else { return Ok(()) };
            let awaits_page = job.awaits_page && job.pages.is_empty();
            let waits = job.asked.is_some() || now < job.rests_until || awaits_page;
            if waits || self.hosts[at].held.is_some() {
                self.purger.jobs.insert(at, job);
                return Ok(());
            }
            if std::mem::take(&mut job.awaits_page) {
                let (answer, more) = job.pages.pop_front().expect("it waits for none");
                job.job.on_page(answer, more);
            }
            if !self.phase.has_clients() || !self.listens(at, job.shard) {
                job.job.stop();
            }
            let shard = job.shard;
            match job.job.step() {
                Step::Page { goes_on } => {
                    job.awaits_page = true;
                    let fold = job.fold.filter(|_| goes_on && job.pages.is_empty());
                    self.purger.jobs.insert(at, job);
                    fold.into_iter().for_each(|fold| self.proceed(at, shard, RequestId(fold)));
                }
                Step::Ask(request) => {
                    job.asked = Some((self.numbers + 1, now));
                    self.purger.jobs.insert(at, job);
                    return self.ask_to_purge(at, shard, *request);
                }
                Step::Over(end) => {
                    self.trace.line(format_args!("the purge of n{at} is over: {end:?}"));
                    self.purger.purged.whole += u64::from(end.is_ok());
                    job.fold.into_iter().for_each(|fold| self.forget(at, shard, fold));
                    return Ok(());
                }
            }
        }
    }

    /// Nobody waits for a request any more.
    fn forget(&mut self, at: usize, shard: usize, id: u64) {
        if let Some(running) = self.hosts[at].machine.shard(shard) {
            running.forget(RequestId(id));
        }
        self.requests.remove(&id);
        self.checks.on_given_up(id);
    }

    /// A node answers its job: a part of the fold, or what a key has come to.
    pub(super) fn on_purge_reply(
        &mut self,
        at: usize,
        to: RequestId,
        result: Result<Response, Error>,
        more: bool,
    ) -> Verdict {
        let now = self.events.now();
        let job = self.purger.jobs.get_mut(&at).expect("it is awaited");
        if let Some((_, begun)) = job.asked.take_if(|(asked, _)| *asked == to.0) {
            job.rests_until = now + job.job.on_answer(&result, now.since(begun));
            let purged = &mut self.purger.purged;
            match (job.purge, &result) {
                (_, Err(_)) => purged.failed += 1,
                (Purge::Reap, Ok(_)) => purged.tombstones += 1,
                (Purge::Erase, Ok(_)) => purged.objects += 1,
            }
            return self.on_reply(at, to, result);
        }
        job.on_page(result.clone(), more, now);
        if job.purge == Purge::Erase
            && let Some((keys, done)) = lister::told(&result)
        {
            self.checks.on_listed(to.0, &keys, done)?;
        }
        if !more {
            return self.on_reply(at, to, result);
        }
        self.trace.line(format_args!("n{at} finds for request {}: {}", to.0, show::answer(&result)));
        Ok(())
    }
}
