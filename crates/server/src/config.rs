//! What a node is told when it starts.

use engine::Durability;
use ring::RingSize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A node's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data folder.
    pub data: PathBuf,
    /// Where Riak's protocol buffers are served.
    pub pb_listen: SocketAddr,
    /// Where HTTP is served.
    pub http_listen: SocketAddr,
    /// The node's name, as `name@host`.
    pub name: String,
    /// Partitions of the ring of a new data folder; an existing one must agree. `None`: what is there, or the
    /// default.
    pub ring_size: Option<RingSize>,
    /// Shards of a new data folder; an existing one must agree. `None`: what is there, or the default.
    pub shards: Option<u16>,
    /// When a write is acknowledged.
    pub durability: Durability,
    /// Under [`Durability::Interval`]: how long a write may wait for its sync.
    pub sync_interval: Duration,
    /// Connections at a time, of both protocols together.
    pub connections_max: usize,
    /// A connection that says nothing for so long is closed.
    pub idle_timeout: Duration,
}
