//! The survey of this node's copies of groups, and the end of a restored node's hold.
//!
//! 1. An operator's command asks for the survey ([`Restored::survey`]): the node's part in the agreement, with a random
//!    number. The copies themselves are the shards'.
//! 2. With the choice among the copies of all nodes it begins the release ([`Restored::begin`]): births are drawn for
//!    the stores, and the shards adopt the chosen groups under them.
//! 3. When all shards have done so, the release ends ([`Restored::end`]), and the stores keep these births.
//!
//! Invariant: a release is that of the node's last survey. So of two commands at once, the one that has surveyed a node
//! last sees all that the other one has changed there, and the other one changes nothing more.
//!
//! A survey is not kept through a restart: the command begins again.

use super::births::Births;
use super::operator::Answered;
use ::membership::Membership;
use ::membership::state::State;
use base::Rng;
use bytes::Bytes;
use node::Adoption;
use ring::NodeId;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The groups that a restored node goes on with, in a request's body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    survey: String,
    /// The epoch of each founding, by n_val.
    epochs: BTreeMap<u8, u16>,
    /// The prefixes of the chosen groups, by n_val.
    groups: BTreeMap<u8, Vec<u16>>,
}

/// The warning of a node that holds its groups back, for the log.
const HELD: &str = "this node was restored: it takes part in no group of consistent bucket types until `annulet admin \
                    strong recover --all` is run, when all nodes are up";

/// The last survey of this node.
#[derive(Default)]
pub(super) struct Restored {
    survey: Option<u64>,
    has_warned: bool,
}

impl Restored {
    /// The warning for the log, once.
    pub(super) fn warning(&mut self, is_held: bool) -> Option<&'static str> {
        (is_held && !std::mem::replace(&mut self.has_warned, true)).then_some(HELD)
    }

    /// Answers an operator: this node's part in the agreement on groups.
    pub(super) fn survey(&mut self, membership: &Membership, births: &Births, rng: &mut dyn Rng) -> Answered {
        let Some(state) = membership.state() else { return unknown() };
        let own = membership.log().identity();
        let survey = rng.next_u64();
        self.survey = Some(survey);
        let registration = state.registration(own.node).filter(|it| it.start == own.start);
        let numbers = registration.map(|it| it.stores.births.iter()).into_iter().flatten();
        Answered::ok(json!({
            "survey": format!("{survey:016x}"),
            "cluster": state.cluster().to_string(),
            "here": name(state, own.node),
            "node": own.node.0,
            "held": births.are_held(state),
            "registered": registration.is_some(),
            "births": numbers.map(|birth| format!("{:012x}", birth.number())).collect::<Vec<_>>(),
            "prefixes": state.prefixes().partitions(),
            "foundings": foundings(state),
        }))
    }

    /// Checks an operator's choice, and draws the births for it.
    pub(super) fn begin(
        &self,
        body: &Bytes,
        membership: &Membership,
        births: &mut Births,
    ) -> Result<(u64, Adoption), Answered> {
        let wanted: Wanted = serde_json::from_slice(body)
            .map_err(|error| Answered::wrong(400, format!("the body: {error}")))?;
        let state = membership.state().ok_or_else(unknown)?;
        let survey = u64::from_str_radix(&wanted.survey, 16).ok().filter(|it| self.survey == Some(*it));
        let survey = survey.ok_or_else(another)?;
        if !births.are_held(state) {
            return Err(Answered::wrong(409, "the groups of this node are not held back"));
        }
        let epochs: BTreeMap<u8, u16> = state.foundings().map(|(n_val, it)| (n_val, it.epoch)).collect();
        if epochs != wanted.epochs {
            return Err(Answered::wrong(
                409,
                "the foundings of this node are of other epochs: survey it again",
            ));
        }
        let groups = wanted.groups.into_iter();
        let groups = groups.flat_map(|(n_val, prefixes)| prefixes.into_iter().map(move |it| (n_val, it)));
        Ok((survey, Adoption { births: births.draw(), epochs, groups: groups.collect() }))
    }

    /// Ends the hold, when the shards have adopted the groups of a choice.
    pub(super) fn end(
        &mut self,
        survey: u64,
        adoption: &Adoption,
        membership: &Membership,
        births: &mut Births,
    ) -> Answered {
        let Some(state) = membership.state() else { return unknown() };
        if self.survey != Some(survey) || !births.are_held(state) {
            return another();
        }
        self.survey = None;
        births.release(adoption.births.clone());
        Answered::ok(json!({ "groups": adoption.groups.len() }))
    }
}

/// The foundings: their groups are those of all prefixes.
fn foundings(state: &State) -> Vec<Value> {
    let founding = |(n_val, it): (u8, &::membership::state::Founding)| {
        json!({
            "n_val": n_val,
            "number": format!("{:016x}", it.number),
            "epoch": it.epoch,
            "nodes": it.stores.keys().map(|&node| name(state, node)).collect::<Vec<_>>(),
            "copies": usize::from(n_val).min(it.stores.len()),
        })
    };
    state.foundings().map(founding).collect()
}

/// A member's name; the number of one that is forgotten.
fn name(state: &State, node: NodeId) -> String {
    state.members().get(&node).map_or_else(|| node.to_string(), |it| it.member.name.to_string())
}

fn unknown() -> Answered {
    Answered::wrong(503, "this node does not know the cluster's current state")
}

fn another() -> Answered {
    Answered::wrong(
        409,
        "another recovery has surveyed this node since, or the node was started anew: begin again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_node_warns_once_and_names_the_command() {
        let mut restored = Restored::default();
        assert_eq!(restored.warning(false), None);
        let text = restored.warning(true).unwrap_or_default();
        assert!(text.contains("`annulet admin strong recover --all`"), "{text}");
        assert_eq!(restored.warning(true), None);
    }
}
