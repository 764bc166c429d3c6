//! Admission of messages: whether a log listens to their sender, and its reaction to a refusal of its own.

use base::Monotonic;

use super::message::{Envelope, Message};
use super::refusal::Refusal;
use super::{Log, Output};

impl Log {
    /// Admits a message of `from`, or names the reason to refuse it.
    pub(super) fn admit(&mut self, from: &Envelope, message: &Message) -> Result<(), Refusal> {
        if from.cluster != self.identity.cluster {
            return Err(Refusal::Cluster { ours: self.identity.cluster, theirs: from.cluster });
        }
        if from.epoch.number == self.epoch.number && from.epoch.nonce != self.epoch.nonce {
            return Err(Refusal::Fork { ours: self.epoch, theirs: from.epoch });
        }
        if from.epoch != self.epoch || self.state.is_none() {
            return Ok(());
        }
        let (node, commit) = (from.from, self.commit);
        let Some(record) = self.state.as_ref().and_then(|state| state.members().get(&node)) else {
            return Err(Refusal::NotMember { node, commit });
        };
        // A sender that only asks, or passes on committed entries, does no harm.
        let harmless = match message {
            Message::Have { .. } | Message::Pull { .. } | Message::News { .. } => true,
            Message::Propose { .. } | Message::Proposed { .. } => true,
            Message::Snapshot(_) | Message::Forgot => true,
            Message::Consensus(_) | Message::Refused(_) => false,
        };
        let is_copy = from.starts == record.starts && record.starts > 0 && from.start != record.start;
        if (from.starts < record.starts || is_copy) && !harmless && !base::planted!(RestoredVotes) {
            let starts = record.starts;
            self.count_out(node);
            return Err(Refusal::Restored { starts, commit });
        }
        Ok(())
    }

    pub(super) fn refuse(&mut self, from: Envelope, refusal: Refusal) {
        let answer = Message::Refused(refusal).encode(&self.envelope());
        self.told.push(Output::Reply(answer));
        self.told.push(Output::Refused { from, refusal });
    }

    /// Whether the state names this process as the node's start of this count. Then the refusal of an older start
    /// answers a late message of an earlier process, since answers go to a node and not to a process.
    pub(super) fn is_last_start(&self, starts: u32) -> bool {
        let own = self.state.as_ref().and_then(|state| state.members().get(&self.identity.node));
        starts == self.identity.starts
            && own.is_some_and(|it| (it.starts, it.start) == (starts, self.identity.start))
    }

    pub(super) fn on_refused(&mut self, by: Envelope, refusal: Refusal, now: Monotonic) {
        if let Refusal::Restored { starts, commit } = refusal
            && by.cluster == self.identity.cluster
            && starts >= self.identity.starts
            && !self.is_last_start(starts)
            && let Some(starts) = starts.checked_add(1)
        {
            // From now on this is a start of its own, without a vote on entries that it may have lost.
            self.identity.starts = starts;
            self.restored = Some(self.restored.unwrap_or(0).max(commit));
            self.restart_consensus(now);
            self.told.push(Output::Starts(starts));
            // A process without a vote as of that entry has none to lose.
            self.caught_up(commit, now);
        }
        self.told.push(Output::Told { by, refusal });
    }
}
