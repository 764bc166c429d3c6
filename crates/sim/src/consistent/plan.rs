//! A seed's plan: nodes, groups, clients, and the faults that the world has.

use super::scenario::{self, Kind};
use crate::disk::DiskOdds;
use crate::draw;
use crate::fault::{Fault, Odds};
use crate::network::NetworkConfig;
use crate::seed::{Seed, between, duration_between, index_below};
use crate::trace::Trace;
use base::Rng;
use base::rng::SplitMix64;
use engine::{Durability, GroupKeys, Options};
use node::StrongReads;
use std::time::Duration;

/// The largest difference of a clock from the true time, in parts of a million: the failure model's 5 %.
const DRIFT_PPM_MAX: u32 = 50_000;
/// The largest share of messages between nodes that are lost, in parts of a million.
const LOSS_MAX: u64 = 150_000;
/// The largest share of messages between nodes that come twice.
const DUPLICATE_MAX: u64 = 300_000;
/// The share of those where leaders change, in parts of a million. Half of the copies come late.
const DUPLICATES: u32 = 100_000;
/// Bytes of a value at most where segments are small: a tenth of one.
const PADDING_MAX: usize = 1_200;

/// The character of a seed's life: the faults that most of it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Character {
    /// All that happens in any of them, and lost disks.
    Mixture,
    /// Leaders that die, are cut off or stand still, beside many requests for few keys.
    Contention,
    /// Small tables and segments, failing disks, and voters that lose entries.
    Disks,
    /// Voters that miss many writes.
    CatchUp,
}

impl Character {
    fn of(seed: Seed) -> Character {
        match seed.0 % 4 {
            0 => Character::Mixture,
            1 => Character::Contention,
            2 => Character::Disks,
            _ => Character::CatchUp,
        }
    }

    /// The scenarios of a life, the last one first.
    fn scenarios(self, loss: Option<Loss>, rng: &mut SplitMix64) -> Vec<Kind> {
        let of_leaders = [Kind::Crashed, Kind::Deaf, Kind::Isolated, Kind::Usurped];
        match self {
            Character::Mixture => Vec::new(),
            Character::Contention => scenario::draw_kinds(rng, &of_leaders),
            Character::Disks => {
                // A lost disk is lost for all scenarios that follow.
                let last = if loss == Some(Loss::SetBack) { Kind::SetBack } else { Kind::Behind };
                vec![last, Kind::Stalled, Kind::Stalled]
            }
            Character::CatchUp => vec![Kind::Refill],
        }
    }
}

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
    /// It is a copy of itself of the same start, which only a scenario brings.
    SetBack,
}

impl Loss {
    pub(super) fn fault(self) -> Fault {
        match self {
            Loss::Wiped => Fault::Wiped,
            Loss::Restored | Loss::SetBack => Fault::Restored,
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
    pub(super) character: Character,
    /// The scenarios to come, the last one first.
    pub(super) scenarios: Vec<Kind>,
    /// The shards of each node.
    pub(super) shards: Vec<u16>,
    pub(super) ring_size: u32,
    /// Voters of a group.
    pub(super) n_val: u8,
    pub(super) options: Options,
    pub(super) clients: usize,
    /// Keys of each group that clients use.
    pub(super) keys: u64,
    /// How leaders confirm reads.
    pub(super) strong_reads: StrongReads,
    /// Live groups of a shard beyond which those at rest are unloaded; none for the usual bound.
    pub(super) live_groups: Option<usize>,
    pub(super) disk: DiskOdds,
    pub(super) drift_ppm_max: u32,
    pub(super) inside: NetworkConfig,
    pub(super) outside: NetworkConfig,
    pub(super) troubles: Troubles,
    pub(super) loss: Option<Loss>,
    /// Whether all nodes are restored from backups.
    pub(super) restore: bool,
    /// Whether one of them is cut off some time before the backups, until all have one.
    pub(super) backs_up_behind: bool,
    /// The interval at which nodes compare their eventual copies, which leaves consistent types alone.
    pub(super) anti_entropy: Option<Duration>,
    /// Whether a one-way cut that lasts follows the heal.
    pub(super) lasting_cut: bool,
    /// Deaths before the end.
    pub(super) deaths: u64,
    pub(super) down_max: Duration,
    pub(super) trouble_pause_max: Duration,
    pub(super) think_max: Duration,
    /// Whether clients send some requests with short pauses, and then none for some time.
    pub(super) bursts: bool,
    /// Bytes of a value at most, beside its number.
    pub(super) padding_max: usize,
    /// Whether clients send nothing after the heal until groups are at rest.
    pub(super) quiet_heal: bool,
    pub(super) timeout_max: Duration,
    /// The longest time until a registration is committed, and until a node hears of it.
    pub(super) agreement_max: Duration,
}

impl Plan {
    pub(super) fn of(seed: Seed) -> Plan {
        let rng = &mut seed.stream("consistent plan", 0);
        let nodes = between(rng, 3, 7);
        let character = Character::of(seed);
        let has_losses = matches!(character, Character::Disks | Character::CatchUp);
        let n_val = if nodes >= 5 && !has_losses && rng.chance(1, 3) { 5 } else { 3 };
        let short = |n| u16::try_from(n).expect("a small number");
        let options = options(rng, character);
        let loss = loss(rng, character);
        let is_mixture = character == Character::Mixture;
        let ring_bits = if character == Character::CatchUp { 3 } else { between(rng, 3, 5) };
        Plan {
            character,
            scenarios: character.scenarios(loss, rng),
            shards: (0..nodes).map(|_| short(between(rng, 1, 2))).collect(),
            ring_size: 1 << ring_bits,
            n_val,
            options,
            clients: index_below(rng, 6) + 4,
            keys: if character == Character::Contention { 1 } else { between(rng, 1, 3) },
            strong_reads: strong_reads(seed),
            live_groups: live_groups(seed),
            disk: disk(rng, character),
            drift_ppm_max: if rng.chance(1, 2) { DRIFT_PPM_MAX } else { 200 },
            inside: inside(rng, character),
            outside: outside(rng),
            troubles: troubles(rng),
            loss,
            restore: restore(seed, character, loss),
            backs_up_behind: false,
            anti_entropy: rng.chance(1, 3).then_some(Duration::from_millis(500)),
            lasting_cut: rng.chance(1, 2),
            deaths: if is_mixture { between(rng, 3, 8) } else { between(rng, 1, 4) },
            down_max: duration_between(rng, Duration::from_millis(10), Duration::from_secs(4)),
            trouble_pause_max: duration_between(rng, Duration::from_millis(300), Duration::from_millis(2000)),
            think_max: duration_between(rng, Duration::from_millis(10), Duration::from_millis(80)),
            bursts: !is_mixture,
            padding_max: if character == Character::Disks { PADDING_MAX } else { 0 },
            quiet_heal: rng.chance(1, 2),
            timeout_max: duration_between(rng, Duration::from_millis(500), Duration::from_secs(4)),
            agreement_max: duration_between(rng, Duration::from_millis(20), Duration::from_millis(800)),
        }
    }

    pub(super) fn nodes(&self) -> usize {
        self.shards.len()
    }

    /// The loss that comes at random, and not with a scenario.
    pub(super) fn random_loss(&self) -> Option<Loss> {
        self.loss.filter(|_| self.character == Character::Mixture)
    }

    /// Whether operations of disks fail.
    pub(super) fn has_disk_errors(&self) -> bool {
        let DiskOdds { no_space, write_error, sync_error, .. } = self.disk;
        [no_space, write_error, sync_error].iter().any(|odds| odds.enabled())
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
        self.random_loss().iter().for_each(|loss| trace.enable(loss.fault()));
    }
}

/// Leases in three of four lives: the rest confirm each read. Drawn apart, so that lives are otherwise those without
/// leases.
fn strong_reads(seed: Seed) -> StrongReads {
    let rng = &mut seed.stream("strong reads", 0);
    if rng.chance(3, 4) { StrongReads::Lease } else { StrongReads::Ask }
}

/// So few live groups in a third of the lives that groups at rest are unloaded and loaded all the time. Drawn apart, so
/// that lives are otherwise those without.
fn live_groups(seed: Seed) -> Option<usize> {
    let rng = &mut seed.stream("live groups", 0);
    rng.chance(1, 3).then(|| index_below(rng, 3))
}

/// A restore of all nodes in one of six lives. Not of backups with flipped bits, nor of stores so small that they do
/// not take the states of all groups at once. Drawn apart, so that lives are otherwise those without.
fn restore(seed: Seed, character: Character, loss: Option<Loss>) -> bool {
    let is_drawn = seed.stream("restore", 0).chance(1, 4);
    is_drawn && character != Character::Disks && loss != Some(Loss::Flipped)
}

/// Options of all stores: so small in lives about disks that each segment and memtable has some writes.
fn options(rng: &mut SplitMix64, character: Character) -> Options {
    let size =
        |rng: &mut SplitMix64, min, max| usize::try_from(between(rng, min, max)).expect("a small number");
    let options = Options {
        groups: Some(GroupKeys { state_tag: object::key::TAG_GROUP }),
        ..draw::options(rng, Durability::Sync)
    };
    match character {
        Character::Disks => Options {
            inline_value_bytes_max: size(rng, 0, 16),
            memtable_bytes_max: size(rng, 1 << 10, 4 << 10),
            segment_bytes_target: between(rng, 8 << 10, 24 << 10),
            ..options
        },
        _ => options,
    }
}

/// A loss at random in half of the mixed lives, and one of a scenario in all about disks.
fn loss(rng: &mut SplitMix64, character: Character) -> Option<Loss> {
    let (all, scenarios) = (
        [Some(Loss::Wiped), Some(Loss::Restored), Some(Loss::Cloned), Some(Loss::Flipped)],
        [Some(Loss::Wiped), Some(Loss::Flipped), Some(Loss::SetBack)],
    );
    match character {
        Character::Mixture => all.get(index_below(rng, 2 * all.len())).copied().flatten(),
        Character::Disks => scenarios[index_below(rng, scenarios.len())],
        Character::Contention | Character::CatchUp => None,
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

/// Faults of disks: no space and slow operations, besides what a power cut does. In lives about disks also errors.
fn disk(rng: &mut SplitMix64, character: Character) -> DiskOdds {
    let rare = |rng: &mut SplitMix64| if rng.chance(1, 5) { Odds::one_in(1500) } else { Odds::NEVER };
    let fails = character == Character::Disks;
    DiskOdds {
        no_space: rare(rng),
        read_error: if fails { rare(rng) } else { Odds::NEVER },
        write_error: if fails { rare(rng) } else { Odds::NEVER },
        sync_error: if fails { rare(rng) } else { Odds::NEVER },
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

fn inside(rng: &mut SplitMix64, character: Character) -> NetworkConfig {
    let maybe = |rng: &mut SplitMix64, max| if rng.chance(1, 2) { skewed(rng, max) } else { Odds::NEVER };
    let is_contention = character == Character::Contention;
    NetworkConfig {
        delay_max: duration_between(rng, Duration::from_micros(200), Duration::from_millis(5)),
        loss: maybe(rng, LOSS_MAX),
        duplicate: if is_contention { Odds::in_a_million(DUPLICATES) } else { maybe(rng, DUPLICATE_MAX) },
        echo: if is_contention { Odds::one_in(2) } else { Odds::NEVER },
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
