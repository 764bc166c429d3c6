//! The load: closed loops of the crate `bench`, one operation each, on connections that stay open.
//!
//! A run is one thread with so many connections, one operation under way on each, all content of answers verified.
//! A run with a wrong, refused or missing answer has failed; only a load that fills the store repeats refused
//! operations.
//! Results go to a folder that is removed.
//!
//! Left out: the check of values that reads find (`check` of a workload), which is the generator's own
//! figure (`figures bench`).

use crate::Result;
use bench::{Control, Identity, Login, Workload};
use histogram::Histogram;
use results::{Kind, Results, Summary};
use std::net::SocketAddr;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// The length of values for which nothing else is said.
pub const VALUE_LEN: usize = 1024;

/// The length of every key.
const KEY_LEN: usize = 12;

/// How often a load that is not measured repeats a request that the server refuses, and how long it waits before: it
/// may be faster than the disk.
const ATTEMPTS: u32 = 1000;

/// The operations that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read a value.
    Get,
    /// Write a value.
    Put,
    /// Read all but the value.
    Head,
    /// Ask for a key that is not there.
    Miss,
    /// Write a value of a consistent type if there is none.
    PutOnce,
    /// Write a value of a consistent type over the one that the connection's thread has seen.
    Cas,
}

impl Op {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Op::Get => "get",
            Op::Put => "put",
            Op::Head => "head",
            Op::Miss => "miss",
            Op::PutOnce => "put_once",
            Op::Cas => "cas",
        }
    }
}

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After so long.
    Elapsed(Duration),
    /// After so many operations.
    Ops(u64),
}

/// A closed loop.
#[derive(Clone, Debug)]
pub struct Load {
    /// `pb`, `http`, `redis` or `etcd`.
    pub driver: &'static str,
    /// The operation.
    pub op: Op,
    /// Connections, spread evenly over the servers.
    pub connections: usize,
    /// The consistent bucket type of the bucket; none for the default type.
    pub consistent_type: Option<&'static str>,
    /// The bucket.
    pub bucket: String,
    /// Keys: so many.
    pub keys: u64,
    /// Whether each key is taken once, in order, in place of any at random.
    pub in_order: bool,
    /// The length of values.
    pub value_len: usize,
    /// Of the random numbers.
    pub seed: u64,
    /// Operations a second of an open loop, whose latencies count from when one was due; none for a closed loop.
    pub rate: Option<u32>,
    /// The number of replicas that a read waits for; none for that of the bucket.
    pub r: Option<u32>,
    /// The login by protocol buffers, under TLS; none in plaintext.
    pub login: Option<Login>,
}

impl Load {
    /// Operations on any of so many keys, by Riak's protocol buffers.
    pub fn new(op: Op, connections: usize, keys: u64) -> Load {
        let bucket = "figures".to_owned();
        Load {
            driver: "pb",
            op,
            connections,
            consistent_type: None,
            bucket,
            keys,
            in_order: false,
            value_len: VALUE_LEN,
            seed: 1,
            rate: None,
            r: None,
            login: None,
        }
    }

    /// Writes each of so many keys once.
    pub fn fill(keys: u64) -> Load {
        Load { in_order: true, ..Load::new(Op::Put, 64, keys) }
    }

    /// The workload.
    fn text(&self, until: Until) -> String {
        let Load { driver, op, connections, bucket, keys, value_len, seed, .. } = self;
        let (word, prefix) = match op {
            Op::Miss => ("get", "m"),
            op => (op.name(), ""),
        };
        let kind = if self.in_order { "sequential" } else { "uniform" };
        let end = match until {
            Until::Elapsed(time) => format!("duration = \"{}ms\"", time.as_millis()),
            Until::Ops(count) => format!("operations_max = {count}"),
        };
        let attempts = if self.in_order && *op == Op::Put { ATTEMPTS } else { 1 };
        let rate = self
            .rate
            .map(|rate| format!("load = {{ kind = \"fixed\", rate = {rate} }}\n"))
            .unwrap_or_default();
        let quorums = self.r.map(|r| format!("quorums = {{ r = {r} }}\n")).unwrap_or_default();
        let of_type = |name| format!("bucket_type = \"{name}\"\nconsistent = true\n");
        let bucket_type = self.consistent_type.map(of_type).unwrap_or_default();
        format!(
            "{bucket_type}{rate}{quorums}driver = \"{driver}\"\nseed = {seed}\nconcurrency = {connections}\n\
             warm_up = \"0s\"\n{end}\nbucket = \"{bucket}\"\n\
             keys = {{ kind = \"{kind}\", count = {keys}, prefix = \"{prefix}\", digits = {} }}\n\
             value = {{ size = {value_len} }}\ncheck = {{ audit = 0, keys_max = 0 }}\n\
             retry = {{ attempts = {attempts}, backoff = \"2ms\" }}\noperation = [{{ op = \"{word}\" }}]\n",
            KEY_LEN - prefix.len()
        )
    }

    /// Runs it against the servers at these addresses, with the processes `pids`.
    pub fn run(&self, addresses: &[SocketAddr], pids: &[u32], until: Until) -> Result<Outcome> {
        let mut workload = Workload::parse(&self.text(until), "figures")?;
        workload.addresses = addresses.iter().map(|&address| address.into()).collect();
        workload.pids = pids.to_vec();
        let begin = Instant::now();
        let (summary, results) = run_as(&workload, self.login.clone())?;
        let outcome = Outcome::of(&results, until, begin.elapsed());

        let (asked, found) = (&summary.total, outcome.ops - outcome.not_found);
        let wanted = if self.op == Op::Miss { 0 } else { outcome.ops };
        if found != wanted || outcome.failed > 0 {
            let Load { op, keys, .. } = self;
            let (failed, errors) = (outcome.failed, &asked.errors);
            return Err(format!("{op:?} of {keys} keys: {found} found, {failed} failed: {errors:?}").into());
        }
        Ok(outcome)
    }
}

/// Runs a workload into a folder that is gone afterwards. An error if the store was wrong.
pub fn run(workload: &Workload) -> Result<(Summary, Results)> {
    run_as(workload, None)
}

fn run_as(workload: &Workload, login: Option<Login>) -> Result<(Summary, Results)> {
    let dir = tempfile::tempdir()?;
    let out = dir.path().join("results");
    let summary =
        bench::run(workload, &out, &Identity { login, ..Identity::default() }, &Control::default(), &mut ())?;
    match summary.verdict.passed {
        true => Ok((summary, Results::open(&out)?)),
        false => Err(summary.verdict.failures.join("; ").into()),
    }
}

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Operations that were answered.
    pub ops: u64,
    /// Of these, reads that found nothing.
    pub not_found: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Bytes of values that came back.
    pub bytes_read: u64,
    /// How long operations began.
    pub wall: Duration,
    /// CPU time of the generator's thread.
    pub cpu: Duration,
    /// Busy cores of the machine in its whole seconds; unknown for a run without one.
    pub cores: Option<f64>,
    /// From each request to its answer.
    pub latencies: Histogram,
}

impl Outcome {
    /// Of all seconds: there is neither a warm-up nor anything after the load.
    fn of(results: &Results, until: Until, elapsed: Duration) -> Outcome {
        let wall = match until {
            Until::Elapsed(time) => time,
            Until::Ops(_) => elapsed,
        };
        let latencies = results.merged(|_, _, kind| kind == Kind::Response);
        let mut outcome = Outcome { wall, latencies, ..Outcome::default() };
        for second in &results.seconds {
            for operation in second.operations.values() {
                outcome.ops += operation.done;
                outcome.not_found += operation.not_found;
                outcome.failed += operation.failed;
                outcome.bytes_read += operation.bytes_read;
            }
            outcome.cpu += Duration::from_micros(second.generator.cpu_us);
        }
        let whole = results.seconds.iter().filter(|it| Duration::from_secs(it.second + 1) <= wall);
        let busy: Vec<f64> = whole.map(|second| second.busy).collect();
        let machine = available_parallelism().map_or(1, usize::from) as f64;
        outcome.cores = (!busy.is_empty()).then(|| machine * busy.iter().sum::<f64>() / busy.len() as f64);
        outcome
    }

    /// Such a time for each operation, in microseconds.
    pub fn us_per_op(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.ops.max(1) as f64
    }

    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.ops as f64 / self.wall.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::workload::DriverKind;
    use std::net::{IpAddr, Ipv4Addr};

    /// The driver asks no server, but a workload has one.
    const NOWHERE: [SocketAddr; 1] = [SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1)];

    #[test]
    fn loads_are_workloads() {
        for (driver, kind) in
            [("pb", DriverKind::Pb), ("http", DriverKind::Http), ("redis", DriverKind::Redis)]
        {
            for op in [Op::Get, Op::Put, Op::Head, Op::Miss] {
                let load = Load { driver, ..Load::new(op, 64, 1000) };
                let workload =
                    Workload::parse(&load.text(Until::Elapsed(Duration::from_millis(1200))), "").unwrap();
                assert_eq!((workload.driver, workload.concurrency, workload.threads), (kind, 64, 1));
                assert_eq!(workload.duration, Some(Duration::from_millis(1200)));
            }
        }
        let fill = Workload::parse(&Load::fill(10).text(Until::Ops(10)), "").unwrap();
        assert_eq!((fill.operations_max, fill.retry.attempts), (Some(10), ATTEMPTS));
    }

    #[test]
    fn every_operation_is_counted() {
        // So many that the scheduler has counted some of their time.
        let load = Load { driver: "null", ..Load::fill(50_000) };
        let put = load.run(&NOWHERE, &[], Until::Ops(50_000)).unwrap();
        assert_eq!((put.ops, put.failed, put.latencies.count()), (50_000, 0, 50_000));
        assert!(put.cpu > Duration::ZERO && put.rate() > 0.0);
        // Each run has a store of its own: nothing is there.
        let get = Load { driver: "null", ..Load::new(Op::Get, 8, 1000) };
        let failure = get.run(&NOWHERE, &[], Until::Ops(100)).unwrap_err().to_string();
        assert!(failure.contains("0 found"), "{failure}");
        let miss = Load { op: Op::Miss, ..get };
        assert_eq!(miss.run(&NOWHERE, &[], Until::Ops(100)).unwrap().not_found, 100);
    }
}
