//! The doors of a node for clients over real sockets, without a node behind them, and policies for them.

use crate::backup::Backups;
use crate::compact::Compactions;
use crate::compute_threads::ComputeThreads;
use crate::connections::Connections;
use crate::connects::Connects;
use crate::drain::Drain;
use crate::figure_pages::FigurePages;
use crate::groups::NodeGroups;
use crate::http::{self, HttpDoor};
use crate::levels::LogLevels;
use crate::mailbox::Mailboxes;
use crate::memory::{MemoryBudgets, MemoryPlan};
use crate::peer::test_local;
use crate::security::Policies;
use crate::security::certificates::ClientCertificates;
use crate::security::door::DoorGuard;
use crate::security::hashing::Hashing;
use crate::security::password::{SALT_BYTES, hash};
use crate::security::tls::ClientFiles;
use crate::security::tls::tests::Certificates;
use crate::stream::Stream;
use crate::trees::NodeTrees;
use crate::{membership, pb};
use base::Monotonic;
use engine::fold::JournalCheck;
use node::riak::Identity;
use security::{Command, Policy, Slots};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::LocalSet;

/// The policy that commands make; a password is hashed.
pub(in crate::security) fn policy(version: u64, lines: &[&str]) -> Policy {
    Policy::compile(&records(version, lines), version)
}

/// The records that commands make; a password is hashed with a salt of this number.
pub(in crate::security) fn records(salt: u64, lines: &[&str]) -> Slots {
    let mut slots = Slots::default();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let command = Command::parse(&words).unwrap();
        let credential = command.password().map(|password| hash(password, &[salt as u8; SALT_BYTES]));
        let changes = command.plan(&slots, credential).unwrap();
        slots.apply(&changes).unwrap();
    }
    slots
}

/// The addresses of a node's doors.
#[derive(Clone, Copy)]
pub(super) struct Doors {
    pub(super) pb: SocketAddr,
    pub(super) http: SocketAddr,
    pub(super) https: SocketAddr,
}

/// Serves connections while `client` talks to the doors.
pub(super) fn with_doors(
    certificates: &Certificates,
    policies: &Arc<Policies>,
    client: impl FnOnce(Doors) + Send + 'static,
) -> Arc<DoorGuard> {
    let guard = guard(certificates.files(true), policies);
    serve_at_doors(&guard, client);
    guard
}

/// Threads for computations.
pub(super) fn compute_threads() -> Arc<ComputeThreads> {
    Arc::new(ComputeThreads::start().unwrap())
}

/// The guard of doors with these files.
pub(super) fn guard(files: ClientFiles, policies: &Arc<Policies>) -> Arc<DoorGuard> {
    let certificates = ClientCertificates::load(files, None).unwrap();
    Arc::new(DoorGuard::new(Arc::clone(policies), Some(certificates), compute_threads()).unwrap())
}

/// Serves connections at doors of this guard while `client` talks to them.
pub(super) fn serve_at_doors(guard: &Arc<DoorGuard>, client: impl FnOnce(Doors) + Send + 'static) {
    let data = tempfile::tempdir().unwrap();
    let listeners: [std::net::TcpListener; 3] = std::array::from_fn(|_| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    });
    let [pb, http, https] = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
    let client = std::thread::spawn(move || client(Doors { pb, http, https }));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let shared = Arc::clone(guard);
    LocalSet::new().block_on(&runtime, async move {
        let (membership, _inbox) = membership::queue(1);
        let local = test_local(data.path(), membership.clone());
        let budgets = MemoryBudgets::new(&MemoryPlan::new(1 << 30, 1, 0));
        let connections = Rc::new(Connections::new(Arc::default(), budgets, 1 << 20));
        for (door, listener) in listeners.into_iter().enumerate() {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let (local, shared, membership) = (Rc::clone(&local), Arc::clone(&shared), membership.clone());
            let connections = Rc::clone(&connections);
            tokio::task::spawn_local(async move {
                loop {
                    let stream = Stream::plain(listener.accept().await.unwrap().0);
                    let (local, guard) = (Rc::clone(&local), Arc::clone(&shared));
                    let membership = membership.clone();
                    connections.add(Duration::from_secs(3600), |id, about, patience| {
                        if door == 0 {
                            let identity = Arc::new(Identity { node: "n@h".into(), version: "1.2.3".into() });
                            let connected = Rc::new(Connects::default()).begin(Monotonic(0));
                            let node = (identity, guard);
                            let served = pb::serve(stream, local, node, about, patience, id, connected);
                            return tokio::task::spawn_local(served).abort_handle();
                        }
                        let door = if door == 2 { HttpDoor::Https } else { HttpDoor::Http };
                        let wide = wide(membership, guard, door);
                        let served = http::serve(stream, local, wide, about, patience, id);
                        tokio::task::spawn_local(served).abort_handle()
                    });
                }
            });
        }
        tokio::task::spawn_blocking(move || client.join().unwrap()).await.unwrap();
    });
}

/// The node as a door of HTTP sees it: here, of one that answers no question.
fn wide(membership: membership::Handle, guard: Arc<DoorGuard>, door: HttpDoor) -> http::Wide {
    let mailboxes = Arc::new(Mailboxes::new(1));
    let names = ("n@h".to_owned(), None);
    let backups = Backups::new(Default::default(), names, (1, 0), Arc::clone(&mailboxes));
    http::Wide {
        figures: FigurePages::new(Arc::new(|| Box::pin(std::future::pending())), compute_threads()),
        membership,
        backups: Arc::new(backups),
        compactions: Arc::new(Compactions::new(1, Arc::clone(&mailboxes))),
        trees: Arc::new(NodeTrees::new(1, Arc::clone(&mailboxes), JournalCheck::None)),
        groups: Arc::new(NodeGroups::new(1, mailboxes)),
        purges: Arc::default(),
        hashing: Hashing::new(),
        has_births: false,
        hosts: Arc::default(),
        guard,
        door,
        http: SocketAddr::from(([127, 0, 0, 1], 8098)).into(),
        drain: Arc::new(Drain::new(Duration::ZERO)),
        log: Arc::new(NoLog),
        slow: node::SlowRequests::off(),
        peers: None,
    }
}

/// A log without levels.
struct NoLog;

impl LogLevels for NoLog {
    fn levels(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn set(&self, _target: Option<&str>, _level: &str) -> Result<(), String> {
        Err("no log".to_owned())
    }
}
