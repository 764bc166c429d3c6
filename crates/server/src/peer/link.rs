//! A link: the connections that a shard opens to another node, one after the other, and sends on.
//!
//! 1. Its task connects (`dial.rs`), and sends until the connection ends. Then it waits a little and connects again,
//!    until the node has left.
//! 2. A message that is sent is put in the link's queue, and the link's task is woken. It runs when the connections
//!    that have input have had their turn, so what these ask of the node leaves together. After a write of several
//!    messages it first looks at the sockets once more: under load others have input by then. A write costs the system
//!    calls of both nodes, and a record of TLS.
//! 3. A link on which nothing was sent for [`REST_AFTER`] *rests*: its connection is closed, and opened again for the
//!    next message. To the shard that is the same link; if it cannot be opened, it is down. In small clusters questions
//!    keep all links awake.
//!
//! Invariant: a message that a link has taken is written, or given back to its shard.

use super::batch::Batch;
use super::channel::{Channel, HANDSHAKE_READ_BYTES};
use super::dial::dial;
use super::queue::{Queue, Room, Waiting};
use super::{HANDSHAKE_MAX, Peers};
use crate::local::Local;
use base::{Monotonic, Rng};
use bytes::BytesMut;
use node::{PeerMessage, ShardId};
use os::OsRng;
use ring::NodeId;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;

/// A write that waits so long for room has a peer that reads nothing: paused, or wedged. Others serve meanwhile, and
/// what waits here is given back.
const STALLED_MAX: Duration = Duration::from_secs(5);

/// The first and the longest time between two tries to connect. The longest is also how long a node that is back
/// stays unused.
const AGAIN_MIN: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// A link rests after so long without a message: before the other end would not read on (`SILENCE_MAX` of `kv::reap`),
/// with two ticks of a quiet shard between, by which time is told on both sides.
const REST_AFTER: Duration = Duration::from_secs(7);
const _: () = assert!(REST_AFTER.as_secs() + 2 < kv::reap::SILENCE_MAX.as_secs());

/// A link that held for so long begins anew with the shortest time when it ends.
const STEADY: Duration = Duration::from_secs(1);

/// Connections to one node, one after the other.
pub(super) struct Link {
    node: NodeId,
    queue: RefCell<Queue>,
    /// Whether it takes messages: it is connected, or rests.
    is_up: Cell<bool>,
    /// When something was written last, or it was connected.
    used: Cell<Monotonic>,
    rest: Notify,
    waker: RefCell<Option<Waker>>,
    writing_since: Cell<Option<Monotonic>>,
    stalled: Notify,
    /// The node was heard of: try to connect at once.
    hurry: Notify,
    /// The node is no member any more.
    left: Notify,
}

/// Why a connection is no more.
enum Ended {
    /// Nobody needs it for now.
    Rests,
    /// The node is no member any more.
    Left,
    /// An event of the other end, or of the network.
    Broken(String),
}

impl Link {
    /// To a node; its queue takes this room.
    pub(super) fn new(node: NodeId, room: Rc<Room>) -> Link {
        Link {
            node,
            queue: RefCell::new(Queue::new(room)),
            is_up: Cell::new(false),
            used: Cell::default(),
            rest: Notify::new(),
            waker: RefCell::default(),
            writing_since: Cell::new(None),
            stalled: Notify::new(),
            hurry: Notify::new(),
            left: Notify::new(),
        }
    }

    /// The node to which it leads.
    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    /// Puts a message in the queue; gives it back if the link is down or the queue full.
    pub(super) fn send(&self, from: ShardId, message: PeerMessage, since: Monotonic) -> Option<PeerMessage> {
        if !self.is_up.get() {
            return Some(message);
        }
        let bounced = self.queue.borrow_mut().push(Waiting { from, message, since });
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
        bounced
    }

    /// Has its task connect at once, unless it is connected.
    pub(super) fn hurry(&self) {
        if !self.is_up.get() {
            self.hurry.notify_waiters();
        }
    }

    /// Ends its task: the node is no member any more.
    pub(super) fn leave(&self) {
        self.left.notify_one();
    }

    /// Takes no more messages. Its task was ended.
    pub(super) fn close(&self) {
        self.is_up.set(false);
    }

    /// Ends a connection whose write does not get on, and has the link rest if nobody uses it.
    pub(super) fn sweep(&self, now: Monotonic) {
        if self.writing_since.get().is_some_and(|since| now.since(since) >= STALLED_MAX) {
            self.stalled.notify_waiters();
        }
        if now.since(self.used.get()) >= REST_AFTER {
            // Nobody listens unless it is connected and has nothing to send.
            self.rest.notify_waiters();
        }
    }

    /// The link's task: connects, sends until the connection ends, and so on, until the node has left.
    pub(super) async fn run(self: Rc<Self>, name: Arc<str>, local: Rc<Local>, peers: Arc<Peers>) {
        let mut rng = OsRng::new();
        let mut pause = AGAIN_MIN;
        let mut last_failure = String::new();
        tokio::select! {
            () = peers.gate.first_asked() => {}
            () = self.left.notified() => return,
        }
        loop {
            let connected = tokio::select! {
                connected = dial(self.node, &name, &peers, HANDSHAKE_MAX) => connected,
                () = self.left.notified() => return,
            };
            let connected = connected.map_err(|failure| {
                if !failure.is_copy {
                    peers.gate.decided(self.node);
                }
                failure.text
            });
            match connected {
                Ok((mut channel, version)) => {
                    last_failure.clear();
                    let began = local.links().now();
                    self.come_up(&local, &name, began);
                    let ended = tokio::select! {
                        ended = self.send_all(&local, &mut channel, version) => ended,
                        () = self.left.notified() => Ended::Left,
                    };
                    let ended = match ended {
                        Ended::Rests => {
                            drop(channel);
                            tokio::select! {
                                () = self.filled() => continue,
                                () = self.left.notified() => Ended::Left,
                            }
                        }
                        ended => ended,
                    };
                    self.go_down(&local, &name, &ended);
                    if matches!(ended, Ended::Left) {
                        return;
                    }
                    if local.links().now().since(began) >= STEADY {
                        pause = AGAIN_MIN;
                    }
                }
                Err(failure) if self.is_up.get() => self.go_down(&local, &name, &Ended::Broken(failure)),
                // Once for each reason: a node may be away for days.
                Err(failure) if failure != last_failure => {
                    tracing::warn!(peer = %name, "no link: {failure}");
                    last_failure = failure;
                }
                Err(_) => {}
            }
            let wait = pause / 2 + pause.mul_f64(rng.below(1000) as f64 / 2000.0);
            pause = (pause * 2).min(AGAIN_MAX);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.hurry.notified() => {}
                () = self.left.notified() => return,
            }
        }
    }

    /// The link takes messages, from a connection on.
    fn come_up(&self, local: &Local, name: &str, now: Monotonic) {
        self.used.set(now);
        // One that rested was never down.
        if !self.is_up.replace(true) {
            tracing::info!(peer = %name, "link up");
            local.links().count(self.node, |figures| figures.peer_links_up += 1);
            local.link(self.node, true);
        }
    }

    /// The link takes no messages any more, and gives back its queue.
    fn go_down(&self, local: &Local, name: &str, ended: &Ended) {
        self.is_up.set(false);
        local.links().count(self.node, |figures| figures.peer_links_up -= 1);
        self.writing_since.set(None);
        self.give_back(local);
        local.link(self.node, false);
        match ended {
            Ended::Broken(why) => tracing::info!(peer = %name, "link down: {why}"),
            Ended::Left | Ended::Rests => {
                tracing::info!(peer = %name, "link down: it is no member any more");
            }
        }
    }

    fn give_back(&self, local: &Local) {
        let waiting: Vec<_> = std::iter::from_fn(|| self.next()).collect();
        local.links().count(self.node, |figures| figures.peer_bounced += waiting.len() as u64);
        for Waiting { from, message, .. } in waiting {
            local.bounce(from, self.node, message);
        }
    }

    /// Sends queued frames until the connection ends, or is not needed; says which.
    async fn send_all(&self, local: &Local, channel: &mut Channel, version: u16) -> Ended {
        let mut batch = Batch::new(version);
        let mut unexpected = BytesMut::new();
        let mut scratch = [0; HANDSHAKE_READ_BYTES];
        let mut wrote_several = false;
        loop {
            tokio::select! {
                biased;
                () = self.filled() => {}
                read = channel.read(&mut unexpected, &mut scratch) => return Ended::Broken(match read {
                    Ok(true) => "it sent an unexpected message".to_owned(),
                    Ok(false) => "closed by the other node".to_owned(),
                    Err(error) => error.to_string(),
                }),
                () = self.rest.notified() => return Ended::Rests,
            }

            if wrote_several {
                // The node is under load: what has arrived meanwhile may have messages for this write.
                tokio::task::yield_now().await;
            }
            let now = local.links().now();
            let give_back = |from, message| local.bounce(from, self.node, message);
            batch.fill(now, || self.next(), give_back);
            self.used.set(now);
            self.writing_since.set(Some(now));
            let writes = channel.writes;
            tokio::select! {
                biased;
                written = batch.write(channel) => if let Err(error) = written {
                    return Ended::Broken(error.to_string());
                },
                () = self.stalled.notified() => {
                    return Ended::Broken(format!("no data taken for {} s", STALLED_MAX.as_secs()));
                }
            }

            self.writing_since.set(None);
            local.links().count(self.node, |figures| {
                figures.peer_frames_sent += batch.frames();
                figures.peer_bytes_sent += batch.bytes() as u64;
                figures.peer_writes += channel.writes - writes;
            });
            wrote_several = batch.frames() > 1;
            if batch.is_full() {
                // More may wait; connections go first.
                tokio::task::yield_now().await;
            }
            batch.clear();
        }
    }

    /// Waits until there is something to send.
    async fn filled(&self) {
        poll_fn(|context| {
            if !self.queue.borrow().is_empty() {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// The next message of the queue.
    fn next(&self) -> Option<Waiting> {
        self.queue.borrow_mut().pop()
    }
}
