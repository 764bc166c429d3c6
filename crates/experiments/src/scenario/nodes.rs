//! The processes of a scenario. Whatever happens, those that were started are gone when [`Nodes`] is dropped.

use bench::Error;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A node that serves nobody after this time, or does not see the others, never will.
const START_MAX: Duration = Duration::from_secs(60);

/// A node that is told to stop has this long; then it is killed.
const STOP_MAX: Duration = Duration::from_secs(60);

/// Between two looks at a node.
const POLL: Duration = Duration::from_millis(20);

/// Between two looks at one that starts or stops: short, because starts and stops are timed by it.
const POLL_CHANGE: Duration = Duration::from_millis(1);

/// One that does not take a connection in this time is asked again.
const CONNECT_MAX: Duration = Duration::from_millis(200);

/// How much of a log is shown when a node ends by itself.
const LOG_SHOWN_BYTES: u64 = 2 << 10;

/// How a node is started.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// Where it serves protocol buffers.
    pub pb: SocketAddr,
    /// Where it serves HTTP.
    pub http: SocketAddr,
    /// Its data folder; its log goes there too.
    pub data: PathBuf,
    /// The program.
    pub program: PathBuf,
    /// How it is run: the program and its arguments, and what comes before them.
    pub command: Vec<OsString>,
    /// Control groups that it is put into: the files that take its number.
    pub groups: Vec<PathBuf>,
    /// Whether it ends itself by the signal that stops it, when it has stopped cleanly.
    pub ends_by_signal: bool,
}

struct Node {
    plan: Plan,
    child: Option<Child>,
}

/// The nodes of a scenario.
pub struct Nodes(Vec<Node>);

impl Nodes {
    /// Starts the first `founders`, and waits until each takes connections.
    pub fn start_all(plans: Vec<Plan>, founders: usize) -> Result<Nodes, Error> {
        let mut nodes = Nodes(plans.into_iter().map(|plan| Node { plan, child: None }).collect());
        for node in 0..founders {
            nodes.spawn(node)?;
        }
        for node in 0..founders {
            nodes.await_serving(node)?;
        }
        Ok(nodes)
    }

    /// The process of each; 0 of one that does not run.
    pub fn pids(&self) -> Vec<u32> {
        self.0.iter().map(|node| node.child.as_ref().map_or(0, Child::id)).collect()
    }

    /// The plans.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.0.iter().map(|node| &node.plan)
    }

    /// Starts a node that does not run, or has ended by itself, and waits until it serves.
    pub fn start(&mut self, node: usize) -> Result<(), Error> {
        if self.has_ended(node) {
            self.reap(node)?;
        }
        self.spawn(node)?;
        self.await_serving(node)
    }

    /// Sends a signal to a node that runs.
    pub fn signal(&mut self, node: usize, signal: Signal) -> Result<(), Error> {
        let Node { plan, child } = &self.0[node];
        let child = child.as_ref().ok_or_else(|| Error::Unusable(format!("{} does not run", plan.name)))?;
        kill_process(Pid::from_child(child), signal)
            .map_err(|error| Error::Io { what: plan.name.clone(), error: error.into() })
    }

    /// Kills a node, and waits until it is gone.
    pub fn kill(&mut self, node: usize) -> Result<(), Error> {
        self.signal(node, Signal::KILL)?;
        self.reap(node).map(drop)
    }

    /// Stops a node cleanly, and waits until it is gone.
    pub fn stop(&mut self, node: usize) -> Result<(), Error> {
        self.signal(node, Signal::TERM)?;
        let begin = Instant::now();
        while begin.elapsed() < STOP_MAX {
            if self.has_ended(node) {
                let status = self.reap(node)?;
                let by_signal = |status: &ExitStatus| status.signal() == Some(Signal::TERM.as_raw());
                let is_clean =
                    |it: ExitStatus| it.success() || self.0[node].plan.ends_by_signal && by_signal(&it);
                return match status.is_none_or(is_clean) {
                    true => Ok(()),
                    false => Err(self.failed(node, &format!("ended uncleanly: {status:?}"))),
                };
            }
            std::thread::sleep(POLL_CHANGE);
        }
        self.kill(node)?;
        Err(Error::Unusable(format!(
            "{} did not stop within {STOP_MAX:?} and was killed",
            self.0[node].plan.name
        )))
    }

    /// Stops all that run, at the end of a scenario. One that is halted is let go on first.
    pub fn stop_all(&mut self) -> Result<(), Error> {
        let running: Vec<usize> = (0..self.0.len()).filter(|&node| self.0[node].child.is_some()).collect();
        for &node in &running {
            self.signal(node, Signal::CONT)?;
            self.signal(node, Signal::TERM)?;
        }
        running.into_iter().try_for_each(|node| self.stop(node))
    }

    fn spawn(&mut self, node: usize) -> Result<(), Error> {
        let Node { plan, child } = &mut self.0[node];
        if child.is_some() {
            return Err(Error::Unusable(format!("{} runs already", plan.name)));
        }
        std::fs::create_dir_all(&plan.data).map_err(Error::file(&plan.data))?;
        let path = plan.data.join("log");
        let log = OpenOptions::new().create(true).append(true).open(&path).map_err(Error::file(&path))?;
        let program = &plan.command[0];
        // In groups of its own: a terminal's Ctrl-C is for the scenario, which then stops its nodes.
        let mut command = Command::new(program);
        command.args(&plan.command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let started = command.spawn().map_err(Error::file(program.as_ref()))?;
        let pid = started.id();
        *child = Some(started);
        for file in &plan.groups {
            std::fs::write(file, pid.to_string()).map_err(Error::file(file))?;
        }
        Ok(())
    }

    fn await_serving(&mut self, node: usize) -> Result<(), Error> {
        let begin = Instant::now();
        let address = self.0[node].plan.pb;
        while TcpStream::connect_timeout(&address, CONNECT_MAX).is_err() {
            if self.has_ended(node) {
                let failed = self.failed(node, "ended by itself");
                self.reap(node)?;
                return Err(failed);
            }
            if begin.elapsed() > START_MAX {
                return Err(self.failed(node, "does not serve"));
            }
            std::thread::sleep(POLL_CHANGE);
        }
        Ok(())
    }

    /// Waits until each of the first `founders` answers, and has links to all others of them. Its ports are open before
    /// that, and before the local socket of its data folder.
    pub fn await_peers(&mut self, founders: usize) -> Result<(), Error> {
        let wanted = Some((founders - 1) as f64);
        let peers_up = |http| Some(bench::counters(http)?.get("peers_up").copied().unwrap_or_default());
        let begin = Instant::now();
        for node in 0..founders {
            while peers_up(self.0[node].plan.http) != wanted {
                if begin.elapsed() > START_MAX {
                    return Err(self.failed(node, "does not answer, or does not see the other nodes"));
                }
                std::thread::sleep(POLL);
            }
        }
        Ok(())
    }

    fn has_ended(&mut self, node: usize) -> bool {
        let child = self.0[node].child.as_mut();
        child.is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Waits for a node that ends; how it ended, if it ran.
    fn reap(&mut self, node: usize) -> Result<Option<ExitStatus>, Error> {
        let Node { plan, child } = &mut self.0[node];
        let ended = child.take().map(|mut child| child.wait()).transpose();
        ended.map_err(|error| Error::Io { what: plan.name.clone(), error })
    }

    /// What happened, with the end of the node's log.
    fn failed(&self, node: usize, what: &str) -> Error {
        let plan = &self.0[node].plan;
        let log = plan.data.join("log");
        let mut text = Vec::new();
        let read = File::open(&log).and_then(|mut file| {
            let len = file.metadata()?.len();
            file.seek(SeekFrom::Start(len.saturating_sub(LOG_SHOWN_BYTES)))?;
            file.read_to_end(&mut text)
        });
        let text = if read.is_ok() { String::from_utf8_lossy(&text).into_owned() } else { String::new() };
        Error::Unusable(format!("{} {what}\n{}:\n{}", plan.name, log.display(), text.trim_end()))
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for child in self.0.iter_mut().filter_map(|node| node.child.as_mut()) {
            // It may be gone already.
            child.kill().and_then(|()| child.wait()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A node with a shell's script as its program; `pb` takes connections, or does not.
    fn plan(script: &str, pb: SocketAddr, data: PathBuf) -> Plan {
        Plan {
            name: "n1".to_owned(),
            pb,
            http: pb,
            data,
            program: "sh".into(),
            command: ["sh", "-c", script].map(OsString::from).to_vec(),
            groups: Vec::new(),
            ends_by_signal: false,
        }
    }

    #[test]
    fn a_node_that_ends_early_shows_its_log() {
        let dir = tempfile::tempdir().unwrap();
        // Nothing listens there any more.
        let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let plans = vec![plan("echo no such flag >&2; exit 3", nowhere, dir.path().join("n1"))];
        let failure = Nodes::start_all(plans, 1).err().unwrap().to_string();
        assert!(failure.contains("ended by itself") && failure.contains("no such flag"), "{failure}");
    }

    #[test]
    fn a_stop_that_is_not_clean_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ready = dir.path().join("ready");
        let ends = [
            ("exit 0", false, true),
            ("exit 7", false, false),
            // By the signal itself.
            ("trap - TERM; kill -TERM $$", true, true),
            ("trap - TERM; kill -TERM $$", false, false),
            ("exit 7", true, false),
        ];
        for (end, ends_by_signal, is_clean) in ends {
            let script =
                format!("trap '{end}' TERM; touch {}; while :; do sleep 0.01; done", ready.display());
            let plan = plan(&script, listener.local_addr().unwrap(), dir.path().join("n1"));
            let plans = vec![Plan { ends_by_signal, ..plan }];
            let mut nodes = Nodes::start_all(plans, 1).unwrap();
            while !ready.exists() {
                std::thread::yield_now();
            }
            assert_eq!(nodes.stop(0).is_ok(), is_clean);
            assert_eq!(nodes.pids(), [0]);
            std::fs::remove_file(&ready).unwrap();
        }
    }
}
