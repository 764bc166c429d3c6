//! Nodes that ask to become members, at the door for links: each is proposed to the log, and told which node it is.
//!
//! 1. Whoever is known by its name and waits to join from where it says is told again what it was told before: it may
//!    have crashed before it remembered. 2. Whoever is not known is proposed; while another change comes first or
//!    nobody leads, again.
//! 3. When this node's state has it, it is told.
//!
//! Left out: whether it is who it says, which its certificate tells before it comes here.

use super::standing::{AsOf, Standing};
use ::membership::log::{Failed, Outcome};
use ::membership::state::{Command, Rejected, State};
use ::membership::{Input, Membership};
use base::Monotonic;
use ring::MemberState;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a newcomer waits for the cluster's decision: an election, and a round of its voters.
pub const ADMISSION_MAX: Duration = Duration::from_secs(12);

/// When to propose again what was not decided on.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Newcomers that wait at once: as many as are let in at the door.
const WAITING_MAX: usize = 32;

/// Tokens of admissions are above this, those of operators below.
const TOKENS_FROM: u64 = 1 << 32;

/// A node that wants to become a member.
#[derive(Clone, Debug)]
pub struct Newcomer {
    /// Its name, which its certificate has.
    pub name: String,
    /// Where the others are to reach it.
    pub address: String,
    /// What may fail as a whole with it.
    pub zone: String,
    /// What its share is in proportion to.
    pub weight: u16,
}

/// What it is told: which node it is, or why it may not be one.
pub type Admitted = Result<Standing, String>;

/// Newcomers that wait.
#[derive(Default)]
pub(super) struct Admissions {
    waiting: Vec<Waiting>,
    last: u64,
}

struct Waiting {
    newcomer: Newcomer,
    answer: oneshot::Sender<Admitted>,
    /// The proposal that is under way.
    token: Option<u64>,
    /// When to propose next.
    again_at: Monotonic,
    until: Monotonic,
}

impl Admissions {
    /// Takes a newcomer.
    pub(super) fn ask(&mut self, newcomer: Newcomer, answer: oneshot::Sender<Admitted>, now: Monotonic) {
        if self.waiting.len() >= WAITING_MAX {
            // The caller may have gone.
            answer.send(Err("too many nodes want to join at once".to_owned())).ok();
            return;
        }
        let (token, again_at, until) = (None, now, now + ADMISSION_MAX);
        self.waiting.push(Waiting { newcomer, answer, token, again_at, until });
    }

    /// When [`Admissions::advance`] has something to do that nobody tells.
    pub(super) fn next_timer(&self) -> Option<Monotonic> {
        let timer = |it: &Waiting| if it.token.is_none() { it.again_at.min(it.until) } else { it.until };
        self.waiting.iter().map(timer).min()
    }

    /// Tells those of whom it is known what became of them, and says what is to be proposed for the others.
    pub(super) fn advance(&mut self, membership: &Membership, as_of: AsOf, now: Monotonic) -> Vec<Input> {
        let (mut left, mut inputs) = (Vec::new(), Vec::new());
        for mut it in std::mem::take(&mut self.waiting) {
            match verdict(&it.newcomer, membership.state(), as_of) {
                Some(admitted) => drop(it.answer.send(admitted)),
                None if now >= it.until => {
                    let seconds = ADMISSION_MAX.as_secs();
                    drop(
                        it.answer.send(Err(format!("the cluster did not decide in {seconds} s: try again"))),
                    );
                }
                None => {
                    if let Some(state) =
                        membership.state().filter(|_| it.token.is_none() && now >= it.again_at)
                    {
                        self.last += 1;
                        it.token = Some(TOKENS_FROM + self.last);
                        let command = admit(&it.newcomer, state);
                        inputs.push(Input::Propose { token: TOKENS_FROM + self.last, command });
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
            return token > TOKENS_FROM;
        };
        match outcome {
            // It is told when this node's state has it.
            Ok(()) => {}
            Err(Failed::Rejected(Rejected::Stale | Rejected::NameTaken))
            | Err(Failed::NoLeader | Failed::Busy | Failed::Unknown) => {
                let it = &mut self.waiting[at];
                (it.token, it.again_at) = (None, now + AGAIN_AFTER);
            }
            Err(Failed::Rejected(rejected)) => {
                // The caller may have gone.
                self.waiting.swap_remove(at).answer.send(Err(rejected.to_string())).ok();
            }
        }
        true
    }
}

fn admit(newcomer: &Newcomer, state: &State) -> Command {
    let Newcomer { name, address, zone, weight } = newcomer.clone();
    Command::Admit { expected: state.version(), name, address, zone, weight }
}

/// What a newcomer is told; `None` if it is to be proposed.
fn verdict(newcomer: &Newcomer, state: Option<&State>, as_of: AsOf) -> Option<Admitted> {
    let Some(state) = state else {
        return Some(Err("this node does not know the cluster's current state yet: try again".to_owned()));
    };
    let found = state.members().values().find(|record| *record.member.name == *newcomer.name)?;
    let (name, place) = (&newcomer.name, &found.address);
    if found.member.state != MemberState::Joining {
        return Some(Err(format!(
            "{name} is the name of a member, which is {}. If that one is gone for good, `annulet admin cluster force-remove {name}` \
             and a commit make room; or join under another name and take its place by `force-replace`",
            found.member.state
        )));
    }
    if **place != *newcomer.address {
        return Some(Err(format!(
            "a node named {name} waits to join from {place}, not {}: `annulet admin cluster clear` removes it",
            newcomer.address
        )));
    }
    Some(Ok(Standing { node: found.member.id, as_of, state: state.clone() }))
}
