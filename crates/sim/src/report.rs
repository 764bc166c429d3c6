//! What came of a seed, whether it counts, and the totals over many.

use crate::check::{Verdict, Violation};
use crate::consistent::Tally;
use crate::fault::Fault;
use crate::kind::Kind;
use crate::seed::Seed;
use crate::trace::Trace;
use std::collections::BTreeMap;
use std::fmt;

/// A seed with fewer acknowledged operations has not shown anything.
pub const ACKNOWLEDGED_MIN: u64 = 200;

/// What came of index queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Searched {
    /// Those that were answered as a whole while everything happened.
    pub whole: u64,
    /// Rows of theirs, and of those in the end, that were bound to be told.
    pub rows: u64,
}

/// What came of purges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Those that were begun.
    pub jobs: u64,
    /// Those of them whose folds came to their ends, with all that they had found asked for.
    pub whole: u64,
    /// Objects that they erased.
    pub objects: u64,
    /// Tombstones that they had read at all replicas.
    pub tombstones: u64,
    /// Keys that were asked for in vain.
    pub failed: u64,
}

/// What came of one seed.
#[derive(Clone, Debug)]
pub struct Report {
    /// Which.
    pub seed: Seed,
    /// In which world.
    pub kind: Kind,
    /// The operations that a node acknowledged.
    pub acknowledged: u64,
    /// The events that were handled.
    pub events: u64,
    /// The hash of the trace.
    pub hash: u64,
    /// How often each fault fired.
    pub fired: BTreeMap<Fault, u64>,
    /// What was enabled and did not fire.
    pub unfired: Vec<Fault>,
    /// How many of the crashes that were planned did not come.
    pub crashes_missing: u64,
    /// How often a process died.
    pub deaths: u64,
    /// How often members came, left or took each other's place.
    pub changes: u64,
    /// How often a tombstone was reaped, where it was to be.
    pub reaps: Option<u64>,
    /// What came of index queries, where there are some.
    pub searched: Option<Searched>,
    /// What came of purges, where there are some.
    pub purged: Option<Purged>,
    /// Counts of a life with a consistent bucket type.
    pub strong: Option<Tally>,
    /// The promise that was broken, if one was.
    pub violation: Option<Violation>,
}

impl Report {
    /// The report of a world that has ended.
    pub fn new(
        (kind, seed): (Kind, Seed),
        trace: &Trace,
        events: u64,
        acknowledged: u64,
        end: Verdict,
    ) -> Report {
        Report {
            acknowledged,
            events,
            hash: trace.hash(),
            fired: trace.fired(),
            unfired: trace.unfired(),
            violation: end.err(),
            ..Report::empty(kind, seed)
        }
    }

    /// The report of a world that ended in a panic.
    pub fn panicked(kind: Kind, seed: Seed) -> Report {
        let violation = Some(Violation::new("it runs", "it panicked: see above"));
        Report { violation, ..Report::empty(kind, seed) }
    }

    /// The report of a world in which nothing has happened.
    fn empty(kind: Kind, seed: Seed) -> Report {
        Report {
            seed,
            kind,
            crashes_missing: 0,
            deaths: 0,
            changes: 0,
            reaps: None,
            searched: None,
            purged: None,
            strong: None,
            acknowledged: 0,
            events: 0,
            hash: 0,
            fired: BTreeMap::new(),
            unfired: Vec::new(),
            violation: None,
        }
    }

    /// Whether the seed shows something: enough was acknowledged, nodes died as often as planned and in the midst
    /// of a write, index queries were answered, and every fault that was enabled fired.
    pub fn counts(&self) -> bool {
        self.acknowledged >= ACKNOWLEDGED_MIN
            && (self.fired.contains_key(&Fault::CrashInWrite) || !self.kind.has_disks())
            && self.crashes_missing == 0
            && self.searched.is_none_or(|searched| searched.whole >= self.kind.searches_min())
            && self.unfired.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seed, kind, acknowledged, events, deaths, changes, hash, .. } = self;
        write!(f, "seed {seed}: {events} events, {acknowledged} acknowledged, {deaths} crashes, ")?;
        write!(f, "{changes} changes, trace {hash:016x}")?;
        for fault in &self.unfired {
            write!(f, ", {fault} did not fire")?;
        }
        if self.crashes_missing > 0 {
            write!(f, ", {} crashes did not come", self.crashes_missing)?;
        }
        if let Some(searched) = self.searched.filter(|searched| searched.whole < kind.searches_min()) {
            write!(f, ", {} index queries were answered", searched.whole)?;
        }
        if let Some(tally) = &self.strong {
            write!(f, "\n  {tally}")?;
        }
        self.violation.iter().try_for_each(|violation| {
            write!(f, "\n  BROKEN: {violation}\n  replay: cargo run --release -p sim -- --world {kind} --trace {seed}")
        })
    }
}

/// The totals over many seeds.
#[derive(Clone, Debug)]
pub struct Totals {
    /// In which world.
    pub kind: Kind,
    /// The seeds that ran.
    pub seeds: u64,
    /// Those of them that count.
    pub counted: u64,
    /// Those of them that broke a promise.
    pub broken: u64,
    /// Those in which tombstones were to be reaped.
    pub reaping: u64,
    /// Those of them in which some were.
    pub reaped: u64,
    /// How often one was in all.
    pub reaps: u64,
    /// What came of index queries in all.
    pub searched: Searched,
    /// Those in which buckets were to be purged.
    pub purging: u64,
    /// What came of purges in all.
    pub purged: Purged,
    /// Counts of lives with a consistent bucket type in all.
    pub strong: Option<Tally>,
    /// Operations acknowledged in all.
    pub acknowledged: u64,
    /// Events handled in all.
    pub events: u64,
    /// Processes that died in all.
    pub deaths: u64,
    /// Changes of members and owners in all.
    pub changes: u64,
    /// How often each fault fired in all.
    pub fired: BTreeMap<Fault, u64>,
}

impl Totals {
    /// Of no seed yet.
    pub fn new(kind: Kind) -> Totals {
        let (seeds, counted, broken, acknowledged, events) = (0, 0, 0, 0, 0);
        let (reaping, reaped, reaps, purging, deaths, changes) = (0, 0, 0, 0, 0, 0);
        let (fired, searched, purged) = (BTreeMap::new(), Searched::default(), Purged::default());
        Totals {
            kind,
            seeds,
            counted,
            broken,
            reaping,
            reaped,
            reaps,
            searched,
            purging,
            purged,
            strong: None,
            acknowledged,
            events,
            deaths,
            changes,
            fired,
        }
    }

    /// Adds a seed.
    pub fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.counted += u64::from(report.counts());
        self.broken += u64::from(report.violation.is_some());
        self.reaping += u64::from(report.reaps.is_some());
        self.reaped += u64::from(report.reaps > Some(0));
        self.reaps += report.reaps.unwrap_or_default();
        let searched = report.searched.unwrap_or_default();
        self.searched.whole += searched.whole;
        self.searched.rows += searched.rows;
        self.purging += u64::from(report.purged.is_some());
        let purged = report.purged.unwrap_or_default();
        self.purged.jobs += purged.jobs;
        self.purged.whole += purged.whole;
        self.purged.objects += purged.objects;
        self.purged.tombstones += purged.tombstones;
        self.purged.failed += purged.failed;
        if let Some(tally) = &report.strong {
            self.strong.get_or_insert_default().add(tally);
        }
        self.acknowledged += report.acknowledged;
        self.events += report.events;
        self.deaths += report.deaths;
        self.changes += report.changes;
        for (fault, count) in &report.fired {
            *self.fired.entry(*fault).or_default() += count;
        }
    }

    /// Whether no promise was broken, and enough seeds count to say so.
    pub fn pass(&self) -> bool {
        self.broken == 0
            && self.counted * 100 >= self.seeds * self.kind.counted_percent_min()
            && self.reaped * 100 >= self.reaping * self.kind.reaped_percent_min()
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals {
            seeds,
            counted,
            broken,
            reaping,
            reaped,
            reaps,
            acknowledged,
            events,
            deaths,
            changes,
            ..
        } = self;
        writeln!(
            f,
            "{seeds} seeds, {counted} counted, {broken} broken, {acknowledged} acknowledged, {events} events, \
             {deaths} crashes, {changes} changes"
        )?;
        if *reaping > 0 {
            writeln!(f, "{reaps} tombstones reaped, in {reaped} of {reaping} seeds in which some might be")?;
        }
        let Searched { whole, rows } = self.searched;
        if whole > 0 {
            writeln!(f, "{whole} index queries answered under faults, {rows} rows that had to be told")?;
        }
        if self.purging > 0 {
            let Purged { jobs, whole, objects, tombstones, failed } = self.purged;
            writeln!(
                f,
                "{jobs} purges in {} seeds, {whole} of them whole: {objects} objects erased, {tombstones} tombstones read, \
                 {failed} keys failed",
                self.purging
            )?;
        }
        if let Some(tally) = &self.strong {
            writeln!(f, "{tally}")?;
        }
        self.fired.iter().try_for_each(|(fault, count)| writeln!(f, "  {fault:<15} {count:>10}"))
    }
}
