//! This shard's part in the promises between processes: blocks that leave and come, and reads by lease.
//!
//! All shards of a process share one pair of tables (`lease_config.rs`). Each envelope and each ping to another process
//! carries a block, so the traffic of any group and any shard renews the promises of all groups of the two processes.
//!
//! 1. A block is made when its frame leaves (`block_to`), by a reading of the lease clock from before that.
//! 2. A block that comes is taken before the groups take the messages of its envelope (`hear`).
//! 3. A read that came to a leader with a lease is looked up at once (`consistent/requests/`). Its voters' nodes count
//!    as in use then, so pings go on and renew their promises. A node that serves nothing lets its leases lapse.
//! 4. Each turn of a shard brings a reading of the clock, by which its groups close promises.
//! 5. With each tick a shard says until when it ticks again: a process with a shard that hangs asks for no promises.
//!
//! Invariant: readings of the lease clock are compared with each other only.
//!
//! Without consistent types there are no blocks, and the clock is not read.
//!
//! Left out: the rules and their argument, which crate `strong` and decision 105 have.

use std::time::Duration;

use base::Monotonic;
use strong::group::StrongReads;
use strong::promise::{Block, Process, Renewal};

use crate::peer::{NodeId, PromiseBlock};
use crate::shard::env::Env;

/// The interval at which a shard that has something to do looks at the time.
const BUSY_TICK: Duration = Duration::from_millis(100);

/// The same of a shard that rests.
const QUIET_TICK: Duration = Duration::from_millis(1_024);

/// The block of an envelope to a process; none without consistent types.
pub(crate) fn block_to(env: &Env, to: Process) -> Option<Block> {
    if env.agreement.foundings.is_empty() {
        return None;
    }
    let wants = env.leases.reads == StrongReads::Lease;
    Some(env.leases.tables.block(to, env.clock.lease(), wants))
}

/// The block of a ping to a process of a node; none if the process is not known yet.
pub(crate) fn ping_block_to(env: &Env, node: NodeId, life: u64) -> Option<PromiseBlock> {
    let process = Process { node, life };
    block_to(env, process).filter(|_| life != 0).map(|block| PromiseBlock { life, block })
}

/// Takes the block of a frame to this process.
pub(crate) fn hear(env: &mut Env, from: Process, block: &Block) {
    let renewal = env.leases.tables.hear(from, block, env.clock.lease());
    env.counters.consistent_promises_lapsed += u64::from(renewal == Renewal::Lapsed);
}

/// Takes the block of a ping, unless it is for an earlier process.
pub(crate) fn hear_ping(env: &mut Env, from: NodeId, life: u64, promise: Option<&PromiseBlock>) {
    if let Some(promise) = promise.filter(|promise| promise.life == env.peers.life()) {
        hear(env, Process { node: from, life }, &promise.block);
    }
}

/// Says until when this shard ticks again.
pub(crate) fn tick(env: &Env) {
    if env.agreement.foundings.is_empty() {
        return;
    }
    let within = if env.peers.is_quiet() { QUIET_TICK } else { BUSY_TICK };
    let now = env.clock.lease();
    env.leases.tables.note_turn(env.knobs.id.0, now, within);
}

/// Notes the processes that the cluster has registered.
pub(crate) fn register(env: &Env) {
    let now: Monotonic = env.clock.lease();
    for (&node, process) in env.agreement.processes.iter() {
        env.leases.tables.register(Process { node, life: process.life }, now);
    }
}
