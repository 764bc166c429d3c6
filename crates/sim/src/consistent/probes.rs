//! Questions of the world to nodes, without a network between: whether each group answers, and what keys have at the
//! end.

use super::clients::{TYPE, outcome_of, request_of};
use super::plan::Loss;
use super::{World, all_but};
use crate::check::{Verdict, Violation};
use base::Monotonic;
use kv::{Error, Prop, Request, Response, TypeChange};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use strong::linearizability::{Action, Operation, Outcome};

/// The timeout of a probe: some round trips.
const PROBE_TIMEOUT: Duration = Duration::from_millis(1000);

/// The question of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Question {
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
    pub(super) began: Monotonic,
    /// When the last message arrives that was under way then.
    pub(super) quiet_from: Monotonic,
    /// Questions without an answer, and how often each was asked.
    pub(super) open: BTreeMap<Question, usize>,
    /// Those under way: the question, the node, and the time of the call.
    under_way: BTreeMap<u64, (Question, usize, u64)>,
    /// The nodes that are not asked.
    pub(super) spared: BTreeSet<usize>,
    /// Steps of the creation that are done.
    pub(super) created: usize,
    pub(super) links: Vec<(usize, usize)>,
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

    pub(super) fn ask(&mut self, questions: impl IntoIterator<Item = Question>) {
        self.open = questions.into_iter().map(|question| (question, 0)).collect();
    }
}
impl World {
    /// Asks each open question that is not under way.
    pub(super) fn ask_open(&mut self) -> Verdict {
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

    pub(super) fn question(&self, question: Question) -> Request {
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

    pub(super) fn unanswered(&mut self, promise: &'static str) -> Violation {
        let open: Vec<Question> = self.probes.open.keys().copied().collect();
        let prefixes: Vec<u16> = self.groups.clone();
        Violation::new(promise, format!("{open:?} of {prefixes:?}: {}", self.describe()))
    }
}
