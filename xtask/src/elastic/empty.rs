//! Clusters without data: how soon nodes come together on a large ring, and what they cost when nothing happens.

use super::Context;
use crate::annulet::Counts;
use crate::process::{Process, free_address, make_dir};
use crate::report::Report;
use crate::rows::{Bar, Row, Spec};
use crate::stats::rounded;
use crate::{Result, proc, sys};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long nodes may take to come together before that counts as failed.
const TOGETHER_MAX: Duration = Duration::from_secs(300);

/// How long a commit is tried.
const COMMIT_MAX: Duration = Duration::from_secs(10);

/// Between two looks at whether something has happened that is timed in seconds.
const LOOK: Duration = Duration::from_millis(50);

/// After something has happened, before idleness is measured: nodes ask each other often for five seconds more.
const SETTLE: Duration = Duration::from_secs(10);

const LARGE: u32 = 16_384;
const PAIR: u32 = 2_048;
const IDLE: u32 = 1_024;

fn joined() -> Spec {
    Spec::new("a fourth joins three, ring 16384, empty", "s", Some(Bar::Below(30.0)))
}

fn at_rest() -> Spec {
    Spec::new("a fourth has joined, ring 16384: busiest node", "% of a core", None)
}

fn memory() -> Spec {
    Spec::new("memory for each partition, ring 16384", "kB", Some(Bar::Below(20.0)))
}

fn pair() -> Spec {
    Spec::new("two nodes, ring 2048, empty", "s", Some(Bar::Below(3.0)))
}

fn idle_cpu() -> Spec {
    Spec::new("five idle nodes, ring 1024: busiest", "% of a core", Some(Bar::Below(0.2)))
}

fn idle_bytes() -> Spec {
    Spec::new("five idle nodes, ring 1024: most sent by one", "kB/s", Some(Bar::Below(5.0)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![joined(), at_rest(), memory(), pair(), idle_cpu(), idle_bytes()]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let mut push = |specs: Vec<Spec>, rows: Result<Vec<Row>>| match rows {
        Ok(rows) => rows.into_iter().try_for_each(|row| report.push(row)),
        Err(failure) => specs.into_iter().try_for_each(|spec| report.push(spec.failed(&failure))),
    };
    push(vec![joined(), at_rest(), memory()], large(context))?;
    push(vec![pair()], two(context).map(|row| vec![row]))?;
    push(vec![idle_cpu(), idle_bytes()], five(context))
}

fn large(context: &Context) -> Result<Vec<Row>> {
    let mut nodes = Nodes::found(context, 3, LARGE)?;
    nodes.await_members(3)?;
    let begin = Instant::now();
    nodes.join()?;
    nodes.await_members(4)?;
    nodes.commit()?;
    let took = begin.elapsed();
    let (cpu, _) = nodes.idle(context.plan.idle)?;
    // A small ring's memory is what a node takes anyway.
    let mut small = Nodes::found(context, 4, 64)?;
    small.await_members(4)?;
    sleep(SETTLE);
    let (of_large, of_small) = (nodes.resident()?, small.resident()?);
    let each = of_large.saturating_sub(of_small) as f64 / 1000.0 / f64::from(LARGE);
    Ok(vec![
        joined().valued(took.as_secs_f64(), "one run"),
        at_rest().valued(cpu, "one run"),
        memory()
            .valued(each, "one run, against a ring of 64")
            .also("largest_mb", Some(rounded(of_large as f64 / 1e6))),
    ])
}

fn two(context: &Context) -> Result<Row> {
    let mut nodes = Nodes::found(context, 1, PAIR)?;
    let begin = Instant::now();
    nodes.join()?;
    nodes.await_members(2)?;
    nodes.commit()?;
    Ok(pair().valued(begin.elapsed().as_secs_f64(), "one run, from the start of the second node on"))
}

fn five(context: &Context) -> Result<Vec<Row>> {
    let mut nodes = Nodes::found(context, 5, IDLE)?;
    nodes.await_members(5)?;
    let (cpu, bytes) = nodes.idle(context.plan.idle)?;
    let noise = format!("one run of {:?}", context.plan.idle);
    Ok(vec![idle_cpu().valued(cpu, noise.clone()), idle_bytes().valued(bytes / 1000.0, noise)])
}

struct Node {
    process: Process,
    http: SocketAddr,
}

/// Nodes of one cluster. Dropping them kills them.
struct Nodes {
    binary: PathBuf,
    home: tempfile::TempDir,
    peers: Vec<SocketAddr>,
    nodes: Vec<Node>,
}

impl Nodes {
    /// Starts so many that found a cluster together, with certificates for one more.
    fn found(context: &Context, count: usize, ring_size: u32) -> Result<Nodes> {
        let home = tempfile::Builder::new().prefix("empty").tempdir_in(&context.home)?;
        let peers = (0..=count).map(|_| free_address()).collect::<Result<Vec<_>>>()?;
        let mut nodes = Nodes { binary: context.binary.clone(), home, peers, nodes: Vec::new() };
        let mut cert = Command::new(&nodes.binary);
        cert.args(["admin", "cert", "--dir"]).arg(nodes.home.path().join("certs"));
        cert.args((0..=count).flat_map(|at| ["--name".to_owned(), name(at)]));
        succeed(&mut cert)?;
        let all: Vec<String> = (0..count).map(|at| format!("{}={}", name(at), nodes.peers[at])).collect();
        let (all, ring_size) = (all.join(","), ring_size.to_string());
        for _ in 0..count {
            nodes.start(&["--cluster", &all, "--ring-size", &ring_size])?;
        }
        Ok(nodes)
    }

    /// Starts one more, which joins.
    fn join(&mut self) -> Result<()> {
        let contact = self.peers[0].to_string();
        self.start(&["--join", &contact])
    }

    fn start(&mut self, flags: &[&str]) -> Result<()> {
        let at = self.nodes.len();
        let (http, pb) = (free_address()?, free_address()?);
        let folder = make_dir(self.home.path(), &format!("n{at}"))?;
        let certs = self.home.path().join("certs");
        let mut command = Command::new(&self.binary);
        command.args(["serve", "--shards", "1", "--durability", "none", "--name", &name(at)]).args(flags);
        command.args(["--pb-listen", &pb.to_string(), "--http-listen", &http.to_string()]);
        command.args(["--peer-listen", &self.peers[at].to_string()]);
        command.arg("--data").arg(folder.join("data"));
        command.arg("--peer-ca").arg(certs.join("ca.pem"));
        command.arg("--peer-cert").arg(certs.join(format!("n{at}.pem")));
        command.arg("--peer-key").arg(certs.join(format!("n{at}.key")));
        let process = Process::start(&mut command, folder.join("log"))?;
        self.nodes.push(Node { process, http });
        Ok(())
    }

    /// Has the first node do something.
    fn admin(&self, words: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command.arg("admin").args(words).args(["--node", &self.nodes[0].http.to_string()]);
        succeed(&mut command)
    }

    /// Has what is staged carried out, and waits for that. A newcomer that has just been seen is about to tell of its start, and a
    /// commit that was made for the state before is refused: then one looks again.
    fn commit(&self) -> Result<()> {
        let begin = Instant::now();
        loop {
            match self.admin(&["cluster", "commit", "--wait"]) {
                Err(failure) if begin.elapsed() > COMMIT_MAX => return Err(failure),
                Err(_) => sleep(LOOK),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Waits until every node serves and sees all others.
    fn await_members(&mut self, count: usize) -> Result<()> {
        for Node { process, http } in &mut self.nodes {
            let sees_all = || {
                let counts = Counts::fetch(*http).ok()?;
                counts.get("peers_up").ok().filter(|&up| up == count as u64 - 1)
            };
            process.wait_until(TOGETHER_MAX, || {
                let seen = sees_all();
                if seen.is_none() {
                    sleep(LOOK);
                }
                seen
            })?;
        }
        Ok(())
    }

    /// What nodes do when nothing is asked of them: the most CPU of one, in percent of a core, and the most bytes a second to
    /// others.
    fn idle(&self, time: Duration) -> Result<(f64, f64)> {
        sleep(SETTLE);
        let cpu = || {
            let clocks = self.nodes.iter().map(|node| sys::process_cpu(node.process.pid()));
            clocks.collect::<std::io::Result<Vec<Duration>>>()
        };
        let sent = || {
            let counts = self.nodes.iter().map(|node| Counts::fetch(node.http)?.get("peer_bytes_sent"));
            counts.collect::<Result<Vec<u64>>>()
        };
        let (sent_before, cpu_before) = (sent()?, cpu()?);
        sleep(time);
        let (cpu_after, sent_after) = (cpu()?, sent()?);
        let seconds = time.as_secs_f64();
        let used = cpu_before.iter().zip(&cpu_after).map(|(then, now)| (*now - *then).as_secs_f64());
        let bytes = sent_before.iter().zip(&sent_after).map(|(then, now)| (now - then) as f64);
        Ok((used.fold(0.0, f64::max) * 100.0 / seconds, bytes.fold(0.0, f64::max) / seconds))
    }

    /// Resident bytes of the node that has most.
    fn resident(&self) -> Result<u64> {
        let all = self.nodes.iter().map(|node| Ok(proc::memory(node.process.pid())?.resident));
        Ok(all.collect::<Result<Vec<u64>>>()?.into_iter().max().unwrap_or(0))
    }
}

fn name(at: usize) -> String {
    format!("n{at}@127.0.0.1")
}

/// Runs a command, which must succeed.
fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let program = Path::new(command.get_program()).display();
            Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim_end()).into())
        }
    }
}
