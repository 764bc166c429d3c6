//! A network that loses, doubles, delays and reorders messages, and whose links can be cut one way.
//!
//! A link is one direction between two nodes. As long as no fault fires it keeps the order of its messages,
//! like a connection; each fault is about one message. A cut takes what is sent while it holds and what would
//! arrive while it holds. The network decides, and the scheduler carries: a message under way is an event.

use crate::fault::{Fault, Odds};
use crate::scheduler::Scheduler;
use crate::seed::duration_between;
use crate::trace::Trace;
use base::Monotonic;
use base::rng::SplitMix64;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// A node's number in its world. Clients are nodes too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// A message under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<M> {
    /// Who sent it.
    pub from: NodeId,
    /// Who is to have it.
    pub to: NodeId,
    /// What it says.
    pub message: M,
}

impl<M> Packet<M> {
    fn link(&self) -> Link {
        (self.from, self.to)
    }
}

type Link = (NodeId, NodeId);

/// What a network does to messages.
#[derive(Clone, Copy, Debug)]
pub struct NetworkConfig {
    /// The least time a message takes.
    pub delay_min: Duration,
    /// The most time a message takes while no fault fires.
    pub delay_max: Duration,
    /// How likely a message is lost.
    pub loss: Odds,
    /// How likely a message comes twice.
    pub duplicate: Odds,
    /// How likely a message is held back while later ones of its link pass.
    pub reorder: Odds,
    /// How likely a link stalls: this message and those behind it come late.
    pub lag: Odds,
    /// How long a held or stalled message takes at most.
    pub lag_max: Duration,
    /// How likely a message takes a way of its own and comes when nobody thinks of it any more.
    pub late: Odds,
    /// How long such a message takes at most.
    pub late_max: Duration,
    /// How likely the copy of a doubled message takes a way of its own, too.
    pub echo: Odds,
    /// How long such a copy takes at most.
    pub echo_max: Duration,
}

impl NetworkConfig {
    /// A local network without faults.
    pub const CALM: NetworkConfig = NetworkConfig {
        delay_min: Duration::from_micros(20),
        delay_max: Duration::from_micros(200),
        loss: Odds::NEVER,
        duplicate: Odds::NEVER,
        reorder: Odds::NEVER,
        lag: Odds::NEVER,
        lag_max: Duration::from_millis(50),
        late: Odds::NEVER,
        late_max: Duration::from_secs(20),
        echo: Odds::NEVER,
        echo_max: Duration::from_millis(500),
    };
}

/// All links of a world.
#[derive(Debug)]
pub struct Network {
    config: NetworkConfig,
    rng: SplitMix64,
    trace: Trace,
    cuts: BTreeSet<Link>,
    /// Links whose messages all take so much longer.
    delays: BTreeMap<Link, Duration>,
    /// When the last message of each link arrives: the next one arrives after it.
    last: BTreeMap<Link, Monotonic>,
    /// When the last held-back message of each link arrives, until one is seen to overtake it.
    held: BTreeMap<Link, Monotonic>,
    /// When the last message of all arrives.
    busy_until: Monotonic,
}

impl Network {
    /// A network of which no link is cut.
    pub fn new(config: NetworkConfig, rng: SplitMix64, trace: Trace) -> Network {
        let network = Network {
            config,
            rng,
            trace,
            cuts: BTreeSet::new(),
            delays: BTreeMap::new(),
            last: BTreeMap::new(),
            held: BTreeMap::new(),
            busy_until: Monotonic(0),
        };
        network.enable();
        network
    }

    /// Changes what happens to messages from now on: to calm a world down at its end.
    pub fn set_config(&mut self, config: NetworkConfig) {
        self.config = config;
        self.enable();
    }

    /// Cuts the link from `from` to `to`; the way back stays.
    pub fn cut(&mut self, from: NodeId, to: NodeId) {
        self.trace.enable(Fault::Cut);
        self.cuts.insert((from, to));
    }

    /// Mends the link from `from` to `to`.
    pub fn heal(&mut self, from: NodeId, to: NodeId) {
        self.cuts.remove(&(from, to));
    }

    /// Has all messages from `from` to `to` take so much longer from now on. Their order stays.
    pub fn delay(&mut self, from: NodeId, to: NodeId, delay: Duration) {
        self.delays.insert((from, to), delay);
    }

    /// Ends all delays of links.
    pub fn end_delays(&mut self) {
        self.delays.clear();
    }

    /// Mends all links.
    pub fn heal_all(&mut self) {
        self.cuts.clear();
        self.delays.clear();
    }

    /// Whether the link from `from` to `to` is cut.
    pub fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.cuts.contains(&(from, to))
    }

    /// When the last message of those sent so far arrives.
    pub fn busy_until(&self) -> Monotonic {
        self.busy_until
    }

    /// Sends a message: schedules its arrival, or two, or none.
    pub fn send<M: Clone, E: From<Packet<M>>>(&mut self, events: &mut Scheduler<E>, packet: Packet<M>) {
        let (from, to) = packet.link();
        if self.cuts.contains(&(from, to)) {
            return self.trace.fault(Fault::Cut, format_args!("{from} -> {to} when sent"));
        }
        if self.config.loss.fires(&mut self.rng) {
            return self.trace.fault(Fault::Loss, format_args!("{from} -> {to}"));
        }
        if self.config.duplicate.fires(&mut self.rng) {
            self.trace.fault(Fault::Duplicate, format_args!("{from} -> {to}"));
            let copy = packet.clone();
            match self.config.echo.fires(&mut self.rng) {
                true => self.carry_by_itself(events, copy),
                false => self.carry(events, copy),
            }
        }
        self.carry(events, packet);
    }

    /// Sends a message that takes a way of its own, and so long.
    pub fn send_late<M, E: From<Packet<M>>>(
        &mut self,
        events: &mut Scheduler<E>,
        packet: Packet<M>,
        delay: Duration,
    ) {
        let (from, to) = packet.link();
        if self.cuts.contains(&(from, to)) {
            return self.trace.fault(Fault::Cut, format_args!("{from} -> {to} when sent"));
        }
        self.trace.fault(Fault::Late, format_args!("{from} -> {to}"));
        let due = events.now() + delay;
        self.busy_until = self.busy_until.max(due);
        events.at(due, packet.into());
    }

    /// Carries the copy of a message on a way of its own.
    fn carry_by_itself<M, E: From<Packet<M>>>(&mut self, events: &mut Scheduler<E>, packet: Packet<M>) {
        let delay = duration_between(&mut self.rng, self.config.delay_max, self.config.echo_max);
        let due = events.now() + delay;
        self.busy_until = self.busy_until.max(due);
        events.at(due, packet.into());
    }

    fn carry<M, E: From<Packet<M>>>(&mut self, events: &mut Scheduler<E>, packet: Packet<M>) {
        let due = self.arrival(packet.link(), events.now());
        self.busy_until = self.busy_until.max(due);
        events.at(due, packet.into());
    }

    /// Whether a message whose arrival has come gets through: not if its link has been cut meanwhile.
    pub fn arrives<M>(&mut self, packet: &Packet<M>) -> bool {
        let cut = self.cuts.contains(&packet.link());
        if cut {
            self.trace.fault(Fault::Cut, format_args!("{} -> {} under way", packet.from, packet.to));
        }
        !cut
    }

    /// When a message sent `now` arrives.
    fn arrival(&mut self, link: Link, now: Monotonic) -> Monotonic {
        let (from, to) = link;
        let mut due = now + duration_between(&mut self.rng, self.config.delay_min, self.config.delay_max);
        let lag = self.config.lag_max;
        if self.config.late.fires(&mut self.rng) {
            self.trace.fault(Fault::Late, format_args!("{from} -> {to}"));
            return due + duration_between(&mut self.rng, self.config.late_max / 100, self.config.late_max);
        }
        if self.config.reorder.fires(&mut self.rng) {
            due = due + duration_between(&mut self.rng, self.config.delay_max.min(lag), lag);
            self.held.insert(link, due);
            return due;
        }
        if self.config.lag.fires(&mut self.rng) {
            due = due + duration_between(&mut self.rng, lag / 2, lag);
            self.trace.fault(Fault::Lag, format_args!("{from} -> {to}"));
        }
        if let Some(delay) = self.delays.get(&link) {
            due = due + *delay;
        }
        if let Some(last) = self.last.get(&link) {
            due = due.max(*last + Duration::from_nanos(1));
        }
        self.last.insert(link, due);
        if self.held.get(&link).is_some_and(|held| due < *held) {
            self.held.remove(&link);
            self.trace.fault(Fault::Reorder, format_args!("{from} -> {to}"));
        }
        due
    }

    fn enable(&self) {
        let NetworkConfig { loss, duplicate, reorder, lag, late, .. } = self.config;
        let odds = [
            (loss, Fault::Loss),
            (duplicate, Fault::Duplicate),
            (reorder, Fault::Reorder),
            (lag, Fault::Lag),
            (late, Fault::Late),
        ];
        odds.iter().filter(|(odds, _)| odds.enabled()).for_each(|(_, fault)| self.trace.enable(*fault));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;
    use crate::clock::SimTime;
    use crate::trace::Keep;

    struct World {
        events: Scheduler<Packet<u32>>,
        network: Network,
        trace: Trace,
    }

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    fn world(config: NetworkConfig) -> World {
        let time = SimTime::default();
        let trace = Trace::new(time.clone(), Keep::Hash);
        let network = Network::new(config, Seed(1).stream("network", 0), trace.clone());
        World { events: Scheduler::new(time, Seed(1).stream("scheduler", 0)), network, trace }
    }

    impl World {
        fn send(&mut self, from: NodeId, to: NodeId, message: u32) {
            self.network.send(&mut self.events, Packet { from, to, message });
        }

        fn receive(&mut self) -> Vec<u32> {
            let mut received = Vec::new();
            while let Some(packet) = self.events.pop() {
                if self.network.arrives(&packet) {
                    received.push(packet.message);
                }
            }
            received
        }

        fn exchange(&mut self) -> Vec<u32> {
            (0..200).for_each(|n| self.send(A, B, n));
            self.receive()
        }

        fn fired(&self, fault: Fault) -> u64 {
            self.trace.fired().get(&fault).copied().unwrap_or(0)
        }
    }

    #[test]
    fn a_calm_link_keeps_order_and_takes_time() {
        let mut world = world(NetworkConfig::CALM);
        assert_eq!(world.exchange(), (0..200).collect::<Vec<_>>());
        assert!(world.events.now().since(Monotonic(0)) >= NetworkConfig::CALM.delay_min);
        assert!(world.trace.fired().is_empty());
    }

    #[test]
    fn loss() {
        let mut world = world(NetworkConfig { loss: Odds::one_in(4), ..NetworkConfig::CALM });
        let received = world.exchange();
        assert!(received.len() < 200 && received.is_sorted());
        assert_eq!(world.fired(Fault::Loss), 200 - received.len() as u64);
    }

    #[test]
    fn duplication() {
        let mut world = world(NetworkConfig { duplicate: Odds::one_in(4), ..NetworkConfig::CALM });
        let received = world.exchange();
        assert!(received.len() > 200);
        assert_eq!(world.fired(Fault::Duplicate), received.len() as u64 - 200);
        assert_eq!(BTreeSet::from_iter(received), BTreeSet::from_iter(0..200));
    }

    #[test]
    fn reordering() {
        let mut world = world(NetworkConfig { reorder: Odds::one_in(10), ..NetworkConfig::CALM });
        let received = world.exchange();
        assert!(!received.is_sorted() && world.fired(Fault::Reorder) > 0);
        assert_eq!(BTreeSet::from_iter(received), BTreeSet::from_iter(0..200), "late is not lost");
    }

    #[test]
    fn lag_keeps_order() {
        let mut world = world(NetworkConfig { lag: Odds::one_in(20), ..NetworkConfig::CALM });
        assert!(world.exchange().is_sorted());
        assert!(world.fired(Fault::Lag) > 0);
        assert!(world.events.now().since(Monotonic(0)) >= NetworkConfig::CALM.lag_max / 2);
    }

    #[test]
    fn a_late_message_holds_up_nobody() {
        let mut world = world(NetworkConfig { late: Odds::one_in(20), ..NetworkConfig::CALM });
        let received = world.exchange();
        assert_eq!(BTreeSet::from_iter(received.clone()), BTreeSet::from_iter(0..200));
        assert!(!received.is_sorted() && world.fired(Fault::Late) > 0);
        assert_eq!(world.network.busy_until(), world.events.now());
    }

    #[test]
    fn a_cut_is_one_way_and_takes_what_is_under_way() {
        let mut world = world(NetworkConfig::CALM);
        world.send(A, B, 1);
        world.network.cut(A, B);
        world.send(A, B, 2);
        world.send(B, A, 3);
        assert_eq!(world.receive(), [3]);
        assert_eq!(world.fired(Fault::Cut), 2);
        world.network.heal(A, B);
        world.send(A, B, 4);
        assert_eq!(world.receive(), [4]);
    }
}
