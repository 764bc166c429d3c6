//! Ticks of the consensus library: their length, and their number in a heartbeat and in an election timeout.

use std::time::Duration;

use base::Rng;

/// Interval of a leader's heartbeats. A heartbeat wakes the leader and every voter twice, also on idle machines. In
/// return a dead leader is replaced within three seconds, for which starts and changes of consistent groups wait.
pub const HEARTBEAT_EVERY: Duration = Duration::from_millis(250);

/// Shortest election timeout; the longest is twice as long. It spans several heartbeats, so that one lost or late
/// heartbeat begins no election.
pub const ELECTION_AFTER: Duration = Duration::from_secs(1);

/// Silence of the leader after which a voter takes missing entries from any member. A voter that has started has as
/// long: links must come up, and the leader would notice that the voter lacks entries that it had acknowledged.
pub(super) const LEADER_SILENCE_MAX: Duration = Duration::from_secs(4);

/// Length of a tick: a fraction of a heartbeat, so that two voters seldom stand for election at once.
pub(super) const TICK: Duration = Duration::from_millis(50);

/// Ticks between two heartbeats.
pub(super) const HEARTBEAT_TICKS: usize = ticks(HEARTBEAT_EVERY);
/// Ticks of the shortest election timeout.
pub(super) const ELECTION_TICKS: usize = ticks(ELECTION_AFTER);

const _: () = assert!(2 * HEARTBEAT_TICKS < ELECTION_TICKS, "one late heartbeat begins no election");
const _: () = assert!(
    2 * ELECTION_AFTER.as_nanos() <= LEADER_SILENCE_MAX.as_nanos(),
    "an election ends before voters take entries from others"
);

const fn ticks(duration: Duration) -> usize {
    let ticks = duration.as_nanos() / TICK.as_nanos();
    assert!(ticks > 0 && ticks < 1_000);
    ticks as usize
}

/// Draws an election timeout, in ticks.
pub(super) fn draw_election_ticks(rng: &mut dyn Rng) -> usize {
    let more = rng.below(ELECTION_TICKS as u64);
    ELECTION_TICKS + usize::try_from(more).expect("below a small number")
}
