//! Times of elections and heartbeats. The library's own ticks are not used, so its random numbers are not either.
//!
//! A settled group has no timer. A leader sends heartbeats while its group is not settled; to a voter that does not
//! answer they become rarer. A voter that knows no leader stands for election after its rank's delay.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{Monotonic, Rng};
use ring::NodeId;

use super::identity::VoterId;

/// Interval of a leader's heartbeats while its group is not settled.
pub const HEARTBEAT_EVERY: Duration = Duration::from_millis(200);

/// Longest interval of heartbeats to a voter that does not answer.
pub const HEARTBEAT_EVERY_MAX: Duration = Duration::from_secs(2);

/// Delay of an election for each place on the group's list, so that the first reachable one leads.
pub const RANK_DELAY: Duration = Duration::from_millis(50);

/// Shortest time from one candidacy to the next: several round trips and syncs. The longest is twice as long.
pub const ELECTION_RETRY: Duration = Duration::from_millis(300);

const _: () = assert!(HEARTBEAT_EVERY.as_nanos() < HEARTBEAT_EVERY_MAX.as_nanos(), "the interval grows");

/// Heartbeats to a voter since it was heard last.
#[derive(Clone, Copy)]
struct Backoff {
    interval: Duration,
    next: Monotonic,
}

/// Timers of one group, and the reachability of its other voters.
#[derive(Default)]
pub(super) struct Timers {
    election_at: Option<Monotonic>,
    /// The last end of promises that refused the candidacy of before, with this voter's place behind it.
    refused_until: Option<Monotonic>,
    heartbeat_at: Option<Monotonic>,
    /// Nodes that cannot be reached: whichever voter a node has, as an entry may name one before it is listed.
    down: BTreeSet<NodeId>,
    backoffs: BTreeMap<VoterId, Backoff>,
    /// When a voter was heard last, while this one leads.
    heard: BTreeMap<VoterId, Monotonic>,
    /// Voters that have started anew and were not heard since.
    restarted: BTreeSet<VoterId>,
    /// A term without a leader, since its leader has started anew or resigned.
    leaderless: Option<u64>,
    /// It has started anew, and may lead that term by now: the start may have been long ago.
    may_lead_again: bool,
    /// The next election waits for no rank: a leader that slept is asked.
    seeks_at_once: bool,
}

impl Timers {
    /// Whether a voter counts as reachable.
    pub(super) fn reaches(&self, voter: VoterId) -> bool {
        !self.down.contains(&voter.node)
    }

    /// Notes a message of a voter. It may be old, so it does not make the voter reachable.
    pub(super) fn on_heard(&mut self, voter: VoterId) {
        self.backoffs.remove(&voter);
    }

    /// Notes when a voter was heard, for a leader.
    pub(super) fn on_heard_at(&mut self, voter: VoterId, now: Monotonic) {
        self.heard.insert(voter, now);
    }

    /// When a voter was heard last, at or after an instant.
    pub(super) fn heard(&self, voter: VoterId, since: Monotonic) -> Monotonic {
        self.heard.get(&voter).copied().unwrap_or(since).max(since)
    }

    /// When a voter was heard last; none if it was not heard by this leader.
    pub(super) fn heard_at(&self, voter: VoterId) -> Option<Monotonic> {
        self.heard.get(&voter).copied()
    }

    pub(super) fn on_up(&mut self, voter: VoterId) {
        self.down.remove(&voter.node);
        self.backoffs.remove(&voter);
    }

    pub(super) fn on_down(&mut self, voter: VoterId) {
        self.down.insert(voter.node);
    }

    /// Notes that a voter's process has started anew; that may have been long ago.
    pub(super) fn on_restarted(&mut self, voter: VoterId) {
        self.on_heard(voter);
        self.restarted.insert(voter);
    }

    /// Notes that a voter has answered a leader.
    pub(super) fn on_answer(&mut self, voter: VoterId) {
        self.restarted.remove(&voter);
    }

    /// Whether a voter may have lost entries at a start that it was not asked about yet.
    pub(super) fn is_restarted(&self, voter: VoterId) -> bool {
        self.restarted.contains(&voter)
    }

    /// Notes that the leader of a term has resigned.
    pub(super) fn on_resigned(&mut self, term: u64) {
        (self.leaderless, self.may_lead_again) = (Some(term), false);
    }

    /// Notes that the process of a term's leader has started anew.
    pub(super) fn on_leader_restarted(&mut self, term: u64) {
        (self.leaderless, self.may_lead_again) = (Some(term), true);
    }

    /// Notes a message of a term's leader, of its present process.
    pub(super) fn on_led(&mut self, term: u64) {
        self.leaderless.take_if(|it| *it == term && self.may_lead_again);
    }

    pub(super) fn is_leaderless(&self, term: u64) -> bool {
        self.leaderless == Some(term)
    }

    /// Whether a heartbeat goes to a voter now; if so, the next one goes later unless the voter is heard.
    pub(super) fn sends_heartbeat(&mut self, voter: VoterId, now: Monotonic) -> bool {
        let backoff = self.backoffs.entry(voter).or_insert(Backoff { interval: HEARTBEAT_EVERY, next: now });
        if now < backoff.next {
            return false;
        }
        backoff.next = now + backoff.interval;
        backoff.interval = (backoff.interval * 2).min(HEARTBEAT_EVERY_MAX);
        true
    }

    /// Takes a heartbeat that is due.
    pub(super) fn take_heartbeat(&mut self, now: Monotonic) -> bool {
        self.heartbeat_at.take_if(|at| *at <= now).is_some()
    }

    /// Takes an election that is due, and sets the time of the next one.
    pub(super) fn take_election(&mut self, now: Monotonic, rng: &mut dyn Rng) -> bool {
        let is_due = self.election_at.is_some_and(|at| at <= now);
        if is_due {
            self.postpone_election(now, rng);
        }
        is_due
    }

    /// Gives a candidate time to win.
    pub(super) fn postpone_election(&mut self, now: Monotonic, rng: &mut dyn Rng) {
        self.election_at = Some(now + ELECTION_RETRY + below(ELECTION_RETRY, rng));
        self.refused_until = None;
    }

    /// Lets an election that was refused wait until an instant, and a little longer. A candidacy that goes on keeps its
    /// time to win; any other has ended with the refusal.
    pub(super) fn postpone_election_until(&mut self, at: Monotonic, goes_on: bool, rng: &mut dyn Rng) {
        let at = at + below(RANK_DELAY, rng);
        let until = self.refused_until.map_or(at, |before| before.max(at));
        self.refused_until = Some(until);
        self.election_at = self.election_at.map(|before| if goes_on { before.max(until) } else { until });
    }

    /// Sets the timers of a leader.
    pub(super) fn lead(&mut self, is_settled: bool, now: Monotonic) {
        self.election_at = None;
        if is_settled {
            self.heartbeat_at = None;
        } else {
            self.heartbeat_at.get_or_insert(now + HEARTBEAT_EVERY);
        }
    }

    /// Sets the timers of a voter that follows a leader, or of a store without a vote.
    pub(super) fn follow(&mut self) {
        (self.election_at, self.heartbeat_at) = (None, None);
    }

    /// Whether an election has its time.
    pub(super) fn seeks_leader(&self) -> bool {
        self.election_at.is_some()
    }

    /// Lets the next election come as soon as this voter may stand for it.
    pub(super) fn seek_at_once(&mut self) {
        self.seeks_at_once = true;
    }

    /// Lets an election that has its time come at an instant already.
    pub(super) fn stand_at(&mut self, at: Monotonic) {
        self.election_at = self.election_at.map(|before| before.min(at));
    }

    /// Sets the timers of a voter without a leader.
    pub(super) fn seek_leader(&mut self, rank: u32, now: Monotonic, rng: &mut dyn Rng) {
        self.heartbeat_at = None;
        self.backoffs.clear();
        if self.election_at.is_none() {
            let is_due = std::mem::take(&mut self.seeks_at_once);
            let wait = if is_due { Duration::ZERO } else { RANK_DELAY * rank + below(RANK_DELAY, rng) };
            self.election_at = Some(now + wait);
        }
    }

    /// When a timer is due.
    pub(super) fn next(&self) -> Option<Monotonic> {
        self.election_at.into_iter().chain(self.heartbeat_at).min()
    }
}

fn below(duration: Duration, rng: &mut dyn Rng) -> Duration {
    let nanos = u64::try_from(duration.as_nanos()).expect("timers are short");
    Duration::from_nanos(rng.below(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::SplitMix64;

    #[test]
    fn heartbeats_to_a_silent_voter_become_rarer() {
        let voter = VoterId::of_number(7).unwrap();
        let mut timers = Timers::default();
        let sent = |timers: &mut Timers, seconds: std::ops::Range<u64>| {
            let ticks = seconds.start * 5..seconds.end * 5;
            let at = |tick: u64| Monotonic(0) + HEARTBEAT_EVERY * u32::try_from(tick).unwrap();
            ticks.filter(|&tick| timers.sends_heartbeat(voter, at(tick))).count()
        };
        assert_eq!(sent(&mut timers, 0..10), 8, "at 0, 0.2, 0.6, 1.4, 3, and every 2 s from then on");
        assert_eq!(sent(&mut timers, 10..20), 5);
        timers.on_heard(voter);
        assert_eq!(sent(&mut timers, 20..21), 3, "it begins anew");
    }

    #[test]
    fn a_refused_candidacy_waits_for_the_last_promise_and_no_longer() {
        let mut rng = SplitMix64::new(1);
        let (now, mut timers) = (Monotonic(1_000), Timers::default());
        let ms = Duration::from_millis;
        timers.seek_leader(0, now, &mut rng);
        assert!(timers.take_election(now + RANK_DELAY, &mut rng));
        let now = now + RANK_DELAY;
        for left in [200, 5, 100] {
            timers.postpone_election_until(now + ms(left), false, &mut rng);
            let wait = timers.next().unwrap().since(now);
            assert!((ms(200)..ms(200) + RANK_DELAY).contains(&wait), "{wait:?}");
        }
        assert!(timers.take_election(now + ms(250), &mut rng));
        timers.postpone_election_until(now + ms(255), true, &mut rng);
        let wait = timers.next().unwrap().since(now + ms(250));
        assert!(wait >= ELECTION_RETRY, "{wait:?}: it may still win");
        timers.postpone_election_until(now + ms(255), false, &mut rng);
        let wait = timers.next().unwrap().since(now + ms(250));
        assert!((ms(5)..ms(5) + RANK_DELAY).contains(&wait), "{wait:?}: earlier refusals do not count");
    }

    #[test]
    fn a_candidate_waits_for_its_rank() {
        let mut rng = SplitMix64::new(1);
        let now = Monotonic(1_000);
        for rank in 0..5 {
            let mut timers = Timers::default();
            timers.seek_leader(rank, now, &mut rng);
            let at = timers.next().unwrap();
            assert!((RANK_DELAY * rank..RANK_DELAY * (rank + 1)).contains(&at.since(now)));
            assert!(timers.take_election(at, &mut rng), "it is due");
            let next = timers.next().unwrap().since(at);
            assert!((ELECTION_RETRY..ELECTION_RETRY * 2).contains(&next));
            timers.follow();
            assert_eq!(timers.next(), None);
        }
    }
}
