//! The voters of groups, and their places, as the agreement has them.
//!
//! A voter is a store of a process that the cluster has registered. The first voters of a group are those that its
//! founding names. A group is named in messages by the number of its founding and its epoch.

use membership::state::Founding;
use strong::Endpoint;
use strong::envelope::GroupId;
use strong::group::{Birth, VoterId};
use strong::promise::Process;

use super::group::GroupKey;
use crate::peer::NodeId;
use crate::shard::env::Env;

/// The number of a founding by which its groups of an epoch are named in messages: those of another epoch are of
/// another number, so members of two epochs do not hear each other.
pub(super) fn number_of(founding: &Founding, epoch: u16) -> u64 {
    founding.number.wrapping_add(epoch.into())
}

/// The epoch of a group that a message names by such a number; none of another founding, or of an epoch that did not
/// begin yet as far as this founding knows.
fn epoch_in(founding: &Founding, number: u64) -> Option<u16> {
    let epoch = u16::try_from(number.wrapping_sub(founding.number)).ok()?;
    (epoch <= founding.epoch).then_some(epoch)
}

/// The epoch of a group that is named in a message, if the agreement has it.
pub(super) fn epoch_of(env: &Env, id: &GroupId) -> Option<u16> {
    epoch_in(env.agreement.foundings.get(&id.n_val)?, id.founding)
}

/// Whether this shard's store has the keys of a prefix.
pub(super) fn is_here(env: &Env, prefix: u16) -> bool {
    env.knobs.layout.shard_of(prefix) == env.knobs.id.0
}

/// This shard of this process.
pub(super) fn endpoint_here(env: &Env) -> Endpoint {
    Endpoint { life: env.peers.life(), shard: env.knobs.id.0 }
}

/// The shard of a registered process that holds the keys of a prefix.
pub(super) fn endpoint_of(env: &Env, node: NodeId, prefix: u16) -> Option<Endpoint> {
    let process = env.agreement.processes.get(&node)?;
    let shard = process.stores.shard_of_prefix(prefix, env.knobs.layout.prefixes);
    Some(Endpoint { life: process.life, shard })
}

/// Whether a process is the one that the cluster has registered for a node.
pub(super) fn is_registered(env: &Env, node: NodeId, life: u64) -> bool {
    env.agreement.processes.get(&node).is_some_and(|process| process.life == life)
}

/// The voter that the registered store of a node is, for the group of a prefix.
pub(super) fn voter_of(env: &Env, node: NodeId, prefix: u16) -> Option<VoterId> {
    let process = env.agreement.processes.get(&node)?;
    Some(VoterId { node, birth: process.stores.of_prefix(prefix, env.knobs.layout.prefixes) })
}

/// The voter that a process is in a group; none if the cluster has registered another one of its node.
pub(super) fn voter_of_process(env: &Env, process: Process, key: GroupKey) -> Option<VoterId> {
    is_registered(env, process.node, process.life).then(|| voter_of(env, process.node, key.prefix)).flatten()
}

/// Whether the node of a voter has registered another one.
pub(super) fn is_lost(env: &Env, key: GroupKey, voter: VoterId) -> bool {
    voter_of(env, voter.node, key.prefix).is_some_and(|it| it != voter)
}

/// Whether a sender's store is not the one that its node has registered, as far as this node has heard. A process that
/// has lost a store draws another birth for it, so the process does not tell one from the other.
pub(super) fn is_of_another_store(env: &Env, (from, birth): (NodeId, Option<Birth>), prefix: u16) -> bool {
    birth.is_some_and(|birth| voter_of(env, from, prefix) != Some(VoterId { node: from, birth }))
}

/// The first voters of a group in the order of the prefix's list, if its n_val is founded.
pub(super) fn first_voters(env: &Env, key: GroupKey) -> Option<Vec<VoterId>> {
    let founding = env.agreement.foundings.get(&key.n_val)?;
    let voters = founding.voters(key.n_val, key.prefix, env.knobs.layout.prefixes);
    Some(voters.into_iter().map(|(node, birth)| VoterId { node, birth }).collect())
}

/// The voters that the nodes of a group have now, in the order of the prefix's list: the registered ones, and the
/// first ones of nodes without a registration.
pub(super) fn voters(env: &Env, key: GroupKey) -> Option<Vec<VoterId>> {
    let now = |first: VoterId| voter_of(env, first.node, key.prefix).unwrap_or(first);
    Some(first_voters(env, key)?.into_iter().map(now).collect())
}

/// The registered ones of some voters.
pub(super) fn registered(env: &Env, key: GroupKey, voters: &[VoterId]) -> Vec<VoterId> {
    voters.iter().copied().filter(|it| voter_of(env, it.node, key.prefix) == Some(*it)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_epoch_of_their_group() {
        let (owners, stores) = (Vec::new().into(), std::sync::Arc::default());
        let founding = Founding { number: u64::MAX, epoch: 2, owners, stores };
        for epoch in 0..=2 {
            assert_eq!(epoch_in(&founding, number_of(&founding, epoch)), Some(epoch));
        }
        assert_eq!(number_of(&founding, 0), founding.number, "the first epoch needs no other number");
        assert_eq!(epoch_in(&founding, number_of(&founding, 3)), None, "it has not begun");
        assert_eq!(epoch_in(&founding, founding.number - 1), None, "another founding");
    }
}
