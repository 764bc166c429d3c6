//! Somebody who lists buckets while everything happens, one at a time: as clients list them, and by folds that find
//! objects. As the auditor it needs no network; what it lists is checked as it leaves the node. In the end it lists
//! each bucket once more, both ways, and what it lists is what there is: what reads find, and what copies have.

use super::ending::Phase;
use super::{BUCKETS, LISTER, World};
use crate::check::{Verdict, Violation, listing};
use crate::seed::index_below;
use crate::show;
use base::Rng;
use base::rng::SplitMix64;
use bytes::Bytes;
use kv::fold::{Finds, Fold, FoldRequest, Scope, Sum};
use kv::{Error, ListKeysRequest, Request, Response};
use node::RequestId;
use std::time::Duration;

/// How a bucket can be listed.
const WAYS: usize = 2;
/// Of so many listings, one is a fold.
const FOLDS: u64 = 3;
/// Of so many ticks, one begins a listing if none is under way.
const EVERY: u64 = 16;
/// Where a script has its many objects listed.
const EVERY_IN_SCRIPT: u64 = 400;
/// How long one may take: longer than a page that is lost takes to be asked for again, and than a node takes to be
/// missed.
const TIMEOUT: Duration = Duration::from_secs(8);

#[derive(Debug)]
pub(super) struct Lister {
    rng: SplitMix64,
    /// The node and the request.
    under_way: Option<(usize, u64)>,
    /// In the end: the listing that is next, of all buckets in all ways, and what is listed so far.
    last: (usize, Vec<Bytes>),
}

impl Lister {
    pub(super) fn new(rng: SplitMix64) -> Lister {
        Lister { rng, under_way: None, last: (0, Vec::new()) }
    }

    /// The process of a node has died, and will answer nothing.
    pub(super) fn on_death(&mut self, node: usize) {
        self.under_way.take_if(|(at, _)| *at == node);
    }

    /// Whether this is the request of its listing.
    pub(super) fn awaits(&self, id: RequestId) -> bool {
        self.under_way.is_some_and(|(_, request)| request == id.0)
    }
}

impl World {
    /// Now and then, lists a bucket.
    pub(super) fn list_something(&mut self) -> Verdict {
        let every = if self.script.is_some() { EVERY_IN_SCRIPT } else { EVERY };
        let rng = &mut self.lister.rng;
        if self.lister.under_way.is_some() || !self.phase.has_clients() || !rng.chance(1, every) {
            return Ok(());
        }
        let at = index_below(rng, self.hosts.len());
        let bucket = index_below(rng, self.plan.buckets());
        // A script may have nodes with older programs, which know no folds.
        let is_fold = self.script.is_none() && rng.chance(1, FOLDS);
        self.list(at, bucket, is_fold)
    }

    /// Lists each bucket on some node, one after the other. True when all are listed.
    pub(super) fn list_all(&mut self) -> Result<bool, Violation> {
        let (next, _) = self.lister.last;
        if next == WAYS * self.plan.buckets() {
            self.lister.last = (0, Vec::new());
            return Ok(true);
        }
        if self.lister.under_way.is_none() {
            let living: Vec<usize> = self.living().collect();
            let at = living[index_below(&mut self.lister.rng, living.len())];
            self.list(at, next / WAYS, next % WAYS > 0)?;
        }
        Ok(false)
    }

    fn list(&mut self, at: usize, bucket: usize, is_fold: bool) -> Verdict {
        let shard = index_below(&mut self.lister.rng, usize::from(self.hosts[at].machine.layout.shards));
        if self.hosts[at].held.is_some() || !self.listens(at, shard) {
            return Ok(());
        }
        let bucket = super::client::bucket(bucket);
        let timeout = Some(u32::try_from(TIMEOUT.as_millis()).expect("seconds"));
        let request = match is_fold {
            true => {
                let fold = Fold::new(Scope::Bucket(bucket), Finds::Objects);
                Request::Fold(Box::new(FoldRequest { fold, timeout, stream: false }))
            }
            false => Request::ListKeys(ListKeysRequest { bucket, timeout }),
        };
        // The number that it will have.
        self.lister.under_way = Some((at, self.numbers + 1));
        self.on_ask((LISTER, 0), (at, shard), request, TIMEOUT)
    }

    /// A node has told a part of the listing.
    pub(super) fn on_list_reply(
        &mut self,
        (at, shard): (usize, usize),
        to: RequestId,
        result: Result<Response, Error>,
        more: bool,
    ) -> Verdict {
        if let Some((keys, done)) = told(&result) {
            self.checks.on_listed(to.0, &keys, done)?;
        }
        if self.phase == Phase::Listing {
            self.on_last_listed(&result)?;
        }
        if !more {
            self.lister.under_way = None;
            return self.on_reply(at, to, result);
        }
        self.trace.line(format_args!("n{at} lists for request {}: {}", to.0, show::answer(&result)));
        self.proceed(at, shard, to);
        Ok(())
    }

    /// The client has taken a part of an answer, and waits for the next.
    pub(super) fn proceed(&mut self, at: usize, shard: usize, to: RequestId) {
        if let Some(running) = self.hosts[at].machine.shard(shard) {
            running.proceed(to);
            self.schedule_turn(at, shard);
        }
    }

    /// Nothing goes wrong any more: each listing is what the last reads have found.
    fn on_last_listed(&mut self, result: &Result<Response, Error>) -> Verdict {
        let (next, listed) = &mut self.lister.last;
        let bucket = *next / WAYS;
        let name = BUCKETS[bucket];
        let Some((keys, done)) = told(result) else {
            if self.is_rotten {
                // Damage is reported, not left out of a listing.
                self.lister.last = (*next + 1, Vec::new());
                return Ok(());
            }
            let what = format!("{}: {}", name.escape_ascii(), show::answer(result));
            return Err(Violation::new("a quiet cluster lists", what));
        };
        listed.extend(keys);
        if done {
            let there = match *next % WAYS {
                0 => self.auditor.found(bucket),
                _ => self.auditor.held(bucket),
            };
            if !self.is_rotten || self.auditor.failed.is_none() {
                listing::check(name, &there, listed)?;
            }
            self.lister.last = (*next + 1, Vec::new());
        }
        Ok(())
    }
}

/// The keys that an answer tells of, and whether it is the last.
pub(super) fn told(result: &Result<Response, Error>) -> Option<(Vec<Bytes>, bool)> {
    match result {
        Ok(Response::Keys { keys, done }) => Some((keys.clone(), *done)),
        Ok(Response::Folded(folded)) => match &folded.sum {
            Sum::Clocks(clocks) => Some((clocks.iter().map(|of| of.key.clone()).collect(), folded.done)),
            _ => None,
        },
        _ => None,
    }
}
