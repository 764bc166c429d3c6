//! A seed's plan: nodes, groups, clients, and the faults that the world has.

use crate::disk::DiskOdds;
use crate::draw;
use crate::fault::{Fault, Odds};
use crate::network::NetworkConfig;
use crate::seed::{Seed, between, duration_between, index_below};
use crate::trace::Trace;
use base::Rng;
use base::rng::SplitMix64;
use engine::{Durability, GroupKeys, Options};
use std::time::Duration;

/// The largest difference of a clock from the true time, in parts of a million: the failure model's 5 %.
const DRIFT_PPM_MAX: u32 = 50_000;
/// The largest share of messages between nodes that are lost, in parts of a million.
const LOSS_MAX: u64 = 150_000;
/// The largest share of messages between nodes that come twice.
const DUPLICATE_MAX: u64 = 300_000;

/// A disk that is lost in a way that costs its votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// It is empty.
    Wiped,
    /// It is an older copy of itself.
    Restored,
    /// It is a copy of another node's.
    Cloned,
    /// Bits of it flip.
    Flipped,
}

impl Loss {
    pub(super) fn fault(self) -> Fault {
        match self {
            Loss::Wiped => Fault::Wiped,
            Loss::Restored => Fault::Restored,
            Loss::Cloned => Fault::Cloned,
            Loss::Flipped => Fault::BitFlip,
        }
    }
}

/// The faults of nodes and links that the world causes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Troubles {
    pub(super) partitions: bool,
    pub(super) one_way: bool,
    pub(super) flapping: bool,
    pub(super) pauses: bool,
    pub(super) stalls: bool,
    pub(super) clock_jumps: bool,
    /// Power cuts of all nodes at once.
    pub(super) blackouts: bool,
    /// Nodes are told of links that go down and come up, and messages that cannot be sent come back.
    pub(super) links_tell: bool,
}

/// A seed's plan.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The shards of each node.
    pub(super) shards: Vec<u16>,
    pub(super) ring_size: u32,
    /// Voters of a group.
    pub(super) n_val: u8,
    pub(super) options: Options,
    pub(super) clients: usize,
    /// Keys of each group that clients use.
    pub(super) keys: u64,
    pub(super) disk: DiskOdds,
    pub(super) drift_ppm_max: u32,
    pub(super) inside: NetworkConfig,
    pub(super) outside: NetworkConfig,
    pub(super) troubles: Troubles,
    pub(super) loss: Option<Loss>,
    /// The interval at which nodes compare their eventual copies, which leaves consistent types alone.
    pub(super) anti_entropy: Option<Duration>,
    /// Whether a one-way cut that lasts follows the heal.
    pub(super) lasting_cut: bool,
    /// Deaths before the end.
    pub(super) deaths: u64,
    pub(super) down_max: Duration,
    pub(super) trouble_pause_max: Duration,
    pub(super) think_max: Duration,
    pub(super) timeout_max: Duration,
    /// The longest time until a registration is committed, and until a node hears of it.
    pub(super) agreement_max: Duration,
}

impl Plan {
    pub(super) fn of(seed: Seed) -> Plan {
        let rng = &mut seed.stream("consistent plan", 0);
        let nodes = between(rng, 3, 7);
        let n_val = if nodes >= 5 && rng.chance(1, 3) { 5 } else { 3 };
        let short = |n| u16::try_from(n).expect("a small number");
        let options = Options {
            groups: Some(GroupKeys { state_tag: object::key::TAG_GROUP }),
            ..draw::options(rng, Durability::Sync)
        };
        let loss = match rng.below(8) {
            0 => Some(Loss::Wiped),
            1 => Some(Loss::Restored),
            2 => Some(Loss::Cloned),
            3 => Some(Loss::Flipped),
            _ => None,
        };
        Plan {
            shards: (0..nodes).map(|_| short(between(rng, 1, 2))).collect(),
            ring_size: 1 << between(rng, 3, 5),
            n_val,
            options,
            clients: index_below(rng, 6) + 4,
            keys: between(rng, 1, 3),
            disk: disk(rng),
            drift_ppm_max: if rng.chance(1, 2) { DRIFT_PPM_MAX } else { 200 },
            inside: inside(rng),
            outside: outside(rng),
            troubles: troubles(rng),
            loss,
            anti_entropy: rng.chance(1, 3).then_some(Duration::from_millis(500)),
            lasting_cut: rng.chance(1, 2),
            deaths: between(rng, 3, 8),
            down_max: duration_between(rng, Duration::from_millis(10), Duration::from_secs(4)),
            trouble_pause_max: duration_between(rng, Duration::from_millis(300), Duration::from_millis(2000)),
            think_max: duration_between(rng, Duration::from_millis(10), Duration::from_millis(80)),
            timeout_max: duration_between(rng, Duration::from_millis(500), Duration::from_secs(4)),
            agreement_max: duration_between(rng, Duration::from_millis(20), Duration::from_millis(800)),
        }
    }

    pub(super) fn nodes(&self) -> usize {
        self.shards.len()
    }

    /// Tells `trace` which faults the world causes; networks and disks tell of theirs.
    pub(super) fn enable(&self, trace: &Trace) {
        let Troubles { partitions, one_way, flapping, pauses, stalls, clock_jumps, blackouts, links_tell } =
            self.troubles;
        let faults = [
            (true, Fault::PowerCut),
            (true, Fault::ProcessKill),
            (true, Fault::CrashInWrite),
            (partitions, Fault::Partition),
            (one_way || self.lasting_cut, Fault::OneWay),
            (flapping, Fault::Flapping),
            (partitions && links_tell, Fault::Bounce),
            (pauses, Fault::Pause),
            (stalls, Fault::Stall),
            (blackouts, Fault::Blackout),
            (clock_jumps, Fault::ClockJump),
        ];
        faults.into_iter().filter(|(enabled, _)| *enabled).for_each(|(_, fault)| trace.enable(fault));
        self.loss.iter().for_each(|loss| trace.enable(loss.fault()));
    }
}

fn troubles(rng: &mut SplitMix64) -> Troubles {
    Troubles {
        partitions: rng.chance(1, 2),
        one_way: rng.chance(1, 3),
        flapping: rng.chance(1, 4),
        pauses: rng.chance(1, 2),
        stalls: rng.chance(1, 3),
        clock_jumps: rng.chance(1, 3),
        blackouts: rng.chance(1, 3),
        links_tell: rng.chance(1, 2),
    }
}

/// Faults of disks: no space and slow operations, besides what a power cut does. Other errors are in other worlds.
fn disk(rng: &mut SplitMix64) -> DiskOdds {
    let rare = |rng: &mut SplitMix64| if rng.chance(1, 5) { Odds::one_in(1500) } else { Odds::NEVER };
    DiskOdds {
        no_space: rare(rng),
        short_read: draw::maybe(rng, Odds::one_in(3)),
        cold_read: draw::maybe(rng, Odds::one_in(3)),
        slow: draw::maybe(rng, Odds::one_in(50)),
        torn: draw::maybe(rng, Odds::one_in(2)),
        ..DiskOdds::SOUND
    }
}

/// Up to `max` in a million, small values more often than large ones.
fn skewed(rng: &mut SplitMix64, max: u64) -> Odds {
    let (first, second) = (rng.below(1000) + 1, rng.below(1000) + 1);
    let parts = (max * first * second / 1_000_000).max(2000);
    Odds::in_a_million(u32::try_from(parts).expect("less than a million"))
}

fn inside(rng: &mut SplitMix64) -> NetworkConfig {
    let maybe = |rng: &mut SplitMix64, max| if rng.chance(1, 2) { skewed(rng, max) } else { Odds::NEVER };
    NetworkConfig {
        delay_max: duration_between(rng, Duration::from_micros(200), Duration::from_millis(5)),
        loss: maybe(rng, LOSS_MAX),
        duplicate: maybe(rng, DUPLICATE_MAX),
        reorder: maybe(rng, 100_000),
        lag: maybe(rng, 5000),
        lag_max: duration_between(rng, Duration::from_millis(20), Duration::from_millis(400)),
        late: maybe(rng, 10_000),
        late_max: duration_between(rng, Duration::from_secs(1), Duration::from_secs(15)),
        ..NetworkConfig::CALM
    }
}

/// A connection of a client loses messages when it breaks. It doubles none.
fn outside(rng: &mut SplitMix64) -> NetworkConfig {
    NetworkConfig {
        loss: draw::maybe(rng, Odds::one_in(60)),
        lag: draw::maybe(rng, Odds::one_in(100)),
        lag_max: Duration::from_millis(40),
        ..NetworkConfig::CALM
    }
}
