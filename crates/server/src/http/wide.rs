//! The part of the node that a door of HTTP has: answers to questions that no shard alone can answer.
//!
//! Invariant: an answer changes nothing of the connection but its session and its output.
//!
//! Left out: questions about one connection, and those whose answer the door needs itself (`http.rs`).

use super::tell;
use crate::backup::Backups;
use crate::compact::Compactions;
use crate::drain::Drain;
use crate::figure_pages::{FigurePage, FigurePages};
use crate::groups::NodeGroups;
use crate::health;
use crate::levels::{self, LogLevels};
use crate::local::Local;
use crate::membership::{self, Answered};
use crate::peer::Peers;
use crate::purge::Purges;
use crate::security::{DoorGuard, Hashing};
use crate::slow;
use crate::targets::targets;
use crate::trees::NodeTrees;
use crate::verdict::NodeState;
use bytes::Bytes;
use figures::Format;
use node::SlowRequests;
use node::http::{ClusterPage, HostNames, Question, Session, StrongPage};
use os::Address;
use std::sync::Arc;

/// A door for HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpDoor {
    /// In plaintext.
    Http,
    /// Under TLS.
    Https,
    /// The local socket, for administration.
    Local,
}

/// The answerer of requests that no shard alone can answer.
pub struct Wide {
    /// Its figures.
    pub(crate) figures: Arc<FigurePages>,
    /// The agreement of the nodes.
    pub membership: membership::Handle,
    /// Backups of the node.
    pub backups: Arc<Backups>,
    /// The compaction of its stores.
    pub compactions: Arc<Compactions>,
    /// Its hash trees.
    pub trees: Arc<NodeTrees>,
    /// Its groups of consistent bucket types.
    pub groups: Arc<NodeGroups>,
    /// Its purges.
    pub purges: Arc<Purges>,
    /// The hashes of new passwords.
    pub(crate) hashing: Hashing,
    /// Whether its stores have births, as groups of consistent bucket types need them.
    pub has_births: bool,
    /// The names that it is asked by.
    pub hosts: Arc<HostNames>,
    /// The guard of the doors.
    pub(crate) guard: Arc<DoorGuard>,
    /// The door.
    pub door: HttpDoor,
    /// Where it serves HTTP.
    pub http: Address,
    /// The wait of a stop for balancers.
    pub(crate) drain: Arc<Drain>,
    /// The levels of the log.
    pub log: Arc<dyn LogLevels>,
    /// The log of slow requests.
    pub slow: Arc<SlowRequests>,
    /// Links to other nodes; `None` for a node alone.
    pub peers: Option<Arc<Peers>>,
}

impl Wide {
    /// The facts about the node's health.
    pub(super) fn state(&self) -> NodeState {
        let certificates = self.peers.as_ref().map(|peers| peers.expiry()).unwrap_or_default();
        health::state(&self.membership, &self.drain, certificates)
    }

    /// Why a consistent bucket type is not activated, if the request wants that: its groups are founded first.
    pub(super) async fn refuses_activation(&self, request: &kv::Request, local: &Local) -> Option<Answered> {
        let n_val = local.activates_consistent(request)?;
        if !self.has_births {
            return Some(Answered::wrong(
                409,
                "consistent bucket types need a node whose only backend is annulet: this one has another, or \
                 type-backends",
            ));
        }
        let answered = self.membership.found(n_val).await;
        // The shard is to know of the founding before it takes the request.
        local.turn();
        (answered.status != 200).then_some(answered)
    }

    /// Answers a question about the whole node.
    pub(super) async fn answer(&self, question: Question, session: &mut Session, out: &mut Vec<u8>) {
        let answered = match &question {
            Question::Cluster(page, body) => Some(self.membership.ask(*page, body.clone()).await),
            Question::Backup(page, body) => Some(self.backups.ask(*page, body)),
            Question::Compact(page) => Some(self.compactions.ask(*page).await),
            Question::Trees(page, body) => Some(self.trees.ask(*page, body).await),
            Question::Strong(StrongPage::Show, _) => Some(self.groups.ask(&self.membership).await),
            Question::Strong(StrongPage::Copies, _) => Some(self.groups.copies(&self.membership).await),
            Question::Strong(StrongPage::Release, body) => {
                Some(self.groups.release(&self.membership, body.clone()).await)
            }
            Question::Log(body) => Some(levels::ask(&*self.log, body.as_deref())),
            Question::Slow(body) => Some(slow::ask(&self.slow, body.as_deref())),
            Question::Targets => {
                let members = self.membership.ask(ClusterPage::Show, Bytes::new()).await;
                Some(targets(&members, &self.http))
            }
            _ => None,
        };
        if let Some(answered) = answered {
            return tell(&answered, session, out);
        }
        let page = match question {
            Question::Stats => FigurePage::Stats,
            Question::Status => FigurePage::Status,
            Question::Metrics { accept } => FigurePage::Metrics(Format::accepted(&accept)),
            Question::Cluster(..)
            | Question::Backup(..)
            | Question::Compact(_)
            | Question::Trees(..)
            | Question::Strong(..)
            | Question::Targets
            | Question::Log(_)
            | Question::Slow(_)
            | Question::Purge(_)
            | Question::Security(_)
            | Question::Whoami
            | Question::Live
            | Question::Ready => unreachable!("answered above"),
        };
        match self.figures.text(page).await {
            Ok(text) => session.answer(200, page.content_type(), text.as_bytes(), out),
            Err(answered) => tell(&answered, session, out),
        }
    }
}
