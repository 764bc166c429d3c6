//! What a seed decides beforehand: the node, its clients, and what may go wrong.

use crate::disk::DiskOdds;
use crate::draw;
use crate::fault::{Fault, Odds};
use crate::network::NetworkConfig;
use crate::seed::{Seed, between, duration_between};
use crate::trace::Trace;
use backends::Kind as Backend;
use base::Rng;
use base::rng::SplitMix64;
use engine::{Durability, Options};
use node::Reaping;
use std::time::Duration;

/// A seed's plan.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) shards: u16,
    pub(super) backend: Backend,
    pub(super) options: Options,
    pub(super) clients: u32,
    pub(super) keys: u64,
    pub(super) disk: DiskOdds,
    pub(super) network: NetworkConfig,
    pub(super) reaping: Reaping,
    /// Deaths before the world may come to its end.
    pub(super) deaths: u64,
    /// Bits of what is stored that are flipped in the end.
    pub(super) flips: u64,
    /// Blocks that are put in another block's place in the end.
    pub(super) misdirects: u64,
    pub(super) clock_jumps: bool,
    /// The longest pause of the world between two blows.
    pub(super) trouble_pause_max: Duration,
    /// The longest pause of a client between two requests.
    pub(super) think_max: Duration,
}

impl Plan {
    pub(super) fn of(seed: Seed) -> Plan {
        let rng = &mut seed.stream("plan", 0);
        let durability = match rng.below(10) {
            0 => Durability::None,
            1 => Durability::Interval,
            _ => Durability::Sync,
        };
        // What is not promised to be durable cannot be told from what was damaged.
        let rots = durability == Durability::Sync && rng.chance(1, 4);
        Plan {
            shards: u16::try_from(between(rng, 1, 3)).expect("a small number"),
            backend: Backend::Annulet,
            options: draw::options(rng, durability),
            clients: u32::try_from(between(rng, 3, 8)).expect("a small number"),
            keys: between(rng, 2, 8),
            disk: draw::disk(rng),
            network: network(rng),
            reaping: Reaping::after(draw::reap_delay(&mut seed.stream("reaping", 0))),
            deaths: between(rng, 4, 8),
            flips: if rots { between(rng, 1, 2) } else { 0 },
            misdirects: if rots { rng.below(2) } else { 0 },
            clock_jumps: rng.chance(1, 4),
            trouble_pause_max: duration_between(rng, Duration::from_millis(30), Duration::from_millis(150)),
            think_max: duration_between(rng, Duration::from_millis(1), Duration::from_millis(8)),
        }
    }
}

impl Plan {
    /// The same on stores of another backend, and without silent damage: a scan that comes upon it is an error there.
    pub(super) fn on(self, backend: Backend) -> Plan {
        if backend == Backend::Annulet {
            return self;
        }
        let (options, disk) = draw::of_backend(backend, self.options, self.disk);
        // An actor of its own in each start is told from those before by the clock alone.
        let clock_jumps = self.clock_jumps && options.durability == Durability::Sync;
        Plan { backend, options, disk, clock_jumps, flips: 0, misdirects: 0, ..self }
    }

    /// Whether a clean stop takes all that there is.
    pub(super) fn forgets(&self) -> bool {
        !self.backend.is_kept()
    }

    /// Whether silent damage is done.
    pub(super) fn rots(&self) -> bool {
        self.flips + self.misdirects > 0
    }

    /// Whether disk operations may fail.
    pub(super) fn has_disk_errors(&self) -> bool {
        let odds = [self.disk.read_error, self.disk.write_error, self.disk.sync_error, self.disk.no_space];
        odds.into_iter().any(Odds::enabled)
    }

    /// Tells `trace` which faults the world itself means to have; network and disk tell of theirs.
    pub(super) fn enable(&self, trace: &Trace) {
        let faults = [
            (true, Fault::PowerCut),
            (true, Fault::ProcessKill),
            (!self.forgets(), Fault::CrashInWrite),
            (!self.forgets(), Fault::LostBlock),
            (self.clock_jumps, Fault::ClockJump),
            (self.flips > 0, Fault::BitFlip),
            (self.misdirects > 0, Fault::Misdirect),
        ];
        faults.into_iter().filter(|(enabled, _)| *enabled).for_each(|(_, fault)| trace.enable(fault));
    }
}

fn network(rng: &mut SplitMix64) -> NetworkConfig {
    NetworkConfig {
        loss: draw::maybe(rng, Odds::one_in(30)),
        duplicate: draw::maybe(rng, Odds::one_in(30)),
        reorder: draw::maybe(rng, Odds::one_in(30)),
        lag: draw::maybe(rng, Odds::one_in(100)),
        lag_max: Duration::from_millis(20),
        ..NetworkConfig::CALM
    }
}
