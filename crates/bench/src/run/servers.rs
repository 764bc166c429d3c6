//! The servers: their identity for the manifest, and their processes.

use super::reach::Places;
use crate::proc;
use crate::workload::{DriverKind, Workload};
use results::Server;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A server that has not told its counters in this time is not asked again until the next turn.
const STATS_TIMEOUT: Duration = Duration::from_millis(300);

/// No answer to `/stats` is longer.
const STATS_MAX: u64 = 4 << 20;

/// A server that is watched.
pub struct Watched {
    address: SocketAddr,
    stats: Option<SocketAddr>,
    /// Its process; 0 if none is known.
    pid: AtomicU32,
    /// Whether it runs, or did, on this machine.
    pub is_local: bool,
    /// Its data folder.
    pub data: Option<PathBuf>,
    /// The device that the folder is on.
    pub device: Option<String>,
}

impl Watched {
    /// Its process.
    pub fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid > 0)
    }

    /// The process that listens where it did.
    pub fn find_again(&self) -> Option<u32> {
        let pid = proc::listener(self.address).filter(|_| self.is_local)?;
        self.pid.store(pid, Ordering::Relaxed);
        Some(pid)
    }

    /// The numbers that it tells of itself.
    pub fn counters(&self) -> Option<BTreeMap<String, f64>> {
        counters(self.stats?)
    }
}

/// The numbers that the node which serves HTTP at this address tells of itself.
pub fn counters(http: SocketAddr) -> Option<BTreeMap<String, f64>> {
    let Value::Object(all) = stats(http)? else { return None };
    Some(all.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect())
}

fn stats(http: SocketAddr) -> Option<Value> {
    let mut stream = TcpStream::connect_timeout(&http, STATS_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(STATS_TIMEOUT)).ok()?;
    // HTTP/1.0, so that the answer ends with the connection and is not chunked.
    stream.write_all(b"GET /stats HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.take(STATS_MAX).read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

/// The servers of a workload, and what the manifest says of them. An engine in this process has its stores in `folder`.
pub fn find(workload: &Workload, places: &Places, folder: &Path) -> Vec<(Watched, Server)> {
    match workload.driver {
        DriverKind::Engine => vec![in_process(workload, folder)],
        DriverKind::Null => Vec::new(),
        _ => (0..places.servers.len()).map(|at| describe(workload, places, at)).collect(),
    }
}

/// An engine in this process: what it costs is told together with what the generator costs.
fn in_process(workload: &Workload, folder: &Path) -> (Watched, Server) {
    let (pid, plan) = (std::process::id(), &workload.engine);
    // Before the run makes it: the file system is that of the folder that it will be in.
    let mount = folder.ancestors().find(|it| it.exists()).and_then(proc::mount_of);
    let watched = Watched {
        address: SocketAddr::from(([0, 0, 0, 0], 0)),
        stats: None,
        pid: AtomicU32::new(pid),
        is_local: true,
        data: Some(folder.to_path_buf()),
        device: mount.as_ref().map(|(device, _)| device.clone()),
    };
    let server = Server {
        name: plan.kind.name().to_owned(),
        address: "in the generator's process".to_owned(),
        pid: Some(pid),
        command: Vec::new(),
        version: String::new(),
        options: plan.options(workload.workers()),
        data: Some(folder.display().to_string()),
        file_system: mount.map(|(_, kind)| kind),
        limits: proc::limits(pid),
    };
    (watched, server)
}

fn describe(workload: &Workload, places: &Places, at: usize) -> (Watched, Server) {
    let address = places.servers[at];
    let pid = workload.pids.get(at).copied().or_else(|| proc::listener(address));
    let command = pid.map(proc::command_line).unwrap_or_default();
    let mut options = pid.map(|pid| proc::variables(pid, "ANNULET_")).unwrap_or_default();
    options.extend(flags(&command));
    options.extend(workload.peer.options(workload.driver));
    let stats = places
        .stats
        .get(at)
        .copied()
        .or_else(|| Some(address).filter(|_| workload.driver == DriverKind::Http));
    let data = workload.data.get(at).cloned().or_else(|| {
        let folder = PathBuf::from(options.get("data").or_else(|| options.get("ANNULET_DATA"))?);
        Some(proc::working_folder(pid?)?.join(folder))
    });
    let mount = data.as_deref().and_then(proc::mount_of);
    let watched = Watched {
        address,
        stats,
        pid: AtomicU32::new(pid.unwrap_or(0)),
        is_local: pid.is_some(),
        device: mount.as_ref().map(|(device, _)| device.clone()),
        data: data.clone(),
    };
    let told = watched.stats.and_then(self::stats);
    let text = |name: &str| told.as_ref().and_then(|it| it.get(name)?.as_str().map(str::to_owned));
    if let Some(Value::Object(all)) = told.as_ref().and_then(|it| it.get("options")) {
        let said = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        options.extend(all.iter().map(|(name, value)| (name.clone(), said(value))));
    }
    let server = Server {
        name: text("nodename").unwrap_or_else(|| workload.addresses[at].to_string()),
        address: workload.addresses[at].to_string(),
        pid,
        command,
        version: text("annulet_version").or_else(|| text("riak_kv_version")).unwrap_or_default(),
        options,
        data: data.map(|data| data.display().to_string()),
        file_system: mount.map(|(_, kind)| kind),
        limits: pid.map(proc::limits).unwrap_or_default(),
    };
    (watched, server)
}

/// The flags of a command line: `--name value`.
fn flags(command: &[String]) -> BTreeMap<String, String> {
    let pairs = command.windows(2).filter_map(|pair| Some((pair[0].strip_prefix("--")?, &pair[1])));
    let split = command.iter().filter_map(|word| word.strip_prefix("--")?.split_once('='));
    let pairs = pairs.filter(|(name, _)| !name.contains('=')).map(|(name, value)| (name, &**value));
    pairs.chain(split).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
