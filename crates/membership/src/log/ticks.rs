//! Ticks of the consensus library: their length, and their number in a heartbeat and in an election timeout.

use std::time::Duration;

use base::Rng;

/// How often a leader speaks to the voters. Each time wakes it and each of them twice, on machines that may have nothing else to do;
/// what it buys is a sooner election, and no request of a client waits for one.
pub const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);

/// A voter that hears of no leader for this long, and up to as much again, stands for election: several heartbeats, so that one
/// lost or late elects nobody.
pub const ELECTION_AFTER: Duration = Duration::from_secs(4);

/// The step of the consensus's time: a fraction of a heartbeat, so that two voters seldom stand at once.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// Ticks between two heartbeats.
pub(super) const HEARTBEAT_TICKS: usize = ticks(HEARTBEAT_EVERY);
/// Ticks of the shortest election timeout.
pub(super) const ELECTION_TICKS: usize = ticks(ELECTION_AFTER);

const _: () = assert!(2 * HEARTBEAT_TICKS < ELECTION_TICKS, "one late heartbeat begins no election");

const fn ticks(duration: Duration) -> usize {
    let ticks = duration.as_nanos() / TICK.as_nanos();
    assert!(ticks > 0 && ticks < 1_000);
    ticks as usize
}

/// How many ticks a voter hears of no leader before it stands for election.
pub(super) fn draw_election_ticks(rng: &mut dyn Rng) -> usize {
    let more = rng.below(ELECTION_TICKS as u64);
    ELECTION_TICKS + usize::try_from(more).expect("below a small number")
}
