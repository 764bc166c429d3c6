//! What a node promises, checked at its boundary: each request that reaches it, each answer that leaves it, and
//! each death in between.
//!
//! A checker sees neither the store nor the network. It holds what the node has *told* against what it tells
//! later, so nothing is excused by how the node works inside. A request that the network doubled is two
//! requests. One file for each promise:
//!
//! * `acknowledged.rs`: an acknowledged write is there until something may have replaced it; so is, at
//!   durability `sync`, whatever a reader was shown.
//! * `siblings.rs`: what is shown was written, whole and here, and was not replaced for certain.
//! * `dots.rs`: a dot means one write for ever.
//! * `answers.rs`: each request is answered once, in time, and with an error only for a cause.
//! * `damage.rs`: a crash alone is never damage; a start fails only for a cause.
//! * `index.rs`: after a clean stop a store has the index entries of its objects, and no others.
//! * `listing.rs`: on a quiet node a listing is what reads find.
//! * `cluster/`: what several nodes promise together.

pub mod acknowledged;
pub mod answers;
pub mod cluster;
pub mod damage;
pub mod dots;
pub mod history;
pub mod index;
pub mod listing;
pub mod siblings;

use answers::{Answers, Causes};
use base::Monotonic;
use dots::Dots;
use history::{History, KeyName, Kind, Moment};
use kv::{Error, Prop, Request, Response};
use object::Context;
use siblings::Shown;
use std::collections::BTreeMap;
use std::fmt;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The checker that saw it.
    pub checker: &'static str,
    /// What it saw.
    pub what: String,
}

impl Violation {
    /// What `checker` saw.
    pub fn new(checker: &'static str, what: impl Into<String>) -> Violation {
        Violation { checker, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.what)
    }
}

/// Whether all is well.
pub type Verdict = Result<(), Violation>;

/// What a request asks for, as far as it is checked.
#[derive(Clone, Debug)]
enum Asked {
    Get(KeyName),
    Put(KeyName, usize),
    Delete(KeyName, usize),
    SetProps(KeyName, usize),
    GetProps(KeyName),
    Other,
}

/// All checkers of one node.
#[derive(Debug, Default)]
pub struct Checks {
    history: History,
    answers: Answers,
    dots: Dots,
    asked: BTreeMap<u64, (Asked, Moment)>,
}

impl Checks {
    /// A request has reached the node, which is to answer it by `deadline`.
    pub fn on_request(&mut self, id: u64, request: &Request, deadline: Monotonic) {
        let started = self.history.moment();
        let asked = self.asked(request, started);
        self.asked.insert(id, (asked, started));
        self.answers.on_request(id, deadline);
    }

    fn asked(&mut self, request: &Request, started: Moment) -> Asked {
        match request {
            Request::Get(get) => Asked::Get(KeyName::of(&get.bucket, &get.key)),
            Request::Put(put) => {
                let key = KeyName::of(&put.bucket, put.key.as_ref().expect("clients name their keys"));
                let number = siblings::number_of(&put.metadata).expect("clients number their writes");
                let at = self.history.begin(&key, Kind::Put(number), context(put.context.as_ref()), started);
                Asked::Put(key, at)
            }
            Request::Delete(delete) => {
                let key = KeyName::of(&delete.bucket, &delete.key);
                let context = context(delete.context.as_ref());
                let at = self.history.begin(&key, Kind::Delete, context, started);
                Asked::Delete(key, at)
            }
            Request::SetProps(bucket, changes) => match changes[..] {
                [Prop::YoungVclock(number)] => {
                    let key = KeyName::props(bucket);
                    let at = self.history.begin(&key, Kind::Put(number.into()), None, started);
                    Asked::SetProps(key, at)
                }
                _ => Asked::Other,
            },
            Request::GetProps(bucket) => Asked::GetProps(KeyName::props(bucket)),
            _ => Asked::Other,
        }
    }

    /// An answer has left the node. `causes` are what may have gone wrong since it was started.
    pub fn on_answer(
        &mut self,
        id: u64,
        result: &Result<Response, Error>,
        more: bool,
        now: Monotonic,
        causes: impl FnOnce() -> Causes,
    ) -> Verdict {
        self.answers.on_answer(id, more)?;
        let (asked, started) = self.asked.get(&id).cloned().expect("the answers were checked");
        if !more {
            self.asked.remove(&id);
        }
        match result {
            Ok(response) => self.on_response(&asked, response, started, now),
            Err(error) => {
                if let Asked::Put(key, at) | Asked::Delete(key, at) | Asked::SetProps(key, at) = &asked
                    && answers::is_refusal(error)
                {
                    self.history.refuse(key, *at);
                }
                answers::judge(error, causes())
            }
        }
    }

    fn on_response(
        &mut self,
        asked: &Asked,
        response: &Response,
        started: Moment,
        now: Monotonic,
    ) -> Verdict {
        match (asked, response) {
            (Asked::Get(key), Response::Found(found)) => {
                let shown = siblings::read(key, found)?;
                self.on_shown(key, &shown, started, now)
            }
            (Asked::Get(key), Response::NotFound { .. }) => {
                self.on_shown(key, &Shown::default(), started, now)
            }
            (Asked::Put(key, at), Response::Put { object, .. }) => {
                self.history.acknowledge(key, *at, now);
                let Some(found) = object else { return Ok(()) };
                let shown = siblings::read(key, found)?;
                self.on_shown(key, &shown, started, now)
            }
            (Asked::Delete(key, at), Response::Deleted) | (Asked::SetProps(key, at), Response::PropsSet) => {
                self.history.acknowledge(key, *at, now);
                Ok(())
            }
            (Asked::GetProps(key), Response::Props(props)) => {
                let number = u64::from(props.young_vclock);
                let shown = Shown { numbers: vec![(None, number)], tombstones: Vec::new() };
                let shown = if history::is_props_number(number) { shown } else { Shown::default() };
                acknowledged::check(&self.history, key, &shown, started)
            }
            (Asked::Other, _) => Ok(()),
            (asked, response) => Err(answers::mismatch(format_args!("{asked:?} was answered {response:?}"))),
        }
    }

    fn on_shown(&mut self, key: &KeyName, shown: &Shown, started: Moment, now: Monotonic) -> Verdict {
        self.dots.check(key, shown)?;
        self.history.remember_dots(key, shown);
        siblings::check(&self.history, key, shown, started)?;
        acknowledged::check(&self.history, key, shown, started)?;
        self.history.observe(key, shown, now);
        Ok(())
    }

    /// The process has ended. What was acknowledged or shown after `lost_after` need not have survived.
    pub fn on_death(&mut self, lost_after: Option<Monotonic>) {
        self.history.on_death(lost_after);
        self.answers.on_death();
        self.asked.clear();
    }

    /// Whether every request is answered.
    pub fn is_idle(&self) -> bool {
        self.answers.is_idle()
    }

    /// Whether some request should have been answered by now.
    pub fn check_deadlines(&self, now: Monotonic) -> Verdict {
        self.answers.check_deadlines(now)
    }
}

fn context(bytes: Option<&bytes::Bytes>) -> Option<Context> {
    bytes.map(|bytes| Context::decode(bytes).expect("clients send back what they were given"))
}

#[cfg(test)]
mod tests;
