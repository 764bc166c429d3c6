//! Silent damage to a node alone: in some seeds, at the end of its life, bits flip and blocks land in wrong places.
//!
//! Damage is done only where it can be told from the effects of a crash:
//!
//! * In the journal, only before a place that a later synced group vouches for: the last synced group looks
//!   like a torn tail (`engine`'s `journal/replay.rs` says so). The end of what was written to a file is watched; where
//!   it was two ends ago is vouched for. With three ends seen of the newest segment, so are all older ones.
//! * In segments that compaction wrote, everywhere behind the header: no crash can excuse it.
//! * In tables, in the first half: data blocks. Damage to an index keeps a store from opening, which is a
//!   promise too, but ends the world.
//! * Nowhere else.

use super::World;
use super::plan::Plan;
use crate::disk::SimDisk;
use crate::fault::Fault;
use crate::machine::DATA;
use crate::seed::{Seed, between, index_below};
use crate::trace::Trace;
use backends::Kind as Backend;
use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use engine::Durability;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The unit that is written in the wrong place.
const BLOCK: u64 = 512;
/// The header of a segment, whose damage is that of the whole segment.
const HEADER: u64 = 64;

/// Equal blocks are no damage: how often to look for two others.
const TRIES_MAX: usize = 16;

/// The damage that a seed has planned.
#[derive(Debug, Default)]
pub(super) struct Rot {
    /// Stored bits that are flipped.
    flips: u64,
    /// Blocks that are put in another block's place.
    misdirects: u64,
    watch: Watch,
}

impl Rot {
    /// In a quarter of the seeds of a node alone, at durability `sync`, on the engine. At a lower durability lost data
    /// cannot be told from damaged data; on another backend a scan that comes upon damage fails as a whole.
    pub(super) fn of(seed: Seed, plan: &Plan) -> Rot {
        let rng = &mut seed.stream("rot", 0);
        let can_be_told = plan.backend == Backend::Annulet && plan.options.durability == Durability::Sync;
        match plan.is_alone() && can_be_told && rng.chance(1, 4) {
            true => Rot { flips: between(rng, 1, 2), misdirects: rng.below(2), watch: Watch::default() },
            false => Rot::default(),
        }
    }

    pub(super) fn is_planned(&self) -> bool {
        self.flips + self.misdirects > 0
    }

    /// Tells `trace` which faults it means to have.
    pub(super) fn enable(&self, trace: &Trace) {
        let faults = [(self.flips, Fault::BitFlip), (self.misdirects, Fault::Misdirect)];
        faults.into_iter().filter(|(count, _)| *count > 0).for_each(|(_, fault)| trace.enable(fault));
    }

    pub(super) fn on_death(&mut self) {
        self.watch.0.clear();
    }
}

impl World {
    /// Notes how far the segments have been written, which decides where damage is allowed.
    pub(super) fn watch_rot(&mut self) {
        if self.rot.is_planned() {
            self.rot.watch.look(&self.hosts[0].machine.disk);
        }
    }

    /// Does the planned damage. True when all of it is done, or time is up.
    pub(super) fn is_rotted(&mut self) -> bool {
        self.rot.enable(&self.trace);
        let (disk, rot) = (&self.hosts[0].machine.disk, &self.rot);
        if self.trace.count(Fault::BitFlip) < rot.flips {
            self.is_rotten |= rot.watch.flip(disk, &mut self.rng);
        }
        if self.trace.count(Fault::Misdirect) < rot.misdirects {
            self.is_rotten |= rot.watch.misdirect(disk, &mut self.rng);
        }
        let done = self.trace.count(Fault::BitFlip) >= rot.flips
            && self.trace.count(Fault::Misdirect) >= rot.misdirects;
        done || self.events.now() >= Monotonic(0) + self.plan.life_max() * 2
    }
}

/// The ends that each journal segment was seen with since the process began.
#[derive(Debug, Default)]
pub(crate) struct Watch(BTreeMap<PathBuf, Vec<u64>>);

impl Watch {
    /// Looks at all segments.
    pub(crate) fn look(&mut self, disk: &SimDisk) {
        for (path, len) in disk.written().into_iter().filter(|(path, _)| is_in(path, "journal")) {
            let lens = self.0.entry(path).or_default();
            if lens.last() != Some(&len) {
                lens.push(len);
            }
        }
    }

    /// Stretches that may be damaged.
    fn places(&self, disk: &SimDisk) -> Vec<(PathBuf, u64, u64)> {
        let files = disk.written();
        let mut places = Vec::new();
        for (at, (path, len)) in files.iter().enumerate() {
            if is_in(path, "tables") && path.extension().is_none_or(|extension| extension != "tmp") {
                places.push((path.clone(), 0, len / 2));
            } else if is_compacted(path) {
                places.push((path.clone(), HEADER, *len));
            } else if is_in(path, "journal") {
                let newer = &files[at + 1..];
                let vouched_by_newer = newer
                    .iter()
                    .filter(|(other, _)| other.parent() == path.parent() && !is_compacted(other))
                    .any(|(other, _)| self.lens(other).len() >= 3);
                let own = self.lens(path);
                let vouched =
                    if vouched_by_newer { *len } else { own.len().checked_sub(3).map_or(0, |at| own[at]) };
                places.push((path.clone(), HEADER, vouched));
            }
        }
        places.retain(|(_, from, to)| to > from);
        places
    }

    fn lens(&self, path: &PathBuf) -> &[u64] {
        self.0.get(path).map_or(&[], Vec::as_slice)
    }

    /// Flips a bit somewhere.
    pub(crate) fn flip(&self, disk: &SimDisk, rng: &mut SplitMix64) -> bool {
        flip_in(&self.places(disk), disk, rng)
    }

    /// Flips a bit of the journal somewhere.
    pub(crate) fn flip_journal(&self, disk: &SimDisk, rng: &mut SplitMix64) -> bool {
        let mut places = self.places(disk);
        places.retain(|(path, ..)| is_in(path, "journal") && !is_compacted(path));
        flip_in(&places, disk, rng)
    }

    /// Puts a block in another block's place.
    fn misdirect(&self, disk: &SimDisk, rng: &mut SplitMix64) -> bool {
        let blocks = |(path, from, to): (PathBuf, u64, u64)| {
            let (first, end) = (from.div_ceil(BLOCK), to / BLOCK);
            (first < end).then_some((path, first, end))
        };
        let places: Vec<_> = self.places(disk).into_iter().filter_map(blocks).collect();
        if places.is_empty() {
            return false;
        }
        let mut draw = || {
            let (path, first, end) = &places[index_below(rng, places.len())];
            (path.clone(), BLOCK * (first + rng.below(end - first)))
        };
        (0..TRIES_MAX).any(|_| {
            let (from, to) = (draw(), draw());
            disk.copy_block((&from.0, from.1), (&to.0, to.1), BLOCK)
        })
    }
}

/// Flips a bit in one of these stretches.
fn flip_in(places: &[(PathBuf, u64, u64)], disk: &SimDisk, rng: &mut SplitMix64) -> bool {
    if places.is_empty() {
        return false;
    }
    let (path, from, to) = &places[index_below(rng, places.len())];
    let offset = from + rng.below(to - from);
    disk.flip_bit(path, offset, u8::try_from(rng.below(8)).expect("a small number"))
}

/// Whether compaction wrote the segment: its number has the top bit.
fn is_compacted(path: &std::path::Path) -> bool {
    is_in(path, "journal")
        && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(|digit| digit >= '8'))
}

fn is_in(path: &std::path::Path, folder: &str) -> bool {
    path.starts_with(DATA) && path.parent().is_some_and(|parent| parent.ends_with(folder))
}
