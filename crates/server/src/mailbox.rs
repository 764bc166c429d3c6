//! Messages between the shards' threads.
//!
//! A sender collects what it has for a shard during a turn and puts it down at once; the receiver is woken if
//! its box was empty. What waits is bounded by the requests that shards take on ([`node::shard::WORK_MAX`]),
//! every hop belongs to one; and for messages of other nodes by [`MESSAGES_MAX`], beyond which their connections are
//! not read.

use crate::compact::CompactTold;
use crate::groups::{AdoptTold, CopiesTold, GroupsTold};
use crate::trees::{TreesAsk, TreesTold};
use base::spawn::Outcome;
use engine::backup::StoreFiles;
use node::http::CompactPage;
use node::{Adoption, Agreement, Budget, Hop, PeerMessage, ShardId, Topology};
use ring::{Birth, NodeId};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, oneshot};

/// Messages in a box beyond which no more is read from other nodes: twice what a shard works on.
pub const MESSAGES_MAX: usize = 2 * node::shard::WORK_MAX;

/// What one thread puts down for another.
#[derive(Debug)]
pub enum Mail {
    /// Of another shard.
    Hop(Hop),
    /// Of another node, for the receiver.
    Peer {
        /// The node.
        from: NodeId,
        /// The message.
        message: PeerMessage,
    },
    /// For another node, by a link of the receiver's.
    Send {
        /// The shard whose message it is.
        from: ShardId,
        /// The node.
        to: NodeId,
        /// The message.
        message: PeerMessage,
    },
    /// The receiver's own, which could not be sent.
    Bounce {
        /// To which node.
        to: NodeId,
        /// The message.
        message: PeerMessage,
    },
    /// A large message of another node is arriving.
    Progress {
        /// The node.
        from: NodeId,
    },
    /// What all nodes have agreed on: members and owners.
    Topology(Arc<Topology>),
    /// How much copies may take.
    Budget(Budget),
    /// The agreement of all nodes on consistent groups.
    Agreement(Arc<Agreement>),
    /// The birth that the receiver's store is to keep.
    KeepBirth(Birth),
    /// Which files make up the receiver's store.
    Backup(Outcome<Result<StoreFiles, engine::Error>>),
    /// A request about the compaction of the receiver's store, and the place for its answer.
    Compact(CompactPage, oneshot::Sender<CompactTold>),
    /// The state of the receiver's groups, and whom to tell.
    Groups(oneshot::Sender<GroupsTold>),
    /// The receiver's copies of groups, and the place for its answer.
    Copies(oneshot::Sender<CopiesTold>),
    /// Groups that the receiver's restored store goes on with, how many of its own are written already, and the place
    /// for its answer.
    Adopt(Arc<Adoption>, usize, oneshot::Sender<AdoptTold>),
    /// Something about the receiver's hash trees, and whom to tell how it stands with them then.
    Trees(TreesAsk, oneshot::Sender<TreesTold>),
    /// A link that the receiver uses has come up or gone down.
    Link {
        /// To which node.
        node: NodeId,
        /// Whether it is there.
        is_up: bool,
    },
    /// The failure detector takes a node for down.
    Doubt(NodeId),
}

/// One shard's box.
#[derive(Default)]
pub struct Mailbox {
    messages: Mutex<Vec<Mail>>,
    /// Wakes the shard's loop; also what its disk and its jobs call.
    pub wake: Arc<Notify>,
}

/// All shards' boxes.
pub struct Mailboxes(Vec<Mailbox>);

impl Mailboxes {
    /// Boxes for `shards` shards.
    pub fn new(shards: u16) -> Mailboxes {
        Mailboxes((0..shards).map(|_| Mailbox::default()).collect())
    }

    /// Puts a copy down for each shard.
    pub fn put_all(&self, mail: impl Fn() -> Mail) {
        self.0.iter().for_each(|mailbox| mailbox.put(&mut vec![mail()]));
    }

    /// The box of a shard.
    pub fn of(&self, shard: ShardId) -> &Mailbox {
        &self.0[usize::from(shard.0)]
    }
}

impl Mailbox {
    /// Puts messages down, in order, and wakes the receiver if it has none yet.
    pub fn put(&self, messages: &mut Vec<Mail>) {
        let mut waiting = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let wake = waiting.is_empty() && !messages.is_empty();
        waiting.append(messages);
        drop(waiting);
        if wake {
            self.wake.notify_one();
        }
    }

    /// How much is there.
    pub fn len(&self) -> usize {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Moves what is there to `taken`, which is empty.
    pub fn take(&self, taken: &mut Vec<Mail>) {
        assert!(taken.is_empty(), "messages that were taken are handled first");
        std::mem::swap(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner), taken);
    }
}

/// Mail of a shard for others, until its turn ends: messages to one of them are put down together.
pub struct Outbox(Vec<Vec<Mail>>);

impl Outbox {
    /// Without mail, on a node of so many shards.
    pub fn new(shards: u16) -> Outbox {
        Outbox((0..shards).map(|_| Vec::new()).collect())
    }

    /// Takes mail for a shard.
    pub fn put(&mut self, to: ShardId, mail: Mail) {
        self.0[usize::from(to.0)].push(mail);
    }

    /// Puts all of it down.
    pub fn flush(&mut self, mailboxes: &Mailboxes) {
        for (to, messages) in self.0.iter_mut().enumerate() {
            if !messages.is_empty() {
                let to = ShardId(u16::try_from(to).expect("a node has fewer shards than that"));
                mailboxes.of(to).put(messages);
            }
        }
    }
}
