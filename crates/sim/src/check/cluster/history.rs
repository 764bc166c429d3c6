//! All writes that the cluster was asked for, and what became of each as far as it has told.

use crate::check::history::{KeyName, Kind};
use crate::check::siblings::Shown;
use base::Monotonic;
use object::{Context, Dot};
use std::collections::{BTreeMap, BTreeSet};

/// A write that reached a node.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) kind: Kind,
    pub(super) context: Option<Context>,
    /// Its context is what a fold told then: it may cover what nobody has seen otherwise.
    pub(super) told: Option<Monotonic>,
    pub(super) started: Monotonic,
    /// It was acknowledged, and no loss that the world has done since takes the promise back.
    pub(super) acknowledged: Option<Acknowledged>,
    /// What it wrote has ended.
    pub(super) has_ended: bool,
    /// The time from which it has taken effect or never will. Of an unanswered write only a node alone tells it, by its
    /// death.
    pub(super) over: Option<Monotonic>,
    /// It was refused, and so never takes effect.
    pub(super) refused: bool,
}

/// A promise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledged {
    pub(super) at: Monotonic,
    /// Two nodes have it, so that one may be lost.
    safe: bool,
}

impl Write {
    /// Whether it takes away the version with this dot.
    pub(super) fn covers(&self, dot: Dot) -> bool {
        self.context.as_ref().is_some_and(|context| context.covers(dot))
    }

    /// Whether it takes away whatever it finds.
    pub(super) fn covers_all(&self) -> bool {
        self.kind == Kind::Delete && self.context.is_none()
    }

    /// The number of what it puts.
    pub(super) fn number(&self) -> Option<u64> {
        match self.kind {
            Kind::Put(number) => Some(number),
            Kind::Delete => None,
        }
    }
}

/// All writes of one key.
#[derive(Debug, Default)]
pub(super) struct KeyHistory {
    pub(super) writes: Vec<Write>,
    /// The dots that each number was seen with, by anybody.
    pub(super) dots: BTreeMap<u64, BTreeSet<Dot>>,
    /// With one replica: the time at which each number was first shown to a reader.
    pub(super) observed: BTreeMap<u64, Monotonic>,
}

impl KeyHistory {
    /// The writes of `number`: several if the network doubled the request.
    pub(super) fn of(&self, number: u64) -> impl Iterator<Item = &Write> {
        self.writes.iter().filter(move |write| write.number() == Some(number))
    }

    pub(super) fn dots_of(&self, number: u64) -> impl Iterator<Item = Dot> {
        self.dots.get(&number).into_iter().flatten().copied()
    }

    /// The earliest time at which `write` is known to have taken effect.
    pub(super) fn known(&self, write: &Write) -> Option<Monotonic> {
        let observed = write.number().filter(|number| self.of(*number).count() == 1);
        let observed = observed.and_then(|number| self.observed.get(&number).copied());
        write.acknowledged.map(|known| known.at).into_iter().chain(observed).min()
    }

    /// The time from which `write` has taken effect, or never will.
    pub(super) fn over(&self, write: &Write) -> Option<Monotonic> {
        write.over.into_iter().chain(self.known(write)).min()
    }

    /// The writes that whoever has this context has, or what came after them.
    pub(super) fn seen_in(&self, context: &Context) -> impl Iterator<Item = u64> {
        let seen = |dots: &BTreeSet<Dot>| dots.iter().any(|dot| context.covers(*dot));
        self.dots.iter().filter(move |(_, dots)| seen(dots)).map(|(number, _)| *number)
    }

    /// Whether anybody tried to delete it.
    pub(super) fn has_deletes(&self) -> bool {
        self.writes.iter().any(|write| write.kind == Kind::Delete)
    }

    /// An acknowledged write that has replaced `number`, known by `dot`, for certain.
    ///
    /// Where a write replaces what is there unread, a third one that it did not know of may have replaced it in
    /// turn, and with it the memory of what it had replaced. Where clocks decide, a context replaces nothing but by a
    /// delete.
    pub(super) fn replaced_by(
        &self,
        key: &KeyName,
        (dot, number): (Dot, u64),
        is_put: bool,
    ) -> Option<&Write> {
        let forgotten = |by: &Write| {
            let other = |of: u64| of != number && Some(of) != by.number();
            let unknown =
                |(of, dots): (&u64, &BTreeSet<Dot>)| other(*of) && dots.iter().any(|dot| !by.covers(*dot));
            self.dots.iter().any(unknown) || self.writes.iter().any(|write| write.kind == Kind::Delete)
        };
        if is_put && key.is_of_clocks() {
            return None;
        }
        self.writes.iter().find(|by| {
            by.acknowledged.is_some()
                && by.number().is_some() == is_put
                && by.number() != Some(number)
                && by.covers(dot)
                && (key.has_memory() || !forgotten(by))
        })
    }
}

/// The history of a cluster.
#[derive(Debug, Default)]
pub(super) struct History {
    keys: BTreeMap<KeyName, KeyHistory>,
    /// Some crash may have taken acknowledged writes.
    pub(super) is_lossy: bool,
}

impl History {
    /// All keys that were ever written, or tried to be.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&KeyName, &KeyHistory)> {
        self.keys.iter()
    }

    pub(super) fn key(&self, key: &KeyName) -> Option<&KeyHistory> {
        self.keys.get(key)
    }

    /// A write has begun; the answer is its place among its key's.
    pub(super) fn begin(
        &mut self,
        key: &KeyName,
        kind: Kind,
        context: Option<Context>,
        started: Monotonic,
    ) -> usize {
        let writes = &mut self.keys.entry(key.clone()).or_default().writes;
        writes.push(Write {
            kind,
            context,
            told: None,
            started,
            acknowledged: None,
            has_ended: false,
            over: None,
            refused: false,
        });
        writes.len() - 1
    }

    /// The delete at this place may take what a fold has told, and when, and nothing else.
    pub(super) fn erase(&mut self, key: &KeyName, at: usize, (context, told): (Context, Monotonic)) {
        let write = &mut self.keys.get_mut(key).expect("it has begun").writes[at];
        (write.context, write.told) = (Some(context), Some(told));
    }

    pub(super) fn acknowledge(&mut self, key: &KeyName, at: usize, now: Monotonic, safe: bool) {
        let write = &mut self.keys.get_mut(key).expect("it has begun").writes[at];
        (write.acknowledged, write.over) = (Some(Acknowledged { at: now, safe }), Some(now));
    }

    pub(super) fn refuse(&mut self, key: &KeyName, at: usize) {
        self.keys.get_mut(key).expect("it has begun").writes[at].refused = true;
    }

    pub(super) fn remember_dots(&mut self, key: &KeyName, shown: &Shown) {
        let history = self.keys.entry(key.clone()).or_default();
        for (dot, number) in &shown.numbers {
            history.dots.entry(*number).or_default().extend(*dot);
        }
    }

    /// The one replica has shown this to a reader.
    pub(super) fn observe(&mut self, key: &KeyName, shown: &Shown, now: Monotonic) {
        let history = self.keys.entry(key.clone()).or_default();
        for (_, number) in &shown.numbers {
            history.observed.entry(*number).or_insert(now);
        }
    }

    /// The process of the one replica has ended. Writes under way have taken effect or never will.
    pub(super) fn on_end_of_process(&mut self, now: Monotonic) {
        for write in self.keys.values_mut().flat_map(|history| &mut history.writes) {
            write.over.get_or_insert(now);
        }
    }

    /// Something was lost on one node. What only that one may have had is no longer promised; with a limit,
    /// nor is anything that was acknowledged later.
    pub(super) fn on_loss(&mut self, limit: Option<Monotonic>) {
        self.is_lossy = true;
        let survives = |at: Monotonic| limit.is_none_or(|limit| at <= limit);
        for history in self.keys.values_mut() {
            for write in &mut history.writes {
                write.acknowledged = write.acknowledged.filter(|known| known.safe && survives(known.at));
            }
            history.observed.retain(|_, at| survives(*at));
        }
    }

    /// Some keys have ended: nothing of what was written to them is promised any more.
    pub(super) fn on_end(&mut self, is_of: impl Fn(&KeyName) -> bool) {
        let ended = self.keys.iter_mut().filter(|(key, _)| is_of(key));
        for write in ended.flat_map(|(_, history)| &mut history.writes) {
            (write.acknowledged, write.has_ended) = (None, true);
        }
    }

    pub(super) fn acknowledged(&self) -> u64 {
        let writes = self.keys.values().flat_map(|history| &history.writes);
        writes.map(|write| u64::from(write.acknowledged.is_some())).sum()
    }
}
