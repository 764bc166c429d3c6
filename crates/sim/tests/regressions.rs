//! The seeds that once broke a promise keep it now.

use sim::trace::Keep;
use sim::{Kind, Seed};

fn keep_their_promises_now(kind: Kind, list: &str) {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let mut seeds = lines.filter(|line| !line.is_empty()).peekable();
    assert!(seeds.peek().is_some());
    for seed in seeds {
        let seed = seed.parse().expect("one seed a line");
        let report = kind.run(Seed(seed), Keep::Hash).0;
        assert_eq!(report.violation, None, "seed {seed}");
    }
}

#[test]
fn seeds_that_broke_a_promise_keep_it_now() {
    keep_their_promises_now(Kind::Node, include_str!("../regressions.txt"));
}

#[test]
fn seeds_of_clusters_that_broke_a_promise_keep_it_now() {
    keep_their_promises_now(Kind::Cluster, include_str!("../regressions-cluster.txt"));
}
