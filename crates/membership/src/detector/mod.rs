//! The failure detector: which members can be reached, as far as this node knows.
//!
//! A shell around the library foca, which follows Das, Gupta and Motivala, *SWIM* (DSN 2002), with suspicion and
//! infection-style dissemination. Each period a node asks one other, and three more to ask on its behalf; so what a
//! node sends in quiet times does not grow with the cluster. What is added here:
//!
//! 1. Each datagram says which format, cluster, node and process speaks. What is of another one is refused,
//!    and both sides hear why ([`Refusal`]).
//! 2. Two live processes with one data folder are told apart from one that was started again; the later one is refused.
//! 3. Only members count. Nobody is met by hearsay: the caller says who they are ([`Input::Members`]).
//! 4. Who cannot be reached is called again now and then, so that two halves of a cluster find each other, and a node
//!    that has lost everybody finds somebody.
//!
//! Invariants: the same inputs at the same times with the same random numbers give the same outputs. A datagram is at
//! most [`DATAGRAM_BYTES_MAX`]. A refusal is never answered.
//!
//! Left out: encryption and authentication, which are the link's.

mod datagram;
mod identity;
mod refusal;
mod starts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use base::{Monotonic, Rng};
use bytes::Bytes;
use foca::{Config, Foca, NoCustomBroadcast, Notification, PeriodicParams, Timer};
use ring::NodeId;

use self::datagram::{Body, CRC_LEN, Datagram, HEADER_LEN};
pub use self::datagram::{DATAGRAM_BYTES_MAX, DatagramError, Speaker, VERSION};
use self::identity::{Incarnated, Wire};
pub use self::refusal::Refusal;
use self::starts::{Judgement, Starts};
pub use self::starts::{SILENCE_MAX, STRAY_MAX};
use crate::ClusterId;

/// How often a node asks another whether it lives. Each question wakes two threads of each of both, which is much of
/// what idle nodes cost; whoever is of use to a shard is asked by that, and far more often.
pub const PROBE_EVERY: Duration = Duration::from_secs(2);

/// A suspect has so long for each step that news take, which are told five times in it.
const SUSPECT_STEP: Duration = Duration::from_secs(1);

/// How long an answer may take before others are asked to ask.
pub const PROBE_RTT_MAX: Duration = Duration::from_millis(500);

const _: () =
    assert!(PROBE_RTT_MAX.as_nanos() < PROBE_EVERY.as_nanos(), "others are asked within the period");

/// How often a member that cannot be reached is called.
pub const CALL_EVERY: Duration = Duration::from_secs(5);

/// How often [`CALLED_AT_ONCE`] are when none can be reached.
const CALL_ALONE_EVERY: Duration = Duration::from_secs(1);

/// Members called at once by a node that reaches nobody.
pub const CALLED_AT_ONCE: usize = 3;

/// News are sent to this many members, this often, as long as there are any.
const GOSSIP: PeriodicParams = PeriodicParams {
    frequency: Duration::from_millis(200),
    num_members: NonZeroUsize::new(3).expect("not zero"),
};

/// Members that are asked to ask for a silent one.
const INDIRECT_PROBES: NonZeroUsize = NonZeroUsize::new(3).expect("not zero");

/// How long it is remembered that a generation of a node is dead: longer than news of its life can be on their way.
const REMEMBER_DOWN: Duration = Duration::from_secs(600);

/// Generations of one start: what a process may take before its next start comes after it.
const GENERATIONS_PER_START: u32 = 20;

/// What happens to a detector.
#[derive(Clone, Debug)]
pub enum Input {
    /// A datagram has come.
    Datagram(Bytes),
    /// From now on these are the members; this node among them or not.
    Members(BTreeSet<NodeId>),
    /// All processes of a member but this one have ended, as the caller knows: none is refused for their sake any more.
    Admitted {
        /// The member.
        node: NodeId,
        /// Its process.
        start: u64,
    },
    /// Time has passed; due at [`Detector::next_timer`].
    Tick,
}

/// What a detector wants done or known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send to a node, as best as one can.
    Send {
        /// Whom.
        to: NodeId,
        /// What.
        datagram: Bytes,
    },
    /// Send to where the datagram came from.
    Reply(Bytes),
    /// A member can be reached.
    Up(NodeId),
    /// A member cannot be reached.
    Down(NodeId),
    /// Somebody was refused here.
    Refused {
        /// Who.
        from: Speaker,
        /// Why.
        refusal: Refusal,
    },
    /// Somebody refuses this node.
    Told {
        /// Who.
        by: Speaker,
        /// Why.
        refusal: Refusal,
    },
    /// What came makes no sense.
    Junk(DatagramError),
}

type Swim = Foca<Incarnated, Wire, SwimRng, NoCustomBroadcast>;

/// One node's failure detector.
pub struct Detector {
    speaker: Speaker,
    members: BTreeSet<NodeId>,
    /// The members that can be reached, this node not among them.
    up: BTreeSet<NodeId>,
    starts: BTreeMap<NodeId, Starts>,
    /// The highest generation of each member that was heard of.
    generations: BTreeMap<NodeId, u64>,
    swim: Swim,
    collected: Collected,
    timers: BTreeMap<(Monotonic, u64), Timer<Incarnated>>,
    timers_set: u64,
    call_at: Monotonic,
    rng: Box<dyn Rng>,
}

impl Detector {
    /// A detector that knows nobody. `starts` says how often the data folder was started, this time included; `start`
    /// is this process's random number.
    pub fn new(
        cluster: ClusterId,
        node: NodeId,
        starts: u32,
        start: u64,
        mut rng: Box<dyn Rng>,
        now: Monotonic,
    ) -> Detector {
        let generation = u64::from(starts) << GENERATIONS_PER_START;
        let swim_rng = SwimRng(base::rng::SplitMix64::new(rng.next_u64()));
        Detector {
            speaker: Speaker { cluster, node, start, generation },
            members: BTreeSet::new(),
            up: BTreeSet::new(),
            starts: BTreeMap::new(),
            generations: BTreeMap::new(),
            swim: Foca::new(Incarnated { node, generation }, config(1), swim_rng, Wire),
            collected: Collected::default(),
            timers: BTreeMap::new(),
            timers_set: 0,
            call_at: now,
            rng,
        }
    }

    /// This process, as it introduces itself.
    pub fn speaker(&self) -> Speaker {
        self.speaker
    }

    /// The members, as it was told.
    pub fn members(&self) -> &BTreeSet<NodeId> {
        &self.members
    }

    /// The members that can be reached, this node not among them.
    pub fn up(&self) -> &BTreeSet<NodeId> {
        &self.up
    }

    /// When the next [`Input::Tick`] is due.
    pub fn next_timer(&self) -> Monotonic {
        // Who has no news need not wake up to spread them; the timer runs before the next input, which may bring some.
        let has_news = self.swim.updates_backlog() > 0;
        let is_due = |timer: &&Timer<Incarnated>| has_news || !matches!(timer, Timer::PeriodicGossip(_));
        let next = self.timers.iter().find(|(_, timer)| is_due(timer));
        next.map_or(self.call_at, |(&(at, _), _)| at.min(self.call_at))
    }

    /// Takes note of `input` at `now`, and of the time that has passed.
    pub fn step(&mut self, input: Input, now: Monotonic, out: &mut Vec<Output>) {
        let generation = self.speaker.generation;
        self.run_timers(now, out);
        match input {
            Input::Datagram(bytes) => match Datagram::read(bytes) {
                Ok(datagram) => self.on_datagram(datagram, now, out),
                Err(error) => out.push(Output::Junk(error)),
            },
            Input::Members(members) => self.on_members(members, now),
            Input::Admitted { node, start } => {
                if let Some(starts) = self.starts.get_mut(&node) {
                    starts.forget_all_but(start);
                }
            }
            Input::Tick => {}
        }
        self.call(now);
        self.drain(now, out);
        debug_assert!(self.speaker.generation >= generation, "an identity is followed by a higher one");
        self.invariants();
    }

    /// Relations that hold after each step.
    fn invariants(&self) {
        let Speaker { node, generation, .. } = self.speaker;
        debug_assert!(self.up.is_subset(&self.members), "reached nodes are members");
        debug_assert!(
            self.up.iter().all(|node| self.generations.contains_key(node)),
            "the generation of a reached node is known"
        );
        debug_assert!(
            self.generations.keys().all(|node| self.members.contains(node)),
            "generations are remembered of members"
        );
        debug_assert!(
            self.starts.keys().all(|node| self.members.contains(node)),
            "processes are remembered of members"
        );
        debug_assert_eq!(
            *self.swim.identity(),
            Incarnated { node, generation },
            "datagrams carry the library's identity"
        );
    }

    fn run_timers(&mut self, now: Monotonic, out: &mut Vec<Output>) {
        while let Some(entry) = self.timers.first_entry().filter(|entry| entry.key().0 <= now) {
            let timer = entry.remove();
            let ran = self.swim.handle_timer(timer, &mut self.collected);
            // It reports a probe that was cut short by a pause of this process, and goes on with the next.
            drop(ran);
            self.drain(now, out);
        }
    }

    fn on_datagram(&mut self, datagram: Datagram, now: Monotonic, out: &mut Vec<Output>) {
        let from = datagram.from;
        match datagram.body {
            Body::Refused(refusal) => self.on_refused(from, refusal, out),
            Body::OfVersion(theirs) => self.refuse(from, Refusal::Version { ours: VERSION, theirs }, out),
            Body::Probe(probe) => match self.admit(&from, now) {
                Ok(true) => self.on_probe(&probe, out),
                Ok(false) => {}
                Err(refusal) => self.refuse(from, refusal, out),
            },
        }
    }

    /// Whether to listen to a datagram of `from`.
    fn admit(&mut self, from: &Speaker, now: Monotonic) -> Result<bool, Refusal> {
        let here = self.speaker;
        if from.cluster != here.cluster {
            return Err(Refusal::Cluster { ours: here.cluster, theirs: from.cluster });
        }
        if from.node == here.node {
            // Only a copy of this folder says so; the others judge which of the two is the original.
            return Ok(false);
        }
        if !self.members.contains(&from.node) {
            return Err(Refusal::NotMember { node: from.node });
        }
        match self.starts.entry(from.node).or_default().judge(from.start, from.generation, now) {
            // It may have been told dead under a generation that it does not know of: one of an earlier start.
            Judgement::Believed => match self.generations.get(&from.node) {
                Some(&generation) if generation > from.generation => {
                    Err(Refusal::Superseded { start: 0, generation })
                }
                _ => Ok(true),
            },
            Judgement::Stray => Ok(false),
            Judgement::Copy { original } => Err(Refusal::Copy { original }),
            Judgement::Superseded { start, generation } => Err(Refusal::Superseded { start, generation }),
        }
    }

    fn on_probe(&mut self, probe: &[u8], out: &mut Vec<Output>) {
        if self.swim.handle_data(probe, &mut self.collected).is_err() {
            out.push(Output::Junk(DatagramError::Malformed(protocol::peer::Malformed("not a probe"))));
        }
    }

    fn refuse(&mut self, from: Speaker, refusal: Refusal, out: &mut Vec<Output>) {
        out.push(Output::Reply(Datagram::encode(&self.speaker, &Body::Refused(refusal))));
        out.push(Output::Refused { from, refusal });
    }

    fn on_refused(&mut self, by: Speaker, refusal: Refusal, out: &mut Vec<Output>) {
        // A cluster that is not ours may refuse us, and may not make us do anything.
        if let Refusal::Superseded { start, generation } = refusal
            && by.cluster == self.speaker.cluster
            && self.members.contains(&by.node)
            && start != self.speaker.start
            && generation >= self.speaker.generation
            && let Some(generation) = generation.checked_add(1)
        {
            let changed = self
                .swim
                .change_identity(Incarnated { node: self.speaker.node, generation }, &mut self.collected);
            // It differs from the present one, being higher.
            drop(changed);
        }
        out.push(Output::Told { by, refusal });
    }

    fn on_members(&mut self, members: BTreeSet<NodeId>, now: Monotonic) {
        if members == self.members {
            return;
        }
        self.up.retain(|node| members.contains(node));
        self.starts.retain(|node, _| members.contains(node));
        self.generations.retain(|node, _| members.contains(node));
        let applied = self.swim.set_config(config(members.len()));
        assert!(applied.is_ok(), "periods do not change");
        self.members = members;
        let active = self.swim.iter_members().map(|member| (*member.id(), true));
        self.collected.changed.extend(active);
        self.call_at = now;
    }

    /// Calls members that are not reached, when it is time to.
    fn call(&mut self, now: Monotonic) {
        if now < self.call_at {
            return;
        }
        let (count, after) =
            if self.up.is_empty() { (CALLED_AT_ONCE, CALL_ALONE_EVERY) } else { (1, CALL_EVERY) };
        self.call_at = now + after;
        let here = self.speaker.node;
        let mut lost: Vec<NodeId> =
            self.members.difference(&self.up).copied().filter(|&node| node != here).collect();
        for _ in 0..count.min(lost.len()) {
            let chosen = self.rng.below(lost.len() as u64);
            let node = lost.swap_remove(usize::try_from(chosen).expect("below a length"));
            // Whoever is called listens, whatever its generation.
            let called = self.swim.announce(Incarnated { node, generation: 0 }, &mut self.collected);
            assert!(called.is_ok(), "a call fits into a datagram");
        }
    }

    /// Turns what the library wants into outputs.
    fn drain(&mut self, now: Monotonic, out: &mut Vec<Output>) {
        self.speaker.generation = self.swim.identity().generation;
        for (to, probe) in self.collected.send.drain(..) {
            if self.members.contains(&to) {
                out.push(Output::Send { to, datagram: Datagram::encode(&self.speaker, &Body::Probe(probe)) });
            }
        }
        for (timer, after) in self.collected.timers.drain(..) {
            self.timers_set += 1;
            self.timers.insert((now + after, self.timers_set), timer);
        }
        for (id, is_up) in self.collected.changed.drain(..) {
            let node = id.node;
            if self.members.contains(&node) {
                let known = self.generations.entry(node).or_default();
                *known = id.generation.max(*known);
            }
            let changed = match is_up {
                true => self.members.contains(&node) && self.up.insert(node),
                false => self.up.remove(&node),
            };
            if changed {
                out.push(if is_up { Output::Up(node) } else { Output::Down(node) });
            }
        }
    }
}

/// What fits a cluster of `members`: news are sent often enough, and a suspect has time enough, to reach everybody by
/// infection, which takes steps by the logarithm of their number.
fn config(members: usize) -> Config {
    let log2 = u8::try_from(members.max(1).ilog2()).expect("a logarithm of 64 bits fits");
    Config {
        probe_period: PROBE_EVERY,
        probe_rtt: PROBE_RTT_MAX,
        num_indirect_probes: INDIRECT_PROBES,
        max_transmissions: NonZeroU8::new(4 + 2 * log2).expect("not zero"),
        suspect_to_down_after: SUSPECT_STEP * u32::from(log2.max(3) + 1),
        remove_down_after: Some(REMEMBER_DOWN),
        max_packet_size: NonZeroUsize::new(DATAGRAM_BYTES_MAX - HEADER_LEN - CRC_LEN).expect("not zero"),
        notify_down_members: true,
        periodic_announce: None,
        periodic_announce_to_down_members: None,
        periodic_gossip: Some(GOSSIP),
    }
}

/// What the library asks for, until it is drained.
#[derive(Default)]
struct Collected {
    send: Vec<(NodeId, Bytes)>,
    timers: Vec<(Timer<Incarnated>, Duration)>,
    changed: Vec<(Incarnated, bool)>,
}

impl foca::Runtime<Incarnated> for Collected {
    fn notify(&mut self, notification: Notification<'_, Incarnated>) {
        match notification {
            Notification::MemberUp(id) => self.changed.push((*id, true)),
            Notification::MemberDown(id) => self.changed.push((*id, false)),
            _ => {}
        }
    }

    fn send_to(&mut self, to: Incarnated, data: &[u8]) {
        self.send.push((to.node, Bytes::copy_from_slice(data)));
    }

    fn submit_after(&mut self, timer: Timer<Incarnated>, after: Duration) {
        self.timers.push((timer, after));
    }
}

/// Our random numbers under the library's trait.
struct SwimRng(base::rng::SplitMix64);

impl rand_core::TryRng for SwimRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(u32::try_from(self.0.next_u64() >> 32).expect("half of 64 bits"))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), Infallible> {
        for chunk in dst.chunks_mut(8) {
            let len = chunk.len();
            chunk.copy_from_slice(&self.0.next_u64().to_le_bytes()[..len]);
        }
        Ok(())
    }
}
