//! The measured cluster: `annulet dev 3`, three real processes of the real binary with a shard each.

use crate::Result;
use crate::annulet::{Counts, exchange, ping};
use crate::generator::{Session, Until};
use crate::measure::{Cost, Servers, cost_on};
use crate::process::{Process, make_dir, tail};
use crate::sys;
use crate::workload::{Keys, Op, Riak, Workload};
use protocol::codes;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How many nodes; each has a copy of everything.
pub const NODES: usize = 3;

/// How long a start may take, until all nodes see each other.
const START_MAX: Duration = Duration::from_secs(60);

/// How long a clean stop may take.
const STOP_MAX: Duration = Duration::from_secs(60);

/// How often nodes are asked whom they see: rarely enough to cost nothing, often enough to time what is bounded in
/// seconds.
const LOOK_AT_PEERS: Duration = Duration::from_millis(50);

/// Base ports that are tried, [`PORTS`] apart; below those that the kernel gives to clients.
const BASES: std::ops::Range<u16> = 200..320;
const PORTS: u16 = 100;

/// How a cluster is started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The binary.
    pub binary: PathBuf,
    /// Where its data and its log are, one below the other.
    pub home: PathBuf,
    /// `none` or `sync`.
    pub durability: &'static str,
    /// How reads ask their replicas; without it, the nodes' own default.
    pub read_form: Option<&'static str>,
}

/// A running cluster. Dropping it kills its nodes.
pub struct Cluster {
    /// Its processes and where they serve protocol buffers, in the order of their names.
    pub servers: Servers,
    http: Vec<SocketAddr>,
    logs: Vec<PathBuf>,
    /// `None` once it is being stopped.
    dev: Option<Process>,
}

/// What nodes did while operations ran, summed over them.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Messages between nodes.
    pub frames: u64,
    /// Their bytes, before encryption.
    pub bytes: u64,
    /// The calls that wrote them.
    pub writes: u64,
    /// Records in journals.
    pub records: u64,
    /// Syncs of files.
    pub syncs: u64,
}

impl Setup {
    /// Where node `number` has its data, counted from 1.
    pub fn folder(&self, number: usize) -> PathBuf {
        self.home.join(format!("cluster/n{number}"))
    }
}

impl Cluster {
    /// Starts a cluster and waits until every node answers and sees the others.
    pub fn start(setup: &Setup) -> Result<Cluster> {
        let base = free_base()?;
        let mut command = Command::new(&setup.binary);
        command.arg("dev").arg(NODES.to_string());
        command.arg("--data").arg(make_dir(&setup.home, "cluster")?);
        command.args(["--base-port", &base.to_string(), "--durability", setup.durability]);
        if let Some(form) = setup.read_form {
            // Nodes inherit it.
            command.env("ANNULET_READ_FORM", form);
        }
        command.current_dir(&setup.home);
        let addresses = |port: u16| (1..=NODES as u16).map(|node| local(base + 10 * node + port)).collect();
        let servers = Servers { pids: Vec::new(), addresses: addresses(7) };
        let dev = Process::start(&mut command, setup.home.join("log"))?;
        let logs = (1..=NODES).map(|number| setup.folder(number).join("log")).collect();
        let mut cluster = Cluster { servers, http: addresses(8), logs, dev: Some(dev) };
        cluster.wait_for_nodes(setup)?;
        cluster.wait_for_reunion(START_MAX)?;
        Ok(cluster)
    }

    fn wait_for_nodes(&mut self, setup: &Setup) -> Result<()> {
        let dev = self.dev.as_mut().ok_or("the cluster is stopped")?;
        for number in 1..=NODES {
            let pid = dev.wait_until(START_MAX, || pid_in(&setup.folder(number)))?;
            self.servers.pids.push(pid);
            let mut stream = dev.wait_until(START_MAX, || ping(self.servers.addresses[number - 1]).ok())?;
            // Until it sees enough replicas it answers with an error.
            let get = Riak::new(Op::Get).request_of(0);
            dev.wait_until(START_MAX, || {
                exchange(&mut stream, &get).ok().filter(|&code| code == codes::GET_RESP)
            })?;
        }
        Ok(())
    }

    fn wait_for_reunion(&self, limit: Duration) -> Result<()> {
        let begin = Instant::now();
        loop {
            let up = self.http.iter().map(|&http| peers_up(http)).collect::<Result<Vec<u64>>>()?;
            if up.iter().all(|&up| up == NODES as u64 - 1) {
                return Ok(());
            }
            if begin.elapsed() > limit {
                return Err(format!("after {limit:?} the nodes see {up:?} others").into());
            }
            sleep(LOOK_AT_PEERS);
        }
    }

    /// Measures operations on connections that are warm, with what the nodes said to each other meanwhile.
    pub fn observe(
        &self,
        session: &mut Session,
        workload: &mut impl Workload,
        keys: &mut Keys,
        until: Until,
    ) -> Result<(Cost, Traffic)> {
        self.servers.rest()?;
        let before = self.counts()?;
        let cost = cost_on(&self.servers, session, workload, keys, until)?;
        let after = self.counts()?;
        let since = |name| -> Result<u64> {
            before.iter().zip(&after).map(|(then, now)| now.since(then, name)).sum()
        };
        let traffic = Traffic {
            frames: since("peer_frames_sent")?,
            bytes: since("peer_bytes_sent")?,
            writes: since("peer_writes")?,
            records: since("journal_records")?,
            syncs: since("disk_syncs")?,
        };
        Ok((cost, traffic))
    }

    /// What each node counts.
    pub fn counts(&self) -> Result<Vec<Counts>> {
        self.http.iter().map(|&http| Counts::fetch(http)).collect()
    }

    /// Stops it cleanly.
    pub fn stop(mut self) -> Result<()> {
        let dev = self.dev.take().ok_or("the cluster is stopped")?;
        let stopped = dev.stop(STOP_MAX);
        match stopped {
            Ok(status) if status.success() => Ok(()),
            failed => {
                self.kill_nodes();
                Err(format!("a clean stop ended in {:?}", failed?).into())
            }
        }
    }

    fn kill_nodes(&self) {
        for &pid in &self.servers.pids {
            // It may be gone; who ends here has nothing left to tell.
            drop(sys::signal(pid, libc::SIGKILL));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.dev.is_some() {
            // Something has failed, and the folders may not outlive it.
            for log in &self.logs {
                eprintln!("figures: {} ends with\n{}", log.display(), tail(log));
            }
            self.kill_nodes();
        }
    }
}

impl Traffic {
    /// The sum of several.
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Traffic>) -> Traffic {
        let none = Traffic { frames: 0, bytes: 0, writes: 0, records: 0, syncs: 0 };
        all.into_iter().fold(none, |sum, one| Traffic {
            frames: sum.frames + one.frames,
            bytes: sum.bytes + one.bytes,
            writes: sum.writes + one.writes,
            records: sum.records + one.records,
            syncs: sum.syncs + one.syncs,
        })
    }
}

/// How many others a node sees.
fn peers_up(http: SocketAddr) -> Result<u64> {
    Counts::fetch(http)?.get("peers_up")
}

fn pid_in(folder: &Path) -> Option<u32> {
    fs::read_to_string(folder.join("pid")).ok()?.trim().parse().ok()
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A base port above which nobody listens where the nodes will.
fn free_base() -> Result<u16> {
    let is_free =
        |base: u16| (7..=10 * NODES as u16 + 9).all(|port| TcpListener::bind(local(base + port)).is_ok());
    let base = BASES.map(|hundred| hundred * PORTS).find(|&base| is_free(base));
    base.ok_or_else(|| "no ports are free".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_has_room_for_all_nodes() {
        let base = free_base().unwrap();
        let taken = TcpListener::bind(local(base + 17)).unwrap();
        assert!(free_base().unwrap() != base);
        drop(taken);
    }

    #[test]
    fn a_pid_file_is_a_number() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(pid_in(dir.path()), None);
        fs::write(dir.path().join("pid"), "123\n").unwrap();
        assert_eq!(pid_in(dir.path()), Some(123));
    }
}
