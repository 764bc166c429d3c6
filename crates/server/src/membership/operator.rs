//! Operators' requests: the agreed state as JSON, and changes of it. `docs/api/admin.yaml` describes them.

use super::board::Board;
use super::reach::Reach;
use super::{limits, n_vals};
use ::membership::log::{Failed, Outcome, VoterStep};
use ::membership::state::{Change, Command, Record, Rejected, State};
use ::membership::{Input, Membership, NodeId};
use base::Clock;
use bytes::Bytes;
use node::http::ClusterPage;
use node::{Budget, TransferStatus};
use os::OsClock;
use ring::{MemberState, RingSize, TARGET_N_DEFAULT};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Said to whoever wants a node that runs to join: its data would be another cluster's.
const JOINS_AT_ITS_START: &str = "a node joins when it starts: stop it, and start it with an empty data folder, with --join and the \
                                  address where a member listens to other nodes, and --peer-listen";

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

/// That a lost majority is given up, in a request's body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Word {
    word: String,
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

fn name(state: &State, node: NodeId) -> Value {
    state.members().get(&node).map_or(Value::Null, |record| json!(&*record.member.name))
}

/// The same, or the number of a node that is no member any more.
fn named_or_number(state: &State, node: NodeId) -> Value {
    match name(state, node) {
        Value::Null => json!(node.to_string()),
        name => name,
    }
}

fn word(change: Change) -> &'static str {
    match change {
        Change::Join => "join",
        Change::Leave => "leave",
        Change::Replace(_) => "replace",
        Change::ForceReplace(_) => "force-replace",
        Change::ForceRemove => "force-remove",
        Change::Weigh(_) => "weigh",
    }
}

/// Whether the node that answers reaches a majority.
fn majority(reach: &Reach) -> Value {
    json!({
        "reached": reach.has_majority(),
        "members": reach.members.all,
        "members_reached": reach.members.reached,
        "voters": reach.voters.all,
        "voters_reached": reach.voters.reached,
        "missing": reach.missing(),
    })
}

fn show(state: &State, membership: &Membership, board: &Board) -> Value {
    let log = membership.log();
    let here = log.identity().node;
    let up = membership.detector().up();
    let count = |owners: &[NodeId], node: NodeId| owners.iter().filter(|owner| **owner == node).count();
    let members = state.members().iter().map(|(&node, record)| {
        json!({
            "name": &*record.member.name,
            "address": &*record.address,
            "zone": &*record.member.zone,
            "weight": record.member.weight,
            "state": record.member.state.to_string(),
            "reachable": node == here || up.contains(&node),
            "votes": log.voters().contains(&node),
            "partitions": count(state.owners(), node),
            "pending": count(state.heading(), node),
            "starts": record.starts,
        })
    });
    let staged = state.staged().iter().map(|(&node, &change)| {
        let mut entry = json!({ "node": name(state, node), "change": word(change) });
        if let Some(by) = change.by() {
            entry["by"] = name(state, by);
        }
        if let Change::Weigh(weight) = change {
            entry["weight"] = json!(weight);
        }
        entry
    });
    let transfers = state.to_move().map(|(partition, from, to)| {
        json!({ "partition": partition.0, "from": name(state, from), "to": name(state, to) })
    });
    json!({
        "cluster": state.cluster().to_string(),
        "epoch": log.epoch().number,
        "version": state.version(),
        "here": name(state, here),
        "leader": log.leader().map_or(Value::Null, |leader| name(state, leader)),
        "voters": log.voters().iter().map(|&voter| name(state, voter)).collect::<Vec<_>>(),
        "ring": {
            "version": state.ring_version().0,
            "partitions": state.size().partitions(),
            "partitions_then": state.heading_size().partitions(),
            "partitions_staged": state.staged_size().map(RingSize::partitions),
            "partitions_max": state.prefixes().partitions(),
        },
        "majority": majority(&Reach::look(membership, state, board)),
        "change": change(state, membership, board),
        "transfer_limit": shown_limit(state),
        "members": members.collect::<Vec<_>>(),
        "staged": staged.collect::<Vec<_>>(),
        "transfers": transfers.collect::<Vec<_>>(),
    })
}

fn shown_limit(state: &State) -> Value {
    let Budget { received_max, bytes_per_second, .. } = limits::of(state);
    json!({ "count": received_max, "bytes_per_second": bytes_per_second })
}

/// How far what was committed is carried out, and whom that waits for.
fn change(state: &State, membership: &Membership, board: &Board) -> Value {
    let voters = membership.log().voter_step(OsClock::new().now());
    let (to_vote, to_vote_no_more) = match voters {
        Some(VoterStep::Add(node)) => (name(state, node), Value::Null),
        Some(VoterStep::Remove(node)) => (Value::Null, named_or_number(state, node)),
        None => (Value::Null, Value::Null),
    };
    let names = |nodes: Vec<NodeId>| nodes.into_iter().map(|node| name(state, node)).collect::<Vec<_>>();
    json!({
        "settled": state.is_settled(),
        "step": state.step().name(),
        "to_move": state.to_move().count(),
        "to_adopt": names(state.unadopted().collect()),
        "to_copy": names(state.uncopied()),
        "kept_for": names(board.kept_for()),
        "to_vote": to_vote,
        "to_vote_no_more": to_vote_no_more,
    })
}

fn transfers(state: &State, membership: &Membership, board: &Board) -> Answered {
    let now = OsClock::new().now();
    let transfers = board.transfers();
    let entry = |(shard, it): &(usize, TransferStatus)| {
        let status = match it {
            it if it.partitions_left == 0 => "done",
            it if it.running => "running",
            it if it.failures > 0 => "failed",
            _ => "waiting",
        };
        json!({
            "shard": shard,
            "from": name(state, it.from),
            "state": status,
            "partitions_left": it.partitions_left,
            "seconds": now.since(it.since).as_secs_f64(),
            "still_for": (it.partitions_left > 0).then(|| now.since(it.moved).as_secs_f64()),
            "retry_in": (status == "failed").then(|| it.next.0.saturating_sub(now.0) as f64 / 1e9),
            "failures": it.failures,
            "reason": it.reason.as_ref().map(ToString::to_string),
            "objects": it.objects,
            "bytes": it.bytes,
            "lossy": it.lossy,
        })
    };
    Answered::ok(json!({
        "version": state.version(),
        "here": name(state, membership.log().identity().node),
        "change": change(state, membership, board),
        "limit": shown_limit(state),
        "received": transfers.iter().map(entry).collect::<Vec<_>>(),
    }))
}

/// Shows what would be lost with the voters that are not reached, or goes on without them, if the body has the word for that.
fn recover(membership: &Membership, body: &Bytes) -> (Answered, Option<Input>) {
    let (Some(state), log) = (membership.state(), membership.log()) else {
        return (Answered::wrong(503, "this node does not know the cluster's current state"), None);
    };
    let here = log.identity().node;
    let is_reached = |node: NodeId| node == here || membership.detector().up().contains(&node);
    let reached = log.voters().iter().filter(|&&voter| is_reached(voter)).count();
    let is_lost = 2 * reached <= log.voters().len();
    let (term, index) = log.last();
    if body.is_empty() {
        let voters = log.voters().iter();
        let voters = voters.map(|&it| json!({ "name": name(state, it), "reachable": is_reached(it) }));
        return (
            Answered::ok(json!({
                "here": name(state, here),
                "lost": is_lost,
                "voters": voters.collect::<Vec<_>>(),
                "last": { "term": term, "index": index },
                "epoch": log.epoch().number,
                "word": log.safety_word(),
            })),
            None,
        );
    }
    let word = match serde_json::from_slice::<Word>(body) {
        Ok(Word { word }) => word,
        Err(error) => return (Answered::wrong(400, format!("the body: {error}")), None),
    };
    if !is_lost {
        return (Answered::wrong(409, "a majority of the voters is reached: nothing is lost"), None);
    }
    if word != log.safety_word() {
        return (
            Answered::wrong(
                409,
                "the word does not match the current loss: run `annulet admin cluster recover` again to get the word",
            ),
            None,
        );
    }
    (Answered::ok(json!({ "epoch": log.epoch().number + 1 })), Some(Input::Recover { word }))
}

/// What an operator should think twice about, of a ring as it is to be when what is staged is carried out.
fn warnings(state: &State, board: &Board) -> Vec<String> {
    pinned(state).into_iter().chain(too_few(state, board)).collect()
}

/// Why a commit will be refused that moves partitions of consistent groups.
fn pinned(state: &State) -> Option<String> {
    state.foundings().next()?;
    let plan = state.plan(TARGET_N_DEFAULT).ok()?;
    let moves = matches!(plan.command(), Command::Commit { owners, .. } if owners != state.owners());
    moves.then(|| format!("{}: a commit is refused", Rejected::Pinned))
}

/// Why objects may have fewer nodes than copies.
fn too_few(state: &State, board: &Board) -> Option<String> {
    let stays = |node: &NodeId, record: &Record| match record.member.state {
        MemberState::Leaving | MemberState::Exiting => false,
        MemberState::Joining | MemberState::Valid | MemberState::Down => !matches!(
            state.staged().get(node),
            Some(Change::Leave | Change::Replace(_) | Change::ForceReplace(_) | Change::ForceRemove)
        ),
    };
    let nodes = state.members().iter().filter(|(node, record)| stays(node, record)).count();
    let n_val = board.n_val_max().or_else(|| n_vals::of(state).last().copied()).unwrap_or_default();
    if nodes >= n_val as usize {
        return None;
    }
    let count = if nodes == 1 { "1 node is".to_owned() } else { format!("{nodes} nodes are") };
    Some(format!(
        "{count} left, fewer than the {n_val} copies of the largest n_val: a node holds several copies of an object \
         then, and they are lost together"
    ))
}

fn plan(state: &State, board: &Board) -> Answered {
    let plan = match state.plan(TARGET_N_DEFAULT) {
        Ok(plan) => plan,
        Err(error) => return Answered::wrong(409, error),
    };
    let parts = plan.parts.iter().map(|(&node, part)| {
        json!({
            "node": name(state, node),
            "change": part.change.map(word),
            "state": part.state.map(|state| state.to_string()),
            "owns": part.owns,
            "will_own": part.will_own,
        })
    });
    Answered::ok(json!({
        "version": plan.expected,
        "partitions": plan.size.partitions(),
        "moved": plan.moved,
        "copies": {
            "moved": plan.copies.copies,
            "of": plan.copies.of,
            "distinct": plan.copies.distinct_min,
        },
        "shortfalls": plan.shortfalls.len(),
        "warnings": warnings(state, board),
        "parts": parts.collect::<Vec<_>>(),
    }))
}
