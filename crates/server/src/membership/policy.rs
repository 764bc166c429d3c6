//! Commands of operators about security: planned on the records of the log, and proposed.
//!
//! 1. A command that shows something is answered from the records that this node has.
//! 2. Before the first change all members are checked: each is reached, and reads the policy's section.
//! 3. A change is planned on the present records and proposed for their version. If another change came between, it is
//!    planned again.
//! 4. A proposal whose end is unknown, since the leader changed, is proposed again for the same version: one of the two
//!    is carried out at most. The version that follows tells whose change it was.
//! 5. The caller is answered when this node goes by the policy with the change in it.
//!
//! A log that is older than the mark of the data folder does not turn security off, and takes no change but `enable` if
//! security is off there. The command `accept-older-log` ends that: a proposal without a change proves that the log has
//! no later version, and the mark takes the log's version.
//!
//! Invariants: each caller is answered once, at its deadline at the latest; no text, table or line of the log has a
//! password or its hash.
//!
//! Left out: the words and the hash of a password, which the caller brings.

use super::enforced_policy::EnforcedPolicy;
use super::files::FilesError;
use super::operator::Answered;
use super::ready::{self, Feature, Speaks};
use ::membership::log::{Failed, Outcome};
use ::membership::state::{
    Command, POLICY_CHANGES_BYTES_MAX, POLICY_RECORDS_MAX, PolicyChange, Rejected, State, changes_bytes,
};
use ::membership::{Input, Membership};
use ::security::{Cell, Change, CommandError, Credential, Mode, View};
use base::Monotonic;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long all may take: an election and some rounds of the voters, which is less than the command line waits.
const CHANGE_MAX: Duration = Duration::from_secs(30);

/// When to propose again, and to look again for members that were not ready.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// How long members may take to be reached before they are named: a node that has just started has no links yet.
const REACHED_MAX: Duration = Duration::from_secs(5);

/// Callers that wait at once: operators are few.
const WAITING_MAX: usize = 32;

/// Tokens of these proposals are from this on; those of admissions are below, those of foundings above.
const TOKENS_FROM: u64 = 1 << 47;

/// The feature that all members need before the first change.
const POLICY: Feature = Feature { name: "the security policy", version: node::peer::VERSION_POLICY };

/// A command, with the hash of its password.
#[derive(Debug)]
pub(crate) struct PolicyCommand {
    /// The command.
    pub(crate) command: ::security::Command,
    /// The verifier of [`::security::Command::password`].
    pub(crate) credential: Option<Credential>,
}

/// A caller that waits.
struct Waiting {
    asked: PolicyCommand,
    answer: oneshot::Sender<Answered>,
    /// The proposal that is under way.
    token: Option<u64>,
    /// The version that the last proposal named, and its changes.
    expected: u64,
    changes: Vec<PolicyChange>,
    /// Whether that proposal was carried out.
    is_done: bool,
    /// Whether it may have been.
    is_unknown: bool,
    /// When it is looked at next.
    again_at: Monotonic,
    since: Monotonic,
    /// Why the last proposal came to nothing.
    failed: Option<String>,
}

/// The next step of a caller.
enum Next {
    Answer(Answered),
    /// These changes of the version.
    Propose(u64, Vec<PolicyChange>),
    /// Something is waited for, which is told at the deadline.
    Wait(Answered),
}

/// The result of a proposal that may have been carried out, by the records of a later state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProposalResult {
    /// It has not been, and can be yet.
    Pending,
    /// It has been.
    Applied,
    /// It has not been, and never will be: another change took its version.
    Superseded,
    /// Several changes have come since: nobody can tell.
    Unknown,
}

impl Waiting {
    /// Whether the command has this node go by an older log, and changes nothing.
    fn accepts_log(&self) -> bool {
        self.asked.command == ::security::Command::AcceptOlderLog
    }

    /// The result of the last proposal. A proposal makes the version after the one that it names, or nothing.
    fn result_of_proposal(&self, state: &State) -> ProposalResult {
        let is_made = |(key, value): &PolicyChange| {
            state.policy().and_then(|records| records.get(key)) == value.as_ref()
        };
        match state.policy_version().checked_sub(self.expected) {
            None | Some(0) => ProposalResult::Pending,
            Some(1) if self.changes.iter().all(is_made) => ProposalResult::Applied,
            Some(1) => ProposalResult::Superseded,
            Some(_) => ProposalResult::Unknown,
        }
    }
}

/// Callers that wait for changes of the policy, and the policy that they change.
pub(super) struct PolicyChanges {
    enforced: EnforcedPolicy,
    waiting: Vec<Waiting>,
    last: u64,
}

impl PolicyChanges {
    /// Without a caller.
    pub(super) fn new(enforced: EnforcedPolicy) -> PolicyChanges {
        PolicyChanges { enforced, waiting: Vec::new(), last: 0 }
    }

    /// Has the doors go by the policy of a state, and marks the data folder.
    pub(super) fn follow(&mut self, state: &State) -> Result<(), FilesError> {
        self.enforced.follow(state)
    }

    /// Takes a caller.
    pub(super) fn ask(&mut self, asked: PolicyCommand, answer: oneshot::Sender<Answered>, now: Monotonic) {
        if self.waiting.len() >= WAITING_MAX {
            // The caller may have gone.
            answer.send(Answered::wrong(503, "too many changes of the security policy wait")).ok();
            return;
        }
        self.waiting.push(Waiting {
            asked,
            answer,
            token: None,
            expected: 0,
            changes: Vec::new(),
            is_done: false,
            is_unknown: false,
            again_at: now,
            since: now,
            failed: None,
        });
    }

    /// When [`PolicyChanges::advance`] has something to do that nobody tells.
    pub(super) fn next_timer(&self) -> Option<Monotonic> {
        let timer = |it: &Waiting| {
            let until = it.since + CHANGE_MAX;
            if it.token.is_none() && !it.is_done { it.again_at.min(until) } else { until }
        };
        self.waiting.iter().map(timer).min()
    }

    /// Answers callers whose change is made or cannot be, and returns the proposals for others.
    pub(super) fn advance(
        &mut self,
        membership: &Membership,
        speaks: Speaks<'_>,
        now: Monotonic,
    ) -> Vec<Input> {
        let (mut left, mut inputs) = (Vec::new(), Vec::new());
        for mut it in std::mem::take(&mut self.waiting) {
            let is_late = now >= it.since + CHANGE_MAX;
            // A plan goes through all records, so it is made only when it is used.
            let is_due = it.token.is_none() && (now >= it.again_at || it.is_done);
            if !is_due && !is_late {
                left.push(it);
                continue;
            }
            match self.next(&it, membership, speaks, now) {
                // The caller may have gone.
                Next::Answer(answered) => drop(it.answer.send(answered)),
                Next::Wait(answered) if is_late => drop(it.answer.send(answered)),
                Next::Propose(..) if is_late => {
                    let why = it.failed.unwrap_or_else(|| Failed::Unknown.to_string());
                    drop(it.answer.send(Answered::wrong(503, why)));
                }
                Next::Propose(expected, changes) => {
                    self.last += 1;
                    it.is_unknown &= it.expected == expected;
                    (it.token, it.expected) = (Some(TOKENS_FROM + self.last), expected);
                    it.changes.clone_from(&changes);
                    let command = Command::ChangePolicy { expected, changes };
                    inputs.push(Input::Propose { token: TOKENS_FROM + self.last, command });
                    left.push(it);
                }
                Next::Wait(_) => {
                    it.again_at = now + AGAIN_AFTER;
                    left.push(it);
                }
            }
        }
        self.waiting = left;
        inputs
    }

    /// Takes a proposal's end; false if it was none of these.
    pub(super) fn answer(&mut self, token: u64, outcome: Outcome, now: Monotonic) -> bool {
        let Some(at) = self.waiting.iter().position(|it| it.token == Some(token)) else { return false };
        let it = &mut self.waiting[at];
        (it.token, it.again_at) = (None, now);
        match outcome {
            Ok(()) => {
                it.is_done = true;
                if it.accepts_log() {
                    self.enforced.accept_log(it.expected);
                }
            }
            // This node may be behind: it waits a little for the change that came between.
            Err(failed @ (Failed::NoLeader | Failed::Busy | Failed::Rejected(Rejected::Stale))) => {
                if !it.is_unknown {
                    it.failed = Some(failed.to_string());
                }
                it.again_at = now + AGAIN_AFTER;
            }
            Err(failed @ Failed::Unknown) => {
                // A proposal without a change can be made again.
                (it.failed, it.is_unknown) = (Some(failed.to_string()), !it.accepts_log());
                it.again_at = now + AGAIN_AFTER;
            }
            Err(Failed::Rejected(rejected)) => self.end(at, Answered::wrong(409, rejected)),
        }
        true
    }

    fn end(&mut self, at: usize, answered: Answered) {
        // The caller may have gone.
        self.waiting.swap_remove(at).answer.send(answered).ok();
    }

    fn next(&self, it: &Waiting, membership: &Membership, speaks: Speaks<'_>, now: Monotonic) -> Next {
        let Some(state) = membership.state() else {
            return Next::Answer(Answered::wrong(503, "this node does not know the cluster's current state"));
        };
        if it.is_done {
            let is_followed = state.policy_version() > it.expected || it.accepts_log();
            return if is_followed {
                Next::Answer(done(&it.asked.command, state))
            } else {
                Next::Wait(Answered::wrong(503, "the change is made, and this node has not heard of it yet"))
            };
        }
        if it.is_unknown {
            match it.result_of_proposal(state) {
                ProposalResult::Pending => return Next::Propose(it.expected, it.changes.clone()),
                ProposalResult::Applied => return Next::Answer(done(&it.asked.command, state)),
                ProposalResult::Unknown => return Next::Answer(Answered::wrong(503, Failed::Unknown)),
                ProposalResult::Superseded => {}
            }
        }
        match self.planned(&it.asked, state) {
            Err(answered) => Next::Answer(answered),
            Ok(changes) if changes.is_empty() && !it.accepts_log() => {
                Next::Answer(done(&it.asked.command, state))
            }
            Ok(changes) => match refusal(&it.asked.command, membership, speaks) {
                Some(why) if now < it.since + REACHED_MAX => Next::Wait(Answered::wrong(409, why)),
                Some(why) => Next::Answer(Answered::wrong(409, why)),
                None => Next::Propose(state.policy_version(), changes),
            },
        }
    }

    /// Why a command is refused by a log that is older than the mark of the data folder, or because it is not.
    fn older_log_refusal(&self, command: &::security::Command, state: &State) -> Option<String> {
        use ::security::Command;
        let newer = self.enforced.follower().newer_than(state);
        match (command, newer) {
            (Command::AcceptOlderLog, None) => {
                Some("this node goes by its metadata log: the file security-on is not newer".to_owned())
            }
            (Command::AcceptOlderLog | Command::SetMode(Mode::On), _) | (_, None) => None,
            // The doors stay closed to strangers, whichever version the log comes to have.
            (command, Some(_))
                if !matches!(command, Command::SetMode(_)) && !self.enforced.follower().is_off() =>
            {
                None
            }
            (_, Some(newer)) => Some(format!(
                "the metadata log has version {} of the security policy, and the file security-on has version {}. \
                 Clients stay out until the log has caught up. If the newer log is lost for good, say \
                 `accept-older-log` at the local socket of this node first",
                state.policy_version(),
                newer.version
            )),
        }
    }

    /// The changes of records that a command makes; a view is an answer already.
    fn planned(&self, asked: &PolicyCommand, state: &State) -> Result<Vec<PolicyChange>, Answered> {
        let (slots, policy) = self.enforced.follower().in_force().map_err(|why| Answered::wrong(409, why))?;
        if let ::security::Command::Print(print) = &asked.command {
            let view = print.show(slots, &policy).map_err(|error| wrong(&error))?;
            return Err(shown(&view, state));
        }
        if let Some(why) = self.older_log_refusal(&asked.command, state) {
            return Err(Answered::wrong(409, why));
        }
        let enables = asked.command == ::security::Command::SetMode(Mode::On);
        // Doors that are closed already lock nobody out.
        if enables && !self.enforced.follower().is_older() && !slots.have_administrator() {
            return Err(wrong(&CommandError::NoAdministrator));
        }
        let changes = asked.command.plan(slots, asked.credential.clone()).map_err(|error| wrong(&error))?;
        slots.clone().apply(&changes).map_err(|error| Answered::wrong(409, error))?;
        let added = changes
            .iter()
            .filter(|change| matches!(change, Change::Put(slot) if slots.get(&slot.key()).is_none()));
        if added.count() > 0 && slots.iter().count() >= POLICY_RECORDS_MAX {
            let what =
                format!("the security policy has {POLICY_RECORDS_MAX} records, the most that it can have");
            return Err(Answered::wrong(409, what));
        }
        // A change that leaves all records as they are makes no version that could be waited for.
        let is_new = |(key, value): &PolicyChange| {
            state.policy().and_then(|records| records.get(key)) != value.as_ref()
        };
        let changes: Vec<PolicyChange> = changes.iter().map(encoded).filter(is_new).collect();
        let bytes = changes_bytes(&changes);
        if bytes > POLICY_CHANGES_BYTES_MAX {
            let what = format!(
                "the change has {bytes} bytes; one has at most {POLICY_CHANGES_BYTES_MAX}: change fewer users or \
                 groups at a time"
            );
            return Err(Answered::wrong(409, what));
        }
        Ok(changes)
    }
}

fn encoded(change: &Change) -> PolicyChange {
    match change {
        Change::Put(slot) => (slot.key().encode(), Some(slot.encode())),
        Change::Remove(key) => (key.encode(), None),
    }
}

/// Why a change is not proposed yet. Once there is a policy, an older program cannot read the log.
fn refusal(command: &::security::Command, membership: &Membership, speaks: Speaks<'_>) -> Option<String> {
    if membership.state().is_some_and(|state| state.policy().is_none()) {
        return ready::not_ready(membership, speaks, POLICY);
    }
    match command {
        ::security::Command::SetMode(Mode::On | Mode::Permissive) => ready::older(membership, speaks, POLICY),
        _ => None,
    }
}

fn wrong(error: &CommandError) -> Answered {
    let status = match error {
        CommandError::User(_) | CommandError::Group(_) | CommandError::Names(_) => 404,
        CommandError::InUse | CommandError::Cycle(_) | CommandError::Memberships => 409,
        CommandError::TooManyGroups | CommandError::NoAdministrator => 409,
        _ => 400,
    };
    Answered::wrong(status, error)
}

fn done(command: &::security::Command, state: &State) -> Answered {
    Answered::ok(json!({ "text": command.done(), "version": state.policy_version(), "tables": [] }))
}

fn shown(view: &View, state: &State) -> Answered {
    let cell = |cell: &Cell| match cell {
        Cell::Text(text) => json!(text),
        Cell::List(list) => json!(list),
    };
    let tables = view.tables.iter().map(|table| {
        // Names of fields have no spaces.
        let names: Vec<String> = table.columns.iter().map(|name| name.replace(' ', "_")).collect();
        let row =
            |row: &Vec<Cell>| names.iter().cloned().zip(row.iter().map(cell)).collect::<Map<String, Value>>();
        json!({ "title": table.title, "rows": table.rows.iter().map(row).collect::<Vec<_>>() })
    });
    Answered::ok(json!({
        "text": view.text,
        "version": state.policy_version(),
        "tables": tables.collect::<Vec<_>>(),
    }))
}
