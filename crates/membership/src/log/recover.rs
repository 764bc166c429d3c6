//! Going on without a majority, when an operator says that it is lost for good.
//!
//! One survivor begins the next epoch: all that it has is committed, it alone votes, and the ring's version leaps ahead
//! of any that the lost voters could have made. Everybody of an earlier epoch who meets it takes its state over. What
//! the lost majority had committed and this survivor never heard of is lost; so the operator compares [`Log::last`] of
//! the survivors first. The same ends the hold of a log that was restored, if a member never comes.

use std::collections::BTreeSet;

use base::Monotonic;

use super::Log;
use super::contradiction::Contradictions;
use super::entry::{Conf, Epoch, Snapshot};

impl Log {
    /// What an operator must type to go on without the majority: it names this cluster, this history and what is known
    /// of it, so that the word of one situation does not serve in another.
    pub fn safety_word(&self) -> String {
        format!("lose-what-is-after-{}-{}-{}", self.identity.cluster, self.epoch.number, self.last().0)
    }

    pub(super) fn recover(&mut self, word: &str, now: Monotonic) {
        if word != self.safety_word() || self.state.is_none() {
            return;
        }
        let (last, _) = self.last();
        self.raw.mut_store().commit = last;
        self.restart_consensus(now);
        self.epoch = Epoch { number: self.epoch.number + 1, nonce: self.rng.next_u64() };
        let state = self.state.as_mut().expect("it was there, and applying commands keeps it");
        state.recover(self.epoch.number);
        let state = state.clone();
        let conf = Conf { voters: BTreeSet::from([self.identity.node]), learners: BTreeSet::new() };
        let store = self.raw.mut_store();
        let snapshot = Snapshot { index: last + 1, term: store.term + 1, conf, state: state.encode() };
        store.entries.clear();
        store.install(snapshot);
        (self.restored, self.hold) = (None, None);
        self.contradictions = Contradictions::default();
        self.installed(state, now);
        self.restart_consensus(now);
    }
}
