//! One node of `annulet dev`: its place, the start of its process, and the end of its log.

use super::Args;
use super::secure::Secured;
use super::supervisor::Event;
use crate::admin;
use crate::failure::{FAILED, Failure, UNUSABLE};
use crate::serve::STOP_WITH_INPUT;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;

/// From the ports of one node to those of the next, and where in these ten each protocol is.
const PORTS_PER_NODE: u16 = 10;
const HTTPS_PORT: u16 = 6;
const PB_PORT: u16 = 7;
const HTTP_PORT: u16 = 8;
const PEER_PORT: u16 = 9;

/// How many lines of a node's log are shown when it ends by itself, and how many bytes are read for them.
const LOG_SHOWN_LINES: usize = 10;
const LOG_SHOWN_BYTES: u64 = 4 << 10;

/// The line of a banner after which a node serves.
const BANNER_END: &str = "try it:";

/// The flag that has a node join, and the one that has it found.
pub(super) const JOIN: &str = "--join";
const CLUSTER: &str = "--cluster";

/// Description of a node.
pub(super) struct Plan {
    pub name: String,
    pub folder: PathBuf,
    pub pb: String,
    pub http: String,
    pub https: String,
    pub peers: String,
    certificate: PathBuf,
    key: PathBuf,
}

/// The nodes that were asked for.
pub(super) fn plans(args: &Args, data: &Path) -> Result<Vec<Plan>, Failure> {
    let nodes = args.nodes.ok_or_else(|| Failure::new(UNUSABLE, "N: how many nodes"))?;
    let last = u32::from(args.base_port) + u32::from(nodes * PORTS_PER_NODE) + u32::from(PEER_PORT);
    if u16::try_from(last).is_err() {
        return Err(Failure::new(UNUSABLE, format!("--base-port: the last port would be {last}")));
    }
    let plan = |number: u16| {
        let port = |which| format!("127.0.0.1:{}", args.base_port + number * PORTS_PER_NODE + which);
        let name = format!("n{number}@127.0.0.1");
        let files = admin::node_files(&data.join("certs"), &name)?;
        Ok(Plan {
            folder: data.join(format!("n{number}")),
            pb: port(PB_PORT),
            http: port(HTTP_PORT),
            https: port(HTTPS_PORT),
            peers: port(PEER_PORT),
            certificate: files.certificate,
            key: files.key,
            name,
        })
    };
    (1..=nodes).map(plan).collect()
}

/// How a node comes into the cluster: the flag, and its value.
pub(super) type Entry = [String; 2];

/// How the node of this plan comes into the cluster, as the folders are now.
pub(super) fn entry(plan: &Plan, plans: &[&Plan]) -> Entry {
    let founders: Vec<&Plan> = plans.iter().copied().filter(|plan| plan.has_data()).collect();
    let list = |plans: &[&Plan], show: fn(&Plan) -> String| {
        plans.iter().map(|plan| show(plan)).collect::<Vec<_>>().join(",")
    };
    if !founders.is_empty() && !plan.has_data() {
        return [JOIN.to_owned(), list(&founders, |plan| plan.peers.clone())];
    }
    let founders = if founders.is_empty() { plans } else { &founders };
    [CLUSTER.to_owned(), list(founders, |plan| format!("{}={}", plan.name, plan.peers))]
}

impl Plan {
    /// Whether the node was there before.
    fn has_data(&self) -> bool {
        ["membership/standing", "shard-000"].iter().any(|path| self.folder.join(path).exists())
    }

    /// Where the node's log is.
    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Where the number of its process is, as long as it runs.
    fn pid_file(&self) -> PathBuf {
        self.folder.join("pid")
    }

    /// Starts the node's process. A thread reads what it prints: the end of its banner says that it serves, the end of
    /// its output that it is gone.
    pub fn start(
        &self,
        args: &Args,
        (entry, secured): (&Entry, Option<&Secured>),
        number: usize,
        tell: &Sender<Event>,
    ) -> Result<Child, Failure> {
        let failed =
            |what: &Path, error: io::Error| Failure::new(FAILED, format!("{}: {error}", what.display()));
        std::fs::create_dir_all(&self.folder).map_err(|error| failed(&self.folder, error))?;
        let path = self.log();
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(|error| failed(&path, error))?;
        let program = std::env::current_exe()?;
        let mut command = self.command(&program, args, entry);
        command.args(secured.iter().flat_map(|it| it.node_flags(&self.https)));
        // The child keeps the pipe's end until it is waited for.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        // A terminal's Ctrl-C is for this process, which tells the nodes.
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| failed(&program, error))?;
        let path = self.pid_file();
        if let Err(error) = std::fs::write(&path, format!("{}\n", child.id())) {
            child.kill().and_then(|()| child.wait())?;
            return Err(failed(&path, error));
        }
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
        Ok(child)
    }

    fn command(&self, program: &Path, args: &Args, entry: &Entry) -> Command {
        let mut command = Command::new(program);
        let ca = admin::authority_files(self.certificate.parent().unwrap_or(&self.folder)).certificate;
        command.args(["serve", "--shards", "1", "--name", &self.name]).args(entry);
        command.args(["--pb-listen", &self.pb, "--http-listen", &self.http, "--peer-listen", &self.peers]);
        command.arg("--data").arg(&self.folder);
        command.arg("--peer-ca").arg(ca).arg("--peer-cert").arg(&self.certificate);
        command.arg("--peer-key").arg(&self.key);
        command.arg(format!("--{STOP_WITH_INPUT}"));
        // No balancer waits for a node on a developer's machine.
        command.args(["--drain-wait", "none"]);
        // A newcomer has the ring of the cluster.
        let ring_size = args.ring_size.as_ref().filter(|_| entry[0] != JOIN);
        let (durability, backend) = (args.durability.as_ref(), args.backend.as_ref());
        for (flag, value) in
            [("--ring-size", ring_size), ("--durability", durability), ("--backend", backend)]
        {
            command.args(value.iter().flat_map(|value| [flag, value]));
        }
        command
    }

    /// Notes that the node's process is gone.
    pub fn forget_pid(&self) {
        std::fs::remove_file(self.pid_file()).ok();
    }

    /// The last lines of the node's log, each with `indent` before it.
    pub fn last_log_lines(&self, indent: &str) -> String {
        let mut text = Vec::new();
        let read = File::open(self.log()).and_then(|mut file| {
            let len = file.metadata()?.len();
            file.seek(SeekFrom::Start(len.saturating_sub(LOG_SHOWN_BYTES)))?;
            file.take(LOG_SHOWN_BYTES).read_to_end(&mut text)
        });
        if read.is_err() {
            return String::new();
        }
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let first = lines.len().saturating_sub(LOG_SHOWN_LINES);
        lines[first..].iter().map(|line| format!("{indent}{line}\n")).collect()
    }
}
