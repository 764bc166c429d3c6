//! What a report says in numbers: latencies by label, the check, the servers, what was done, what went wrong, and
//! everything that was configured.

use super::chart::{Unit, svg::escape};
use super::figures;
use crate::{LatencySummary, OperationSummary, Results};

/// All tables, in the order of the page.
pub fn html(results: &Results) -> String {
    let mut out = String::new();
    let tables = [
        ("Events", events(results)),
        ("Operations", operations(results)),
        ("Latencies", latencies(results)),
        ("Correctness", check(results)),
        ("Servers", servers(results)),
        ("Generator", generator(results)),
        ("Errors", errors(results)),
    ];
    for (title, table) in tables.into_iter().filter_map(|(title, table)| Some((title, table?))) {
        put!(out, "<section><h2>{title}</h2>{table}</section>");
    }
    out.push_str(&configuration(results));
    out
}

/// A table; cells are text. The columns of numbers stand right.
struct Table {
    out: String,
    /// Columns of text at the left.
    texts: usize,
}

impl Table {
    fn new(texts: usize, heads: &[&str]) -> Table {
        let mut table = Table { out: "<div class=\"scroll\"><table><thead>".to_owned(), texts };
        table.cells("th", heads.iter().map(|&head| head.to_owned()));
        table.out.push_str("</thead><tbody>");
        table
    }

    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.cells("td", cells.into_iter());
    }

    fn cells(&mut self, tag: &str, cells: impl Iterator<Item = String>) {
        self.out.push_str("<tr>");
        for (at, cell) in cells.enumerate() {
            let class = if at < self.texts { "" } else { " class=\"number\"" };
            put!(self.out, "<{tag}{class}>{}</{tag}>", escape(&cell));
        }
        self.out.push_str("</tr>");
    }

    fn end(self) -> String {
        self.out + "</tbody></table></div>"
    }
}

fn count(value: u64) -> String {
    Unit::Count.format(value as f64)
}

fn us(value: f64) -> String {
    Unit::Micros.format(value)
}

fn events(results: &Results) -> Option<String> {
    let mut table = Table::new(4, &["mark", "at", "what", "server"]);
    let mut is_any = false;
    for (at, event) in figures::marked(results).enumerate() {
        is_any = true;
        let server = event.server.and_then(|server| results.manifest.servers.get(server as usize));
        let server = server.map_or(String::new(), |server| server.name.clone());
        let number = (at + 1).to_string();
        table.row([number, format!("{:.1} s", event.at_s), event.text.clone(), server]);
    }
    is_any.then(|| table.end())
}

/// The labels in the workload's order, then all of them together.
fn rows(results: &Results) -> impl Iterator<Item = (&str, &OperationSummary)> {
    let labels = &results.manifest.labels;
    let of = |label| Some((String::as_str(label), results.summary.operations.get(label)?));
    let all = (labels.len() > 1).then_some(("all", &results.summary.total));
    labels.iter().filter_map(of).chain(all)
}

fn operations(results: &Results) -> Option<String> {
    // Only consistent bucket types have conditions that may fail without an error.
    let has_conditions = results.summary.total.condition_failed > 0;
    let mut heads = vec![
        "",
        "done",
        "median / s",
        "mean / s",
        "deviation",
        "least",
        "most",
        "not found",
        "failed",
        "retries",
    ];
    if has_conditions {
        heads.push("condition failed");
    }
    let mut table = Table::new(1, &heads);
    for (label, it) in rows(results) {
        let rate = &it.throughput;
        let rates = [rate.median, rate.mean, rate.deviation, rate.min, rate.max];
        let mut cells = vec![label.to_owned(), count(it.done)];
        cells.extend(rates.map(|rate| Unit::Count.format(rate)));
        cells.extend([it.not_found, it.failed, it.retries].map(count));
        if has_conditions {
            cells.push(count(it.condition_failed));
        }
        table.row(cells);
    }
    Some(table.end())
}

fn latencies(results: &Results) -> Option<String> {
    let heads = [
        "", "from", "count", "min", "mean", "RMS", "median", "p95", "p99", "p99.9", "p99.99", "max",
        "> 1 ms", "> 2 ms", "> 4 ms",
    ];
    let mut table = Table::new(2, &heads);
    let mut row = |label: &str, from: &str, it: &LatencySummary| {
        if it.count == 0 {
            return;
        }
        let mut cells = vec![label.to_owned(), from.to_owned(), count(it.count)];
        let times = [
            it.min_us,
            it.mean_us,
            it.rms_us,
            it.median_us,
            it.p95_us,
            it.p99_us,
            it.p99_9_us,
            it.p99_99_us,
            it.max_us,
        ];
        cells.extend(times.map(us));
        cells.extend([it.above_1ms, it.above_2ms, it.above_4ms].map(|share| Unit::Share.format(share)));
        table.row(cells);
    };
    for (label, it) in rows(results) {
        row(label, "intended start", &it.response);
        row(label, "sending", &it.service);
        row(label, "intended start, failed", &it.failed_response);
    }
    Some(table.end())
}

fn check(results: &Results) -> Option<String> {
    let check = &results.summary.check;
    let rows = [
        ("reads with verified content", check.verified),
        ("of these, compared with the written value", check.compared),
        ("reads that could not be compared", check.not_compared),
        ("acknowledged writes that are gone (lost)", check.lost),
        ("answers with an older version (stale)", check.stale),
        ("answers from before a delete (resurrected)", check.resurrected),
        ("values that were never written (corrupt)", check.corrupt),
        ("rows of index queries that were judged", check.rows),
        ("rows that were not asked for, or are not so (wrong-row)", check.wrong_rows),
        ("queries that missed stored entries (incomplete)", check.incomplete),
        ("stale ones of which it is not known whether a write was lost", check.unresolved),
        ("writes with an unknown outcome", check.in_doubt),
        ("written keys that were read once more at the end", check.audited),
    ];
    let mut table = Table::new(1, &["", "count"]);
    rows.into_iter().for_each(|(text, value)| table.row([text.to_owned(), count(value)]));
    Some(table.end())
}

fn servers(results: &Results) -> Option<String> {
    let heads = [
        "",
        "address",
        "version",
        "CPU",
        "memory, most",
        "written",
        "read",
        "on disk",
        "write amplification",
    ];
    let mut table = Table::new(3, &heads);
    for (at, server) in results.manifest.servers.iter().enumerate() {
        let mut cells = vec![server.name.clone(), server.address.clone(), server.version.clone()];
        match results.summary.servers.get(at).and_then(Option::as_ref) {
            None => cells.extend((0..6).map(|_| "–".to_owned())),
            Some(it) => {
                cells.push(Unit::Elapsed.format(it.cpu_s));
                cells.extend(
                    [it.rss_max_bytes, it.write_bytes, it.read_bytes].map(|it| Unit::Bytes.format(it as f64)),
                );
                cells.push(it.disk_bytes.map_or("–".to_owned(), |bytes| Unit::Bytes.format(bytes as f64)));
                cells.push(
                    it.write_amplification.map_or("–".to_owned(), |factor| Unit::Factor.format(factor)),
                );
            }
        }
        table.row(cells);
    }
    (!results.manifest.servers.is_empty()).then(|| table.end())
}

fn generator(results: &Results) -> Option<String> {
    let it = &results.summary.generator;
    let mut table = Table::new(1, &["self-check", ""]);
    let achieved = it.achieved.map_or("–".to_owned(), |share| Unit::Share.format(share));
    let steady = results.summary.steady_from;
    for (text, value) in [
        ("CPU for each operation", us(it.cpu_us_per_op)),
        ("the most of a core that one thread used in a second", Unit::Share.format(it.busiest)),
        ("the latest that an operation went out though a connection was free", us(it.late_us as f64)),
        ("of the operations that were due, those done (open loop)", achieved),
        (
            "outstanding operations over throughput times latency (1 by Little's law)",
            Unit::Factor.format(it.littles_law),
        ),
        (
            "steady from (MSER-5)",
            steady.map_or("never".to_owned(), |second| Unit::Elapsed.format(second as f64)),
        ),
    ] {
        table.row([text.to_owned(), value]);
    }
    Some(table.end())
}

/// Errors in full, at most so many: the folder has the rest.
const ERRORS_MAX: usize = 40;

fn errors(results: &Results) -> Option<String> {
    let mut table = Table::new(6, &["at", "operation", "kind", "", "key", "what"]);
    let (wrong, failed): (Vec<_>, Vec<_>) = results.errors.iter().partition(|it| it.wrong);
    for it in wrong.iter().chain(&failed).take(ERRORS_MAX) {
        let wrong = if it.wrong { "WRONG" } else { "" };
        let texts = [&it.label, &it.kind].map(String::clone);
        let [label, kind] = texts;
        table.row([
            format!("{} s", it.second),
            label,
            kind,
            wrong.to_owned(),
            it.key.clone(),
            it.text.clone(),
        ]);
    }
    (!results.errors.is_empty()).then(|| {
        let rest = results.errors.len().saturating_sub(ERRORS_MAX);
        let more = if rest > 0 { format!("<p>{rest} more are in errors.jsonl.</p>") } else { String::new() };
        table.end() + &more
    })
}

/// Everything that was configured, folded away.
fn configuration(results: &Results) -> String {
    let manifest = &results.manifest;
    let mut out = format!(
        "<section><h2>Configuration</h2><p>Generator {}; <code>{}</code></p>\
         <details><summary>Workload {}</summary><pre>{}</pre></details>",
        escape(&manifest.version),
        escape(&manifest.command.join(" ")),
        escape(&manifest.workload_file),
        escape(&manifest.workload),
    );
    let machine = &manifest.machine;
    let mut table = Table::new(2, &["machine", ""]);
    let settings = machine.settings.iter().map(|(name, value)| (name.clone(), value.clone()));
    let memory = Unit::Bytes.format(machine.memory_bytes as f64);
    let own = [
        ("host", machine.host.clone()),
        ("processor", machine.processor.clone()),
        ("cores", machine.cores.to_string()),
        ("memory", memory),
        ("kernel", machine.kernel.clone()),
        ("load average at the start", machine.load_average.clone()),
    ];
    let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
    own.chain(settings).for_each(|(name, value)| table.row([name, value]));
    put!(out, "<details><summary>Machine</summary>{}</details>", table.end());
    for server in &manifest.servers {
        let mut table = Table::new(2, &["option", ""]);
        let limits = [
            ("command", server.command.join(" ")),
            ("data", server.data.clone().unwrap_or_default()),
            ("file system", server.file_system.clone().unwrap_or_default()),
            (
                "limit of memory",
                server.limits.memory_bytes.map_or("none".into(), |it| Unit::Bytes.format(it as f64)),
            ),
            ("limit of cores", server.limits.cpus.map_or("none".into(), |it| Unit::Factor.format(it))),
        ];
        let limits = limits.into_iter().map(|(name, value)| (name.to_owned(), value));
        let options = server.options.iter().map(|(name, value)| (name.clone(), value.clone()));
        limits.chain(options).for_each(|(name, value)| table.row([name, value]));
        let name = escape(&server.name);
        put!(out, "<details><summary>Server {name}</summary>{}</details>", table.end());
    }
    out + "</section>"
}
