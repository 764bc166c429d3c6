//! `annulet admin strong status`, also `ensemble-status`: the groups of consistent bucket types at a node.
//!
//! `declare-lost` and `recover` bring groups back whose majority is lost; `recover` is in `recover.rs`. The groups of
//! restored nodes are brought back by `recover --all`.

use super::cluster::{Shown, each, taken};
use super::recover;
use super::table::{cell, table};
use crate::failure::Failure;
use crate::plural::len;
use serde_json::{Value, json};

/// The first line about a restored node.
const HELD: &str = "this node was restored: its groups are held back until all nodes are up and \
                    `annulet admin strong recover --all` is run";

/// Commands for consistent bucket types.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show the groups of a node, the foundings and the registered stores of the members.
    Status(Status),
    /// Declare the stores of dead members lost for good, before `recover`. Without --accept-loss, only check it.
    DeclareLost(DeclareLost),
    /// Recover the groups of a stopped node whose majority was declared lost: the survivors become their only voters.
    /// With --all, recover the groups of nodes that were restored from backups. Without --accept-loss it shows the
    /// groups, and changes none.
    Recover(recover::Args),
}

/// How groups are shown.
#[derive(clap::Args)]
pub struct Status {
    #[command(flatten)]
    shown: Shown,
    /// List all groups of the node [default: those that are not at rest or need attention].
    #[arg(long)]
    all: bool,
}

/// The members whose stores are lost.
#[derive(clap::Args)]
pub struct DeclareLost {
    #[command(flatten)]
    shown: Shown,
    /// Members whose data is lost for good.
    #[arg(required = true, value_name = "NAME@HOST")]
    members: Vec<String>,
    /// Declare it: stores of these members with old data get no vote again. This cannot be undone.
    #[arg(long)]
    accept_loss: bool,
}

/// Does it.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Status(status) => show(status),
        Command::DeclareLost(args) => declare_lost(args),
        Command::Recover(args) => recover::run(args),
    }
}

/// Shows the state of the groups.
pub fn show(Status { shown, all }: &Status) -> Result<(), Failure> {
    let status = shown.ask("/admin/strong")?;
    shown.tell(&status, || text(&status, *all))
}

/// Has the cluster give the stores of members up.
fn declare_lost(DeclareLost { shown, members, accept_loss }: &DeclareLost) -> Result<(), Failure> {
    let body = json!({ "nodes": members, "accept_loss": accept_loss });
    let answer = taken(shown.post("/admin/cluster/declare-lost", &body)?)?;
    let members = members.join(", ");
    shown.tell(&answer, || match accept_loss {
        true => format!("declared lost: the stores of {members}"),
        false => format!("nothing was changed: --accept-loss declares the stores of {members} lost"),
    })
}

fn text(status: &Value, all: bool) -> String {
    if status["registers"] != true {
        return "no consistent bucket type was activated".to_owned();
    }
    let count = |name: &str| cell(&status["summary"][name]);
    let summary = format!(
        "{}: {} groups, {} led here, {} without a leader, {} suspect, {} unsettled, {} forgot, {} incomplete, \
         {} unreadable, {} dormant",
        cell(&status["here"]),
        count("groups"),
        count("led"),
        count("without_leader"),
        count("suspect"),
        count("unsettled"),
        count("forgot"),
        count("incomplete"),
        count("unreadable"),
        count("dormant"),
    );
    let foundings: Vec<Vec<String>> = each(&status["foundings"]).map(founding).collect();
    let members: Vec<Vec<String>> = each(&status["members"]).map(member).collect();
    let groups: Vec<Vec<String>> =
        each(&status["groups"]).filter(|it| all || needs_look(it)).map(group).collect();
    let summary = match status["held"] == true {
        true => format!("{HELD}\n\n{summary}"),
        false => summary,
    };
    let mut parts = vec![
        summary,
        table(&["n_val", "founding", "epoch", "partitions", "nodes"], &foundings),
        table(&["member", "registered", "process", "births"], &members),
    ];
    if !groups.is_empty() {
        let heading = [
            "n_val", "prefix", "shard", "role", "term", "leader", "applied", "commit", "last", "settled",
            "state",
        ];
        parts.push(table(&heading, &groups));
    }
    if foundings.is_empty() {
        parts[1] = "no groups are founded".to_owned();
    }
    parts.join("\n\n")
}

fn founding(it: &Value) -> Vec<String> {
    let of = |name: &str| cell(&it[name]);
    vec![of("n_val"), of("number"), of("epoch"), of("partitions"), len(each(&it["nodes"]).count(), "node")]
}

fn member(it: &Value) -> Vec<String> {
    let births: Vec<String> = each(&it["births"]).map(cell).collect();
    vec![cell(&it["name"]), cell(&it["registered"]), cell(&it["process"]), cell(&births.join(" ").into())]
}

/// Whether a group is not at rest, or something is wrong with it.
fn needs_look(it: &Value) -> bool {
    let is_wrong = |name: &str| it[name] == true;
    it["settled"] != true
        || it["leader"].is_null()
        || is_wrong("suspect")
        || is_wrong("forgot")
        || is_wrong("incomplete")
        || is_wrong("unreadable")
}

fn group(it: &Value) -> Vec<String> {
    let state = ["leased", "dormant", "suspect", "forgot", "incomplete", "unreadable"];
    let state = state.into_iter().filter(|&name| it[name] == true);
    let state: Vec<&str> = state.collect();
    let columns =
        ["n_val", "prefix", "shard", "role", "term", "leader", "applied", "commit", "last", "settled"];
    let mut row: Vec<String> = columns.iter().map(|&name| cell(&it[name])).collect();
    row.push(cell(&state.join(", ").into()));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(groups: &Value) -> Value {
        json!({
            "here": "a@h", "registers": true,
            "summary": {
                "groups": 2, "led": 1, "without_leader": 1, "unsettled": 1, "suspect": 1, "forgot": 0, "incomplete": 0,
                "unreadable": 0, "dormant": 1,
            },
            "foundings": [{ "n_val": 3, "number": "0a", "epoch": 0, "partitions": 64, "nodes": ["a@h", "b@h"] }],
            "members": [
                { "name": "a@h", "registered": true, "process": "05", "births": ["01", "02"] },
                { "name": "b@h", "registered": false, "process": null, "births": [] },
            ],
            "groups": groups,
        })
    }

    #[test]
    fn the_summary_comes_first_and_groups_in_order_only_if_asked_for() {
        let group = |prefix: u16, leader: Option<&str>, is_well: bool| {
            json!({
                "shard": 0, "n_val": 3, "prefix": prefix, "role": "follower", "term": 2, "leader": leader,
                "applied": 4, "commit": 4, "last": 5,
                "settled": is_well, "suspect": !is_well, "forgot": false, "incomplete": false,
            })
        };
        let mut leased = group(1, Some("a@h"), true);
        leased["leased"] = true.into();
        let status = status(&json!([leased, group(2, None, false)]));
        let shown = text(&status, false);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[0],
            "a@h: 2 groups, 1 led here, 1 without a leader, 1 suspect, 1 unsettled, 0 forgot, 0 incomplete, \
             0 unreadable, 1 dormant"
        );
        assert_eq!(
            lines[2..4],
            ["n_val  founding  epoch  partitions  nodes", "3      0a        0      64          2 nodes"]
        );
        assert_eq!(lines[6], "a@h     yes         05       01 02");
        assert_eq!(lines.len(), 11, "{shown}");
        assert!(lines[10].starts_with("3      2       0      follower  2     -"), "{shown}");
        assert!(lines[10].ends_with("no       suspect"), "{shown}");
        let all = text(&status, true);
        let lines: Vec<&str> = all.lines().collect();
        assert_eq!(lines.len(), 12);
        assert!(lines[10].ends_with("yes      leased"), "{all}");
    }

    #[test]
    fn a_restored_node_names_the_command_that_lets_it_go_on() {
        let mut status = status(&json!([]));
        assert!(!text(&status, false).contains("held back"));
        status["held"] = true.into();
        let shown = text(&status, false);
        assert!(shown.starts_with(HELD) && HELD.contains("annulet admin strong recover --all"), "{shown}");
    }

    #[test]
    fn a_cluster_without_consistent_types_says_so() {
        assert_eq!(text(&json!({ "registers": false }), true), "no consistent bucket type was activated");
    }
}
