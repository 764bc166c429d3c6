//! A listing over a covering set: which nodes are asked, and what becomes of their answers.
//!
//! 1. Every partition is given to one node that can be reached and is a primary of it: to this one where it can be, the
//!    rest to as few others as that takes ([`Plan::cover`]). What one node, or one shard of this one, is given is a *part*.
//! 2. For each part one page at a time is asked ([`Coverage::ask`]): some names, and what is left of the part after them.
//!    The next is asked when the client has taken what came before. Of a fold, a page has a sum instead of names.
//! 3. A node that fails, or does not answer for long, is left out. What it had not told yet is given to others, from
//!    where it stopped: every node orders its keys alike.
//! 4. When no part is left the listing is whole, and ends. Where nobody is left for a partition it fails.
//!
//! Invariants: each partition that was not read to its end is in exactly one part; a page counts once, as the answer to
//! the last question about its part; so each name is told once, and an end means that all were.
//!
//! Left out: more than one replica for each partition. What a node has missed while it was away it lists once it has
//! been brought home, as in Riak, which has coverage queries of this kind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base::Monotonic;
use bytes::Bytes;
use object::key;
use ring::{NodeId, Partition, Ring, RingSize};

use crate::bucket::Bucket;
use crate::error::Error;
use crate::fold::{Fold, Sum};
use crate::list::Gather;
use crate::response::Response;

/// How long a page of another node may take before it is asked for again: a page is a few milliseconds of work, so either
/// question or answer is lost or that node has stopped.
const PAGE_PATIENCE: Duration = Duration::from_secs(2);

/// How often the same page is asked of a node before others are: once lost and once refused.
const PAGE_TRIES_MAX: u32 = 3;

/// What is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// A bucket's keys.
    Keys(Bucket),
    /// A bucket type's buckets.
    Buckets(Bytes),
    /// No names, but what a fold comes to.
    Fold(Arc<Fold>),
}

/// A question for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageAsk {
    /// What is listed.
    pub listed: Listed,
    /// What is to be read, by prefix of the keys, the first one first; at least one. A partition of the ring has one or several.
    pub partitions: Vec<u16>,
    /// The ledger key in the first one to begin at; `None` for its start.
    pub start: Option<Bytes>,
}

/// The answer to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Names.
    pub names: Vec<Bytes>,
    /// What a fold has come to on this page; always there if it is one, and never otherwise.
    pub sum: Option<Sum>,
    /// The prefixes that are not read to their end, the one to go on with first.
    pub rest: Vec<u16>,
    /// Where to go on in it; `None` for its start.
    pub next: Option<Bytes>,
}

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A shard of this node, by its number.
    Here(u16),
    /// Another node.
    Node(NodeId),
}

/// What the plan depends on, as it is at a moment.
pub struct Plan<'a> {
    /// Who owns what.
    pub ring: &'a Ring,
    /// Replicas of each object.
    pub n_val: u32,
    /// How many prefixes keys are ordered by: at least as many as the ring has partitions.
    pub prefixes: RingSize,
    /// This node.
    pub here: NodeId,
    /// Which of its shards has the keys with a prefix.
    pub shard_of: &'a dyn Fn(u16) -> u16,
    /// Whether a node can be reached.
    pub is_up: &'a dyn Fn(NodeId) -> bool,
}

impl Plan<'_> {
    /// A node for each of these prefixes, in few parts.
    ///
    /// # Errors
    /// [`Error::NotCovered`] if there is none for some.
    pub fn cover(
        &self,
        prefixes: impl IntoIterator<Item = u16>,
        left_out: &BTreeSet<NodeId>,
    ) -> Result<Vec<(Source, Vec<u16>)>, Error> {
        let n_val = usize::try_from(self.n_val).unwrap_or(usize::MAX);
        let usable = |_: Partition, node: NodeId| {
            !left_out.contains(&node) && (node == self.here || (self.is_up)(node))
        };
        let mut asked: BTreeMap<Partition, Vec<u16>> = BTreeMap::new();
        for prefix in prefixes {
            let partition = self.ring.size().convert(Partition(prefix.into()), self.prefixes);
            asked.entry(partition).or_default().push(prefix);
        }
        let partitions = asked.keys().copied();
        let mut cover =
            self.ring.cover(partitions, n_val, Some(self.here), usable).map_err(|_| Error::NotCovered)?;
        if base::planted!(ListedByTwo) {
            let mine = cover.get(&self.here).cloned().unwrap_or_default();
            let others = |at: Partition, node: NodeId| node != self.here && usable(at, node);
            let twice = self.ring.cover(mine, n_val, None, others).unwrap_or_default();
            twice.into_iter().for_each(|(node, more)| cover.entry(node).or_default().extend(more));
        }
        let mut parts = BTreeMap::new();
        for (node, partitions) in cover {
            for &prefix in partitions.iter().filter_map(|partition| asked.get(partition)).flatten() {
                let source = match node == self.here {
                    true => Source::Here((self.shard_of)(prefix)),
                    false => Source::Node(node),
                };
                parts.entry(source).or_insert_with(Vec::new).push(prefix);
            }
        }
        Ok(parts.into_iter().collect())
    }
}

/// What one source is to tell, by prefix.
#[derive(Clone, Debug)]
struct Part {
    source: Source,
    partitions: Vec<u16>,
    start: Option<Bytes>,
    /// Questions for the same page so far.
    tries: u32,
}

/// A listing under way.
#[derive(Debug)]
pub struct Coverage {
    listed: Listed,
    gather: Gather,
    /// Parts whose next page may be asked for.
    ready: Vec<Part>,
    /// Parts whose next page is to be asked for after a while.
    later: Vec<Part>,
    /// Parts whose page was asked for, by question, and when.
    asked: BTreeMap<u64, (Part, Monotonic)>,
    /// Nodes that have failed.
    left_out: BTreeSet<NodeId>,
}

impl Coverage {
    /// A listing of the whole ring; `stream`: buckets, or what a fold comes to, are answered as they come, not all at once.
    ///
    /// # Errors
    /// [`Error::NotCovered`] if there is no covering set.
    pub fn start(listed: Listed, stream: bool, plan: &Plan<'_>) -> Result<Coverage, Error> {
        let gather = match listed {
            Listed::Keys(_) => Gather::keys(),
            Listed::Buckets(_) => Gather::buckets(stream),
            Listed::Fold(ref fold) => Gather::sums(Arc::clone(fold), stream),
        };
        let (ready, later) = (Vec::new(), Vec::new());
        let (asked, left_out) = (BTreeMap::new(), BTreeSet::new());
        let mut coverage = Coverage { listed, gather, ready, later, asked, left_out };
        let all = plan.prefixes.all();
        let all = all.map(|prefix| u16::try_from(prefix.0).expect("a prefix has at most 16 bits"));
        coverage.give(all, None, plan)?;
        Ok(coverage)
    }

    /// Gives prefixes to those who hold them. `start` is the place in the first.
    fn give(
        &mut self,
        partitions: impl IntoIterator<Item = u16>,
        start: Option<(u16, Bytes)>,
        plan: &Plan<'_>,
    ) -> Result<(), Error> {
        let mut partitions: Vec<u16> = partitions.into_iter().collect();
        if base::planted!(ListingCutShort) {
            partitions.retain(|partition| plan.cover([*partition], &self.left_out).is_ok());
        }
        for (source, mut partitions) in plan.cover(partitions, &self.left_out)? {
            let begun = start.as_ref().and_then(|(partition, start)| {
                let at = partitions.iter().position(|it| it == partition)?;
                partitions.swap(0, at);
                Some(start.clone())
            });
            self.ready.push(Part { source, partitions, start: begun, tries: 0 });
        }
        Ok(())
    }

    /// The questions for all pages that may be asked for now, each named by `next`.
    pub fn ask(&mut self, now: Monotonic, mut next: impl FnMut() -> u64) -> Vec<(u64, Source, PageAsk)> {
        let mut questions = Vec::with_capacity(self.ready.len());
        for mut part in std::mem::take(&mut self.ready) {
            part.tries += 1;
            let (partitions, start) = (part.partitions.clone(), part.start.clone());
            let ask = PageAsk { listed: self.listed.clone(), partitions, start };
            let name = next();
            questions.push((name, part.source, ask));
            self.asked.insert(name, (part, now));
        }

        if cfg!(debug_assertions) {
            self.invariants();
        }
        questions
    }

    /// Asserts what holds after each step.
    pub fn invariants(&self) {
        let is_kind = match self.gather {
            Gather::Keys => matches!(self.listed, Listed::Keys(_)),
            Gather::Buckets { .. } => matches!(self.listed, Listed::Buckets(_)),
            Gather::Sums(_) => matches!(self.listed, Listed::Fold(_)),
        };
        debug_assert!(is_kind, "the answers gathered are of the kind that is listed");
        for part in &self.ready {
            debug_assert!(part.tries < PAGE_TRIES_MAX, "a page that is to be asked for has a try left");
        }
        for part in &self.later {
            let is_between = (1..PAGE_TRIES_MAX).contains(&part.tries);
            debug_assert!(is_between, "a page that was refused was asked for, and has a try left");
        }
        for (part, _) in self.asked.values() {
            let is_counted = (1..=PAGE_TRIES_MAX).contains(&part.tries);
            debug_assert!(is_counted, "each question counts as a try");
        }
        self.parts().for_each(Part::invariants);
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.ready.iter().chain(&self.later).chain(self.asked.values().map(|(part, _)| part))
    }

    /// Prefixes that are not read to their end.
    fn unread(&self) -> usize {
        self.parts().map(|part| part.partitions.len()).sum()
    }

    /// Asserts what a step may do to parts, of which so many prefixes were unread.
    fn step_invariants(&self, before: usize) {
        self.invariants();
        debug_assert!(self.unread() <= before, "a prefix that is given to others is in no second part");
    }

    /// Bytes that are held until the last answer.
    pub fn gathered_bytes(&self) -> usize {
        self.gather.gathered_bytes()
    }

    /// The questions that have no answer.
    pub fn asked(&self) -> impl Iterator<Item = u64> {
        self.asked.keys().copied()
    }

    /// Whether this question has no answer and is waited for.
    pub fn asks(&self, question: u64) -> bool {
        self.asked.contains_key(&question)
    }

    /// Takes the answer to a question, and tells what is to be answered now. An answer to what is no longer asked is none.
    ///
    /// # Errors
    /// Why the listing cannot be whole, or is longer than is held. It is over then.
    pub fn on_page(
        &mut self,
        question: u64,
        page: Result<Page, Error>,
        plan: &Plan<'_>,
    ) -> Result<Vec<Response>, Error> {
        let before = if cfg!(debug_assertions) { self.unread() } else { 0 };
        let Some((part, _)) = self.asked.remove(&question) else { return Ok(Vec::new()) };
        let answers = match page {
            Ok(page) if part.goes_on_with(&page) && self.is_answered_by(&page) => self.take(part, page),
            Ok(_) => self.fail(part, Error::NotCovered, plan).map(|()| Vec::new()),
            // It may have room in a moment; the tick asks again.
            Err(Error::Overload) if part.tries < PAGE_TRIES_MAX => {
                self.later.push(part);
                Ok(Vec::new())
            }
            Err(error) => self.fail(part, error, plan).map(|()| Vec::new()),
        };

        if cfg!(debug_assertions) {
            self.step_invariants(before);
        }
        answers
    }

    /// Whether a page tells of what was asked.
    fn is_answered_by(&self, page: &Page) -> bool {
        match (&self.listed, &page.sum) {
            (Listed::Fold(fold), Some(sum)) => sum.is_of(fold) && page.names.is_empty(),
            (Listed::Keys(_) | Listed::Buckets(_), None) => true,
            _ => false,
        }
    }

    fn take(&mut self, part: Part, page: Page) -> Result<Vec<Response>, Error> {
        let mut answers = Vec::new();
        if let Some(sum) = page.sum {
            answers.extend(self.gather.on_sum(sum)?);
        }
        if !page.names.is_empty() {
            answers.extend(self.gather.on_piece(page.names)?);
        }
        if !page.rest.is_empty() {
            self.ready.push(Part { partitions: page.rest, start: page.next, tries: 0, ..part });
        } else if self.ready.is_empty() && self.later.is_empty() && self.asked.is_empty() {
            answers.push(self.gather.end());
        }
        Ok(answers)
    }

    /// Gives a part to others. If there are none, the listing fails for the `cause`, unless that is only that the node
    /// cannot be reached.
    fn fail(&mut self, part: Part, cause: Error, plan: &Plan<'_>) -> Result<(), Error> {
        self.left_out.insert(match part.source {
            Source::Here(_) => plan.here,
            Source::Node(node) => node,
        });
        let start = part.start.map(|start| (part.partitions[0], start));
        self.give(part.partitions, start, plan).map_err(|error| match cause {
            Error::Unreachable | Error::Timeout | Error::NoType(_) => error,
            cause => cause,
        })
    }

    /// A node can no longer be reached.
    ///
    /// # Errors
    /// As for [`Coverage::on_page`].
    pub fn on_down(&mut self, node: NodeId, plan: &Plan<'_>) -> Result<(), Error> {
        let before = if cfg!(debug_assertions) { self.unread() } else { 0 };
        let gone: Vec<u64> = self.of(|part, _| part.source == Source::Node(node));
        let mut lost: Vec<Part> =
            gone.iter().filter_map(|question| Some(self.asked.remove(question)?.0)).collect();
        for waiting in [&mut self.ready, &mut self.later] {
            lost.extend(waiting.extract_if(.., |part| part.source == Source::Node(node)));
        }
        let given = lost.into_iter().try_for_each(|part| self.fail(part, Error::Unreachable, plan));

        if cfg!(debug_assertions) {
            self.step_invariants(before);
        }
        given
    }

    /// Has pages asked for again that have not come for long, or that a node had no room for a while ago.
    ///
    /// # Errors
    /// As for [`Coverage::on_page`].
    pub fn tick(&mut self, now: Monotonic, plan: &Plan<'_>) -> Result<(), Error> {
        let late = |part: &Part, asked: Monotonic| {
            matches!(part.source, Source::Node(_)) && now.since(asked) >= PAGE_PATIENCE
        };
        let before = if cfg!(debug_assertions) { self.unread() } else { 0 };
        self.ready.append(&mut self.later);
        for question in self.of(late) {
            let (part, _) = self.asked.remove(&question).expect("just seen");
            if part.tries < PAGE_TRIES_MAX {
                self.ready.push(part);
            } else {
                self.fail(part, Error::Timeout, plan)?;
            }
        }

        if cfg!(debug_assertions) {
            self.step_invariants(before);
        }
        Ok(())
    }

    fn of(&self, which: impl Fn(&Part, Monotonic) -> bool) -> Vec<u64> {
        self.asked.iter().filter(|(_, (part, at))| which(part, *at)).map(|(&name, _)| name).collect()
    }
}

impl Part {
    /// Asserts that the place fits the prefixes.
    fn invariants(&self) {
        let is_in = |start: &Bytes| key::objects_at(self.partitions[0]).contains(start);
        debug_assert!(!self.partitions.is_empty(), "a part has a prefix to read");
        debug_assert!(self.start.as_ref().is_none_or(is_in), "the next page begins in the first prefix");
    }

    /// Whether a page's rest is a smaller part of this one, so that the listing comes to an end whatever others say.
    fn goes_on_with(&self, page: &Page) -> bool {
        let known: BTreeSet<u16> = self.partitions.iter().copied().collect();
        let rest: BTreeSet<u16> = page.rest.iter().copied().collect();
        let is_part = rest.len() == page.rest.len() && rest.is_subset(&known);
        let place = match (&page.next, page.rest.first()) {
            (Some(next), Some(&first)) => {
                key::objects_at(first).contains(next)
                    && (first != self.partitions[0]
                        || self.start.as_ref().is_none_or(|start| next > start)
                        || rest.len() < known.len())
            }
            (Some(_), None) => false,
            (None, _) => rest.len() < known.len(),
        };
        is_part && place
    }
}
