//! The measured node: the real binary, built and started as a user would.

use crate::Result;
use crate::generator::{Outcome, Session, Until};
use crate::measure::Servers;
use crate::process::{Process, free_address, make_dir};
use crate::workload::{Keys, Op, Riak, SplitMix};
use protocol::{Request, codes};
use serde_json::Value;
use std::env;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a start may take before it counts as failed: well above its bars.
const START_MAX: Duration = Duration::from_secs(60);

/// How long a clean stop may take.
const STOP_MAX: Duration = Duration::from_secs(60);

/// A node that does not answer a ping or a count for so long is not there.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How a node is started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The binary.
    pub binary: PathBuf,
    /// Where its data and its log are, one below the other.
    pub home: PathBuf,
    /// `none` or `sync`.
    pub durability: &'static str,
    /// Shards; without it, the node's own default.
    pub shards: Option<u16>,
}

/// How long a start took, from the spawn on.
#[derive(Clone, Copy, Debug)]
pub struct StartTimes {
    /// Until the first ping was answered.
    pub ping: Duration,
    /// Until a request for a key was answered, found or not.
    pub get: Duration,
}

/// A running node.
pub struct Annulet {
    process: Process,
    http: SocketAddr,
    /// Its process and its address.
    pub servers: Servers,
    /// How long its start took.
    pub start_times: StartTimes,
}

/// Builds the release binary and says where it is.
pub fn build(root: &Path, target: &Path) -> Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "--quiet", "--package", "annulet"])
        .current_dir(root)
        .env("CARGO_TARGET_DIR", target)
        // stdout belongs to the rows.
        .stdout(std::io::stderr())
        .status()?;
    let binary = target.join("release/annulet");
    if built.success() && binary.exists() { Ok(binary) } else { Err("the build has failed".into()) }
}

impl Annulet {
    /// Starts a node and waits until it answers.
    pub fn start(setup: &Setup) -> Result<Annulet> {
        let (pb, http) = (free_address()?, free_address()?);
        let data = make_dir(&setup.home, "data")?;
        let mut command = Command::new(&setup.binary);
        command.arg("serve").arg("--data").arg(data);
        command.args(["--pb-listen", &pb.to_string(), "--http-listen", &http.to_string()]);
        command.args(["--durability", setup.durability, "--name", "figures@127.0.0.1"]);
        if let Some(shards) = setup.shards {
            command.args(["--shards", &shards.to_string()]);
        }
        command.current_dir(&setup.home);
        let begin = Instant::now();
        let mut process = Process::start(&mut command, setup.home.join("log"))?;
        let mut stream = process.wait_until(START_MAX, || ping(pb).ok())?;
        let ping = begin.elapsed();
        let get = Riak::new(Op::Get).request_of(0);
        process.wait_until(START_MAX, || {
            exchange(&mut stream, &get).ok().filter(|&code| code == codes::GET_RESP)
        })?;
        let start_times = StartTimes { ping, get: begin.elapsed() };
        let servers = Servers { pids: vec![process.pid()], addresses: vec![pb] };
        Ok(Annulet { process, http, servers, start_times })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The same process, asked by HTTP.
    pub fn by_http(&self) -> Servers {
        Servers { addresses: vec![self.http], ..self.servers.clone() }
    }

    /// Opens so many connections.
    pub fn connect(&self, connections: usize) -> Result<Session> {
        self.servers.connect(connections)
    }

    /// Writes the keys below `count`, each once.
    pub fn load(&self, count: u64) -> Result<Outcome> {
        self.servers.load(&mut Riak::new(Op::Put), 0, count)
    }

    /// Reads `ops` of the keys below `count` and verifies what comes back.
    pub fn verify(&self, count: u64, ops: u64) -> Result<()> {
        let mut keys = Keys::Uniform { from: 0, count, rng: SplitMix::new(ops) };
        self.connect(16)?.verifying_all().run(&mut Riak::new(Op::Get), &mut keys, Until::Ops(ops))?;
        Ok(())
    }

    /// What it counts.
    pub fn counts(&self) -> Result<Counts> {
        Counts::fetch(self.http)
    }

    /// Stops it cleanly; says how long that took.
    pub fn stop(self) -> Result<Duration> {
        let begin = Instant::now();
        let status = self.process.stop(STOP_MAX)?;
        if status.success() {
            Ok(begin.elapsed())
        } else {
            Err(format!("a clean stop ended in {status}").into())
        }
    }

    /// Kills it where it stands.
    pub fn kill(self) -> Result<()> {
        self.process.kill()
    }
}

/// A connection on which a ping has been answered.
pub fn ping(address: SocketAddr) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let mut request = Vec::new();
    Request::Ping.encode(&mut request);
    match exchange(&mut stream, &request)? {
        codes::PING_RESP => Ok(stream),
        code => Err(format!("a ping was answered by message {code}").into()),
    }
}

/// Sends one request and reads one answer; its code.
pub fn exchange(stream: &mut TcpStream, request: &[u8]) -> Result<u8> {
    stream.write_all(request)?;
    let mut header = [0; 5];
    stream.read_exact(&mut header)?;
    let [a, b, c, d, code] = header;
    let body = u64::from(u32::from_be_bytes([a, b, c, d])).saturating_sub(1);
    std::io::copy(&mut stream.take(body), &mut std::io::sink())?;
    Ok(code)
}

/// What a node counts, as its `/stats` tell it.
#[derive(Clone, Debug)]
pub struct Counts(Value);

impl Counts {
    /// What the node that serves HTTP at this address counts.
    pub fn fetch(http: SocketAddr) -> Result<Counts> {
        let mut stream = TcpStream::connect(http)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        // HTTP/1.0, so that the answer ends with the connection and is not chunked.
        stream.write_all(b"GET /stats HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Counts::parse(&answer)
    }

    fn parse(answer: &str) -> Result<Counts> {
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("/stats is not an HTTP answer")?;
        Ok(Counts(serde_json::from_str(body)?))
    }

    /// One count.
    pub fn get(&self, name: &str) -> Result<u64> {
        self.0.get(name).and_then(Value::as_u64).ok_or_else(|| format!("/stats has no {name}").into())
    }

    /// How far a count has gone since `before`.
    pub fn since(&self, before: &Counts, name: &str) -> Result<u64> {
        let (now, then) = (self.get(name)?, before.get(name)?);
        now.checked_sub(then).ok_or_else(|| format!("{name} went down from {then} to {now}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_come_out_of_an_http_answer() {
        let then = Counts::parse("HTTP/1.0 200 OK\r\n\r\n{\"disk_syncs\": 5, \"nodename\": \"x\"}").unwrap();
        let now = Counts::parse("HTTP/1.0 200 OK\r\nServer: x\r\n\r\n{\"disk_syncs\": 12}").unwrap();
        assert_eq!(now.since(&then, "disk_syncs").unwrap(), 7);
        then.since(&now, "disk_syncs").unwrap_err();
        then.get("nodename").unwrap_err();
        then.get("disk_writes").unwrap_err();
        Counts::parse("HTTP/1.0 404 Not Found\r\n\r\nnot found").unwrap_err();
        Counts::parse("").unwrap_err();
    }
}
