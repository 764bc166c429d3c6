//! Links between nodes that are cut together: for a while, or again and again.
//!
//! A world holds the partition that is under way, and carries its changes out: it cuts and mends the links when
//! [`Partition::change`] says so, and comes back at [`Partition::next_change`].

use crate::fault::Fault;
use crate::seed::{duration_between, index_below};
use crate::trace::Trace;
use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use std::time::Duration;

/// The shortest and the longest time between two changes of a flapping link.
const FLAP: (Duration, Duration) = (Duration::from_millis(30), Duration::from_millis(800));

/// The kinds of partitions that a world has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kinds {
    pub(crate) both_ways: bool,
    pub(crate) one_way: bool,
    pub(crate) flapping: bool,
}

/// Links that are cut.
#[derive(Debug)]
pub(crate) struct Partition {
    /// The links, each from a node to another.
    pub(crate) links: Vec<(usize, usize)>,
    until: Monotonic,
    kind: Fault,
    is_cut: bool,
}

impl Partition {
    /// A partition of the links both ways until an instant.
    pub(crate) fn of(links: Vec<(usize, usize)>, until: Monotonic) -> Partition {
        Partition { links, until, kind: Fault::Partition, is_cut: false }
    }

    /// Draws a partition of so many nodes that begins now, and traces it; none in a world without any. `time` is the
    /// shortest and the longest time that it lasts.
    pub(crate) fn begin(
        kinds: Kinds,
        nodes: usize,
        time: (Duration, Duration),
        now: Monotonic,
        (trace, rng): (&Trace, &mut SplitMix64),
    ) -> Option<Partition> {
        let kinds = [
            (kinds.both_ways, Fault::Partition),
            (kinds.one_way, Fault::OneWay),
            (kinds.flapping, Fault::Flapping),
        ];
        let kinds: Vec<Fault> = kinds.into_iter().filter(|(is, _)| *is).map(|(_, kind)| kind).collect();
        if kinds.is_empty() {
            return None;
        }

        let kind = kinds[index_below(rng, kinds.len())];
        let is_one_way = kind == Fault::OneWay || kind == Fault::Flapping && rng.chance(1, 3);
        let links = draw_links(nodes, is_one_way, rng);
        let until = now + duration_between(rng, time.0, time.1);
        trace.fault(kind, format_args!("{links:?} until {}", until.0 / 1000));
        Some(Partition { links, until, kind, is_cut: false })
    }

    /// Takes the change that is due; whether the links are cut from now on. None if they are mended for good already.
    pub(crate) fn change(&mut self, now: Monotonic) -> Option<bool> {
        if now >= self.until && !self.is_cut {
            return None;
        }
        self.is_cut = !self.is_cut;
        Some(self.is_cut)
    }

    /// When the next change is due; none at the end.
    pub(crate) fn next_change(&self, now: Monotonic, rng: &mut SplitMix64) -> Option<Monotonic> {
        match self.kind {
            _ if now >= self.until => None,
            Fault::Flapping => Some(now + duration_between(rng, FLAP.0, FLAP.1)),
            _ => Some(self.until),
        }
    }
}

/// The links between some nodes and the rest; or, in one of four cases, any links.
fn draw_links(nodes: usize, is_one_way: bool, rng: &mut SplitMix64) -> Vec<(usize, usize)> {
    let pairs = (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b))).filter(|(a, b)| a != b);
    let side: Vec<bool> = (0..nodes).map(|_| rng.chance(1, 2)).collect();
    let alone = index_below(rng, nodes);
    let is_split = side.contains(&true) && side.contains(&false);
    let side = |at: usize| if is_split { side[at] } else { at == alone };
    let mut links: Vec<_> = match rng.chance(1, 4) {
        true => pairs.filter(|_| rng.chance(1, 3)).collect(),
        false => pairs.filter(|(a, b)| side(*a) && !side(*b)).collect(),
    };
    if !is_one_way {
        let back: Vec<_> = links.iter().map(|(a, b)| (*b, *a)).collect();
        links.extend(back);
    }
    links
}
