//! The seeds that once broke a promise keep it now.

use sim::Seed;
use sim::trace::Keep;
use sim::world;

#[test]
fn seeds_that_broke_a_promise_keep_it_now() {
    let lines = include_str!("../regressions.txt").lines().filter(|line| !line.starts_with('#'));
    let seeds: Vec<u64> = lines.filter(|line| !line.is_empty()).map(|line| line.parse().unwrap()).collect();
    assert!(!seeds.is_empty());
    for seed in seeds {
        let report = world::run(Seed(seed), Keep::Hash).0;
        assert_eq!(report.violation, None, "seed {seed}");
    }
}
