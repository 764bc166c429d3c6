//! The real program as a child process.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod nodes;

use client::{Client, Timeouts};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

/// The program.
pub const ANNULET: &str = env!("CARGO_BIN_EXE_annulet");

/// The program, in `dir`, without options from the surroundings.
pub fn annulet(dir: &Path, args: &[&str]) -> Command {
    other(Path::new(ANNULET), dir, args)
}

/// The same of another program.
pub fn other(program: &Path, dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ANNULET_")) {
        command.env_remove(name);
    }
    command.current_dir(dir).args(args).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub fn run(dir: &Path, args: &[&str]) -> Output {
    annulet(dir, args).output().unwrap()
}

/// Runs the program to its end with `input` as its standard input.
pub fn run_with(dir: &Path, args: &[&str], input: &[u8]) -> Output {
    let mut command = annulet(dir, args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

/// A started node. It is killed when this is dropped.
pub struct Server {
    child: Child,
    // Kept open: the node must not find its standard output closed.
    _stdout: BufReader<ChildStdout>,
    /// Where protocol buffers are served.
    pub pb: String,
    /// Where HTTP is served.
    pub http: String,
    /// What it printed when it started.
    pub banner: String,
}

impl Server {
    /// Starts a node in `dir`, on ports of the system's choice, and waits until it serves.
    pub fn start(dir: &Path, args: &[&str]) -> Server {
        Server::start_by(Path::new(ANNULET), dir, args)
    }

    /// The same with another program.
    pub fn start_by(program: &Path, dir: &Path, args: &[&str]) -> Server {
        let ports = ["serve", "--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
        let mut command = other(program, dir, &[&ports, args].concat());
        Server::started(command.env("ANNULET_LOG", "warn"))
    }

    /// Runs `command` and waits until it serves.
    pub fn started(command: &mut Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut banner = String::new();
        while !banner.contains("annulet kv get") {
            assert!(
                stdout.read_line(&mut banner).unwrap() > 0,
                "the node ended: {:?}\n{banner}",
                child.wait()
            );
        }
        let value_of = |name: &str| {
            let line = banner.lines().find_map(|line| line.trim_start().strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()).unwrap().to_owned()
        };
        Server { pb: value_of("protocol buffers "), http: value_of("HTTP "), child, _stdout: stdout, banner }
    }

    /// A connection to it.
    pub fn connect(&self) -> Client {
        Client::connect(&*self.pb, Timeouts::default()).unwrap()
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end.
    pub fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Stops it cleanly.
    pub fn stop(self) {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert!(status.success(), "a clean stop ends with {status}");
    }

    /// Kills it at once.
    pub fn kill(self) {
        self.signal(Signal::KILL);
        assert!(!self.wait().success());
    }

    /// The memory that it has, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }

    /// How many sockets it has open.
    pub fn open_sockets(&self) -> usize {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        // One that is closed meanwhile is none.
        let targets = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    }

    /// The answer to an HTTP request for `path`.
    pub fn http_get(&self, path: &str) -> String {
        http_get(&self.http, path)
    }
}

/// The answer of `address` to an HTTP request for `path`.
pub fn http_get(address: &str, path: &str) -> String {
    http(address, "GET", path, "")
}

/// The answer of `address` to an HTTP request for `path` with a body of JSON.
pub fn http(address: &str, method: &str, path: &str, body: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = "Host: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length";
    write!(stream, "{method} {path} HTTP/1.1\r\n{head}: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
