//! The head of a report: the workload, the verdict on the store, and the figures that matter, to be read in five
//! seconds.

use super::chart::{Unit, svg::escape, unit::digits};
use crate::{Manifest, Results, Summary};

/// What the badge says.
enum Badge {
    Passed,
    Failed,
    Unknown,
}

/// The head of the page.
pub fn html(results: &Results) -> String {
    let (badge, headline) = headline(results);
    let class = match badge {
        Badge::Passed => "passed",
        Badge::Failed => "failed",
        Badge::Unknown => "unknown",
    };
    let mut out = format!(
        "<header><p class=\"kind\">benchmark report</p><h1>{}</h1><p class=\"run\">{}</p>\
         <div class=\"verdict {class}\"><strong>{}</strong>{}</div>",
        escape(name(&results.manifest)),
        escape(&what_was_run(results)),
        escape(&headline),
        lists(&results.summary),
    );
    out.push_str("<dl class=\"tiles\">");
    for (term, value, remark) in tiles(&results.summary) {
        put!(
            out,
            "<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>",
            escape(term),
            escape(&value),
            escape(&remark)
        );
    }
    out.push_str("</dl></header>");
    out
}

/// The run's name, or its workload's file.
pub fn name(manifest: &Manifest) -> &str {
    if manifest.name.is_empty() { &manifest.workload_file } else { &manifest.name }
}

fn headline(results: &Results) -> (Badge, String) {
    let (summary, check) = (&results.summary, &results.summary.check);
    if !summary.verdict.passed {
        return (Badge::Failed, "Failed".to_owned());
    }
    if !results.complete {
        return (
            Badge::Unknown,
            "The run did not come to its end: figures are of its part so far".to_owned(),
        );
    }
    if check.verified == 0 {
        return (Badge::Unknown, "No read was verified: nothing is known of correctness".to_owned());
    }
    let verified = Unit::Count.format(check.verified as f64);
    let in_doubt = match check.in_doubt {
        0 => String::new(),
        count => {
            format!("; {} writes have an unknown outcome", Unit::Count.format(count as f64))
        }
    };
    (
        Badge::Passed,
        format!("Correct: {verified} reads verified, none lost, stale, resurrected or corrupt{in_doubt}"),
    )
}

fn lists(summary: &Summary) -> String {
    let verdict = &summary.verdict;
    let mut out = String::new();
    for (class, texts) in [("failures", &verdict.failures), ("doubts", &verdict.doubts)] {
        if texts.is_empty() {
            continue;
        }
        put!(out, "<ul class=\"{class}\">");
        texts.iter().for_each(|text| {
            put!(out, "<li>{}</li>", escape(text));
        });
        out.push_str("</ul>");
    }
    out
}

/// One sentence.
fn what_was_run(results: &Results) -> String {
    let manifest = &results.manifest;
    let load = match (manifest.load.as_str(), manifest.rate) {
        ("closed", _) | (_, None) => "closed loop".to_owned(),
        (load, Some(rate)) => format!("open loop, {load} at {} a second", Unit::Count.format(rate)),
    };
    let servers = match manifest.servers.as_slice() {
        [] => String::new(),
        [one] => format!(" against {} ({})", one.name, one.version),
        [first, ..] => format!(" against {} servers ({})", manifest.servers.len(), first.version),
    };
    let machine = &manifest.machine;
    format!(
        "{} driver, {load}, {} outstanding{servers}; {} measured from {} on {} ({} cores, {}, Linux {})",
        manifest.driver,
        manifest.concurrency,
        Unit::Elapsed.format(results.summary.measured_seconds as f64),
        manifest.started,
        machine.processor,
        machine.cores,
        Unit::Bytes.format(machine.memory_bytes as f64),
        machine.kernel,
    )
}

fn tiles(summary: &Summary) -> Vec<(&'static str, String, String)> {
    let (total, latency) = (&summary.total, &summary.total.response);
    let throughput = &total.throughput;
    let us = |value: f64| Unit::Micros.format(value);
    let ended = (total.done + total.failed) as f64;
    let failed = if ended > 0.0 { total.failed as f64 / ended } else { 0.0 };
    let attempts: u64 = total.errors.values().sum();
    let mut tiles = vec![
        (
            "operations / s",
            Unit::Count.format(throughput.median),
            format!("median; deviation {}", Unit::Count.format(throughput.deviation)),
        ),
        ("p50", us(latency.median_us), format!("mean {}", us(latency.mean_us))),
        ("p99", us(latency.p99_us), format!("{} % above 4 ms", digits(latency.above_4ms * 100.0))),
        ("p99.9", us(latency.p99_9_us), format!("p99.99 {}", us(latency.p99_99_us))),
        ("max", us(latency.max_us), format!("of {}", Unit::Count.format(latency.count as f64))),
        (
            "failed",
            Unit::Count.format(total.failed as f64),
            format!(
                "{}; {} failed attempts",
                Unit::Share.format(failed),
                Unit::Count.format(attempts as f64)
            ),
        ),
    ];
    if let Some(cpu) = summary.server_cpu_us_per_op {
        let own = us(summary.generator.cpu_us_per_op);
        tiles.push(("server CPU / op", us(cpu), format!("generator {own}")));
    }
    tiles
}
