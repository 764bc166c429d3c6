//! The peer: Debian's redis-server, nothing persisted, over its own protocol.

use crate::Result;
use crate::generator::{Outcome, Session, Until};
use crate::process::{Process, ensure_tool, free_address, make_dir};
use crate::workload::{Keys, Op, Redis};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long a start may take.
const START_MAX: Duration = Duration::from_secs(10);

/// A running redis-server.
pub struct RedisServer {
    process: Process,
    address: SocketAddr,
}

impl RedisServer {
    /// Starts one with its folder in `parent`; installs it before if it is missing.
    pub fn start(parent: &Path) -> Result<RedisServer> {
        ensure_tool("redis-server", "redis-server")?;
        let address = free_address()?;
        let home = make_dir(parent, "redis")?;
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
        command.args(["--save", "", "--appendonly", "no", "--daemonize", "no", "--dir"]).arg(&home);
        let mut process = Process::start(&mut command, home.join("log"))?;
        process.wait_until(START_MAX, || TcpStream::connect(address).ok())?;
        Ok(RedisServer { process, address })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Writes the keys below `count`, each once.
    pub fn load(&self, count: u64) -> Result<Outcome> {
        let mut keys = Keys::Sequence { next: 0 };
        Session::connect(self.address, 64)?.run(&mut Redis::new(Op::Put), &mut keys, Until::Ops(count))
    }
}
