//! The pure ring: preference lists at every size, new rings, claims, transfers, covering sets.

use super::Context;
use crate::Result;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;
use crate::sys::thread_cpu;
use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use ring::{
    Claimed, Limits, Member, MemberState, Members, NodeId, NodeSet, Partition, Ring, RingHandle, RingSize,
    RingVersion, TARGET_N_DEFAULT, Transfers,
};
use std::hint::black_box;
use std::sync::Arc;

const SIZES: [u32; 9] = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384];
const NODES: [u16; 4] = [1, 10, 100, 1000];
/// Of all nodes one in so many is down.
const DOWN: u16 = 10;
const N_VAL: usize = 3;
const LARGEST: (u32, u16) = (16_384, 1000);

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let mut specs: Vec<Spec> = rings().map(|(size, nodes)| list_spec(size, nodes)).collect();
    specs.extend([flat_spec(), worst_spec(), publish_spec(), cover_spec()]);
    specs.extend(CHANGES.iter().map(Change::spec));
    specs.extend([moves_spec(), transfers_spec()]);
    specs
}

fn list_spec(size: u32, nodes: u16) -> Spec {
    Spec::new(format!("ring/{size} x {nodes}, preflist with a tenth down"), "ns", Some(Bar::AtMost(100.0)))
}

fn flat_spec() -> Spec {
    Spec::new("ring/preflist, largest ring over smallest", "ratio", Some(Bar::AtMost(3.0)))
}

fn worst_spec() -> Spec {
    Spec::new("ring/preflist, worst case of any ring", "us", Some(Bar::AtMost(5.0)))
}

fn publish_spec() -> Spec {
    Spec::new("ring/16384 x 1000, publish a new ring", "ms", Some(Bar::Below(1.0)))
}

fn cover_spec() -> Spec {
    Spec::new("ring/16384 x 1000, covering set with a tenth down", "ms", Some(Bar::Below(5.0)))
}

fn moves_spec() -> Spec {
    Spec::new("ring/16384 x 1000, moves of a join over the least", "ratio", Some(Bar::AtMost(1.2)))
}

fn transfers_spec() -> Spec {
    Spec::new("ring/16384 x 1000, plan the transfers of a join", "ms", None)
}

/// A change of the largest ring's members.
struct Change {
    name: &'static str,
    zones: u16,
    leave: &'static [u16],
    join: u16,
    is_new: bool,
}

const CHANGES: [Change; 6] = [
    Change { name: "claim anew", zones: 1, leave: &[], join: 0, is_new: true },
    Change { name: "claim, one joins", zones: 1, leave: &[], join: 1, is_new: false },
    Change { name: "claim, one leaves", zones: 1, leave: &[17], join: 0, is_new: false },
    Change { name: "claim, one is replaced", zones: 1, leave: &[17], join: 1, is_new: false },
    Change { name: "claim, one joins, 10 zones", zones: 10, leave: &[], join: 1, is_new: false },
    // Three zones cannot be four apart, so this one searches to its bound.
    Change { name: "claim, one joins, 3 zones", zones: 3, leave: &[], join: 1, is_new: false },
];

impl Change {
    fn spec(&self) -> Spec {
        Spec::new(format!("ring/16384 x 1000, {}", self.name), "s", Some(Bar::Below(1.0)))
    }

    fn before(&self) -> Result<Arc<Members>> {
        members(LARGEST.1, self.zones, &[])
    }

    fn after(&self) -> Result<Arc<Members>> {
        members(LARGEST.1 + self.join, self.zones, self.leave)
    }
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    lists(context, report)?;
    publish(context, report)?;
    cover(context, report)?;
    for change in &CHANGES {
        claims(context, report, change)?;
    }
    transfers(context, report)
}

fn lists(context: &Context, report: &mut Report) -> Result<()> {
    let (mut smallest, mut largest, mut worst) = (0.0, 0.0, (0.0f64, String::new()));
    for (size, nodes) in rings() {
        let ring = claimed(size, nodes)?;
        let mut rng = SplitMix64::new(u64::from(size) + u64::from(nodes));
        let mut partitions = Vec::with_capacity(context.plan.lists);
        for _ in 0..context.plan.lists {
            partitions.push(Partition(u32::try_from(rng.below(size.into()))?));
        }
        let mut down = NodeSet::new();
        while down.len() < usize::from(nodes / DOWN) {
            down.insert(NodeId(u16::try_from(rng.below(nodes.into()))?));
        }
        let with = |down: &NodeSet| -> Result<Vec<f64>> {
            repeat(context, || {
                for &partition in &partitions {
                    ring.active_preflist(partition, N_VAL, down).for_each(|entry| {
                        black_box(entry.node);
                    });
                }
            })
            .map(|times| times.into_iter().map(|time| time / partitions.len() as f64 * 1e9).collect())
        };
        let (times, all_up) = (with(&down)?, with(&NodeSet::new())?);
        let slowest = slowest(context, &ring)?;
        if slowest > worst.0 {
            worst = (slowest, format!("{size} x {nodes}"));
        }
        if (size, nodes) == (SIZES[0], NODES[0]) {
            smallest = median(&times).unwrap_or(0.0);
        }
        if (size, nodes) == LARGEST {
            largest = median(&times).unwrap_or(0.0);
        }
        let row = list_spec(size, nodes).measured(&times).also("all_up_ns", median(&all_up));
        report.push(row.also("worst_us", Some(slowest)))?;
    }
    report.push(flat_spec().valued(largest / smallest, "the medians above"))?;
    report.push(worst_spec().valued(worst.0, worst.1))
}

/// The slowest partition, in microseconds, when those are down who would be named first.
fn slowest(context: &Context, ring: &Ring) -> Result<f64> {
    // One in so many is enough to find a bad one, and few enough for a minute.
    let stride = usize::try_from(ring.size().partitions() / 64)?.max(1);
    let mut slowest = 0.0f64;
    for partition in ring.size().all().step_by(stride) {
        let list = ring.preflist_with_fallbacks(partition, N_VAL);
        let down: NodeSet = list.map(|entry| entry.node).take(usize::from(ring.nodes() / DOWN)).collect();
        let mut least = f64::INFINITY;
        for _ in 0..context.plan.rounds * 5 {
            let begin = thread_cpu()?;
            ring.active_preflist(black_box(partition), N_VAL, &down).for_each(|entry| {
                black_box(entry.node);
            });
            least = least.min((thread_cpu()? - begin).as_secs_f64() * 1e6);
        }
        slowest = slowest.max(least);
    }
    Ok(slowest)
}

fn publish(context: &Context, report: &mut Report) -> Result<()> {
    let ring = claimed(LARGEST.0, LARGEST.1)?;
    let handle = RingHandle::new(ring.clone());
    let mut reader = handle.reader();
    let mut version = ring.version().0;
    let mut seen = true;
    let times = repeat(context, || {
        version += 1;
        let (members, owners) = (Arc::clone(ring.members()), ring.owners().into());
        let next = Ring::new(RingVersion(version), ring.size(), members, owners);
        seen &= next.is_ok_and(|next| handle.publish(next)) && reader.get().version().0 == version;
    })?;
    if !seen {
        return Err("a ring was published and not seen".into());
    }
    report.push(publish_spec().measured(&millis(&times)))
}

fn cover(context: &Context, report: &mut Report) -> Result<()> {
    let ring = claimed(LARGEST.0, LARGEST.1)?;
    let mut nodes = None;
    let is_up = |_: Partition, node: NodeId| !node.0.is_multiple_of(DOWN);
    let times = repeat(context, || {
        nodes = ring.cover(ring.size().all(), N_VAL, None, is_up).ok().map(|cover| cover.len());
    })?;
    let nodes = nodes.ok_or("there is a covering set")?;
    report.push(cover_spec().measured(&millis(&times)).also("nodes", Some(nodes as f64)))
}

fn claims(context: &Context, report: &mut Report, change: &Change) -> Result<()> {
    let size = RingSize::new(LARGEST.0)?;
    let (before, after) = (change.before()?, change.after()?);
    let claim = |members: &Members, owners: Option<&[NodeId]>| {
        Claimed { size, members, owners, target_n: TARGET_N_DEFAULT }.claim()
    };
    let first = claim(&before, None)?;
    let owners = (!change.is_new).then_some(&*first.owners);
    let mut claimed = None;
    let times = repeat(context, || claimed = claim(&after, owners).ok())?;
    let claimed = claimed.ok_or("there is a claim")?;
    let row = change.spec().measured(&times).also("moved", Some(claimed.moved as f64));
    report.push(row.also("shortfalls", Some(claimed.shortfalls.len() as f64)))?;
    if change.name == CHANGES[1].name {
        // What the new node is to own comes from others.
        let joined = NodeId(LARGEST.1);
        let least = claimed.owners.iter().filter(|owner| **owner == joined).count();
        report.push(moves_spec().valued(claimed.moved as f64 / least as f64, "one claim"))?;
    }
    Ok(())
}

fn transfers(context: &Context, report: &mut Report) -> Result<()> {
    let change = &CHANGES[1];
    let (size, after) = (RingSize::new(LARGEST.0)?, change.after()?);
    let current = claimed(LARGEST.0, LARGEST.1)?;
    let owners = Some(current.owners());
    let claim = Claimed { size, members: &after, owners, target_n: TARGET_N_DEFAULT }.claim()?;
    let target = Ring::new(RingVersion(2), size, after, claim.owners)?;
    let mut plan = None;
    let times = repeat(context, || plan = Transfers::plan(&current, &target, N_VAL, Limits::default()).ok())?;
    let mut plan = plan.ok_or("there is a plan")?;
    let copies = plan.open().count();
    let begin = thread_cpu()?;
    while !plan.is_done() {
        for begun in plan.start(Monotonic(0), &NodeSet::new()) {
            plan.on_copied(begun.partition, begun.to);
        }
        plan.switch();
    }
    let carried_out = (thread_cpu()? - begin).as_secs_f64() * 1e3;
    let row = transfers_spec().measured(&millis(&times)).also("copies", Some(copies as f64));
    report.push(row.also("carry_out_ms", Some(carried_out)))
}

/// Every ring with a node for each partition at least.
fn rings() -> impl Iterator<Item = (u32, u16)> {
    let all = SIZES.into_iter().flat_map(|size| NODES.into_iter().map(move |nodes| (size, nodes)));
    all.filter(|(size, nodes)| u32::from(*nodes) <= *size)
}

fn members(count: u16, zones: u16, leave: &[u16]) -> Result<Arc<Members>> {
    let member = |id: u16| {
        let member = Member::new(NodeId(id), &format!("node{id}"));
        let state = if leave.contains(&id) { MemberState::Leaving } else { MemberState::Valid };
        Member { zone: format!("zone{}", id % zones).into(), state, ..member }
    };
    Ok(Arc::new(Members::new((0..count).map(member))?))
}

fn claimed(size: u32, nodes: u16) -> Result<Ring> {
    let (size, members) = (RingSize::new(size)?, members(nodes, 1, &[])?);
    let claim = Claimed { size, members: &members, owners: None, target_n: TARGET_N_DEFAULT }.claim()?;
    Ok(Ring::new(RingVersion(1), size, members, claim.owners)?)
}

/// The CPU seconds of each round, after one that does not count.
fn repeat(context: &Context, mut work: impl FnMut()) -> Result<Vec<f64>> {
    work();
    let mut times = Vec::with_capacity(context.plan.rounds);
    for _ in 0..context.plan.rounds {
        let begin = thread_cpu()?;
        work();
        times.push((thread_cpu()? - begin).as_secs_f64());
    }
    Ok(times)
}

fn millis(seconds: &[f64]) -> Vec<f64> {
    seconds.iter().map(|seconds| seconds * 1e3).collect()
}
