//! `annulet admin compact`: compaction of all waste of a node, now.

use super::cluster::{Shown, taken};
use super::table::cell;
use crate::backup::size;
use crate::failure::{FAILED, Failure};
use serde_json::{Value, json};
use std::time::Duration;

/// How often the node is asked for the state.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The compaction of a node's stores.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    shown: Shown,
    /// Wait for the end of the compaction.
    #[arg(long)]
    wait: bool,
    /// Show the state of the last compaction, and start none.
    #[arg(long)]
    status: bool,
}

/// Begins it, unless only the state is wanted, and shows its state.
pub fn run(args: &Args) -> Result<(), Failure> {
    let shown = &args.shown;
    let mut state = match args.status {
        true => shown.ask("/admin/compact")?,
        false => taken(shown.post("/admin/compact", &json!({}))?)?,
    };
    while args.wait && state["state"] == "running" {
        std::thread::sleep(ASK_EVERY);
        state = shown.ask("/admin/compact")?;
    }

    shown.tell(&state, || text(&state))?;
    match &state["error"] {
        Value::Null => Ok(()),
        error => Err(Failure::new(FAILED, format!("a compaction failed: {}", cell(error)))),
    }
}

fn text(state: &Value) -> String {
    let [before, now] = ["bytes_before", "bytes"].map(|name| size(state[name].as_u64().unwrap_or_default()));
    let held = match state["segments_held"].as_u64() {
        None | Some(0) => String::new(),
        Some(held) => format!("; snapshots or backups hold {}", crate::plural::count(held, "segment")),
    };
    match state["state"].as_str() {
        Some("running") => format!("running: {before} before, {now} now{held}"),
        Some("done") => format!("done: {before} before, {now} now{held}"),
        _ => "none since the node's start".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_told_in_words() {
        let state =
            |word, held| json!({ "state": word, "bytes_before": 9, "bytes": 4, "segments_held": held });
        assert_eq!(text(&state("running", 0)), "running: 9 B before, 4 B now");
        assert_eq!(text(&state("done", 1)), "done: 9 B before, 4 B now; snapshots or backups hold 1 segment");
        assert_eq!(text(&state("none", 0)), "none since the node's start");
    }
}
