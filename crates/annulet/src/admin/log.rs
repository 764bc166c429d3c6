//! `annulet admin log`: levels of a node's log, at run time.

use super::cluster::{Shown, taken};
use super::table::{cell, table};
use crate::failure::Failure;
use serde_json::{Value, json};

/// The level to set; none to show all.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    shown: Shown,
    /// Level to set: off, error, warn, info, debug or trace [default: set none].
    #[arg(value_name = "LEVEL")]
    level: Option<String>,
    /// Target of the level: a module path such as server::peer, or audit [default: all targets without a level].
    #[arg(value_name = "TARGET", requires = "level")]
    target: Option<String>,
}

/// Sets it, and shows all levels.
pub fn run(args: &Args) -> Result<(), Failure> {
    let levels = match &args.level {
        None => args.shown.ask("/admin/log")?,
        Some(level) => {
            let body = json!({ "level": level, "target": args.target });
            taken(args.shown.post("/admin/log", &body)?)?
        }
    };
    args.shown.tell(&levels, || text(&levels))
}

fn text(levels: &Value) -> String {
    let targets = levels["targets"].as_object().into_iter().flatten();
    let named = targets.map(|(target, level)| vec![target.clone(), cell(level)]);
    let rows: Vec<Vec<String>> =
        std::iter::once(vec!["all others".to_owned(), cell(&levels["level"])]).chain(named).collect();
    table(&["target", "level"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_a_table() {
        let levels = json!({ "level": "info", "targets": { "server::peer": "debug" } });
        assert_eq!(text(&levels), "target        level\nall others    info\nserver::peer  debug");
    }
}
