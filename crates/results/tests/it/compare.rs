//! Comparisons of runs whose difference is known.

use crate::common::{Shape, write};
use results::Results;
use results::compare::{Comparison, Verdict, html};

fn run(seed: u64, factor: f64, lost: u64) -> Results {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    write(&run, Shape { seed, factor, lost, ..Shape::default() });
    Results::open(&run).unwrap()
}

fn verdict(comparison: &Comparison<'_>, name: &str) -> (Verdict, f64) {
    let found = comparison.found.iter().find(|it| it.metric.name == name).unwrap();
    assert!(found.ratio.low <= found.ratio.ratio && found.ratio.ratio <= found.ratio.high);
    (found.verdict(), found.ratio.ratio)
}

#[test]
fn several_pairs_show_a_difference_and_its_size() {
    let pairs = [
        (run(1, 1.0, 0), run(2, 1.25, 0)),
        (run(3, 1.0, 0), run(4, 1.25, 0)),
        (run(5, 1.0, 0), run(6, 1.25, 0)),
    ];
    let comparison = Comparison::of(&pairs).unwrap();
    let (throughput, ratio) = verdict(&comparison, "operations a second");
    assert!(throughput == Verdict::Better && (ratio - 1.25).abs() < 0.01, "{ratio}");
    let (p50, ratio) = verdict(&comparison, "p50");
    assert!(p50 == Verdict::Better && (ratio - 0.8).abs() < 0.01, "{ratio}");
    let (memory, ratio) = verdict(&comparison, "memory of the servers, most");
    assert!(memory == Verdict::Same && ratio == 1.0, "{ratio}");
    let page = html(&comparison);
    assert!(page.contains("benchmark comparison, 3 pairs of runs") && page.contains("B is better in"));
    assert!(!page.contains("one pair of runs"));
}

#[test]
fn runs_that_differ_by_chance_only_are_the_same() {
    let pairs = [(run(1, 1.0, 0), run(2, 1.0, 0))];
    let comparison = Comparison::of(&pairs).unwrap();
    for name in ["operations a second", "p50", "p99", "get, p99"] {
        assert_eq!(verdict(&comparison, name).0, Verdict::Same, "{name}");
    }
    assert!(html(&comparison).contains("one pair of runs"), "what such a band means is said");
}

#[test]
fn one_pair_shows_a_difference_that_is_plain() {
    let pairs = [(run(1, 1.0, 0), run(2, 0.8, 0))];
    let comparison = Comparison::of(&pairs).unwrap();
    assert_eq!(verdict(&comparison, "operations a second").0, Verdict::Worse);
    assert_eq!(verdict(&comparison, "p99").0, Verdict::Worse);
}

#[test]
fn a_run_that_was_wrong_decides() {
    let pairs = [(run(1, 1.0, 0), run(2, 2.0, 7))];
    let page = html(&Comparison::of(&pairs).unwrap());
    assert!(page.contains("A run was wrong") && page.contains("lost: 7"));
}

#[test]
fn runs_of_different_operations_are_refused() {
    let mut other = run(2, 1.0, 0);
    other.manifest.labels.swap(0, 1);
    let pairs = [(run(1, 1.0, 0), other)];
    assert!(Comparison::of(&pairs).err().unwrap().to_string().contains("different operations"));
    assert!(Comparison::of(&[]).is_err());
}
