//! The way of a shard's messages to other nodes: its own links, or those of the shard that keeps its links.
//!
//! Invariant: a message is sent, handed to the keeper of the links, or kept here until the shard takes it back.

use crate::mailbox::Mail;
use crate::peer::{Links, PeerFigures};
use base::Monotonic;
use node::{PeerMessage, ShardId};
use ring::NodeId;
use std::cell::RefCell;

/// The outlet of a shard.
pub(super) struct PeerOutlet {
    id: ShardId,
    /// `None` for a node alone.
    links: Option<Links>,
    /// Messages that could not be sent, until the shard takes them back.
    bounced: RefCell<Vec<(NodeId, PeerMessage)>>,
}

impl PeerOutlet {
    /// Of a shard with these links.
    pub(super) fn new(id: ShardId, links: Option<Links>) -> PeerOutlet {
        PeerOutlet { id, links, bounced: RefCell::default() }
    }

    /// The links.
    ///
    /// # Panics
    /// If the node is alone.
    pub(super) fn links(&self) -> &Links {
        self.links.as_ref().expect("only a node of a cluster has to do with links")
    }

    /// Sends a message, or says by the mail of which shard it goes.
    pub(super) fn send(&self, to: NodeId, message: PeerMessage) -> Option<(ShardId, Mail)> {
        let links = self.links();
        match links.keeper() {
            keeper if keeper == self.id => {
                if let Some(message) = links.send(self.id, to, message) {
                    self.bounced.borrow_mut().push((to, message));
                }
                None
            }
            keeper => Some((keeper, Mail::Send { from: self.id, to, message })),
        }
    }

    /// Messages that could not be sent, with their nodes.
    pub(super) fn take_bounced(&self) -> Vec<(NodeId, PeerMessage)> {
        self.bounced.take()
    }

    /// Counts of messages to and from other nodes, by node; none for a node alone.
    pub(super) fn figures(&self) -> Vec<PeerFigures> {
        self.links.as_ref().map_or(Vec::new(), Links::figures)
    }

    /// Looks at the links now and then.
    pub(super) fn sweep(&self, now: Monotonic) {
        if let Some(links) = &self.links {
            links.sweep(now);
        }
    }

    /// Closes the links.
    pub(super) fn close(&self) {
        if let Some(links) = &self.links {
            links.close();
        }
    }
}
