//! The peer: Debian's redis-server, nothing persisted, over its own protocol.

use crate::measure::Servers;
use crate::nodes::free_address;
use crate::{Result, sys};
use experiments::scenario::Plan;
use experiments::scenario::nodes::Nodes;
use std::path::Path;

/// A running redis-server.
pub struct RedisServer {
    /// Its process and its address.
    pub servers: Servers,
    _nodes: Nodes,
}

impl RedisServer {
    /// Starts one with its folder in `parent`.
    pub fn start(parent: &Path) -> Result<RedisServer> {
        sys::ensure_tool("redis-server")?;
        let (address, data) = (free_address()?, parent.join("redis"));
        let port = address.port().to_string();
        let flags = ["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no", "--dir"];
        let mut command: Vec<_> = ["redis-server"].iter().chain(&flags).map(|&word| word.into()).collect();
        command.push(data.clone().into());
        let plan = Plan {
            name: "redis".to_owned(),
            pb: address,
            // It has none; nothing asks a server that is alone for it.
            http: address,
            data,
            program: "redis-server".into(),
            command,
            groups: Vec::new(),
            ends_by_signal: false,
        };
        let nodes = Nodes::start_all(vec![plan], 1)?;
        let servers = Servers { pids: nodes.pids(), addresses: vec![address] };
        Ok(RedisServer { servers, _nodes: nodes })
    }
}
