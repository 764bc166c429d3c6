//! An index query tells, over all its pages, what was asked for and nothing else: rows that somebody wrote, in order,
//! each once, on pages of the size that was asked for. One that ends has all rows that every primary is bound to show,
//! and none that every primary is bound not to show; whatever keeps it from that is an error, never an end.
//!
//! One replica of each partition is asked, as in Riak, and may have missed what others have. So a row is bound to be
//! told if each primary had said when the query began that it has the write that it comes from, and nobody tries to
//! replace that, ever; it is bound not to be told if each primary had said that it has something that had replaced
//! every such write. Both are known only where siblings are kept: elsewhere clocks decide. That an object is there is
//! known as for listings (`listings.rs`).

use super::history::KeyHistory;
use super::{Checks, NodeAt};
use crate::check::history::{KeyName, Kind};
use crate::check::siblings::entries_of;
use crate::check::{Verdict, Violation};
use base::Monotonic;
use bytes::Bytes;
use kv::index::{Pattern, Rows, Terms};
use kv::{Bucket, IndexRequest};
use object::{Context, Dot, index};
use std::collections::{BTreeMap, BTreeSet};

const CHECKER: &str = "an index query is whole";

/// A term as it is ordered, of a query for keys nothing; and a key.
pub type Row = (Bytes, Bytes);

/// A row as it was told: with its term, if that can be known.
pub type Told = (Option<Bytes>, Bytes);

/// Which rows a query asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    bucket: Bytes,
    field: Bytes,
    /// Both included; of terms, as they are ordered. `None` for all keys.
    bounds: Option<(Bytes, Bytes)>,
    pattern: Option<Pattern>,
    /// The term of all rows, where there is but one.
    exact: Option<Bytes>,
    /// Whether the terms of the rows can be known.
    has_terms: bool,
    is_sorted: bool,
}

impl Wanted {
    /// What `request` asks for, which makes sense.
    pub fn of(request: &IndexRequest) -> Wanted {
        let of_keys = request.field.starts_with(b"$");
        let bound = |text: &Bytes| match of_keys {
            true => text.clone(),
            false => index::term(&request.field, text).expect("terms are of their fields' types"),
        };
        let bounds = match &request.terms {
            Terms::Exact(term) => (bound(term), bound(term)),
            Terms::Range(first, last) => (bound(first), bound(last)),
        };
        let is_exact = !of_keys && matches!(request.terms, Terms::Exact(_));
        Wanted {
            bucket: request.bucket.name.clone(),
            field: request.field.clone(),
            exact: is_exact.then(|| bounds.0.clone()),
            bounds: (request.field != "$bucket").then_some(bounds),
            pattern: request.term_regex.as_ref().map(|text| Pattern::new(text).expect("it is one")),
            has_terms: is_exact || !of_keys && request.return_terms,
            is_sorted: !of_keys || request.sort || request.max_results.is_some(),
        }
    }

    /// The bucket.
    pub fn bucket(&self) -> &[u8] {
        &self.bucket
    }

    /// The field.
    pub fn field(&self) -> &Bytes {
        &self.field
    }

    /// Whether it is for keys, and not for terms.
    pub fn is_of_keys(&self) -> bool {
        self.field.starts_with(b"$")
    }

    fn takes(&self, ordered: &Bytes) -> bool {
        let (bounds, pattern) = (self.bounds.as_ref(), self.pattern.as_ref());
        bounds.is_none_or(|(first, last)| (first..=last).contains(&ordered))
            && pattern.is_none_or(|pattern| pattern.is_match(ordered))
    }

    /// The rows of a key that has a value with these entries, by field and term.
    pub fn rows<'a>(
        &self,
        key: &Bytes,
        entries: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> BTreeSet<Row> {
        if self.is_of_keys() {
            return self.takes(key).then(|| (Bytes::new(), key.clone())).into_iter().collect();
        }
        let of_field = entries.into_iter().filter(|(field, _)| *field == self.field);
        let terms = of_field.filter_map(|(field, value)| index::term(field, value));
        terms.filter(|term| self.takes(term)).map(|term| (term, key.clone())).collect()
    }

    /// The rows of a key that was written by this number.
    pub fn rows_of(&self, key: &Bytes, number: u64) -> BTreeSet<Row> {
        self.rows(key, entries_of(number).map(|(field, term)| (field.as_bytes(), term.as_bytes())))
    }

    /// How rows are told, all together.
    pub fn told(&self, rows: &BTreeSet<Row>) -> Vec<Told> {
        rows.iter().map(|(term, key)| (self.has_terms.then(|| term.clone()), key.clone())).collect()
    }

    /// The same without the order in which they came, where that is not promised.
    pub fn in_order(&self, mut told: Vec<Told>) -> Vec<Told> {
        if !self.is_sorted {
            told.sort();
        }
        told
    }

    /// A row, in the client's words, as it was told.
    fn read(&self, (text, key): (Option<&[u8]>, &[u8])) -> Told {
        let term = text.and_then(|text| index::term(&self.field, text));
        let term = if text.is_none() { self.exact.clone() } else { term };
        (term, Bytes::copy_from_slice(key))
    }
}

/// A write that all primaries have said that they have.
#[derive(Debug)]
struct Bound {
    key: Bytes,
    rows: BTreeSet<Row>,
    /// `None` if it is only known that the object is there.
    dot: Option<Dot>,
}

/// A query under way.
#[derive(Debug)]
struct Search {
    bucket: Bytes,
    wanted: Wanted,
    page_max: Option<usize>,
    began: Monotonic,
    bound: Vec<Bound>,
    /// By key and number: how often it was written when all primaries had something that had replaced it.
    replaced: BTreeMap<(Bytes, u64), usize>,
    /// What whole pages have told, and how often.
    told: Vec<Told>,
    times: BTreeMap<Told, usize>,
    /// What this one has told so far.
    page: Vec<Told>,
    page_times: BTreeMap<Told, usize>,
}

/// The query of a cluster: one at a time, and what came of those before.
#[derive(Debug, Default)]
pub(super) struct Searches {
    under_way: Option<Search>,
    rows: u64,
}

impl Checks {
    /// Somebody begins a query, page by page. `primaries` names those of a key.
    pub fn on_search(
        &mut self,
        request: &IndexRequest,
        now: Monotonic,
        primaries: impl Fn(&KeyName) -> Vec<NodeAt>,
    ) {
        let wanted = Wanted::of(request);
        let bucket = request.bucket.name.clone();
        let (mut bound, mut replaced) = (Vec::new(), BTreeMap::new());
        for (name, of_key) in self.history.keys().filter(|(name, _)| name.bucket() == &bucket) {
            let key = Bytes::copy_from_slice(name.key());
            let primaries = primaries(name);
            let all_have = |dot: Dot| {
                primaries.iter().all(|&at| self.promises[at].of(name).is_some_and(|has| has.covers(dot)))
            };
            if wanted.is_of_keys() {
                let rows = wanted.rows(&key, []);
                let is_at_all = primaries.iter().all(|&at| self.promises[at].of(name).is_some());
                if is_at_all && !of_key.has_deletes() {
                    bound.push(Bound { key, rows, dot: None });
                }
                continue;
            }
            if !name.has_siblings() {
                continue;
            }
            let at_all = AtAll::of(of_key, all_have);
            for number in of_key.dots.keys().copied() {
                let rows = wanted.rows_of(&key, number);
                if rows.is_empty() {
                    continue;
                }
                // What came later from the same node covers it, and does not show it.
                let has_ended = of_key.of(number).any(|write| write.has_ended);
                if let Some(times) = at_all.replaced(of_key, number) {
                    replaced.insert((key.clone(), number), times);
                } else if let Some(dot) = at_all.dots.get(&number).filter(|_| !has_ended) {
                    bound.push(Bound { key: key.clone(), rows, dot: Some(*dot) });
                }
            }
        }
        let page_max = request.max_results.map(|rows| usize::try_from(rows).expect("few"));
        self.searches.under_way = Some(Search {
            bucket,
            wanted,
            page_max,
            began: now,
            bound,
            replaced,
            told: Vec::new(),
            times: BTreeMap::new(),
            page: Vec::new(),
            page_times: BTreeMap::new(),
        });
    }

    /// A part of a page has left its node.
    pub fn on_rows(&mut self, rows: &Rows) -> Verdict {
        let broken = |what: String| Err(Violation::new(CHECKER, what));
        let Some(mut search) = self.searches.under_way.take() else {
            return broken("it has ended".to_owned());
        };
        if !self.is_all_kept(&search) {
            search.replaced.clear();
        }
        for row in rows.rows.iter() {
            let told = search.wanted.read(row);
            let name = KeyName::of(&Bucket::untyped(search.bucket.clone()), &told.1);
            if let Err(what) = search.take(told, self.history.key(&name)) {
                return broken(format!("{name}: {what}"));
            }
        }
        let is_full = search.page_max.is_some_and(|most| search.page.len() == most);
        if search.page_max.is_some_and(|most| search.page.len() > most) {
            return broken(format!("{} rows on a page", search.page.len()));
        }
        if rows.continuation.is_some() != (is_full && rows.done) {
            return broken(format!("a page of {} has a continuation, or has none", search.page.len()));
        }
        if rows.done {
            search.told.append(&mut search.page);
            for (told, times) in std::mem::take(&mut search.page_times) {
                *search.times.entry(told).or_default() += times;
            }
        }
        self.searches.under_way = Some(search);
        Ok(())
    }

    /// The page that is being told has failed, and is asked for once more.
    pub fn on_page_lost(&mut self) {
        if let Some(search) = &mut self.searches.under_way {
            search.page.clear();
            search.page_times.clear();
        }
    }

    /// The query under way is not waited for any more.
    pub fn on_search_given_up(&mut self) {
        self.searches.under_way = None;
    }

    /// The query has ended as a whole; what it has told.
    pub fn on_searched(&mut self) -> Result<(Wanted, Vec<Told>), Violation> {
        let search = self.searches.under_way.take().expect("it has just told its last page");
        let is_all_kept = self.is_all_kept(&search);
        for bound in search.bound.iter().filter(|_| is_all_kept) {
            let name = KeyName::of(&Bucket::untyped(search.bucket.clone()), &bound.key);
            let of_key = self.history.key(&name).expect("it was written");
            if bound.may_be_replaced(of_key) {
                continue;
            }
            let missing =
                search.wanted.told(&bound.rows).into_iter().find(|row| !search.times.contains_key(row));
            if let Some((term, _)) = missing {
                let what = format!("{name} is missing for {term:?}, and all its primaries have it");
                return Err(Violation::new(CHECKER, what));
            }
            self.searches.rows += bound.rows.len() as u64;
        }
        Ok((search.wanted, search.told))
    }

    /// Whether nothing was lost since a query began.
    fn is_all_kept(&self, search: &Search) -> bool {
        self.lost_at.is_none_or(|lost_at| search.began > lost_at)
    }

    /// How many rows were bound to be told, and were.
    pub fn rows_told(&self) -> u64 {
        self.searches.rows
    }
}

/// What all primaries have of a key.
struct AtAll<'a> {
    /// A dot of each number that they have.
    dots: BTreeMap<u64, Dot>,
    /// What these had seen, if anything.
    contexts: Vec<(u64, &'a Context)>,
    /// How often each number was written.
    times: BTreeMap<u64, usize>,
}

impl AtAll<'_> {
    fn of(of_key: &KeyHistory, all_have: impl Fn(Dot) -> bool) -> AtAll<'_> {
        let numbers = of_key.dots.keys().copied();
        let dot_of = |number| Some((number, of_key.dots_of(number).find(|dot| all_have(*dot))?));
        let dots: BTreeMap<u64, Dot> = numbers.filter_map(dot_of).collect();
        let (mut contexts, mut times) = (Vec::new(), BTreeMap::new());
        for (number, write) in of_key.writes.iter().filter_map(|write| Some((write.number()?, write))) {
            *times.entry(number).or_default() += 1;
            contexts
                .extend(write.context.as_ref().filter(|_| dots.contains_key(&number)).map(|it| (number, it)));
        }
        AtAll { dots, contexts, times }
    }

    /// How often `number` was written, if something else has replaced all of it.
    fn replaced(&self, of_key: &KeyHistory, number: u64) -> Option<usize> {
        let times = *self.times.get(&number)?;
        let is_gone =
            |dot: Dot| self.contexts.iter().any(|(by, context)| *by != number && context.covers(dot));
        (of_key.dots_of(number).count() >= times && of_key.dots_of(number).all(is_gone)).then_some(times)
    }
}

impl Bound {
    fn may_be_replaced(&self, of_key: &KeyHistory) -> bool {
        match self.dot {
            None => of_key.has_deletes(),
            Some(dot) => of_key
                .writes
                .iter()
                .any(|write| write.covers(dot) || write.kind == Kind::Delete && write.context.is_none()),
        }
    }
}

impl Search {
    /// Takes a row of this page, or tells what is wrong with it.
    fn take(&mut self, told: Told, of_key: Option<&KeyHistory>) -> Result<(), String> {
        let (wanted, key) = (&self.wanted, &told.1);
        let mut terms = BTreeSet::new();
        let mut is_there = false;
        let writes = of_key.iter().flat_map(|of_key| &of_key.writes);
        for number in writes.filter_map(|write| write.number()) {
            let rows = wanted.rows_of(key, number);
            let is_its = rows.iter().any(|(term, _)| told.0.as_ref().is_none_or(|told| told == term));
            let times = of_key.map_or(0, |of_key| of_key.of(number).count());
            let is_replaced = self.replaced.get(&(key.clone(), number)) == Some(&times);
            is_there |= is_its && !is_replaced;
            terms.extend(rows.into_iter().map(|(term, _)| term));
        }
        if !told.0.as_ref().map_or(!terms.is_empty(), |term| terms.contains(term)) {
            return Err(format!("it was never written for {:?}, or is not in the query", told.0));
        }
        if !is_there {
            return Err(format!(
                "it is returned for {:?}, although all its primaries have the write that replaced it",
                told.0
            ));
        }
        let times =
            [&self.times, &self.page_times].into_iter().filter_map(|times| times.get(&told)).sum::<usize>();
        // Without terms, a key comes as often as it has terms between the bounds.
        let most = if wanted.has_terms || wanted.is_of_keys() { 1 } else { terms.len() };
        if times >= most {
            return Err(format!("it is told {} times for {:?}", most + 1, told.0));
        }
        let ascends = wanted.is_sorted && (wanted.has_terms || wanted.is_of_keys());
        let last = self.page.last().or(self.told.last());
        if ascends && last.is_some_and(|last| *last >= told) {
            return Err(format!("it is told for {:?} behind {last:?}", told.0));
        }
        *self.page_times.entry(told.clone()).or_default() += 1;
        self.page.push(told);
        Ok(())
    }
}
