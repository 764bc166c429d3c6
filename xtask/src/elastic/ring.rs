//! The ring: placements of requests, publications to a shard, claims, covering sets. The crate [`experiments::rings`]
//! measures them, for `annulet bench experiments` too.

use super::Context;
use crate::Result;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::stats::median;
use experiments::rings::{Figure, Shape};

const SIZES: [u32; 3] = [64, 1024, 16_384];
const NODES: [u16; 4] = [1, 10, 100, 1000];
/// The smallest ring with a preference list: a node alone needs none.
const SMALLEST: (u32, u16) = (64, 10);
const LARGEST: (u32, u16) = (16_384, 1000);

/// Figures that are told beside a row's, by their names there.
type Beside = &'static [(&'static str, Figure)];

/// What is measured of the largest ring: its name in a row, the bar, and what is told beside it.
const OF_LARGEST: [(Figure, &str, Option<Bar>, Beside); 9] = [
    (Figure::PublishMs, "publish a join to a shard", Some(Bar::Below(1.0)), &[]),
    (Figure::CoverMs, "covering set with a tenth down", Some(Bar::Below(5.0)), &[]),
    (Figure::ClaimS, "claim anew", Some(Bar::Below(1.0)), &[]),
    (Figure::JoinS, "claim, one joins", Some(Bar::Below(1.0)), &[]),
    (Figure::LeaveS, "claim, one leaves", Some(Bar::Below(1.0)), &[]),
    (Figure::ReplaceS, "claim, one is replaced", Some(Bar::Below(1.0)), &[]),
    (Figure::JoinTenZonesS, "claim, one joins, 10 zones", Some(Bar::Below(1.0)), &[]),
    // Three zones cannot be four apart, so this one searches to its bound.
    (Figure::JoinThreeZonesS, "claim, one joins, 3 zones", Some(Bar::Below(1.0)), &[]),
    (
        Figure::JoinMoved,
        "moves of a join over the least",
        Some(Bar::AtMost(1.2)),
        &[("uneven", Figure::JoinUneven), ("shortfalls", Figure::JoinShortfalls)],
    ),
];

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let mut specs: Vec<Spec> = rings().map(|(size, nodes)| list_spec(size, nodes)).collect();
    specs.extend([flat_spec(), worst_spec()]);
    specs.extend(OF_LARGEST.iter().map(|(figure, name, bar, _)| largest_spec(*figure, name, *bar)));
    specs
}

fn list_spec(size: u32, nodes: u16) -> Spec {
    Spec::new(format!("ring/{size} x {nodes}, placement with a tenth down"), "ns", Some(Bar::AtMost(150.0)))
}

fn flat_spec() -> Spec {
    Spec::new("ring/placement, 16384 x 1000 over 64 x 10", "ratio", Some(Bar::AtMost(3.0)))
}

fn worst_spec() -> Spec {
    Spec::new("ring/placement, worst case of any ring", "us", Some(Bar::AtMost(5.0)))
}

fn largest_spec(figure: Figure, name: &str, bar: Option<Bar>) -> Spec {
    let unit = if figure.unit().is_empty() { "ratio" } else { figure.unit() };
    Spec::new(format!("ring/{} x {}, {name}", LARGEST.0, LARGEST.1), unit, bar)
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let (mut smallest, mut largest, mut worst) = (0.0, 0.0, (0.0f64, String::new()));
    for (size, nodes) in rings() {
        let of = |figure: Figure| measure(context, figure, (size, nodes));
        let (times, all_up) = (of(Figure::ListNs)?, of(Figure::ListAllUpNs)?);
        let slowest = median(&of(Figure::ListWorstUs)?).unwrap_or(0.0);
        if slowest > worst.0 {
            worst = (slowest, format!("{size} x {nodes}"));
        }
        if (size, nodes) == SMALLEST {
            smallest = median(&times).unwrap_or(0.0);
        }
        if (size, nodes) == LARGEST {
            largest = median(&times).unwrap_or(0.0);
        }
        let row = list_spec(size, nodes).measured(&times).also("all_up_ns", median(&all_up));
        report.push(row.also("worst_us", Some(slowest)))?;
    }
    report.push(flat_spec().valued(largest / smallest, "the medians above"))?;
    report.push(worst_spec().valued(worst.0, worst.1))?;
    for (figure, name, bar, beside) in OF_LARGEST {
        let mut row = largest_spec(figure, name, bar).measured(&measure(context, figure, LARGEST)?);
        for &(name, figure) in beside {
            row = row.also(name, median(&measure(context, figure, LARGEST)?));
        }
        report.push(row)?;
    }
    Ok(())
}

/// Every ring with a node for each partition at least.
fn rings() -> impl Iterator<Item = (u32, u16)> {
    let all = SIZES.into_iter().flat_map(|size| NODES.into_iter().map(move |nodes| (size, nodes)));
    all.filter(|(size, nodes)| u32::from(*nodes) <= *size)
}

/// A figure in each of the rounds.
fn measure(context: &Context, figure: Figure, (size, nodes): (u32, u16)) -> Result<Vec<f64>> {
    let shape = Shape::new(size, nodes)?;
    (0..context.plan.rounds).map(|_| Ok(figure.measure(shape, &context.home)?)).collect()
}
