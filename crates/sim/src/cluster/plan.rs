//! What a seed decides beforehand: the nodes, the clients, and what may go wrong between and on them.

use super::{BUCKETS, ONCE, REPLICAS};
use crate::check::history::ONCE_TYPE;
use crate::disk::DiskOdds;
use crate::draw;
use crate::fault::{Fault, Odds};
use crate::network::NetworkConfig;
use crate::seed::{Seed, between, duration_between, index_below};
use crate::trace::Trace;
use backends::Kind as Backend;
use base::Rng;
use base::rng::SplitMix64;
use engine::fold::JournalCheck;
use engine::{Durability, Options};
use kv::reap::{FOLD_ACTORS, REAP_MAX};
use node::store::TypeBackends;
use node::store::founding::Founding;
use node::{Reaping, Rebuilding, Turns};
use std::time::Duration;

/// The most messages between nodes that are lost, in parts of a million.
const LOSS_MAX: u64 = 300_000;
/// The most that come twice.
const DUPLICATE_MAX: u64 = 500_000;

/// Of so many clusters, operators have the nodes of one reap tombstones and erase objects.
const PURGES: u64 = 3;
/// Of so many of these, clients delete what they have not seen in one.
const PURGES_EXCUSED: u64 = 3;

/// In a large cluster: at least so many partitions for each node.
const PARTITIONS_EACH: u32 = 4;

/// How much longer than what is on its way a grave lasts: the clocks of two nodes do not run at one speed.
const GRAVE_SLACK: Duration = Duration::from_secs(1);

/// What becomes of a node's disk, once in a seed at most: a cluster survives the loss of one copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// It is empty.
    Wiped,
    /// It is an older copy of itself.
    Restored,
    /// It is a copy of another node's.
    Cloned,
    /// It is gone, and so is the node.
    Gone,
}

impl Loss {
    pub(super) fn fault(self) -> Fault {
        match self {
            Loss::Wiped => Fault::Wiped,
            Loss::Restored => Fault::Restored,
            Loss::Cloned => Fault::Cloned,
            Loss::Gone => Fault::GoneForGood,
        }
    }
}

/// What the world does to nodes and links.
#[derive(Clone, Copy, Debug)]
pub(super) struct Troubles {
    pub(super) partitions: bool,
    pub(super) one_way: bool,
    pub(super) flapping: bool,
    /// When links are mended, now and then two nodes stay cut from each other alone: everybody else sees both up.
    pub(super) strays: bool,
    pub(super) pauses: bool,
    pub(super) clock_jumps: bool,
    /// Now and then a disk is slow for a while.
    pub(super) slow_disks: bool,
    /// Nodes are told when a link goes down, and messages that cannot be sent come back.
    pub(super) links_tell: bool,
}

/// A seed's plan.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// How many are members from the beginning, where that is not left to chance.
    pub(super) founders: Option<usize>,
    /// The shards of each node, of those too that are members later.
    pub(super) shards: Vec<u16>,
    pub(super) ring_size: u32,
    /// Of all stores the one that can do least.
    pub(super) backend: Backend,
    /// Bucket types with that beside the engine; if there are none, all is of it.
    pub(super) types: TypeBackends,
    pub(super) options: Options,
    pub(super) clients: u32,
    /// Keys of each bucket.
    pub(super) keys: u64,
    /// The bucket whose objects end, and how many days after they are written.
    pub(super) ttl: Option<(usize, u32)>,
    /// What all buckets say.
    pub(super) node_confirms: u32,
    pub(super) disk: DiskOdds,
    /// Between nodes.
    pub(super) inside: NetworkConfig,
    /// Between clients and nodes.
    pub(super) outside: NetworkConfig,
    pub(super) troubles: Troubles,
    pub(super) loss: Option<Loss>,
    /// What becomes of tombstones.
    pub(super) reaping: Reaping,
    /// How often nodes compare what they hold.
    pub(super) anti_entropy: Option<Duration>,
    /// How often they make their trees anew, and what they look for.
    pub(super) rebuilding: Rebuilding,
    /// Whether partitions move from node to node.
    pub(super) moves: bool,
    /// Whether operators purge buckets.
    pub(super) purges: bool,
    /// Whether clients delete what they have not seen. Such a delete excuses whatever an erase takes wrongly.
    pub(super) deletes_unseen: bool,
    /// Deaths before the world may come to its end.
    pub(super) deaths: u64,
    /// The longest that a node is down.
    pub(super) down_max: Duration,
    /// The longest pause of the world between two blows.
    pub(super) trouble_pause_max: Duration,
    /// The longest pause of a client between two requests.
    pub(super) think_max: Duration,
    /// The longest that a request may take.
    pub(super) timeout_max: Duration,
}

impl Plan {
    /// With as many nodes as are asked for, those that come later included; else a handful.
    pub(super) fn of(seed: Seed, nodes: Option<u16>) -> Plan {
        let rng = &mut seed.stream("cluster plan", 0);
        let durability = match rng.below(12) {
            0 => Durability::None,
            1 => Durability::Interval,
            _ => Durability::Sync,
        };
        // A disk may be lost only where what was acknowledged is on two.
        let loss = (durability == Durability::Sync && rng.chance(1, 2)).then(|| loss(rng));
        let short = |n| u16::try_from(n).expect("a small number");
        let few = between(rng, 3, 5);
        let purges = seed.stream("purges", 0).chance(1, PURGES);
        let plan = Plan {
            founders: None,
            shards: (0..few).map(|_| short(between(rng, 1, 2))).collect(),
            ring_size: 1 << between(rng, 3, 6),
            backend: Backend::Annulet,
            types: TypeBackends::default(),
            options: draw::options(rng, durability),
            clients: u32::try_from(between(rng, 4, 9)).expect("a small number"),
            keys: between(rng, 2, 5),
            ttl: ttl(&mut seed.stream("ttl", 0)),
            node_confirms: if loss.is_some() { 2 } else { u32::try_from(rng.below(3)).expect("small") },
            disk: disk(rng),
            inside: inside(rng),
            outside: outside(rng),
            troubles: troubles(rng),
            loss,
            reaping: Reaping::after(None),
            anti_entropy: anti_entropy(&mut seed.stream("anti-entropy", 0)),
            rebuilding: rebuilding(&mut seed.stream("rebuilding", 0)),
            moves: false,
            purges,
            deletes_unseen: !purges || seed.stream("purges", 1).chance(1, PURGES_EXCUSED),
            deaths: between(rng, 3, 8),
            down_max: duration_between(rng, Duration::from_millis(10), Duration::from_millis(1500)),
            trouble_pause_max: duration_between(rng, Duration::from_millis(200), Duration::from_millis(900)),
            think_max: duration_between(rng, Duration::from_millis(10), Duration::from_millis(60)),
            timeout_max: duration_between(rng, Duration::from_millis(300), Duration::from_millis(2500)),
        };
        let plan = nodes.map_or(plan.clone(), |nodes| plan.grown(seed, nodes));
        let reaping = reaping(seed, &plan);
        // A fallback and the primary whose hint it keeps: the one pair whose cut a reaping might overlook.
        let strays =
            reaping.delay.is_some() && plan.nodes() > REPLICAS && seed.stream("strays", 0).chance(1, 2);
        // A crash that takes what was acknowledged takes it from what was copied, too.
        let moves = durability == Durability::Sync
            && plan.nodes() > REPLICAS
            && (nodes.is_some() || seed.stream("moves", 0).chance(1, 2));
        let mut shards = plan.shards;
        if moves && nodes.is_none() {
            // One more that may come.
            shards.push(short(between(&mut seed.stream("newcomer", 0), 1, 2)));
        }
        Plan { shards, moves, reaping, troubles: Troubles { strays, ..plan.troubles }, ..plan }
    }

    /// A node alone: its disk fails more often than those of a cluster, and it is down for milliseconds only.
    pub(super) fn alone(seed: Seed) -> Plan {
        let calm = Plan::calm(seed, 1);
        let rng = &mut seed.stream("plan", 0);
        let durability = match rng.below(10) {
            0 => Durability::None,
            1 => Durability::Interval,
            _ => Durability::Sync,
        };
        Plan {
            shards: vec![u16::try_from(between(rng, 1, 3)).expect("a small number")],
            options: draw::options(rng, durability),
            clients: u32::try_from(between(rng, 3, 8)).expect("a small number"),
            keys: between(rng, 2, 8),
            disk: draw::disk(rng),
            outside: NetworkConfig {
                loss: draw::maybe(rng, Odds::one_in(30)),
                duplicate: draw::maybe(rng, Odds::one_in(30)),
                reorder: draw::maybe(rng, Odds::one_in(30)),
                lag: draw::maybe(rng, Odds::one_in(100)),
                lag_max: Duration::from_millis(20),
                ..NetworkConfig::CALM
            },
            reaping: Reaping::after(draw::reap_delay(&mut seed.stream("reaping", 0))),
            deaths: between(rng, 4, 8),
            troubles: Troubles { clock_jumps: rng.chance(1, 4), ..calm.troubles },
            down_max: Duration::from_millis(8),
            trouble_pause_max: duration_between(rng, Duration::from_millis(30), Duration::from_millis(150)),
            think_max: duration_between(rng, Duration::from_millis(1), Duration::from_millis(8)),
            // Far longer than any fault lasts: no request may time out.
            timeout_max: Duration::from_secs(20),
            ..calm
        }
    }

    /// Whether there is one node, and one replica.
    pub(super) fn is_alone(&self) -> bool {
        self.nodes() == 1
    }

    /// Whether a clean stop loses all data: with stores in memory.
    pub(super) fn forgets(&self) -> bool {
        !self.backend.is_kept()
    }

    /// How many of [`BUCKETS`] clients use. On a node alone, the two that have a check at each read.
    pub(super) fn buckets(&self) -> usize {
        if self.is_alone() { 2 } else { BUCKETS.len() }
    }

    /// How long a world lives at most before it is calmed down.
    pub(super) fn life_max(&self) -> Duration {
        Duration::from_secs(if self.is_alone() { 8 } else { 120 })
    }

    /// How long a node with a failed disk goes on at most.
    pub(super) fn fenced_max(&self) -> Duration {
        Duration::from_millis(if self.is_alone() { 15 } else { 400 })
    }

    /// The same on stores of another backend, of which no trees can be made.
    pub(super) fn on(self, backend: Backend) -> Plan {
        if backend == Backend::Annulet {
            return self;
        }
        // On a node alone, only the clock tells the actor of a start from those of earlier starts.
        let may_jump = |options: &Options| !self.is_alone() || options.durability == Durability::Sync;
        let (options, disk) = draw::of_backend(backend, self.options.clone(), self.disk);
        let clock_jumps = self.troubles.clock_jumps && may_jump(&options);
        let troubles = Troubles { slow_disks: false, clock_jumps, ..self.troubles };
        Plan { backend, options, disk, troubles, anti_entropy: None, ..self }
    }

    /// The same where objects of one bucket type are in a store of another backend, beside the engine: with what both
    /// can do.
    pub(super) fn of_types(self) -> Plan {
        let pair = format!("{}={}", ONCE_TYPE.escape_ascii(), Backend::Bitcask.name());
        let types = TypeBackends::read(&pair).expect("it is a type and a backend");
        Plan { types, ..self.on(Backend::Bitcask) }
    }

    /// What each node's stores are.
    pub(super) fn founding(&self) -> Founding {
        match self.types.is_empty() {
            true => Founding { backend: self.backend, types: TypeBackends::default() },
            false => Founding { backend: Backend::Annulet, types: self.types.clone() },
        }
    }

    /// One in which nothing goes wrong by chance, with so many nodes: what does, a script does.
    pub(super) fn calm(seed: Seed, nodes: usize) -> Plan {
        let rng = &mut seed.stream("calm plan", 0);
        let count = u32::try_from(nodes).expect("few nodes");
        let troubles = Troubles {
            partitions: false,
            one_way: false,
            flapping: false,
            strays: false,
            pauses: false,
            clock_jumps: false,
            slow_disks: false,
            links_tell: rng.chance(1, 2),
        };
        Plan {
            founders: None,
            shards: vec![1; nodes],
            // Each node owns something.
            ring_size: (1 << between(rng, 3, 6)).max(count.next_power_of_two()),
            backend: Backend::Annulet,
            types: TypeBackends::default(),
            options: draw::options(rng, Durability::Sync),
            clients: 0,
            keys: 1,
            ttl: None,
            node_confirms: 0,
            disk: DiskOdds::SOUND,
            inside: NetworkConfig::CALM,
            outside: NetworkConfig::CALM,
            troubles,
            loss: None,
            reaping: Reaping::after(None),
            moves: false,
            purges: false,
            deletes_unseen: true,
            anti_entropy: None,
            rebuilding: Rebuilding::default(),
            deaths: 0,
            down_max: Duration::from_millis(500),
            trouble_pause_max: Duration::from_secs(1),
            think_max: Duration::from_millis(20),
            timeout_max: Duration::from_secs(5),
        }
    }

    /// The same with this many nodes: more clients and keys, so that most nodes have some; and more blows, since each
    /// hits one of many.
    fn grown(self, seed: Seed, nodes: u16) -> Plan {
        let rng = &mut seed.stream("nodes", 0);
        let share = u32::from(nodes) / 4;
        let shards = (0..nodes).map(|_| u16::try_from(between(rng, 1, 2)).expect("a small number"));
        Plan {
            shards: shards.collect(),
            ring_size: self.ring_size.max(u32::from(nodes).next_power_of_two() * PARTITIONS_EACH),
            clients: self.clients + share,
            keys: self.keys + u64::from(share),
            deaths: self.deaths + u64::from(share),
            trouble_pause_max: self.trouble_pause_max / 2,
            ..self
        }
    }

    /// How many nodes there are, in all.
    pub(super) fn nodes(&self) -> usize {
        self.shards.len()
    }

    /// Whether disk operations may fail.
    pub(super) fn has_disk_errors(&self) -> bool {
        let odds = [self.disk.read_error, self.disk.write_error, self.disk.sync_error, self.disk.no_space];
        odds.into_iter().any(Odds::enabled)
    }

    /// Tells `trace` which faults the world itself means to have; networks and disks tell of theirs.
    pub(super) fn enable(&self, trace: &Trace) {
        let Troubles { partitions, one_way, flapping, pauses, clock_jumps, links_tell, .. } = self.troubles;
        let faults = [
            (true, Fault::PowerCut),
            (true, Fault::ProcessKill),
            (!self.forgets(), Fault::CrashInWrite),
            (!self.forgets(), Fault::LostBlock),
            (partitions, Fault::Partition),
            (one_way, Fault::OneWay),
            (flapping, Fault::Flapping),
            (partitions && links_tell, Fault::Bounce),
            (pauses, Fault::Pause),
            (clock_jumps, Fault::ClockJump),
        ];
        faults.into_iter().filter(|(enabled, _)| *enabled).for_each(|(_, fault)| trace.enable(fault));
        self.loss.iter().for_each(|loss| trace.enable(loss.fault()));
    }
}

/// Nodes do not reap where a crash may take what was acknowledged; and a disk that is an older copy of itself brings
/// back what was reaped since: then nothing may be.
fn reaping(seed: Seed, plan: &Plan) -> Reaping {
    let is_safe = plan.options.durability == Durability::Sync && plan.loss != Some(Loss::Restored);
    let delay = draw::reap_delay(&mut seed.stream("reaping", 0)).filter(|_| is_safe);
    let inside = &plan.inside;
    let longest = if inside.late.enabled() { inside.late_max } else { inside.lag_max };
    // Half of the clusters fold as soon as there is something to fold, whose disks are not older copies.
    let folds = is_safe && seed.stream("folding", 0).chance(1, 2);
    let fold_actors = if folds { 1 } else { FOLD_ACTORS };
    Reaping { delay, grave: REAP_MAX + longest + GRAVE_SLACK, fold_actors }
}

/// In a third of the clusters the objects of a bucket end: on another day than today, so that nodes compare them.
fn ttl(rng: &mut SplitMix64) -> Option<(usize, u32)> {
    let bucket = index_below(rng, ONCE);
    let days = u32::try_from(between(rng, 3, 9)).expect("some days");
    rng.chance(1, 3).then_some((bucket, days))
}

/// Half of the clusters compare what their nodes hold.
fn anti_entropy(rng: &mut SplitMix64) -> Option<Duration> {
    let interval = duration_between(rng, Duration::from_millis(50), Duration::from_secs(2));
    rng.chance(1, 2).then_some(interval)
}

fn rebuilding(rng: &mut SplitMix64) -> Rebuilding {
    let every = duration_between(rng, Duration::from_millis(100), Duration::from_secs(2));
    let check = match rng.below(3) {
        0 => JournalCheck::None,
        1 => JournalCheck::Presence,
        _ => JournalCheck::Checksum,
    };
    let turns = if rng.chance(1, 2) { Turns::Node } else { Turns::Cluster };
    Rebuilding { every: rng.chance(1, 2).then_some(every), check, turns }
}

fn loss(rng: &mut SplitMix64) -> Loss {
    match rng.below(4) {
        0 => Loss::Wiped,
        1 => Loss::Restored,
        2 => Loss::Cloned,
        _ => Loss::Gone,
    }
}

fn troubles(rng: &mut SplitMix64) -> Troubles {
    Troubles {
        partitions: rng.chance(1, 2),
        one_way: rng.chance(1, 3),
        flapping: rng.chance(1, 4),
        strays: false,
        pauses: rng.chance(1, 2),
        clock_jumps: rng.chance(1, 3),
        slow_disks: rng.chance(1, 3),
        links_tell: rng.chance(1, 2),
    }
}

/// Disks of a cluster fail more rarely: there are several of them.
fn disk(rng: &mut SplitMix64) -> DiskOdds {
    let rare = |rng: &mut SplitMix64| if rng.chance(1, 6) { Odds::one_in(1500) } else { Odds::NEVER };
    DiskOdds {
        read_error: rare(rng),
        write_error: rare(rng),
        sync_error: rare(rng),
        no_space: rare(rng),
        ..draw::disk(rng)
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
        late_max: duration_between(rng, Duration::from_secs(1), Duration::from_secs(20)),
        ..NetworkConfig::CALM
    }
}

fn outside(rng: &mut SplitMix64) -> NetworkConfig {
    NetworkConfig {
        loss: draw::maybe(rng, Odds::one_in(40)),
        duplicate: draw::maybe(rng, Odds::one_in(60)),
        lag: draw::maybe(rng, Odds::one_in(100)),
        lag_max: Duration::from_millis(40),
        ..NetworkConfig::CALM
    }
}
