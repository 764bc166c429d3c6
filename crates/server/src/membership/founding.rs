//! The founding of groups, for the activation of a consistent bucket type.
//!
//! 1. While no store is registered, all members are checked: each is reached and speaks the version of the protocol
//!    that has consistent types. Then [`Command::PrepareStores`] is proposed.
//! 2. Owners register their stores. Owners that are late at the deadline are named.
//! 3. [`Command::FoundGroups`] is proposed. When this node's state has the founding, the caller is told.
//!
//! Invariants: each caller is answered once, at its deadline at the latest; a founding that is there is no change.
//!
//! A caller that declares stores lost waits here as well: its proposals follow from the state in the same way
//! (`loss.rs`).
//!
//! Left out: the type itself, which the caller activates after that.

use super::loss::Loss;
use super::operator::Answered;
use super::ready::{self, Feature, Speaks};
use ::membership::log::{Failed, Outcome};
use ::membership::state::{Command, FOUNDED_N_VAL_MAX, Rejected, State};
use ::membership::{Input, Membership};
use base::{Monotonic, Rng};
use ring::NodeId;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long all may take: an election (some seconds), two rounds of the voters, and the registration of stores in
/// between. Half of what the command line waits for an answer.
pub(super) const FOUNDING_MAX: Duration = Duration::from_secs(30);

/// When to propose again, and to look again for members that were not ready.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// How long members may take to be reached before they are named: a node that has just started has no links yet.
const REACHED_MAX: Duration = Duration::from_secs(5);

/// Callers that wait at once: operators are few.
const WAITING_MAX: usize = 32;

/// Tokens of these proposals are above this; those of admissions and operators are below.
const TOKENS_FROM: u64 = 1 << 48;

/// The feature that all members need.
const CONSISTENT: Feature =
    Feature { name: "consistent bucket types", version: node::peer::VERSION_CONSISTENT };

/// The change that a caller waits for.
pub(super) enum Wanted {
    /// Groups of so many voters are founded.
    Groups(u32),
    /// Stores are declared lost.
    Loss(Loss),
}

/// A caller that waits.
struct Waiting {
    wanted: Wanted,
    answer: oneshot::Sender<Answered>,
    /// The proposal that is under way.
    token: Option<u64>,
    /// When it is looked at next.
    again_at: Monotonic,
    since: Monotonic,
    /// Why the last proposal came to nothing.
    failed: Option<String>,
}

/// The next step of a caller.
enum Next {
    Answer(Answered),
    Propose(Command),
    /// Something is waited for, which is told at the deadline.
    Wait(Answered),
}

/// Callers that wait for foundings.
pub(super) struct Foundings {
    waiting: Vec<Waiting>,
    last: u64,
    rng: Box<dyn Rng>,
}

impl Foundings {
    /// Without a caller.
    pub(super) fn new(rng: Box<dyn Rng>) -> Foundings {
        Foundings { waiting: Vec::new(), last: 0, rng }
    }

    /// Takes a caller.
    pub(super) fn ask(&mut self, wanted: Wanted, answer: oneshot::Sender<Answered>, now: Monotonic) {
        if self.waiting.len() >= WAITING_MAX {
            // The caller may have gone.
            answer
                .send(Answered::wrong(503, "too many changes of consistent groups are asked for at once"))
                .ok();
            return;
        }
        self.waiting.push(Waiting { wanted, answer, token: None, again_at: now, since: now, failed: None });
    }

    /// When [`Foundings::advance`] has something to do that nobody tells.
    pub(super) fn next_timer(&self) -> Option<Monotonic> {
        let timer = |it: &Waiting| {
            let until = it.since + FOUNDING_MAX;
            if it.token.is_none() { it.again_at.min(until) } else { until }
        };
        self.waiting.iter().map(timer).min()
    }

    /// Answers callers whose groups are founded or cannot be, and returns the proposals for others.
    pub(super) fn advance(
        &mut self,
        membership: &Membership,
        speaks: Speaks<'_>,
        now: Monotonic,
    ) -> Vec<Input> {
        let (mut left, mut inputs) = (Vec::new(), Vec::new());
        for mut it in std::mem::take(&mut self.waiting) {
            let is_late = now >= it.since + FOUNDING_MAX;
            let may_propose = it.token.is_none() && now >= it.again_at;
            match self.next(&it, membership, speaks, now) {
                Next::Answer(answered) => drop(it.answer.send(answered)),
                Next::Wait(answered) if is_late => drop(it.answer.send(answered)),
                Next::Propose(_) if is_late => {
                    let why = it.failed.unwrap_or_else(|| "the cluster did not decide in time".to_owned());
                    drop(it.answer.send(Answered::wrong(503, why)));
                }
                Next::Propose(command) if may_propose => {
                    self.last += 1;
                    it.token = Some(TOKENS_FROM + self.last);
                    inputs.push(Input::Propose { token: TOKENS_FROM + self.last, command });
                    left.push(it);
                }
                Next::Propose(_) => left.push(it),
                Next::Wait(_) => {
                    if may_propose {
                        it.again_at = now + AGAIN_AFTER;
                    }
                    left.push(it);
                }
            }
        }
        self.waiting = left;
        inputs
    }

    /// Takes a proposal's end; false if it was none of these.
    pub(super) fn answer(&mut self, token: u64, outcome: Outcome, now: Monotonic) -> bool {
        let Some(at) = self.waiting.iter().position(|it| it.token == Some(token)) else {
            return (TOKENS_FROM..u64::MAX).contains(&token);
        };
        let it = &mut self.waiting[at];
        (it.token, it.again_at) = (None, now);
        match outcome {
            Ok(()) => {}
            Err(failed @ (Failed::NoLeader | Failed::Busy | Failed::Unknown))
            | Err(failed @ Failed::Rejected(Rejected::Stale | Rejected::Unregistered(_))) => {
                (it.failed, it.again_at) = (Some(failed.to_string()), now + AGAIN_AFTER);
            }
            Err(Failed::Rejected(rejected)) => {
                // The caller may have gone.
                self.waiting.swap_remove(at).answer.send(Answered::wrong(409, rejected)).ok();
            }
        }
        true
    }

    fn next(&mut self, it: &Waiting, membership: &Membership, speaks: Speaks<'_>, now: Monotonic) -> Next {
        let Some(state) = membership.state() else {
            return Next::Answer(Answered::wrong(503, "this node does not know the cluster's current state"));
        };
        let n_val = match &it.wanted {
            Wanted::Groups(n_val) => *n_val,
            Wanted::Loss(loss) => {
                let declared = || Next::Answer(Answered::ok(serde_json::json!({ "declared": true })));
                return loss.next(state, &mut *self.rng).map_or_else(declared, Next::Propose);
            }
        };
        let n_val = u8::try_from(n_val).ok().filter(|n_val| (1..=FOUNDED_N_VAL_MAX).contains(n_val));
        let Some(n_val) = n_val else { return Next::Answer(Answered::wrong(409, Rejected::NVal)) };
        if state.founding(n_val).is_some() {
            return Next::Answer(Answered::ok(serde_json::json!({ "n_val": n_val })));
        }
        if !state.is_settled() {
            return Next::Answer(Answered::wrong(
                409,
                "partitions move: a consistent bucket type can be activated when the change is carried out",
            ));
        }
        if !state.registers_stores() {
            return match (ready::not_ready(membership, speaks, CONSISTENT), now < it.since + REACHED_MAX) {
                (None, _) => Next::Propose(Command::PrepareStores),
                (Some(why), true) => Next::Wait(Answered::wrong(409, why)),
                (Some(why), false) => Next::Answer(Answered::wrong(409, why)),
            };
        }
        if let Some(unregistered) = unregistered(state) {
            return Next::Wait(Answered::wrong(409, unregistered));
        }
        let number = self.rng.next_u64();
        Next::Propose(Command::FoundGroups { expected: state.version(), n_val, number })
    }
}

/// Which owners have not registered their stores.
fn unregistered(state: &State) -> Option<String> {
    let owners: BTreeSet<NodeId> = state.owners().iter().copied().collect();
    let is_missing = |node: &NodeId| state.registration(*node).is_none();
    let name = |node: NodeId| {
        state.members().get(&node).map_or_else(|| node.to_string(), |it| it.member.name.to_string())
    };
    let missing: Vec<String> = owners.into_iter().filter(is_missing).map(name).collect();
    (!missing.is_empty()).then(|| {
        format!(
            "not registered: the stores of {}. A node registers when it is up and reaches the metadata log's majority; \
             one with another backend than annulet never does. A restored one does so after \
             `annulet admin strong recover --all`",
            missing.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use ::membership::ClusterId;
    use ring::RingSize;

    fn state() -> State {
        let nodes = [("a@h", "", ""), ("b@h", "", ""), ("c@h", "", "")];
        let size = (RingSize::new(8).unwrap(), RingSize::new(128).unwrap());
        State::found_by(ClusterId(7), size, nodes).unwrap()
    }

    #[test]
    fn owners_that_have_not_registered_are_named() {
        let mut state = state();
        state.apply(&Command::PrepareStores).unwrap();
        let text = unregistered(&state).unwrap();
        assert!(text.starts_with("not registered: the stores of a@h, b@h, c@h."), "{text}");
    }
}
