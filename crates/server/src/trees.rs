//! A node's hash trees, for operators: how it stands with them, and having them compared or made anew at once.
//!
//! Every shard is asked in its box, and answers in its own turn; whoever asks waits for all of them.

use crate::config::SettingValue as _;
use crate::mailbox::{Mail, Mailboxes};
use crate::membership::Answered;
use bytes::Bytes;
use engine::fold::JournalCheck;
use node::http::TreesPage;
use node::{Shard, ShardId, TreesStatus};
use ring::Partition;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a shard may take to answer: it does at the end of its turn, unless its thread hangs.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// What is asked of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreesAsk {
    /// Nothing but how it stands.
    Show,
    /// To compare those of a partition, or all.
    Compare(Option<Partition>),
    /// To make them anew, with this check.
    Rebuild(Option<Partition>, JournalCheck),
}

/// What it answers.
#[derive(Debug)]
pub struct TreesTold {
    /// How many partitions it was about.
    pub partitions: usize,
    /// How it stands with each.
    pub trees: Vec<TreesStatus>,
    /// The names of the nodes in there.
    pub names: Vec<Option<String>>,
}

impl TreesAsk {
    /// Asks a shard.
    pub fn put_to(self, shard: &mut Shard) -> TreesTold {
        let partitions = match self {
            TreesAsk::Show => 0,
            TreesAsk::Compare(partition) => shard.control().compare_trees(partition),
            TreesAsk::Rebuild(partition, check) => shard.control().rebuild_trees(partition, check),
        };
        let trees = shard.status().trees();
        let name = |status: &TreesStatus| status.compared.map(|(_, with)| shard.status().name_of(with));
        TreesTold { partitions, names: trees.iter().map(name).collect(), trees }
    }
}

/// What is asked for, in a request's body.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Wanted {
    partition: Option<u32>,
    check: Option<String>,
}

/// The trees of all shards.
pub struct NodeTrees {
    shards: u16,
    mailboxes: Arc<Mailboxes>,
    /// What a rebuild looks for unless it is told.
    check: JournalCheck,
}

impl NodeTrees {
    /// Of a node with so many shards.
    pub fn new(shards: u16, mailboxes: Arc<Mailboxes>, check: JournalCheck) -> NodeTrees {
        NodeTrees { shards, mailboxes, check }
    }

    /// Answers an operator.
    pub async fn ask(&self, page: TreesPage, body: &Bytes) -> Answered {
        match self.asked(page, body) {
            Ok(ask) => self.put(ask).await,
            Err(wrong) => wrong,
        }
    }

    fn asked(&self, page: TreesPage, body: &Bytes) -> Result<TreesAsk, Answered> {
        let wanted: Wanted = match body.is_empty() {
            true => Wanted::default(),
            false => serde_json::from_slice(body)
                .map_err(|error| Answered::wrong(400, format!("the body: {error}")))?,
        };
        let partition = wanted.partition.map(Partition);
        Ok(match page {
            TreesPage::Show => TreesAsk::Show,
            TreesPage::Compare => TreesAsk::Compare(partition),
            TreesPage::Rebuild => {
                let check = wanted.check.map_or(Ok(self.check), |name| JournalCheck::read(&name));
                let wrong = |what| Answered::wrong(400, format!("check: {what}"));
                TreesAsk::Rebuild(partition, check.map_err(wrong)?)
            }
        })
    }

    async fn put(&self, ask: TreesAsk) -> Answered {
        let mut asked = Vec::new();
        for shard in (0..self.shards).map(ShardId) {
            let (tell, told) = oneshot::channel();
            self.mailboxes.of(shard).put(&mut vec![Mail::Trees(ask, tell)]);
            asked.push((shard, told));
        }
        let (mut partitions, mut trees) = (0, Vec::new());
        for (shard, told) in asked {
            let Ok(Ok(told)) = tokio::time::timeout(ANSWER_MAX, told).await else {
                return Answered::wrong(503, format!("shard {} does not answer", shard.0));
            };
            partitions += told.partitions;
            trees.extend(told.trees.iter().zip(told.names).map(|(status, name)| shown(shard, status, name)));
        }
        trees.sort_by_key(|status| status["partition"].as_u64());
        if ask == TreesAsk::Show {
            return Answered { status: 200, body: json!({ "trees": trees }) };
        }
        match partitions {
            0 => Answered::wrong(
                409,
                "no hash trees for this now: the node is alone, they are still being built, or partitions move",
            ),
            _ => Answered { status: 202, body: json!({ "partitions": partitions }) },
        }
    }
}

fn shown(shard: ShardId, status: &TreesStatus, with: Option<String>) -> Value {
    let seconds = |time: Duration| time.as_secs();
    json!({
        "partition": status.partition.0,
        "shard": shard.0,
        "whole": status.is_whole,
        "due": status.is_due,
        "keys": status.keys,
        "made_ago_seconds": status.made.map(seconds),
        "check": status.check.as_ref().map(JournalCheck::show),
        "others": status.others,
        "damaged": status.damaged,
        "comparing": status.is_comparing,
        "compared_ago_seconds": status.compared.map(|(ago, _)| seconds(ago)),
        "compared_with": with,
        "differed": status.differed,
        "repaired": status.repaired,
    })
}
