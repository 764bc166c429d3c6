//! Operators' requests: pages about the agreed state, and changes of it. `docs/api/admin.yaml` describes them.
//!
//! 1. A page is answered at once, from the state that this node has.
//! 2. A change is proposed. Its caller is answered when the log has decided on it.
//!
//! Invariant: each caller is answered once. A change is of the version of the state that this node has: one that came
//! between makes it void.
//!
//! Left out: the pages themselves (`cluster_page.rs`, `plan_page.rs`), and lost majorities (`log_recovery.rs`).

use super::board::Board;
use super::cluster_page::{show, transfers};
use super::limits;
use super::log_recovery::recover;
use super::plan_page::{plan, warnings};
use ::membership::log::{Failed, Outcome};
use ::membership::state::{Change, Command, Rejected, State};
use ::membership::{Input, Membership, NodeId};
use bytes::Bytes;
use node::Budget;
use node::http::ClusterPage;
use ring::{RingSize, TARGET_N_DEFAULT};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Said to whoever wants a node that runs to join: its data would be another cluster's.
const JOINS_AT_ITS_START: &str = "a node joins when it starts: stop it, and start it with an empty data folder, with \
                                  --join and the address where a member listens to other nodes, and --peer-listen";

/// An answer to an operator.
#[derive(Debug)]
pub struct Answered {
    /// As HTTP has it.
    pub status: u16,
    /// JSON.
    pub body: Value,
}

impl Answered {
    pub(super) fn ok(body: Value) -> Answered {
        Answered { status: 200, body }
    }

    /// What is wrong.
    pub(crate) fn wrong(status: u16, text: impl ToString) -> Answered {
        Answered { status, body: json!({ "error": text.to_string() }) }
    }
}

/// Who waits for the end of a proposal.
pub(super) struct Operators {
    board: Arc<Board>,
    waiting: BTreeMap<u64, oneshot::Sender<Answered>>,
    last: u64,
}

/// What copies may take, in a request's body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    count: Option<u32>,
    bytes_per_second: Option<u64>,
}

/// How many partitions there are to be, in a request's body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resize {
    partitions: u32,
}

/// What is in a request's body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    node: String,
    change: Option<String>,
    by: Option<String>,
    weight: Option<u16>,
}

impl Operators {
    /// With what shards put down.
    pub(super) fn new(board: Arc<Board>) -> Operators {
        Operators { board, waiting: BTreeMap::new(), last: 0 }
    }

    /// Answers a question, or says what is to be proposed for it.
    pub(super) fn ask(
        &mut self,
        page: ClusterPage,
        body: &Bytes,
        answer: oneshot::Sender<Answered>,
        membership: &Membership,
    ) -> Option<Input> {
        if page == ClusterPage::Recover {
            let (answered, input) = recover(membership, body);
            // The caller may have gone.
            answer.send(answered).ok();
            return input;
        }
        let result = match membership.state() {
            None => Err(Answered::wrong(503, "this node does not know the cluster's current state")),
            Some(state) => match page {
                ClusterPage::Show => Err(Answered::ok(show(state, membership, &self.board))),
                ClusterPage::Plan => Err(plan(state, &self.board)),
                ClusterPage::Join => Err(Answered::wrong(409, JOINS_AT_ITS_START)),
                ClusterPage::Commit => commit(state),
                ClusterPage::Transfers => Err(transfers(state, membership, &self.board)),
                ClusterPage::TransferLimit => limit(state, body),
                ClusterPage::Recover => unreachable!("answered above"),
                ClusterPage::DeclareLost => unreachable!("it goes to another component"),
                ClusterPage::Clear => Ok(Command::Clear { expected: state.version() }),
                ClusterPage::Stage => stage(state, body),
                ClusterPage::ResizeRing => resize(state, body),
                ClusterPage::Down => wanted(body)
                    .and_then(|wanted| member(state, &wanted.node))
                    .map(|node| Command::Down { expected: state.version(), node }),
            },
        };
        match result {
            Ok(command) => {
                self.last += 1;
                self.waiting.insert(self.last, answer);
                Some(Input::Propose { token: self.last, command })
            }
            Err(answered) => {
                // The caller may have gone.
                answer.send(answered).ok();
                None
            }
        }
    }

    /// Takes a proposal's end.
    pub(super) fn answer(&mut self, token: u64, outcome: Outcome, membership: &Membership) {
        let Some(answer) = self.waiting.remove(&token) else { return };
        let answered = match outcome {
            Ok(()) => {
                let state = membership.state();
                let staged = state.filter(|state| state.has_staged());
                Answered::ok(json!({
                    "version": state.map(State::version),
                    "warnings": staged.map(|state| warnings(state, &self.board)).unwrap_or_default(),
                }))
            }
            Err(Failed::Rejected(rejected @ Rejected::NotMember)) => Answered::wrong(404, rejected),
            Err(Failed::Rejected(rejected)) => Answered::wrong(409, rejected),
            Err(failed) => Answered::wrong(503, failed),
        };
        answer.send(answered).ok();
    }
}

fn commit(state: &State) -> Result<Command, Answered> {
    if !state.has_staged() {
        return Err(Answered::wrong(409, Rejected::NothingStaged));
    }
    let plan = state.plan(TARGET_N_DEFAULT).map_err(|error| Answered::wrong(409, error))?;
    Ok(plan.command())
}

fn limit(state: &State, body: &Bytes) -> Result<Command, Answered> {
    let limit: Limit =
        serde_json::from_slice(body).map_err(|error| Answered::wrong(400, format!("the body: {error}")))?;
    let before = limits::of(state);
    let count = limit.count.unwrap_or(before.received_max);
    let bytes_per_second = limit.bytes_per_second.unwrap_or(before.bytes_per_second);
    if !(1..=limits::TRANSFERS_MAX).contains(&count) {
        return Err(Answered::wrong(400, format!("count: from 1 to {}", limits::TRANSFERS_MAX)));
    }
    if bytes_per_second == 0 {
        return Err(Answered::wrong(400, "bytes_per_second: more than 0"));
    }
    Ok(limits::command(state, Budget { sent_max: count, received_max: count, bytes_per_second }))
}

fn resize(state: &State, body: &Bytes) -> Result<Command, Answered> {
    let Resize { partitions } =
        serde_json::from_slice(body).map_err(|error| Answered::wrong(400, format!("the body: {error}")))?;
    let size = RingSize::new(partitions).map_err(|error| Answered::wrong(400, error))?;
    Ok(Command::StageRing { expected: state.version(), size })
}

fn wanted(body: &Bytes) -> Result<Wanted, Answered> {
    serde_json::from_slice(body).map_err(|error| Answered::wrong(400, format!("the body: {error}")))
}

fn member(state: &State, name: &str) -> Result<NodeId, Answered> {
    let found = state.members().values().find(|record| *record.member.name == *name);
    found.map(|record| record.member.id).ok_or_else(|| Answered::wrong(404, format!("{name} is no member")))
}

fn stage(state: &State, body: &Bytes) -> Result<Command, Answered> {
    let Wanted { node, change, by, weight } = wanted(body)?;
    let node = member(state, &node)?;
    let by = || match &by {
        Some(name) => member(state, name),
        None => Err(Answered::wrong(400, "by: the name of the replacement is missing")),
    };
    let change = match change.as_deref() {
        Some("leave") => Change::Leave,
        Some("replace") => Change::Replace(by()?),
        Some("force-replace") => Change::ForceReplace(by()?),
        Some("force-remove") => Change::ForceRemove,
        Some("weigh") => Change::Weigh(weight.ok_or_else(|| Answered::wrong(400, "weight: a number"))?),
        _ => {
            return Err(Answered::wrong(400, "change: leave, replace, force-replace, force-remove or weigh"));
        }
    };
    Ok(Command::Stage { expected: state.version(), node, change })
}
