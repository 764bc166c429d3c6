//! A run as it could have been, written by the writer of results: ten seconds of warm-up, five minutes on three
//! servers, the second of them killed at 60 s and started again at 120 s. Every number comes from a seed.

#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a failure is a failed test; not every test uses all of it"
)]

use base::Rng;
use base::rng::SplitMix64;
use histogram::Recorder;
use results::*;
use std::path::Path;

pub const SECONDS: u64 = 310;
pub const LABELS: [&str; 3] = ["get", "update", "put_unique"];

/// What may be different.
#[derive(Clone, Copy)]
pub struct Shape {
    pub seed: u64,
    /// Of throughput.
    pub factor: f64,
    pub lost: u64,
    pub rate: Option<f64>,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { seed: 1, factor: 1.0, lost: 0, rate: None }
    }
}

pub fn manifest(rate: Option<f64>) -> Manifest {
    let server = |at: u32| Server {
        name: format!("n{at}@127.0.0.1"),
        address: format!("127.0.0.1:{}", 8087 + at),
        pid: Some(1000 + at),
        command: vec!["annulet".into(), "serve".into()],
        version: "0.1.0 (abc1234)".into(),
        options: [("durability", "sync"), ("shards", "2")].map(|(k, v)| (k.into(), v.into())).into(),
        data: Some(format!("/data/n{at}")),
        file_system: Some("ext4".into()),
        limits: Limits { memory_bytes: Some(512 << 20), ..Limits::default() },
    };
    Manifest {
        format: FORMAT,
        name: "pareto, three nodes, one <killed>".into(),
        started: "2026-01-31T12:00:00Z".into(),
        version: "0.1.0 (abc1234)".into(),
        command: ["annulet", "bench", "run", "pareto.toml"].map(String::from).into(),
        workload: "[load]\nmode = \"max\" # </script> & <b>\n".into(),
        workload_file: "pareto.toml".into(),
        driver: "pb".into(),
        load: if rate.is_some() { "fixed" } else { "closed" }.into(),
        rate,
        concurrency: 48,
        labels: LABELS.map(String::from).into(),
        warm_up_s: 10,
        duration_s: Some(300),
        servers: (1..=3).map(server).collect(),
        machine: Machine {
            processor: "A processor".into(),
            cores: 2,
            memory_bytes: 24 << 30,
            kernel: "6.18".into(),
            ..Machine::default()
        },
        ..Manifest::default()
    }
}

pub fn write(folder: &Path, shape: Shape) -> Summary {
    let mut rng = SplitMix64::new(shape.seed);
    let mut unit = move || rng.below(1 << 30) as f64 / f64::from(1 << 30);
    let mut writer = Writer::create(folder, manifest(shape.rate)).unwrap();
    for (at_s, kind, text, server) in [
        (0.0, "phase", "warm-up", None),
        (70.0, "fault", "kill n2", Some(1)),
        (130.0, "repair", "start n2", Some(1)),
    ] {
        writer.event(&Event { at_s, kind: kind.into(), text: text.into(), server }).unwrap();
    }
    let error = ErrorRecord {
        second: 70,
        label: "get".into(),
        kind: "disconnected".into(),
        wrong: false,
        key: "k1".into(),
        text: "connection reset".into(),
    };
    writer.error(&error).unwrap();
    let mut recorder = Recorder::default();
    for second in 0..SECONDS {
        let is_down = (70..130).contains(&second);
        let phase = if second < 10 { Phase::WarmUp } else { Phase::Measured };
        let mut it = Second { second, phase, ..Second::default() };
        let mut latencies = Vec::new();
        for (label, name) in LABELS.iter().enumerate() {
            let share = [0.8, 0.15, 0.05][label];
            let base = if is_down { 9_000.0 } else { 12_000.0 }
                * shape.factor
                * (1.0 + 0.2 * (-(second as f64) / 90.0).exp());
            let done = (base * share * (0.94 + 0.12 * unit())) as u64;
            let typical = [350e3, 900e3, 600e3][label] * if is_down { 1.6 } else { 1.0 } / shape.factor;
            for _ in 0..done / 20 {
                let tail = 1.0 / (1.0 - unit()).powf(0.35);
                recorder.record((typical * (0.7 + 0.3 * unit()) * tail) as u64);
            }
            if second == 70 {
                recorder.record(420_000_000);
            }
            latencies.push(Latencies { second, label, kind: Kind::Response, histogram: recorder.take() });
            let service = latencies[latencies.len() - 1].histogram.clone();
            latencies.push(Latencies { second, label, kind: Kind::Service, histogram: service });
            let mut operation = OperationSecond { done, ..OperationSecond::default() };
            if label == 0 {
                operation.not_found = (done as f64 * (-(second as f64) / 120.0).exp()) as u64;
            } else {
                operation.bytes_written = done * 8_000;
            }
            if second == 70 {
                operation.errors.insert("disconnected".into(), 16);
                operation.failed = 16;
            }
            it.operations.insert((*name).into(), operation);
        }
        for server in 0..3 {
            let up = !(is_down && server == 1);
            let cpu_us = if up { 300_000 + (unit() * 60_000.0) as u64 } else { 0 };
            let grown = 80 << 20;
            it.servers.push(ServerSecond {
                server,
                up,
                cpu_us,
                rss_bytes: if up { (90 << 20) + second * (900 << 10) } else { 0 },
                read_bytes: if up { (unit() * 4e6) as u64 } else { 0 },
                write_bytes: if up { 20_000_000 + (unit() * 9e6) as u64 } else { 0 },
                threads: 9,
                disk_bytes: Some(grown + second * (16 << 20)),
            });
        }
        it.disks.push(DiskSecond {
            device: "vda".into(),
            utilisation: 0.4 + 0.3 * unit(),
            reads: 50,
            writes: 900,
            read_await_ms: 0.2 + unit() * 0.2,
            write_await_ms: 0.8 + unit(),
            ..DiskSecond::default()
        });
        it.generator = GeneratorSecond {
            cpu_us: 240_000,
            outstanding: 48.0,
            rss_bytes: 40 << 20,
            due: 12_000,
            ..GeneratorSecond::default()
        };
        it.stolen = if (200..206).contains(&second) { 0.2 } else { 0.004 * unit() };
        it.busy = 0.86 + 0.1 * unit();
        if it.stolen > 0.1 {
            it.marks.push(Mark::Stolen);
        }
        writer.second(it, latencies).unwrap();
        for server in 0..3 {
            let values = [
                ("lookups_found_memtable", 3.0),
                ("lookups_found_level_0", 2.0),
                ("lookups_found_level_1", 1.0),
            ];
            let second_f = second as f64;
            let values = values
                .map(|(name, factor)| (name.to_owned(), second_f * 100.0 * factor + second_f * second_f));
            writer.counters(&Counters { second, server, values: values.into() }).unwrap();
        }
    }
    let check = CheckSummary {
        verified: 2_900_000,
        compared: 2_800_000,
        lost: shape.lost,
        sample: 1,
        ..CheckSummary::default()
    };
    writer.finish(check).unwrap()
}
