//! The blows that the world deals while it lives: to nodes, and to the links between them.

use super::{BUCKETS, Event, World, node_id};
use crate::clock::WALL_EPOCH;
use crate::disk::{Armed, DiskOdds};
use crate::fault::{Fault, Odds};
use crate::partition::{Kinds, Partition};
use crate::seed::{between, duration_between, index_below};
use base::{Clock, Rng};
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// How far into its start or its life, in disk operations, a node may meet what is armed.
const ARMED_WITHIN: u64 = 60;
/// The shortest and the longest time that a process stands still.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));
/// The shortest and the longest time that nodes are cut from others.
const PARTITION: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(4));
/// The shortest and the longest time that two nodes stay cut from each other when others are not.
const STRAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(6));
/// The farthest that a wall clock jumps, in microseconds: an hour.
const JUMP_MAX: u64 = 3_600_000_000;

/// How much farther than to the end of what was written all clocks leap, in days: farther than any two of them are
/// apart.
const LEAP_DAYS: u64 = 2;
const DAY_MS: u64 = 86_400_000;
/// Of so many blows, one comes with such a leap, in the life of a cluster one at most.
const LEAP_EVERY: u64 = 8;

/// The blows to a node alone, by their numbers in [`World::on_trouble`]. It has no links to cut.
const ALONE: [u64; 12] = [0, 1, 2, 3, 3, 3, 5, 5, 6, 7, 7, 19];

/// How likely a disk operation fails where that is to come soon.
const OFTEN: Odds = Odds::one_in(30);

impl World {
    pub(super) fn on_trouble(&mut self) {
        if !self.phase.has_trouble() || self.script.is_some() {
            return;
        }
        let at = index_below(&mut self.rng, self.hosts.len());
        let troubles = self.plan.troubles;
        let up = self.hosts[at].machine.process.is_some();
        if self.plan.ttl.is_some() && self.leaps == 0 && self.rng.chance(1, LEAP_EVERY) {
            self.leap();
        }
        let blow = match self.plan.is_alone() {
            true => ALONE[index_below(&mut self.rng, ALONE.len())],
            false => self.rng.below(20),
        };
        match blow {
            0 | 1 if up => self.hosts[at].machine.disk.power_cut(),
            2 if up => self.hosts[at].machine.disk.kill(),
            3 | 4 => self.arm_crash(at),
            5 if up && self.plan.has_disk_errors() => {
                let operations = between(&mut self.rng, 1, ARMED_WITHIN);
                self.error_armed = true;
                self.hosts[at].machine.disk.arm(operations, Armed::Error);
            }
            6 if troubles.clock_jumps => self.jump(at),
            7 => self.stop(at),
            8..11 if up && troubles.pauses => self.pause(at),
            11..17 => self.start_partition(),
            17 if troubles.slow_disks => self.slow_down(at),
            18 | 19 => self.lose(),
            _ => {}
        }
        if !self.plan.is_alone() && self.has_seen_enough() && self.rng.chance(1, 2) {
            self.hurry(at);
        }
        self.follow_up(at);
        let shortest = self.plan.trouble_pause_max / 10;
        let longest = if self.rng.chance(1, 4) { shortest } else { self.plan.trouble_pause_max };
        let pause = duration_between(&mut self.rng, Duration::ZERO, longest);
        self.events.after(pause, Event::Trouble);
    }

    /// Enough was acknowledged: what is rare by nature and has not come yet is helped to come.
    fn hurry(&mut self, at: usize) {
        let disk = &self.hosts[at].machine.disk;
        let often = |odds: Odds| if odds.enabled() { OFTEN } else { odds };
        match self.trace.unfired().first() {
            Some(Fault::CrashInWrite | Fault::LostBlock | Fault::TornBlock) => {
                disk.arm(between(&mut self.rng, 1, ARMED_WITHIN / 4), Armed::PowerCut);
            }
            Some(Fault::ReadError | Fault::WriteError | Fault::SyncError | Fault::NoSpace) => {
                let DiskOdds { read_error, write_error, sync_error, no_space, .. } = self.plan.disk;
                let [read_error, write_error] = [read_error, write_error].map(often);
                let [sync_error, no_space] = [sync_error, no_space].map(often);
                disk.set_odds(DiskOdds { read_error, write_error, sync_error, no_space, ..self.plan.disk });
            }
            Some(Fault::ProcessKill) => disk.kill(),
            Some(loss) if self.plan.loss.is_some_and(|planned| planned.fault() == *loss) => self.lose(),
            _ => {}
        }
    }

    pub(super) fn arm_crash(&mut self, at: usize) {
        let crash = if self.rng.chance(2, 3) { Armed::PowerCut } else { Armed::Kill };
        self.hosts[at].machine.disk.arm(between(&mut self.rng, 1, ARMED_WITHIN), crash);
    }

    fn jump(&mut self, at: usize) {
        let farthest = if self.rng.chance(1, 2) { JUMP_MAX } else { JUMP_MAX / 1000 };
        let ahead = i64::try_from(self.rng.below(2 * farthest)).expect("hours");
        let clock = &self.hosts[at].machine.clock;
        clock.jump(ahead - i64::try_from(farthest).expect("hours"));
        self.trace.fault(Fault::ClockJump, format_args!("n{at} to {}", clock.wall().0));
    }

    /// Lets what was written so far end, where objects do: all clocks leap, and who is asked from now on shows nothing
    /// of it.
    pub(super) fn leap(&mut self) {
        let Some((bucket, days)) = self.plan.ttl else { return };
        self.leaps += 1;
        let leap = (u64::from(days) + LEAP_DAYS) * DAY_MS;
        let micros = i64::try_from(leap * 1000).expect("some days");
        self.hosts.iter().for_each(|host| host.machine.clock.jump(micros));
        let now = self.events.now();
        let wall_ms = WALL_EPOCH.millis() + self.leaps * leap + now.0 / 1_000_000;
        self.trace.line(format_args!("all clocks leap to {wall_ms}"));
        self.checks.on_end(&Bytes::from_static(BUCKETS[bucket]), now, wall_ms);
        self.forget_promises(bucket);
    }

    pub(super) fn pause(&mut self, at: usize) {
        if self.hosts[at].held.is_some() {
            return;
        }
        let pause = duration_between(&mut self.rng, PAUSE.0, PAUSE.1);
        self.trace.fault(Fault::Pause, format_args!("n{at} for {pause:?}"));
        self.hosts[at].held = Some(VecDeque::new());
        self.events.after(pause, Event::Resume(at));
    }

    pub(super) fn on_resume(&mut self, at: usize) -> crate::check::Verdict {
        let Some(held) = self.hosts[at].held.take() else { return Ok(()) };
        self.trace.line(format_args!("n{at} goes on with {} events", held.len()));
        self.checks.on_resume(at, self.events.now());
        held.into_iter().try_for_each(|event| self.step(event))
    }

    fn slow_down(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        host.slow = !host.slow;
        let slow = if host.slow { Odds::one_in(2) } else { self.plan.disk.slow };
        host.machine.disk.set_odds(DiskOdds { slow, ..self.plan.disk });
    }

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
        for (from, to) in &partition.links {
            match is_cut {
                true => self.inside.cut(node_id(*from), node_id(*to)),
                false => self.inside.heal(node_id(*from), node_id(*to)),
            }
        }
        self.trace.line(format_args!("links are {}", if is_cut { "cut" } else { "mended" }));
        (0..self.hosts.len()).for_each(|at| self.links_changed(at));
        let Some(next) = partition.next_change(now, &mut self.rng) else {
            if self.plan.troubles.strays && partition.links.len() > 2 && self.rng.chance(1, 2) {
                self.leave_cut(&partition.links);
            }
            return;
        };
        self.events.at(next, Event::Partition);
        self.partition = Some(partition);
    }

    /// Two nodes of the mended `links` stay cut from each other.
    fn leave_cut(&mut self, links: &[(usize, usize)]) {
        let (from, to) = links[index_below(&mut self.rng, links.len())];
        let until = self.events.now() + duration_between(&mut self.rng, STRAY.0, STRAY.1);
        self.trace.line(format_args!("n{from} and n{to} stay cut until {}", until.0 / 1000));
        self.partition = Some(Partition::of(vec![(from, to), (to, from)], until));
        self.on_partition();
    }
}
