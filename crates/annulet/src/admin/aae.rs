//! `annulet admin aae-status`, `aae-repair`, `aae-rebuild`: a node's hash trees, with which it finds what it and others hold
//! differently.

use super::cluster::{Shown, each, taken};
use super::table::{cell, table};
use crate::failure::Failure;
use crate::plural::{count, len};
use serde_json::{Value, json};

/// Partitions to compare.
#[derive(clap::Args)]
pub struct Repair {
    #[command(flatten)]
    shown: Shown,
    /// Number of one partition [default: all partitions of the node].
    #[arg(long, value_name = "NUMBER")]
    partition: Option<u32>,
}

/// Hash trees to rebuild.
#[derive(clap::Args)]
pub struct Rebuild {
    #[command(flatten)]
    repair: Repair,
    /// Check of values: none, presence (each value exists) or values (each value is read) [default: the node's option
    /// tree-rebuild-check].
    #[arg(long, value_name = "none|presence|values")]
    check: Option<String>,
}

/// Shows how it stands with the trees of each partition that the node holds.
pub fn status(shown: &Shown) -> Result<(), Failure> {
    let status = shown.ask("/admin/aae")?;
    shown.tell(&status["trees"], || {
        let sum = |name: &str| each(&status["trees"]).filter_map(|tree| tree[name].as_u64()).sum::<u64>();
        let rows: Vec<Vec<String>> = each(&status["trees"]).map(row).collect();
        format!(
            "{}\n\n{}, {}; {} found to differ, {} repaired, {} found damaged",
            table(
                &[
                    "partition",
                    "shard",
                    "keys",
                    "made",
                    "check",
                    "compared",
                    "with",
                    "differed",
                    "repaired",
                    "damaged",
                    "state",
                ],
                &rows,
            ),
            len(rows.len(), "partition"),
            count(sum("keys"), "key"),
            sum("differed"),
            sum("repaired"),
            count(sum("damaged"), "value"),
        )
    })
}

fn row(tree: &Value) -> Vec<String> {
    let state = match (tree["whole"] == true, tree["due"] == true) {
        (true, false) => "whole",
        (true, true) => "to be made anew",
        _ => "to be made",
    };
    let of = |name: &str| cell(&tree[name]);
    vec![
        of("partition"),
        of("shard"),
        of("keys"),
        ago(&tree["made_ago_seconds"]),
        of("check"),
        ago(&tree["compared_ago_seconds"]),
        of("compared_with"),
        of("differed"),
        of("repaired"),
        of("damaged"),
        state.to_owned(),
    ]
}

/// A time that has passed since, in its largest unit.
fn ago(seconds: &Value) -> String {
    match seconds.as_u64() {
        None => "-".to_owned(),
        Some(seconds @ 0..120) => format!("{seconds}s ago"),
        Some(seconds @ 120..7200) => format!("{}m ago", seconds / 60),
        Some(seconds @ 7200..172_800) => format!("{}h ago", seconds / 3600),
        Some(seconds) => format!("{}d ago", seconds / 86_400),
    }
}

/// Has what the node holds compared with what others hold, now.
pub fn repair(args: &Repair) -> Result<(), Failure> {
    args.post("repair", json!({ "partition": args.partition }), "compared with the other nodes")
}

/// Has the trees made anew from what is stored, now.
pub fn rebuild(args: &Rebuild) -> Result<(), Failure> {
    let body = json!({ "partition": args.repair.partition, "check": args.check });
    args.repair.post("rebuild", body, "made anew, one after another in each shard")
}

impl Repair {
    fn post(&self, word: &str, body: Value, done: &str) -> Result<(), Failure> {
        let begun = taken(self.shown.post(&format!("/admin/aae/{word}"), &body)?)?;
        let partitions = begun["partitions"].as_u64().unwrap_or_default();
        self.shown.tell(&begun, || format!("{}: {done}", count(partitions, "partition")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_one_unit() {
        let all = [json!(null), json!(7), json!(125), json!(7300), json!(200_000)];
        assert_eq!(all.map(|seconds| ago(&seconds)), ["-", "7s ago", "2m ago", "2h ago", "2d ago"]);
    }
}
