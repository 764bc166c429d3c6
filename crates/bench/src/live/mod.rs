//! The display of a running load: a table that is drawn over itself on a terminal, a line a second elsewhere.
//!
//! The last second's throughput and percentiles by label, what went wrong so far, and a minute of throughput as a line
//! of blocks. Left out: anything that a terminal may not have (colours beyond the first sixteen, a mouse, another
//! screen); what it shows stays in the scrollback.

use crate::run::Observer;
use histogram::Histogram;
use results::report::chart::Unit;
use results::{Event, Kind, Latencies, Manifest, Phase, Second, Summary};
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;

/// Seconds in the line of blocks.
const SPARK_SECONDS: usize = 60;

const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Labels with a row of their own; the rest is in the sum.
const ROWS_MAX: usize = 12;

/// How many columns a terminal has; 0 if it does not know. It is asked for each table, as terminals change.
pub type Columns = fn() -> usize;

/// What is taken for a terminal that does not know.
const COLUMNS_USUAL: usize = 80;

/// Shows a run on `out`. What cannot be written is not: the run goes on.
pub struct Live<W: Write> {
    out: W,
    terminal: Option<Columns>,
    /// Lines that the next table is drawn over.
    drawn: usize,
    labels: Vec<String>,
    rates: VecDeque<u64>,
    errors: BTreeMap<String, u64>,
    /// Writes whose condition did not hold.
    conditions: u64,
    failed: u64,
}

impl<W: Write> Live<W> {
    /// On a terminal that understands ANSI's sequences, or as lines.
    pub fn new(out: W, terminal: Option<Columns>) -> Live<W> {
        Live {
            out,
            terminal,
            drawn: 0,
            labels: Vec::new(),
            rates: VecDeque::new(),
            errors: BTreeMap::new(),
            conditions: 0,
            failed: 0,
        }
    }

    fn put(&mut self, text: &str) {
        // Whoever has stopped looking does not stop the run.
        self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()).ok();
    }

    /// Lines that stay, above the table.
    fn say(&mut self, line: &str) {
        let erase = self.erase();
        self.put(&format!("{erase}{line}\n"));
    }

    /// What takes the last table away.
    fn erase(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r\x1b[J"),
        }
    }

    fn count(&mut self, second: &Second) {
        self.rates.push_back(second.done(None));
        if self.rates.len() > SPARK_SECONDS {
            self.rates.pop_front();
        }
        for it in second.operations.values() {
            self.failed += it.failed;
            self.conditions += it.condition_failed;
            it.errors.iter().for_each(|(kind, count)| *self.errors.entry(kind.clone()).or_insert(0) += count);
        }
    }

    /// What went wrong so far, in a few words.
    fn trouble(&self) -> String {
        let kinds: Vec<String> = self.errors.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let errors = match kinds.is_empty() {
            true => "no errors".to_owned(),
            false => format!("{} failed; {}", self.failed, kinds.join(", ")),
        };
        match self.conditions {
            0 => errors,
            count => format!("{errors}; condition failed {count}"),
        }
    }

    /// A line that a terminal broke in two could not be drawn over, so none is longer than `columns`.
    fn table(&mut self, columns: usize, second: &Second, latencies: &[Latencies]) -> String {
        let phase = match second.phase {
            Phase::WarmUp => "warm-up",
            Phase::Measured => "measured",
            Phase::Trailing => "trailing",
        };
        let elapsed = Unit::Elapsed.format(second.second as f64 + 1.0);
        let first = format!("{elapsed:>10}  {phase}   {}   ", self.trouble());
        let room = columns.saturating_sub(first.chars().count());
        let mut lines = vec![first + &sparks(&self.rates, room)];
        let head = ["op/s", "p50", "p99", "p99.9", "max"].map(|head| format!("{head:>10}")).concat();
        lines.push(format!("{:<16}{head}", ""));
        for (at, label) in self.labels.iter().enumerate().take(ROWS_MAX) {
            lines.push(row(label, second.done(Some(label)), &merged(latencies, Some(at))));
        }
        lines.push(row("all", second.done(None), &merged(latencies, None)));
        let doubts: Vec<&str> = second.marks.iter().map(|mark| mark.describe()).collect();
        if !doubts.is_empty() {
            lines.push(format!("in doubt: {}", doubts.join("; ")));
        }
        self.drawn = lines.len();
        lines.iter().flat_map(|line| line.chars().take(columns).chain(['\n'])).collect()
    }

    fn line(&self, second: &Second, latencies: &[Latencies]) -> String {
        let all = merged(latencies, None);
        let us = |percent: f64| micros(&all, percent);
        let phase = if second.phase == Phase::Measured { "" } else { "  (does not count)" };
        format!(
            "{:>6} s  {:>9} op/s  p50 {}  p99 {}  p99.9 {}  max {}  {}{phase}\n",
            second.second + 1,
            second.done(None),
            us(50.0),
            us(99.0),
            us(99.9),
            us(100.0),
            self.trouble()
        )
    }
}

impl<W: Write> Observer for Live<W> {
    fn started(&mut self, manifest: &Manifest) {
        self.labels = manifest.labels.clone();
        let servers: Vec<&str> = manifest.servers.iter().map(|server| &*server.name).collect();
        let against =
            if servers.is_empty() { String::new() } else { format!(" against {}", servers.join(", ")) };
        self.say(&format!("{}: {} driver{against}", results::report::name(manifest), manifest.driver));
    }

    fn second(&mut self, second: &Second, latencies: &[Latencies]) {
        self.count(second);
        let text = match self.terminal {
            Some(columns) => {
                let columns = Some(columns()).filter(|columns| *columns > 0).unwrap_or(COLUMNS_USUAL);
                self.erase() + &self.table(columns, second, latencies)
            }
            None => self.line(second, latencies),
        };
        self.put(&text);
    }

    fn event(&mut self, event: &Event) {
        self.say(&format!("{:>6.1} s  {}: {}", event.at_s, event.kind, event.text));
    }

    fn finished(&mut self, summary: &Summary) {
        let (total, verdict) = (&summary.total, &summary.verdict);
        let us = |value: f64| Unit::Micros.format(value);
        let latency = &total.response;
        self.say(&format!(
            "{} operations, {} op/s (median), p50 {}, p99 {}, p99.9 {}, max {}; {} failed",
            total.done,
            Unit::Count.format(total.throughput.median),
            us(latency.median_us),
            us(latency.p99_us),
            us(latency.p99_9_us),
            us(latency.max_us),
            total.failed
        ));
        verdict.doubts.iter().for_each(|doubt| self.say(&format!("in doubt: {doubt}")));
        verdict.failures.iter().for_each(|failure| self.say(&format!("FAILED: {failure}")));
        if verdict.passed {
            self.say(&format!("{} reads verified: none was wrong", summary.check.verified));
        }
    }
}

fn merged(latencies: &[Latencies], label: Option<usize>) -> Histogram {
    let mut sum = Histogram::default();
    let is_wanted =
        |it: &&Latencies| it.kind == Kind::Response && label.is_none_or(|label| it.label == label);
    latencies.iter().filter(is_wanted).for_each(|it| sum.merge(&it.histogram));
    sum
}

fn micros(histogram: &Histogram, percent: f64) -> String {
    match histogram.is_empty() {
        true => "–".to_owned(),
        false => Unit::Micros.format(histogram.percentile(percent) as f64 / 1e3),
    }
}

fn row(label: &str, done: u64, histogram: &Histogram) -> String {
    let percentiles = [50.0, 99.0, 99.9, 100.0].map(|percent| format!("{:>10}", micros(histogram, percent)));
    let label: String = label.chars().take(16).collect();
    format!("{label:<16}{done:>10}{}", percentiles.concat())
}

/// A block for each of the last seconds that there is room for, as high as its share of the most.
fn sparks(rates: &VecDeque<u64>, room: usize) -> String {
    let rates = || rates.iter().skip(rates.len().saturating_sub(room));
    let most = rates().copied().max().unwrap_or(0).max(1);
    let spark = |rate: &u64| SPARKS[usize::try_from(rate * 7 / most).unwrap_or(0).min(7)];
    rates().map(spark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use histogram::Recorder;
    use results::OperationSecond;

    fn second(number: u64, done: u64) -> (Second, Vec<Latencies>) {
        let errors = [("timeout".to_owned(), number)].into_iter().filter(|it| it.1 > 0).collect();
        let operation = OperationSecond {
            done,
            errors,
            failed: number,
            condition_failed: 7,
            ..OperationSecond::default()
        };
        let operations = [("get".to_owned(), operation)].into();
        let second = Second { second: number, phase: Phase::Measured, operations, ..Second::default() };
        let mut recorder = Recorder::default();
        (1..=done).for_each(|at| recorder.record(at * 1000));
        (
            second,
            vec![Latencies { second: number, label: 0, kind: Kind::Response, histogram: recorder.take() }],
        )
    }

    fn shown(terminal: Option<Columns>) -> String {
        let mut out = Vec::new();
        let mut live = Live::new(&mut out, terminal);
        live.started(&Manifest {
            name: "w".into(),
            driver: "null".into(),
            labels: vec!["get".into()],
            ..Manifest::default()
        });
        for (number, done) in [(0, 1000), (1, 500)] {
            let (second, latencies) = second(number, done);
            live.second(&second, &latencies);
        }
        live.event(&Event { at_s: 2.0, kind: "fault".into(), text: "kill n2".into(), server: Some(1) });
        live.finished(&Summary::default());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn without_a_terminal_each_second_is_a_line_and_nothing_else() {
        let text = shown(None);
        assert!(!text.contains('\x1b'), "{text}");
        assert!(
            text.contains("     1 s       1000 op/s  p50 500 µs  p99 990 µs") && text.contains("no errors"),
            "{text}"
        );
        assert!(
            text.contains("1 failed; timeout 1; condition failed 14")
                && text.contains("   2.0 s  fault: kill n2"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 5, "{text}");
    }

    #[test]
    fn on_a_terminal_each_table_is_drawn_over_the_last() {
        let text = shown(Some(|| 0));
        // Four lines: the head, the columns, one label, all.
        assert_eq!(text.matches("\x1b[4A\r\x1b[J").count(), 2, "{text:?}");
        assert!(text.contains("█▄") && text.contains("get "), "{text}");
    }

    #[test]
    fn no_line_of_a_table_is_wider_than_the_terminal() {
        let text = shown(Some(|| 40));
        let table = text.split("\x1b[J").nth(1).unwrap();
        assert!(table.lines().take(4).all(|line| line.chars().count() <= 40), "{table}");
        let rates: VecDeque<u64> = [80, 10, 70].into();
        assert_eq!((sparks(&rates, 2), sparks(&rates, 0)), ("▂█".to_owned(), String::new()));
    }
}
