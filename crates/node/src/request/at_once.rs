//! Requests that are answered from memory.

use crate::shard::env::Env;
use kv::{Error, PreflistEntry, Request, Response};
use std::sync::Arc;

/// The answer.
pub(crate) fn answer_at_once(env: &Env, request: Request) -> Result<Response, Error> {
    match request {
        Request::GetProps(bucket) => {
            env.knobs.limits.check_bucket(&bucket)?;
            env.props.get(&bucket).map(|props| Response::Props(Arc::clone(props)))
        }
        Request::GetTypeProps(name) => {
            env.props.of_type(&name).map(|props| Response::Props(Arc::clone(props)))
        }
        Request::ListMembers => Ok(Response::Members(members(env))),
        Request::ListTypes => Ok(Response::Types(env.props.types(env.peers.all_up()))),
        Request::GetPreflist(bucket, key) => {
            env.knobs.limits.check_names(&bucket, &key)?;
            let n_val = usize::try_from(env.props.get(&bucket)?.n_val).unwrap_or(usize::MAX);
            let list = env.topology.ring.preflist_of_key(&bucket.bucket_type, &bucket.name, &key, n_val);
            let entry = |place: ring::PreflistEntry| PreflistEntry {
                partition: place.partition.0,
                node: Arc::clone(env.topology.members.name(place.node)),
                primary: place.primary,
            };
            Ok(Response::Preflist(list.map(entry).collect()))
        }
        other => unreachable!("{other:?} is not answered from memory"),
    }
}

fn members(env: &Env) -> Vec<kv::Member> {
    let members = &env.topology.members;
    let member = |node| {
        let here = node == members.here();
        kv::Member { name: Arc::clone(members.name(node)), here, up: here || env.peers.is_up(node) }
    };
    members.all().map(member).collect()
}
