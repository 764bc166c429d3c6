//! The faults that the world causes: to nodes, to their disks, and to the links between them.

use super::host::Folder;
use super::plan::Loss;
use super::{Event, World, node_id};
use crate::disk::{Armed, DiskOdds};
use crate::fault::{Fault, Odds};
use crate::partition::{Kinds, Partition};
use crate::seed::{between, duration_between, index_below};
use base::{Clock, Rng};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// The range of disk operations within which an armed crash comes.
const ARMED_WITHIN: u64 = 60;
/// The shortest and the longest time that a process stands still.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(8));
/// The shortest and the longest time that nodes are cut from others.
const PARTITION: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(8));
/// The shortest and the longest time that no operation of a disk ends.
const STALL: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(4));
/// The farthest that a wall clock jumps, in microseconds: an hour.
const JUMP_MAX: u64 = 3_600_000_000;
/// The most bits of a disk that flip.
const FLIPS_MAX: u64 = 5;
/// Acknowledged operations before a disk is lost: there must be something to lose.
const LOSS_FROM: u64 = 60;

impl World {
    pub(super) fn on_trouble(&mut self) {
        if !self.phase.has_trouble() {
            return;
        }
        if self.scenario.is_none() && !self.is_restoring {
            self.cause_trouble();
        }
        let shortest = self.plan.trouble_pause_max / 10;
        let longest = if self.rng.chance(1, 4) { shortest } else { self.plan.trouble_pause_max };
        let pause = duration_between(&mut self.rng, Duration::ZERO, longest);
        self.events.after(pause, Event::Trouble);
    }

    fn cause_trouble(&mut self) {
        let at = index_below(&mut self.rng, self.hosts.len());
        let troubles = self.plan.troubles;
        let is_up = self.hosts[at].machine.process.is_some();
        match self.rng.below(20) {
            0 | 1 if is_up => self.hosts[at].machine.disk.power_cut(),
            2 if is_up => self.hosts[at].machine.disk.kill(),
            3 | 4 => self.arm_crash(at),
            5 if troubles.blackouts => self.black_out(),
            6 if troubles.clock_jumps => self.jump(at),
            7 => self.stop(at),
            8..11 if is_up && troubles.pauses => self.pause(at),
            11..16 => self.start_partition(),
            16 if troubles.stalls && is_up => self.stall(at),
            17 => self.slow_down(at),
            18 | 19 => self.lose(),
            _ => {}
        }
        if self.has_seen_enough() && self.rng.chance(1, 2) {
            self.hurry(at);
        }
        self.follow_up(at);
    }

    /// Enough was acknowledged: faults that are rare by nature and have not come yet are helped to come.
    fn hurry(&mut self, at: usize) {
        let disk = &self.hosts[at].machine.disk;
        match self.unfired().first() {
            Some(Fault::CrashInWrite) => {
                disk.arm(between(&mut self.rng, 1, ARMED_WITHIN / 4), Armed::PowerCut);
            }
            Some(Fault::ProcessKill) => disk.kill(),
            Some(Fault::Blackout) => self.black_out(),
            Some(Fault::ClockJump) => self.jump(at),
            Some(Fault::Pause) => self.pause(at),
            Some(Fault::Stall) => self.stall(at),
            Some(loss) if self.plan.random_loss().is_some_and(|planned| planned.fault() == *loss) => {
                self.lose()
            }
            _ => {}
        }
    }

    pub(super) fn arm_crash(&mut self, at: usize) {
        let crash = if self.rng.chance(2, 3) { Armed::PowerCut } else { Armed::Kill };
        self.hosts[at].machine.disk.arm(between(&mut self.rng, 1, ARMED_WITHIN), crash);
    }

    /// All nodes lose power at once.
    fn black_out(&mut self) {
        self.trace.fault(Fault::Blackout, format_args!("all nodes"));
        for at in 0..self.hosts.len() {
            self.hosts[at].machine.disk.power_cut();
            self.follow_up(at);
        }
    }

    fn jump(&mut self, at: usize) {
        let farthest = if self.rng.chance(1, 2) { JUMP_MAX } else { JUMP_MAX / 1000 };
        let ahead = i64::try_from(self.rng.below(2 * farthest)).expect("hours");
        let clock = &self.hosts[at].machine.clock;
        clock.jump(ahead - i64::try_from(farthest).expect("hours"));
        self.trace.fault(Fault::ClockJump, format_args!("n{at} to {}", clock.wall().0));
    }

    fn pause(&mut self, at: usize) {
        if self.hosts[at].held.is_some() || self.hosts[at].machine.process.is_none() {
            return;
        }
        let longest = if self.rng.chance(1, 3) { PAUSE.1 } else { PAUSE.1 / 4 };
        let pause = duration_between(&mut self.rng, PAUSE.0, longest);
        self.trace.fault(Fault::Pause, format_args!("n{at} for {pause:?}"));
        self.hosts[at].held = Some(VecDeque::new());
        self.events.after(pause, Event::Resume(at));
    }

    fn stall(&mut self, at: usize) {
        let stall = duration_between(&mut self.rng, STALL.0, STALL.1);
        self.trace.fault(Fault::Stall, format_args!("n{at} for {stall:?}"));
        self.hosts[at].stalled_until = self.events.now() + stall;
    }

    fn slow_down(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        host.is_slow = !host.is_slow;
        let slow = if host.is_slow { Odds::one_in(2) } else { self.plan.disk.slow };
        host.machine.disk.set_odds(DiskOdds { slow, ..self.plan.disk });
    }

    // Losses.

    /// Whether the node may lose votes: each group keeps a majority of voters that lost nothing.
    pub(super) fn may_hurt(&self, at: usize) -> bool {
        let is_hurt = |node: &usize| *node == at || self.hosts[*node].is_hurt || self.hosts[*node].gone;
        self.groups.iter().all(|prefix| {
            let voters = self.registry.voters(*prefix);
            2 * voters.iter().filter(|node| is_hurt(node)).count() < voters.len()
        })
    }

    /// Loses a disk, if that is planned and can be.
    fn lose(&mut self) {
        let Some(loss) = self.plan.random_loss().filter(|_| self.tally.acknowledged() >= LOSS_FROM) else {
            return;
        };
        let at = match (loss, &self.backup) {
            (Loss::Restored, None) => return self.back_up(),
            (Loss::Restored, Some((at, _))) => *at,
            _ => index_below(&mut self.rng, self.hosts.len()),
        };
        let is_coming = self.hosts.iter().any(|host| host.next_disk.is_some());
        let host = &self.hosts[at];
        if is_coming || host.gone || host.held.is_some() || !self.may_hurt(at) {
            return;
        }
        let Some(life) = host.life().filter(|life| self.registry.has(at, *life)) else { return };
        match loss {
            Loss::Flipped => return self.flip(at),
            Loss::Wiped => self.hosts[at].next_disk = Some(None),
            Loss::SetBack => return,
            Loss::Restored => {
                // A copy of the last start looks like its successor, which is outside the failure model.
                let folder = self.backup.take_if(|(_, folder)| folder.starts < self.hosts[at].starts);
                let Some((_, folder)) = folder else { return self.stop(at) };
                self.hosts[at].next_disk = Some(Some(folder));
            }
            Loss::Cloned => {
                let other = (at + 1 + index_below(&mut self.rng, self.hosts.len() - 1)) % self.hosts.len();
                if self.hosts[other].shards() != self.hosts[at].shards() || self.hosts[other].starts == 0 {
                    return;
                }
                self.hosts[at].next_disk = Some(Some(self.folder(other)));
            }
        }
        self.trace.line(format_args!("n{at}, process {life:x}, loses its disk"));
        self.hosts[at].is_hurt = true;
        self.power_cut(at);
    }

    pub(super) fn folder(&self, at: usize) -> Folder {
        let host = &self.hosts[at];
        Folder { image: host.machine.disk.image(self.seed.stream("image", 0)), starts: host.starts }
    }

    /// Takes a copy of some node's folder, to restore it later.
    fn back_up(&mut self) {
        let at = index_below(&mut self.rng, self.hosts.len());
        if self.may_hurt(at) && self.hosts[at].machine.process.is_some() {
            self.trace.line(format_args!("n{at} is backed up"));
            self.backup = Some((at, self.folder(at)));
        }
    }

    /// Flips some bits that the node has synced, and cuts its power in half of all cases.
    fn flip(&mut self, at: usize) {
        let mut is_flipped = false;
        for _ in 0..between(&mut self.rng, 1, FLIPS_MAX) {
            let host = &self.hosts[at];
            is_flipped |= host.watch.flip(&host.machine.disk, &mut self.rng);
        }
        self.hosts[at].is_hurt |= is_flipped;
        if is_flipped && self.rng.chance(1, 2) {
            self.power_cut(at);
        }
    }

    // Links.

    fn start_partition(&mut self) {
        let troubles = self.plan.troubles;
        if self.partition.is_some() {
            return;
        }
        let kinds =
            Kinds { both_ways: troubles.partitions, one_way: troubles.one_way, flapping: troubles.flapping };
        let (nodes, now) = (self.hosts.len(), self.events.now());
        self.partition = Partition::begin(kinds, nodes, PARTITION, now, (&self.trace, &mut self.rng));
        self.on_partition();
    }

    /// Cuts the links, mends them for a while, or for good.
    pub(super) fn on_partition(&mut self) {
        let Some(mut partition) = self.partition.take() else { return };
        let now = self.events.now();
        let Some(is_cut) = partition.change(now) else { return };
        self.set_links(&partition.links, is_cut);
        let Some(next) = partition.next_change(now, &mut self.rng) else { return };
        self.events.at(next, Event::Partition);
        self.partition = Some(partition);
    }

    /// Cuts or mends links.
    pub(super) fn set_links(&mut self, links: &[(usize, usize)], is_cut: bool) {
        for (from, to) in links {
            match is_cut {
                true => self.inside.cut(node_id(*from), node_id(*to)),
                false => self.inside.heal(node_id(*from), node_id(*to)),
            }
        }
        self.trace.line(format_args!("links {links:?} are {}", if is_cut { "cut" } else { "mended" }));
        (0..self.hosts.len()).for_each(|at| self.links_changed(at));
    }

    /// The links of a one-way cut that lasts: a node is not heard, or hears nobody, or one link is cut. With them the
    /// nodes that all links of are whole, but of those to the others.
    pub(super) fn draw_lasting_cut(&mut self) -> (Vec<(usize, usize)>, BTreeSet<usize>) {
        let nodes = self.hosts.len();
        let at = index_below(&mut self.rng, nodes);
        let other = (at + 1 + index_below(&mut self.rng, nodes - 1)) % nodes;
        let others = (0..nodes).filter(|node| *node != at);
        let links = match self.rng.below(3) {
            0 => others.map(|node| (at, node)).collect(),
            1 => others.map(|node| (node, at)).collect(),
            _ => vec![(at, other)],
        };
        (links, BTreeSet::from([at]))
    }
}
