//! Nodes, alone and several, on backends other than the engine.

use backends::Kind as Backend;
use sim::trace::Keep;
use sim::{Kind, Seed};

fn keeps_its_promises(kind: Kind, seeds: u64) {
    for seed in 0..seeds {
        let (report, _) = kind.run(Seed(seed), Keep::Hash);
        assert!(report.violation.is_none(), "{report}");
    }
}

#[test]
fn a_map_in_memory() {
    keeps_its_promises(Kind::NodeOn(Backend::Memory), 4);
}

#[test]
fn a_log_with_its_keys_in_memory() {
    keeps_its_promises(Kind::NodeOn(Backend::Bitcask), 14);
}

#[test]
fn blocks_with_a_hash_index() {
    keeps_its_promises(Kind::NodeOn(Backend::Hash), 14);
}

#[test]
fn a_cluster_on_logs() {
    keeps_its_promises(Kind::ClusterOn(Backend::Bitcask), 2);
}

#[test]
fn a_cluster_with_a_store_for_a_bucket_type() {
    keeps_its_promises(Kind::ClusterOfTypes, 2);
}
