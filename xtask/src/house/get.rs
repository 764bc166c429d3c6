//! The part of a run that counts the source files of which a GET executes something.
//!
//! 1. This program is built as for use, with line tables.
//! 2. Callgrind runs its case of a GET.
//! 3. Files of the tree that have a cost are counted.

use super::Context;
use crate::micro;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::{Result, sys};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The case of a GET on a node alone.
const CASE: &str = "shard.get";

fn files() -> Spec {
    Spec::new("GET/files of ours", "files", Some(Bar::AtMost(45.0)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![files()]
}

/// Fills them, and names the files in remarks.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let root = sys::workspace()?;
    let program = build(root)?;
    let counts = micro::profile(&program, CASE, &context.home.join("callgrind.out"))?;
    let ours = executed(&counts).into_iter().filter_map(in_tree).filter(|path| root.join(path).exists());
    let mut by_crate: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for path in ours {
        let Some((home, file)) = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        let lines = fs::read_to_string(root.join(path))?.lines().count();
        by_crate.entry(home).or_default().insert(file, lines);
    }

    let lines = || by_crate.values().flat_map(BTreeMap::values).copied();
    let note = by_crate.iter().map(|(home, files)| format!("{home} {}", files.len()));
    let row = files()
        .valued(lines().count() as f64, note.collect::<Vec<_>>().join(", "))
        .also("lines", Some(lines().sum::<usize>() as f64))
        .also("lines_of_the_longest", lines().max().map(|lines| lines as f64));
    report.push(row)?;
    for (home, files) in &by_crate {
        let files: Vec<String> = files.iter().map(|(file, lines)| format!("{file} {lines}")).collect();
        report.remark(format!("files of a GET in {home}, and their lines: {}", files.join(", ")));
    }
    Ok(())
}

/// Builds this program as for use, but with line tables: an inlined function keeps its file. The build has a folder of
/// its own, so that no other one has to be made again.
fn build(root: &Path) -> Result<PathBuf> {
    let target = sys::target(root)?.join("line-tables");
    sys::build("xtask", root, &target, "line-tables-only")
}

/// The part of a path from `crates` on, if it is of a source file of this repository's crates.
fn in_tree(path: &str) -> Option<&str> {
    let path = &path[path.rfind("crates/")?..];
    let mut parts = path.split('/').skip(2);
    (parts.next() == Some("src")).then_some(path)
}

/// The files to which callgrind's output gives instructions.
///
/// A line `fl=`, `fi=` or `fe=` names the file of the lines below it. A name is written out once, and has a number from
/// then on. A line of a cost begins with the number of a source line, or with the difference to the one before: `*` is
/// none. Number 0 is code that the compiler made: it belongs to no source line, and its file is the crate's root. The
/// line after `calls=` has the cost of the callee, not of the file.
fn executed(counts: &str) -> BTreeSet<&str> {
    let (mut names, mut executed) = (BTreeMap::new(), BTreeSet::new());
    let (mut file, mut position, mut is_call) = ("", 0, false);
    for line in counts.lines() {
        let name_of = |key: &str| line.strip_prefix(key).and_then(|rest| rest.strip_prefix('='));
        if let Some(name) = ["fl", "fi", "fe"].into_iter().find_map(name_of) {
            file = named(&mut names, name);
        } else if let Some(callee) = ["cfl", "cfi"].into_iter().find_map(name_of) {
            named(&mut names, callee);
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if let Some((next, cost)) = cost_of(line, position) {
            position = next;
            if !std::mem::take(&mut is_call) && position != 0 && cost != 0 {
                executed.insert(file);
            }
        }
    }
    executed
}

/// The number of the source line and the instructions, if a line of the output has a cost.
fn cost_of(line: &str, before: i64) -> Option<(i64, u64)> {
    let (position, cost) = line.split_once(' ')?;
    let position = match position.as_bytes().first()? {
        b'*' => before,
        b'+' | b'-' => before + position.parse::<i64>().ok()?,
        _ => position.parse().ok()?,
    };
    Some((position, cost.trim().parse().ok()?))
}

/// A name that is written as `(number) name`, as `(number)` when it is known, or as it is.
fn named<'a>(names: &mut BTreeMap<&'a str, &'a str>, text: &'a str) -> &'a str {
    let Some((number, name)) = text.strip_prefix('(').and_then(|text| text.split_once(')')) else {
        return text;
    };
    let name = name.trim_start();
    if !name.is_empty() {
        names.insert(number, name);
    }
    names.get(number).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: &str = include_str!("callgrind.out");

    #[test]
    fn files_with_a_cost_of_their_own_are_executed() {
        let expected = [
            "/registry/bytes-1.12.1/src/bytes.rs",
            "/w/crates/node/src/shard/mod.rs",
            "crates/engine/src/read.rs",
        ];
        assert_eq!(executed(COUNTS).into_iter().collect::<Vec<_>>(), expected);
        let ours: Vec<&str> = executed(COUNTS).into_iter().filter_map(in_tree).collect();
        assert_eq!(ours, ["crates/node/src/shard/mod.rs", "crates/engine/src/read.rs"]);
        assert_eq!(in_tree("/w/crates/engine/tests/it/main.rs"), None);
        assert_eq!(in_tree("/w/xtask/src/main.rs"), None);
    }
}
