//! The table of `annulet top` as text.

use super::reading::{Figures, Reading};
use crate::admin::table::{cell, table};
use serde_json::Value;
use std::collections::BTreeSet;

/// The heading of the table.
const HEADING: [&str; 11] = [
    "node",
    "state",
    "gets/s",
    "puts/s",
    "get p99",
    "put p99",
    "conns",
    "under way",
    "pressure",
    "memory",
    "ready",
];

/// A table of readings.
pub(super) struct Screen {
    lines: Vec<String>,
}

impl Screen {
    pub(super) fn new(readings: &[Reading]) -> Screen {
        let members = readings.iter().find_map(|reading| reading.members.as_ref());
        let members: Vec<&Value> = members.and_then(Value::as_array).into_iter().flatten().collect();
        let member = |name: &str| members.iter().find(|member| member["name"] == name).copied();
        let named: BTreeSet<&str> = readings.iter().filter_map(Reading::name).collect();
        let asked = readings.iter().map(|reading| row(reading, reading.name().and_then(member)));
        let others =
            members.iter().filter(|it| !it["name"].as_str().is_some_and(|name| named.contains(name)));
        let rows: Vec<Vec<String>> = asked.chain(others.map(|it| row_of_member(it))).collect();
        let reached = members.iter().filter(|member| member["reachable"] == true).count();
        let mut lines = Vec::new();
        if !members.is_empty() {
            lines.push(format!("{} members, {reached} reached", members.len()));
        }
        lines.extend(table(&HEADING, &rows).lines().map(str::to_owned));
        Screen { lines }
    }

    /// All of it.
    pub(super) fn whole(&self) -> String {
        self.lines.join("\n")
    }

    /// The part that fits into a terminal of so many columns and rows; 0 is no limit.
    pub(super) fn cut(&self, (columns, rows): (usize, usize)) -> String {
        let limit = |size: usize| if size == 0 { usize::MAX } else { size };
        // The last row stays empty: a newline there would move all others up.
        let lines = self.lines.iter().take(limit(rows).saturating_sub(1).max(1));
        lines.map(|line| line.chars().take(limit(columns)).collect::<String>() + "\n").collect()
    }
}

impl Reading {
    fn name(&self) -> Option<&str> {
        self.figures.as_ref().ok().map(|figures| &*figures.name)
    }
}

fn row(reading: &Reading, member: Option<&Value>) -> Vec<String> {
    let Figures { name, reasons, rates, times_99, connections, under_way, pressure, memory, .. } =
        match &reading.figures {
            Ok(figures) => figures,
            Err(error) => return without_figures(reading.address.clone(), "-".to_owned(), error.clone()),
        };
    let number = |it: &Option<u64>| it.map_or("-".to_owned(), |it| it.to_string());
    let state = member.map_or("alone".to_owned(), |member| cell(&member["state"]));
    let ready = if reasons.is_empty() { "yes".to_owned() } else { format!("no: {}", reasons.join("; ")) };
    vec![
        name.clone(),
        state,
        format!("{:.0}", rates[0]),
        format!("{:.0}", rates[1]),
        time(times_99[0]),
        time(times_99[1]),
        number(connections),
        number(under_way),
        pressure.map_or("-".to_owned(), |thousandths| format!("{} %", thousandths / 10)),
        bytes(memory),
        ready,
    ]
}

fn row_of_member(member: &Value) -> Vec<String> {
    let reached =
        if member["reachable"] == true { "reached; its address was not given" } else { "not reached" };
    without_figures(cell(&member["name"]), cell(&member["state"]), reached.to_owned())
}

fn without_figures(node: String, state: String, why: String) -> Vec<String> {
    let figures = std::iter::repeat_n("-".to_owned(), HEADING.len() - 3);
    [node, state].into_iter().chain(figures).chain([why]).collect()
}

/// A time, of microseconds.
fn time(micros: Option<u64>) -> String {
    match micros {
        None => "-".to_owned(),
        Some(micros @ 0..10_000) => format!("{micros} us"),
        Some(micros) => format!("{} ms", micros / 1_000),
    }
}

/// Memory in use, of its limit.
fn bytes([used, limit]: &[Option<u64>; 2]) -> String {
    let mib = |bytes: &Option<u64>| bytes.map_or("-".to_owned(), |bytes| (bytes >> 20).to_string());
    match limit {
        None => format!("{} MiB", mib(used)),
        limit => format!("{} of {} MiB", mib(used), mib(limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn readings() -> Vec<Reading> {
        let figures = Figures {
            name: "n1@h".to_owned(),
            rates: [1_234.4, 0.0],
            times_99: [Some(250), Some(31_000)],
            pressure: Some(405),
            memory: [Some(64 << 20), Some(1 << 30)],
            ..Figures::default()
        };
        let members = json!([
            { "name": "n1@h", "state": "valid", "reachable": true },
            { "name": "n2@h", "state": "joining", "reachable": false },
        ]);
        let first = Reading { address: "h:1".to_owned(), figures: Ok(figures), members: Some(members) };
        let dead = Reading { address: "h:2".to_owned(), figures: Err("refused".to_owned()), members: None };
        vec![first, dead]
    }

    #[test]
    fn a_row_has_a_node_that_was_asked_or_a_member_that_was_not() {
        let text = Screen::new(&readings()).whole();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (5, "2 members, 1 reached"), "{text}");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[2]), "n1@h valid 1234 0 250 us 31 ms - - 40 % 64 of 1024 MiB yes");
        assert_eq!(words(lines[3]), "h:2 - - - - - - - - - refused");
        assert_eq!(words(lines[4]), "n2@h joining - - - - - - - - not reached");
    }

    #[test]
    fn a_small_terminal_shows_the_part_that_fits() {
        let screen = Screen::new(&readings());
        let cut = screen.cut((20, 4));
        assert!(cut.lines().count() == 3 && cut.lines().all(|line| line.chars().count() <= 20), "{cut}");
        assert_eq!(screen.cut((0, 0)), screen.whole() + "\n");
        assert_eq!(screen.cut((1, 1)).lines().count(), 1);
    }
}
