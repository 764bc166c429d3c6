//! What a seed decides beforehand: who is there in the beginning, what changes, and what goes wrong.

use crate::fault::Odds;
use crate::network::NetworkConfig;
use crate::seed::{Seed, between, duration_between};
use base::Rng;
use base::rng::SplitMix64;
use membership::detector::STRAY_MAX;
use ring::RingSize;
use std::fmt;
use std::time::Duration;

/// How many replicas each partition has.
pub(super) const REPLICAS: usize = 3;

/// The fewest nodes: as many as replicas stay when one is gone and another leaves.
const NODES_MIN: u16 = 6;

/// The largest ring that grows by chance: each partition costs each node that looks at all of them some time.
const GROWS_FROM_MAX: u32 = 1_024;

/// Changes that an operator makes beside those of others who does not wait for what he has begun, and his longest
/// pause.
const HASTY_CHANGES: u64 = 3;
const HASTY_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Nodes that come, and changes beside those hasty ones, where nothing else happens.
const SECOND_NEWCOMERS: u16 = 2;
const SECOND_CHANGES: u64 = 5;

/// How large a world is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Nodes, those that come later included.
    pub nodes: u16,
    /// Partitions of the ring.
    pub partitions: u32,
}

impl Shape {
    /// What a seed has if nothing else is said.
    pub const DEFAULT: Shape = Shape { nodes: 50, partitions: 1024 };

    /// So many nodes, on so many partitions; `None` if a cluster cannot be like that.
    pub fn of(nodes: u64, partitions: u64) -> Option<Shape> {
        let most = u64::try_from(membership::state::MEMBERS_MAX).ok()?;
        let partitions = u32::try_from(partitions).ok().filter(|it| ring::RingSize::new(*it).is_ok())?;
        let nodes = u16::try_from(nodes).ok().filter(|it| *it >= NODES_MIN && u64::from(*it) <= most)?;
        // Each has a few, so that claims can be fair.
        (u32::from(nodes) * 4 <= partitions).then_some(Shape { nodes, partitions })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--nodes {} --partitions {}", self.nodes, self.partitions)
    }
}

/// A seed's plan.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) founders: u16,
    /// Nodes that may come later.
    pub(super) newcomers: u16,
    /// Zones that nodes are in, in turn; one for none.
    pub(super) zones: u16,
    pub(super) network: NetworkConfig,
    /// How often the ring may double.
    pub(super) doublings: u32,
    /// How likely what a node reports comes late, when others may have decided anew.
    pub(super) late_reports: Odds,
    /// How likely a write to a log's file is torn, and its process ends.
    pub(super) torn: Odds,
    /// Changes that are to be committed.
    pub(super) changes: u64,
    /// Crashes before the world may be calmed down.
    pub(super) crashes: u64,
    /// Disks that are lost for good, with their nodes.
    pub(super) losses: u64,
    pub(super) cuts: bool,
    /// How long the founders are left alone in the beginning.
    pub(super) quiet: Duration,
    /// The longest that a node is down.
    pub(super) down_max: Duration,
    /// The longest pause between two blows.
    pub(super) trouble_pause_max: Duration,
    /// The longest pause of the operator.
    pub(super) operator_pause_max: Duration,
    /// The longest pause between two requests of clients.
    pub(super) think_max: Duration,
    /// How long a part of a copy takes at most.
    pub(super) part_max: Duration,
}

impl Plan {
    pub(super) fn of(seed: Seed, shape: Shape) -> Plan {
        let rng = &mut seed.stream("elastic plan", 0);
        // Members who are gone count until they are removed.
        let newcomers = u16::try_from(between(rng, 1, (u64::from(shape.nodes) / 4).min(10))).expect("few");
        let has_zones = rng.chance(1, 2);
        let plan = Plan {
            founders: shape.nodes - newcomers,
            newcomers,
            zones: if has_zones { 4 } else { 1 },
            network: network(rng),
            torn: if rng.chance(1, 2) { Odds::one_in(4000) } else { Odds::NEVER },
            changes: between(rng, 2, 4),
            crashes: between(rng, 4, 12) + u64::from(shape.nodes) / 50,
            losses: rng.below(2),
            cuts: rng.chance(2, 3),
            quiet: Duration::from_secs(between(rng, 5, 20)),
            down_max: duration_between(rng, Duration::from_millis(500), Duration::from_secs(20)),
            trouble_pause_max: duration_between(rng, Duration::from_secs(1), Duration::from_secs(8)),
            operator_pause_max: duration_between(rng, Duration::from_secs(1), Duration::from_secs(8)),
            think_max: duration_between(rng, Duration::from_millis(5), Duration::from_millis(40)),
            part_max: duration_between(rng, Duration::from_millis(10), Duration::from_secs(3)),
            doublings: doublings(seed, shape),
            ..Plan::at_rest(shape)
        };
        if seed.stream("second thoughts", 0).chance(1, 2) { plan.hasty() } else { plan }
    }

    /// The same with an operator who does not wait for what he has begun, and reports that come when it was given up.
    fn hasty(self) -> Plan {
        Plan {
            late_reports: Odds::one_in(4),
            changes: self.changes + HASTY_CHANGES,
            operator_pause_max: self.operator_pause_max.min(HASTY_PAUSE_MAX),
            ..self
        }
    }

    /// One in which nothing goes wrong but that the operator does not wait for what he has begun.
    pub(super) fn second_thoughts(shape: Shape) -> Plan {
        let plan = Plan {
            founders: shape.nodes - SECOND_NEWCOMERS,
            newcomers: SECOND_NEWCOMERS,
            zones: 1,
            changes: SECOND_CHANGES,
            quiet: Duration::from_secs(5),
            think_max: Duration::from_millis(20),
            part_max: Duration::from_secs(3),
            ..Plan::at_rest(shape)
        };
        plan.hasty()
    }

    /// One in which nothing happens.
    pub(super) fn at_rest(shape: Shape) -> Plan {
        let never = Duration::from_secs(1 << 20);
        Plan {
            founders: shape.nodes,
            newcomers: 0,
            zones: 4,
            network: NetworkConfig::CALM,
            doublings: 0,
            late_reports: Odds::NEVER,
            torn: Odds::NEVER,
            changes: 0,
            crashes: 0,
            losses: 0,
            cuts: false,
            quiet: never,
            down_max: never,
            trouble_pause_max: never,
            operator_pause_max: never,
            think_max: never,
            part_max: Duration::from_millis(100),
        }
    }

    /// The parts of a store, by which everything is looked at: the partitions of the finest ring that there will be.
    pub(super) fn units(&self, shape: Shape) -> RingSize {
        RingSize::new(shape.partitions << self.doublings).expect("a ring may double as often as a plan says")
    }

    /// The zone of the node that is the `at`th to come.
    pub(super) fn zone(&self, at: u16) -> String {
        if self.zones > 1 { format!("z{}", at % self.zones) } else { String::new() }
    }
}

/// How often the ring doubles: not at all in half of the seeds, nor where it is large.
fn doublings(seed: Seed, shape: Shape) -> u32 {
    let mut rng = seed.stream("growth", 0);
    if shape.partitions > GROWS_FROM_MAX || rng.chance(1, 2) {
        return 0;
    }
    u32::try_from(between(&mut rng, 1, 2)).expect("few")
}

fn network(rng: &mut SplitMix64) -> NetworkConfig {
    let maybe = |rng: &mut SplitMix64, odds| if rng.chance(1, 2) { odds } else { Odds::NEVER };
    NetworkConfig {
        delay_min: Duration::from_micros(100),
        delay_max: duration_between(rng, Duration::from_millis(1), Duration::from_millis(30)),
        loss: maybe(rng, Odds::one_in(30)),
        duplicate: maybe(rng, Odds::one_in(20)),
        reorder: maybe(rng, Odds::one_in(50)),
        lag: Odds::NEVER,
        late: maybe(rng, Odds::one_in(50)),
        // What comes later than this is, for the failure detector, no stray of a process that has ended.
        late_max: duration_between(rng, Duration::from_secs(1), STRAY_MAX - Duration::from_secs(1)),
        ..NetworkConfig::CALM
    }
}
