//! Incoming messages of other nodes.
//!
//! All frames of a read are handed to the shards together, and one turn follows.

use super::Peers;
use super::channel::{Channel, READ_BYTES};
use super::listener::Arrived;
use super::presence::Presence;
use crate::local::Local;
use base::budget::LARGE_BYTES as RESERVED_BYTES;
use base::{Budget, Reservation};
use bytes::{Buf, BytesMut};
use kv::reap::SILENCE_MAX;
use node::{PeerMessage, RefusedMessage};
use protocol::peer::frame::{HEADER_LEN, arriving_bytes, claimed};
use protocol::peer::{FRAME_BYTES_MAX, next_frame};
use ring::NodeId;
use rustls::Connection;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Connections of one node at one thread: each of its shards' links once, and once more while the end of an older
/// one has not been noticed. The oldest gives way.
const CONNECTIONS_PER_NODE_MAX: usize = 2 * super::LINKS_MAX as usize;

/// Bytes of one message after which its sender is known to be there, however long the rest takes.
const LARGE_BYTES: usize = 1 << 20;

/// How long to wait for another shard of this node whose mailbox is full, before looking again.
const CONGESTED: Duration = Duration::from_millis(1);

/// How often a large message looks for memory: others give theirs back when they are written to the journal.
const MEMORY_PAUSE: Duration = Duration::from_millis(5);

/// How often it does before it is refused. What comes behind it on its connection waits meanwhile, pings too: a quarter
/// of a second is far from what makes the other node take this one for down.
const MEMORY_TRIES: usize = 50;

/// Reads the connections that come to this thread, large messages within the `memory` for them. Those of whoever is a
/// member no more end.
pub(crate) async fn receive(
    mut arrivals: mpsc::Receiver<Arrived>,
    local: Rc<Local>,
    peers: Arc<Peers>,
    memory: Arc<Budget>,
) {
    let mut rosters = peers.subscribe();
    let mut open: BTreeMap<NodeId, VecDeque<AbortHandle>> = BTreeMap::new();
    // Every read fills it and empties it before another connection has its turn.
    let scratch = Rc::new(RefCell::new(vec![0; READ_BYTES].into_boxed_slice()));
    loop {
        let arrived = tokio::select! {
            arrived = arrivals.recv() => match arrived {
                Some(arrived) => arrived,
                None => return,
            },
            Ok(()) = rosters.changed() => {
                let roster = Arc::clone(&rosters.borrow_and_update());
                open.retain(|node, tasks| {
                    let stays = roster.members().has(*node);
                    tasks.iter().filter(|_| !stays).for_each(AbortHandle::abort);
                    stays
                });
                continue;
            }
        };
        let roster = Arc::clone(&rosters.borrow());
        // It may have left since it was welcomed.
        let members = roster.members();
        if !members.has(arrived.node) {
            continue;
        }
        let of_node = open.entry(arrived.node).or_default();
        of_node.retain(|task| !task.is_finished());
        if of_node.len() == CONNECTIONS_PER_NODE_MAX
            && let Some(oldest) = of_node.pop_front()
        {
            oldest.abort();
        }
        local.links().hurry(arrived.node);
        let name = Arc::clone(members.name(arrived.node));
        let task = serve(arrived, name, Rc::clone(&local), Rc::clone(&scratch), Arc::clone(&memory));
        let task = tokio::task::spawn_local(task);
        of_node.push_back(task.abort_handle());
        local.links().add_task(task.abort_handle());
    }
}

async fn serve(
    arrived: Arrived,
    name: Arc<str>,
    local: Rc<Local>,
    scratch: Rc<RefCell<Box<[u8]>>>,
    memory: Arc<Budget>,
) {
    let Arrived { node, tcp, tls, input, presence } = arrived;
    let _counted = Counted::new(node, Rc::clone(&local));
    let large = Large { budget: memory, memory: None, left: 0 };
    let ended = tokio::select! {
        ended = read_all((node, &presence), (tcp, tls), (input, large), &local, &scratch) => ended,
        () = presence.taken_over() => Err("another process of the node has taken its place".to_owned()),
    };
    if let Err(reason) = ended {
        tracing::warn!(peer = %name, "a connection of a peer ended: {reason}");
    }
}

async fn read_all(
    (node, presence): (NodeId, &Presence),
    (tcp, tls): (std::net::TcpStream, Connection),
    (mut input, mut large): (BytesMut, Large),
    local: &Local,
    scratch: &RefCell<Box<[u8]>>,
) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut channel = Channel::new(TcpStream::from_std(tcp).map_err(failed)?, tls);
    let mut messages = Vec::new();
    let mut heard = local.links().now();
    loop {
        let decoded = large.decode(&mut input, &mut messages);
        local.links().count(node, |figures| figures.peer_frames_received += messages.len() as u64);
        if !messages.is_empty() {
            local.receive(node, &mut messages);
            while local.is_congested() {
                tokio::time::sleep(CONGESTED).await;
            }
        }
        if decoded.is_err() {
            presence.linger();
            return decoded;
        }
        large.find_memory(&input, node, local).await;
        let before = input.len();
        if before >= LARGE_BYTES {
            local.progress(node);
        }
        if !channel.read_shared(&mut input, scratch).await.map_err(failed)? {
            return Ok(());
        }
        let now = local.links().now();
        if now.since(heard) > SILENCE_MAX {
            // One of the two has stood still. What comes now may be older than what has been reaped meanwhile.
            presence.linger();
            return Err(format!("silent for {} s", now.since(heard).as_secs()));
        }
        heard = now;
        local.links().count(node, |figures| {
            figures.peer_bytes_received += (input.len() - before) as u64;
            figures.peer_reads += 1;
        });
    }
}

/// The large frame at the front of the input, if there is one.
struct Large {
    /// For all such frames.
    budget: Arc<Budget>,
    /// Its memory.
    memory: Option<Reservation>,
    /// Bytes of it that are still to be skipped, as there was none.
    left: usize,
}

impl Large {
    /// Takes all complete frames off `input`. What is malformed ends the connection, after what came before it.
    fn decode(&mut self, input: &mut BytesMut, messages: &mut Vec<PeerMessage>) -> Result<(), String> {
        let skipped = self.left.min(input.len());
        input.advance(skipped);
        self.left -= skipped;
        while self.left == 0
            && let Some(mut frame) = next_frame(input, FRAME_BYTES_MAX).map_err(|error| error.to_string())?
        {
            if let Some(memory) = self.memory.take() {
                frame.body = memory.hold(frame.body);
                // What is behind it goes on in memory of its own.
                *input = BytesMut::from(&input[..]);
            }
            messages.push(PeerMessage::decode(frame).map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    /// Reserves memory for a large frame that has begun to arrive; refuses the message where that takes too long.
    async fn find_memory(&mut self, input: &[u8], node: NodeId, local: &Local) {
        let bytes = arriving_bytes(input);
        if self.left > 0 || self.memory.is_some() || bytes < RESERVED_BYTES || input.len() < HEADER_LEN {
            return;
        }
        for _ in 0..MEMORY_TRIES {
            self.memory = self.budget.try_reserve(bytes);
            if self.memory.is_some() {
                return;
            }
            tokio::time::sleep(MEMORY_PAUSE).await;
        }
        self.left = bytes;
        let refused =
            claimed(input).map_or(RefusedMessage::Nothing, |(kind, id)| RefusedMessage::of(kind, id));
        local.refuse(node, refused);
    }
}

/// Counts a connection while it is open, also when its task is aborted.
struct Counted {
    node: NodeId,
    local: Rc<Local>,
}

impl Counted {
    fn new(node: NodeId, local: Rc<Local>) -> Counted {
        local.links().count(node, |figures| figures.peer_links_in += 1);
        Counted { node, local }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.local.links().count(self.node, |figures| figures.peer_links_in -= 1);
    }
}
