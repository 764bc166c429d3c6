//! A load whose requests are recorded, and the waits that its history has around a kill.
//!
//! 1. [`Recorded::run`] reads and writes keys of the consistent type, and writes the history.
//! 2. [`Waits::of`] finds, for each group, its first answer to a request from after the kill, and the call of the first
//!    such request. A request that was under way at the kill has waited from then until its own answer. Beside that,
//!    requests on groups that other nodes led are compared with those of before.
//! 3. [`wrong_keys`] judges the history.

use super::TYPE;
use crate::Result;
use bench::history::{self, History};
use bench::{Control, Identity, Workload};
use histogram::Recorder;
use results::Summary;
use ring::{Position, RingSize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;
use strong::linearizability::Outcome;

/// Keys: some for each group of a ring of 64.
const KEYS: u32 = 4_000;

/// Time around a kill whose requests are compared: it has most of the elections.
const NEAR: Duration = Duration::from_secs(2);

/// The bucket of the load.
const BUCKET: &str = "recorded";

/// A load on the consistent type.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// Requests under way at most.
    pub connections: usize,
    /// Requests a second; none for a closed loop.
    pub rate: Option<f64>,
    /// Its time.
    pub time: Duration,
}

impl Recorded {
    /// Runs it, and records its history if a file is given.
    pub fn run(&self, at: &[SocketAddr], history: Option<&Path>, control: &Control) -> Result<Summary> {
        let operations = [("get", 5), ("put_once", 2), ("cas", 4), ("delete_if", 1)]
            .map(|(op, weight)| format!("[[operation]]\nop = \"{op}\"\nweight = {weight}\n"));
        let rate = self.rate.map(|rate| format!("[load]\nkind = \"poisson\"\nrate = {rate:.1}\n"));
        let text = format!(
            "driver = \"pb\"\nbucket_type = \"{TYPE}\"\nconsistent = true\nbucket = \"{BUCKET}\"\nconcurrency = {}\n\
             warm_up = \"0s\"\nduration = \"{}ms\"\n{}[keys]\nkind = \"uniform\"\ncount = {KEYS}\n\
             [value]\nsize = 1024\n{}",
            self.connections,
            self.time.as_millis(),
            rate.unwrap_or_default(),
            operations.concat()
        );
        let mut workload = Workload::parse(&text, "recorded")?;
        workload.addresses = at.iter().map(|&address| address.into()).collect();
        workload.history = history.map(Path::to_owned);
        let dir = tempfile::tempdir()?;
        Ok(bench::run(&workload, &dir.path().join("results"), &Identity::default(), control, &mut ())?)
    }
}

/// Keys that no order of requests explains, and those whose search was given up.
pub fn wrong_keys(history: &History) -> usize {
    let report = history::check(history, history::STATES_MAX);
    report.violations.len() + report.unknown.len()
}

/// The waits and errors of a history in which a node was killed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waits {
    /// The longest wait of requests of a group, in seconds.
    pub waiting: f64,
    /// The longest time until a group has answered, in seconds.
    pub any: f64,
    /// Groups that were asked.
    pub groups: usize,
    /// Requests that were done, and those that were done before the kill.
    pub done: usize,
    pub done_before: usize,
    /// Requests without an answer.
    pub timeouts: usize,
    /// Errors that are no timeout of a request under way at the kill.
    pub errors: usize,
    /// p99 of requests on groups that other nodes led: those begun soon after the kill, over those of before.
    pub elsewhere: f64,
}

impl Waits {
    /// Of a history with a kill in these nanoseconds: from its request until the process was gone. The node has led the
    /// groups of some prefixes.
    pub fn of(history: &History, kill: Range<u64>, led: &BTreeSet<u16>) -> Waits {
        let at = kill.start;
        let mut waits = Waits::default();
        let mut elsewhere = [Recorder::default(), Recorder::default()];
        let mut groups: BTreeMap<u16, Group> = BTreeMap::new();
        for (key, requests) in &history.keys {
            let prefix = group_of(key);
            let group = groups.entry(prefix).or_default();
            for operation in requests.iter().map(|it| it.operation) {
                let (was_under_way, may_be_lost) = (operation.call <= at, operation.call <= kill.end);
                let is_done = match operation.outcome {
                    Outcome::Read(_) | Outcome::Done | Outcome::Failed => true,
                    Outcome::Timeout | Outcome::Unavailable => false,
                };
                waits.done += usize::from(is_done);
                waits.done_before += usize::from(is_done && operation.end <= at);
                waits.timeouts += usize::from(operation.outcome == Outcome::Timeout);
                let is_lost = operation.outcome == Outcome::Timeout && may_be_lost;
                waits.errors += usize::from(!is_done && !is_lost);
                let is_near = operation.call.abs_diff(at) <= NEAR.as_nanos() as u64;
                if is_done && is_near && !led.contains(&prefix) {
                    elsewhere[usize::from(!was_under_way)].record(operation.end - operation.call);
                }
                // An answer to a request from before the kill may have been on its way.
                if is_done && !was_under_way {
                    group.answered = group.answered.min(operation.end);
                }
                // The client of a request that was lost with the node does not wait for the group. One whose request
                // was under way and answered has waited until then, maybe for the leader of before.
                if is_done && was_under_way {
                    group.waited = group.waited.max(operation.end.saturating_sub(at));
                } else if operation.end > at && !is_lost {
                    group.asked = group.asked.min(operation.call.max(at));
                }
            }
        }
        let [before, after] = elsewhere.map(|mut times| times.take().percentile(99.0) as f64);
        waits.elsewhere = after / before;
        waits.groups = groups.len();
        for group in groups.values().filter(|group| group.answered < u64::MAX) {
            waits.any = waits.any.max((group.answered - at) as f64 / 1e9);
            let waited = group.answered.saturating_sub(group.asked).max(group.waited);
            waits.waiting = waits.waiting.max(waited as f64 / 1e9);
        }
        waits
    }
}

/// A group after the kill.
struct Group {
    /// Its first answer to a request from after the kill.
    answered: u64,
    /// The time from which a request waited that was not under way at the kill, or failed; the kill at the earliest.
    asked: u64,
    /// The longest wait after the kill of a request that was under way, and answered.
    waited: u64,
}

impl Default for Group {
    fn default() -> Group {
        Group { answered: u64::MAX, asked: u64::MAX, waited: 0 }
    }
}

/// The group of a key of a history.
fn group_of(key: &str) -> u16 {
    // Keys of this load have nothing to be escaped.
    let key = key.rsplit('/').next().unwrap_or_default();
    Position::of_key(TYPE.as_bytes(), BUCKET.as_bytes(), key.as_bytes())
        .prefix(RingSize::default().finest().bits())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::history::Request;
    use strong::linearizability::{Action, Operation};

    const MS: u64 = 1_000_000;

    /// Waits around a kill at 100 ms, of reads of one key: call, end and outcome, in milliseconds.
    fn waits(reads: &[(u64, u64, Outcome)]) -> Waits {
        let request = |&(call, end, outcome): &(u64, u64, Outcome)| {
            let operation = Operation { call: call * MS, end: end * MS, action: Action::Get, outcome };
            Request { process: 0, operation }
        };
        let requests = reads.iter().map(request).collect();
        let history = History { keys: BTreeMap::from([(String::from("recorded/key"), requests)]) };
        Waits::of(&history, 100 * MS..101 * MS, &BTreeSet::new())
    }

    #[test]
    fn an_answer_on_its_way_at_the_kill_begins_no_wait_for_the_next_request() {
        let read = Outcome::Read(None);
        let by_the_next = waits(&[(90, 103, read), (1_500, 1_520, read)]);
        assert_eq!((by_the_next.waiting, by_the_next.any), (0.02, 1.42));
        let waited_itself = waits(&[(90, 1_200, read), (1_500, 1_520, read)]);
        assert_eq!((waited_itself.waiting, waited_itself.any), (1.1, 1.42));
    }

    #[test]
    fn a_group_waits_from_its_first_request_after_the_kill_and_not_from_one_lost() {
        let read = Outcome::Read(None);
        let tried_again = waits(&[(90, 200, Outcome::Unavailable), (300, 800, read)]);
        assert_eq!((tried_again.waiting, tried_again.errors), (0.7, 1));
        let lost = waits(&[(90, 200, Outcome::Timeout), (300, 800, read)]);
        assert_eq!((lost.waiting, lost.errors, lost.timeouts), (0.5, 0, 1));
    }
}
