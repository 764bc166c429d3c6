//! `annulet admin aae-status`, `aae-repair`, `aae-rebuild`: a node's hash trees, with which it finds what it and
//! others hold differently.

use super::cluster::{Shown, each, taken};
use super::table::{cell, table};
use crate::failure::{FAILED, Failure};
use crate::plural::{count, len};
use serde_json::{Value, json};
use std::time::Duration;

/// How often the node is asked whether a comparison is over.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Partitions of a node.
#[derive(clap::Args)]
struct Partitions {
    #[command(flatten)]
    shown: Shown,
    /// Number of one partition [default: all partitions of the node].
    #[arg(long, value_name = "NUMBER")]
    partition: Option<u32>,
}

/// Partitions to compare.
#[derive(clap::Args)]
pub struct Repair {
    #[command(flatten)]
    partitions: Partitions,
    /// Wait until they are compared and their differences are read.
    #[arg(long)]
    wait: bool,
}

/// Hash trees to rebuild.
#[derive(clap::Args)]
pub struct Rebuild {
    #[command(flatten)]
    partitions: Partitions,
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
        _ if tree["comparing"] == true => "being compared",
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

/// Has the node's partitions compared with those of others, now. With `--wait`, until that is over.
pub fn repair(args: &Repair) -> Result<(), Failure> {
    let Repair { partitions, wait } = args;
    let before = if *wait { Some(partitions.comparisons()?) } else { None };
    let begun = partitions.post("repair", json!({ "partition": partitions.partition }))?;
    let Some(before) = before else {
        let next = "comparison begun; `annulet admin aae-status` shows its end";
        return partitions.tell(&begun, next);
    };
    let after = loop {
        let seen = partitions.comparisons()?;
        if !seen.under_way {
            break seen;
        }
        std::thread::sleep(LOOK_EVERY);
    };
    // A partition that went elsewhere meanwhile took its figures with it.
    let (differed, repaired) =
        (after.differed.saturating_sub(before.differed), after.repaired.saturating_sub(before.repaired));
    let mut told = begun;
    (told["differed"], told["repaired"]) = (json!(differed), json!(repaired));
    let text = format!("compared; {} found to differ, {repaired} repaired", count(differed, "key"));
    partitions.tell(&told, &text)
}

/// Has the trees made anew from what is stored, now.
pub fn rebuild(args: &Rebuild) -> Result<(), Failure> {
    let body = json!({ "partition": args.partitions.partition, "check": args.check });
    let begun = args.partitions.post("rebuild", body)?;
    args.partitions.tell(&begun, "rebuilds begun, one after another in each shard")
}

/// The comparisons of a node's partitions at one moment.
struct Comparisons {
    under_way: bool,
    differed: u64,
    repaired: u64,
}

impl Partitions {
    fn post(&self, word: &str, body: Value) -> Result<Value, Failure> {
        taken(self.shown.post(&format!("/admin/aae/{word}"), &body)?)
    }

    fn tell(&self, begun: &Value, text: &str) -> Result<(), Failure> {
        let partitions = begun["partitions"].as_u64().unwrap_or_default();
        self.shown.tell(begun, || format!("{}: {text}", count(partitions, "partition")))
    }

    fn comparisons(&self) -> Result<Comparisons, Failure> {
        let status = self.shown.ask("/admin/aae")?;
        let trees = || {
            let is_asked = |tree: &&Value| self.partition.is_none_or(|number| tree["partition"] == number);
            each(&status["trees"]).filter(is_asked)
        };
        if trees().any(|tree| tree["comparing"].is_null()) {
            let text = "the node is of an older version, which does not tell the end of a comparison: leave --wait out";
            return Err(Failure::new(FAILED, text));
        }
        let sum = |name: &str| trees().filter_map(|tree| tree[name].as_u64()).sum();
        let under_way = trees().any(|tree| tree["comparing"] == true);
        Ok(Comparisons { under_way, differed: sum("differed"), repaired: sum("repaired") })
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
