//! A network namespace for each node, joined by a bridge, and cuts between them.
//!
//! The scenario itself must run in a namespace of its own ([`is_apart`]), so that nothing that is made here is seen
//! outside or outlives it. A node's namespace has no name: a process that sleeps holds it, and with that process it is
//! gone. Node i is 10.77.0.(i + 1), the scenario 10.77.0.254.

use bench::Error;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TOOLS: [&str; 4] = ["ip", "iptables", "nsenter", "unshare"];

/// How long a process may take to enter its namespace.
const ENTER_MAX: Duration = Duration::from_secs(10);

/// What a person is told to do where tools are missing.
const NEEDED: &str = "networks need root, iproute2, iptables and util-linux";

/// The namespaces of all nodes.
pub struct Networks {
    holders: Vec<Child>,
}

impl Networks {
    /// Whether everything is there, before anything is made.
    pub fn check() -> Result<(), Error> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Unusable(NEEDED.to_owned()));
        }
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let is_there = |tool: &&str| std::env::split_paths(&paths).any(|folder| folder.join(tool).is_file());
        match TOOLS.iter().find(|tool| !is_there(tool)) {
            Some(tool) => Err(Error::Unusable(format!("{NEEDED}; there is no {tool}"))),
            None => Ok(()),
        }
    }

    /// Makes the bridge and `nodes` namespaces. Must be called where [`is_apart`].
    pub fn make(nodes: usize) -> Result<Networks, Error> {
        ip("link set lo up")?;
        ip("link add annulet0 type bridge")?;
        ip("addr add 10.77.0.254/24 dev annulet0")?;
        ip("link set annulet0 up")?;
        let mut networks = Networks { holders: Vec::new() };
        for node in 1..=nodes {
            let holder = Command::new("unshare")
                .args(["--net", "--kill-child", "sleep", "infinity"])
                .stdin(Stdio::null())
                .spawn()
                .map_err(Error::file(Path::new("unshare")))?;
            let pid = holder.id();
            networks.holders.push(holder);
            await_namespace(pid)?;
            ip(&format!("link add veth{node} type veth peer name eth0 netns {pid}"))?;
            ip(&format!("link set veth{node} master annulet0"))?;
            ip(&format!("link set veth{node} up"))?;
            let inside = |arguments: &str| networks.inside(node - 1, &format!("ip {arguments}"));
            inside("link set lo up")?;
            inside(&format!("addr add 10.77.0.{node}/24 dev eth0"))?;
            inside("link set eth0 up")?;
        }
        Ok(networks)
    }

    /// What stands before a node's command so that it runs in its namespace.
    pub fn prefix(&self, node: usize) -> Vec<OsString> {
        let namespace = format!("--net=/proc/{}/ns/net", self.holders[node].id());
        vec!["nsenter".into(), namespace.into(), "--".into()]
    }

    /// Cuts all traffic between `node` and `others`, in both directions.
    pub fn cut(&self, node: usize, others: &[usize]) -> Result<(), Error> {
        for &other in others {
            self.inside(node, &format!("iptables -w -A INPUT -s 10.77.0.{} -j DROP", other + 1))?;
            self.inside(other, &format!("iptables -w -A INPUT -s 10.77.0.{} -j DROP", node + 1))?;
        }
        Ok(())
    }

    /// Mends all cuts.
    pub fn heal(&self) -> Result<(), Error> {
        (0..self.holders.len()).try_for_each(|node| self.inside(node, "iptables -w -F INPUT"))
    }

    fn inside(&self, node: usize, command: &str) -> Result<(), Error> {
        let prefix = self.prefix(node);
        run(Command::new(&prefix[0]).args(&prefix[1..]).args(command.split(' ')), command)
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            // It may be gone already.
            holder.kill().and_then(|()| holder.wait()).ok();
        }
    }
}

/// Whether this process has a network namespace to itself: one with nothing in it but the loopback device.
pub fn is_apart() -> bool {
    // Not /sys/class/net, which shows the namespace of whoever mounted it.
    let names = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    names.lines().skip(2).all(|line| line.trim_start().starts_with("lo:"))
}

/// Until the process is in another namespace than this one.
fn await_namespace(pid: u32) -> Result<(), Error> {
    let own = std::fs::read_link("/proc/self/ns/net").ok();
    let begin = Instant::now();
    loop {
        let theirs = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        if theirs.is_some() && theirs != own {
            return Ok(());
        }
        if begin.elapsed() > ENTER_MAX {
            return Err(Error::Unusable("no network namespace could be made".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn ip(arguments: &str) -> Result<(), Error> {
    run(Command::new("ip").args(arguments.split(' ')), &format!("ip {arguments}"))
}

fn run(command: &mut Command, what: &str) -> Result<(), Error> {
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| Error::Io { what: what.to_owned(), error })?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(Error::Unusable(format!("{what}: {}", said.trim_end())))
        }
    }
}
