//! The links of a shard: one to each member.
//!
//! A link begins when its node becomes a member, and ends when it is one no more. Beyond [`LINKS_MAX`] shards, a shard
//! uses the links of another ([`Links::keeper`]).
//!
//! Invariant: there is no link to this node, and at most one to each other.
//!
//! Left out: the connections of a link (`link.rs`).

use super::figures::PeerFigures;
use super::link::Link;
use super::queue::Room;
use super::{LINKS_MAX, Peers, Roster};
use crate::local::Local;
use base::Monotonic;
use node::{PeerMessage, ShardId};
use ring::NodeId;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// The links of a shard.
pub(crate) struct Links {
    shard: ShardId,
    /// By the node's number; none to this node, and none at all if the shard uses those of another.
    links: RefCell<Vec<Option<Rc<Link>>>>,
    /// By the node's number. Those of nodes that have left stay.
    figures: RefCell<Vec<PeerFigures>>,
    /// For requests that wait for all of them.
    room: Rc<Room>,
    now: Cell<Monotonic>,
    /// Tasks that end when the shard closes.
    tasks: RefCell<Vec<AbortHandle>>,
}

impl Links {
    /// Links of `shard`, which are opened by [`Links::open`]. For all of them so many bytes of small messages wait at
    /// most.
    pub(crate) fn new(shard: ShardId, queued_max: usize) -> Links {
        Links {
            shard,
            links: RefCell::default(),
            figures: RefCell::default(),
            room: Room::new(queued_max),
            now: Cell::new(Monotonic::default()),
            tasks: RefCell::default(),
        }
    }

    /// The shard whose links this one uses.
    pub(crate) fn keeper(&self) -> ShardId {
        ShardId(self.shard.0 % LINKS_MAX)
    }

    /// Puts a message in the queue for a node; gives it back if the link is down or the queue full.
    #[must_use]
    pub(crate) fn send(&self, from: ShardId, to: NodeId, message: PeerMessage) -> Option<PeerMessage> {
        let bounced = match self.links.borrow().get(usize::from(to.0)) {
            Some(Some(link)) => link.send(from, message, self.now.get()),
            // It has left, or this node's links do not know of it yet.
            _ => Some(message),
        };
        if bounced.is_some() {
            self.count(to, |figures| figures.peer_bounced += 1);
        }
        bounced
    }

    /// Has links follow the members, from now on.
    pub(crate) fn open(&self, local: &Rc<Local>, peers: &Arc<Peers>) {
        if self.shard.0 >= LINKS_MAX {
            return;
        }
        let mut rosters = peers.subscribe();
        let roster = Arc::clone(&rosters.borrow_and_update());
        self.follow(&roster, local, peers);
        let (local, peers) = (Rc::clone(local), Arc::clone(peers));
        let task = tokio::task::spawn_local(async move {
            while rosters.changed().await.is_ok() {
                let roster = Arc::clone(&rosters.borrow_and_update());
                local.links().follow(&roster, &local, &peers);
            }
        });
        self.add_task(task.abort_handle());
    }

    /// Begins links to new members, and ends those to members that have left.
    fn follow(&self, roster: &Roster, local: &Rc<Local>, peers: &Arc<Peers>) {
        let mut links = self.links.borrow_mut();
        for link in links.iter_mut() {
            if let Some(left) = link.take_if(|link| !roster.members().has(link.node())) {
                left.leave();
            }
        }
        for node in roster.members().others() {
            let at = usize::from(node.0);
            if links.len() <= at {
                links.resize(at + 1, None);
            }
            if links[at].is_none() {
                let link = Rc::new(Link::new(node, Rc::clone(&self.room)));
                links[at] = Some(Rc::clone(&link));
                let name = Arc::clone(roster.members().name(node));
                let task = link.run(name, Rc::clone(local), Arc::clone(peers));
                self.add_task(tokio::task::spawn_local(task).abort_handle());
            }
        }
    }

    /// A task that ends with the links.
    pub(crate) fn add_task(&self, task: AbortHandle) {
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    /// Ends all connections.
    pub(crate) fn close(&self) {
        self.tasks.borrow_mut().drain(..).for_each(|task| task.abort());
        self.links.borrow().iter().flatten().for_each(|link| link.close());
    }

    /// Connects at once to a node that is known to be there, unless that is done.
    pub(crate) fn hurry(&self, node: NodeId) {
        if let Some(Some(link)) = self.links.borrow().get(usize::from(node.0)) {
            link.hurry();
        }
    }

    /// The time of the last sweep.
    pub(crate) fn now(&self) -> Monotonic {
        self.now.get()
    }

    /// Ends connections whose writes do not get on, and has links rest that nobody uses.
    pub(crate) fn sweep(&self, now: Monotonic) {
        self.now.set(now);
        self.links.borrow().iter().flatten().for_each(|link| link.sweep(now));
    }

    /// Counters by the node's number.
    pub(crate) fn figures(&self) -> Vec<PeerFigures> {
        self.figures.borrow().clone()
    }

    /// Changes a node's counters.
    pub(crate) fn count(&self, node: NodeId, change: impl FnOnce(&mut PeerFigures)) {
        let (mut figures, at) = (self.figures.borrow_mut(), usize::from(node.0));
        if figures.len() <= at {
            figures.resize(at + 1, PeerFigures::default());
        }
        change(&mut figures[at]);
    }
}
