//! `annulet dev N`: a cluster of real nodes on this machine.
//!
//! Each node is a process of this same program with the flags of `serve`. Nodes whose folders are all new found a cluster together; a
//! new one beside others that have data joins theirs. A thread for each reads what it prints:
//! the end of its banner says that it serves, the end of its output that it is gone. One that has left the cluster ends well,
//! and the others go on. When one fails, or a signal comes, all are told to stop; a second signal kills them, but SIGHUP, which comes
//! twice where a terminal is closed. Each has a pipe
//! from this process as its input and stops when that ends: so none is left behind, however this process ends.

use crate::admin;
use crate::failure::{FAILED, Failure, UNUSABLE};
use crate::log;
use crate::serve::STOP_WITH_INPUT;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};

/// More would only compete for this machine.
const NODES_MAX: u16 = 16;

/// From the ports of one node to those of the next, and where in these ten each protocol is.
const PORTS_PER_NODE: u16 = 10;
const PB_PORT: u16 = 7;
const HTTP_PORT: u16 = 8;
const PEER_PORT: u16 = 9;

/// How much of a node's log is shown when the node ends by itself.
const LOG_SHOWN_BYTES: u64 = 2 << 10;

/// The line of a banner after which a node serves.
const BANNER_END: &str = "try it:";

/// Arguments of `dev`.
#[derive(clap::Args)]
pub struct Args {
    /// How many nodes.
    #[arg(value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(NODES_MAX)))]
    nodes: u16,
    /// Where the nodes have their folders, n1, n2 and so on, and their certificates; made if missing.
    #[arg(long, value_name = "DIR", default_value = "./annulet-dev")]
    data: PathBuf,
    /// Node i listens on P+10i+7 (protocol buffers), P+10i+8 (HTTP) and P+10i+9 (other nodes).
    #[arg(long, value_name = "P", default_value_t = 10_000)]
    base_port: u16,
    /// Partitions of the ring, when the nodes are made.
    #[arg(long, value_name = "R")]
    ring_size: Option<String>,
    /// When a write is acknowledged: none, interval or sync, as with `serve`.
    #[arg(long, value_name = "D")]
    durability: Option<String>,
    /// The backend of the nodes, when they are made, as with `serve`.
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
}

/// Runs a cluster until it is told to stop, or a node ends.
pub fn run(args: &Args) -> Result<(), Failure> {
    let plans = plans(args)?;
    let names: Vec<String> = plans.iter().map(|plan| plan.name.clone()).collect();
    admin::make(&args.data.join("certs"), &names)?;
    let (tell, told) = mpsc::channel();
    // Before the first child, so that no signal leaves it behind.
    listen_to_signals(tell.clone())?;
    let mut cluster = Cluster { nodes: Vec::new() };
    // As the folders are before any node has begun.
    let entries: Vec<[String; 2]> = plans.iter().map(|plan| entry(plan, &plans)).collect();
    for (number, (plan, entry)) in plans.iter().zip(&entries).enumerate() {
        let joins = entry[0] == JOIN;
        match start(plan, args, entry, number, &tell) {
            Ok(child) => cluster.nodes.push(Node { plan, child, joins, serves: false, over: false }),
            Err(failure) => {
                cluster.signal_all(Signal::TERM);
                cluster.wait(&told);
                return Err(failure);
            }
        }
    }
    cluster.watch(&told)
}

/// What a node is to be.
struct Plan {
    name: String,
    folder: PathBuf,
    pb: String,
    http: String,
    peers: String,
    certificate: PathBuf,
    key: PathBuf,
}

fn plans(args: &Args) -> Result<Vec<Plan>, Failure> {
    let last = u32::from(args.base_port) + u32::from(args.nodes * PORTS_PER_NODE) + u32::from(PEER_PORT);
    if u16::try_from(last).is_err() {
        return Err(Failure::new(UNUSABLE, format!("--base-port: the last port would be {last}")));
    }
    // Children have this process's folder, but what is printed should be of use in any.
    let data = std::path::absolute(&args.data)?;
    let plan = |number: u16| {
        let port = |which| format!("127.0.0.1:{}", args.base_port + number * PORTS_PER_NODE + which);
        let name = format!("n{number}@127.0.0.1");
        let files = admin::node_files(&data.join("certs"), &name)?;
        Ok(Plan {
            folder: data.join(format!("n{number}")),
            pb: port(PB_PORT),
            http: port(HTTP_PORT),
            peers: port(PEER_PORT),
            certificate: files.certificate,
            key: files.key,
            name,
        })
    };
    (1..=args.nodes).map(plan).collect()
}

/// How a node is told to join.
const JOIN: &str = "--join";

/// How a node comes into the cluster: the flag, and its value.
fn entry(plan: &Plan, plans: &[Plan]) -> [String; 2] {
    let founders: Vec<&Plan> = plans.iter().filter(|plan| plan.has_data()).collect();
    let list = |plans: &[&Plan], show: fn(&Plan) -> String| {
        plans.iter().map(|plan| show(plan)).collect::<Vec<_>>().join(",")
    };
    if !founders.is_empty() && !plan.has_data() {
        return [JOIN.to_owned(), list(&founders, |plan| plan.peers.clone())];
    }
    let founders = if founders.is_empty() { plans.iter().collect() } else { founders };
    ["--cluster".to_owned(), list(&founders, |plan| format!("{}={}", plan.name, plan.peers))]
}

impl Plan {
    /// Whether the node was there before.
    fn has_data(&self) -> bool {
        ["membership/standing", "shard-000"].iter().any(|path| self.folder.join(path).exists())
    }
}

/// What happened.
enum Event {
    /// The node of this number serves.
    Serves(usize),
    /// It has closed its output: it is gone, or about to be.
    Over(usize),
    /// This process was told to stop.
    Signal,
    /// Its terminal is gone.
    HangUp,
}

fn listen_to_signals(tell: Sender<Event>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGQUIT, SIGHUP])?;
    let event = |signal| if signal == SIGHUP { Event::HangUp } else { Event::Signal };
    std::thread::spawn(move || signals.forever().try_for_each(|signal| tell.send(event(signal))));
    Ok(())
}

fn start(
    plan: &Plan,
    args: &Args,
    entry: &[String; 2],
    number: usize,
    tell: &Sender<Event>,
) -> Result<Child, Failure> {
    let failed = |what: &Path, error: io::Error| Failure::new(FAILED, format!("{}: {error}", what.display()));
    std::fs::create_dir_all(&plan.folder).map_err(|error| failed(&plan.folder, error))?;
    let path = plan.folder.join("log");
    let log =
        OpenOptions::new().create(true).append(true).open(&path).map_err(|error| failed(&path, error))?;
    let program = std::env::current_exe()?;
    let mut command = Command::new(&program);
    let ca = admin::authority_files(plan.certificate.parent().unwrap_or(&plan.folder)).certificate;
    command.args(["serve", "--shards", "1", "--name", &plan.name]).args(entry);
    command.args(["--pb-listen", &plan.pb, "--http-listen", &plan.http, "--peer-listen", &plan.peers]);
    command.arg("--data").arg(&plan.folder);
    command.arg("--peer-ca").arg(ca).arg("--peer-cert").arg(&plan.certificate);
    command.arg("--peer-key").arg(&plan.key);
    command.arg(format!("--{STOP_WITH_INPUT}"));
    // A newcomer has the ring of the cluster.
    let ring_size = args.ring_size.as_ref().filter(|_| entry[0] != JOIN);
    let (durability, backend) = (args.durability.as_ref(), args.backend.as_ref());
    for (flag, value) in [("--ring-size", ring_size), ("--durability", durability), ("--backend", backend)] {
        command.args(value.iter().flat_map(|value| [flag, value]));
    }
    // The child keeps the pipe's end until it is waited for.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().map_err(|error| failed(&program, error))?;
    let path = plan.folder.join("pid");
    let written = std::fs::write(&path, format!("{}\n", child.id()));
    let stdout = child.stdout.take().expect("its output is a pipe");
    let tell = tell.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if line == BANNER_END {
                tell.send(Event::Serves(number)).ok();
            }
        }
        tell.send(Event::Over(number)).ok();
    });
    match written {
        Ok(()) => Ok(child),
        Err(error) => {
            child.kill().and_then(|()| child.wait())?;
            Err(failed(&path, error))
        }
    }
}

struct Cluster<'a> {
    nodes: Vec<Node<'a>>,
}

struct Node<'a> {
    plan: &'a Plan,
    child: Child,
    /// It asked to be admitted.
    joins: bool,
    serves: bool,
    over: bool,
}

impl Cluster<'_> {
    /// Until all nodes are gone.
    fn watch(&mut self, told: &Receiver<Event>) -> Result<(), Failure> {
        let mut stopping = false;
        let mut died = None;
        while self.nodes.iter().any(|node| !node.over) {
            match told.recv().expect("a living node's thread holds the other end") {
                Event::Serves(number) => {
                    self.nodes[number].serves = true;
                    if self.nodes.iter().all(|node| node.serves) {
                        // Nodes whose table nobody reads serve all the same.
                        log::print(&self.table());
                    }
                }
                Event::Over(number) => {
                    let status = self.nodes[number].end()?;
                    let has_left = status.success() && self.nodes[number].serves;
                    if !stopping && has_left {
                        let name = &self.nodes[number].plan.name;
                        log::print(&format!("{name} has ended; the others go on\n"));
                    } else if !stopping {
                        stopping = true;
                        died = Some(format!("{} ended ({status})", self.nodes[number].plan.name));
                        show_log(&self.nodes[number].plan.folder.join("log"));
                        self.signal_all(Signal::TERM);
                    }
                }
                event @ (Event::Signal | Event::HangUp) => {
                    let is_urgent = stopping && matches!(event, Event::Signal);
                    self.signal_all(if is_urgent { Signal::KILL } else { Signal::TERM });
                    // A terminal's Ctrl-C reaches the nodes too, and one may have been quicker.
                    died = died.filter(|what| !what.ends_with("(exit status: 0)"));
                    stopping = true;
                }
            }
        }
        died.map_or(Ok(()), |what| Err(Failure::new(FAILED, format!("{what}; all others were stopped"))))
    }

    /// Waits until all nodes are gone, whatever else happens.
    fn wait(&mut self, told: &Receiver<Event>) {
        while self.nodes.iter().any(|node| !node.over) {
            if let Ok(Event::Over(number)) = told.recv()
                && self.nodes[number].end().is_err()
            {
                self.nodes[number].over = true;
            }
        }
    }

    fn signal_all(&self, signal: Signal) {
        for node in self.nodes.iter().filter(|node| !node.over) {
            // It may be gone already; nobody has waited for it, so its number is still its own.
            kill_process(Pid::from_child(&node.child), signal).ok();
        }
    }

    fn table(&self) -> String {
        let mut rows =
            vec![["node", "protocol buffers", "HTTP", "peers", "pid", "folder"].map(str::to_owned)];
        rows.extend(self.nodes.iter().map(|node| {
            let Plan { name, pb, http, peers, folder, .. } = node.plan;
            let pid = node.child.id().to_string();
            [name.clone(), pb.clone(), http.clone(), peers.clone(), pid, folder.display().to_string()]
        }));
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
        let mut text = format!("{} nodes; Ctrl-C stops them all\n", self.nodes.len());
        for row in &rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            text.push_str(&format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end()));
        }
        if self.nodes.iter().any(|node| node.joins) {
            let http = &self.nodes[0].plan.http;
            text.push_str(&format!(
                "nodes that are new own nothing yet:\n  annulet admin cluster plan --node {http}\n  \
                 annulet admin cluster commit --node {http}\n"
            ));
        }
        let (first, last) = (&self.nodes[0].plan.pb, &self.nodes[self.nodes.len() - 1].plan.pb);
        text.push_str(&format!(
            "try it:\n  annulet kv put --address {first} books dune 'A beginning is a very delicate time.'\n  \
             annulet kv get --address {last} books dune\n"
        ));
        text
    }
}

impl Node<'_> {
    /// Takes a node's end. Its number may be another process's from now on.
    fn end(&mut self) -> io::Result<std::process::ExitStatus> {
        self.over = true;
        std::fs::remove_file(self.plan.folder.join("pid")).ok();
        self.child.wait()
    }
}

/// Shows the end of a log.
fn show_log(path: &Path) {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(LOG_SHOWN_BYTES)))?;
        file.read_to_end(&mut text)
    });
    if read.is_ok() {
        log::print_error(&format!("{}:\n{}", path.display(), String::from_utf8_lossy(&text)));
    }
}
