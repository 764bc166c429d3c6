use super::*;
use crate::{GeneratorSecond, OperationSecond, Server, ServerSecond};
use histogram::Recorder;

fn second(at: u64, phase: Phase, done: u64) -> Second {
    let get = OperationSecond { done, bytes_written: done * 100, ..OperationSecond::default() };
    Second {
        second: at,
        phase,
        operations: BTreeMap::from([("get".to_owned(), get)]),
        generator: GeneratorSecond {
            cpu_us: 2 * done,
            outstanding: 0.5,
            due: done,
            ..GeneratorSecond::default()
        },
        servers: vec![ServerSecond {
            up: true,
            cpu_us: 10 * done,
            write_bytes: done * 300,
            ..ServerSecond::default()
        }],
        ..Second::default()
    }
}

fn latencies(second: u64, values: &[u64]) -> Latencies {
    let mut recorder = Recorder::default();
    values.iter().for_each(|&value| recorder.record(value));
    Latencies { second, label: 0, kind: Kind::Response, histogram: recorder.take() }
}

fn manifest() -> Manifest {
    Manifest { labels: vec!["get".to_owned()], servers: vec![Server::default()], ..Manifest::default() }
}

#[test]
fn only_measured_seconds_count() {
    let seconds = [
        second(0, Phase::WarmUp, 1),
        second(1, Phase::Measured, 100),
        second(2, Phase::Measured, 300),
        second(3, Phase::Trailing, 5),
    ];
    let latencies =
        [latencies(0, &[9_000_000]), latencies(1, &[1_000_000, 3_000_000]), latencies(3, &[8_000_000])];
    let summary = Summary::of(&manifest(), &seconds, &latencies, CheckSummary::default());
    assert_eq!((summary.measured_from, summary.measured_seconds), (1, 2));
    assert_eq!((summary.total.done, summary.total.response.count), (400, 2));
    assert_eq!(summary.operations["get"], summary.total);
    let throughput = &summary.total.throughput;
    assert_eq!((throughput.mean, throughput.median, throughput.deviation), (200.0, 200.0, 100.0));
    assert_eq!((throughput.min, throughput.max), (100.0, 300.0));
    let points: Vec<u64> = throughput.accumulated.iter().map(|point| point.operations).collect();
    assert_eq!(points, [1, 101, 401]);
    assert_eq!((summary.total.response.max_us, summary.total.response.above_2ms), (3000.0, 0.5));
    assert_eq!((summary.generator.cpu_us_per_op, summary.server_cpu_us_per_op), (2.0, Some(10.0)));
    assert_eq!(summary.servers[0].as_ref().unwrap().write_amplification, Some(3.0));
    assert_eq!(summary.generator.littles_law, 1.0);
    assert!(summary.verdict.passed);
}

#[test]
fn wrong_results_fail_a_run_unless_tolerated() {
    let seconds = [second(0, Phase::Measured, 10)];
    let check = CheckSummary { stale: 2, ..CheckSummary::default() };
    let summary = Summary::of(&manifest(), &seconds, &[], check.clone());
    assert_eq!(summary.verdict.failures, ["stale: 2 reads were answered with an older version"]);
    let tolerant = CheckSummary { tolerated: vec!["stale".to_owned()], ..check };
    assert!(Summary::of(&manifest(), &seconds, &[], tolerant).verdict.passed);
    assert!(!Summary::of(&manifest(), &[], &[], CheckSummary::default()).verdict.passed);
}

#[test]
fn a_warm_up_is_found_and_a_drift_is_not_steady() {
    let mut rates: Vec<f64> = (0..100).map(|at| 1000.0 + f64::from(at % 5)).collect();
    assert_eq!(steady_from(&rates), Some(0));
    (0..12).for_each(|at| rates[at] = 100.0 * at as f64);
    assert_eq!(steady_from(&rates), Some(15));
    let falling: Vec<f64> = (0..100).map(|at| 1000.0 - 10.0 * f64::from(at)).collect();
    assert_eq!(steady_from(&falling), None);
    assert_eq!(steady_from(&rates[..19]), None);
}
