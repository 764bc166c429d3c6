//! Stores that an operator declares lost, so that groups may be recovered without them.
//!
//! 1. The request names members. They are other members, and none of them is reached.
//! 2. Births that no store has are registered for each of them ([`Command::RegisterStores`]). A lost store that comes
//!    back has another birth than the registered one, so it begins as another voter, without data.
//! 3. The epoch of each founding is raised ([`Command::RaiseEpoch`]): groups that are recovered later begin in it.
//!
//! Invariant: a founding's epoch is raised only when the lost stores are not registered any more.
//!
//! Left out: proposals and their repetition (`founding.rs`); the recovery itself, which is done at stopped nodes.

use super::operator::Answered;
use ::membership::Membership;
use ::membership::state::{Command, State, StoreBirths};
use base::Rng;
use bytes::Bytes;
use ring::{Birth, NodeId};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

/// The members whose stores are lost, in a request's body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    nodes: Vec<String>,
    accept_loss: bool,
}

/// Stores that are declared lost.
pub(super) struct Loss {
    /// The stores as they are registered now.
    stores: BTreeMap<NodeId, StoreBirths>,
    /// The epochs of the foundings now.
    epochs: BTreeMap<u8, u16>,
}

impl Loss {
    /// The loss that a request declares. A request without the acceptance of the loss is answered at once.
    pub(super) fn of(body: &Bytes, membership: &Membership) -> Result<Loss, Answered> {
        let declared: Declared = serde_json::from_slice(body)
            .map_err(|error| Answered::wrong(400, format!("the body: {error}")))?;
        let Some(state) = membership.state() else {
            return Err(Answered::wrong(503, "this node does not know the cluster's current state"));
        };
        let here = membership.log().identity().node;
        let is_reached = |node: NodeId| node == here || membership.detector().up().contains(&node);
        let loss = Loss::checked(&declared.nodes, state, is_reached)?;
        if declared.accept_loss { Ok(loss) } else { Err(Answered::ok(json!({ "declared": false }))) }
    }

    /// The loss of these members' stores.
    fn checked(
        names: &[String],
        state: &State,
        is_reached: impl Fn(NodeId) -> bool,
    ) -> Result<Loss, Answered> {
        if state.foundings().next().is_none() {
            return Err(Answered::wrong(
                409,
                "there are no consistent bucket types: no store needs to be declared",
            ));
        }
        let mut stores = BTreeMap::new();
        for name in names {
            let found = state.members().values().find(|record| *record.member.name == **name);
            let node = found.map(|record| record.member.id);
            let node = node.ok_or_else(|| Answered::wrong(404, format!("{name} is no member")))?;
            if is_reached(node) {
                return Err(Answered::wrong(409, format!("{name} is reached: its stores are not lost")));
            }
            stores.extend(state.last_registration(node).map(|it| (node, it.stores.clone())));
        }
        let epochs = state.foundings().map(|(n_val, founding)| (n_val, founding.epoch)).collect();
        Ok(Loss { stores, epochs })
    }

    /// The next command; none if the state has the loss.
    pub(super) fn next(&self, state: &State, rng: &mut dyn Rng) -> Option<Command> {
        for (&node, lost) in &self.stores {
            let Some(record) = state.members().get(&node) else { continue };
            if state.last_registration(node).is_some_and(|it| it.stores == *lost) {
                let births = lost.births.iter().map(|_| Birth::draw(rng)).collect();
                let stores = StoreBirths { ring_bits: lost.ring_bits, births };
                return Some(Command::RegisterStores {
                    node,
                    starts: record.starts,
                    start: record.start,
                    stores,
                });
            }
        }
        let is_to_raise =
            |(n_val, epoch): &(&u8, &u16)| state.founding(**n_val).is_some_and(|it| it.epoch == **epoch);
        let raised = self.epochs.iter().find(is_to_raise);
        raised.map(|(&n_val, &expected)| Command::RaiseEpoch { n_val, expected })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use ::membership::ClusterId;
    use base::rng::SplitMix64;
    use ring::RingSize;

    fn births(state: &State, node: u16) -> Vec<u64> {
        let registration = state.last_registration(NodeId(node)).unwrap();
        registration.stores.births.iter().map(|it| it.number()).collect()
    }

    /// Three members with two stores each; groups are founded if there is an n_val.
    fn state(n_val: Option<u8>) -> State {
        let nodes = [("a@h", "", ""), ("b@h", "", ""), ("c@h", "", "")];
        let size = (RingSize::new(8).unwrap(), RingSize::new(128).unwrap());
        let mut state = State::found_by(ClusterId(7), size, nodes).unwrap();
        state.apply(&Command::PrepareStores).unwrap();
        for node in [0, 1, 2] {
            let (starts, start) = (1, u64::from(node) + 5);
            let births = [1, 2].map(|it| Birth::of(10 * u64::from(node) + it).unwrap()).into();
            let (node, stores) = (NodeId(node), StoreBirths { ring_bits: 3, births });
            state.apply(&Command::Started { node, starts, start, address: String::new() }).unwrap();
            state.apply(&Command::RegisterStores { node, starts, start, stores }).unwrap();
        }
        if let Some(n_val) = n_val {
            let expected = state.version();
            state.apply(&Command::FoundGroups { expected, n_val, number: 9 }).unwrap();
        }
        state
    }

    fn declared(state: &State, names: &[&str]) -> Result<Loss, (u16, String)> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let loss = Loss::checked(&names, state, |node| node == NodeId(0));
        loss.map_err(|it| (it.status, it.body["error"].as_str().unwrap().to_owned()))
    }

    #[test]
    fn lost_stores_are_given_up_before_the_epoch_is_raised() {
        let (mut state, mut rng) = (state(Some(3)), SplitMix64::new(1));
        let loss = declared(&state, &["b@h", "c@h"]).ok().unwrap();
        let mut raised = Vec::new();
        while let Some(command) = loss.next(&state, &mut rng) {
            state.apply(&command).unwrap();
            raised.push(state.founding(3).unwrap().epoch);
        }
        assert_eq!(raised, [0, 0, 1]);
        assert_eq!(births(&state, 0), [1, 2]);
        for (node, old) in [(1, [11, 12]), (2, [21, 22])] {
            assert!(births(&state, node).iter().all(|birth| !old.contains(birth)), "{node}");
        }
        let again = declared(&state, &["b@h"]).ok().unwrap();
        assert!(again.next(&state, &mut rng).is_some(), "a later loss begins another epoch");
    }

    #[test]
    fn losses_that_cannot_be_are_refused() {
        let refused = |state: &State, names: &[&str]| declared(state, names).err().unwrap();
        let state_of_3 = state(Some(3));
        assert_eq!(refused(&state_of_3, &["b@h", "d@h"]), (404, "d@h is no member".to_owned()));
        let reached = (409, "a@h is reached: its stores are not lost".to_owned());
        assert_eq!(refused(&state_of_3, &["a@h"]), reached);
        assert_eq!(refused(&state(None), &["b@h"]).0, 409);
    }
}
