//! Hints on their way to the disk: for each primary that was away, an entry of the ledger without content.
//!
//! A hint is written in one batch with the version that it is about, where that is written here. While the disk has no
//! room for a hint it is remembered, and written when there is.

use super::task::Task;
use crate::peer::NodeId;
use crate::shard::effect::Effect;
use crate::shard::env::Env;
use crate::topology::nodes;
use bytes::Bytes;
use engine::{Error, Seq, Write};
use object::key;
use std::collections::VecDeque;

/// Hints that are remembered while the disk has no room for them: some megabytes. Each was a coordinator's a moment
/// ago.
const UNKEPT_MAX: usize = 16_384;

/// The ledger keys of hints about a key, which are about to be written.
pub(crate) fn hint_keys(env: &mut Env, nodes: &[NodeId], object_key: &[u8]) -> Vec<Vec<u8>> {
    let prefix = key::prefix_of(object_key);
    env.raise(Effect::HintsKept { prefix, nodes: nodes.to_vec() });
    env.counters.hints += nodes.len() as u64;
    nodes.iter().map(|node| key::hint(node.0, object_key)).collect()
}

fn write_hints(env: &mut Env, object_key: &[u8], nodes: &[NodeId]) -> Result<Seq, Error> {
    let keys = hint_keys(env, nodes, object_key);
    let writes: Vec<_> = keys.iter().map(|key| Write::Put { key, head: &[], value: &[] }).collect();
    env.store.write(&writes)
}

/// Keeps a hint for all others that have the partition, in one batch with other writes.
pub(crate) fn hint_for_all(
    env: &mut Env,
    key: &Bytes,
    prefix: u16,
    n_val: u32,
    more: &[Write<'_>],
) -> Result<Seq, Error> {
    let mut nodes = nodes(&env.topology.ring, env.ownership().position(prefix), n_val);
    nodes.retain(|&other| other != env.peers.here());
    let keys = hint_keys(env, &nodes, key);
    let hints = keys.iter().map(|key| Write::Put { key, head: &[], value: &[] });
    let writes: Vec<_> = hints.chain(more.iter().copied()).collect();
    env.store.write(&writes)
}

/// Hints that could not be written yet: keys, and the nodes that they are for.
#[derive(Default)]
pub(crate) struct UnkeptHints(VecDeque<(Bytes, Vec<NodeId>)>);

impl UnkeptHints {
    /// Keeps hints about the object that is stored here under the task's key.
    pub fn keep(&mut self, env: &mut Env, task: &Task, nodes: &[NodeId]) -> Result<Seq, Error> {
        let written = write_hints(env, &task.key, nodes);
        match written {
            Err(Error::Exhausted(_)) if self.0.len() < UNKEPT_MAX => {
                self.0.push_back((task.key.clone(), nodes.to_vec()));
            }
            Err(_) => env.counters.hints_lost += nodes.len() as u64,
            Ok(_) => {}
        }
        written
    }

    /// Writes those that there is room for now.
    pub fn tick(&mut self, env: &mut Env) {
        while let Some((key, nodes)) = self.0.pop_front() {
            // They were counted when they were to be kept first.
            env.counters.hints -= nodes.len() as u64;
            match write_hints(env, &key, &nodes) {
                Ok(_) => {}
                Err(Error::Exhausted(_)) => return self.0.push_front((key, nodes)),
                Err(_) => env.counters.hints_lost += nodes.len() as u64,
            }
        }
    }

    /// Whether a hint about this key is yet to be written.
    pub fn are_about(&self, key: &Bytes) -> bool {
        self.0.iter().any(|(about, _)| about == key)
    }
}
