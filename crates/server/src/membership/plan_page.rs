//! The page of a plan: the ring as it is to be when what is staged is carried out, and warnings about it.
//!
//! Left out: the plan itself, which the state makes.

use super::board::Board;
use super::cluster_page::{name, word_of};
use super::n_vals;
use super::operator::Answered;
use ::membership::state::{Change, Command, Record, Rejected, State};
use ring::{MemberState, NodeId, TARGET_N_DEFAULT};
use serde_json::json;

/// Shows the effects of a commit.
pub(super) fn plan(state: &State, board: &Board) -> Answered {
    let plan = match state.plan(TARGET_N_DEFAULT) {
        Ok(plan) => plan,
        Err(error) => return Answered::wrong(409, error),
    };
    let parts = plan.parts.iter().map(|(&node, part)| {
        json!({
            "node": name(state, node),
            "change": part.change.map(word_of),
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

/// What an operator should think twice about, of a ring as it is to be when what is staged is carried out.
pub(super) fn warnings(state: &State, board: &Board) -> Vec<String> {
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
