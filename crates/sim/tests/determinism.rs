//! A seed decides everything. Row C0 of the test table.

use sim::elastic::Shape;
use sim::trace::Keep;
use sim::{Kind, Seed};
use std::process::Command;

/// The trace of `seed` as another process prints it.
fn in_another_process(kind: Kind, seed: u64) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_sim"))
        .args(["--world", &kind.to_string(), "--trace", &seed.to_string()])
        .output()
        .expect("the simulator runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn is_the_same_in_other_processes(kind: Kind, seeds: &[u64]) {
    for &seed in seeds {
        let (report, trace) = kind.run(Seed(seed), Keep::Text);
        let here = format!("{}{report}\n", trace.text()).into_bytes();
        assert!(here.len() > 100_000, "a trace of {} bytes shows little", here.len());
        assert!(here == in_another_process(kind, seed), "seed {seed} differs in another process");
        assert!(here == in_another_process(kind, seed), "seed {seed} differs in a third process");
    }
}

fn has_one_hash_for_each_seed(kind: Kind) {
    let hash = |seed| kind.run(Seed(seed), Keep::Hash).0.hash;
    let hashes: Vec<u64> = (0..20).map(hash).collect();
    assert_eq!(hashes, (0..20).map(hash).collect::<Vec<_>>());
    let distinct: std::collections::BTreeSet<_> = hashes.iter().collect();
    assert_eq!(distinct.len(), hashes.len());
}

#[test]
fn the_same_seed_gives_the_same_trace_in_two_processes() {
    is_the_same_in_other_processes(Kind::Node, &[1, 7, 1_000_003]);
}

#[test]
fn the_same_seed_gives_the_same_hash_twice_and_another_seed_another() {
    has_one_hash_for_each_seed(Kind::Node);
}

#[test]
fn so_it_is_with_a_cluster_in_two_processes() {
    is_the_same_in_other_processes(Kind::Cluster, &[1, 1_000_003]);
}

#[test]
fn so_it_is_with_a_large_cluster_twice() {
    has_one_hash_for_each_seed(Kind::Elastic(Shape { nodes: 9, partitions: 64 }));
}

#[test]
fn so_it_is_with_a_cluster_twice() {
    has_one_hash_for_each_seed(Kind::Cluster);
}

#[test]
fn so_it_is_with_consistent_groups_in_two_processes() {
    is_the_same_in_other_processes(Kind::Strong, &[1, 1_000_003]);
}
