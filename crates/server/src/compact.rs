//! Compaction of a node's stores at an operator's request ([`engine::Store::reclaim`]).
//!
//! Every shard is asked in its box and answers in its own turn; the answer to the operator waits for all of them. Each
//! shard goes on by itself.

use crate::mailbox::{Mail, Mailboxes};
use crate::membership::Answered;
use engine::store::Reclaimed;
use node::http::CompactPage;
use node::{Shard, ShardId};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a shard may take to answer: it does at the end of its turn, unless its thread hangs.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The state of a shard's compaction, or the reason why it does not begin.
pub type CompactTold = Result<Reclaimed, engine::Error>;

/// Asks a shard.
pub fn put_to(page: CompactPage, shard: &mut Shard) -> CompactTold {
    if page == CompactPage::Begin {
        shard.control().reclaim()?;
    }
    Ok(shard.status().reclaimed())
}

/// The compactions of all shards.
pub struct Compactions {
    shards: u16,
    mailboxes: Arc<Mailboxes>,
}

impl Compactions {
    /// Of a node with so many shards.
    pub fn new(shards: u16, mailboxes: Arc<Mailboxes>) -> Compactions {
        Compactions { shards, mailboxes }
    }

    /// Answers an operator.
    pub async fn ask(&self, page: CompactPage) -> Answered {
        let mut asked = Vec::new();
        for shard in (0..self.shards).map(ShardId) {
            let (tell, told) = oneshot::channel();
            self.mailboxes.of(shard).put(&mut vec![Mail::Compact(page, tell)]);
            asked.push((shard, told));
        }
        let mut all = Reclaimed::default();
        for (shard, told) in asked {
            match tokio::time::timeout(ANSWER_MAX, told).await {
                Ok(Ok(Ok(told))) => add(&mut all, told),
                Ok(Ok(Err(error))) => return Answered::wrong(409, format!("shard {}: {error}", shard.0)),
                _ => return Answered::wrong(503, format!("shard {} does not answer", shard.0)),
            }
        }
        let status = if page == CompactPage::Begin { 202 } else { 200 };
        let state = match (all.is_running, all.bytes_before) {
            (true, _) => "running",
            (false, 0) => "none",
            (false, _) => "done",
        };
        let body = json!({
            "state": state,
            "bytes_before": all.bytes_before,
            "bytes": all.bytes,
            "segments_held": all.segments_held,
            "error": all.failure.map(|error| error.to_string()),
        });
        Answered { status, body }
    }
}

fn add(all: &mut Reclaimed, told: Reclaimed) {
    all.is_running |= told.is_running;
    all.bytes_before += told.bytes_before;
    all.bytes += told.bytes;
    all.segments_held += told.segments_held;
    all.failure = all.failure.take().or(told.failure);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_at_it_as_long_as_any_shard_is() {
        let of =
            |is_running, bytes| Reclaimed { is_running, bytes_before: 10, bytes, ..Reclaimed::default() };
        let mut all = Reclaimed::default();
        [of(false, 3), of(true, 10), of(false, 4)].into_iter().for_each(|told| add(&mut all, told));
        assert_eq!(all, Reclaimed { is_running: true, bytes_before: 30, bytes: 17, ..Reclaimed::default() });
    }
}
