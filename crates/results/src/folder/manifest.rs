//! The manifest of a run: workload, machine, servers and their options.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `manifest.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the folder's layout.
    pub format: u32,
    /// A name for the run, for people.
    pub name: String,
    /// When it began, in UTC: `2026-01-31T12:00:00Z`.
    pub started: String,
    /// The same in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// The version of the generator, and the commit it was built from.
    pub version: String,
    /// The command that was run.
    pub command: Vec<String>,
    /// The workload's text, as it was read.
    pub workload: String,
    /// Where it was read from.
    pub workload_file: String,
    /// The driver: `pb`, `http`, `engine` or `null`.
    pub driver: String,
    /// `closed`, `fixed` or `poisson`.
    pub load: String,
    /// Operations a second that an open loop was asked for, of all generators together.
    pub rate: Option<f64>,
    /// Operations outstanding at most, of all generators together.
    pub concurrency: u64,
    /// Labels of operations, in the order of the workload.
    pub labels: Vec<String>,
    /// Seconds of warm-up at the start, which no figure counts; where it ends by itself, at most so many.
    pub warm_up_s: u64,
    /// Seconds that were to be measured; none if the run ends after a number of operations.
    pub duration_s: Option<u64>,
    /// Who made the load: one, or each of those that were merged.
    pub generators: Vec<Generator>,
    /// Who was loaded.
    pub servers: Vec<Server>,
    /// Where the generator ran.
    pub machine: Machine,
    /// What the generator's processes were limited to.
    pub limits: Limits,
}

/// A process that made load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Its number among `of`.
    pub index: u32,
    /// How many there were.
    pub of: u32,
    /// Its seed.
    pub seed: u64,
    /// The number that values of this run carry.
    pub run: u32,
    /// Threads.
    pub threads: u32,
    /// When it began, in milliseconds since 1970.
    pub started_unix_ms: u64,
}

/// A process that was loaded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Its name: the node's, or its address.
    pub name: String,
    /// Where it was asked.
    pub address: String,
    /// Its process, if it runs on the generator's machine.
    pub pid: Option<u32>,
    /// Its command line, if so.
    pub command: Vec<String>,
    /// Its version, as it tells it.
    pub version: String,
    /// Every option of the server and its engine, as it tells them.
    pub options: BTreeMap<String, String>,
    /// Its data folder, if that is known.
    pub data: Option<String>,
    /// The file system that the folder is on.
    pub file_system: Option<String>,
    /// What the process is limited to.
    pub limits: Limits,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// The processor's name.
    pub processor: String,
    /// Cores that can be used.
    pub cores: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The kernel's version.
    pub kernel: String,
    /// The load averages of 1, 5 and 15 minutes when the run began.
    pub load_average: String,
    /// What transparent huge pages are set to, and other settings that change figures.
    pub settings: BTreeMap<String, String>,
}

/// What a process is limited to; none where it is not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory of its control group, page cache included.
    pub memory_bytes: Option<u64>,
    /// Cores of its control group.
    pub cpus: Option<f64>,
    /// Open files.
    pub open_files: Option<u64>,
}
