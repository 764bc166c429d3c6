//! Scripts: lives whose scenarios are chosen, and not drawn, for bugs that the scenarios of plans seldom show.
//!
//! A script changes a seed's plan. Its scenarios look at a group in short intervals, so that a fault comes at one
//! moment of an election or of a copy. No plan draws them, so the lives of seeds stay as they are.
//!
//! Left out: checks. All promises of the world hold in scripts, too.

use super::plan::{Loss, Plan};
use super::scenario::{Cast, DOWN, Kind, Scenario};
use super::{World, node_id};
use node::{GroupReport, GroupRole};
use std::time::Duration;

/// A course of faults, with the remainder by four of the seeds whose lives it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// 1: entries of a leader that is cut off are replaced by fewer ones of the next leader, and it loses power.
    Overtaken,
    /// 1: a voter restarts behind its vote, and another candidate of the same term asks it.
    AskedTwice,
    /// 2: entries of a voter grow old that it does not hear to be committed, and it loses power.
    Outdated,
    /// 1: bits flip in entries that only one voter has beside a leader that dies.
    Damaged,
    /// 3: keys are deleted between the parts of a catch-up.
    Deleted,
    /// 1: all nodes are restored, one of them from a backup that lacks writes which all others have.
    BackedUpBehind,
}

/// Scenarios of a life: some begin in vain.
const SCENARIOS: usize = 3;
/// The longest timeout of requests where a leader without a majority is to take many.
const TIMEOUT_MAX: Duration = Duration::from_millis(100);
/// Bytes of a value at most where flipped bits are to hit values, and no headers.
const PADDING_MAX: usize = 1_200;
/// Bytes of a memtable where a start is to replay most of the journal.
const MEMTABLE_BYTES: usize = 1 << 20;
/// Bits that flip: with more of them some would hit a header, which costs the store its votes.
const FLIPS: u64 = 3;

/// The interval of looks at a group: shorter than a message takes.
const GLANCE_EVERY: Duration = Duration::from_micros(200);
/// Looks at a stage of a scenario before it is given up: four seconds of them.
const GLANCES_MAX: u32 = 20_000;
/// The time after a leader's death in which nobody stands for election.
const SILENCE: Duration = Duration::from_secs(1);
/// The time of a leader's death where another one is to be elected meanwhile.
const DOWN_ELECTED: Duration = Duration::from_secs(5);
/// The time in which entries grow old: other groups write some segments.
const OUTDATED_AFTER: Duration = Duration::from_secs(6);
/// The time of a message of a leader whose entries are to be committed late: a part of what makes it silent.
const DELAY: Duration = Duration::from_millis(100);
/// The time in which a process starts, registers, and takes part in its groups.
const BACK_AFTER: Duration = Duration::from_secs(3);

impl Script {
    /// Changes a seed's plan.
    pub(super) fn change(self, plan: &mut Plan) {
        (plan.loss, plan.restore, plan.n_val) = (None, false, 3);
        // A leader that is cut off is not told of it, so it takes requests.
        plan.troubles.links_tell = false;
        plan.scenarios = match self {
            Script::Overtaken => vec![Kind::Overtaken; SCENARIOS],
            Script::AskedTwice => vec![Kind::AskedTwice; SCENARIOS],
            Script::Outdated => vec![Kind::Outdated; SCENARIOS],
            Script::Damaged => vec![Kind::Damaged],
            Script::Deleted => vec![Kind::Deleted],
            Script::BackedUpBehind => Vec::new(),
        };
        match self {
            Script::Overtaken => plan.timeout_max = TIMEOUT_MAX,
            Script::Damaged => {
                plan.loss = Some(Loss::Flipped);
                plan.padding_max = PADDING_MAX;
                plan.options.memtable_bytes_max = MEMTABLE_BYTES;
            }
            Script::BackedUpBehind => (plan.restore, plan.backs_up_behind) = (true, true),
            Script::AskedTwice | Script::Outdated | Script::Deleted => {}
        }
    }
}

impl World {
    /// A voter's report of the group of a scenario.
    fn glance(&mut self, cast: Cast, at: usize) -> Option<GroupReport> {
        self.report(self.groups[cast.group], at)
    }

    /// The leader cut off takes entries until it notices. It is joined again as soon as another one leads, and loses
    /// power when the first entries of that one have replaced its own.
    pub(super) fn play_overtaken(&mut self, scenario: &mut Scenario, cast: Cast) -> Option<Duration> {
        match scenario.stage {
            1 => {
                let links = self.links_of(cast.leader, true);
                self.set_links(&links, true);
                scenario.begin_glances();
                Some(SILENCE)
            }
            2 => {
                let next = self.leader_of(self.groups[cast.group]).filter(|next| *next != cast.leader);
                let Some(old) = self.glance(cast, cast.leader).filter(|_| next.is_some()) else {
                    return scenario.glance_again(GLANCE_EVERY, GLANCES_MAX);
                };
                scenario.noted = old.last;
                self.mend();
                scenario.begin_glances();
                Some(GLANCE_EVERY)
            }
            3 => {
                let old = self.glance(cast, cast.leader)?;
                if old.last >= scenario.noted {
                    return scenario.glance_again(GLANCE_EVERY, GLANCES_MAX);
                }
                Some(self.draw_duration(1, 8))
            }
            4 => {
                self.crash(cast.leader, DOWN);
                Some(BACK_AFTER)
            }
            _ => None,
        }
    }

    /// The leader dies. Entries of the next one do not reach the voter that elected it. That leader is cut off, the
    /// voter restarts, and the first leader comes back, which has not heard of the term.
    pub(super) fn play_asked_twice(&mut self, scenario: &mut Scenario, cast: Cast) -> Option<Duration> {
        let pair = [cast.follower, cast.other];
        match scenario.stage {
            1 => {
                scenario.noted = self.glance(cast, cast.leader)?.term;
                self.crash(cast.leader, DOWN_ELECTED);
                scenario.begin_glances();
                Some(SILENCE)
            }
            2 => {
                let later = pair.map(|at| self.glance(cast, at).filter(|it| it.term > scenario.noted));
                let candidate = scenario.candidate;
                match (later, candidate) {
                    ([None, None], _) => {}
                    ([Some(_), None], _) => scenario.candidate = Some(pair[0]),
                    ([None, Some(_)], _) => scenario.candidate = Some(pair[1]),
                    ([Some(one), Some(two)], Some(candidate)) => {
                        if [one, two].iter().any(|it| it.role == GroupRole::Leader) {
                            return None;
                        }
                        let voter = pair[usize::from(candidate == pair[0])];
                        self.set_links(&[(candidate, voter)], true);
                        scenario.begin_glances();
                        return Some(GLANCE_EVERY);
                    }
                    ([Some(_), Some(_)], None) => return None,
                }
                scenario.glance_again(GLANCE_EVERY, GLANCES_MAX)
            }
            3 => {
                let candidate = scenario.candidate?;
                if self.glance(cast, candidate)?.role != GroupRole::Leader {
                    return scenario.glance_again(GLANCE_EVERY, GLANCES_MAX);
                }
                let links = self.links_of(candidate, true);
                self.set_links(&links, true);
                self.crash(pair[usize::from(candidate == pair[0])], DOWN);
                Some(DOWN_ELECTED + BACK_AFTER)
            }
            _ => None,
        }
    }

    /// Messages of the leader take long, so that a voter has entries that it does not hear to be committed. Then it
    /// hears nothing of that leader while other groups write.
    pub(super) fn play_outdated(&mut self, stage: u32, cast: Cast) -> Option<Duration> {
        match stage {
            1 => {
                for (from, to) in self.links_of(cast.leader, true) {
                    self.inside.delay(node_id(from), node_id(to), DELAY);
                }
                Some(DELAY * 5)
            }
            2 => {
                self.set_links(&[(cast.leader, cast.follower)], true);
                self.inside.end_delays();
                Some(DELAY * 2)
            }
            3 => {
                let voter = self.glance(cast, cast.follower)?;
                (voter.last >= voter.applied + 2).then_some(OUTDATED_AFTER)
            }
            4 => {
                self.crash(cast.follower, DOWN);
                self.mend();
                Some(BACK_AFTER)
            }
            _ => None,
        }
    }

    /// A voter is cut off. Another one has a few flipped bits when only the leader has the writes since; then the
    /// leader dies, and the first one is back.
    pub(super) fn play_damaged(&mut self, stage: u32, cast: Cast) -> Option<Duration> {
        match stage {
            1 => Some(self.cut_off_other(cast)),
            2 => {
                self.flip_journal(cast.follower, FLIPS);
                self.trace.line(format_args!("n{} has flipped bits", cast.follower));
                Some(self.crash_all_but_other(cast))
            }
            _ => None,
        }
    }
}
