//! How a world ends: rot, calm, and the audit of everything twice, with a clean stop between.

use super::{AUDITOR, BUCKETS, World, client};
use crate::check::{Verdict, listing};
use crate::disk::DiskOdds;
use crate::fault::Fault;
use crate::network::NetworkConfig;
use crate::seed::index_below;
use base::Monotonic;
use bytes::Bytes;
use kv::{Error, Request, Response};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long clients go on after silent damage was done.
const ROT_FOR: Duration = Duration::from_millis(200);

/// Where a world is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Everything happens.
    Life,
    /// Silent damage was done; life goes on until then.
    Rot(Option<Monotonic>),
    /// Nothing new happens; what is under way comes to its end.
    Calm,
    /// Everything is read.
    Audit,
    /// The node stops and starts again.
    Restart,
    /// Everything is read again.
    LastAudit,
    /// The end.
    Over,
}

impl Phase {
    pub(super) fn has_clients(self) -> bool {
        matches!(self, Phase::Life | Phase::Rot(_))
    }

    pub(super) fn has_trouble(self) -> bool {
        self.has_clients()
    }
}

/// What the auditor asked for and was told.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// The operator is about to cut the power, or has decided not to.
    pub(super) gives_up: bool,
    /// What each number asks for.
    asked: BTreeMap<u64, Asked>,
    found: [BTreeSet<Bytes>; 2],
    listed: [Vec<Bytes>; 2],
    /// Something could not be read: there is nothing to compare.
    failed: bool,
    /// The first request after the start has failed, as on a disk that was full just then.
    unprepared: bool,
}

#[derive(Debug)]
enum Asked {
    Key(usize, Bytes),
    List(usize),
    Other,
}

impl Ending {
    pub(super) fn on_death(&mut self) {
        *self = Ending::default();
    }
}

impl World {
    /// Goes on to the next part of its life if this one is over.
    pub(super) fn advance(&mut self) -> Verdict {
        let phase = self.phase;
        match phase {
            Phase::Life if self.has_lived() => {
                let next = if self.plan.rots() { Phase::Rot(None) } else { Phase::Calm };
                self.enter(next);
            }
            Phase::Rot(None) if self.rot() => self.enter(Phase::Rot(Some(self.events.now() + ROT_FOR))),
            Phase::Rot(Some(until)) if self.events.now() >= until => self.enter(Phase::Calm),
            Phase::Calm if self.is_quiet() => {
                self.enter(Phase::Audit);
                self.audit()?;
            }
            Phase::Audit if self.is_quiet() => {
                self.compare()?;
                self.enter(Phase::Restart);
                self.ending.failed = true;
                self.stop();
            }
            Phase::Restart if self.is_restarted() => {
                self.enter(Phase::LastAudit);
                self.audit()?;
            }
            Phase::LastAudit if self.is_quiet() => {
                self.compare()?;
                self.enter(Phase::Over);
            }
            _ => {}
        }
        Ok(())
    }

    fn enter(&mut self, phase: Phase) {
        self.trace.line(format_args!("{phase:?}"));
        self.phase = phase;
        if phase == Phase::Calm {
            self.network.set_config(NetworkConfig::CALM);
            self.network.heal_all();
            self.machine.disk.set_odds(DiskOdds::SOUND);
            self.machine.disk.disarm();
        }
    }

    /// The first request after a start is made again when nothing fails any more. Before that the next start does.
    pub(super) fn prepare_again(&mut self) -> Verdict {
        let is_up = self.machine.process.is_some();
        if self.phase == Phase::Calm && is_up && std::mem::take(&mut self.ending.unprepared) {
            self.ask_all([(0, client::allow_siblings())])?;
        }
        Ok(())
    }

    /// Does all the damage of the plan, and tells whether it has been done.
    fn rot(&mut self) -> bool {
        let disk = &self.machine.disk;
        if self.trace.count(Fault::BitFlip) < self.plan.flips {
            self.watch.flip(disk, &mut self.rng);
        }
        if self.trace.count(Fault::Misdirect) < self.plan.misdirects {
            self.watch.misdirect(disk, &mut self.rng);
        }
        let done = self.trace.count(Fault::BitFlip) >= self.plan.flips
            && self.trace.count(Fault::Misdirect) >= self.plan.misdirects;
        done || self.events.now() >= Monotonic(0) + super::life::LIFE_MAX * 2
    }

    /// Whether the node serves and nobody waits for it. A node that is fenced serves reads only: good enough
    /// where damage may fence it again and again.
    fn is_quiet(&self) -> bool {
        let Some(process) = &self.machine.process else { return false };
        let serves = process.refuses_writes().is_none() || self.is_rotten();
        let idle = process.has_no_hops();
        serves && self.prepared && idle && self.checks.is_idle() && !process.closing.contains(&true)
    }

    // The audit has marked itself failed before the stop; a death takes the mark away.
    fn is_restarted(&self) -> bool {
        !self.ending.failed && self.is_quiet()
    }

    fn audit(&mut self) -> Verdict {
        self.ending = super::Ending { gives_up: self.ending.gives_up, ..Ending::default() };
        let mut requests = Vec::new();
        for (at, bucket) in BUCKETS.into_iter().enumerate() {
            requests.extend((0..self.plan.keys).map(|key| client::get(at, key)));
            requests.push(client::list(bucket));
        }
        requests.push(client::get_props());
        let shards = usize::from(self.plan.shards);
        let requests: Vec<_> =
            requests.into_iter().map(|request| (index_below(&mut self.rng, shards), request)).collect();
        self.ask_all(requests)
    }

    /// Asks the node, past the network.
    pub(super) fn ask_all(&mut self, requests: impl IntoIterator<Item = (usize, Request)>) -> Verdict {
        for (shard, request) in requests {
            self.numbers += 1;
            let asked = match &request {
                Request::Get(get) => Asked::Key(place_of(&get.bucket.name), get.key.clone()),
                Request::ListKeys(list) => Asked::List(place_of(&list.bucket.name)),
                _ => Asked::Other,
            };
            self.ending.asked.insert(self.numbers, asked);
            self.on_ask(AUDITOR, self.numbers, shard, request)?;
        }
        Ok(())
    }

    /// Takes an answer of the node to the auditor.
    pub(super) fn on_audited(&mut self, number: u64, result: Result<Response, Error>) -> Verdict {
        match (self.ending.asked.get(&number), result) {
            (_, Ok(Response::PropsSet)) => self.prepared = true,
            (Some(Asked::Key(at, key)), Ok(Response::Found(_))) => {
                self.ending.found[*at].insert(key.clone());
            }
            (Some(Asked::List(at)), Ok(Response::Keys { keys, .. })) => self.ending.listed[*at].extend(keys),
            (_, Ok(_)) => {}
            (Some(Asked::Other), Err(_)) if !self.prepared => self.ending.unprepared = true,
            (_, Err(_)) => self.ending.failed = true,
        }
        Ok(())
    }

    fn compare(&mut self) -> Verdict {
        if self.ending.failed {
            return Ok(());
        }
        for (at, bucket) in BUCKETS.into_iter().enumerate() {
            listing::check(bucket, &self.ending.found[at], &self.ending.listed[at])?;
        }
        Ok(())
    }
}

fn place_of(bucket: &[u8]) -> usize {
    BUCKETS.iter().position(|name| *name == bucket).expect("one of the two")
}
