//! The measured nodes: the real binary, built and started as a user would, one alone or some as a cluster.
//!
//! They are processes of [`experiments::scenario::nodes`]: they end with their owner in any case.

use crate::Result;
use crate::load::{Load, Until};
use crate::measure::{Cost, Servers, Window};
use client::{Client, ReadOptions, Timeouts};
use experiments::scenario::launch::{Launcher, NodeAddresses, ports};
use experiments::scenario::nodes::Nodes;
use experiments::scenario::{Plan, consistent_type};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long it may take until a request for a key is answered, by a node that serves.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// How often it is asked.
const LOOK: Duration = Duration::from_millis(1);

/// How often a node is asked for its counts at most: under load it may not answer in time.
const COUNTS_TRIES: usize = 20;

/// Base ports that are tried, [`PORTS`] apart; below those that the kernel gives to clients.
const BASES: std::ops::Range<u16> = 200..320;
const PORTS: u16 = 100;

/// How nodes are started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The binary.
    pub binary: PathBuf,
    /// Where their data and logs are, a folder each.
    pub home: PathBuf,
    /// How many.
    pub count: u16,
    /// Flags of `serve`, by their names.
    pub flags: Vec<(&'static str, String)>,
    base: u16,
}

impl Setup {
    /// So many nodes in a new folder.
    pub fn new(binary: &Path, home: PathBuf, count: u16, durability: &str) -> Result<Setup> {
        fs::create_dir_all(&home)?;
        let flags = vec![("durability", durability.to_owned())];
        Ok(Setup { binary: binary.to_owned(), home, count, flags, base: free_base(count)? })
    }

    /// The same with one more flag.
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Setup {
        self.flags.push((name, value.to_string()));
        self
    }

    /// Where node `number` has its data, counted from 1.
    pub fn folder(&self, number: u16) -> PathBuf {
        self.home.join(format!("n{number}"))
    }

    /// The plans of all nodes, and their certificates if they are several.
    fn plans(&self) -> Result<Vec<Plan>> {
        let node = |number| NodeAddresses::of(Ipv4Addr::LOCALHOST.into(), self.base, number);
        let nodes: Vec<NodeAddresses> = (1..=self.count).map(node).collect();
        let launcher = Launcher {
            program: &self.binary,
            home: &self.home,
            nodes: &nodes,
            founders: nodes.len(),
            options: self.flags.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        };
        launcher.make_certificates()?;
        Ok((0..nodes.len()).map(|at| launcher.plan(at)).collect())
    }
}

/// Running nodes.
pub struct Cluster {
    nodes: Nodes,
    /// Their processes and where they serve.
    pub servers: Servers,
    /// Where they serve HTTP.
    pub http: Vec<SocketAddr>,
    /// How long their start took, from the first spawn until each had answered a request for a key.
    pub start_time: Duration,
}

impl Cluster {
    /// Starts nodes and waits until each answers a request.
    pub fn start(setup: &Setup) -> Result<Cluster> {
        let plans = setup.plans()?;
        let (addresses, http) =
            (plans.iter().map(|plan| plan.pb).collect(), plans.iter().map(|plan| plan.http).collect());
        let begin = Instant::now();
        let mut nodes = Nodes::start_all(plans, setup.count.into())?;
        nodes.await_peers(setup.count.into())?;
        let servers = Servers { pids: nodes.pids(), addresses };
        servers.addresses.iter().try_for_each(|&address| await_answer(address))?;
        Ok(Cluster { nodes, servers, http, start_time: begin.elapsed() })
    }

    /// Creates and activates a consistent bucket type.
    pub fn make_consistent_type(&self, name: &str) -> Result<()> {
        Ok(consistent_type::make(name, &self.nodes.plans().collect::<Vec<_>>())?)
    }

    /// The prefixes of the consistent groups that a node leads, counted from 0.
    pub fn led_prefixes(&self, node: usize) -> Result<BTreeSet<u16>> {
        let plan = self.nodes.plans().nth(node).ok_or("there is no such node")?;
        Ok(consistent_type::led_prefixes(plan)?)
    }

    /// The first node's process.
    pub fn pid(&self) -> u32 {
        self.servers.pids[0]
    }

    /// The same processes, asked by HTTP.
    pub fn by_http(&self) -> Servers {
        Servers { addresses: self.http.clone(), ..self.servers.clone() }
    }

    /// Measures a load after a warm-up, with the counts of the nodes meanwhile.
    pub fn observe(&self, load: &Load, warm_up: Duration, until: Until) -> Result<(Cost, Counts)> {
        if !warm_up.is_zero() {
            self.servers.run(load, Until::Elapsed(warm_up))?;
        }
        self.servers.rest()?;
        let before = self.counts()?;
        let cost = self.servers.cost_at_rest(load, until)?;
        Ok((cost, self.counts()?.since(&before)))
    }

    /// The same in a window.
    pub fn observe_in(&self, load: &Load, window: Window) -> Result<(Cost, Counts)> {
        self.observe(load, window.warm_up, Until::Elapsed(window.time))
    }

    /// The counts of all nodes, summed.
    pub fn counts(&self) -> Result<Counts> {
        let mut sum = BTreeMap::new();
        for &http in &self.http {
            counts(http)?.into_iter().for_each(|(name, value)| *sum.entry(name).or_insert(0.0) += value);
        }
        Ok(Counts(sum))
    }

    /// Stops them cleanly; says how long that took.
    pub fn stop(mut self) -> Result<Duration> {
        let begin = Instant::now();
        self.nodes.stop_all()?;
        Ok(begin.elapsed())
    }

    /// Kills a node, counted from 0.
    pub fn kill_node(&mut self, node: usize) -> Result<()> {
        Ok(self.nodes.kill(node)?)
    }

    /// Starts a node that was killed, and waits until it answers.
    pub fn start_node(&mut self, node: usize) -> Result<()> {
        self.nodes.start(node)?;
        self.servers.pids = self.nodes.pids();
        await_answer(self.servers.addresses[node])
    }

    /// Kills a node that is alone.
    pub fn kill(mut self) -> Result<()> {
        Ok(self.nodes.kill(0)?)
    }
}

/// Until a node answers a request for a key, found or not: before it sees enough replicas it answers with an error.
fn await_answer(address: SocketAddr) -> Result<()> {
    let begin = Instant::now();
    let ask = || {
        Client::connect(address, Timeouts::default())?.get(None, b"figures", b"none", &ReadOptions::default())
    };
    while let Err(error) = ask() {
        if begin.elapsed() > ANSWER_MAX {
            return Err(format!("{address} did not answer in {ANSWER_MAX:?}: {error}").into());
        }
        sleep(LOOK);
    }
    Ok(())
}

fn counts(http: SocketAddr) -> Result<BTreeMap<String, f64>> {
    let mut tries = (0..COUNTS_TRIES).map(|_| bench::counters(http));
    tries.find_map(|counts| counts).ok_or_else(|| format!("{http} does not tell its counts").into())
}

/// Counts of nodes, by the names of their `/stats`.
#[derive(Clone, Debug, Default)]
pub struct Counts(BTreeMap<String, f64>);

impl Counts {
    /// How far all have gone since `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        let gone = |(name, now): (&String, &f64)| Some((name.clone(), now - before.0.get(name)?));
        Counts(self.0.iter().filter_map(gone).collect())
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Result<f64> {
        match self.0.get(name) {
            Some(&count) if count >= 0.0 => Ok(count),
            Some(count) => Err(format!("{name} went by {count}").into()),
            None => Err(format!("/stats has no {name}").into()),
        }
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A loopback address on which nothing listens at the moment.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind(local(0))?.local_addr()?)
}

/// A base port above which nothing listens where so many nodes will.
pub fn free_base(count: u16) -> Result<u16> {
    let is_free = |base: u16| ports(count).all(|port| TcpListener::bind(local(base + port)).is_ok());
    let base = BASES.map(|hundred| hundred * PORTS).find(|&base| is_free(base));
    base.ok_or_else(|| "no ports are free".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_has_room_for_all_nodes() {
        let base = free_base(3).unwrap();
        let taken = TcpListener::bind(local(base + 17)).unwrap();
        assert!(free_base(3).unwrap() != base);
        drop(taken);
    }

    #[test]
    fn counts_only_grow() {
        let of = |syncs: f64| Counts(BTreeMap::from([("syncs".to_owned(), syncs)]));
        let (then, now) = (of(5.0), of(12.0));
        assert_eq!(now.since(&then).get("syncs").unwrap(), 7.0);
        then.since(&now).get("syncs").unwrap_err();
        now.since(&Counts::default()).get("syncs").unwrap_err();
    }
}
