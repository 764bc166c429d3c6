//! The pages of the agreed state: members, ring, staged changes and transfers, as JSON for operators.
//!
//! Invariant: a page is of one state, with what this node reaches and has received at that moment.
//!
//! Left out: the outcome of a commit (`plan_page.rs`).

use super::board::Board;
use super::limits;
use super::operator::Answered;
use super::reach::Reach;
use ::membership::Membership;
use ::membership::log::VoterStep;
use ::membership::state::{Change, State};
use base::Clock;
use node::{Budget, TransferStatus};
use os::OsClock;
use ring::{NodeId, RingSize};
use serde_json::{Value, json};

/// The name of a member; null for another node.
pub(super) fn name(state: &State, node: NodeId) -> Value {
    state.members().get(&node).map_or(Value::Null, |record| json!(&*record.member.name))
}

/// The same, or the number of a node that is no member any more.
fn named_or_number(state: &State, node: NodeId) -> Value {
    match name(state, node) {
        Value::Null => json!(node.to_string()),
        name => name,
    }
}

/// The word for a change, as requests have it.
pub(super) fn word_of(change: Change) -> &'static str {
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

/// Shows the agreed state.
pub(super) fn show(state: &State, membership: &Membership, board: &Board) -> Value {
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
        let mut entry = json!({ "node": name(state, node), "change": word_of(change) });
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

/// The progress of committed changes, and the members that they wait for.
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

/// Shows the copies that are made to this node.
pub(super) fn transfers(state: &State, membership: &Membership, board: &Board) -> Answered {
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
