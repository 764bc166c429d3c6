//! Five times as many requests as the nodes can serve: row C15.
//!
//! 1. *Peak*: some clients ask as fast as they are answered. What is served so is what the nodes can do.
//! 2. *Before*: requests come at half of that rate, whether or not earlier ones are answered.
//! 3. *Overload*: they come at five times the peak.
//! 4. *After*: at half of it again, until all is as it was before.
//! 5. Then all comes to its end as in any other life: replicas become equal, and what was acknowledged is asked for.
//!
//! A request that is due takes a connection on which nobody waits, and goes to any of the nodes. There are as many
//! connections as nodes accept; where all are in use it is not sent, and counts as not served. Each node has a
//! processor of its own, whose time is what there is too little of (`processor.rs`).
//!
//! Promises beside those of any life: each request is served by its deadline or refused with `overload`, nearly all
//! refusals at once; what is served is nearly the peak; a shard holds no more than it can work off soon; and soon after
//! the overload nothing tells of it.
//!
//! Told and not promised: how long what is served takes meanwhile, which is far more than three times as long as
//! before.
//!
//! Left out: clients that ask again, or wait because they were refused; nodes that die meanwhile; large values.

use super::client::Client;
use super::ending::Phase;
use super::plan::Plan;
use super::processor::Processor;
use super::script::Script;
use super::{CLIENTS_FROM, Event, Message, World, node_id};
use crate::Kind;
use crate::check::{Verdict, Violation};
use crate::network::{NodeId, Packet};
use crate::seed::{Seed, duration_between, index_below};
use crate::show;
use crate::trace::Keep;
use base::Monotonic;
use base::rng::SplitMix64;
use engine::Options;
use kv::{Error, Response};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// As few as three replicas need.
const NODES: usize = 3;
/// What a server accepts unless it is told otherwise.
const CONNECTIONS_PER_NODE: usize = 10_000;
/// Keys of each bucket: so many that hardly two requests are about one.
const KEYS: u64 = 500;
/// Clients at the peak: as in the measurement of real nodes.
const PEAK_CLIENTS: usize = 64;
/// How many times the peak is asked for.
const TIMES: u32 = 5;

/// How long the peak is not yet counted, and how long it is.
const WARMING: Duration = Duration::from_millis(200);
const PEAK: Duration = Duration::from_millis(500);
/// How long it is looked at how long requests take before.
const BEFORE: Duration = Duration::from_millis(500);
/// How long there is too much.
const OVERLOAD: Duration = Duration::from_secs(2);
/// All is as before if it is for so long.
const WINDOW: Duration = Duration::from_millis(200);
/// When it must be.
const AFTER_MAX: Duration = Duration::from_secs(10);

/// The longest that a request may take by what it says.
const TIMEOUT_MAX: Duration = Duration::from_secs(2);
/// How much later its answer may come: it waits in sockets before and after, and the node's clock is another.
const LATE_MAX: Duration = Duration::from_millis(100);
/// Of what was served at the peak, so much is to be served, in percent.
const GOODPUT_MIN: u64 = 80;
/// In which time ninety-nine of a hundred refusals are to come.
const REFUSED_MAX: Duration = Duration::from_millis(50);
/// The most that a shard may have under way, what waits to be begun and what others ask included: a quarter of a second
/// of its work.
pub(super) const WORK_MAX: usize = 1_024;

/// Connections are nodes of the outer network, numbered from here.
const CROWD_FROM: u32 = 1_000_000;

/// Whether this is one of the connections.
pub(super) fn is_of_crowd(id: NodeId) -> bool {
    (CROWD_FROM..CROWD_FROM + u32::try_from(NODES * CONNECTIONS_PER_NODE).expect("it fits")).contains(&id.0)
}

const _: () = assert!(CROWD_FROM > CLIENTS_FROM);

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Requests served in a second at the peak, and in the overload.
    pub peak: u64,
    /// See `peak`.
    pub goodput: u64,
    /// Requests that were due in the overload, of which so many were refused, and so many not sent.
    pub offered: u64,
    /// See `offered`.
    pub refused: u64,
    /// See `offered`.
    pub unsent: u64,
    /// In which time ninety-nine of a hundred were served, before and in the overload.
    pub served_within: (Duration, Duration),
    /// In which time half of the refusals came, and ninety-nine of a hundred.
    pub refused_within: (Duration, Duration),
    /// When all was as before.
    pub normal_after: Duration,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { peak, goodput, offered, refused, unsent, normal_after, .. } = self;
        let ((before, during), (half, most)) = (self.served_within, self.refused_within);
        write!(
            f,
            "{goodput} requests/s served of {peak} at the peak, p99 {during:.1?} for {before:.1?} before; "
        )?;
        write!(
            f,
            "of {offered} {refused} were refused, half in {half:.1?}, p99 {most:.1?}, and {unsent} not sent; "
        )?;
        write!(f, "as before after {normal_after:.1?}")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Beginning,
    Warming,
    Peak,
    Before,
    Overload,
    After,
    /// The last answers come.
    Draining,
}

/// What was seen since something began.
#[derive(Debug, Default)]
struct Seen {
    since: Monotonic,
    due: u64,
    unsent: u64,
    /// How long each took that was served, and each that was refused.
    served: Vec<Duration>,
    refused: Vec<Duration>,
}

impl Seen {
    fn from(since: Monotonic) -> Seen {
        Seen { since, ..Seen::default() }
    }

    /// Requests served in a second.
    fn rate(&self, now: Monotonic) -> u64 {
        self.served.len() as u64 * 1_000_000
            / u64::try_from(now.since(self.since).as_micros()).unwrap_or(u64::MAX)
    }
}

/// In which time so many of a hundred came.
fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times.get((times.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default()
}

/// A request that has no answer.
#[derive(Clone, Copy, Debug)]
struct Asked {
    by: usize,
    at: Monotonic,
    /// Its answer is to have come then.
    until: Monotonic,
}

/// How far it is.
#[derive(Debug)]
pub(super) struct Overload {
    rng: SplitMix64,
    step: Step,
    began: Monotonic,
    /// Connections: a client each, and those on which nobody waits.
    crowd: Vec<Client>,
    idle: Vec<usize>,
    asked: BTreeMap<u64, Asked>,
    /// From one request that is due to the next, in the mean; `None` while each follows an answer.
    gap: Option<Duration>,
    seen: Seen,
    outcome: Outcome,
}

/// Plays it.
///
/// # Errors
/// The promise that was broken.
pub fn run(seed: Seed) -> Result<Outcome, Violation> {
    let plan = Plan::calm(seed, NODES);
    // Stores as servers have them: it is the processors' time that is to be scarce.
    let options = Options {
        durability: plan.options.durability,
        indexing: plan.options.indexing,
        ..Options::default()
    };
    let plan = Plan { keys: KEYS, options, timeout_max: TIMEOUT_MAX, ..plan };
    let connections = NODES * CONNECTIONS_PER_NODE;
    let client = |at: usize| {
        let mut client = Client::new(seed.stream("crowd", at as u64), &plan);
        client.is_plain = true;
        client
    };
    let overload = Overload {
        rng: seed.stream("overload", 0),
        step: Step::Beginning,
        began: Monotonic(0),
        crowd: (0..connections).map(client).collect(),
        idle: (0..connections).rev().collect(),
        asked: BTreeMap::new(),
        gap: None,
        seen: Seen::default(),
        outcome: Outcome::default(),
    };
    let mut world = World::with(Kind::Cluster, seed, plan, Keep::Hash);
    world.hosts.iter_mut().for_each(|host| host.processor = Some(Processor::default()));
    world.script = Some(Script::Overload(overload));
    world.live().1?;
    let Some(Script::Overload(overload)) = world.script else { unreachable!("it was played") };
    Ok(overload.outcome)
}

impl Overload {
    fn enter(&mut self, step: Step, now: Monotonic) -> Seen {
        (self.step, self.began) = (step, now);
        std::mem::replace(&mut self.seen, Seen::from(now))
    }

    /// From now on so many are due in a second.
    fn offer(&mut self, rate: u64) {
        self.gap = Some(Duration::from_secs(1) / u32::try_from(rate.max(1)).unwrap_or(u32::MAX));
    }

    /// Each request is answered by its deadline.
    fn check_answered(&self, now: Monotonic) -> Verdict {
        let Some((number, asked)) = self.asked.iter().find(|(_, asked)| asked.until < now) else {
            return Ok(());
        };
        let what = format!("{:?}: #{number} has no answer after {:?}", self.step, now.since(asked.at));
        Err(Violation::new("each request is answered in time, or refused", what))
    }

    /// Whether since a while all is as it was before.
    fn is_as_before(&mut self) -> bool {
        let Seen { unsent, refused, served, .. } = &mut self.seen;
        *unsent == 0
            && refused.is_empty()
            && !served.is_empty()
            && percentile(served, 99) <= 2 * self.outcome.served_within.0
    }

    fn check_overload(&self) -> Verdict {
        let Outcome { peak, goodput, refused, unsent, refused_within: (_, most), .. } = self.outcome;
        let promises = [
            (refused > 0, "requests above the capacity are refused"),
            (unsent == 0, "refused requests do not wait for a connection"),
            (most <= REFUSED_MAX, "refusals are fast"),
            (goodput * 100 >= peak * GOODPUT_MIN, "an overload does not reduce the served requests"),
        ];
        match promises.into_iter().find(|(is_kept, _)| !is_kept) {
            Some((_, promise)) => Err(Violation::new(promise, self.outcome.to_string())),
            None => Ok(()),
        }
    }
}

impl World {
    pub(super) fn play_overload(&mut self, overload: &mut Overload) -> Verdict {
        let now = self.events.now();
        overload.check_answered(now)?;
        let lasts = now.since(overload.began);
        match overload.step {
            Step::Beginning => {
                overload.enter(Step::Warming, now);
                for _ in 0..PEAK_CLIENTS {
                    self.ask_something(overload);
                }
            }
            Step::Warming if lasts >= WARMING => drop(overload.enter(Step::Peak, now)),
            Step::Peak if lasts >= PEAK => {
                let seen = overload.enter(Step::Before, now);
                overload.outcome.peak = seen.rate(now);
                overload.offer(overload.outcome.peak / 2);
                self.events.after(Duration::ZERO, Event::Offer);
            }
            Step::Before if lasts >= BEFORE => {
                let mut seen = overload.enter(Step::Overload, now);
                overload.outcome.served_within.0 = percentile(&mut seen.served, 99);
                overload.offer(overload.outcome.peak * u64::from(TIMES));
            }
            Step::Overload if lasts >= OVERLOAD => {
                let mut seen = overload.enter(Step::After, now);
                let outcome = &mut overload.outcome;
                outcome.goodput = seen.rate(now);
                (outcome.offered, outcome.unsent) = (seen.due, seen.unsent);
                outcome.refused = seen.refused.len() as u64;
                outcome.served_within.1 = percentile(&mut seen.served, 99);
                outcome.refused_within =
                    (percentile(&mut seen.refused, 50), percentile(&mut seen.refused, 99));
                overload.check_overload()?;
                overload.offer(overload.outcome.peak / 2);
            }
            Step::After if now.since(overload.seen.since) >= WINDOW => {
                if overload.is_as_before() {
                    overload.outcome.normal_after = overload.seen.since.since(overload.began);
                    overload.gap = None;
                    overload.enter(Step::Draining, now);
                } else if lasts > AFTER_MAX {
                    let what = format!("after {lasts:?}: {}", overload.outcome);
                    return Err(Violation::new("an overload leaves nothing behind", what));
                } else {
                    overload.seen = Seen::from(now);
                }
            }
            Step::Draining if overload.asked.is_empty() => {
                self.enter(Phase::Homecoming);
                return self.free_all();
            }
            _ => {}
        }
        Ok(())
    }

    /// Another request is due.
    pub(super) fn on_offer(&mut self) {
        let Some(Script::Overload(mut overload)) = self.script.take() else {
            unreachable!("nothing else is offered")
        };
        if let Some(gap) = overload.gap {
            overload.seen.due += 1;
            self.ask_something(&mut overload);
            let pause = duration_between(&mut overload.rng, Duration::ZERO, 2 * gap);
            self.events.after(pause, Event::Offer);
        }
        self.script = Some(Script::Overload(overload));
    }

    /// Sends a request on a connection on which nobody waits, if there is one.
    fn ask_something(&mut self, overload: &mut Overload) {
        let Some(by) = overload.idle.pop() else {
            overload.seen.unsent += 1;
            return;
        };
        self.numbers += 1;
        let (number, now) = (self.numbers, self.events.now());
        let client = &mut overload.crowd[by];
        let (request, timeout) = client.next(number, self.plan.keys, self.plan.timeout_max, NODES);
        let to = node_id(index_below(&mut overload.rng, NODES));
        overload.asked.insert(number, Asked { by, at: now, until: now + timeout + LATE_MAX });
        let from = NodeId(CROWD_FROM + u32::try_from(by).expect("a small number"));
        self.trace.line(format_args!("{from} #{number} to {to}: {}", show::request(&request)));
        let message = Message::Ask { number, shard: 0, request: Box::new(request), timeout };
        self.outside.send(&mut self.events, Packet { from, to, message });
    }

    /// A connection brings an answer.
    pub(super) fn on_crowd_answer(&mut self, number: u64, result: &Result<Response, Error>) -> Verdict {
        let Some(Script::Overload(mut overload)) = self.script.take() else {
            unreachable!("nobody else has asked")
        };
        let asked = overload.asked.remove(&number).expect("answers were checked");
        let took = self.events.now().since(asked.at);
        overload.crowd[asked.by].on_answer(number, result);
        overload.idle.push(asked.by);
        match result {
            Ok(_) | Err(Error::TooManySiblings { .. }) => overload.seen.served.push(took),
            Err(Error::Overload) => overload.seen.refused.push(took),
            Err(error) => {
                let what = format!("{:?}: #{number} fails after {took:?}: {error}", overload.step);
                return Err(Violation::new("each request is answered in time, or refused", what));
            }
        }
        self.acknowledged += u64::from(result.is_ok());
        if overload.gap.is_none() && overload.step != Step::Draining {
            self.ask_something(&mut overload);
        }
        self.script = Some(Script::Overload(overload));
        Ok(())
    }
}
