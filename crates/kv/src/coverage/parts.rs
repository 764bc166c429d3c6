//! The parts of a scan: which source is asked for which prefixes, asked again, and replaced by others.
//!
//! 1. The prefixes of a covering set are given to their sources ([`Parts::give`]). A source's prefixes are a *part*.
//! 2. Each part that may have more is asked for one page at a time ([`Parts::ask`]).
//! 3. The owner takes an answer with [`Parts::answered`], and moves the place of the part on.
//! 4. A source that has no room is asked again after a while; one that does not answer is asked again, too.
//! 5. A source that fails is left out. The prefixes that it has not told go to others, from the same place on.
//!
//! Invariants
//! * Each prefix that was not read to its end is in one part.
//! * A part waits for the answer to one question at most; an answer counts once.
//! * A source is asked for the same page at most [`PAGE_TRIES_MAX`] times.
//!
//! Left out: pages and places, which are the owner's ([`Place`]).

use base::Monotonic;
use ring::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use super::plan::{Plan, Source};
use crate::error::Error;

/// How often the same page is asked of a source before others are: once lost and once refused.
pub const PAGE_TRIES_MAX: u32 = 3;

/// The place of a part: its prefixes, and how far they are read.
pub trait Place {
    /// Whether nothing goes on before the next page is here.
    fn is_awaited(&self) -> bool;

    /// Whether the part has nothing more to ask or to tell.
    fn is_done(&self) -> bool;

    /// The number of prefixes that are not read to their end.
    fn unread(&self) -> usize;

    /// Gives up its prefixes: no further page is awaited.
    fn give_up(&mut self) -> Vec<u16>;

    /// The same place in some of the prefixes that were given up, of which `first` was the first.
    fn given(&self, prefixes: Vec<u16>, first: Option<u16>) -> Self;

    /// Asserts relations between its fields.
    fn invariants(&self) {}
}

/// The prefixes that one source is to tell.
#[derive(Debug)]
pub struct Part<P> {
    source: Source,
    /// How far it is read.
    pub place: P,
    /// Questions for the same page so far.
    tries: u32,
    waits: Waits,
}

/// Whether a part is asked for its next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// It may be.
    No,
    /// It is, under this name, since then.
    Asked(u64, Monotonic),
    /// After a while.
    Later,
}

/// All parts of a scan.
#[derive(Debug)]
pub struct Parts<P> {
    parts: BTreeMap<u64, Part<P>>,
    /// The part that each question is about.
    asked: BTreeMap<u64, u64>,
    last_part: u64,
    /// Nodes that have failed.
    left_out: BTreeSet<NodeId>,
    /// How long a page of another node may take before it is asked for again.
    patience: Duration,
}

impl<P: Place> Parts<P> {
    /// No parts yet.
    pub fn new(patience: Duration) -> Parts<P> {
        let (parts, asked) = (BTreeMap::new(), BTreeMap::new());
        Parts { parts, asked, last_part: 0, left_out: BTreeSet::new(), patience }
    }

    /// Adds a part.
    pub fn add(&mut self, source: Source, place: P) {
        self.last_part += 1;
        self.parts.insert(self.last_part, Part { source, place, tries: 0, waits: Waits::No });
    }

    /// Gives prefixes to sources that hold them, each with its place.
    ///
    /// # Errors
    /// [`Error::NotCovered`] if there is none for some.
    pub fn give(
        &mut self,
        mut prefixes: Vec<u16>,
        place: impl Fn(Vec<u16>) -> P,
        plan: &Plan<'_>,
    ) -> Result<(), Error> {
        if base::planted!(ListingCutShort) {
            prefixes.retain(|prefix| plan.cover([*prefix], &self.left_out).is_ok());
        }
        for (source, prefixes) in plan.cover(prefixes, &self.left_out)? {
            self.add(source, place(prefixes));
        }
        Ok(())
    }

    /// The questions for all pages that may be asked for now, each named by `next`. `ask` makes the question of a part.
    pub fn ask<A>(
        &mut self,
        now: Monotonic,
        mut next: impl FnMut() -> u64,
        ask: impl Fn(&P) -> A,
    ) -> Vec<(u64, Source, A)> {
        let mut questions = Vec::new();
        for (&name, part) in &mut self.parts {
            if part.waits != Waits::No || !part.place.is_awaited() {
                continue;
            }
            let question = next();
            part.tries += 1;
            part.waits = Waits::Asked(question, now);
            self.asked.insert(question, name);
            questions.push((question, part.source, ask(&part.place)));
        }
        questions
    }

    /// The questions that have no answer.
    pub fn asked(&self) -> impl Iterator<Item = u64> {
        self.asked.keys().copied()
    }

    /// Whether this question has no answer and is waited for.
    pub fn asks(&self, question: u64) -> bool {
        self.asked.contains_key(&question)
    }

    /// A question has an answer: its part. `None` if no part waits for it.
    pub fn answered(&mut self, question: u64) -> Option<u64> {
        let name = self.asked.remove(&question)?;
        self.part_mut(name).waits = Waits::No;
        Some(name)
    }

    /// The place of a part.
    pub fn place(&self, name: u64) -> &P {
        &self.parts[&name].place
    }

    /// The source of a part.
    pub fn source(&self, name: u64) -> Source {
        self.parts[&name].source
    }

    /// The place of a part with a new page: the next one counts its tries anew.
    pub fn go_on(&mut self, name: u64) -> &mut P {
        let part = self.part_mut(name);
        part.tries = 0;
        &mut part.place
    }

    /// Takes the error that a source has answered with. A source without room is asked again with a tick, while it has
    /// tries left.
    ///
    /// # Errors
    /// As for [`Parts::fail`].
    pub fn refused(&mut self, name: u64, error: Error, plan: &Plan<'_>) -> Result<(), Error> {
        let part = self.part_mut(name);
        if error == Error::Overload && part.tries < PAGE_TRIES_MAX {
            part.waits = Waits::Later;
            return Ok(());
        }
        self.fail(name, error, plan)
    }

    /// Gives the prefixes of a part to others.
    ///
    /// # Errors
    /// If there are no others: the `cause`, unless that is only that the node cannot be reached.
    pub fn fail(&mut self, name: u64, cause: Error, plan: &Plan<'_>) -> Result<(), Error> {
        self.forget_question(name);
        let part = self.parts.get_mut(&name).expect("a part that fails is known");
        self.left_out.insert(match part.source {
            Source::Here(_) => plan.here,
            Source::Node(node) => node,
        });
        let prefixes = part.place.give_up();
        let part = self.parts.remove(&name).expect("just seen");
        let first = prefixes.first().copied();
        let given = self.give(prefixes, |prefixes| part.place.given(prefixes, first), plan);
        // Its rows may still have to be told.
        if !part.place.is_done() {
            self.parts.insert(name, part);
        }
        given.map_err(|error| match cause {
            Error::Unreachable | Error::Timeout | Error::NoType(_) => error,
            cause => cause,
        })
    }

    /// A node can no longer be reached.
    ///
    /// # Errors
    /// As for [`Parts::fail`].
    pub fn on_down(&mut self, node: NodeId, plan: &Plan<'_>) -> Result<(), Error> {
        let lost = self.names(|part| part.source == Source::Node(node) && part.place.unread() > 0);
        lost.into_iter().try_for_each(|name| self.fail(name, Error::Unreachable, plan))
    }

    /// Has pages asked for again that have not come for long, or that a source had no room for.
    ///
    /// # Errors
    /// As for [`Parts::fail`].
    pub fn tick(&mut self, now: Monotonic, plan: &Plan<'_>) -> Result<(), Error> {
        let patience = self.patience;
        let late = self.names(|part| match part.waits {
            Waits::Asked(_, at) => matches!(part.source, Source::Node(_)) && now.since(at) >= patience,
            Waits::Later => true,
            Waits::No => false,
        });
        for name in late {
            match self.parts[&name].tries < PAGE_TRIES_MAX {
                true => self.forget_question(name),
                false => self.fail(name, Error::Timeout, plan)?,
            }
        }
        Ok(())
    }

    /// Drops parts that are done.
    pub fn drop_done(&mut self) {
        self.parts.retain(|_, part| !part.place.is_done());
    }

    /// Whether no part is left.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The number of parts.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// The places of all parts.
    pub fn places(&self) -> impl Iterator<Item = &P> {
        self.parts.values().map(|part| &part.place)
    }

    /// The places of all parts, to be moved on.
    pub fn places_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.parts.values_mut().map(|part| &mut part.place)
    }

    /// Prefixes that are not read to their end.
    pub fn unread(&self) -> usize {
        self.places().map(Place::unread).sum()
    }

    /// Asserts relations that hold after each step.
    pub fn invariants(&self) {
        let asked = self.parts.values().filter(|part| matches!(part.waits, Waits::Asked(..))).count();
        assert_eq!(self.asked.len(), asked, "a part that waits for a page has one question");
        for (question, name) in &self.asked {
            let waits = self.parts.get(name).map(|part| part.waits);
            let is_its = matches!(waits, Some(Waits::Asked(by, _)) if by == *question);
            assert!(is_its, "a question is about the part that waits for its answer");
        }
        for part in self.parts.values() {
            let is_waiting = part.waits != Waits::No;
            assert!(
                !is_waiting || part.place.is_awaited(),
                "a page is asked for when the one before is told"
            );
            assert!(!is_waiting || part.tries > 0, "each question of a part is a try");
            assert!(part.tries <= PAGE_TRIES_MAX, "a page is asked for a few times");
            part.place.invariants();
        }
    }

    fn part_mut(&mut self, name: u64) -> &mut Part<P> {
        self.parts.get_mut(&name).expect("a question is about a part")
    }

    fn forget_question(&mut self, name: u64) {
        let part = self.part_mut(name);
        if let Waits::Asked(question, _) = mem::replace(&mut part.waits, Waits::No) {
            self.asked.remove(&question);
        }
    }

    fn names(&self, is_wanted: impl Fn(&Part<P>) -> bool) -> Vec<u64> {
        self.parts.iter().filter(|(_, part)| is_wanted(part)).map(|(&name, _)| name).collect()
    }
}
