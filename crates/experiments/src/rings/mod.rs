//! The ring, measured in this process: no node is started.
//!
//! A [`Shape`] is so many partitions of so many nodes, all of one weight and in one zone, claimed; a [`Figure`] is a
//! cost on it. A node's shard ([`RingShard`]) places requests and takes publications. [`Figure::measure`] makes the
//! ring, does the measured work once to warm up, and once more under a clock. Times are CPU times of the thread, so
//! that other users of the core do not count; the time of a file is the wall's, since it waits for the disk.
//!
//! Left out: the hash of a key, which comes before a preference list; how nodes agree on a ring (`sim --changes`).

mod change;
mod file;
pub(crate) mod rows;
mod shard;

pub use shard::RingShard;

use base::Rng;
use base::rng::SplitMix64;
use bench::Error;
use change::Change;
use node::{Epoch, Topology};
use ring::{Member, MemberState, Members, NodeId, Partition, Position, Ring, RingSize, RingVersion};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Preference lists in a round: enough for caches to be as they are on a busy node.
const LISTS: usize = 1_000_000;
/// Of all nodes one in so many is down.
const DOWN: u16 = 10;
/// Replicas.
const N_VAL: u32 = 3;
/// Partitions of a ring that are tried for the slowest: enough to find a bad one, and few enough for a second.
const TRIED: u32 = 64;
/// How often each of them is tried: the best of these is its own, and not an interrupt's.
const TRIES: usize = 30;

/// How large a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Shape {
    partitions: RingSize,
    nodes: u16,
}

/// What is measured of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// The placement of a request of three replicas at a random partition, with a tenth of the nodes down: the mean of
    /// a million.
    ListNs,
    /// The same with all nodes up.
    ListAllUpNs,
    /// The slowest partition, with the first tenth of its preference list down.
    ListWorstUs,
    /// A join published to a shard: members, ring and target made, and taken by the shard.
    PublishMs,
    /// How often a shard takes a publication that is not later than the one before.
    PublishedAgain,
    /// To replace the file of the metadata log by one that has the ring, durably.
    FileMs,
    /// A covering set of all partitions, while a tenth of the nodes is down.
    CoverMs,
    /// To claim all partitions anew.
    ClaimS,
    /// To claim them when a node joins.
    JoinS,
    /// When one leaves.
    LeaveS,
    /// When one takes another's place.
    ReplaceS,
    /// When a node joins, of nodes in ten zones.
    #[serde(rename = "join-10-zones-s")]
    JoinTenZonesS,
    /// Of nodes in three zones, which are too few for neighbours to differ: so it searches to its bound.
    #[serde(rename = "join-3-zones-s")]
    JoinThreeZonesS,
    /// Partitions that move when a node joins, over those that it is to have.
    JoinMoved,
    /// Then, those of the node that has most less those of the one that has fewest.
    JoinUneven,
    /// Then, partitions whose copies are on fewer nodes than they could be.
    JoinShortfalls,
}

impl Figure {
    /// What it is counted in.
    pub fn unit(self) -> &'static str {
        match self {
            Figure::ListNs | Figure::ListAllUpNs => "ns",
            Figure::ListWorstUs => "us",
            Figure::PublishMs | Figure::FileMs | Figure::CoverMs => "ms",
            Figure::ClaimS
            | Figure::JoinS
            | Figure::LeaveS
            | Figure::ReplaceS
            | Figure::JoinTenZonesS
            | Figure::JoinThreeZonesS => "s",
            Figure::PublishedAgain => "times",
            Figure::JoinUneven | Figure::JoinShortfalls => "partitions",
            Figure::JoinMoved => "",
        }
    }

    /// Of a ring of this shape. A file is written in `folder`, which must be there, and removed.
    ///
    /// # Errors
    /// If there can be no such ring, or the file cannot be written.
    pub fn measure(self, shape: Shape, folder: &Path) -> Result<f64, Error> {
        match self {
            Figure::ListNs => shape.lists(&shape.down(), folder),
            Figure::ListAllUpNs => shape.lists(&[], folder),
            Figure::ListWorstUs => shape.worst(folder),
            Figure::PublishMs => shape.publish(folder),
            Figure::PublishedAgain => shape.publish_again(folder),
            Figure::FileMs => file::replace(shape, folder).map(|took| took.as_secs_f64() * 1e3),
            Figure::CoverMs => shape.cover(),
            Figure::ClaimS => change::ANEW.claim(shape).map(|it| it.took_s),
            Figure::JoinS => change::JOIN.claim(shape).map(|it| it.took_s),
            Figure::LeaveS => change::LEAVE.claim(shape).map(|it| it.took_s),
            Figure::ReplaceS => change::REPLACE.claim(shape).map(|it| it.took_s),
            Figure::JoinTenZonesS => Change { zones: 10, ..change::JOIN }.claim(shape).map(|it| it.took_s),
            Figure::JoinThreeZonesS => Change { zones: 3, ..change::JOIN }.claim(shape).map(|it| it.took_s),
            Figure::JoinMoved => change::JOIN.claim(shape).map(|it| it.moved_over_least()),
            Figure::JoinUneven => change::JOIN.claim(shape).map(|it| it.uneven()),
            Figure::JoinShortfalls => change::JOIN.claim(shape).map(|it| it.shortfalls as f64),
        }
    }
}

impl Shape {
    /// So many partitions of so many nodes.
    ///
    /// # Errors
    /// What cannot be.
    pub fn new(partitions: u32, nodes: u16) -> Result<Shape, String> {
        let size = RingSize::new(partitions).map_err(|error| error.to_string())?;
        // One more may join, and one may leave.
        match nodes > 0 && u32::from(nodes) <= partitions {
            true => Ok(Shape { partitions: size, nodes }),
            false => Err(format!("a ring of {partitions} partitions has 1 to {partitions} nodes")),
        }
    }

    /// Members in so many zones, of which these leave.
    fn members(self, joining: u16, zones: u16, leave: &[u16]) -> Result<Arc<Members>, Error> {
        let member = |id: u16| {
            let member = Member::new(NodeId(id), &format!("node{id}"));
            let state = if leave.contains(&id) { MemberState::Leaving } else { MemberState::Valid };
            Member { zone: format!("zone{}", id % zones).into(), state, ..member }
        };
        Ok(Arc::new(Members::new((0..self.nodes + joining).map(member)).map_err(unusable)?))
    }

    /// The ring, as it is claimed.
    fn ring(self) -> Result<Ring, Error> {
        let members = self.members(0, 1, &[])?;
        let claim = change::claim(self.partitions, &members, None)?;
        Ring::new(RingVersion(1), self.partitions, members, claim.owners).map_err(unusable)
    }

    fn rng(self) -> SplitMix64 {
        SplitMix64::new(u64::from(self.partitions.partitions()) + u64::from(self.nodes))
    }

    /// A tenth of the nodes, drawn at random among those without the shard.
    pub fn down(self) -> Vec<NodeId> {
        let (mut down, mut rng) = (Vec::new(), self.rng());
        while down.len() < usize::from(self.nodes / DOWN) {
            let node = NodeId(below(&mut rng, self.nodes.into()) as u16);
            if node != shard::HERE && !down.contains(&node) {
                down.push(node);
            }
        }
        down
    }

    /// The first positions of so many partitions, drawn at random.
    pub fn positions(self, count: usize) -> Vec<Position> {
        let (mut rng, partitions) = (self.rng(), self.partitions.partitions());
        (0..count).map(|_| self.partitions.first(Partition(below(&mut rng, partitions)))).collect()
    }

    fn lists(self, down: &[NodeId], folder: &Path) -> Result<f64, Error> {
        let shard = RingShard::open(self, down, folder)?;
        let positions = self.positions(LISTS);
        let ((), took) = timed(|| {
            for &at in &positions {
                black_box(shard.participants(at));
            }
        });
        Ok(took.as_secs_f64() * 1e9 / positions.len() as f64)
    }

    fn worst(self, folder: &Path) -> Result<f64, Error> {
        let (ring, mut shard) = (self.ring()?, RingShard::open(self, &[], folder)?);
        let stride = usize::try_from(self.partitions.partitions() / TRIED).unwrap_or(1).max(1);
        let mut worst = Duration::ZERO;
        for partition in self.partitions.all().step_by(stride) {
            let first = ring.preflist_with_fallbacks(partition, N_VAL as usize).map(|entry| entry.node);
            let first = first.take(usize::from(self.nodes / DOWN)).filter(|node| *node != shard::HERE);
            let down: Vec<NodeId> = first.collect();
            down.iter().for_each(|&node| shard.link(node, false));
            let at = self.partitions.first(partition);
            let best = (0..TRIES).map(|_| timed(|| shard.participants(black_box(at))).1).min();
            worst = worst.max(best.unwrap_or_default());
            down.iter().for_each(|&node| shard.link(node, true));
        }
        Ok(worst.as_secs_f64() * 1e6)
    }

    /// Publishes a join to a shard, once to warm up and once under a clock. In between the join is given up.
    fn publish(self, folder: &Path) -> Result<f64, Error> {
        let (before, after) = (self.ring()?, change::JOIN.after(self)?);
        let claim = change::claim(self.partitions, &after, Some(before.owners()))?;
        let mut shard = RingShard::open(self, &[], folder)?;
        let mut publish = |epoch: u64, target: Option<&[NodeId]>| {
            let begin = thread_cpu();
            // As the state of the cluster does it: the owners in force have a ring.
            let (version, members) = (RingVersion(epoch), Arc::clone(&after));
            let ring = Arc::new(before.with_members(RingVersion(1), Arc::clone(&after)).map_err(unusable)?);
            let target = target.map(|owners| Ring::new(version, self.partitions, members, owners.into()));
            let target = target.transpose().map_err(unusable)?.map(Arc::new);
            let at_rest = Topology::at_rest(Arc::new(shard::members(&ring)?), ring);
            match shard.publish(Topology { epoch: Epoch(epoch), target, ..at_rest }) {
                true => Ok(thread_cpu().saturating_sub(begin)),
                false => Err(unusable("a publication was not adopted")),
            }
        };
        publish(2, Some(&claim.owners))?;
        publish(3, None)?;
        Ok(publish(4, Some(&claim.owners))?.as_secs_f64() * 1e3)
    }

    fn publish_again(self, folder: &Path) -> Result<f64, Error> {
        let (ring, mut shard) = (Arc::new(self.ring()?), RingShard::open(self, &[], folder)?);
        let members = Arc::new(shard::members(&ring)?);
        let topology = Topology { epoch: Epoch(1), ..Topology::at_rest(members, ring) };
        if !shard.publish(topology.clone()) {
            return Err(unusable("a publication was not adopted"));
        }
        let times = (0..TRIES).filter(|_| shard.publish(topology.clone())).count();
        Ok(times as f64)
    }

    fn cover(self) -> Result<f64, Error> {
        let ring = self.ring()?;
        let is_up = |_: Partition, node: NodeId| !node.0.is_multiple_of(DOWN);
        let (cover, took) = timed(|| ring.cover(ring.size().all(), N_VAL as usize, None, is_up));
        cover.map_err(unusable)?;
        Ok(took.as_secs_f64() * 1e3)
    }
}

/// Its name in files.
impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.partitions.partitions(), self.nodes)
    }
}

impl TryFrom<String> for Shape {
    type Error = String;

    fn try_from(text: String) -> Result<Shape, String> {
        let parts = text.split_once(" x ").and_then(|(partitions, nodes)| {
            Some((partitions.parse::<u32>().ok()?, nodes.parse::<u16>().ok()?))
        });
        let (partitions, nodes) =
            parts.ok_or_else(|| format!("{text:?}: a ring is \"PARTITIONS x NODES\""))?;
        Shape::new(partitions, nodes)
    }
}

fn below(rng: &mut SplitMix64, bound: u32) -> u32 {
    u32::try_from(rng.below(bound.into())).expect("it is below one")
}

fn unusable(error: impl fmt::Display) -> Error {
    Error::Unusable(error.to_string())
}

/// What work comes to, and what it takes of this thread's CPU time, the second time.
fn timed<T>(mut work: impl FnMut() -> T) -> (T, Duration) {
    drop(work());
    let begin = thread_cpu();
    let made = work();
    let took = thread_cpu().saturating_sub(begin);
    (made, took)
}

fn thread_cpu() -> Duration {
    // It is never negative.
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
