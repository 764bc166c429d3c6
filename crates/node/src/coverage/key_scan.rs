//! KeyScans, and folds (`folds.rs`): whoever the client is connected to gathers pages from the nodes of a covering set ([`kv::coverage`]), and
//! from each shard of its own node. How a page is read is in `pages.rs`.
//!
//! The next page of a part is asked for when the client has taken what came before, so a slow client holds at most one
//! page of each part, wherever they are.

use crate::coverage::gathered::Gathered;
use crate::coverage::key_pages::KeyPages;
use crate::hop::{Hop, RequestId, ShardId};
use crate::peer::{NodeId, PeerMessage};
use crate::shard::Shard;
use crate::shard::output::Output;
use crate::shard::reply_to::ReplyTo;
use base::Monotonic;
use kv::coverage::{Plan, Source};
use kv::{Coverage, Error, ListBucketsRequest, ListKeysRequest, Listed, Page, PageAsk, Response};
use std::collections::BTreeMap;

/// KeyScans that one shard's clients run at a time: each may hold a page of each part.
const LISTINGS_MAX: usize = 256;

/// A listing that is being gathered here.
struct KeyScan {
    coverage: Coverage,
    n_val: u32,
    is_fold: bool,
    deadline: Monotonic,
    /// Whether the client has still to take what was sent.
    sending: bool,
    memory: Gathered,
}

/// All listings, and all pages being read.
#[derive(Default)]
pub(crate) struct KeyScans {
    gathering: BTreeMap<RequestId, KeyScan>,
    /// Whose page each question is about. Those of listings that are over are dropped with them.
    questions: BTreeMap<u64, RequestId>,
    pub(crate) pages: KeyPages,
}

impl KeyScans {
    pub(crate) fn len(&self) -> usize {
        self.gathering.len() + self.pages.len()
    }

    /// How many of them are folds.
    pub(crate) fn folds(&self) -> usize {
        self.gathering.values().filter(|listing| listing.is_fold).count()
    }

    /// The deadlines of all that are gathered here.
    pub(crate) fn deadlines(&self) -> impl Iterator<Item = Monotonic> {
        self.gathering.values().map(|listing| listing.deadline)
    }

    pub(crate) fn forget(&mut self, id: RequestId) {
        let Some(listing) = self.gathering.remove(&id) else { return };
        for question in listing.coverage.asked() {
            self.questions.remove(&question);
        }
    }
}

impl Shard {
    pub(crate) fn list_keys(&mut self, reply_to: ReplyTo, list: ListKeysRequest, deadline: Monotonic) {
        let checked = self.env.knobs.limits.check_bucket(&list.bucket);
        let n_val = checked.and_then(|()| Ok(self.env.props.get(&list.bucket)?.n_val));
        self.start_listing(reply_to, n_val, Listed::Keys(list.bucket), true, deadline);
    }

    // Where a bucket has fewer replicas than its type, its primaries are among those that the type would have.
    pub(crate) fn list_buckets(&mut self, reply_to: ReplyTo, list: ListBucketsRequest, deadline: Monotonic) {
        let n_val = self.env.props.least_n_val(&list.bucket_type);
        self.start_listing(reply_to, n_val, Listed::Buckets(list.bucket_type), list.stream, deadline);
    }

    pub(crate) fn start_listing(
        &mut self,
        reply_to: ReplyTo,
        n_val: Result<u32, Error>,
        listed: Listed,
        stream: bool,
        deadline: Monotonic,
    ) {
        let ReplyTo::Client(id) = reply_to else { unreachable!("a listing is gathered where its client is") };
        if self.listings.gathering.len() >= LISTINGS_MAX {
            return self.env.reply(reply_to, Err(Error::Overload));
        }
        let is_fold = matches!(listed, Listed::Fold(_));
        let started = n_val.and_then(|n_val| {
            let coverage = self.env.with_plan(n_val, |plan| Coverage::start(listed, stream, plan))?;
            Ok(KeyScan { coverage, n_val, is_fold, deadline, sending: false, memory: Gathered::default() })
        });
        match started {
            Ok(listing) => {
                self.env.deadlines.note(deadline);
                self.listings.gathering.insert(id, listing);
                self.publish_coverage();
                self.ask_pages(id);
            }
            Err(error) => self.env.reply(reply_to, Err(error)),
        }
    }

    /// The client has taken what was sent.
    pub(crate) fn go_on_listing(&mut self, id: RequestId) {
        if let Some(listing) = self.listings.gathering.get_mut(&id) {
            listing.sending = false;
            self.ask_pages(id);
        }
    }

    /// Asks for every page that may be asked for.
    fn ask_pages(&mut self, id: RequestId) {
        let now = self.env.now();
        if self.expire_listing(id, now) {
            return;
        }
        let last_work = &mut self.env.last_id;
        let Some(listing) = self.listings.gathering.get_mut(&id) else { return };
        let deadline = listing.deadline;
        let questions = listing.coverage.ask(now, || {
            *last_work += 1;
            *last_work
        });
        for (question, source, ask) in questions {
            self.listings.questions.insert(question, id);
            self.ask_page(question, source, ask, deadline);
        }
    }

    fn ask_page(&mut self, question: u64, source: Source, ask: PageAsk, deadline: Monotonic) {
        let from = self.env.knobs.id;
        match source {
            Source::Here(shard) if shard == from.0 => self.read_page_here(question, &ask),
            Source::Here(shard) => {
                let message = Hop::AskPage { from, question, ask };
                self.env.out.push(Output::Hop { to: ShardId(shard), message });
            }
            Source::Node(to) => {
                let (id, ttl_ms) = (self.env.ask_id(question), self.env.ttl_ms(deadline));
                self.env.send(to, PeerMessage::AskPage { id, ttl_ms, ask });
            }
        }
    }

    /// Takes a page, from wherever it comes.
    pub(crate) fn on_page(&mut self, question: u64, page: Result<Page, Error>) {
        // It may have been answered by its deadline, or its client may be gone.
        let Some(id) = self.listings.questions.remove(&question) else { return };
        if self.expire_listing(id, self.env.now()) {
            return;
        }
        self.step_listing(id, |coverage, plan| coverage.on_page(question, page, plan));
    }

    /// Has a listing do something, and answers what comes of it.
    fn step_listing(
        &mut self,
        id: RequestId,
        step: impl FnOnce(&mut Coverage, &Plan<'_>) -> Result<Vec<Response>, Error>,
    ) {
        let Some(mut listing) = self.listings.gathering.remove(&id) else { return };
        let before: Vec<u64> = listing.coverage.asked().collect();
        let stepped = self.env.with_plan(listing.n_val, |plan| step(&mut listing.coverage, plan));
        let stepped = stepped.and_then(|answers| {
            listing.memory.grow(&self.env.knobs.gathered, listing.coverage.gathered_bytes())?;
            Ok(answers)
        });
        let is_over = stepped.is_err();
        for question in before.into_iter().filter(|&question| is_over || !listing.coverage.asks(question)) {
            self.listings.questions.remove(&question);
        }
        match stepped {
            Ok(answers) => {
                self.listings.gathering.insert(id, listing);
                self.answer_listing(id, answers);
            }
            Err(error) => {
                self.publish_coverage();
                self.env.reply(ReplyTo::Client(id), Err(error));
            }
        }
    }

    /// Says how much of this is under way.
    pub(crate) fn publish_coverage(&mut self) {
        self.env.gauges.coverage = self.listings.len() + self.searches.len();
    }

    fn answer_listing(&mut self, id: RequestId, answers: Vec<Response>) {
        for answer in answers {
            let more = match &answer {
                Response::Keys { done, .. } | Response::Buckets { done, .. } => !done,
                Response::Folded(folded) => !folded.done,
                other => unreachable!("{other:?} is no answer to a listing"),
            };
            match self.listings.gathering.get_mut(&id) {
                Some(listing) if more => listing.sending = true,
                _ => self.listings.forget(id),
            }
            self.publish_coverage();
            self.env.out.push(Output::Reply { to: id, result: Ok(answer), more });
        }
        // What was sent brings the next pages when it is taken.
        if self.listings.gathering.get(&id).is_some_and(|listing| !listing.sending) {
            self.ask_pages(id);
        }
    }

    /// A node can no longer be reached: others are asked for what it has not told.
    pub(crate) fn fail_pages(&mut self, node: NodeId) {
        let ids: Vec<RequestId> = self.listings.gathering.keys().copied().collect();
        for id in ids {
            self.step_listing(id, |coverage, plan| coverage.on_down(node, plan).map(|()| Vec::new()));
        }
    }

    /// Answers a listing that is past its deadline; whether it was.
    fn expire_listing(&mut self, id: RequestId, now: Monotonic) -> bool {
        let is_due = self.listings.gathering.get(&id).is_some_and(|listing| listing.deadline <= now);
        if is_due {
            self.listings.forget(id);
            self.publish_coverage();
            self.env.reply(ReplyTo::Client(id), Err(Error::Timeout));
        }
        is_due
    }

    pub(crate) fn expire_listings(&mut self, now: Monotonic) {
        let ids: Vec<RequestId> = self.listings.gathering.keys().copied().collect();
        for id in ids {
            self.expire_listing(id, now);
        }
    }

    /// Asks again for pages that are late.
    pub(crate) fn tick_listings(&mut self, now: Monotonic) {
        let ids: Vec<RequestId> = self.listings.gathering.keys().copied().collect();
        for id in ids {
            self.step_listing(id, |coverage, plan| coverage.tick(now, plan).map(|()| Vec::new()));
        }
    }
}
