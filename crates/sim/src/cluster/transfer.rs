//! A copy that is cut again and again: row C10.
//!
//! 1. *Loading*: four nodes are given objects.
//! 2. In some seeds one of them has blocks of its tables damaged, and in some the disk of who is to come is slow.
//! 3. *Moving*: a fifth node joins. Now and then, at so many objects that were sent, its copy is cut: it dies, or one
//!    of those it copies from does, or a link is cut, or it stands still for a while. If a node that has lost bucket
//!    properties dies, it does not start again, and is said to be down.
//! 4. Once it is cut from all others for a minute. Then its status says since when nothing has come, and why: what
//!    operators are warned by.
//! 5. *Looking*: it has every object that it is to have, each of which was confirmed.
//!
//! Promises: the move comes to its end; what was lost by one comes from others; a cut costs no more than the parts that
//! were under way, whatever had been sent before; and where nobody writes meanwhile, every index query that is answered
//! tells all that was written, and nothing else.

use super::client::Place;
use super::ending::Phase;
use super::plan::Plan;
use super::script::Script;
use super::{World, node_id, primaries_of};
use crate::Kind;
use crate::check::{Verdict, Violation};
use crate::disk::DiskOdds;
use crate::fault::Odds;
use crate::seed::{Seed, duration_between, index_below};
use crate::trace::Keep;
use base::rng::SplitMix64;
use base::{Clock, Monotonic, Rng};
use bytes::Bytes;
use kv::replica::{Ask, Reason};
use node::{PeerMessage, TransferStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// How often the copy is cut.
const CUTS: usize = 10;
/// Which of them cuts the newcomer from all others, for so long.
const STANDSTILL: usize = 4;
const STANDSTILL_FOR: Duration = Duration::from_secs(60);
/// How long the others last.
const CUT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Writes that wait for their answers.
const LOADING_MAX: usize = 32;
/// Blocks that are damaged.
const DAMAGES: u64 = 3;
/// How long it all may take, a minute of standing still included.
const ALL_MAX: Duration = Duration::from_secs(900);
/// Who comes: to so many that nobody has everything.
const NEWCOMER: usize = 4;

/// The partitions that a part is asked for of, and where it begins.
type Part = (Vec<u16>, Option<Bytes>);

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Objects that were sent, each by as many as were asked for it.
    pub objects: usize,
    /// Those of them that were sent again.
    pub again: usize,
    /// What the cuts may have cost: what had been sent of the parts that had to be asked for once more.
    pub again_max: usize,
    /// How often the copy was cut.
    pub cuts: usize,
    /// Whether a sender had lost something.
    pub is_lossy: bool,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { objects, again, cuts, is_lossy, .. } = self;
        let share = *again as f64 * 100.0 / (*objects).max(1) as f64;
        write!(f, "{objects} objects, {cuts} cuts, {again} sent again ({share:.1} %)")?;
        if *is_lossy { f.write_str(", from a sender with losses") } else { Ok(()) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Loading,
    Moving,
    Looking,
}

/// How far it is.
#[derive(Debug)]
pub(super) struct Transfer {
    rng: SplitMix64,
    step: Step,
    is_slow: bool,
    /// At how many objects each cut comes.
    cuts_at: Vec<usize>,
    /// Until when links are cut; whether all are.
    until: Option<(Monotonic, bool)>,
    /// Who has sent what.
    sent: BTreeSet<(usize, Bytes)>,
    /// The part that each was asked for last, and how many objects it has sent since.
    parts: BTreeMap<usize, (Part, usize)>,
    outcome: Outcome,
}

/// Plays it, with so many objects.
///
/// # Errors
/// The promise that was broken.
pub fn run(seed: Seed, objects: u64) -> Result<Outcome, Violation> {
    let mut plan = Plan::calm(seed, 1 + NEWCOMER);
    let mut rng = seed.stream("transfer", 0);
    plan.founders = Some(NEWCOMER);
    (plan.moves, plan.keys) = (true, objects.div_ceil(super::BUCKETS.len() as u64));
    // With clients copies go in slices.
    plan.clients = if rng.chance(1, 2) { 2 } else { 0 };
    let transfer = Transfer {
        step: Step::Loading,
        is_slow: rng.chance(1, 3),
        cuts_at: Vec::new(),
        until: None,
        sent: BTreeSet::new(),
        parts: BTreeMap::new(),
        outcome: Outcome { is_lossy: rng.chance(1, 2), ..Outcome::default() },
        rng,
    };
    let mut world = World::with(Kind::Cluster, seed, plan, Keep::Hash);
    world.mover.begin_no_more();
    world.script = Some(Script::Transfer(transfer));
    world.live().1?;
    let Some(Script::Transfer(transfer)) = world.script else { unreachable!("it was played") };
    Ok(transfer.outcome)
}

impl Transfer {
    /// A node sends something to another.
    pub(super) fn on_message(&mut self, from: usize, to: usize, message: &PeerMessage) {
        if let PeerMessage::AskCopy { partitions, start, .. } = message
            && from == NEWCOMER
        {
            let part = (partitions.clone(), start.clone());
            let (last, objects) = self.parts.entry(to).or_default();
            // What was asked for last has not come, or was not durable yet.
            self.outcome.again_max += if *last == part { *objects } else { 0 };
            (*last, *objects) = (part, 0);
        }
        if let PeerMessage::Ask { key, ask: Ask::Merge { reason: Reason::Copy, .. }, .. } = message
            && to == NEWCOMER
        {
            self.parts.entry(from).or_default().1 += 1;
            let is_new = self.sent.insert((from, key.clone()));
            self.outcome.objects += usize::from(is_new);
            self.outcome.again += usize::from(!is_new);
        }
    }

    /// So many objects are to be sent: draws when cuts come.
    fn draw_cuts(&mut self, objects: usize) {
        let part = objects as u64 / (CUTS as u64 + 1);
        let at = (0..CUTS as u64).map(|cut| cut * part + self.rng.below(part.max(1)) + 1);
        self.cuts_at = at.map(|at| usize::try_from(at).expect("fewer than objects")).collect();
    }

    fn is_due(&self) -> bool {
        let at = self.cuts_at.get(self.outcome.cuts);
        self.until.is_none() && at.is_some_and(|at| self.sent.len() >= *at)
    }
}

impl World {
    pub(super) fn play_transfer(&mut self, transfer: &mut Transfer) -> Verdict {
        if self.events.now() > Monotonic(0) + ALL_MAX {
            let what = format!("{:?}, {}, {:?}", transfer.step, transfer.outcome, self.transfers());
            return Err(Violation::new("a copy that is cut comes to its end", what));
        }
        match transfer.step {
            Step::Loading if self.load_all()? => {
                if transfer.outcome.is_lossy {
                    self.damage(&mut transfer.rng);
                }
                self.join_newcomer();
                let comes = |place: &Place| self.are_primaries_to_be(*place).contains(&NEWCOMER);
                transfer.draw_cuts(self.places().filter(comes).count());
                if transfer.is_slow {
                    let odds = DiskOdds { slow: Odds::one_in(2), ..self.plan.disk };
                    self.hosts[NEWCOMER].machine.disk.set_odds(odds);
                }
                transfer.step = Step::Moving;
            }
            Step::Moving => {
                self.end_cut(transfer)?;
                if transfer.is_due() {
                    self.cut_copy(transfer);
                }
                // A query that began before is told of what was given up meanwhile.
                let is_over = !self.mover.is_moving() && !self.is_searching();
                if transfer.until.is_none() && is_over && self.hosts[NEWCOMER].serves() {
                    self.auditor.copies.clear();
                    self.auditor.failed = None;
                    self.examine_all()?;
                    transfer.step = Step::Looking;
                }
            }
            Step::Looking if !self.auditor.is_examining() => {
                self.check_newcomer()?;
                transfer.check_again()?;
                self.phase = Phase::Over;
            }
            Step::Loading | Step::Looking => {}
        }
        Ok(())
    }

    /// Writes every key once. True when all are written.
    fn load_all(&mut self) -> Result<bool, Violation> {
        let places: Vec<Place> =
            { self.places().filter(|place| !self.auditor.loaded.contains_key(place)).collect() };
        let under_way = self.auditor.loading();
        let room = LOADING_MAX.saturating_sub(under_way.len());
        for place in places.iter().filter(|place| !under_way.contains(place)).take(room) {
            let at = index_below(&mut self.rng, NEWCOMER);
            self.load(at, *place)?;
        }
        Ok(places.is_empty())
    }

    /// Damages what one of those has who are there.
    fn damage(&mut self, rng: &mut SplitMix64) {
        self.is_rotten = true;
        let at = index_below(rng, NEWCOMER);
        let disk = &self.hosts[at].machine.disk;
        let files = disk.written();
        let is_table = |path: &std::path::Path| path.extension().is_some_and(|it| it == "tbl");
        let tables: Vec<_> = files.iter().filter(|(path, len)| is_table(path) && *len > 1).collect();
        for _ in 0..DAMAGES.min(tables.len() as u64) {
            let (path, len) = tables[index_below(rng, tables.len())];
            // Blocks of data: without its index a table is lost as a whole.
            let offset = rng.below(len / 2);
            let bit = u8::try_from(rng.below(8)).expect("small");
            self.trace.line(format_args!("n{at}: {} is damaged at {offset}", path.display()));
            disk.flip_bit(path, offset, bit);
        }
        // A copy that cannot be read is replaced by the next that is sent, which may have less: what it had, others
        // have.
        for place in self.places() {
            self.checks.release(at, &super::auditor::name(place));
        }
    }

    fn are_primaries_to_be(&self, place: Place) -> Vec<usize> {
        let (bucket, key) = super::client::names(place);
        primaries_of(self.mover.ring_to_be(), &bucket.name, &key)
    }

    /// How far the newcomer says that its copies are.
    fn transfers(&self) -> Vec<TransferStatus> {
        let process = self.hosts[NEWCOMER].machine.process.iter();
        process
            .flat_map(|process| process.shards.iter().flatten())
            .flat_map(|shard| shard.status().transfers())
            .collect()
    }

    /// Those that the newcomer is being sent a part by.
    fn senders(&self) -> usize {
        self.transfers().iter().filter(|transfer| transfer.running).count()
    }

    fn cut_copy(&mut self, transfer: &mut Transfer) {
        let senders = self.senders();
        if senders == 0 || self.hosts[NEWCOMER].held.is_some() || !self.mover.is_moving() {
            return;
        }
        let now = self.events.now();
        let giver = index_below(&mut transfer.rng, NEWCOMER);
        let is_standstill = transfer.outcome.cuts == STANDSTILL;
        transfer.outcome.cuts += 1;
        let others: Vec<usize> = match transfer.rng.below(10) {
            _ if is_standstill => (0..NEWCOMER).collect(),
            0..3 => {
                self.hosts[NEWCOMER].machine.disk.kill();
                self.follow_up(NEWCOMER);
                Vec::new()
            }
            3..5 => {
                self.power_cut(NEWCOMER);
                Vec::new()
            }
            5 | 6 => {
                self.hosts[giver].machine.disk.kill();
                self.follow_up(giver);
                Vec::new()
            }
            7 => {
                self.pause(NEWCOMER);
                Vec::new()
            }
            _ => vec![giver],
        };
        let lasts = duration_between(&mut transfer.rng, CUT.0, CUT.1);
        let lasts = if is_standstill { STANDSTILL_FOR } else { lasts };
        transfer.until = (!others.is_empty()).then_some((now + lasts, is_standstill));
        for other in others {
            self.inside.cut(node_id(NEWCOMER), node_id(other));
            self.inside.cut(node_id(other), node_id(NEWCOMER));
        }
        self.links_changed(NEWCOMER);
        self.trace.line(format_args!("cut {} after {}", transfer.outcome.cuts, transfer.sent.len()));
    }

    fn end_cut(&mut self, transfer: &mut Transfer) -> Verdict {
        let now = self.events.now();
        let Some((_, is_standstill)) = transfer.until.take_if(|(until, _)| *until <= now) else {
            return Ok(());
        };
        if is_standstill {
            self.check_standstill()?;
        }
        self.inside.heal_all();
        self.links_changed(NEWCOMER);
        Ok(())
    }

    /// A copy that stands still says so: nothing has come for nearly as long, and why.
    fn check_standstill(&mut self) -> Verdict {
        let now = self.hosts[NEWCOMER].machine.clock.now();
        if self.hosts[NEWCOMER].machine.process.is_none() {
            return Ok(());
        }
        let transfers = self.transfers();
        // Its clock begins with its process, which a crash that was to come may have ended meanwhile.
        let still = STANDSTILL_FOR.min(now.since(Monotonic(0))) / 2;
        let says = |it: &TransferStatus| {
            it.partitions_left > 0 && now.since(it.moved) >= still && it.reason.is_some()
        };
        if transfers.iter().any(says) {
            return Ok(());
        }
        let what = format!("after {STANDSTILL_FOR:?} without a link: {transfers:?}");
        Err(Violation::new("a copy that stands still says so", what))
    }

    /// Who has come has all that it is to have.
    fn check_newcomer(&mut self) -> Verdict {
        for place in self.places().collect::<Vec<_>>() {
            if !self.primaries(place).contains(&NEWCOMER) {
                continue;
            }
            let copies = self.auditor.copies.get(&place);
            let head = copies.and_then(|copies| copies.of_nodes().find(|(at, _)| *at == NEWCOMER));
            if head.is_none_or(|(_, head)| head.is_none()) {
                let what = format!("{}: n{NEWCOMER} has not got it", super::auditor::name(place));
                return Err(Violation::new("the receiver of a transfer gets all confirmed writes", what));
            }
        }
        Ok(())
    }
}

impl Transfer {
    /// A cut costs the parts that were under way. What others are asked for in the place of one that has lost something
    /// comes from its beginning.
    fn check_again(&self) -> Verdict {
        let Outcome { again, again_max, is_lossy, .. } = self.outcome;
        if again <= again_max || is_lossy {
            return Ok(());
        }
        let what = format!("{}, and {again_max} might be", self.outcome);
        Err(Violation::new("an interruption costs only the parts in progress", what))
    }
}
