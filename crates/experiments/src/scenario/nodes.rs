//! The processes of a scenario. Whatever happens, those that were started are gone when [`Nodes`] is dropped.

use bench::Error;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A node that serves nobody after this time, or does not see the others, never will.
const START_MAX: Duration = Duration::from_secs(60);

/// A node that is told to stop has this long; then it is killed.
const STOP_MAX: Duration = Duration::from_secs(60);

/// Between two looks at a node.
const POLL: Duration = Duration::from_millis(20);

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
}

struct Node {
    plan: Plan,
    child: Option<Child>,
}

/// The nodes of a scenario.
pub struct Nodes(Vec<Node>);

impl Nodes {
    /// Starts the first `founders`, and waits until each serves and sees the others.
    pub fn start_all(plans: Vec<Plan>, founders: usize) -> Result<Nodes, Error> {
        let mut nodes = Nodes(plans.into_iter().map(|plan| Node { plan, child: None }).collect());
        for node in 0..founders {
            nodes.spawn(node)?;
        }
        for node in 0..founders {
            nodes.await_serving(node)?;
        }
        nodes.await_peers(founders)?;
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
        self.reap(node)
    }

    /// Stops a node cleanly, and waits until it is gone.
    pub fn stop(&mut self, node: usize) -> Result<(), Error> {
        self.signal(node, Signal::TERM)?;
        let begin = Instant::now();
        while begin.elapsed() < STOP_MAX {
            if self.has_ended(node) {
                return self.reap(node);
            }
            std::thread::sleep(POLL);
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
        while TcpStream::connect_timeout(&address, POLL.max(Duration::from_millis(200))).is_err() {
            if self.has_ended(node) {
                let failed = self.failed(node, "ended by itself");
                self.reap(node)?;
                return Err(failed);
            }
            if begin.elapsed() > START_MAX {
                return Err(self.failed(node, "does not serve"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Until each of the first `founders` has links to all others of them.
    fn await_peers(&mut self, founders: usize) -> Result<(), Error> {
        let wanted = format!("\"peers_up\":{}", founders - 1);
        let begin = Instant::now();
        for node in 0..founders {
            while founders > 1 && !stats(self.0[node].plan.http).contains(&wanted) {
                if begin.elapsed() > START_MAX {
                    return Err(self.failed(node, "does not see the other nodes"));
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

    fn reap(&mut self, node: usize) -> Result<(), Error> {
        let Node { plan, child } = &mut self.0[node];
        if let Some(mut child) = child.take() {
            child.wait().map_err(|error| Error::Io { what: plan.name.clone(), error })?;
        }
        Ok(())
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

/// What a node says of itself; nothing if it does not.
fn stats(address: SocketAddr) -> String {
    let ask = || -> std::io::Result<String> {
        let wait = Duration::from_secs(1);
        let mut stream = TcpStream::connect_timeout(&address, wait)?;
        stream.set_read_timeout(Some(wait))?;
        stream.write_all(b"GET /stats HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(1 << 20).read_to_string(&mut answer)?;
        Ok(answer.replace(": ", ":"))
    };
    ask().unwrap_or_default()
}
