//! Listings, and folds (`fold.rs`): the shard of the client's connection gathers pages from the nodes of a covering set
//! ([`kv::coverage`]), and from each shard of its own node. How a page is read is in `key_pages.rs`.
//!
//! The next page of a part is asked for when the client has taken the earlier ones, so a slow client holds at most one
//! page of each part, wherever they are.

use crate::coverage::fold::n_val_of;
use crate::coverage::gathered::Gathered;
use crate::coverage::key_pages::KeyPages;
use crate::coverage::page_reader::PageReader;
use crate::hop::{Hop, RequestId, ShardId};
use crate::peer::{AskId, NodeId, PeerMessage};
use crate::shard::env::Env;
use crate::shard::knobs::WORK_MAX;
use crate::shard::output::Output;
use crate::shard::reply_to::ReplyTo;
use base::Monotonic;
use engine::fold::{ScanId, ScanPage};
use kv::coverage::{Plan, Source};
use kv::fold::FoldRequest;
use kv::{Coverage, Error, ListBucketsRequest, ListKeysRequest, Listed, Page, PageAsk, Response};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Listings that one shard's clients run at a time: each may hold a page of each part.
const LISTINGS_MAX: usize = 256;

/// Folds that one shard's clients run at a time: each may hold an answer ([`kv::fold::ANSWER_BYTES_MAX`]), or a tree.
const FOLDS_MAX: usize = 8;

/// A listing that is being gathered here.
struct KeyScan {
    coverage: Coverage,
    n_val: u32,
    is_fold: bool,
    deadline: Monotonic,
    /// Whether the client has still to take the last answer.
    sending: bool,
    memory: Gathered,
}

/// All listings, and all pages being read.
#[derive(Default)]
pub(crate) struct KeyScans {
    gathering: BTreeMap<RequestId, KeyScan>,
    /// Whose page each question is about. Those of listings that are over are dropped with them.
    questions: BTreeMap<u64, RequestId>,
    pages: KeyPages,
}

impl KeyScans {
    pub(crate) fn len(&self) -> usize {
        self.gathering.len() + self.pages.len()
    }

    /// How many of them are folds.
    fn folds(&self) -> usize {
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

    pub(crate) fn list_keys(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        list: ListKeysRequest,
        deadline: Monotonic,
    ) {
        let checked = env.knobs.limits.check_bucket(&list.bucket);
        let n_val = checked.and_then(|()| Ok(env.props.get(&list.bucket)?.n_val));
        self.start_listing(env, reply_to, n_val, Listed::Keys(list.bucket), true, deadline);
    }

    // Where a bucket has fewer replicas than its type, its primaries are among those that the type would have.
    pub(crate) fn list_buckets(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        list: ListBucketsRequest,
        deadline: Monotonic,
    ) {
        let n_val = env.props.least_n_val(&list.bucket_type);
        self.start_listing(env, reply_to, n_val, Listed::Buckets(list.bucket_type), list.stream, deadline);
    }

    fn start_listing(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        n_val: Result<u32, Error>,
        listed: Listed,
        stream: bool,
        deadline: Monotonic,
    ) {
        let ReplyTo::Client(id) = reply_to else { unreachable!("a listing is gathered where its client is") };
        if self.gathering.len() >= LISTINGS_MAX {
            return env.reply(reply_to, Err(Error::Overload));
        }
        let is_fold = matches!(listed, Listed::Fold(_));
        let started = n_val.and_then(|n_val| {
            let coverage = env.with_plan(n_val, |plan| Coverage::start(listed, stream, plan))?;
            Ok(KeyScan { coverage, n_val, is_fold, deadline, sending: false, memory: Gathered::default() })
        });
        match started {
            Ok(listing) => {
                env.deadlines.note(deadline);
                self.gathering.insert(id, listing);
                self.ask_pages(env, id);
            }
            Err(error) => env.reply(reply_to, Err(error)),
        }
    }

    pub(crate) fn fold(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        request: FoldRequest,
        deadline: Monotonic,
    ) {
        let FoldRequest { fold, stream, .. } = request;
        if self.folds() >= FOLDS_MAX {
            env.counters.refused += 1;
            return env.reply(reply_to, Err(Error::Overload));
        }
        let n_val = fold.check().and_then(|()| n_val_of(env, &fold));
        self.start_listing(env, reply_to, n_val, Listed::Fold(Arc::new(fold)), stream, deadline);
    }

    /// The client has taken the last answer.
    pub(crate) fn go_on_listing(&mut self, env: &mut Env, id: RequestId) {
        if let Some(listing) = self.gathering.get_mut(&id) {
            listing.sending = false;
            self.ask_pages(env, id);
        }
    }

    /// Asks for every page that may be asked for.
    fn ask_pages(&mut self, env: &mut Env, id: RequestId) {
        let now = env.now();
        if self.expire_listing(env, id, now) {
            return;
        }
        let Some(listing) = self.gathering.get_mut(&id) else { return };
        let deadline = listing.deadline;
        let questions = listing.coverage.ask(now, || env.next_id());
        // All of them first: an answer that comes at once may end the listing, and its questions with it.
        for (question, ..) in &questions {
            self.questions.insert(*question, id);
        }
        for (question, source, ask) in questions {
            self.ask_page(env, question, source, ask, deadline);
        }
    }

    fn ask_page(&mut self, env: &mut Env, question: u64, source: Source, ask: PageAsk, deadline: Monotonic) {
        let from = env.knobs.id;
        match source {
            Source::Here(shard) if shard == from.0 => self.read(env, PageReader::Shard(from, question), &ask),
            Source::Here(shard) => {
                let message = Hop::AskPage { from, question, ask };
                env.out.push(Output::Hop { to: ShardId(shard), message });
            }
            Source::Node(to) => {
                let (id, ttl_ms) = (env.ask_id(question), env.ttl_ms(deadline));
                env.send(to, PeerMessage::AskPage { id, ttl_ms, ask });
            }
        }
    }

    /// Reads a page for another shard's.
    pub(crate) fn on_shard_asks_page(&mut self, env: &mut Env, from: ShardId, question: u64, ask: &PageAsk) {
        self.read(env, PageReader::Shard(from, question), ask);
    }

    /// Reads a page for another node's.
    pub(crate) fn on_peer_asks_page(&mut self, env: &mut Env, from: NodeId, id: AskId, ask: &PageAsk) {
        let to = PageReader::Node(from, id);
        if self.pages.are_full() || env.gauges.requests() >= 2 * WORK_MAX {
            env.counters.refused += 1;
            return self.send_page(env, to, Err(Error::Overload));
        }
        self.read(env, to, ask);
    }

    fn read(&mut self, env: &mut Env, to: PageReader, ask: &PageAsk) {
        if let Err(error) = self.pages.read(env, to, ask) {
            self.send_page(env, to, Err(error));
        }
    }

    /// Takes the end of a scan, if it is of a page.
    pub(crate) fn on_scan(
        &mut self,
        env: &mut Env,
        scan: ScanId,
        page: Result<ScanPage, engine::Error>,
    ) -> Result<(), Result<ScanPage, engine::Error>> {
        let (to, page) = self.pages.on_scan(scan, page)?;
        self.send_page(env, to, page);
        Ok(())
    }

    fn send_page(&mut self, env: &mut Env, to: PageReader, page: Result<Page, Error>) {
        match to {
            PageReader::Shard(shard, question) if shard == env.knobs.id => self.on_page(env, question, page),
            PageReader::Shard(shard, question) => {
                env.out.push(Output::Hop { to: shard, message: Hop::Page { question, page } });
            }
            PageReader::Node(node, id) => env.send(node, PeerMessage::Page { id, page }),
        }
    }

    /// Takes a page, from wherever it comes.
    pub(crate) fn on_page(&mut self, env: &mut Env, question: u64, page: Result<Page, Error>) {
        // It may have been answered by its deadline, or its client may be gone.
        let Some(id) = self.questions.remove(&question) else { return };
        if self.expire_listing(env, id, env.now()) {
            return;
        }
        self.step_listing(env, id, |coverage, plan| coverage.on_page(question, page, plan));
    }

    /// Has a listing take a step, and sends its answers.
    fn step_listing(
        &mut self,
        env: &mut Env,
        id: RequestId,
        step: impl FnOnce(&mut Coverage, &Plan<'_>) -> Result<Vec<Response>, Error>,
    ) {
        let Some(mut listing) = self.gathering.remove(&id) else { return };
        let before: Vec<u64> = listing.coverage.asked().collect();
        let stepped = env.with_plan(listing.n_val, |plan| step(&mut listing.coverage, plan));
        let stepped = stepped.and_then(|answers| {
            listing.memory.grow(&env.knobs.gathered, listing.coverage.gathered_bytes())?;
            Ok(answers)
        });
        let is_over = stepped.is_err();
        for question in before.into_iter().filter(|&question| is_over || !listing.coverage.asks(question)) {
            self.questions.remove(&question);
        }
        match stepped {
            Ok(answers) => {
                self.gathering.insert(id, listing);
                self.answer_listing(env, id, answers);
            }
            Err(error) => {
                env.reply(ReplyTo::Client(id), Err(error));
            }
        }
    }

    fn answer_listing(&mut self, env: &mut Env, id: RequestId, answers: Vec<Response>) {
        for answer in answers {
            let more = match &answer {
                Response::Keys { done, .. } | Response::Buckets { done, .. } => !done,
                Response::Folded(folded) => !folded.done,
                other => unreachable!("{other:?} is no answer to a listing"),
            };
            match self.gathering.get_mut(&id) {
                Some(listing) if more => listing.sending = true,
                _ => self.forget(id),
            }
            env.out.push(Output::Reply { to: id, result: Ok(answer), more });
        }
        // An answer brings the next pages when it is taken.
        if self.gathering.get(&id).is_some_and(|listing| !listing.sending) {
            self.ask_pages(env, id);
        }
    }

    /// A node can no longer be reached: others are asked for its missing pages.
    pub(crate) fn fail_pages(&mut self, env: &mut Env, node: NodeId) {
        let ids: Vec<RequestId> = self.gathering.keys().copied().collect();
        for id in ids {
            self.step_listing(env, id, |coverage, plan| coverage.on_down(node, plan).map(|()| Vec::new()));
        }
    }

    /// Answers a listing that is past its deadline; whether it was.
    fn expire_listing(&mut self, env: &mut Env, id: RequestId, now: Monotonic) -> bool {
        let is_due = self.gathering.get(&id).is_some_and(|listing| listing.deadline <= now);
        if is_due {
            self.forget(id);
            env.reply(ReplyTo::Client(id), Err(Error::Timeout));
        }
        is_due
    }

    pub(crate) fn expire_listings(&mut self, env: &mut Env, now: Monotonic) {
        let ids: Vec<RequestId> = self.gathering.keys().copied().collect();
        for id in ids {
            self.expire_listing(env, id, now);
        }
    }

    /// Asks again for pages that are late.
    pub(crate) fn tick_listings(&mut self, env: &mut Env, now: Monotonic) {
        let ids: Vec<RequestId> = self.gathering.keys().copied().collect();
        for id in ids {
            self.step_listing(env, id, |coverage, plan| coverage.tick(now, plan).map(|()| Vec::new()));
        }
    }

    /// Each question is of a listing under way, which asks it; bounds hold.
    pub(crate) fn invariants(&self) {
        debug_assert!(
            self.gathering.len() <= LISTINGS_MAX && self.folds() <= FOLDS_MAX,
            "listings are bounded"
        );
        let asked = self.gathering.values().map(|listing| listing.coverage.asked().count());
        debug_assert_eq!(asked.sum::<usize>(), self.questions.len(), "each question that is asked is known");
        debug_assert!(
            self.questions.iter().all(|(&question, id)| {
                self.gathering.get(id).is_some_and(|listing| listing.coverage.asks(question))
            }),
            "each question is of a listing under way"
        );
    }
}
