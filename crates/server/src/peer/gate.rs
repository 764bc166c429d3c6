//! The start of a member, until it may serve clients: the other members are asked first whether its data folder is a
//! copy's.
//!
//! 1. The members are asked in the order of their numbers until one answers ([`ask_first`]), so that of two processes
//!    that start at the same moment one is let in by that member, and the other turned away, before either has asked
//!    anybody else.
//! 2. Then all links are opened. The gate opens when each member has answered, or cannot be reached.
//! 3. While a member says that this is a copy, the gate stays closed; `membership/copy.rs` ends the process.
//!
//! Invariant: a gate that is open stays so.

use super::Peers;
use super::channel::Channel;
use super::dial::{Failure, dial};
use ring::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// How long members are waited for that do not even accept a connection: the time after which shards count them as
/// down.
const REACH_MAX: Duration = Duration::from_millis(1500);

/// How long members are waited for that have accepted one: for what a handshake takes on a busy machine, and `GRACE` of
/// `presence.rs`. One that has stood still for so long says nothing.
const ANSWER_MAX: Duration = Duration::from_millis(2500);

/// How long the first member that answers is looked for, and how long each may take to accept a connection.
const FIRST_MAX: Duration = REACH_MAX;
const EACH_MAX: Duration = Duration::from_millis(300);

/// How soon a member is asked again that says that this is a copy.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// How often it is looked whether the gate has opened, and for how long at most.
const POLL: Duration = Duration::from_millis(20);
const HOLD_MAX: Duration = Duration::from_secs(10);

/// How far a member is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// It has not accepted a connection.
    Dialled,
    /// It has.
    Connected,
}

#[derive(Debug)]
struct State {
    /// When links could be opened.
    began: Option<Instant>,
    is_open: bool,
    /// Members that have neither answered nor failed to.
    undecided: BTreeMap<NodeId, Asked>,
    /// Members that say that this is a copy.
    refusing: BTreeSet<NodeId>,
}

impl State {
    fn look(&mut self, now: Instant) -> bool {
        let Some(began) = self.began else { return false };
        let waited = now.duration_since(began);
        let none_connected = !self.undecided.values().any(|asked| *asked == Asked::Connected);
        let is_asked =
            self.undecided.is_empty() || waited >= REACH_MAX && none_connected || waited >= ANSWER_MAX;
        self.is_open |= self.refusing.is_empty() && is_asked;
        self.is_open
    }
}

/// Whether clients may be served.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    /// Whether links may be opened.
    first_asked: watch::Sender<bool>,
}

impl Gate {
    /// Of a node that has these members to ask.
    pub(super) fn new(others: impl Iterator<Item = NodeId>) -> Gate {
        let undecided = others.map(|node| (node, Asked::Dialled)).collect();
        let state =
            State { began: Some(Instant::now()), is_open: false, undecided, refusing: BTreeSet::new() };
        Gate { state: Mutex::new(state), first_asked: watch::Sender::new(true) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether clients may be served.
    pub(super) fn is_open(&self) -> bool {
        self.state().look(Instant::now())
    }

    /// A member has accepted a connection.
    pub(super) fn connected(&self, node: NodeId) {
        if let Some(asked) = self.state().undecided.get_mut(&node) {
            *asked = Asked::Connected;
        }
    }

    /// A member has let this process in, or cannot be asked.
    pub(super) fn decided(&self, node: NodeId) {
        let mut state = self.state();
        state.undecided.remove(&node);
        state.refusing.remove(&node);
    }

    /// A member says that this is a copy.
    pub(super) fn refused(&self, node: NodeId) {
        self.state().refusing.insert(node);
    }

    /// Keeps links from being opened until the first member is asked.
    pub(super) fn hold_links(&self) {
        self.first_asked.send_replace(false);
        self.state().began = None;
    }

    /// Lets links be opened.
    fn release_links(&self) {
        self.state().began = Some(Instant::now());
        self.first_asked.send_replace(true);
    }

    /// Waits until links may be opened.
    pub(super) async fn first_asked(&self) {
        // The sender is this.
        self.first_asked.subscribe().wait_for(|is_asked| *is_asked).await.ok();
    }
}

/// Asks members in their order until one answers, then lets links be opened. Its connection is kept until they are.
/// While a member says that this is a copy, nobody else is asked.
pub(crate) async fn ask_first(peers: Arc<Peers>) {
    let channel = loop {
        match timeout(FIRST_MAX, first_answer(&peers)).await.unwrap_or(First::Nobody) {
            First::Welcome(channel) => break Some(channel),
            First::Nobody => break None,
            First::Copy => tokio::time::sleep(AGAIN_AFTER).await,
        }
    };
    peers.gate.release_links();
    let until = Instant::now() + HOLD_MAX;
    while channel.is_some() && !peers.gate.is_open() && Instant::now() < until {
        tokio::time::sleep(POLL).await;
    }
}

/// What became of the first question.
enum First {
    /// A member has let this process in.
    Welcome(Box<Channel>),
    /// A member says that this is a copy.
    Copy,
    /// No member answers.
    Nobody,
}

async fn first_answer(peers: &Peers) -> First {
    let roster = peers.roster();
    for node in roster.members().others() {
        match dial(node, roster.members().name(node), peers, EACH_MAX).await {
            Ok((channel, _)) => return First::Welcome(Box::new(channel)),
            Err(Failure { is_copy: true, .. }) => return First::Copy,
            Err(_) => {}
        }
    }
    First::Nobody
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(nodes: &[u16]) -> (State, Instant) {
        let began = Instant::now();
        let undecided = nodes.iter().map(|&node| (NodeId(node), Asked::Dialled)).collect();
        (State { began: Some(began), is_open: false, undecided, refusing: BTreeSet::new() }, began)
    }

    #[test]
    fn a_gate_opens_when_all_have_answered_or_cannot_be_reached() {
        let (mut all, began) = state(&[1, 2]);
        assert!(!all.look(began));
        all.undecided.clear();
        assert!(all.look(began));
        let (mut unreached, began) = state(&[1, 2]);
        unreached.undecided.remove(&NodeId(1));
        assert!(!unreached.look(began) && unreached.look(began + REACH_MAX));
        let (mut slow, began) = state(&[1]);
        slow.undecided.insert(NodeId(1), Asked::Connected);
        assert!(!slow.look(began + REACH_MAX), "it may say that this is a copy");
        assert!(slow.look(began + ANSWER_MAX));
    }

    #[test]
    fn a_gate_stays_closed_for_a_copy() {
        let (mut state, began) = state(&[]);
        state.refusing.insert(NodeId(1));
        assert!(!state.look(began + 10 * ANSWER_MAX));
        state.refusing.clear();
        assert!(state.look(began));
        state.refusing.insert(NodeId(1));
        assert!(state.look(began), "an open gate stays open");
    }
}
