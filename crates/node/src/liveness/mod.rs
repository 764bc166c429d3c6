//! Liveness: which other nodes can be reached, and how busy they are.
//!
//! This shard pings peers. A peer is *up* while it answers: an answer proves both ways between the two, as a request
//! needs them; a third node's way to it would not help. A peer is *down* when its link is, or when it has left
//! questions unanswered for 1.5 s.
//!
//! 1. A peer that this shard has had to do with lately, or that has not answered, is pinged every 250 ms.
//! 2. The others are pinged in turn, a few every second: an idle node costs its wake-ups, and each ping is two. Peers
//!    that are down are pinged in turn as well, a few every 250 ms.
//! 3. A peer that is said to be down ([`Shard::doubt`]), or that speaks as another process than before, is pinged at
//!    once.
//! 4. A peer that says that it stops ([`Load::STOPPING`]), in a message that names its process, is not chosen any more,
//!    and answers earlier questions: it *can be reached* until its link is down, and counts for no quorum.
//!
//! Invariant: silence counts from a question, so a peer that is asked seldom does not count as silent the sooner.
//!
//! Left out: membership ([`crate::topology`]), and the view of other nodes.

pub(crate) mod peers;

use crate::peer::{AskId, Load, NodeId, PeerMessage};
use crate::shard::Shard;
use crate::shard::effect::Effect;
use base::Monotonic;
use kv::props::{PropsSums, Resets};
use peers::{Peer, SILENCE_MAX};

/// The change that a sign of life shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    /// It can be reached again.
    Up,
    /// It can be reached, but was started again, and has forgotten its questions.
    Restarted,
}

impl Shard {
    /// Pings peers that are due, and counts those as down that have been silent.
    pub(super) fn tick_peers(&mut self, now: Monotonic) {
        self.env.peers.look(now);
        self.env.peers.due(now).into_iter().for_each(|node| self.ping(node));
        let silent = |peer: &&Peer| peer.up && peer.silent(now) >= SILENCE_MAX;
        let silent = self.env.peers.peers.iter().filter(silent);
        let silent: Vec<NodeId> = silent.map(|peer| peer.node).collect();
        silent.into_iter().for_each(|node| self.on_down(node));
    }

    fn ping(&mut self, to: NodeId) {
        let (id, life, load, props) =
            (self.env.ping_id(), self.env.peers.life, self.env.gauges.reported_load(), self.known_props());
        let now = self.env.now();
        if let Some(peer) = self.env.peers.of_mut(to) {
            peer.asked.get_or_insert(now);
        }
        self.env.send(to, PeerMessage::Ping { id, life, load, props });
    }

    /// Pings all peers that can be reached, which so hear of this shard's load.
    pub(super) fn ping_all(&mut self) {
        let reached = self.env.peers.peers.iter().filter(|peer| peer.up);
        let reached: Vec<NodeId> = reached.map(|peer| peer.node).collect();
        reached.into_iter().for_each(|node| self.ping(node));
    }

    /// Another source says that a peer is not there, or not the one it was. Only its answers to this shard count: it is
    /// pinged, and often until it answers or is silent.
    pub fn doubt(&mut self, node: NodeId) {
        if self.env.peers.of(node).is_some_and(|peer| peer.up && peer.asked.is_none()) {
            self.ping(node);
        }
    }

    /// Whether it has done nothing for so long that it may be ticked less often, until it does.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.env.peers.is_quiet && !self.env.peers.is_used
    }

    /// Whether it is known which peers are there: all have answered, or have been asked for long enough. Before that a
    /// client would be answered as if nobody else were.
    pub fn knows_peers(&self) -> bool {
        self.env.knows_peers()
    }

    /// A link to another node is there, or is no more. Without links, as in simulation, silence tells.
    pub fn link(&mut self, node: NodeId, is_up: bool) {
        match is_up {
            true => self.ping(node),
            false => self.on_down(node),
        }
        self.drain();
    }

    pub(super) fn on_ping(
        &mut self,
        from: NodeId,
        id: AskId,
        of_life: u64,
        their_load: Load,
        theirs: Option<PropsSums>,
    ) {
        let (life, load, props) = (self.env.peers.life, self.env.gauges.reported_load(), self.known_props());
        self.env.send(from, PeerMessage::Pong { id, life, load, props });
        let known = self.env.peers.of(from).filter(|peer| peer.up).and_then(|peer| peer.life);
        if known == Some(of_life) {
            if let Some(peer) = self.env.peers.of_mut(from) {
                peer.note_load(their_load, false);
                peer.compared_by = theirs.map_or(peer.compared_by, PropsSums::compared_by);
            }
            self.env.raise(Effect::PropsKnown { node: from, sums: theirs });
        } else if known.is_some() {
            // It was started again, unless this is late.
            self.doubt(from);
        }
    }

    pub(super) fn on_pong(
        &mut self,
        from: NodeId,
        id: AskId,
        life: u64,
        load: Load,
        theirs: Option<PropsSums>,
    ) {
        if let Some(peer) = self.env.peers.of_mut(from) {
            peer.compares_props = theirs.is_some();
            peer.compared_by = theirs.map_or(Resets::Counted, PropsSums::compared_by);
        }
        self.frontdoor.stop.has_heard(&self.env, from, id);
        self.on_sign_of_life(from, Some(life), Some(load));
        self.env.raise(Effect::PropsKnown { node: from, sums: theirs });
    }

    /// A peer has answered something.
    pub(super) fn on_sign_of_life(&mut self, node: NodeId, life: Option<u64>, load: Option<Load>) {
        let Some(peer) = self.env.peers.of_mut(node) else { return };
        if life.is_none() && peer.life.is_none() {
            // A message to it must say to which process. It will answer a ping soon.
            return;
        }
        peer.asked = None;
        peer.stale = false;
        let restarted = life.is_some() && peer.life.is_some() && life != peer.life;
        // An answer does not say of which process it is: it may come late, and the process that has taken the place of
        // the one that stopped would never be chosen. A node that stops pings all that can be reached, too.
        let load = load.filter(|load| life.is_some() || *load != Load::STOPPING);
        peer.note_load(load.unwrap_or(peer.load), restarted);
        peer.life = life.or(peer.life);
        let change = match std::mem::replace(&mut peer.up, true) {
            false => Change::Up,
            true if restarted => Change::Restarted,
            true => Change::None,
        };
        if change == Change::Restarted {
            self.env.raise(Effect::QuestionsLost(node));
        }
        if change != Change::None {
            let compares_props = self.env.peers.of(node).is_some_and(|peer| peer.compares_props);
            self.env.raise(Effect::PeerUp { node, compares_props });
        }
    }

    fn on_down(&mut self, node: NodeId) {
        let was_up = self.env.peers.of_mut(node).is_some_and(|peer| std::mem::take(&mut peer.up));
        if was_up {
            self.env.raise(Effect::PeerDown(node));
            self.env.raise(Effect::QuestionsLost(node));
        }
    }

    /// Bytes of a message from this node are arriving: it is there, however long the message takes.
    pub fn progress(&mut self, node: NodeId) {
        let now = self.env.now();
        if let Some(peer) = self.env.peers.of_mut(node).filter(|peer| peer.up) {
            peer.excused = peer.excused.max(now);
        }
    }
}
