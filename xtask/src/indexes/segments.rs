//! Folds over heads of a few of a million key segments.

use super::Context;
use crate::Result;
use crate::engine_alone::bed::{Bed, Cpu};
use crate::process::make_dir;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::workload::SplitMix;
use engine::fold::{Control, FoldRequest, JournalCheck, KeyRange, KeySegments, What};
use engine::{Durability, Options, Write};
use std::time::Duration;

const SETTLED: (&str, f64) = ("engine/head fold of 128 of 1 M segments", 10.0);
const LOADED: &str = "engine/the same with what is in memtables";
const WHOLE: &str = "engine/head fold of all";

const SEGMENT_BITS: u32 = 20;
const SEGMENTS: u64 = 128;

/// Values stay in the journal, where a fold over heads does not look.
const VALUE_BYTES: usize = 1024;

/// Within it the store is done.
const STORE_MAX: Duration = Duration::from_secs(900);

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![
        Spec::new(SETTLED.0, "ms", Some(Bar::AtMost(SETTLED.1))),
        Spec::new(LOADED, "ms", None),
        Spec::new(WHOLE, "ms", None),
    ]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let count = context.plan.keys;
    let [settled, loaded, whole] = <[Spec; 3]>::try_from(specs()).expect("as many as there are");
    let dir = make_dir(&context.home, "segments")?;
    let options = Options { durability: Durability::None, ..Options::default() };
    let mut bed = Bed::open(&dir, options, STORE_MAX)?;
    let value = vec![7; VALUE_BYTES];
    for number in 0..count {
        let number = super::mixed(number, count);
        let (key, head) = (super::object_key(number), super::head(context, number, 0, false)?);
        bed.write_over(&[Write::Put { key: &key, head: &head, value: &[&value] }], engine::Before::Nothing)?;
    }
    bed.settle()?;
    let (ms, found) = folds(context, &mut bed)?;
    let memtable = bed.stats().memtable_bytes;
    report.push(loaded.measured(&ms).noted(format!("{found:.0} keys each, {memtable} B in memtables")))?;
    while !bed.store.is_flushed() {
        bed.store.begin_flush();
        bed.rest()?;
    }
    bed.settle()?;
    let (ms, found) = folds(context, &mut bed)?;
    let tables = bed.store.stats().tables;
    report
        .push(settled.measured(&ms).noted(format!("{found:.0} keys each, {tables} tables, {count} keys")))?;
    let cpu = Cpu::start()?;
    let end = bed.fold(FoldRequest::over(KeyRange::all(), HEADS), Box::new(|_| Control::Next))?;
    if end.visited != count {
        return Err(format!("{} heads instead of {count}", end.visited).into());
    }
    report.push(whole.valued(cpu.us_per(1)? / 1000.0, "once"))?;
    bed.close()
}

const HEADS: What = What::Heads(JournalCheck::None);

/// The CPU of a fold in each round, in milliseconds, and how many heads a fold visits.
fn folds(context: &Context, bed: &mut Bed) -> Result<(Vec<f64>, f64)> {
    let (mut ms, mut visited) = (Vec::new(), 0);
    for round in 0..=context.plan.rounds {
        let mut rng = SplitMix::new(round as u64);
        let cpu = Cpu::start()?;
        for _ in 0..context.plan.folds {
            let numbers = (0..SEGMENTS).map(|_| rng.below(1 << SEGMENT_BITS) as u32);
            let segments = Some(KeySegments::new(SEGMENT_BITS, numbers)?);
            let request = FoldRequest { segments, ..FoldRequest::over(KeyRange::all(), HEADS) };
            visited += bed.fold(request, Box::new(|_| Control::Next))?.visited;
        }
        if round > 0 {
            ms.push(cpu.us_per(context.plan.folds)? / 1000.0);
        }
    }
    let folds = (context.plan.rounds as u64 + 1) * context.plan.folds;
    Ok((ms, visited as f64 / folds as f64))
}
