//! Removal of tombstones, and of entries of causal contexts that say nothing any more.
//!
//! 1. [`reaper`]: a tombstone that all primaries have is proposed, waits, and is reaped when all members agree.
//! 2. [`sweeper`]: passes over all heads find tombstones that were not proposed, were dropped, or were refused.
//! 3. [`context_folds`]: contexts with many entries are folded, as all members agree.

pub(crate) mod context_folds;
pub(crate) mod reaper;
pub(crate) mod sweeper;

use crate::shard::env::Env;
use base::Monotonic;
use bytes::Bytes;
use context_folds::ContextFolds;
use engine::fold::{ScanId, ScanPage};
use reaper::Reaper;
use sweeper::Sweeper;

/// Reaping of a shard.
pub(crate) struct TombstoneReaper {
    reaper: Reaper,
    sweeper: Sweeper,
    folds: ContextFolds,
}

impl TombstoneReaper {
    /// Of a process that begins.
    pub fn starting(now: Monotonic) -> TombstoneReaper {
        let (reaper, folds) = (Reaper::default(), ContextFolds::default());
        TombstoneReaper { reaper, sweeper: Sweeper::starting(now), folds }
    }

    /// All primaries have this tombstone.
    pub fn propose(&mut self, env: &mut Env, key: &Bytes, tombstone: Bytes) {
        if !self.reaper.propose_reap(env, key, tombstone) {
            self.sweeper.want_pass(env.now());
        }
    }

    /// A reaping is over.
    pub fn on_reaped(&mut self, env: &mut Env, key: &Bytes, is_agreed: bool) {
        self.reaper.on_reaped(env, key, is_agreed);
        match is_agreed {
            true => self.sweeper.note_reaped(),
            false => self.sweeper.sweep_again(env, key),
        }
    }

    /// A tombstone that a sweep has found was read.
    pub fn on_swept(&mut self) {
        self.sweeper.on_swept();
    }

    /// The causal context of this key has many entries.
    pub fn propose_fold(&mut self, env: &mut Env, key: &Bytes) {
        self.folds.propose_fold(env, key);
    }

    /// A fold of a causal context is over.
    pub fn on_folded(&mut self, env: &mut Env, key: &Bytes, is_agreed: bool) {
        self.folds.on_folded(env, key, is_agreed);
    }

    /// Begins what is due. To be called a few times a second.
    pub fn tick(&mut self, env: &mut Env, now: Monotonic) {
        self.reaper.begin_reaps(env, now);
        self.sweeper.tick(env, &self.reaper, now);
        self.folds.tick_folds(env, now);
    }

    /// Goes on with reaping and sweeps. To be called once in a turn.
    pub fn take_turn(&mut self, env: &mut Env, now: Monotonic) {
        self.reaper.go_on_reaping(env, now);
        self.sweeper.go_on_sweeping(env, &self.reaper, now);
    }

    /// Begins reapings that are due.
    pub fn begin_due(&mut self, env: &mut Env, now: Monotonic) {
        self.reaper.begin_reaps(env, now);
    }

    /// When the next reaping may begin.
    pub fn next_due(&self) -> Option<Monotonic> {
        self.reaper.next_due()
    }

    /// Whether a sweep has more to read at once.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.sweeper.has_more()
    }

    /// Takes a page of a sweep's scan.
    pub fn on_scan(&mut self, env: &mut Env, scan: ScanId, page: Result<ScanPage, engine::Error>) {
        self.sweeper.on_scan(env, &self.reaper, scan, page);
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        self.reaper.invariants();
        self.sweeper.invariants(env);
        self.folds.invariants();
    }
}
