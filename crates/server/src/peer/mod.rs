//! Links between the nodes of a cluster.
//!
//! A link goes one way: each shard opens a connection to every other node and only sends on it; what the other
//! nodes send comes in on the connections that they open. A shard's questions and their answers therefore travel
//! on two connections, and a link needs no word on who may speak. Beyond [`LINKS_MAX`] shards, several share a link.
//!
//! 1. The opener connects and both sides prove by TLS 1.3 that they have a certificate of the cluster's authority.
//! 2. The opener sends `Hello`: which node it is, and of which cluster. The acceptor checks that the certificate
//!    names that node, that both are of the same cluster, and that the node is a member; it answers `Welcome`
//!    or `Refused` with the reason. Whoever wants to become a member sends `Join`, and is told which node it is.
//! 3. From then on the opener sends frames, most urgent lane first, as many in one write as wait.
//! 4. A connection that nothing is sent on is closed after a while, and opened again when there is something.
//! 5. When a connection ends otherwise, what waits goes back to the shard, which is told; the opener tries again, at
//!    random times that lie further and further apart.
//!
//! Members come and go while links are open: links follow the [`Roster`], and so does the door.
//!
//! Nothing of a stranger is parsed but TLS, on the main thread, with a deadline and a bound on how many are at it.
//! Delivery is not promised: what was written when a connection ended may have arrived or not.
//!
//! * `tls.rs`: certificates. `channel.rs`: TLS over a socket.
//! * `links.rs`: the links of a shard. `link.rs`: connections that we open. `dial.rs`: the way to a member.
//!   `resolver.rs`: names of hosts. `queue.rs`: what waits for a link, in lanes. `batch.rs`: frames that are written
//!   together.
//! * `listener.rs`: connections of others, until they are known. `presence.rs`: which process speaks for each member.
//!   `reader.rs`: what comes in on them. `gate.rs`: what a start asks before it serves.
//! * `roster.rs`: with whom there are links. `join.rs`: the newcomer's side of its admission. `figures.rs`: counters.

mod batch;
mod channel;
mod dial;
mod figures;
mod gate;
mod join;
mod link;
mod links;
mod listener;
#[cfg(test)]
mod name_tests;
mod presence;
mod queue;
mod reader;
mod resolver;
#[cfg(test)]
mod rest_tests;
mod roster;
#[cfg(test)]
mod tests;
mod tls;

pub use figures::PeerFigures;
pub use tls::{CertificateExpiry, TlsError, certificate_name, check_files};

pub(crate) use gate::ask_first;
pub(crate) use join::ask_to_join;
pub(crate) use links::Links;
pub(crate) use listener::{Arrived, Doors, serve};
pub(crate) use reader::receive;
#[cfg(test)]
pub(crate) use rest_tests::local as test_local;
pub use roster::Roster;
#[cfg(test)]
pub(crate) use tests::test_tls;
pub(crate) use tls::{Tls, certificates, end_of_validity};

use crate::config::Member;
use crate::membership;
use ::membership::log::Identity;
use gate::Gate;
use os::Address;
use presence::Presences;
use protocol::peer::{Hello, Versions};
use resolver::Resolver;
use ring::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

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
    tls: Tls,
    hello: Hello,
    roster: watch::Sender<Arc<Roster>>,
    /// Where members say that they are, until all agree on it: one that was started elsewhere could not even say so to
    /// the others before they answer it there.
    moved: Mutex<BTreeMap<NodeId, Address>>,
    /// Where this process was told that members are: tried where they are not found otherwise. All may have been
    /// started elsewhere at once, and none could tell another.
    told: Vec<Member>,
    /// Where the names in members' addresses are looked up.
    resolver: Resolver,
    /// The numbers that the name of each member stood for last.
    resolved: Mutex<BTreeMap<NodeId, Vec<IpAddr>>>,
    /// The newest version that both this program and a member speak, as of the last connection between them.
    versions: Mutex<BTreeMap<NodeId, u16>>,
    /// Which processes of members have connections here.
    presences: Arc<Presences>,
    /// Whether this node may serve clients.
    gate: Gate,
    membership: membership::Handle,
}

impl Peers {
    /// Of a node which is the one of the roster, and of its process, which was `told` of members.
    pub(crate) fn new(
        tls: Tls,
        here: &Identity,
        roster: Roster,
        told: Vec<Member>,
        membership: membership::Handle,
    ) -> Peers {
        let members = roster.members();
        let from = members.name(members.here()).to_string();
        let Identity { cluster, start: life, address, .. } = here.clone();
        let hello = Hello { versions: Versions::OURS, cluster: cluster.0, life, from, address };
        let gate = Gate::new(members.others());
        let roster = watch::Sender::new(Arc::new(roster));
        let (moved, resolved, versions, presences) =
            (Mutex::default(), Mutex::default(), Mutex::default(), Arc::default());
        let resolver = Resolver::of_system();
        Peers { tls, hello, roster, moved, told, resolver, resolved, versions, presences, gate, membership }
    }

    /// The same with names looked up there.
    #[cfg(test)]
    fn with_resolver(self, resolver: Resolver) -> Peers {
        Peers { resolver, ..self }
    }

    /// Keeps links from being opened until [`ask_first`] has asked.
    pub(crate) fn hold_links(&self) {
        self.gate.hold_links();
    }

    /// Whether the other members have been asked whether this is a copy: then clients may be served.
    pub(crate) fn may_serve(&self) -> bool {
        self.gate.is_open()
    }

    /// From now on these are the members.
    pub fn follow(&self, roster: Roster) {
        self.roster.send_if_modified(|known| {
            let is_another = !known.is_like(&roster);
            let stays = |node: NodeId| roster.address(node) == known.address(node);
            self.moved().retain(|&node, _| stays(node));
            self.resolved().retain(|&node, _| roster.address(node).is_some());
            *known = Arc::new(roster);
            is_another
        });
    }

    /// The ends of the validity of this node's certificates.
    pub fn expiry(&self) -> CertificateExpiry {
        self.tls.expiry()
    }

    /// TLS with other nodes.
    pub(crate) fn tls(&self) -> &Tls {
        &self.tls
    }

    /// The members now.
    pub fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster.borrow())
    }

    /// Takes note of where a member says it is.
    fn note_address(&self, node: NodeId, address: &str) {
        let said = address.parse().ok().filter(Address::is_reachable);
        match said.filter(|said| Some(said) != self.roster().address(node)) {
            Some(address) => drop(self.moved().insert(node, address)),
            None => drop(self.moved().remove(&node)),
        }
    }

    /// Where a member may be reached, in the order in which that is to be tried: where it said that it is, where all
    /// agree that it is, where the list has it. Last, where this node was before it moved: two that change places find
    /// each other there.
    fn addresses(&self, node: NodeId) -> Vec<Address> {
        let roster = self.roster();
        let here = roster.members().here();
        let own: Option<Address> = self.hello.address.parse().ok();
        let listed = |node: NodeId| {
            let of_node = |member: &&Member| roster.named(&member.name) == Some(node);
            self.told.iter().find(of_node).map(|member| &member.address)
        };
        let moved = self.moved();

        // What is another's now answers with another's certificate.
        let is_free = |address: &&Address| {
            let others = || roster.members().others().filter(|&other| other != node);
            let is_at = |other| moved.get(&other).or_else(|| roster.address(other));
            Some(*address) != own.as_ref() && !others().any(|other| is_at(other) == Some(*address))
        };
        let of_node = [moved.get(&node), roster.address(node)];
        let guessed = [listed(node), roster.address(here), listed(here)];
        let mut addresses: Vec<&Address> = of_node.into_iter().flatten().collect();
        addresses.extend(guessed.into_iter().flatten().filter(is_free));
        let mut seen = BTreeSet::new();
        addresses.retain(|&address| seen.insert(address));
        addresses.into_iter().cloned().collect()
    }

    /// Takes note of the numbers that a member's name stands for.
    fn note_numbers(&self, node: NodeId, numbers: &[SocketAddr]) {
        self.resolved().insert(node, numbers.iter().map(SocketAddr::ip).collect());
    }

    /// Takes note of the version of a connection with a member.
    fn note_version(&self, node: NodeId, version: u16) {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).insert(node, version);
    }

    /// The newest version that both this program and a member speak, as of the last connection between them.
    pub(crate) fn version_of(&self, node: NodeId) -> Option<u16> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).get(&node).copied()
    }

    /// Whether connections from there may be of a member.
    fn may_be_member(&self, number: IpAddr) -> bool {
        self.roster().has_address(number) || self.resolved().values().flatten().any(|&known| known == number)
    }

    fn resolved(&self) -> MutexGuard<'_, BTreeMap<NodeId, Vec<IpAddr>>> {
        self.resolved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moved(&self) -> MutexGuard<'_, BTreeMap<NodeId, Address>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The members, and when they change.
    fn subscribe(&self) -> watch::Receiver<Arc<Roster>> {
        self.roster.subscribe()
    }
}

/// What every connection between nodes is set to.
fn prepare(tcp: &tokio::net::TcpStream) -> std::io::Result<()> {
    tcp.set_nodelay(true)?;
    socket2::SockRef::from(tcp).set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))
}
