//! The agreement on consistent groups as JSON, for operators. `docs/api/admin.yaml` describes it.

use super::births::Births;
use super::operator::Answered;
use ::membership::Membership;
use ::membership::state::{Founding, Record, State};
use ring::NodeId;
use serde_json::{Value, json};

/// Answers an operator: foundings and registrations, and whether this restored node holds its groups back.
pub(super) fn show(membership: &Membership, births: &Births) -> Answered {
    let Some(state) = membership.state() else {
        return Answered::wrong(503, "this node does not know the cluster's current state");
    };
    Answered::ok(json!({
        "here": name(state, membership.log().identity().node),
        "held": births.are_held(state),
        "registers": state.registers_stores(),
        "foundings": state.foundings().map(|(n_val, it)| founding(state, n_val, it)).collect::<Vec<_>>(),
        "members": state.members().values().map(|record| member(state, record)).collect::<Vec<_>>(),
    }))
}

fn founding(state: &State, n_val: u8, founding: &Founding) -> Value {
    json!({
        "n_val": n_val,
        "number": format!("{:016x}", founding.number),
        "epoch": founding.epoch,
        "partitions": founding.owners.len(),
        "nodes": founding.stores.keys().map(|&node| name(state, node)).collect::<Vec<_>>(),
    })
}

fn member(state: &State, record: &Record) -> Value {
    let registration = state.registration(record.member.id);
    let births = registration.map(|it| it.stores.births.iter()).into_iter().flatten();
    json!({
        "name": &*record.member.name,
        "registered": registration.is_some(),
        "process": registration.map(|it| format!("{:016x}", it.start)),
        "births": births.map(|birth| format!("{:012x}", birth.number())).collect::<Vec<_>>(),
    })
}

/// A member's name; the number of one that is forgotten.
fn name(state: &State, node: NodeId) -> String {
    state.members().get(&node).map_or_else(|| node.to_string(), |it| it.member.name.to_string())
}
