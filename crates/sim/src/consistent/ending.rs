//! Beginning and end of a life: preparation, and the times in which each group must answer, or comes to rest.

use super::probes::Question;
use super::restore::Restore;
use super::{Event, World};
use crate::check::{Verdict, Violation};
use crate::disk::DiskOdds;
use crate::fault::Fault;
use crate::network::NetworkConfig;
use crate::report::ACKNOWLEDGED_MIN;
use base::Monotonic;
use std::time::Duration;

/// The time within which each group answers after a heal, and after the beginning of a one-way cut that lasts.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The time in which all nodes start and register while nothing goes wrong.
const START_MAX: Duration = Duration::from_secs(20);
/// The time that a one-way cut lasts after each group has answered.
const CUT_LASTS: Duration = Duration::from_secs(3);
/// The time in which groups settle when the last message has arrived.
const REST_MAX: Duration = Duration::from_secs(30);
/// The time in which groups with a leader settle after the heal, though nobody asks them.
const QUIET_MAX: Duration = Duration::from_secs(10);
/// The longest life before faults end.
const LIFE_MAX: Duration = Duration::from_secs(90);

/// The part of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nodes start, and the type is created.
    Preparation,
    /// Everything happens.
    Life,
    /// Faults are over; nodes start again.
    Heal,
    /// Groups come to rest by themselves.
    Quiet,
    /// Each group is to answer.
    Healed,
    /// Links are cut one way; each group is to answer.
    Cut,
    /// It has answered; links stay cut until this time.
    Lasting(Monotonic),
    /// They are mended, and each group is to answer.
    Mended,
    /// Messages of long ago arrive, and groups settle.
    Rest,
    /// Each key is read.
    Reading,
    /// Nodes stop cleanly.
    Stopping,
    /// The end.
    Over,
}

impl Phase {
    pub(super) fn has_clients(self) -> bool {
        matches!(
            self,
            Phase::Life | Phase::Heal | Phase::Healed | Phase::Cut | Phase::Lasting(_) | Phase::Mended
        )
    }

    pub(super) fn has_trouble(self) -> bool {
        self == Phase::Life
    }
}

impl World {
    /// Whether clients ask now.
    pub(super) fn has_clients(&self) -> bool {
        let is_quiet = self.plan.quiet_heal && matches!(self.phase, Phase::Heal | Phase::Quiet);
        self.phase.has_clients() && !is_quiet
    }

    /// Goes on to the next part of the life if this one is over.
    pub(super) fn advance(&mut self) -> Verdict {
        let (now, phase) = (self.events.now(), self.phase);
        let since = now.since(self.probes.began);
        match phase {
            Phase::Preparation => {
                if self.are_registered() {
                    self.ask_open()?;
                }
                if self.probes.open.is_empty() {
                    self.enter(Phase::Life);
                } else if since > START_MAX {
                    return Err(self.unanswered("a cluster starts"));
                }
            }
            Phase::Life if self.has_lived() => self.enter(Phase::Heal),
            Phase::Heal if self.are_registered() => {
                self.enter(if self.plan.quiet_heal { Phase::Quiet } else { Phase::Healed });
            }
            Phase::Quiet if now > self.busy_until() && self.pending.is_empty() => {
                if self.are_led_settled() {
                    self.enter(Phase::Healed);
                } else if now > self.probes.quiet_from + QUIET_MAX {
                    return Err(Violation::new("groups come to rest by themselves", self.describe()));
                }
            }
            Phase::Heal if since > START_MAX => {
                return Err(Violation::new("a cluster starts", self.describe()));
            }
            Phase::Healed | Phase::Cut | Phase::Mended => {
                self.ask_open()?;
                if self.probes.open.is_empty() {
                    let next = match phase {
                        Phase::Healed if self.plan.lasting_cut => Phase::Cut,
                        Phase::Cut => Phase::Lasting(now + CUT_LASTS),
                        _ => Phase::Rest,
                    };
                    self.enter(next);
                } else if since > ANSWER_MAX {
                    return Err(self.unanswered("each group answers"));
                }
            }
            Phase::Lasting(until) if now >= until => self.enter(Phase::Mended),
            Phase::Rest if now > self.busy_until() && self.pending.is_empty() => {
                // A voter that is not registered is none that a settled group waits for.
                if self.are_registered() && self.are_settled() {
                    self.enter(Phase::Reading);
                } else if now > self.probes.quiet_from + REST_MAX {
                    return Err(Violation::new("groups come to rest", self.describe()));
                }
            }
            Phase::Reading => {
                self.ask_open()?;
                if self.probes.open.is_empty() {
                    self.enter(Phase::Stopping);
                } else if since > ANSWER_MAX {
                    return Err(self.unanswered("a quiet cluster is read"));
                }
            }
            Phase::Stopping if self.hosts.iter().all(|host| host.machine.process.is_none()) => {
                self.check_all()?;
                self.enter(Phase::Over);
            }
            Phase::Stopping if since > START_MAX => {
                return Err(Violation::new("nodes stop", self.describe()));
            }
            _ => {}
        }
        Ok(())
    }

    fn enter(&mut self, phase: Phase) {
        self.trace.line(format_args!("{phase:?}"));
        self.phase = phase;
        self.probes.began = self.events.now();
        self.probes.quiet_from = self.events.now().max(self.busy_until());
        let groups = (0..self.groups.len()).map(Question::Group);
        match phase {
            Phase::Life => {
                self.inside.set_config(self.plan.inside);
                self.outside.set_config(self.plan.outside);
                (0..self.clients.len()).for_each(|at| self.schedule_client(at));
                self.events.after(self.plan.trouble_pause_max, Event::Trouble);
                self.events.after(self.plan.trouble_pause_max / 2, Event::Scenario);
                if self.restore.is_some() {
                    self.events.after(Duration::ZERO, Event::Restore);
                }
            }
            Phase::Heal => self.heal(),
            Phase::Healed => {
                if self.plan.quiet_heal {
                    (0..self.clients.len()).for_each(|at| self.schedule_client(at));
                }
                self.probes.ask(groups);
            }
            Phase::Cut => {
                let (links, spared) = self.draw_lasting_cut();
                self.trace.fault(Fault::OneWay, format_args!("{links:?} for good"));
                self.set_links(&links, true);
                (self.probes.links, self.probes.spared) = (links, spared);
                let fine = groups.filter(|group| self.is_fine(*group)).collect::<Vec<_>>();
                self.probes.ask(fine);
            }
            Phase::Mended => {
                let links = std::mem::take(&mut self.probes.links);
                self.set_links(&links, false);
                self.probes.spared.clear();
                self.probes.ask(groups);
            }
            Phase::Reading => self.probes.ask((0..self.keys.len()).map(Question::Key)),
            Phase::Stopping => (0..self.hosts.len()).for_each(|at| self.stop(at)),
            _ => {}
        }
    }

    /// Whether a majority of a group can speak to each other, and to the nodes that are asked. A store that lost keys
    /// and has not got them back may need the one that is cut off.
    fn is_fine(&mut self, question: Question) -> bool {
        let Question::Group(group) = question else { return true };
        let prefix = self.groups[group];
        let reports = self.reports(prefix);
        let live = self.registry.live_voters(prefix);
        let is_whole = |at: &usize| reports.get(at).is_none_or(|report| !report.is_incomplete);
        let fine = live.iter().filter(|at| !self.probes.spared.contains(at) && !self.hosts[**at].gone);
        2 * fine.filter(|at| is_whole(at)).count() > self.registry.voters(prefix).len()
    }

    /// Ends all faults.
    pub(super) fn heal(&mut self) {
        self.inside.set_config(NetworkConfig::CALM);
        self.outside.set_config(NetworkConfig::CALM);
        self.inside.heal_all();
        (self.partition, self.scenario) = (None, None);
        for at in 0..self.hosts.len() {
            let host = &mut self.hosts[at];
            host.next_down = None;
            host.machine.disk.set_odds(DiskOdds::SOUND);
            host.machine.disk.disarm();
            host.stalled_until = Monotonic(0);
            self.links_changed(at);
            self.events.after(Duration::ZERO, Event::Resume(at));
            self.events.after(Duration::ZERO, Event::Start(at));
        }
    }

    /// Whether all nodes run, are registered, and know that.
    pub(super) fn are_registered(&mut self) -> bool {
        let version = self.registry.version();
        (0..self.hosts.len()).filter(|at| !self.hosts[*at].gone).collect::<Vec<_>>().into_iter().all(|at| {
            let is_registered = self.hosts[at].life().is_some_and(|life| self.registry.has(at, life));
            let host = &mut self.hosts[at];
            let shards = host.shards();
            is_registered
                && host.serves()
                && host.heard == version
                && (0..shards).all(|shard| host.machine.shard(shard).is_some_and(|it| it.knows_peers()))
        })
    }

    /// Whether enough was acknowledged, and enough processes have died.
    pub(super) fn has_seen_enough(&self) -> bool {
        self.tally.acknowledged() >= ACKNOWLEDGED_MIN + ACKNOWLEDGED_MIN / 2
            && self.deaths() >= self.plan.deaths
    }

    /// Faults that did not fire, but for those of disks that are rare: nearly all writes here are synced at once.
    pub(super) fn unfired(&self) -> Vec<Fault> {
        let is_rare = |fault: &Fault| {
            use Fault::{
                ColdRead, LostBlock, NoSpace, ReadError, ShortRead, SlowDisk, SyncError, TornBlock,
                WriteError,
            };
            let is_error = matches!(fault, NoSpace | ReadError | SyncError | WriteError);
            is_error || matches!(fault, ColdRead | LostBlock | ShortRead | SlowDisk | TornBlock)
        };
        self.trace.unfired().into_iter().filter(|fault| !is_rare(fault)).collect()
    }

    fn has_lived(&self) -> bool {
        let is_changing = self.hosts.iter().any(|host| host.next_disk.is_some())
            || self.scenario.is_some()
            || !self.plan.scenarios.is_empty()
            || self.restore.as_ref().is_some_and(Restore::is_to_end);
        // The cut that lasts comes later.
        let is_to_come =
            |fault: &Fault| *fault != Fault::OneWay || self.plan.troubles.one_way || !self.plan.lasting_cut;
        let unfired = self.unfired();
        if self.is_restoring {
            return false;
        }
        self.events.now() >= Monotonic(0) + LIFE_MAX
            || self.has_seen_enough() && !is_changing && !unfired.iter().any(is_to_come)
    }
}
