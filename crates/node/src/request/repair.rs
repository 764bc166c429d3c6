//! Reads for no client, so that the replicas of a key are repaired.

use super::task::{Coordinator, Task, placed};
use crate::shard::env::Env;
use crate::shard::reply_to::ReplyTo;
use ::object::key;
use bytes::Bytes;
use kv::GetRequest;
use std::sync::Arc;
use std::time::Duration;

/// How long a key's replicas may take.
const REPAIR_MAX: Duration = Duration::from_secs(10);

impl Task {
    /// A read of a key for no client. `None` if it is no object's key, if its bucket is not known, or if its partition
    /// moves: the new owner reads all of that.
    pub fn repair(key: Bytes, reply_to: ReplyTo, env: &Env) -> Option<Task> {
        let (prefix, bucket) = placed(&key).ok()?;
        let name = key::decode_object_key(&key).map(|parts| key.slice_ref(parts.key)).ok()?;
        let props = env.props.get_as_replica(&bucket).map(Arc::clone).ok()?;
        if env.ownership().is_moving(prefix, props.n_val) {
            return None;
        }
        // An exchange finds heads that differ, and a tombstone has no value: a value is read where one is
        // to be sent.
        let head = reply_to != ReplyTo::Nobody;
        let request = GetRequest { head, ..GetRequest::new(bucket, name) };
        let mut task = Task::new(reply_to, Coordinator::get(request), key, props, env.now() + REPAIR_MAX);
        task.epoch = Some(env.topology.epoch);
        Some(task)
    }
}
