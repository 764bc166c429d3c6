//! Links between the nodes of a cluster.
//!
//! A link goes one way: each shard opens a connection to every other node and only sends on it; what the other
//! nodes send comes in on the connections that they open. A shard's questions and their answers therefore travel
//! on two connections, and a link needs no word on who may speak. Beyond [`LINKS_MAX`] shards, several share a link.
//!
//! 1. The opener connects and both sides prove by TLS 1.3 that they have a certificate of the cluster's authority.
//! 2. The opener sends `Hello`: which node it is, and of which cluster. The acceptor checks that the certificate
//!    names that node, that the node is a member, and that both have the same members and ring; it answers `Welcome`
//!    or `Refused` with the reason.
//! 3. From then on the opener sends frames, most urgent lane first, as many in one write as wait.
//! 4. When a connection ends, what waits goes back to the shard, which is told; the opener tries again, at random
//!    times that lie further and further apart.
//!
//! Nothing of a stranger is parsed but TLS, on the main thread, with a deadline and a bound on how many are at it.
//! Delivery is not promised: what was written when a connection ended may have arrived or not.
//!
//! * `tls.rs`: certificates. * `channel.rs`: TLS over a socket. * `queue.rs`: what waits for a link, in lanes.
//! * `link.rs`: connections that we open. * `listener.rs`: connections of others, until they are known.
//! * `reader.rs`: what comes in on them. * `figures.rs`: counters.

mod channel;
mod figures;
mod link;
mod listener;
mod queue;
mod reader;
#[cfg(test)]
mod tests;
mod tls;

pub use figures::PeerFigures;
pub use tls::{TlsError, certificate_name, check_files};

pub(crate) use link::Links;
pub(crate) use listener::{Arrived, Doors, serve};
pub(crate) use reader::receive;

use crate::config::Cluster;
use node::Members;
use protocol::peer::{Hello, Versions, cluster_fingerprint};
use ring::{NodeId, RingSize};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tls::Tls;

/// The most shards of a node that have a link of their own to each other node: with more, the links of a large
/// cluster would be more than what their batches save.
pub const LINKS_MAX: u16 = 8;

/// How long a connection may take from its first packet to `Welcome`: many round trips on any network, and some
/// milliseconds of arithmetic.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// Without an acknowledgement of what was sent for so long, the kernel gives a connection up: a peer that lost its
/// power or its network sends no word of it.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);

/// What all links of a node share.
pub struct Peers {
    members: Arc<Members>,
    addresses: Vec<SocketAddr>,
    tls: Tls,
    hello: Hello,
}

impl Peers {
    /// Reads the certificates of `cluster`. `life` is this process.
    pub fn new(
        cluster: &Cluster,
        members: Arc<Members>,
        ring_size: RingSize,
        life: u64,
    ) -> Result<Peers, TlsError> {
        let here = Arc::clone(members.name(members.here()));
        let names = members.all().map(|node| &**members.name(node));
        let hello = Hello {
            versions: Versions::OURS,
            cluster: cluster_fingerprint(ring_size.partitions(), names),
            life,
            from: here.to_string(),
        };
        let tls = Tls::load(&cluster.ca, &cluster.cert, &cluster.key, &here)?;
        let addresses = cluster.members.iter().map(|member| member.address).collect();
        Ok(Peers { members, addresses, tls, hello })
    }

    /// The nodes of the cluster.
    pub fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// Where each node is reached, in the order of their numbers.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    fn address(&self, node: NodeId) -> SocketAddr {
        self.addresses[usize::from(node.0)]
    }
}

/// What every connection between nodes is set to.
fn prepare(tcp: &tokio::net::TcpStream) -> std::io::Result<()> {
    tcp.set_nodelay(true)?;
    socket2::SockRef::from(tcp).set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))
}
