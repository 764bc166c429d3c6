//! The doors of a shard's thread for clients: it accepts their connections, and serves each by the protocol of its
//! port.
//!
//! 1. Nothing is accepted before the node knows its peers, and may serve. Clients wait in the listener's queue
//!    meanwhile.
//! 2. A connection is served by a task of its own, unless the node has too many.
//! 3. The local socket is for administration alone, and for users of this machine who may do that.
//!
//! Invariant: connections by the local socket are not among those that the limit of the node is for: an operator gets
//! in when the node is full.
//!
//! Left out: the protocols (`pb.rs`, `http.rs`), and the time that a connection may take (`connections.rs`).

use crate::admin_socket;
use crate::common::Common;
use crate::connections::Connections;
use crate::connects::Connects;
use crate::figure_pages::FigurePages;
use crate::http::{self, HttpDoor};
use crate::local::Local;
use crate::pb;
use crate::shard_loop::TICK;
use crate::stream::Stream;
use crate::thread::Listeners;
use base::Clock;
use os::OsClock;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// How often a node that has just started looks whether it knows its peers.
const PEERS_POLL: Duration = Duration::from_millis(5);

/// The protocol of a port.
#[derive(Clone, Copy)]
enum Protocol {
    Pb,
    Http,
    Https,
}

/// The doors of a shard's thread.
pub struct Acceptor {
    local: Rc<Local>,
    common: Common,
    connections: Rc<Connections>,
    /// Connections of protocol buffers that begin.
    connects: Rc<Connects>,
    /// The figures of the whole node.
    figures: Arc<FigurePages>,
}

impl Acceptor {
    /// For connections to this shard.
    pub fn new(
        local: &Rc<Local>,
        common: &Common,
        connections: &Rc<Connections>,
        connects: &Rc<Connects>,
        figures: Arc<FigurePages>,
    ) -> Rc<Acceptor> {
        Rc::new(Acceptor {
            local: Rc::clone(local),
            common: common.clone(),
            connections: Rc::clone(connections),
            connects: Rc::clone(connects),
            figures,
        })
    }

    /// Begins to accept connections. Each listener has a task.
    pub fn open(self: &Rc<Self>, listeners: Listeners) -> io::Result<Vec<AbortHandle>> {
        let Listeners { pb, http, https, local } = listeners;
        let doors = [(pb, Protocol::Pb), (http, Protocol::Http)];
        let doors = doors.into_iter().chain(https.map(|listener| (listener, Protocol::Https)));
        let mut accepting = doors
            .map(|(listener, protocol)| self.accept(listener, protocol))
            .collect::<io::Result<Vec<AbortHandle>>>()?;
        if let Some(listener) = local {
            accepting.push(self.accept_local(listener)?);
        }
        Ok(accepting)
    }

    fn accept(self: &Rc<Self>, listener: TcpListener, protocol: Protocol) -> io::Result<AbortHandle> {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let doors = Rc::clone(self);
        let task = tokio::task::spawn_local(async move {
            doors.may_begin().await;
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => doors.welcome(stream, protocol),
                    Err(error) => wait_after(&error).await,
                }
            }
        });
        Ok(task.abort_handle())
    }

    fn accept_local(self: &Rc<Self>, listener: UnixListener) -> io::Result<AbortHandle> {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let doors = Rc::clone(self);
        let task = tokio::task::spawn_local(async move {
            doors.may_begin().await;
            let permits = Arc::new(Semaphore::new(admin_socket::CONNECTIONS_MAX));
            loop {
                let permit = Arc::clone(&permits).acquire_owned().await.expect("nobody closes it");
                match listener.accept().await {
                    Ok((stream, _)) => doors.welcome_operator(stream, permit),
                    Err(error) => wait_after(&error).await,
                }
            }
        });
        Ok(task.abort_handle())
    }

    /// Waits until clients may be served.
    async fn may_begin(&self) {
        let may_serve = || self.common.peers.as_ref().is_none_or(|peers| peers.may_serve());
        while !self.local.knows_peers() || !may_serve() {
            tokio::time::sleep(PEERS_POLL).await;
        }
        self.common.progress.accepts();
    }

    /// Serves a connection, or says why not.
    fn welcome(&self, stream: TcpStream, protocol: Protocol) {
        let (common, limit) = (&self.common, self.common.connections_max);
        let is_full = common.connections.load(Ordering::Relaxed) >= limit;
        match protocol {
            Protocol::Pb if is_full => pb::refuse(&stream, limit),
            // A refusal would cost a handshake.
            Protocol::Https if is_full => {}
            Protocol::Http if is_full => http::refuse(&stream, OsClock::new().wall().0 / 1_000_000, limit),
            Protocol::Pb => self.connections.add(common.idle_timeout, |id, about, patience| {
                let local = Rc::clone(&self.local);
                let node = (Arc::clone(&common.identity), Arc::clone(&common.guard));
                let connected = self.connects.begin(patience.now());
                let served = pb::serve(Stream::plain(stream), local, node, about, patience, id, connected);
                tokio::task::spawn_local(served).abort_handle()
            }),
            Protocol::Http => self.serve_http(Stream::plain(stream), HttpDoor::Http, None),
            Protocol::Https => self.serve_http(Stream::plain(stream), HttpDoor::Https, None),
        }
    }

    /// Serves a connection by the local socket, of a user who may administer the node.
    fn welcome_operator(&self, stream: UnixStream, permit: OwnedSemaphorePermit) {
        match stream.peer_cred().map(|client| client.uid()) {
            Ok(uid) if admin_socket::may_administer(uid) => {
                self.serve_http(Stream::local(stream), HttpDoor::Local, Some(permit));
            }
            client => tracing::warn!(?client, "a user of this machine is refused at the local socket"),
        }
    }

    /// Serves a connection of HTTP, and keeps its permit meanwhile.
    fn serve_http(&self, stream: Stream, door: HttpDoor, permit: Option<OwnedSemaphorePermit>) {
        self.connections.add(self.common.idle_timeout, |id, about, patience| {
            let served = http::serve(stream, Rc::clone(&self.local), self.wide(door), about, patience, id);
            let served = async move {
                served.await;
                drop(permit);
            };
            tokio::task::spawn_local(served).abort_handle()
        });
    }

    /// The part of the node that a door of HTTP has.
    fn wide(&self, door: HttpDoor) -> http::Wide {
        let common = &self.common;
        let hosts = if door == HttpDoor::Https { &common.https_hosts } else { &common.hosts };
        http::Wide {
            figures: Arc::clone(&self.figures),
            membership: common.membership.clone(),
            backups: Arc::clone(&common.backups),
            trees: Arc::clone(&common.trees),
            compactions: Arc::clone(&common.compactions),
            groups: Arc::clone(&common.groups),
            purges: Arc::clone(&common.purges),
            hashing: common.hashing.clone(),
            has_births: common.founding.is_plain(),
            hosts: Arc::clone(hosts),
            guard: Arc::clone(&common.guard),
            door,
            http: common.http.clone(),
            drain: Arc::clone(&common.drain),
            log: Arc::clone(&common.log),
            slow: Arc::clone(&common.slow),
            peers: common.peers.clone(),
        }
    }
}

/// Too many files are open, or a client was gone before it was accepted. Waits for the next tick rather than spin.
async fn wait_after(error: &io::Error) {
    tracing::warn!(%error, "cannot accept a connection");
    tokio::time::sleep(TICK).await;
}
