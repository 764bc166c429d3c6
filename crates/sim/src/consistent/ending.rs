//! Beginning and end of a life: preparation, the times in which each group must answer, rest, and the last checks.

use super::clients::{TYPE, outcome_of, request_of};
use super::plan::Loss;
use super::restore::Restore;
use super::{Event, World, all_but};
use crate::check::{Verdict, Violation};
use crate::disk::DiskOdds;
use crate::fault::Fault;
use crate::network::NetworkConfig;
use crate::report::ACKNOWLEDGED_MIN;
use crate::show;
use base::Monotonic;
use bytes::Bytes;
use kv::{Error, Prop, Request, Response, TypeChange};
use node::GroupReport;
use object::key;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use strong::linearizability::{Action, Operation, Outcome};

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
/// The timeout of a probe: some round trips.
const PROBE_TIMEOUT: Duration = Duration::from_millis(1000);

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

/// The question of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    /// The next step of the creation of the bucket type.
    Type,
    /// A key of the group is read.
    Group(usize),
    /// The key is read for its history.
    Key(usize),
}

/// Questions of the world to nodes, without a network between.
#[derive(Debug)]
pub(super) struct Probes {
    /// When this part of the life began.
    began: Monotonic,
    /// When the last message arrives that was under way then.
    quiet_from: Monotonic,
    /// Questions without an answer, and how often each was asked.
    open: BTreeMap<Question, usize>,
    /// Those under way: the question, the node, and the time of the call.
    under_way: BTreeMap<u64, (Question, usize, u64)>,
    /// The nodes that are not asked.
    spared: BTreeSet<usize>,
    /// Steps of the creation that are done.
    created: usize,
    links: Vec<(usize, usize)>,
}

impl Default for Probes {
    fn default() -> Probes {
        Probes {
            began: Monotonic(0),
            quiet_from: Monotonic(0),
            open: BTreeMap::from([(Question::Type, 0)]),
            under_way: BTreeMap::new(),
            spared: BTreeSet::new(),
            created: 0,
            links: Vec::new(),
        }
    }
}

impl Probes {
    /// The node's answers will not come.
    pub(super) fn on_death(&mut self, node: usize) {
        self.under_way.retain(|_, (_, at, _)| *at != node);
    }

    fn ask(&mut self, questions: impl IntoIterator<Item = Question>) {
        self.open = questions.into_iter().map(|question| (question, 0)).collect();
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

    /// Whether a majority of a group can speak to each other, and to the nodes that are asked.
    fn is_fine(&self, question: Question) -> bool {
        let Question::Group(group) = question else { return true };
        let prefix = self.groups[group];
        let live = self.registry.live_voters(prefix);
        let fine = live.iter().filter(|at| !self.probes.spared.contains(at) && !self.hosts[**at].gone);
        2 * fine.count() > self.registry.voters(prefix).len()
    }

    /// Ends all faults.
    fn heal(&mut self) {
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

    // Questions.

    /// Asks each open question that is not under way.
    fn ask_open(&mut self) -> Verdict {
        let under_way: BTreeSet<Question> =
            self.probes.under_way.values().map(|(question, ..)| *question).collect();
        let open: Vec<(Question, usize)> = self.probes.open.iter().map(|(&it, &asked)| (it, asked)).collect();
        for (question, asked) in open.into_iter().filter(|(question, _)| !under_way.contains(question)) {
            let nodes = all_but(self.hosts.len(), &self.probes.spared);
            let node = match question {
                Question::Type => 0,
                Question::Group(at) | Question::Key(at) => nodes[(at + asked) % nodes.len()],
            };
            *self.probes.open.get_mut(&question).expect("it is open") += 1;
            if !self.hosts[node].serves() {
                continue;
            }
            let request = self.question(question);
            self.numbers += 1;
            let (number, call) = (self.numbers, self.instant().0);
            self.trace.line(format_args!("#{number} asks n{node}: {question:?}"));
            self.probes.under_way.insert(number, (question, node, call));
            self.ask(node, number, request)?;
        }
        Ok(())
    }

    fn question(&self, question: Question) -> Request {
        let key = match question {
            Question::Type if self.probes.created == 0 => {
                let props = vec![Prop::Consistent(true), Prop::NVal(self.plan.n_val.into())];
                return Request::ChangeType(TYPE, TypeChange::Create(props));
            }
            Question::Type => return Request::ChangeType(TYPE, TypeChange::Activate),
            Question::Group(group) => {
                let prefix = self.groups[group];
                self.keys.iter().find(|key| key.prefix == prefix).expect("a group has keys")
            }
            Question::Key(key) => &self.keys[key],
        };
        request_of(key.name.clone(), Action::Get, None, PROBE_TIMEOUT, 0)
    }

    /// Takes the answer to a question of the world; whether it was one.
    pub(super) fn on_probed(&mut self, number: u64, result: &Result<Response, Error>) -> bool {
        let Some((question, _, call)) = self.probes.under_way.remove(&number) else { return false };
        let outcome = outcome_of(result);
        // A leader with a damaged table says so, and goes on leading.
        let is_damaged = matches!(result, Err(Error::Damaged(_))) && self.plan.loss == Some(Loss::Flipped);
        match question {
            Question::Group(_) | Question::Key(_) if is_damaged => {
                self.probes.open.remove(&question);
            }
            Question::Type if result.is_ok() => {
                self.probes.created += 1;
                if self.probes.created == 2 {
                    self.probes.ask((0..self.groups.len()).map(Question::Group));
                }
            }
            Question::Group(_) if matches!(outcome, Outcome::Read(_)) => {
                self.probes.open.remove(&question);
            }
            Question::Key(key) if matches!(outcome, Outcome::Read(_)) => {
                self.probes.open.remove(&question);
                let end = self.instant().0;
                self.note(key, Operation { call, end, action: Action::Get, outcome });
            }
            _ => {}
        }
        true
    }

    fn unanswered(&mut self, promise: &'static str) -> Violation {
        let open: Vec<Question> = self.probes.open.keys().copied().collect();
        let prefixes: Vec<u16> = self.groups.clone();
        Violation::new(promise, format!("{open:?} of {prefixes:?}: {}", self.describe()))
    }

    // Groups.

    /// The reports of all nodes on a group.
    pub(super) fn reports(&mut self, prefix: u16) -> BTreeMap<usize, GroupReport> {
        (0..self.hosts.len()).filter_map(|at| Some((at, self.report(prefix, at)?))).collect()
    }

    /// The report of one node on a group.
    pub(super) fn report(&mut self, prefix: u16, at: usize) -> Option<GroupReport> {
        let host = &mut self.hosts[at];
        (0..host.shards()).rev().find_map(|shard| {
            let shard = host.machine.shard(shard)?;
            shard.status().groups().into_iter().find(|report| report.prefix == prefix)
        })
    }

    /// Whether each group has a leader that has told all to all present voters.
    pub(super) fn are_settled(&mut self) -> bool {
        self.groups.clone().into_iter().all(|prefix| self.is_settled(prefix).unwrap_or(false))
    }

    /// Whether each group with a leader is settled. Without requests, groups may have none.
    fn are_led_settled(&mut self) -> bool {
        self.groups.clone().into_iter().all(|prefix| self.is_settled(prefix).unwrap_or(true))
    }

    /// Whether a group's leader has told all to all present voters, if there is one.
    fn is_settled(&mut self, prefix: u16) -> Option<bool> {
        let present = self.registry.present_voters(prefix);
        let reports = self.reports(prefix);
        let leader = reports.values().filter(|it| it.role == node::GroupRole::Leader);
        let leader = leader.max_by_key(|it| it.term)?;
        let is_there = |at: &usize| {
            reports.get(at).is_some_and(|it| {
                let votes = it.role != node::GroupRole::Learner;
                it.applied == leader.last && votes && !it.is_suspect && !it.is_incomplete && !it.has_forgotten
            })
        };
        Some(leader.is_settled && present.iter().filter(|at| !self.hosts[**at].gone).all(is_there))
    }

    pub(super) fn describe(&mut self) -> String {
        let mut lines = vec![String::new()];
        for at in 0..self.hosts.len() {
            let host = &self.hosts[at];
            let is_registered = host.life().is_some_and(|life| self.registry.has(at, life));
            lines.push(format!(
                "n{at}: runs {} serves {} gone {} hurt {} registered {is_registered} heard {} of {}",
                host.machine.process.is_some(),
                host.serves(),
                host.gone,
                host.is_hurt,
                host.heard,
                self.registry.version(),
            ));
        }
        for prefix in self.groups.clone() {
            let (voters, live) = (self.registry.voters(prefix), self.registry.live_voters(prefix));
            lines.push(format!("group of {prefix}: voters {voters:?}, live {live:?}"));
            lines.extend(self.reports(prefix).into_iter().map(|(at, report)| format!("  n{at} {report:?}")));
        }
        lines.join("\n    ")
    }

    // The last checks.

    fn check_all(&mut self) -> Verdict {
        let terms: BTreeMap<u16, u64> = self.leaders.keys().copied().collect();
        self.tally.elections = terms.values().sum();
        self.check_histories()?;
        self.check_replicas()
    }

    /// Compares the heads of all present voters of each group.
    fn check_replicas(&mut self) -> Verdict {
        const EQUAL: &str = "replicas are equal";
        let ranges: Vec<key::KeyRange> =
            self.groups.iter().map(|prefix| key::objects_of_type(*prefix, &TYPE)).collect();
        let mut stored = Vec::new();
        for host in &self.hosts {
            let heads = match host.gone {
                true => BTreeMap::new(),
                false => match host.machine.stored(&ranges) {
                    Ok(heads) => heads,
                    Err(_) if host.is_hurt => BTreeMap::new(),
                    Err(error) => return Err(Violation::new(EQUAL, error.to_string())),
                },
            };
            stored.push(heads);
        }
        for (prefix, range) in self.groups.iter().zip(&ranges) {
            let of_group = |at: &usize| {
                let heads =
                    stored[*at].iter().filter(|(key, _)| **key >= range.start[..] && **key < range.end[..]);
                heads.collect::<BTreeMap<_, _>>()
            };
            let present = self.registry.present_voters(*prefix);
            let is_damaged = |at: &usize| self.hosts[*at].is_hurt && self.plan.loss == Some(Loss::Flipped);
            let present: Vec<usize> =
                present.into_iter().filter(|at| !self.hosts[*at].gone && !is_damaged(at)).collect();
            let Some(first) = present.first() else { continue };
            let heads = of_group(first);
            if let Some(other) = present.iter().find(|at| of_group(at) != heads) {
                let shown = |heads: BTreeMap<&Bytes, &Bytes>| {
                    let one = |(key, head): (&Bytes, &Bytes)| {
                        format!("{} {}", key.escape_ascii(), show::head(head))
                    };
                    heads.into_iter().map(one).collect::<Vec<_>>()
                };
                let (one, two) = (shown(heads.clone()), shown(of_group(other)));
                let what = format!("the group of prefix {prefix}: n{first} has {one:?}, n{other} {two:?}");
                return Err(Violation::new(EQUAL, what));
            }
        }
        Ok(())
    }
}
