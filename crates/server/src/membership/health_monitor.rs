//! The lines of the log about this node's health, and whom it reaches, for the other threads.
//!
//! 1. It counts whom this node reaches every [`COUNT_EVERY`], and at once when something is known to have changed.
//! 2. A majority that is lost or regained is logged (`reach.rs`), and so are writes that are refused or taken again
//!    (`refusals.rs`), and the wait of a restored metadata log (`held_log.rs`).
//! 3. Changes that do not go on are logged (`watch.rs`).
//!
//! Left out: the verdict on the node's health, which the crate's `health.rs` makes of these facts.

use super::board::Board;
use super::held_log::HoldLog;
use super::reach::{MajorityLog, Reach, Said};
use super::refusals::{RefusalLog, WritesSaid};
use super::watch::Watch;
use ::membership::Membership;
use ::membership::state::State;
use base::Monotonic;
use std::time::Duration;

/// The interval of counts of reached nodes while no change is known.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// The monitor of a node's health.
pub(super) struct HealthMonitor {
    /// When reached nodes are counted again.
    count_at: Monotonic,
    majority: MajorityLog,
    held: HoldLog,
    refusals: RefusalLog,
    watch: Watch,
}

impl HealthMonitor {
    /// Of a node that starts now.
    pub(super) fn new(now: Monotonic) -> HealthMonitor {
        HealthMonitor {
            count_at: now,
            majority: MajorityLog::new(now),
            held: HoldLog::default(),
            refusals: RefusalLog::default(),
            watch: Watch::default(),
        }
    }

    /// Something has changed: it is counted at the next look.
    pub(super) fn look_soon(&mut self) {
        self.count_at = Monotonic::default();
    }

    /// Whether a look is due.
    pub(super) fn is_due(&self, now: Monotonic) -> bool {
        now >= self.count_at || self.majority.next_timer().is_some_and(|at| now >= at)
    }

    /// When a look is due that nobody tells of.
    pub(super) fn next_timer(&self) -> Option<Monotonic> {
        self.majority.next_timer()
    }

    /// Counts the reached nodes, and logs a majority that is lost or regained, and writes that are refused or taken
    /// again.
    pub(super) fn look(&mut self, membership: &Membership, state: &State, board: &Board, now: Monotonic) {
        self.count_at = now + COUNT_EVERY;
        let reach = Reach::look(membership, state, board);

        match self.majority.look(&reach, now) {
            Some(Said::Lost(text)) => tracing::warn!("{text}"),
            Some(Said::Regained) => tracing::info!("a majority of the members and voters is reached again"),
            None => {}
        }
        if let Some(text) = self.held.look(&reach.awaited, now) {
            tracing::warn!("{text}");
        }
        match self.refusals.look(&board.refused_writes(), now) {
            Some(WritesSaid::Refused(why)) => tracing::warn!("the store takes no writes: {why}"),
            Some(WritesSaid::Taken) => tracing::info!("the store takes writes again"),
            None => {}
        }
        board.set_reach(reach);
    }

    /// Logs changes that do not go on.
    pub(super) fn tell_stuck(&mut self, membership: &Membership, board: &Board, now: Monotonic) {
        for text in self.watch.look(membership, board, now) {
            tracing::warn!("{text}");
        }
    }
}
