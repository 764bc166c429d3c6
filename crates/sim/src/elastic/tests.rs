use super::*;

fn run_all(seeds: std::ops::Range<u64>, shape: Shape) {
    for seed in seeds {
        let report = run(Seed(seed), shape, Keep::Hash).0;
        assert_eq!(report.violation, None, "seed {seed}");
    }
}

#[test]
fn a_large_cluster_keeps_its_word() {
    run_all(0..4, Shape { nodes: 12, partitions: 128 });
}

#[test]
fn a_case_of_each_kind_comes_to_its_end() {
    let mut cases = transitions::all();
    cases.retain(|case| case.moment == transitions::Moment::FirstCopied);
    for case in cases.into_iter().step_by(5) {
        assert_eq!(transitions::run(case, Seed(1)).err(), None, "{case:?}");
    }
}

#[test]
fn a_cluster_at_rest_is_quiet() {
    let idle = idle::measure(Seed(1), Shape { nodes: 10, partitions: 128 });
    assert_eq!(idle.taken_for_down, 0);
    assert!(idle.messages.0 < 20.0 && idle.bytes.0 < 2_000.0, "{idle}");
}

#[test]
fn a_change_is_carried_out() {
    for kind in [transitions::Kind::Join, transitions::Kind::Grow] {
        let carried =
            carried::measure(Seed(1), Shape { nodes: 10, partitions: 128 }, kind).expect("it is kept");
        let took: Duration = carried.steps.iter().sum();
        assert!(carried.copied > 0 && took < Duration::from_secs(10), "{carried}");
    }
}
