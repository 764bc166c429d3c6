//! Requests of clients: decided, confirmed, answered.

use base::Monotonic;

use super::entry::{NUMBER_MAX, Payload, Version};
use super::overlay::Head;
use super::requests::Waiting;
use super::{
    Answer, Cause, Condition, Group, Proposal, REQUESTS_MAX, UNAPPLIED_BYTES_MAX, UNAPPLIED_ENTRIES_MAX,
};

impl Condition {
    /// Whether it holds for a key's version.
    fn holds(self, version: Option<Version>) -> bool {
        match self {
            Condition::None => true,
            Condition::Absent => version.is_none(),
            Condition::Is(expected) => version == Some(expected),
        }
    }
}

impl Group {
    /// Decides a write's condition, and proposes it if that holds.
    pub(super) fn propose(&mut self, proposal: Proposal, now: Monotonic) {
        let Proposal { token, condition, write, head, version: carried, deadline } = proposal;
        let may_decide = base::planted!(ConditionBeforeNoop) && self.leads();
        if let Err(cause) = self.admit(deadline, now, may_decide) {
            return self.answer(token, Answer::Unavailable(cause));
        }

        let compared = self.overlay.newest(&write.key, head);
        if !condition.holds(compared.version) {
            if base::planted!(FailedByProposedHead) {
                return self.answer(token, Answer::Failed);
            }
            if compared.index <= self.applied && base::planted!(FailedWithoutLease) {
                return self.answer(token, Answer::Failed);
            }
            // A failed condition is a read: it is answered when a majority has confirmed the version compared.
            self.requests.add(token, Waiting::Check { index: compared.index }, deadline);
            return self.reads.add(token);
        }

        let (last, _) = self.last();
        assert!(carried.is_none_or(|it| it == self.version(last + 1)), "the version is that of the entry");
        let (key, is_deletion) = (write.key.clone(), write.object.is_none());
        let size = write.size();
        let payload = Payload::Write(write);
        if self.is_full(size) || self.raw.propose(Vec::new(), payload.encode().into()).is_err() {
            return self.answer(token, Answer::Unavailable(Cause::Overload));
        }
        let (index, term) = (last + 1, self.term());
        debug_assert_eq!(self.raw.raft.raft_log.last_index(), index, "the library took one entry");
        let version = (!is_deletion).then(|| self.version(index));
        self.overlay.propose(key, Head { version, index });
        self.requests.add(token, Waiting::Write { index, term }, deadline);
    }

    /// Whether an entry of that size would be one too many that is not applied.
    pub(super) fn is_full(&self, size: usize) -> bool {
        let (last, _) = self.last();
        last - self.applied >= UNAPPLIED_ENTRIES_MAX
            || last > self.applied && self.unapplied_bytes(last) + size > UNAPPLIED_BYTES_MAX
            || last + 1 >= NUMBER_MAX
    }

    /// Takes a read, which waits for its confirmation: by a majority on the leader, by the leader on a follower.
    pub(super) fn read(&mut self, token: u64, deadline: Monotonic, now: Monotonic) {
        if self.leads() && !self.is_ready() && base::planted!(ReadBeforeNoop) {
            return self.answer(token, Answer::Readable);
        }
        if self.can_ask_leader() && base::planted!(ReadUnconfirmed) {
            return self.answer(token, Answer::Readable);
        }
        self.needs_drain = false;
        let admitted = match self.can_ask_leader() {
            true => self.admit_request(deadline, now),
            false => self.admit(deadline, now, false),
        };
        if let Err(cause) = admitted {
            return self.answer(token, Answer::Unavailable(cause));
        }
        self.requests.add(token, Waiting::Read, deadline);
        self.reads.add(token);
    }

    /// Whether a request may be decided here and now.
    fn admit(&self, deadline: Monotonic, now: Monotonic, may_decide: bool) -> Result<(), Cause> {
        if !self.leads() || self.has_forgotten {
            return Err(Cause::NotLeader { leader: self.leader() });
        }
        if !self.is_ready() && !may_decide {
            return Err(Cause::NotReady);
        }
        self.admit_request(deadline, now)
    }

    /// Whether there is time and room for a request.
    fn admit_request(&self, deadline: Monotonic, now: Monotonic) -> Result<(), Cause> {
        if deadline <= now {
            return Err(Cause::Expired);
        }
        if self.requests.len() >= REQUESTS_MAX { Err(Cause::Overload) } else { Ok(()) }
    }

    pub(super) fn version(&self, index: u64) -> Version {
        Version::new(self.epoch, index)
    }

    /// Answers confirmed reads with an applied entry.
    pub(super) fn serve(&mut self) {
        while let Some(token) = self.reads.take(self.applied) {
            match self.requests.remove(token) {
                Some(Waiting::Check { .. }) => self.answer(token, Answer::Failed),
                Some(_) => self.answer(token, Answer::Readable),
                None => {}
            }
        }
        self.reads.rest();
    }

    /// Answers writes up to an applied index.
    pub(super) fn answer_writes(&mut self, through: u64) {
        while let Some((token, (index, term))) = self.requests.first_write(through) {
            self.requests.remove(token);
            let entry = self.raw.store().entry(index);
            let is_it = entry.is_some_and(|entry| entry.term == term);
            let answer = match is_it {
                true => Answer::Written(self.version(index)),
                // Another entry is committed in its place, so it never will be.
                false => Answer::Unavailable(Cause::LeaderChanged),
            };
            self.answer(token, answer);
        }
    }

    /// Answers requests past their deadline.
    pub(super) fn expire(&mut self, now: Monotonic) {
        while let Some(token) = self.requests.expired(now) {
            match self.requests.remove(token) {
                Some(Waiting::Write { .. }) => self.answer(token, Answer::Timeout),
                _ => self.answer(token, Answer::Unavailable(Cause::Expired)),
            }
        }
    }

    /// Reads end. Writes wait on: another leader may commit them, or others in their place.
    pub(super) fn on_leadership_lost(&mut self) {
        self.overlay.clear();
        self.reads.clear();
        self.end_catch_ups();
        self.reapable = 0;
        let gives_up_writes = base::planted!(UnavailableButApplied);
        let is_over = |waiting: &Waiting| gives_up_writes || !matches!(waiting, Waiting::Write { .. });
        for token in self.requests.tokens(is_over) {
            self.requests.remove(token);
            self.answer(token, Answer::Unavailable(Cause::LeaderChanged));
        }
    }
}
