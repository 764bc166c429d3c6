//! The peer: Debian's redis-server, nothing persisted, over its own protocol.

use crate::Result;
use crate::measure::Servers;
use crate::process::{Process, ensure_tool, free_address, make_dir};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long a start may take.
const START_MAX: Duration = Duration::from_secs(10);

/// A running redis-server.
pub struct RedisServer {
    /// Its process and its address.
    pub servers: Servers,
    _process: Process,
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
        let servers = Servers { pids: vec![process.pid()], addresses: vec![address] };
        Ok(RedisServer { servers, _process: process })
    }
}
