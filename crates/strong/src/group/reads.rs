//! Confirmed reads: a leader asks a majority whether it still leads, a follower asks its leader.
//!
//! Requests that came since the last round share the next one, so each round begins after its requests came. A round
//! has a context that no other round of this process had, and an answer counts only with the context of a round that is
//! under way: it may be late, or of an earlier process. It confirms the rounds before that one too, because it was
//! given later.
//!
//! 1. A request is added; it waits for a round.
//! 2. A round begins: its questions carry its context. Voters that are left out are asked when the answers are late.
//! 3. A majority has answered, or the leader has: the round is confirmed, and has an index.
//! 4. That entry is applied: the requests are answered.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use base::Monotonic;

use super::identity::VoterId;

/// Rounds under way at once. More only wait for the answers to the last one's questions.
const ROUNDS_MAX: usize = 8;

/// Contexts begin at a random number below this one, so that a process that was started anew does not repeat them.
pub(super) const CONTEXTS: u64 = 1 << 40;

/// Delay after which a leader asks all voters, and a follower gives up: well above a round trip of a busy node.
pub const READ_RETRY_AFTER: Duration = Duration::from_millis(50);

/// A question, and the requests that it is for.
pub(super) struct Round {
    context: u64,
    pub(super) tokens: Vec<u64>,
    /// A leader's commit index at the begin.
    pub(super) index: u64,
    /// Voters that have answered.
    pub(super) voters: Vec<VoterId>,
}

/// Reads of one group.
pub(super) struct Reads {
    /// Requests that wait for a round.
    pending: Vec<u64>,
    /// Rounds without a majority, in order.
    rounds: VecDeque<Round>,
    /// Requests of confirmed rounds, each behind the index that must be applied first.
    confirmed: BTreeSet<(u64, u64)>,
    /// The context of the last round.
    context: u64,
    /// When voters are asked again, or a follower gives up; none without a round or a confirmed request.
    retry_at: Option<Monotonic>,
}

impl Reads {
    /// Reads whose contexts are above a number.
    pub(super) fn above(context: u64) -> Reads {
        let (pending, rounds, confirmed) = (Vec::new(), VecDeque::new(), BTreeSet::new());
        Reads { pending, rounds, confirmed, context, retry_at: None }
    }

    /// Adds a request.
    pub(super) fn add(&mut self, token: u64) {
        self.pending.push(token);
    }

    /// Whether a request waits for a round that can begin.
    pub(super) fn can_begin(&self) -> bool {
        !self.pending.is_empty() && self.rounds.len() < ROUNDS_MAX
    }

    /// Begins a round for the requests that wait for one; its context.
    pub(super) fn begin(&mut self, index: u64, now: Monotonic) -> u64 {
        self.context = if base::planted!(ReadIndexReused) { 1 } else { self.context + 1 };
        let tokens = std::mem::take(&mut self.pending);
        self.rounds.push_back(Round { context: self.context, tokens, index, voters: Vec::new() });
        self.retry_at.get_or_insert(now + READ_RETRY_AFTER);
        self.context
    }

    /// Notes that a voter has answered a round, and so all before it.
    pub(super) fn on_answer(&mut self, context: u64, voter: VoterId) {
        let count = self.through(context);
        for round in self.rounds.iter_mut().take(count) {
            if !round.voters.contains(&voter) {
                round.voters.push(voter);
            }
        }
    }

    /// The number of rounds up to the one of a context; none if that is not under way.
    fn through(&self, context: u64) -> usize {
        if base::planted!(ReadAnswerOfAnotherLife) {
            return self.rounds.iter().take_while(|round| round.context <= context).count();
        }
        self.rounds.iter().rposition(|round| round.context == context).map_or(0, |at| at + 1)
    }

    /// Takes the oldest round if it is confirmed.
    pub(super) fn take_confirmed(&mut self, is_confirmed: impl Fn(&Round) -> bool) -> Option<Round> {
        self.rounds.pop_front_if(|round| is_confirmed(round))
    }

    /// Takes the rounds up to the one of a context; none if that is not under way.
    pub(super) fn take_through(&mut self, context: u64) -> Vec<Round> {
        let count = self.through(context);
        self.rounds.drain(..count).collect()
    }

    /// Whether answers, or an entry that a request waits for, are late.
    pub(super) fn take_late(&mut self, now: Monotonic) -> bool {
        self.retry_at.take_if(|at| *at <= now).is_some()
    }

    /// The context of the newest round, and the voters that have answered it.
    pub(super) fn newest(&self) -> Option<(u64, &[VoterId])> {
        self.rounds.back().map(|newest| (newest.context, &newest.voters[..]))
    }

    /// Notes that all requests with an applied entry are taken: with none left, nothing is late.
    pub(super) fn rest(&mut self) {
        if self.rounds.is_empty() && self.confirmed.is_empty() {
            self.retry_at = None;
        }
    }

    /// Sets when the answers are late again.
    pub(super) fn postpone(&mut self, at: Monotonic) {
        self.retry_at = Some(at);
    }

    /// When the answers are late.
    pub(super) fn next_retry(&self) -> Option<Monotonic> {
        self.retry_at
    }

    /// Lets a request of a confirmed round wait for an entry.
    pub(super) fn wait_for(&mut self, index: u64, token: u64) {
        self.confirmed.insert((index, token));
    }

    /// Takes a request with an applied entry.
    pub(super) fn take(&mut self, applied: u64) -> Option<u64> {
        let &(index, token) = self.confirmed.first().filter(|(index, _)| *index <= applied)?;
        self.confirmed.remove(&(index, token));
        Some(token)
    }

    /// Forgets all requests: the leadership is lost, or the leader.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.rounds.clear();
        self.confirmed.clear();
        self.retry_at = None;
    }

    pub(super) fn invariants(&self, applied: u64) {
        debug_assert!(self.rounds.len() <= ROUNDS_MAX, "rounds are bounded");
        debug_assert!(self.rounds.is_empty() || self.retry_at.is_some(), "a round is asked again");
        debug_assert!(self.confirmed.first().is_none_or(|(index, _)| *index > applied), "reads are served");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Monotonic = Monotonic(1_000);

    #[test]
    fn a_confirmed_read_is_late_while_its_entry_does_not_come() {
        let mut reads = Reads::above(0);
        reads.add(7);
        let context = reads.begin(0, NOW);
        assert_eq!(reads.take_through(context).len(), 1);
        reads.wait_for(9, 7);
        assert_eq!(reads.take(8), None);
        reads.rest();
        assert!(!reads.take_late(NOW) && reads.take_late(NOW + READ_RETRY_AFTER));

        reads.add(8);
        let context = reads.begin(0, NOW);
        assert_eq!(reads.take_through(context).len(), 1);
        reads.wait_for(9, 8);
        assert_eq!((reads.take(9), reads.take(9), reads.take(9)), (Some(7), Some(8), None));
        reads.rest();
        assert_eq!(reads.next_retry(), None);
    }
    #[test]
    fn an_answer_without_its_round_confirms_nothing() {
        let mut reads = Reads::above(5);
        let contexts: Vec<u64> = [1, 2, 3]
            .map(|token| {
                reads.add(token);
                reads.begin(0, NOW)
            })
            .to_vec();
        let voter = VoterId::of_number(1).unwrap();

        // Of another process, which began with a higher number, or of a round that is over.
        for other in [contexts[2] + 1, u64::MAX, 5] {
            reads.on_answer(other, voter);
            assert!(reads.rounds.iter().all(|round| round.voters.is_empty()));
            assert!(reads.take_through(other).is_empty());
        }

        reads.on_answer(contexts[1], voter);
        assert_eq!(reads.rounds.iter().map(|round| round.voters.len()).collect::<Vec<_>>(), [1, 1, 0]);
        assert_eq!(reads.take_through(contexts[1]).len(), 2);
        assert!(reads.take_through(contexts[0]).is_empty(), "it is over");
        assert_eq!(reads.take_through(contexts[2]).len(), 1);
    }
}
