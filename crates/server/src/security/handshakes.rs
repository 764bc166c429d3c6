//! Handshakes of TLS that are under way: a place for each, some of them for each network of clients.
//!
//! 1. A connection whose client has begun to speak gets a place, if the node and the network have one.
//! 2. Otherwise it takes the place of the oldest one whose client has not sent its whole hello: of the same network if
//!    that is full, else of any. Such a one has cost its client a few bytes.
//! 3. Otherwise it waits. A place that is given up goes to the one that waits longest and whose network has room.
//!
//! Invariants: at most [`UNDER_WAY_MAX`] have a place, and [`OF_NETWORK_MAX`] of a network. None waits that could have
//! a place. One whose hello has come keeps its place until it ends.
//!
//! Left out: time. The caller ends handshakes that last too long. A connection that has sent nothing needs no place.

use base::FastMap;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

/// Handshakes under way on the node: each holds some tens of kilobytes of a client that is not known yet.
pub(crate) const UNDER_WAY_MAX: usize = 256;

/// Those of one network: a pool of clients behind one address takes turns, and leaves places to others.
pub(super) const OF_NETWORK_MAX: usize = 16;

/// Handshakes that wait for a place. The one that waits longest is dropped for another.
pub(super) const WAITING_MAX: usize = 1024;

/// The bits of an IPv6 address that its owner cannot choose.
const NETWORK_BITS: u128 = !(u64::MAX as u128);

/// A number for each handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HandshakeId(pub(super) u64);

/// An event of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A client at an address has begun. The number was not used before, and is higher than all others.
    Arrived(HandshakeId, IpAddr),
    /// The whole hello of the client has come.
    HasHello(HandshakeId),
    /// It has ended, in whichever way.
    Ended(HandshakeId),
}

/// The decision on a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// It has a place.
    Begin(HandshakeId),
    /// It is given up for another one. Nothing more is said of it.
    Drop(HandshakeId),
}

/// The handshakes of a node.
#[derive(Default)]
pub(super) struct Handshakes {
    /// Those that have a place, oldest first.
    under_way: BTreeMap<HandshakeId, UnderWay>,
    /// Places by network; none of zero.
    of_network: FastMap<IpAddr, usize>,
    /// Those that wait, longest first.
    waiting: VecDeque<(HandshakeId, IpAddr)>,
}

struct UnderWay {
    network: IpAddr,
    has_hello: bool,
}

impl Handshakes {
    /// Takes an event.
    pub(super) fn step(&mut self, input: Input) -> Vec<Output> {
        match input {
            Input::Arrived(id, address) => self.arrive(id, network(address)),
            Input::HasHello(id) => {
                if let Some(handshake) = self.under_way.get_mut(&id) {
                    handshake.has_hello = true;
                }
                Vec::new()
            }
            Input::Ended(id) => self.end(id),
        }
    }

    fn arrive(&mut self, id: HandshakeId, network: IpAddr) -> Vec<Output> {
        let mut outputs = Vec::new();
        if !self.has_room(network) {
            let Some(victim) = self.victim(network) else { return self.wait(id, network) };
            self.leave(victim);
            outputs.push(Output::Drop(victim));
        }
        outputs.push(self.begin(id, network));
        outputs
    }

    fn wait(&mut self, id: HandshakeId, network: IpAddr) -> Vec<Output> {
        self.waiting.push_back((id, network));
        let longest = (self.waiting.len() > WAITING_MAX).then(|| self.waiting.pop_front()).flatten();
        longest.map(|(id, _)| Output::Drop(id)).into_iter().collect()
    }

    fn end(&mut self, id: HandshakeId) -> Vec<Output> {
        if !self.leave(id) {
            self.waiting.retain(|(waiting, _)| *waiting != id);
            return Vec::new();
        }
        // One place is free, so one at most of those that wait has room now.
        let next = self.waiting.iter().position(|&(_, network)| self.has_room(network));
        let next = next.and_then(|at| self.waiting.remove(at));
        next.map(|(id, network)| self.begin(id, network)).into_iter().collect()
    }

    fn begin(&mut self, id: HandshakeId, network: IpAddr) -> Output {
        *self.of_network.entry(network).or_default() += 1;
        self.under_way.insert(id, UnderWay { network, has_hello: false });
        debug_assert!(self.under_way.len() <= UNDER_WAY_MAX, "places are bounded");
        Output::Begin(id)
    }

    /// Gives its place up; whether it had one.
    fn leave(&mut self, id: HandshakeId) -> bool {
        let Some(UnderWay { network, .. }) = self.under_way.remove(&id) else { return false };
        let count = self.of_network.get_mut(&network).expect("a place counts for its network");
        *count -= 1;
        if *count == 0 {
            self.of_network.remove(&network);
        }
        true
    }

    fn has_room(&self, network: IpAddr) -> bool {
        self.under_way.len() < UNDER_WAY_MAX && !self.is_full(network)
    }

    fn is_full(&self, network: IpAddr) -> bool {
        self.of_network.get(&network).is_some_and(|count| *count >= OF_NETWORK_MAX)
    }

    /// The oldest one without a hello whose place a client of a network may take.
    fn victim(&self, network: IpAddr) -> Option<HandshakeId> {
        let is_full = self.is_full(network);
        let may_go =
            |handshake: &UnderWay| !handshake.has_hello && (!is_full || handshake.network == network);
        self.under_way.iter().find(|(_, handshake)| may_go(handshake)).map(|(id, _)| *id)
    }
}

/// The network that an address counts for: the address, or the half of one of IPv6 that a network is given.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & NETWORK_BITS).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;
    use std::net::Ipv4Addr;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from(number).into()
    }

    #[test]
    fn half_open_handshakes_make_room_for_a_new_client() {
        let mut handshakes = Handshakes::default();
        for number in 0..2000 {
            handshakes.step(Input::Arrived(HandshakeId(number), address(number as u32)));
        }
        assert_eq!(handshakes.under_way.len(), UNDER_WAY_MAX);
        let honest = HandshakeId(2000);
        let outputs = handshakes.step(Input::Arrived(honest, address(7000)));
        let oldest = HandshakeId(2000 - UNDER_WAY_MAX as u64);
        assert_eq!(outputs, [Output::Drop(oldest), Output::Begin(honest)]);
        handshakes.step(Input::HasHello(honest));
        for number in 2001..4000 {
            let outputs = handshakes.step(Input::Arrived(HandshakeId(number), address(number as u32)));
            assert!(!outputs.contains(&Output::Drop(honest)));
        }
    }

    #[test]
    fn a_network_has_places_of_its_own() {
        let mut handshakes = Handshakes::default();
        let in_network = |host: u64| IpAddr::from(Ipv6Addr::from((0xfd00_u128 << 112) | u128::from(host)));
        for number in 0..OF_NETWORK_MAX as u64 {
            handshakes.step(Input::Arrived(HandshakeId(number), in_network(number)));
            handshakes.step(Input::HasHello(HandshakeId(number)));
        }
        let [late, other] = [100, 101].map(HandshakeId);
        assert_eq!(handshakes.step(Input::Arrived(late, in_network(100))), []);
        assert_eq!(handshakes.step(Input::Arrived(other, address(1))), [Output::Begin(other)]);
        assert_eq!(handshakes.step(Input::Ended(HandshakeId(3))), [Output::Begin(late)]);
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), network("10.0.0.1".parse().unwrap()));
    }

    /// The same rules, in lists that are searched.
    #[derive(Default)]
    struct Model {
        under_way: Vec<(HandshakeId, IpAddr, bool)>,
        waiting: Vec<(HandshakeId, IpAddr)>,
    }

    impl Model {
        fn count(&self, network: IpAddr) -> usize {
            self.under_way.iter().filter(|(_, of, _)| *of == network).count()
        }

        fn fits(&self, network: IpAddr) -> bool {
            self.under_way.len() < UNDER_WAY_MAX && self.count(network) < OF_NETWORK_MAX
        }

        fn step(&mut self, input: Input) -> Vec<Output> {
            let mut outputs = Vec::new();
            match input {
                Input::Arrived(id, network) => {
                    let own_alone = self.count(network) == OF_NETWORK_MAX;
                    if !self.fits(network) {
                        let may_go = |of: IpAddr, hello: bool| !hello && (!own_alone || of == network);
                        match self.under_way.iter().position(|&(_, of, hello)| may_go(of, hello)) {
                            Some(at) => outputs.push(Output::Drop(self.under_way.remove(at).0)),
                            None => {
                                self.waiting.push((id, network));
                                if self.waiting.len() > WAITING_MAX {
                                    outputs.push(Output::Drop(self.waiting.remove(0).0));
                                }
                                return outputs;
                            }
                        }
                    }
                    self.under_way.push((id, network, false));
                    outputs.push(Output::Begin(id));
                }
                Input::HasHello(id) => {
                    self.under_way.iter_mut().filter(|of| of.0 == id).for_each(|of| of.2 = true);
                }
                Input::Ended(id) => {
                    self.under_way.retain(|of| of.0 != id);
                    self.waiting.retain(|of| of.0 != id);
                    while let Some(at) = self.waiting.iter().position(|of| self.fits(of.1)) {
                        let (id, network) = self.waiting.remove(at);
                        self.under_way.push((id, network, false));
                        self.under_way.sort_by_key(|of| of.0);
                        outputs.push(Output::Begin(id));
                    }
                }
            }
            outputs
        }
    }

    #[test]
    fn random_events_agree_with_the_model() {
        for seed in 0..20 {
            let mut rng = SplitMix64::new(seed);
            let (mut handshakes, mut model) = (Handshakes::default(), Model::default());
            let networks = [2, 30, 1000][seed as usize % 3];
            for number in 0..4000_u64 {
                let some = HandshakeId(number.saturating_sub(rng.below(1500)));
                let input = match rng.below(8) {
                    0..4 => Input::Arrived(HandshakeId(number), address(rng.below(networks) as u32)),
                    4..7 => Input::HasHello(some),
                    _ => Input::Ended(some),
                };
                assert_eq!(handshakes.step(input), model.step(input), "seed {seed}, event {number}");
                assert_eq!(handshakes.waiting.len(), model.waiting.len());
                assert!(handshakes.under_way.len() <= UNDER_WAY_MAX);
                assert!(handshakes.of_network.values().all(|count| (1..=OF_NETWORK_MAX).contains(count)));
                assert_eq!(handshakes.of_network.values().sum::<usize>(), handshakes.under_way.len());
            }
        }
    }
}
