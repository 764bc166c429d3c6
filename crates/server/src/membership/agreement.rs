//! Publication of the agreement on consistent groups to this node's shards.
//!
//! 1. Nothing is published before the log has this process as the node's last start. Its number is drawn at random at
//!    each start, so only the log can have it: the state of the own folder is not taken for the cluster's.
//! 2. From then on each change of the foundings or of the registered processes is put down for all shards
//!    ([`Mail::Agreement`]).
//!
//! Left out: its use by a shard (`node::consistent`).

use super::births::is_last_start;
use crate::mailbox::{Mail, Mailboxes};
use ::membership::log::Identity;
use ::membership::state::{Founding, State};
use node::{Agreement, RegisteredProcess};
use ring::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The agreement that shards were told last.
#[derive(Default)]
pub(super) struct AgreementPublisher {
    is_confirmed: bool,
    published: Agreement,
}

impl AgreementPublisher {
    /// Puts the agreement of a state down, if it is another one than before.
    pub(super) fn publish(&mut self, state: &State, own: &Identity, mailboxes: &Mailboxes) {
        if let Some(agreement) = self.news(state, own) {
            mailboxes.put_all(|| Mail::Agreement(Arc::clone(&agreement)));
        }
    }

    fn news(&mut self, state: &State, own: &Identity) -> Option<Arc<Agreement>> {
        if !state.registers_stores() {
            return None;
        }
        let record = state.members().get(&own.node)?;
        self.is_confirmed |= is_last_start(record, own);
        if !self.is_confirmed {
            return None;
        }
        let foundings: BTreeMap<u8, Founding> =
            state.foundings().map(|(n_val, founding)| (n_val, founding.clone())).collect();
        let agreement = Agreement { foundings: Arc::new(foundings), processes: Arc::new(processes(state)) };
        if agreement == self.published {
            return None;
        }
        self.published = agreement.clone();
        Some(Arc::new(agreement))
    }
}

/// The last registered process of each member, unless an earlier one has made the registration.
fn processes(state: &State) -> BTreeMap<NodeId, RegisteredProcess> {
    let registered = |&node: &NodeId| {
        let registration = state.registration(node)?;
        let process = RegisteredProcess { life: registration.start, stores: registration.stores.clone() };
        Some((node, process))
    };
    state.members().keys().filter_map(registered).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use ::membership::ClusterId;
    use ::membership::state::{Command, StoreBirths};
    use ring::{Birth, RingSize};

    const OWN: u64 = 0xA;

    fn own() -> Identity {
        Identity { cluster: ClusterId(7), node: NodeId(0), starts: 2, start: OWN, address: String::new() }
    }

    fn start(node: u16, starts: u32, start: u64) -> Command {
        Command::Started { node: NodeId(node), starts, start, address: String::new() }
    }

    fn register(node: u16, starts: u32, start: u64) -> Command {
        let births = [Birth::of(u64::from(node) + 1).unwrap()].into();
        let stores = StoreBirths { ring_bits: 3, births };
        Command::RegisterStores { node: NodeId(node), starts, start, stores }
    }

    fn lives(agreement: &Agreement) -> Vec<(u16, u64)> {
        agreement.processes.iter().map(|(node, process)| (node.0, process.life)).collect()
    }

    #[test]
    fn shards_are_told_when_the_log_has_this_start_and_then_of_each_change() {
        let size = (RingSize::new(8).unwrap(), RingSize::new(128).unwrap());
        let mut state = State::found_by(ClusterId(7), size, [("a@h", "", ""), ("b@h", "", "")]).unwrap();
        let mut publisher = AgreementPublisher::default();
        let apply = |state: &mut State, commands: &[Command]| {
            commands.iter().for_each(|command| state.apply(command).unwrap());
        };
        apply(&mut state, &[start(0, 1, 1), start(1, 1, 5)]);
        assert_eq!(publisher.news(&state, &own()), None, "no consistent type is wanted");
        apply(&mut state, &[Command::PrepareStores, register(0, 1, 1), register(1, 1, 5)]);
        assert_eq!(publisher.news(&state, &own()), None, "the folder's state names the process before");
        apply(&mut state, &[start(0, 2, OWN)]);
        let told = publisher.news(&state, &own()).unwrap();
        assert_eq!(lives(&told), [(1, 5)], "the registration of the process before counts for nothing");
        assert_eq!(publisher.news(&state, &own()), None, "nothing new");
        apply(&mut state, &[register(0, 2, OWN)]);
        assert_eq!(lives(&publisher.news(&state, &own()).unwrap()), [(0, OWN), (1, 5)]);
        let expected = state.version();
        apply(&mut state, &[Command::FoundGroups { expected, n_val: 3, number: 9 }]);
        let told = publisher.news(&state, &own()).unwrap();
        assert_eq!((told.foundings.len(), told.foundings[&3].number), (1, 9));
        apply(&mut state, &[start(1, 2, 6)]);
        assert_eq!(lives(&publisher.news(&state, &own()).unwrap()), [(0, OWN)]);
        apply(&mut state, &[start(0, 3, 0xB)]);
        let told = publisher.news(&state, &own()).unwrap();
        assert!(told.processes.is_empty(), "another process of this node was started");
    }
}
