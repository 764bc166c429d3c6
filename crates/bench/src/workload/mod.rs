//! A workload, as read from `workload.toml`. Each key is described in `docs/bench.md`.

mod engine;
mod fields;
mod index;
mod parse;
mod peers;

pub use engine::{EnginePlan, Packing};
pub use fields::duration;
pub use index::{Index, Indexes, Query, Wanted};
pub use peers::{CassandraPlan, Consistency, PeerPlan};

use crate::check::Cause;
use crate::keys::Shape;
use crate::names::Naming;
use crate::values::Size;
use os::Address;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// A workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Where that was read.
    pub file: String,
    /// What is loaded.
    pub driver: DriverKind,
    /// Where the servers are.
    pub addresses: Vec<Address>,
    /// Those of them that are connected to; all if none is said. A scenario says it, whose other nodes come and go.
    pub clients: Vec<Address>,
    /// Where their `/stats` are, in the same order; fewer or none where there are none.
    pub stats: Vec<Address>,
    /// Their processes, in the same order, where they cannot be found by who listens at the address.
    pub pids: Vec<u32>,
    /// Their data folders, in the same order, where they cannot be found by the processes' command lines.
    pub data: Vec<PathBuf>,
    /// The bucket type; none for the default one.
    pub bucket_type: Option<String>,
    /// Whether the bucket type is consistent: its writes are conditional, and a condition that fails is an answer.
    pub is_consistent: bool,
    /// The file of the history; none if none is written.
    pub history: Option<PathBuf>,
    /// Of everything random.
    pub seed: u64,
    /// Operations outstanding at most.
    pub concurrency: u32,
    /// Threads that make the load.
    pub threads: u32,
    /// Operations outstanding at most on one connection.
    pub pipeline: u32,
    /// When operations begin.
    pub load: Load,
    /// The time before figures count.
    pub warm_up: WarmUp,
    /// How long figures count.
    pub duration: Option<Duration>,
    /// Ends the run after so many operations.
    pub operations_max: Option<u64>,
    /// An operation that is not answered in this time has failed.
    pub timeout: Duration,
    /// How numbers become keys.
    pub naming: Naming,
    /// Whether text stands between random bytes in values.
    pub semi_compressible: bool,
    /// Where sequences remember how far they came.
    pub state: Option<PathBuf>,
    /// Index entries of what is written.
    pub indexes: Vec<Index>,
    /// The mix.
    pub operations: Vec<Operation>,
    /// Background jobs, each by a worker of its own.
    pub jobs: Vec<Job>,
    /// What is tried again.
    pub retry: Retry,
    /// How reads are checked.
    pub check: CheckPlan,
    /// Faults that are planted, to see whether the checks find them.
    pub plant: Plant,
    /// The engine in this process.
    pub engine: EnginePlan,
    /// What another store is told.
    pub peer: PeerPlan,
    /// Sent with every read and write where set: `r`, `w`, `pr`, `pw`, `dw`, `n_val`.
    pub quorums: BTreeMap<String, u32>,
}

impl Workload {
    /// Threads with a driver each: those that make the load, and one for each job.
    pub fn workers(&self) -> usize {
        self.threads as usize + self.jobs.len()
    }

    /// What writes so many keys of each of its buckets, the first ones, each once and as fast as may be: a store that
    /// has something in it before the run. Values are those of the first operation of the bucket that writes.
    pub fn fills(&self, count: u64) -> Vec<Workload> {
        // Where keys are new ones only, nobody would read those of a fill.
        let is_new = |keys: &Shape| matches!(keys, Shape::Unique | Shape::Own | Shape::OwnOldest);
        let has_old = |it: &&Operation| it.op.has_key() && !it.keys.as_ref().is_some_and(is_new);
        let mut writers: Vec<&Operation> = self.operations.iter().filter(has_old).collect();
        writers.sort_by_key(|it| !it.op.writes_value());
        let mut buckets = BTreeMap::new();
        for writer in writers {
            buckets.entry(&writer.bucket).or_insert(writer);
        }
        let fill = |writer: &Operation| Workload {
            load: Load::Closed,
            warm_up: WarmUp::For(Duration::ZERO),
            duration: None,
            operations_max: None,
            state: None,
            history: None,
            operations: vec![Operation {
                label: "fill".to_owned(),
                op: Op::Put,
                weight: 1,
                keys: Some(Shape::Sequential { start: 0, count }),
                query: None,
                ..writer.clone()
            }],
            jobs: Vec::new(),
            plant: Plant::default(),
            ..self.clone()
        };
        buckets.into_values().map(fill).collect()
    }

    /// Whether some operation carries the context of an earlier answer, so that those of writes are wanted, too.
    pub fn keeps_contexts(&self) -> bool {
        let jobs = self.jobs.iter().map(|job| &job.operation);
        self.operations.iter().chain(jobs).any(|it| it.op.keeps_context())
    }

    /// The servers that are connected to.
    pub fn targets(&self) -> &[Address] {
        if self.clients.is_empty() { &self.addresses } else { &self.clients }
    }
}

/// What is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverKind {
    /// Riak's protocol buffers.
    Pb,
    /// Riak's HTTP.
    Http,
    /// A storage engine in this process, one store for each thread, or one that all share.
    Engine,
    /// Nothing: a map in memory that answers at once, to see what the generator can do.
    Null,
    /// A Redis.
    Redis,
    /// A Redis Cluster.
    RedisCluster,
    /// An etcd, by its v3 API.
    Etcd,
    /// A Cassandra, by its native protocol.
    Cassandra,
}

impl DriverKind {
    /// All, those that this program was built without included.
    pub const ALL: [DriverKind; 8] = [
        DriverKind::Pb,
        DriverKind::Http,
        DriverKind::Engine,
        DriverKind::Null,
        DriverKind::Redis,
        DriverKind::RedisCluster,
        DriverKind::Etcd,
        DriverKind::Cassandra,
    ];

    /// Its name in workloads.
    pub fn name(self) -> &'static str {
        match self {
            DriverKind::Pb => "pb",
            DriverKind::Http => "http",
            DriverKind::Engine => "engine",
            DriverKind::Null => "null",
            DriverKind::Redis => "redis",
            DriverKind::RedisCluster => "redis-cluster",
            DriverKind::Etcd => "etcd",
            DriverKind::Cassandra => "cassandra",
        }
    }

    /// Whether it is another store's protocol, which knows nothing of Riak's words.
    pub fn is_peer(self) -> bool {
        match self {
            DriverKind::Pb | DriverKind::Http | DriverKind::Engine | DriverKind::Null => false,
            DriverKind::Redis | DriverKind::RedisCluster | DriverKind::Etcd | DriverKind::Cassandra => true,
        }
    }

    /// Where its server is if nobody says.
    pub fn address_default(self) -> &'static str {
        match self {
            DriverKind::Redis | DriverKind::RedisCluster => "127.0.0.1:6379",
            DriverKind::Etcd => "127.0.0.1:2379",
            DriverKind::Cassandra => "127.0.0.1:9042",
            _ => "127.0.0.1:8087",
        }
    }
}

/// When operations begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// As soon as another has ended.
    Closed,
    /// At a rate, whatever the server does, at equal distances.
    Fixed(f64),
    /// The same at random distances: independent users.
    Poisson(f64),
}

impl Load {
    /// Its name in workloads.
    pub fn name(self) -> &'static str {
        match self {
            Load::Closed => "closed",
            Load::Fixed(_) => "fixed",
            Load::Poisson(_) => "poisson",
        }
    }

    /// Operations a second that are asked for.
    pub fn rate(self) -> Option<f64> {
        match self {
            Load::Closed => None,
            Load::Fixed(rate) | Load::Poisson(rate) => Some(rate),
        }
    }
}

/// The time before figures count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// So long.
    For(Duration),
    /// Until the throughput is steady, so long at most.
    UntilSteady(Duration),
}

impl WarmUp {
    /// How long it is at most.
    pub fn limit(self) -> Duration {
        match self {
            WarmUp::For(limit) | WarmUp::UntilSteady(limit) => limit,
        }
    }
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads an object.
    Get,
    /// Reads an object without its value.
    Head,
    /// Writes an object without having read it; of a consistent bucket type, the same as an update.
    Put,
    /// Reads an object and writes it with what was read as context.
    Update,
    /// Writes an object of a consistent bucket type if there is none.
    PutOnce,
    /// Writes an object of a consistent bucket type with the context of the worker's last read or write of it.
    Cas,
    /// Deletes an object.
    Delete,
    /// Deletes an object of a consistent bucket type with the context of the worker's last read or write of it.
    DeleteIf,
    /// Asks an index.
    Query,
    /// Lists the keys of the bucket.
    ListKeys,
    /// Lists buckets.
    ListBuckets,
    /// Asks whether the server is there.
    Ping,
    /// Closes a connection and opens it again.
    Reconnect,
}

impl Op {
    /// Whether it names a key.
    pub fn has_key(self) -> bool {
        matches!(self, Op::Get | Op::Head) || self.writes_value() || self.deletes()
    }

    /// Whether it writes a value.
    pub fn writes_value(self) -> bool {
        matches!(self, Op::Put | Op::Update | Op::PutOnce | Op::Cas)
    }

    /// Whether it deletes.
    pub fn deletes(self) -> bool {
        matches!(self, Op::Delete | Op::DeleteIf)
    }

    /// Whether it carries the context of an earlier operation.
    pub fn keeps_context(self) -> bool {
        matches!(self, Op::Cas | Op::DeleteIf)
    }

    /// Whether only a consistent bucket type knows it.
    pub fn is_conditional(self) -> bool {
        matches!(self, Op::PutOnce | Op::Cas | Op::DeleteIf)
    }
}

/// A part of the mix.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// What it is called in results.
    pub label: String,
    /// What it does.
    pub op: Op,
    /// How often, against the others.
    pub weight: u32,
    /// The bucket.
    pub bucket: String,
    /// Which keys; none for operations without one.
    pub keys: Option<Shape>,
    /// How long values are.
    pub size: Size,
    /// Which index entries what is written has.
    pub indexes: Indexes,
    /// What an index is asked.
    pub query: Option<Query>,
}

/// A background job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// What it does; its weight means nothing.
    pub operation: Operation,
    /// From one beginning to the next.
    pub every: Duration,
}

/// What is tried again.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// Attempts at most, the first included.
    pub attempts: u32,
    /// How long before the next.
    pub backoff: Duration,
    /// After which kinds of errors; all that may pass if empty.
    pub on: Vec<String>,
}

/// How reads are checked.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckPlan {
    /// Whether values are stamped and reads compared with writes.
    pub reads: bool,
    /// Keys that are compared at most, in all.
    pub keys_max: u64,
    /// One key of so many is compared.
    pub sample: u64,
    /// Written keys that are read once more at the end, at most.
    pub audit: u64,
    /// Wrong results that do not fail the run.
    pub tolerate: Vec<Cause>,
}

/// Planted faults: one operation of so many is answered wrongly by the generator itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plant {
    /// One write of so many is acknowledged and not sent.
    pub drop_writes: Option<u64>,
    /// One read of so many is answered with an older version.
    pub stale_reads: Option<u64>,
    /// One write of so many is sent without its index entries.
    pub drop_entries: Option<u64>,
}

#[cfg(test)]
mod tests;
