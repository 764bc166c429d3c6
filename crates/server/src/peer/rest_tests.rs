//! A link that nobody uses: its connection is closed, and opened again for the next message.

#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use super::channel::Channel;
use super::tests::{state, test_tls};
use super::{Links, Peers, Roster};
use crate::local::Local;
use crate::mailbox::Mailboxes;
use crate::membership::{self, AsOf};
use ::membership::ClusterId;
use ::membership::log::Identity;
use base::Monotonic;
use base::rng::SplitMix64;
use bytes::BytesMut;
use engine::Store;
use engine::embedded::RunAtOnce;
use engine::store::{Options, Platform};
use node::{AskId, Layout, Load, Members, PeerMessage, Reaping, Shard, ShardConfig, ShardId, layout};
use os::{OsClock, OsDisk};
use protocol::peer::{Greeting, Reply, next_frame};
use ring::{NodeId, Ring, RingSize, RingVersion};
use std::io::IoSlice;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::LocalSet;

pub(super) const THERE: NodeId = NodeId(0);

/// A shard of node 1 of two, with its links.
pub(crate) fn local(data: &Path, membership: membership::Handle) -> Rc<Local> {
    let layout = Layout::new(1, RingSize::new(8).unwrap());
    let disk = OsDisk::blocking();
    let mut startup = disk.blocking_handle();
    let platform = Platform {
        spawn: Arc::new(RunAtOnce::new(Box::new(disk.blocking_handle()))),
        startup: Box::new(disk.blocking_handle()),
        disk: Box::new(disk),
        rng: Box::new(SplitMix64::new(1)),
        clock: Arc::new(OsClock::new()),
    };
    let options = Options { metadata: layout.metadata(0), ..Options::default() };
    let (mut store, _) = Store::open(&layout::shard_dir(data, 0), options, platform).unwrap();
    let table = node::read_props(&mut store, &mut startup).unwrap();
    let config = ShardConfig {
        id: ShardId(0),
        layout,
        members: Arc::new(Members::new(["a@h", "b@h"], "b@h").unwrap()),
        ring: Arc::new(Ring::round_robin(RingVersion(1), layout.ring_size, 2).unwrap()),
        limits: kv::Limits::default(),
        clock: Arc::new(OsClock::new()),
        rng: Box::new(SplitMix64::new(2)),
        read_form: kv::ReadStrategy::LocalValue,
        life: 7,
        reaping: Reaping::after(None),
        anti_entropy: None,
        rebuilding: node::Rebuilding::default(),
        gathered: base::Budget::unlimited(),
        slow: node::SlowRequests::off(),
        leases: node::LeaseConfig::starting(NodeId(1), 7, 1, node::StrongReads::Ask, &OsClock::new()),
    };
    let (shard, mailboxes) = (Shard::new(config, store, table), Arc::new(Mailboxes::new(1)));
    Rc::new(Local::new(
        ShardId(0),
        layout,
        shard,
        mailboxes,
        Some(Links::new(ShardId(0), usize::MAX)),
        membership,
    ))
}

/// The other node: takes a connection, welcomes who opened it, and reads on.
pub(super) struct There {
    pub(super) listener: TcpListener,
    pub(super) peers: Arc<Peers>,
}

impl There {
    pub(super) async fn welcome(&self) -> (Channel, BytesMut) {
        let tcp = self.listener.accept().await.unwrap().0;
        let (mut channel, mut input) = (Channel::new(tcp, self.peers.tls.accept().unwrap()), BytesMut::new());
        channel.handshake(&mut input).await.unwrap();
        while Greeting::read(&mut input).unwrap().is_none() {
            assert!(read(&mut channel, &mut input).await);
        }
        let mut out = BytesMut::new();
        Reply::Welcome { version: protocol::peer::VERSION }.encode(&mut out);
        channel.write(&[IoSlice::new(&out)]).await.unwrap();
        (channel, input)
    }

    /// The numbers of the pings that come on a connection until one is this.
    async fn hears(&self, channel: &mut Channel, input: &mut BytesMut, awaited: u64) {
        loop {
            while let Some(frame) = next_frame(input, 1 << 20).unwrap() {
                if matches!(PeerMessage::decode(frame).unwrap(), PeerMessage::Pong { id, .. } if id.0 == awaited)
                {
                    return;
                }
            }
            assert!(read(channel, input).await, "it came to its end");
        }
    }
}

async fn read(channel: &mut Channel, input: &mut BytesMut) -> bool {
    let mut scratch = [0; 4096];
    channel.read(input, &mut scratch).await.unwrap()
}

/// Sweeps at this time, until the connection is at its end.
async fn ends_by(local: &Local, now: Monotonic, mut channel: Channel, mut input: BytesMut) {
    let mut is_open = true;
    while is_open {
        local.links().sweep(now);
        tokio::select! {
            biased;
            more = read(&mut channel, &mut input) => is_open = more,
            () = tokio::task::yield_now() => {}
        }
    }
}

fn pong(id: u64) -> PeerMessage {
    PeerMessage::Pong { id: AskId(id), life: 7, load: Load(0), props: None, promise: None }
}

#[tokio::test(flavor = "current_thread")]
async fn a_link_that_nobody_uses_rests_and_takes_messages_all_the_same() {
    let data = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let two = state(&[("a@h", &address), ("b@h", "127.0.0.1:1")]);
    let here =
        Identity { cluster: ClusterId(1), node: NodeId(1), starts: 1, start: 7, address: String::new() };
    let (membership, _inbox) = membership::queue(1);
    let roster = Roster::of(NodeId(1), &two, AsOf::default()).unwrap();
    let peers = Arc::new(Peers::new(test_tls("a@h"), &here, roster, Vec::new(), membership.clone()));
    let there = There { listener, peers: Arc::clone(&peers) };
    let local = local(data.path(), membership);
    let at = |seconds| Monotonic(0) + Duration::from_secs(seconds);
    LocalSet::new()
        .run_until(async {
            local.links().open(&local, &peers);
            let (mut channel, mut input) = there.welcome().await;
            assert!(send_until_taken(&local, 1).await);
            there.hears(&mut channel, &mut input, 1).await;
            local.links().sweep(at(6));
            assert!(local.links().send(ShardId(0), THERE, pong(2)).is_none());
            there.hears(&mut channel, &mut input, 2).await;
            ends_by(&local, at(13), channel, input).await;
            // It rests. The next message opens it again.
            assert!(local.links().send(ShardId(0), THERE, pong(3)).is_none());
            let (mut channel, mut input) = there.welcome().await;
            there.hears(&mut channel, &mut input, 3).await;
            assert_eq!(local.peer_figures()[0].peer_links_up, 1);
            // Once more; and now nobody is there.
            ends_by(&local, at(20), channel, input).await;
            drop(there);
            assert!(local.links().send(ShardId(0), THERE, pong(4)).is_none());
            while local.peer_figures()[0].peer_links_up > 0 {
                tokio::task::yield_now().await;
            }
            assert!(local.links().send(ShardId(0), THERE, pong(5)).is_some());
            local.links().close();
        })
        .await;
}

/// Whether the link takes a message, once it has noticed that it was welcomed.
async fn send_until_taken(local: &Local, id: u64) -> bool {
    for _ in 0..10_000 {
        if local.links().send(ShardId(0), THERE, pong(id)).is_none() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}
