//! Lives of groups under all faults, with clients and checked histories.

use std::time::Duration;

use strong::group::REAP_SILENCE;
use strong::linearizability::Verdict;

use crate::world::{Faults, Limits, MILLISECOND, SECOND, World};

/// A life of 20 seconds.
pub fn a_life(seed: u64) -> World {
    let nodes = [3, 3, 5, 3, 5, 7][usize::try_from(seed % 6).unwrap()];
    let faults = Faults {
        lost_of_thousand: [0, 20, 100][usize::try_from(seed % 3).unwrap()],
        late_of_thousand: [0, 5, 50, 200][usize::try_from(seed % 4).unwrap()],
        every: Some([300, 800, 2_000][usize::try_from(seed / 2 % 3).unwrap()] * MILLISECOND),
        loses_disks: seed % 2 == 1,
        replaces_disks: false,
        damages_keys: seed % 3 == 2,
    };
    live(seed, nodes, faults)
}

/// A life of 20 seconds of so many nodes under these faults.
pub fn live(seed: u64, nodes: usize, faults: Faults) -> World {
    let limits = Limits {
        window: [None, Some(0), Some(300), Some(1_000)][usize::try_from(seed / 2 % 4).unwrap()],
        forgets_applied: seed % 5 < 3,
        reap_every: (!seed.is_multiple_of(7)).then_some(700 * MILLISECOND),
        reap_silence: if seed.is_multiple_of(3) { Duration::from_secs(2) } else { REAP_SILENCE },
        forwards: true,
    };
    let mut world = World::new(seed, nodes, 4).with_faults(faults).with_limits(limits);
    world.run(20 * SECOND);
    world.end();
    world
}

#[test]
fn lives_are_linearizable() {
    let seeds = std::env::var("STRONG_LIVES").map_or(40, |seeds| seeds.parse().unwrap());
    let mut counts = std::collections::BTreeMap::<&str, u64>::new();
    for seed in 0..seeds {
        let world = a_life(seed);
        assert_eq!(world.verdict(), Verdict::Linearizable, "seed {seed}");
        world.counts.iter().for_each(|(name, count)| *counts.entry(name).or_default() += count);
    }
    println!("{counts:?}");
    for outcome in ["read", "done", "failed", "unavailable", "timeout"] {
        assert!(counts[outcome] >= seeds, "lives have {outcome}");
    }
    assert!(counts["part"] >= seeds, "lives have catch-ups");
    assert!(counts["forward"] >= seeds, "lives have forwards");
    assert!(counts["damage"] >= seeds / 10, "lives have damaged keys");
}

#[test]
fn a_seed_decides_everything() {
    let life = |seed| {
        let world = a_life(seed);
        (world.sent, world.histories, world.now)
    };
    assert_eq!(life(7), life(7));
}

#[test]
fn a_life_without_faults_has_no_timeout() {
    for seed in 0..5 {
        let mut world = World::new(seed, 3, 4);
        world.run(10 * SECOND);
        world.end();
        assert_eq!(world.verdict(), Verdict::Linearizable);
        assert_eq!(world.counts.get("timeout"), None);
    }
}
