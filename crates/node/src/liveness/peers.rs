//! Other nodes as a shard knows them: which can be reached, how busy they are, and which of them to ask next.
//!
//! Invariant: silence counts from a question, so a peer that is asked seldom does not count as silent the sooner.

use crate::members::Members;
use crate::peer::{Load, NodeId, PeerMessage};
use base::{Clock, Monotonic};
use kv::Ask;
use kv::aae::{TreeAnswer, TreeAsk};
use kv::props::{PropsSums, Resets};
use std::time::Duration;

/// How often a peer is asked.
const PING_EVERY: Duration = Duration::from_millis(250);

/// How long questions may stay unanswered: six of them, which happens by chance once in 57 times where three in ten
/// messages are lost in both directions.
pub const SILENCE_MAX: Duration = Duration::from_millis(1500);

/// How long a question may stay unanswered before the last load of the peer is believed no more: two
/// questions.
const STALE_AFTER: Duration = Duration::from_millis(500);

/// Without anything but questions to a peer for so long, it is asked less often: longer than requests, hints and copies
/// pause.
const QUIET_AFTER: Duration = Duration::from_secs(5);

/// How often some of those are asked that this shard has nothing to do with: as many as it takes to have asked all of
/// them within [`TURN`], which is well within the silence that a connection may have ([`kv::reap::SILENCE_MAX`]). So
/// connections stay, and tell when the other process ends. With more than [`STAYING_MAX`] others that would cost the
/// more the larger the cluster is: connections rest, and a peer that is down is found out by the shards that use it,
/// and by the failure detector, which has shards ask ([`crate::Shard::doubt`]). A ping in turn then finds a way that is
/// cut between two nodes only, and costs a handshake each: one at a time.
const QUIET_EVERY: Duration = Duration::from_secs(1);
const TURN: usize = 5;
const STAYING_MAX: usize = 32;
const _: () = assert!(TURN as u64 * QUIET_EVERY.as_secs() + 2 <= 7, "links rest after 7 s");

/// Of those that are down so many are asked at a time.
const DOWN_IN_TURN: usize = 8;

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
    /// When it was first asked since it last answered.
    asked: Option<Monotonic>,
    /// Until then it may be busy with what it was sent.
    excused: Monotonic,
    /// Whether something was sent to it since the last tick, and the last tick that found it so.
    is_used: bool,
    used: Monotonic,
    /// Its process, once it has told.
    life: Option<u64>,
    load: Load,
    /// Whether it has left a question unanswered for longer than [`STALE_AFTER`]: paused, perhaps, and nobody's first
    /// choice.
    stale: bool,
    /// Whether its program asks for the properties that it lacks. An older one has to be told all.
    compares_props: bool,
    /// By which sums it is compared.
    compared_by: Resets,
}

impl Peer {
    fn unknown(node: NodeId) -> Peer {
        let zero = Monotonic(0);
        let (life, load) = (None, Load(0));
        Peer {
            node,
            up: false,
            asked: None,
            excused: zero,
            is_used: false,
            used: zero,
            life,
            load,
            stale: false,
            compares_props: false,
            compared_by: Resets::Counted,
        }
    }

    /// Takes note of how busy it says it is. A process that stops does not go on.
    fn note_load(&mut self, load: Load, is_another: bool) {
        if self.load != Load::STOPPING || is_another {
            self.load = load;
        }
    }

    /// Whether something new may be asked of it.
    fn serves(&self) -> bool {
        self.up && self.load != Load::STOPPING
    }

    /// For how long it has not answered.
    fn silent(&self, now: Monotonic) -> Duration {
        self.asked.map_or(Duration::ZERO, |asked| now.since(asked.max(self.excused)))
    }

    fn is_quiet(&self, now: Monotonic) -> bool {
        self.asked.is_none() && now.since(self.used) >= QUIET_AFTER
    }
}

/// All peers.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    here: NodeId,
    /// In the order of their numbers.
    peers: Vec<Peer>,
    /// When some were asked last, and when some of those that this shard has nothing to do with.
    pinged: Option<Monotonic>,
    quiet_pinged: Monotonic,
    /// Behind the last ones that were asked in turn: of those that are down, and of those that are quiet.
    turns: [usize; 2],
    /// Whether this shard has done anything since the last tick, and the last tick that found it so.
    is_used: bool,
    used: Monotonic,
    is_quiet: bool,
    /// When a peer that has not answered since the start counts as away.
    settled: Monotonic,
    /// This process.
    life: u64,
}

impl Peers {
    pub fn new(members: &Members, life: u64, now: Monotonic) -> Peers {
        let peers = members.others().map(Peer::unknown).collect();
        Peers {
            here: members.here(),
            peers,
            pinged: None,
            quiet_pinged: now,
            turns: [0; 2],
            is_used: true,
            used: now,
            is_quiet: false,
            settled: now + SILENCE_MAX,
            life,
        }
    }

    /// Other members than before. What is known of those that stay stays known; those that have left are told.
    pub fn change(&mut self, members: &Members) -> Vec<NodeId> {
        let mut before = std::mem::take(&mut self.peers).into_iter().peekable();
        let mut left = Vec::new();
        for node in members.others() {
            while let Some(peer) = before.next_if(|peer| peer.node < node) {
                left.push(peer.node);
            }
            let known = before.next_if(|peer| peer.node == node);
            self.peers.push(known.unwrap_or_else(|| Peer::unknown(node)));
        }
        left.extend(before.map(|peer| peer.node));
        left
    }

    /// Takes note of what was used since the last tick, and of who does not answer.
    pub fn look(&mut self, now: Monotonic) {
        for peer in &mut self.peers {
            if std::mem::take(&mut peer.is_used) {
                peer.used = now;
            }
            peer.stale = peer.silent(now) >= STALE_AFTER;
            // Whoever is silent is to be asked often enough to be judged by it.
            self.is_used |= peer.up && peer.asked.is_some();
        }
        if std::mem::take(&mut self.is_used) {
            self.used = now;
        }
        self.is_quiet = now.since(self.used) >= QUIET_AFTER;
    }

    /// Whom to ask now.
    pub fn due(&mut self, now: Monotonic) -> Vec<NodeId> {
        if self.pinged.is_some_and(|at| now.since(at) < PING_EVERY) {
            return Vec::new();
        }
        self.pinged = Some(now);
        let in_use = self.peers.iter().filter(|peer| peer.up && !peer.is_quiet(now));
        let mut due: Vec<NodeId> = in_use.map(|peer| peer.node).collect();
        self.in_turn(0, DOWN_IN_TURN, |peer| !peer.up, &mut due);
        if now.since(self.quiet_pinged) >= QUIET_EVERY {
            self.quiet_pinged = now;
            let stay = self.peers.len() <= STAYING_MAX;
            let count = if stay { self.peers.len().div_ceil(TURN) } else { 1 };
            self.in_turn(1, count, |peer| peer.up && peer.is_quiet(now), &mut due);
        }
        due
    }

    /// The next so many of those that are `meant`.
    fn in_turn(&mut self, turn: usize, count: usize, meant: impl Fn(&Peer) -> bool, due: &mut Vec<NodeId>) {
        let from = self.turns[turn].min(self.peers.len());
        let (before, behind) = self.peers.split_at(from);
        let places = behind.iter().chain(before).enumerate();
        for (at, peer) in places.filter(|(_, peer)| meant(peer)).take(count) {
            due.push(peer.node);
            self.turns[turn] = (from + at + 1) % self.peers.len();
        }
    }

    /// Whether there is nobody else.
    pub fn is_alone(&self) -> bool {
        self.peers.is_empty()
    }

    /// This node.
    pub fn here(&self) -> NodeId {
        self.here
    }

    /// Whether a peer can be reached, and is not about to stop.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.of(node).is_some_and(Peer::serves)
    }

    /// Whether every peer is up.
    pub fn all_up(&self) -> bool {
        self.peers.iter().all(Peer::serves)
    }

    /// Whether any peer can be reached.
    pub fn any_up(&self) -> bool {
        self.peers.iter().any(|peer| peer.up)
    }

    /// This process.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// By which sums a peer's properties are compared with those of this node.
    pub fn compared_by(&self, node: NodeId) -> Resets {
        self.of(node).map_or(Resets::Counted, |peer| peer.compared_by)
    }

    /// A peer's process, as far as is known: one that is up has told.
    pub fn life_of(&self, node: NodeId) -> u64 {
        self.of(node).and_then(|peer| peer.life).unwrap_or_default()
    }

    /// How busy a peer has last said it is; as busy as can be if that is long ago.
    pub fn load(&self, node: NodeId) -> Load {
        self.of(node).map_or(Load(0), |peer| if peer.stale { Load(u32::MAX) } else { peer.load })
    }

    /// All peers.
    pub fn all(&self) -> impl Iterator<Item = NodeId> {
        self.peers.iter().map(|peer| peer.node)
    }

    /// Peers that are up.
    pub fn up(&self) -> impl Iterator<Item = NodeId> {
        self.peers.iter().filter(|peer| peer.serves()).map(|peer| peer.node)
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

    /// Peers that were up, and have been silent for too long.
    pub fn silent(&self, now: Monotonic) -> Vec<NodeId> {
        let silent = self.peers.iter().filter(|peer| peer.up && peer.silent(now) >= SILENCE_MAX);
        silent.map(|peer| peer.node).collect()
    }

    /// Peers that can be reached, those too that stop.
    pub fn reached(&self) -> Vec<NodeId> {
        self.peers.iter().filter(|peer| peer.up).map(|peer| peer.node).collect()
    }

    /// Takes note that a peer is asked.
    pub fn note_asked(&mut self, node: NodeId, now: Monotonic) {
        if let Some(peer) = self.of_mut(node) {
            peer.asked.get_or_insert(now);
        }
    }

    /// Whether a peer is up and has answered all that it was asked.
    pub fn is_unasked(&self, node: NodeId) -> bool {
        self.of(node).is_some_and(|peer| peer.up && peer.asked.is_none())
    }

    /// The process of a peer that is up.
    pub fn life_if_up(&self, node: NodeId) -> Option<u64> {
        self.of(node).filter(|peer| peer.up).and_then(|peer| peer.life)
    }

    /// Takes note of a ping of the known process of a peer.
    pub fn note_ping(&mut self, node: NodeId, load: Load, sums: Option<PropsSums>) {
        if let Some(peer) = self.of_mut(node) {
            peer.note_load(load, false);
            peer.compared_by = sums.map_or(peer.compared_by, PropsSums::compared_by);
        }
    }

    /// Takes note of the sums that a peer's answer to a ping tells.
    pub fn note_pong(&mut self, node: NodeId, sums: Option<PropsSums>) {
        if let Some(peer) = self.of_mut(node) {
            peer.compares_props = sums.is_some();
            peer.compared_by = sums.map_or(Resets::Counted, PropsSums::compared_by);
        }
    }

    /// Whether a peer's program asks for the properties that it lacks.
    pub fn compares_props(&self, node: NodeId) -> bool {
        self.of(node).is_some_and(|peer| peer.compares_props)
    }

    /// A peer has answered, maybe with its process and its load.
    pub fn note_alive(&mut self, node: NodeId, life: Option<u64>, load: Option<Load>) -> SignOfLife {
        let Some(peer) = self.of_mut(node) else { return SignOfLife::Known };
        if life.is_none() && peer.life.is_none() {
            // A message to it must say to which process. It will answer a ping soon.
            return SignOfLife::Known;
        }
        (peer.asked, peer.stale) = (None, false);
        let restarted = life.is_some() && peer.life.is_some() && life != peer.life;

        // An answer does not say of which process it is: it may come late, and the next process of a node that has
        // stopped would never be chosen. A node that stops pings all that can be reached, too.
        let load = load.filter(|load| life.is_some() || *load != Load::STOPPING);
        peer.note_load(load.unwrap_or(peer.load), restarted);
        peer.life = life.or(peer.life);

        match std::mem::replace(&mut peer.up, true) {
            false => SignOfLife::Up,
            true if restarted => SignOfLife::Restarted,
            true => SignOfLife::Known,
        }
    }

    /// A peer is down. False if it was before.
    pub fn set_down(&mut self, node: NodeId) -> bool {
        self.of_mut(node).is_some_and(|peer| std::mem::take(&mut peer.up))
    }

    /// Bytes of a message of a peer are arriving: it is there, however long the message takes.
    pub fn note_progress(&mut self, node: NodeId, now: Monotonic) {
        if let Some(peer) = self.of_mut(node).filter(|peer| peer.up) {
            peer.excused = peer.excused.max(now);
        }
    }

    /// Whether the shard has done nothing for so long that it may be ticked less often, until it does.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.is_quiet && !self.is_used
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self) {
        assert!(self.peers.is_sorted_by_key(|peer| peer.node), "peers are found by their numbers");
        assert!(self.pinged.is_none_or(|at| self.quiet_pinged <= at), "quiet peers are asked with others");
        for peer in &self.peers {
            assert!(peer.node != self.here, "a node is no peer of itself");
            assert!(!peer.up || peer.life.is_some(), "a peer that is up has told its process");
            assert!(!peer.stale || peer.asked.is_some() || !peer.up, "a stale peer owes an answer");
        }
    }

    /// Whether a peer that has not answered since the start counts as away.
    pub fn are_settled(&self, now: Monotonic) -> bool {
        now >= self.settled
    }

    /// Takes note that the shard does something.
    #[inline]
    pub fn note_used(&mut self) {
        self.is_used = true;
    }

    /// Takes note that a peer is needed, though it is sent nothing: it is asked often.
    pub fn note_needed(&mut self, node: NodeId) {
        self.note_used();
        if let Some(peer) = self.of_mut(node) {
            peer.is_used = true;
        }
    }

    /// Takes note of a message to a peer: that it is in use, and how long the message may take.
    pub fn note_sent(&mut self, to: NodeId, message: &PeerMessage, clock: &dyn Clock) {
        if is_small_talk(message) {
            return;
        }
        let large = match message {
            PeerMessage::Ask { ask: Ask::Merge { value, .. }, .. } => Some(value.len()),
            _ => None,
        };
        let excused = large.filter(|&len| len >= LARGE_BYTES).map(|len| {
            let nanos = len as u64 * 1_000_000_000 / LINK_BYTES_PER_SECOND_MIN;
            (clock.now(), Duration::from_nanos(nanos))
        });
        self.note_used();
        let Some(peer) = self.of_mut(to) else { return };
        peer.is_used = true;
        if let Some((now, time)) = excused {
            peer.excused = peer.excused.max(now) + time;
        }
    }
}

/// What an answer of a peer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignOfLife {
    /// Nothing new.
    Known,
    /// It can be reached again.
    Up,
    /// It can be reached, but was started again, and has forgotten its questions.
    Restarted,
}

/// Whether a message is of those that nodes exchange with nothing to do, and that nobody waits for: no reason to ask
/// the peer more often. Roots that are the same are all that a round of comparing is, while nothing differs.
fn is_small_talk(message: &PeerMessage) -> bool {
    match message {
        PeerMessage::Ping { .. } | PeerMessage::Pong { .. } => true,
        PeerMessage::AskTree { ask, .. } => matches!(ask, TreeAsk::Roots { .. }),
        PeerMessage::Tree { answer, .. } => matches!(answer, Ok(TreeAnswer::Roots { .. })),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn at(millis: u64) -> Monotonic {
        Monotonic(0) + Duration::from_millis(millis)
    }

    /// Everybody can be reached, and nobody is of use, for an hour already.
    fn quiet(count: usize) -> (Peers, u64) {
        let names: Vec<String> = (0..=count).map(|node| format!("n{node}")).collect();
        let members = Members::new(names.iter().map(String::as_str), "n0").unwrap();
        let mut peers = Peers::new(&members, 1, at(0));
        peers.peers.iter_mut().for_each(|peer| peer.up = true);
        peers.is_used = false;
        (peers, 3_600_000)
    }

    /// Ticks through so many milliseconds; how often each was asked. Who is `mute` does not answer.
    fn asked(peers: &mut Peers, from: u64, millis: u64, mute: Option<NodeId>) -> Vec<usize> {
        let mut counts = vec![0; peers.peers.len()];
        for now in (from..from + millis).step_by(50) {
            peers.look(at(now));
            for node in peers.due(at(now)) {
                let place = peers.place_of(node).unwrap();
                counts[place] += 1;
                peers.peers[place].asked = match mute {
                    Some(mute) if mute == node => peers.peers[place].asked.or(Some(at(now))),
                    _ => None,
                };
            }
        }
        counts
    }

    #[test]
    fn those_who_are_of_no_use_are_asked_seldom_and_in_turn() {
        let (mut peers, now) = quiet(4);
        assert_eq!(asked(&mut peers, now, 12_000, None), [3; 4]);
        assert!(peers.is_quiet);
        let (mut peers, now) = quiet(STAYING_MAX);
        let asked = asked(&mut peers, now, 1000 * TURN as u64, None);
        assert!(asked.iter().all(|times| (1..=2).contains(times)), "{asked:?}");
    }

    #[test]
    fn what_a_quiet_node_asks_does_not_grow_with_its_cluster() {
        for count in [STAYING_MAX + 1, 100, 999] {
            let (mut peers, now) = quiet(count);
            let asked = asked(&mut peers, now, 20_000, None);
            assert_eq!(asked.iter().sum::<usize>(), 20, "{count}");
            assert!(asked.iter().all(|times| *times <= 1));
        }
    }

    #[test]
    fn who_is_of_use_is_asked_often_while_it_is() {
        let (mut peers, now) = quiet(3);
        peers.peers[1].is_used = true;
        peers.is_used = true;
        assert_eq!(asked(&mut peers, now, 5_000, None), [3, 20, 2]);
        let later = asked(&mut peers, now + 5_000, 3_000, None);
        assert_eq!(later.iter().sum::<usize>(), 3, "it is not any more: {later:?}");
    }

    #[test]
    fn who_does_not_answer_is_asked_often_and_then_silent() {
        let (mut peers, now) = quiet(3);
        let mute = peers.peers[1].node;
        peers.peers[1].asked = Some(at(now));
        assert_eq!(asked(&mut peers, now, 1_500, Some(mute))[1], 6);
        let peer = &peers.peers[1];
        assert!(peer.stale && !peers.is_quiet && peers.peers.iter().filter(|peer| peer.stale).count() == 1);
        assert!(peer.silent(at(now + 1_450)) < SILENCE_MAX && peer.silent(at(now + 1_500)) >= SILENCE_MAX);
    }

    #[test]
    fn those_who_are_down_are_asked_in_turn() {
        let (mut peers, now) = quiet(2 * DOWN_IN_TURN);
        peers.peers.iter_mut().for_each(|peer| peer.up = false);
        assert_eq!(asked(&mut peers, now, 1_000, None), vec![2; 2 * DOWN_IN_TURN]);
    }
}
