//! Who can be reached, and how busy they are.
//!
//! This shard asks each peer now and then whether it is there. A peer is *up* while it has answered something lately:
//! an answer proves both ways between the two, which is what a request needs; that a third node reaches it would
//! not help. A peer is *down* when its link is, or when it has been silent for [`SILENCE_MAX`].
//!
//! Left out: who is a member ([`crate::topology`]), and what the others think.

use super::{Output, Shard};
use crate::members::Members;
use crate::peer::{AskId, Load, NodeId, PeerMessage};
use base::Monotonic;
use kv::{Ask, Error, Event};
use std::time::Duration;

/// How often a peer is asked.
const PING_EVERY: Duration = Duration::from_millis(250);

/// How long a peer may be silent: six unanswered questions, which happens by chance once in 57 times where three in ten
/// messages are lost in both directions.
pub const SILENCE_MAX: Duration = Duration::from_millis(1500);

/// How long a peer may be silent before what it last said of its load is believed no more: two questions.
const STALE_AFTER: Duration = Duration::from_millis(600);

/// The slowest link that is used: a peer that is sent a large value is given the time that the value takes on it, since
/// questions and answers wait behind it.
const LINK_BYTES_PER_SECOND_MIN: u64 = 10 << 20;

/// Values that are large in this sense: below it the time is nothing.
const LARGE_BYTES: usize = 1 << 20;

/// One peer, as this shard knows it.
#[derive(Clone, Debug)]
struct Peer {
    node: NodeId,
    up: bool,
    /// When it last answered.
    heard: Monotonic,
    /// Its process, once it has told.
    life: Option<u64>,
    load: Load,
    /// Whether it has been silent for longer than [`STALE_AFTER`]: paused, perhaps, and nobody's first choice.
    stale: bool,
}

impl Peer {
    fn unknown(node: NodeId) -> Peer {
        Peer { node, up: false, heard: Monotonic(0), life: None, load: Load(0), stale: false }
    }
}

/// All peers.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    here: NodeId,
    /// In the order of their numbers.
    peers: Vec<Peer>,
    pinged: Option<Monotonic>,
    /// When a peer that has not answered since the start counts as away.
    settled: Monotonic,
    /// This process.
    life: u64,
}

impl Peers {
    pub fn new(members: &Members, life: u64, now: Monotonic) -> Peers {
        let peers = members.others().map(Peer::unknown).collect();
        Peers { here: members.here(), peers, pinged: None, settled: now + SILENCE_MAX, life }
    }

    /// Other members than before. What is known of those that stay stays known; those that have left are told.
    pub fn change(&mut self, members: &Members) -> Vec<NodeId> {
        let mut before = std::mem::take(&mut self.peers);
        for node in members.others() {
            let known = before.iter().position(|peer| peer.node == node);
            self.peers.push(known.map_or_else(|| Peer::unknown(node), |at| before.swap_remove(at)));
        }
        before.into_iter().map(|peer| peer.node).collect()
    }

    /// Whether there is nobody else.
    pub fn is_alone(&self) -> bool {
        self.peers.is_empty()
    }

    /// This node.
    pub fn here(&self) -> NodeId {
        self.here
    }

    /// Whether a peer can be reached.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.of(node).is_some_and(|peer| peer.up)
    }

    /// Whether every peer can be reached.
    pub fn all_up(&self) -> bool {
        self.peers.iter().all(|peer| peer.up)
    }

    /// This process.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// A peer's process, as far as is known: one that is up has told.
    pub fn life_of(&self, node: NodeId) -> u64 {
        self.of(node).and_then(|peer| peer.life).unwrap_or_default()
    }

    /// How busy a peer has last said it is; as busy as can be if that is long ago.
    pub fn load(&self, node: NodeId) -> Load {
        self.of(node).map_or(Load(0), |peer| if peer.stale { Load(u32::MAX) } else { peer.load })
    }

    /// Peers that can be reached.
    pub fn up(&self) -> impl Iterator<Item = NodeId> {
        self.peers.iter().filter(|peer| peer.up).map(|peer| peer.node)
    }

    // While nobody has left, nodes are numbered without a gap, and this one is not among its peers.
    fn place_of(&self, node: NodeId) -> Option<usize> {
        let at = usize::from(node.0) - usize::from(node > self.here);
        match self.peers.get(at) {
            Some(peer) if peer.node == node => Some(at),
            _ => self.peers.binary_search_by_key(&node, |peer| peer.node).ok(),
        }
    }

    fn of(&self, node: NodeId) -> Option<&Peer> {
        self.place_of(node).map(|at| &self.peers[at])
    }

    fn of_mut(&mut self, node: NodeId) -> Option<&mut Peer> {
        self.place_of(node).map(|at| &mut self.peers[at])
    }
}

/// What a sign of life changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    /// It can be reached again.
    Up,
    /// It can be reached, but was started again, and has forgotten what it was asked.
    Restarted,
}

impl Shard {
    /// Asks who is there, and counts those as down who have been silent.
    pub(super) fn tick_peers(&mut self, now: Monotonic) {
        if self.peers.is_alone() {
            return;
        }
        if self.peers.pinged.is_none_or(|at| now.since(at) >= PING_EVERY) {
            self.peers.pinged = Some(now);
            self.config.members.others().for_each(|node| self.ping(node));
        }
        self.peers.peers.iter_mut().for_each(|peer| peer.stale = now.since(peer.heard) >= STALE_AFTER);
        let silent = |peer: &&Peer| peer.up && now.since(peer.heard) >= SILENCE_MAX;
        let silent: Vec<NodeId> = self.peers.peers.iter().filter(silent).map(|peer| peer.node).collect();
        silent.into_iter().for_each(|node| self.on_down(node));
    }

    fn ping(&mut self, to: NodeId) {
        let (id, life, load) = (self.ask_id(0), self.peers.life, self.load());
        self.send(to, PeerMessage::Ping { id, life, load });
    }

    /// Whether it is known who is there: everybody has answered, or has been asked for long enough. Before that a client
    /// would be answered as if nobody else were.
    pub fn knows_peers(&self) -> bool {
        self.peers.all_up() || self.config.clock.now() >= self.peers.settled
    }

    /// A link to another node is there, or is no more. Without links, as in simulation, silence tells.
    pub fn link(&mut self, node: NodeId, is_up: bool) {
        match is_up {
            true => self.ping(node),
            false => self.on_down(node),
        }
    }

    pub(super) fn on_ping(&mut self, from: NodeId, id: AskId) {
        let (life, load) = (self.peers.life, self.load());
        self.send(from, PeerMessage::Pong { id, life, load });
    }

    /// A peer has answered something.
    pub(super) fn on_sign_of_life(&mut self, node: NodeId, life: Option<u64>, load: Option<Load>) {
        let now = self.config.clock.now();
        let Some(peer) = self.peers.of_mut(node) else { return };
        if life.is_none() && peer.life.is_none() {
            // What is sent to it must say to which process. It will answer a ping soon.
            return;
        }
        peer.heard = peer.heard.max(now);
        peer.stale = false;
        peer.load = load.unwrap_or(peer.load);
        let restarted = life.is_some() && peer.life.is_some() && life != peer.life;
        peer.life = life.or(peer.life);
        let change = match std::mem::replace(&mut peer.up, true) {
            false => Change::Up,
            true if restarted => Change::Restarted,
            true => Change::None,
        };
        if change == Change::Restarted {
            self.fail_questions(node);
        }
        if change != Change::None {
            self.on_up(node);
        }
    }

    fn on_up(&mut self, node: NodeId) {
        self.bring_hints(node);
        self.bring_props(node);
    }

    fn on_down(&mut self, node: NodeId) {
        let was_up = self.peers.of_mut(node).is_some_and(|peer| std::mem::take(&mut peer.up));
        if was_up {
            self.fail_questions(node);
        }
    }

    /// Tells everybody who has asked the node something that there will be no answer.
    pub(super) fn fail_questions(&mut self, node: NodeId) {
        for id in self.objects.names(|work| work.asks) {
            self.resume(id, Event::Answer { from: node, result: Err(Error::Unreachable) });
        }
        self.fail_forwards(node);
        self.fail_props(node);
        self.fail_pages(node);
    }

    /// How busy this shard is: work without an answer.
    pub(super) fn load(&self) -> Load {
        Load(u32::try_from(self.work() - self.objects.answered()).unwrap_or(u32::MAX))
    }

    /// The number of a question about the work of this name; 0 for none.
    pub(super) fn ask_id(&self, work: u64) -> AskId {
        AskId(work << 8 | u64::from(self.config.id.0 & 0xFF))
    }

    /// Bytes of a message from this node are arriving: it is there, however long the message takes.
    pub fn progress(&mut self, node: NodeId) {
        let now = self.config.clock.now();
        if let Some(peer) = self.peers.of_mut(node).filter(|peer| peer.up) {
            peer.heard = peer.heard.max(now);
        }
    }

    /// Sends a message.
    pub(super) fn send(&mut self, to: NodeId, message: PeerMessage) {
        if let PeerMessage::Ask { ask: Ask::Merge { value, .. }, .. } = &message
            && value.len() >= LARGE_BYTES
            && let Some(peer) = self.peers.of_mut(to)
        {
            let nanos = value.len() as u64 * 1_000_000_000 / LINK_BYTES_PER_SECOND_MIN;
            peer.heard = peer.heard + Duration::from_nanos(nanos);
        }
        debug_assert!(to != self.peers.here(), "a node does not write to itself");
        self.outputs.push(Output::Peer { to, message });
    }
}
