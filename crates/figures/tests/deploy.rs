//! The files of `deploy/` and the table of figures: a rule or a panel names only what is served, and each alert has its
//! runbook.

#![allow(clippy::unwrap_used, reason = "tests")]

use figures::{FIGURES, Kind};
use std::collections::BTreeSet;
use std::path::Path;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// Names of series in a text: words that begin as those of this program do.
fn named(text: &str) -> BTreeSet<&str> {
    let is_word = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == ':';
    let words = text.split(|it: char| !is_word(it));
    words.filter(|word| word.starts_with("annulet_") || word.starts_with("process_")).collect()
}

/// Names of all series that are served.
fn served() -> BTreeSet<String> {
    let ends = |kind: Kind| match kind {
        Kind::Counter => &["_total"][..],
        Kind::Histogram => &["_bucket", "_sum", "_count"],
        _ => &[""],
    };
    let of_one = |metric: &'static str, kind| ends(kind).iter().map(move |end| format!("{metric}{end}"));
    FIGURES.iter().flat_map(|figure| of_one(figure.metric, figure.kind)).collect()
}

#[test]
fn rules_and_panels_name_what_is_served() {
    let served = served();
    for path in ["deploy/prometheus/rules.yml", "deploy/grafana/annulet.json"] {
        let text = read(path);
        let names = named(&text);
        assert!(names.len() > 10, "{path}: {names:?}");
        for name in names {
            assert!(served.contains(name), "{path}: {name} is not served");
        }
    }
    // What the runbooks name may be a family as well.
    let families: BTreeSet<&str> = FIGURES.iter().map(|figure| figure.metric).collect();
    for name in named(&read("docs/operate/runbooks.md")) {
        let is_family = families.contains(name) || name.split_once(':').is_some();
        assert!(served.contains(name) || is_family, "docs/operate/runbooks.md: {name} is not served");
    }
}

#[test]
fn each_alert_has_a_runbook_and_two_tests() {
    let (rules, tests) = (read("deploy/prometheus/rules.yml"), read("deploy/prometheus/rules_test.yml"));
    let runbooks = read("docs/operate/runbooks.md");
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in &alerts {
        let anchor = format!("runbook: docs/operate/runbooks.md#{}\n", alert.to_lowercase());
        assert!(rules.contains(&anchor), "{alert} names no runbook");
        assert!(runbooks.contains(&format!("\n## {alert}\n")), "{alert} has no runbook");
        for word in ["fires", "keeps silent"] {
            assert!(tests.contains(&format!("name: {alert} {word}\n")), "no test in which {alert} {word}");
        }
    }
    let sections = runbooks.lines().filter_map(|line| line.strip_prefix("## Annulet"));
    assert_eq!(sections.count(), alerts.len(), "a runbook of an alert that is gone");
}
