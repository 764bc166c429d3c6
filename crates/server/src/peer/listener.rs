//! Connections that other nodes open, until they are identified.
//!
//! They are accepted on the main thread, so that strangers cost the shards nothing, and handed to a shard's thread
//! when they are welcome. Newcomers are told here what the cluster has decided.

use super::channel::{Channel, HANDSHAKE_READ_BYTES};
use super::presence::{Caller, Presence};
use super::{HANDSHAKE_MAX, Peers, prepare};
use crate::config::check_node_name;
use crate::membership::{ADMISSION_MAX, Admitted, AsOf, Newcomer};
use bytes::{Bytes, BytesMut};
use membership::ClusterId;
use os::Address;
use protocol::peer::frame::{self, Header};
use protocol::peer::{ADMISSION, Greeting, Hello, Join, Refusal, Reply, common_version, negotiate};
use ring::NodeId;
use rustls::Connection;
use rustls::pki_types::CertificateDer;
use socket2::TcpKeepalive;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

/// Handshakes at a time from addresses of members: all links of a large cluster that starts, in a few rounds.
const MEMBERS_HALF_OPEN_MAX: usize = 128;

/// Handshakes at a time from other addresses, where a node may still come from: enough for one at a time, and too
/// few to cost anything. They leave the others their room.
const OTHERS_HALF_OPEN_MAX: usize = 32;

/// How long a refused connection keeps its place: strangers cannot have us do more than some hundred handshakes a
/// second, which is a hundredth of a core.
const REFUSED_PAUSE: Duration = Duration::from_millis(250);

/// How often a refusal is logged, at most.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// How long to wait after a failed accept: too many open files, say, which does not pass by trying at once.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// After so long without a word the kernel asks whether the other end's is there: longer than between two words of a
/// node that is used. It is gone without an answer in the time that goes for what was sent.
const QUIET_MAX: Duration = Duration::from_secs(6);

/// How long a newcomer may take: the cluster's decision, and a large state on a slow network.
const NEWCOMER_MAX: Duration = Duration::from_secs(2 * ADMISSION_MAX.as_secs());

/// A connection of a node that was welcomed, on its way to a shard's thread.
pub(crate) struct Arrived {
    /// The node.
    pub(super) node: NodeId,
    pub(super) tcp: std::net::TcpStream,
    pub(super) tls: Connection,
    /// What it has sent already.
    pub(super) input: BytesMut,
    /// That its process holds the member.
    pub(super) presence: Presence,
}

/// Who may come in, and what became of those who tried.
pub(crate) struct Doors {
    peers: Arc<Peers>,
    members: Arc<Semaphore>,
    others: Arc<Semaphore>,
    refused: AtomicU64,
    warned: Mutex<(Option<Instant>, u64)>,
}

impl Doors {
    pub(crate) fn new(peers: Arc<Peers>) -> Doors {
        Doors {
            peers,
            members: Arc::new(Semaphore::new(MEMBERS_HALF_OPEN_MAX)),
            others: Arc::new(Semaphore::new(OTHERS_HALF_OPEN_MAX)),
            refused: AtomicU64::new(0),
            warned: Mutex::default(),
        }
    }

    /// How many connections were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn half_open(&self, address: IpAddr) -> Option<OwnedSemaphorePermit> {
        let is_members = self.peers.may_be_member(address);
        let places = if is_members { &self.members } else { &self.others };
        Arc::clone(places).try_acquire_owned().ok()
    }

    /// Which node that is, or why it is refused: the answer, and what is said of it here. It may have meant this node,
    /// or whichever listens here.
    async fn admit(
        &self,
        hello: &Hello,
        (certificate, is_meant): (Option<&CertificateDer<'_>>, bool),
    ) -> Result<(Presence, u16), (Reply, String)> {
        let refused = |text: String| (Reply::Refused { text: text.clone() }, text);
        let from = &hello.from;
        if !certificate.is_some_and(|certificate| super::tls::stands_for(certificate, from)) {
            return Err(refused(format!("the certificate does not name {from:?}")));
        }
        let version = negotiate(&self.peers.hello, hello).map_err(|refusal| {
            if let (Refusal::Cluster { theirs, .. }, true) = (refusal, is_meant) {
                self.peers.membership.known_elsewhere(from.clone(), ClusterId(theirs));
            }
            refused(format!("{from:?}: {refusal}"))
        })?;
        let roster = self.peers.roster();
        match roster.named(from) {
            None => {
                let not_member = Reply::NotMember { epoch: roster.as_of.epoch, commit: roster.as_of.commit };
                Err((not_member, format!("{from:?} is no member of this cluster")))
            }
            Some(node) if node == roster.members().here() => {
                Err(refused(format!("{from:?} is this node's own name")))
            }
            Some(node) => {
                let caller = Caller { node, life: hello.life, registered: roster.registered(node) };
                let presence = self
                    .peers
                    .presences
                    .admit(caller)
                    .await
                    .map_err(|holder| self.copy_of(holder, node, from))?;
                self.peers.note_address(node, &hello.address);
                self.peers.note_version(node, version);
                if presence.is_new_process() {
                    self.peers.membership.admitted(node, hello.life);
                }
                Ok((presence, version))
            }
        }
    }

    /// What a process is told whose member is held by another process.
    fn copy_of(&self, holder: u64, node: NodeId, from: &str) -> (Reply, String) {
        let roster = self.peers.roster();
        let is_registered = holder == roster.registered(node);
        let AsOf { epoch, commit } = roster.as_of;
        let text =
            format!("{from:?}: its data folder is a copy, and its original is alive (process {holder:016x})");
        (Reply::Copy { original: holder, epoch, commit, is_registered }, text)
    }

    /// What becomes of a newcomer, and the version that it is told.
    async fn admit_newcomer(
        &self,
        join: Join,
        certificate: Option<&CertificateDer<'_>>,
    ) -> Result<(Admitted, u16), String> {
        let Join { versions, weight, from, address, zone } = join;
        if !certificate.is_some_and(|certificate| super::tls::stands_for(certificate, &from)) {
            return Err(format!("the certificate does not name {from:?}"));
        }
        check_node_name(&from)?;
        let version =
            common_version(self.peers.hello.versions, versions).map_err(|refusal| refusal.to_string())?;
        if !address.parse().is_ok_and(|address: Address| address.is_reachable()) {
            return Err(format!("{address:?} is no address where {from} can be reached"));
        }
        let newcomer = Newcomer { name: from, address, zone, weight };
        Ok((self.peers.membership.admit(newcomer).await, version))
    }

    fn refuse(&self, address: SocketAddr, reason: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if warned.0.is_some_and(|last| now.duration_since(last) < WARN_EVERY) {
            warned.1 += 1;
            return;
        }
        let unsaid = std::mem::replace(&mut *warned, (Some(now), 0)).1;
        match unsaid {
            0 => tracing::warn!(%address, "peer refused: {reason}"),
            _ => tracing::warn!(%address, "peer refused: {reason} (and {unsaid} others since the last line)"),
        }
    }
}

/// Accepts connections for ever, and hands those of nodes to the shards' threads in turn.
pub(crate) async fn serve(listener: TcpListener, doors: Arc<Doors>, shards: Vec<mpsc::Sender<Arrived>>) {
    let shards = Arc::new(shards);
    let mut turns: BTreeMap<NodeId, usize> = BTreeMap::new();
    let (arrive, mut arrived) = mpsc::channel(1);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((tcp, address)) => match doors.half_open(address.ip()) {
                    Some(place) => {
                        tokio::spawn(receive(tcp, address, Arc::clone(&doors), place, arrive.clone()));
                    }
                    None => doors.refuse(address, "too many connections that have not identified themselves"),
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection of a peer");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            },
            Some(arrived) = arrived.recv() => {
                let arrived: Arrived = arrived;
                let turn = turns.entry(arrived.node).or_default();
                *turn = (*turn + 1) % shards.len();
                // A thread that takes nothing stops, or hangs; the other node will try again.
                shards[*turn].try_send(arrived).ok();
            }
        }
    }
}

async fn receive(
    tcp: TcpStream,
    address: SocketAddr,
    doors: Arc<Doors>,
    place: OwnedSemaphorePermit,
    arrive: mpsc::Sender<Arrived>,
) {
    let late = |what: &str, max: Duration| format!("{what} in {} s", max.as_secs());
    let reason = match timeout(HANDSHAKE_MAX, greet(tcp, &doors)).await {
        Ok(Ok(Visitor::Member(arrived))) => return drop(arrive.send(*arrived).await),
        Ok(Ok(Visitor::Newcomer(channel, join))) => {
            match timeout(NEWCOMER_MAX, decide(*channel, join, &doors)).await {
                Ok(Ok(name)) => return tracing::info!(peer = %name, %address, "admitted"),
                Ok(Err(reason)) => reason,
                Err(_) => late("a newcomer did not take its answer", NEWCOMER_MAX),
            }
        }
        Ok(Err(reason)) => reason,
        Err(_) => late("no handshake", HANDSHAKE_MAX),
    };
    doors.refuse(address, &reason);
    tokio::time::sleep(REFUSED_PAUSE).await;
    drop(place);
}

/// Who has opened a connection.
enum Visitor {
    /// A node of the cluster, which was welcomed.
    Member(Box<Arrived>),
    /// A node that wants to be one.
    Newcomer(Box<Channel>, Join),
}

async fn greet(tcp: TcpStream, doors: &Doors) -> Result<Visitor, String> {
    let failed = |error: std::io::Error| error.to_string();
    prepare(&tcp).map_err(failed)?;
    // The other end only sends, so nothing else finds out that its host is gone.
    socket2::SockRef::from(&tcp)
        .set_tcp_keepalive(&TcpKeepalive::new().with_time(QUIET_MAX))
        .map_err(failed)?;
    let mut channel = Channel::new(tcp, doors.peers.tls.accept().map_err(|error| error.to_string())?);
    let mut input = BytesMut::new();
    channel.handshake(&mut input).await.map_err(failed)?;
    let mut scratch = [0; HANDSHAKE_READ_BYTES];
    let hello = loop {
        match Greeting::read(&mut input).map_err(|error| error.to_string())? {
            Some(Greeting::Hello(hello)) => break hello,
            Some(Greeting::Join(join)) => return Ok(Visitor::Newcomer(Box::new(channel), join)),
            None if channel.read(&mut input, &mut scratch).await.map_err(failed)? => {}
            None => return Err("closed before it identified itself".to_owned()),
        }
    };
    let is_meant = channel.is_meant_for(&doors.peers.hello.from);
    let verdict = doors.admit(&hello, (channel.certificate(), is_meant)).await;
    let (reply, verdict) = match verdict {
        Ok((presence, version)) => (Reply::Welcome { version }, Ok(presence)),
        Err((reply, reason)) => (reply, Err(reason)),
    };
    let mut out = BytesMut::new();
    reply.encode(&mut out);
    channel.write(&[IoSlice::new(&out)]).await.map_err(failed)?;
    let presence = verdict?;
    let (tcp, tls) = channel.into_parts().map_err(failed)?;
    Ok(Visitor::Member(Box::new(Arrived { node: presence.node(), tcp, tls, input, presence })))
}

/// Tells a newcomer what the cluster decided; its name, if it is admitted.
async fn decide(mut channel: Channel, join: Join, doors: &Doors) -> Result<String, String> {
    let name = join.from.clone();
    let decided = doors.admit_newcomer(join, channel.certificate()).await;
    let admitted = decided.and_then(|(admitted, version)| Ok((admitted?, version)));
    let mut out = BytesMut::new();
    let told = match admitted {
        Ok((standing, version)) => {
            Reply::Welcome { version }.encode(&mut out);
            let start = frame::begin(&mut out);
            let body = Bytes::from(standing.encode());
            let header = Header { kind: ADMISSION, id: 0, ttl_ms: 0 };
            let body = frame::end(&mut out, start, header, Some(&body)).map_err(|error| error.to_string())?;
            out.extend_from_slice(&body.unwrap_or_default());
            Ok(name)
        }
        Err(text) => {
            let reason = format!("{name:?} wants to join: {text}");
            Reply::Refused { text }.encode(&mut out);
            Err(reason)
        }
    };
    channel.write(&[IoSlice::new(&out)]).await.map_err(|error| error.to_string())?;
    told
}
