//! The preference list of an object, as Riak 2 tells it by HTTP; Riak 3 does by protocol buffers alone.

use kv::{Error, Response};
use protocol::http::{Answer, Connection};
use serde_json::json;

use super::fault::Fault;

/// Writes the answer.
pub(super) fn respond(result: Result<Response, Error>, connection: Connection, out: &mut Vec<u8>) {
    match result {
        Ok(Response::Preflist(entries)) => {
            let entry = |it: &kv::PreflistEntry| json!({ "partition": it.partition, "node": &*it.node, "primary": it.primary });
            let list: Vec<_> = entries.iter().map(entry).collect();
            let mut answer = Answer::new(out, connection, 200);
            answer.header("Vary", "Accept-Encoding");
            answer.header("Content-Type", "application/json");
            answer.body(json!({ "preflist": list }).to_string().as_bytes());
        }
        Ok(other) => unreachable!("the node was asked for a preference list and answered {other:?}"),
        Err(error) => Fault::from(&error).write(connection, out),
    }
}
