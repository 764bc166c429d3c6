//! Entries beside objects: what they add to a write, and what a query of them costs.

use super::Context;
use crate::Result;
use crate::engine_alone::bed::{Bed, Cpu};
use crate::process::make_dir;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::workload::SplitMix;
use bytes::Bytes;
use engine::fold::{ScanRequest, Visit};
use engine::{Before, Durability, Options, Write};
use object::{Actor, Dot, IndexEntry, Metadata, Policy, index, key};
use std::time::Duration;

const ADDED: (&str, f64) = ("engine/an index entry adds to a PUT", 2.0);
const CHANGED: &str = "engine/a changed index entry adds to a PUT";
const QUERY: (&str, f64) = ("engine/query of 1,000 of 400,000 entries", 0.1);

const VALUE_BYTES: usize = 1024;
const FOUND: u64 = 1_000;

/// Within it each store is done.
const STORE_MAX: Duration = Duration::from_secs(600);

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let bar = |(row, bar): (&str, f64), unit| Spec::new(row, unit, Some(Bar::AtMost(bar)));
    vec![bar(ADDED, "us"), Spec::new(CHANGED, "us", None), bar(QUERY, "ms")]
}

/// Fills them.
pub fn run(context: &Context, report: &mut Report) -> Result<()> {
    let count = context.plan.objects;
    let [added, changed, query] = <[Spec; 3]>::try_from(specs()).expect("as many as there are");
    let (mut plain, load, update) = loaded(context, "plain", false)?;
    plain.rest()?;
    plain.close()?;
    let (mut indexed, load_indexed, update_indexed) = loaded(context, "indexed", true)?;
    let noise = |plain: f64, indexed: f64| format!("{indexed:.2} less {plain:.2}, {count} objects");
    report.push(added.valued(load_indexed - load, noise(load, load_indexed)))?;
    report.push(changed.valued(update_indexed - update, noise(update, update_indexed)))?;
    let mut ms = Vec::new();
    for round in 0..=context.plan.rounds {
        let (cpu, mut rng) = (Cpu::start()?, SplitMix::new(round as u64));
        for _ in 0..context.plan.queries {
            // Terms of the update: behind those of the load.
            let first = count + rng.below(count - FOUND);
            let found = queried(&mut indexed, first, first + FOUND - 1)?;
            if found != FOUND as usize {
                return Err(format!("{found} entries instead of {FOUND}").into());
            }
        }
        if round > 0 {
            ms.push(cpu.us_per(context.plan.queries)? / 1000.0);
        }
    }
    report.push(query.measured(&ms))?;
    indexed.close()
}

/// A store after a load and an update of all its objects, and the CPU of each of these writes, in microseconds.
fn loaded(context: &Context, name: &str, indexed: bool) -> Result<(Bed, f64, f64)> {
    let dir = make_dir(&context.home, name)?;
    let options =
        Options { durability: Durability::None, indexing: Some(node::INDEXING), ..Options::default() };
    let mut bed = Bed::open(&dir, options, STORE_MAX)?;
    bed.settle()?;
    let value = vec![7; VALUE_BYTES];
    let mut us = [0.0; 2];
    for (version, us) in (0..).zip(&mut us) {
        let cpu = Cpu::start()?;
        for number in 0..context.plan.objects {
            let number = mixed(number, context.plan.objects);
            let (key, head) = (object_key(number), head(context, number, version, indexed)?);
            let prior = if version > 0 { Some(self::head(context, number, 0, indexed)?) } else { None };
            let before =
                prior.as_ref().map_or(Before::Nothing, |head| Before::Version { head, expires_ms: None });
            bed.write_over(&[Write::Put { key: &key, head: &head, value: &[&value] }], before)?;
        }
        bed.settle()?;
        *us = cpu.us_per(context.plan.objects)?;
    }
    Ok((bed, us[0], us[1]))
}

/// Each number below `count` once, in another order.
pub fn mixed(number: u64, count: u64) -> u64 {
    // An odd number that five does not divide has no factor in common with a round count.
    (number * 7_368_787) % count
}

pub fn object_key(number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    key::encode_object_key((number % 1024) as u16, b"default", b"bucket", &number.to_be_bytes(), &mut out);
    out
}

pub fn head(context: &Context, number: u64, version: u64, indexed: bool) -> Result<Vec<u8>> {
    let term = number + version * context.plan.objects;
    let entry = IndexEntry { field: Bytes::from_static(b"number_int"), value: term.to_string().into() };
    let indexes = if indexed { vec![entry] } else { Vec::new() };
    let metadata = Metadata { indexes, last_modified: 1_700_000_000_000_000, ..Metadata::default() };
    let put = object::Put { context: None, metadata, value: Bytes::from_static(&[7; VALUE_BYTES]) };
    let dot = Dot { actor: Actor(1), counter: version + 1 };
    let object = object::update(None, put, dot, Policy::AllowMult).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    object.head().encode(&mut out);
    Ok(out)
}

/// How many entries a query from one term to another finds.
fn queried(bed: &mut Bed, first: u64, last: u64) -> Result<usize> {
    let term = |number: u64| index::term(b"number_int", number.to_string().as_bytes()).expect("an integer");
    let range = key::index_range(b"default", b"bucket", b"number_int", &term(first), &term(last));
    let visitor = Box::new(|entry: &[u8], _: &[u8]| match key::index_prefix_of(entry) < 1024 {
        true => Visit::Take,
        false => Visit::Skip,
    });
    let (start, end) = (range.start.into(), range.end.into());
    let request = ScanRequest { start, end, items_max: 10_000, visitor, past_losses: false };
    Ok(bed.scan_ahead(request)?.items.len())
}
