//! A restore of the whole cluster: backups of all nodes while clients go on, and the loss of all folders later.
//!
//! 1. *Backups*: each node is backed up (`backup.rs`), one after the other, beside requests and faults.
//! 2. *Loss*: some time later all nodes lose their power and their folders. Each starts with the folder that is made of
//!    its backup. The registry has the records of the moment of one of the backups.
//! 3. *Held back*: no restored store has a birth, so nobody answers requests on the type.
//! 4. *Recovery*: the operator recovers the groups (`operator.rs`), and nodes crash meanwhile.
//! 5. *Refill*: the groups have all their voters again. Then the life goes on.
//!
//! Promises: a group answers nothing before its chosen copy goes on; the restore ends; histories are those of
//! `history.rs`, which are cut by it.
//!
//! Modelled: the metadata log by the registry, whose restore has one outcome at all nodes. From the loss to the end
//! only crashes begin, and faults of messages and disk operations.
//!
//! Left out: backups with flipped bits; nodes without a backup (`--without`); stores with memtables that do not take
//! the states of all groups at once, since an adoption writes them in one turn.

use super::backup::{Asked, NodeBackup};
use super::operator::Recovery;
use super::{Event, World};
use crate::check::{Verdict, Violation};
use crate::seed::{Seed, between, duration_between, index_below};
use base::Monotonic;
use base::rng::SplitMix64;
use std::collections::BTreeSet;
use std::time::Duration;
use strong::linearizability::Outcome;

/// The interval of looks before the loss.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The wait after a backup that failed.
const BACK_UP_AGAIN: Duration = Duration::from_millis(300);
/// The longest pause between the backups of two nodes.
const BETWEEN_BACKUPS_MAX: Duration = Duration::from_millis(600);
/// The longest time from the last backup to the loss.
const KEPT_MAX: Duration = Duration::from_millis(2_500);
/// The longest time from the loss to a node's start.
const DOWN_MAX: Duration = Duration::from_millis(500);
/// The longest time that restored nodes wait for their operator.
const HELD_MAX: Duration = Duration::from_millis(1_500);
/// The time within which restored nodes start, and the operator recovers their groups.
const RECOVERY_MAX: Duration = Duration::from_secs(60);
/// The time within which recovered groups have all their voters.
const REFILL_MAX: Duration = Duration::from_secs(30);
/// The fewest and the most definite answers before the first backup.
const BACKUPS_FROM: (u64, u64) = (30, 90);
/// The time for which a node is cut off before the backups: others lead its groups, and write.
const BEHIND_FOR: Duration = Duration::from_secs(5);

/// The part of a restore.
enum Stage {
    /// Too few requests were answered.
    Waiting,
    /// Nodes are backed up; with the one whose stores are asked.
    BackingUp(Option<(usize, Monotonic, Asked)>),
    /// All have backups.
    Kept,
    /// All folders were lost; until then no operator comes.
    Held(Monotonic),
    Recovering(Recovery),
    /// Groups get their voters back, since then; those that are still to be seen settled. Clients write meanwhile, so
    /// they never settle all at once.
    Refilling(Monotonic, BTreeSet<u16>),
    Over,
}

/// A restore, from its plan on.
pub(super) struct Restore {
    rng: SplitMix64,
    stage: Stage,
    backups_from: u64,
    backups: Vec<Option<NodeBackup>>,
    /// The request for the first backup.
    began: Monotonic,
    lost: Monotonic,
    /// The last number of a request before the loss.
    last_number: u64,
    /// The node that is cut off before the backups.
    behind: Option<usize>,
}

impl Restore {
    pub(super) fn new(seed: Seed, nodes: usize) -> Restore {
        let mut rng = seed.stream("restore", 1);
        Restore {
            backups_from: between(&mut rng, BACKUPS_FROM.0, BACKUPS_FROM.1),
            rng,
            stage: Stage::Waiting,
            backups: (0..nodes).map(|_| None).collect(),
            began: Monotonic(u64::MAX),
            lost: Monotonic(0),
            last_number: 0,
            behind: None,
        }
    }

    /// Whether it is still to come, or under way.
    pub(super) fn is_to_end(&self) -> bool {
        !matches!(self.stage, Stage::Over)
    }

    /// Whether a request was sent by a client of the time before the loss, whose connection is broken.
    pub(super) fn has_ended(&self, number: u64) -> bool {
        number <= self.last_number
    }

    fn within(&mut self, max: Duration) -> Duration {
        duration_between(&mut self.rng, Duration::ZERO, max)
    }
}

impl World {
    /// Goes on with the restore.
    pub(super) fn on_restore(&mut self) -> Verdict {
        if !self.phase.has_trouble() {
            return Ok(());
        }
        let Some(mut restore) = self.restore.take() else { return Ok(()) };
        let delay = self.step_restore(&mut restore);
        self.restore = Some(restore);
        if let Some(delay) = delay? {
            self.events.after(delay, Event::Restore);
        }
        Ok(())
    }

    /// The next step, and the time until the one after it.
    fn step_restore(&mut self, restore: &mut Restore) -> Result<Option<Duration>, Violation> {
        let now = self.events.now();
        match &mut restore.stage {
            Stage::Waiting => {
                if self.tally.acknowledged() >= restore.backups_from {
                    if self.plan.backs_up_behind && restore.behind.is_none() {
                        return Ok(Some(self.leave_behind(restore)));
                    }
                    restore.stage = Stage::BackingUp(None);
                }
            }
            Stage::BackingUp(_) => return Ok(Some(self.back_up_next(restore))),
            Stage::Kept => self.lose_all(restore)?,
            Stage::Held(until) => {
                if now >= *until && self.are_confirmed() {
                    let rng = self.seed.stream("operator", 0);
                    restore.stage = Stage::Recovering(Recovery::new(rng));
                }
            }
            Stage::Recovering(recovery) => {
                if self.recover_next(recovery)? {
                    self.trace.line(format_args!("all groups are recovered"));
                    restore.stage = Stage::Refilling(now, self.groups.iter().copied().collect());
                } else {
                    let delay = recovery.delay();
                    self.check_in_time(restore.lost, RECOVERY_MAX, "restored nodes go on")?;
                    return Ok(Some(delay));
                }
            }
            Stage::Refilling(since, unsettled) => {
                let since = *since;
                unsettled.retain(|prefix| !self.is_refilled(*prefix));
                if unsettled.is_empty() && self.are_registered() {
                    self.end_restore();
                    restore.stage = Stage::Over;
                    return Ok(None);
                }
                self.check_in_time(since, REFILL_MAX, "recovered groups are refilled")?;
            }
            Stage::Over => return Ok(None),
        }
        if self.is_restoring {
            self.check_in_time(restore.lost, RECOVERY_MAX + REFILL_MAX, "restored nodes go on")?;
        }
        Ok(Some(LOOK_EVERY))
    }

    fn check_in_time(&mut self, since: Monotonic, max: Duration, promise: &'static str) -> Verdict {
        match self.events.now().since(since) > max {
            true => Err(Violation::new(promise, self.describe())),
            false => Ok(()),
        }
    }

    /// Cuts a node off; the time until the backups begin. The loss of all nodes mends its links.
    fn leave_behind(&mut self, restore: &mut Restore) -> Duration {
        let at = index_below(&mut restore.rng, self.hosts.len());
        restore.behind = Some(at);
        let links = self.links_of(at, true);
        self.set_links(&links, true);
        BEHIND_FOR
    }

    /// Asks the next node for its backup, or makes it; the time until the next look.
    fn back_up_next(&mut self, restore: &mut Restore) -> Duration {
        let Stage::BackingUp(asked) = &mut restore.stage else { return LOOK_EVERY };
        let Some((at, since, asking)) = asked else {
            let missing = restore.backups.iter().enumerate().filter(|(_, backup)| backup.is_none());
            let missing: Vec<usize> = missing.map(|(at, _)| at).collect();
            if missing.is_empty() {
                restore.stage = Stage::Kept;
                return restore.within(KEPT_MAX);
            }
            let at = missing[index_below(&mut restore.rng, missing.len())];
            *asked = Asked::of(&mut self.hosts[at]).map(|asked| (at, self.events.now(), asked));
            return LOOK_EVERY;
        };

        let (at, since) = (*at, *since);
        let made = match asking.take(&self.hosts[at], self.seed, self.registry.records()) {
            Ok(None) => return LOOK_EVERY,
            made => made,
        };
        *asked = None;
        self.trace.line(format_args!("n{at} is backed up as of {since:?}: {:?}", made.as_ref().err()));
        match made {
            Ok(backup) => {
                restore.backups[at] = backup;
                restore.began = restore.began.min(since);
                restore.within(BETWEEN_BACKUPS_MAX)
            }
            Err(_) => BACK_UP_AGAIN,
        }
    }

    /// Replaces all folders by those that are made of the backups.
    fn lose_all(&mut self, restore: &mut Restore) -> Verdict {
        self.trace.line(format_args!("all nodes are restored"));
        self.interrupt_scenario();
        self.partition = None;
        self.is_restoring = true;
        self.held_groups = self.groups.iter().copied().collect();
        (restore.last_number, restore.lost) = (self.numbers, self.events.now());
        let under_way: Vec<u64> = self.pending.keys().copied().collect();
        under_way.into_iter().for_each(|number| self.finish(number, Outcome::Timeout));
        self.cut_histories(restore.began);

        let of = index_below(&mut restore.rng, restore.backups.len());
        self.registry.restore(&restore.backups[of].as_ref().expect("all have one").records);
        for at in 0..self.hosts.len() {
            let backup = restore.backups[at].take().expect("all have one");
            let folder = backup.folder(&mut restore.rng);
            let folder = folder.map_err(|error| Violation::new("a backup can be restored", error))?;
            let down = restore.within(DOWN_MAX);
            let host = &mut self.hosts[at];
            (host.next_disk, host.next_down) = (Some(Some(folder)), Some(down));
            (host.is_hurt, host.stalled_until) = (!backup.had_births, Monotonic(0));
            host.machine.disk.disarm();
            if std::mem::take(&mut host.gone) {
                self.events.after(down, Event::Start(at));
            }
            match self.hosts[at].machine.process {
                Some(_) => self.power_cut(at),
                None => {
                    // Nothing of a stopped process is under way on the disk any more. Its start is due already.
                    let machine = &mut self.hosts[at].machine;
                    machine.disk.power_cut();
                    machine.has_died();
                }
            }
        }
        restore.stage = Stage::Held(self.events.now() + restore.within(HELD_MAX));
        Ok(())
    }

    /// The life goes on as before.
    fn end_restore(&mut self) {
        self.trace.line(format_args!("the restore is over"));
        self.registry.settle_voters();
        self.hosts.iter_mut().for_each(|host| host.is_hurt = false);
        self.is_restoring = false;
        self.tally.restores += 1;
    }
}
