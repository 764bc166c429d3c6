//! Scans: requests that cover all partitions. Listings of keys and buckets, folds, index queries.
//!
//! 1. The shard of the client's connection begins a scan over the nodes of a covering set, and over each shard of its
//!    own node ([`kv::coverage`]).
//! 2. It asks each of them for a page, here through the store (`key_pages.rs`, `index_pages.rs`), else by message.
//! 3. Pages become answers. The next page of a part is asked for when the client has taken the earlier answers.
//! 4. A page that is late is asked for again; the missing pages of a node that cannot be reached come from others.
//!
//! Invariants
//! * Each question is of one scan under way, which waits for its page.
//! * Each page being read has a scan of the store.
//! * The gauge of coverage counts the scans of this shard's clients, and the pages being read.

mod covering_sets;
pub(crate) mod fold;
pub(crate) mod gathered;
pub(crate) mod index_pages;
pub(crate) mod key_pages;
mod message;
pub(crate) mod page_reader;
mod scan;
mod scan_clock;
mod scan_kind;
mod slow;
pub(crate) mod walk;

use crate::frontdoor::latency::Timed;
use crate::frontdoor::slow::SlowLooks;
use crate::hop::{CoverageAsk, CoveragePage, Hop, RequestId, RequestTimes, ShardId};
use crate::peer::{AskId, NodeId};
use crate::shard::env::Env;
use crate::shard::knobs::WORK_MAX;
use crate::shard::output::Output;
use crate::shard::owners::ScanOwner;
use crate::shard::reply_to::ReplyTo;
use base::Monotonic;
use covering_sets::CoveringSets;
use engine::fold::{ScanId, ScanPage};
use fold::n_val_of;
use index_pages::IndexPages;
use key_pages::KeyPages;
use kv::coverage::{Plan, Source};
use kv::query::Tally;
use kv::{Bucket, Error, Listed, Request, Response};
use page_reader::PageReader;
use scan::{Gathering, QueryPart, QueryStep, Scan, has_more};
use scan_clock::ScanClock;
use scan_kind::ScanKind;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All scans of this shard's clients, and all pages being read.
#[derive(Default)]
pub(crate) struct Coverage {
    scans: BTreeMap<RequestId, Scan>,
    /// The scan of each question. Those of scans that are over are dropped with them.
    questions: BTreeMap<u64, RequestId>,
    covering_sets: CoveringSets,
    key_pages: KeyPages,
    index_pages: IndexPages,
    /// When scans are looked at, to find those that have come to be slow.
    looks: SlowLooks,
}

impl Coverage {
    /// Begins a scan.
    pub(crate) fn begin(&mut self, env: &mut Env, reply_to: ReplyTo, request: Request, times: RequestTimes) {
        let ReplyTo::Client(id) = reply_to else { unreachable!("a scan is answered where its client is") };
        let slow = ScanClock::of(env, &request, times);
        match self.scan_of(env, request, times.deadline) {
            Ok(mut scan) => {
                scan.set_begun(env.now());
                scan.slow = slow;
                env.deadlines.note(times.deadline);
                self.scans.insert(id, scan);
                self.note_scan_waits(env, id);
                self.ask_pages(env, id);
            }
            Err(error) => env.reply(reply_to, Err(error)),
        }
        self.publish(env);
    }

    fn scan_of(&mut self, env: &mut Env, request: Request, deadline: Monotonic) -> Result<Scan, Error> {
        let kind = match &request {
            Request::ListKeys(_) | Request::ListBuckets(_) => ScanKind::Listing,
            Request::Fold(_) => ScanKind::Fold,
            _ => ScanKind::Query,
        };
        if self.count(kind) >= kind.scans_max() {
            env.counters.refused += 1;
            return Err(Error::Overload);
        }

        let (n_val, gathering) = match request {
            Request::ListKeys(list) => {
                let n_val = n_val_of_bucket(env, &list.bucket)?;
                (n_val, key_scan(env, n_val, Listed::Keys(list.bucket), true)?)
            }
            Request::ListBuckets(list) => {
                // Where a bucket has fewer replicas than its type, its primaries are among those of the type.
                let n_val = env.props.least_n_val(&list.bucket_type)?;
                (n_val, key_scan(env, n_val, Listed::Buckets(list.bucket_type), list.stream)?)
            }
            Request::Fold(request) => {
                request.fold.check()?;
                let n_val = n_val_of(env, &request.fold)?;
                (n_val, key_scan(env, n_val, Listed::Fold(Arc::new(request.fold)), request.stream)?)
            }
            Request::Index(request) => {
                let n_val = n_val_of_bucket(env, &request.bucket)?;
                let part: QueryPart = request.plan()?;
                (n_val, Gathering::Rows(self.covering_sets.search(env, n_val, part)?))
            }
            Request::Query(request) => {
                let mut tally = Tally::new(*request)?;
                let n_val = n_val_of_bucket(env, tally.bucket())?;
                let part = tally.next_part()?.expect("a query has a part");
                (n_val, Gathering::Query(self.covering_sets.search(env, n_val, part)?, Box::new(tally)))
            }
            other => unreachable!("{other:?} covers no partitions"),
        };
        Ok(Scan::new(kind, gathering, n_val, deadline))
    }

    /// The client has taken the last part of its answer.
    pub(crate) fn proceed(&mut self, env: &mut Env, id: RequestId) {
        if let Some(scan) = self.scans.get_mut(&id) {
            scan.set_sending(false);
            if let Some(slow) = &mut scan.slow {
                slow.proceed(env.recent());
            }
            self.note_scan_waits(env, id);
            self.ask_pages(env, id);
        }
        self.publish(env);
    }

    /// Asks for every page that may be asked for.
    fn ask_pages(&mut self, env: &mut Env, id: RequestId) {
        let now = env.now();
        if self.expire_scan(env, id, now) {
            return;
        }
        let Some(scan) = self.scans.get_mut(&id) else { return };
        let deadline = scan.deadline();
        let questions = scan.ask(now, || env.next_id());
        // All of them first: an answer that comes at once may end the scan, and its questions with it.
        for (question, source, _) in &questions {
            self.questions.insert(*question, id);
            if let Some(slow) = &mut scan.slow {
                slow.ask(*question, *source, now);
            }
        }
        for (question, source, ask) in questions {
            self.ask_page(env, question, source, ask, deadline);
        }
    }

    fn ask_page(
        &mut self,
        env: &mut Env,
        question: u64,
        source: Source,
        ask: CoverageAsk,
        deadline: Monotonic,
    ) {
        let from = env.knobs.id;
        match source {
            Source::Here(shard) if shard == from.0 => self.read(env, PageReader::Shard(from, question), &ask),
            Source::Here(shard) => {
                let message = Hop::AskPage { from, question, ask };
                env.out.push(Output::Hop { to: ShardId(shard), message });
            }
            Source::Node(to) => {
                let (id, ttl_ms) = (env.ask_id(question), env.ttl_ms(deadline));
                env.send(to, ask.into_peer_message(id, ttl_ms));
            }
        }
    }

    /// Another shard asks for a page.
    pub(crate) fn on_shard_asks(&mut self, env: &mut Env, from: ShardId, question: u64, ask: &CoverageAsk) {
        self.read(env, PageReader::Shard(from, question), ask);
        self.publish(env);
    }

    /// Another node asks for a page.
    pub(crate) fn on_peer_asks(&mut self, env: &mut Env, from: NodeId, id: AskId, ask: &CoverageAsk) {
        let to = PageReader::Node(from, id);
        let are_full = match ask {
            CoverageAsk::Keys(_) => self.key_pages.are_full(),
            CoverageAsk::Rows(_) => self.index_pages.are_full(),
        };
        if are_full || env.gauges.requests() >= 2 * WORK_MAX {
            env.counters.refused += 1;
            self.send_page(env, to, ask.refusal(Error::Overload));
        } else {
            self.read(env, to, ask);
        }
        self.publish(env);
    }

    fn read(&mut self, env: &mut Env, to: PageReader, ask: &CoverageAsk) {
        let begun = match ask {
            CoverageAsk::Keys(ask) => self.key_pages.read(env, to, ask),
            CoverageAsk::Rows(ask) => self.index_pages.read(env, to, ask),
        };
        if let Err(error) = begun {
            self.send_page(env, to, ask.refusal(error));
        }
    }

    /// Takes the end of a page's scan.
    pub(crate) fn on_scan(
        &mut self,
        env: &mut Env,
        owner: ScanOwner,
        scan: ScanId,
        page: Result<ScanPage, engine::Error>,
    ) {
        let (to, page) = match owner {
            ScanOwner::IndexPage => {
                let (to, page) = self.index_pages.on_scan(scan, page);
                (to, CoveragePage::Rows(page))
            }
            _ => {
                let (to, page) = self.key_pages.on_scan(scan, page);
                (to, CoveragePage::Keys(page))
            }
        };
        self.send_page(env, to, page);
        self.publish(env);
    }

    fn send_page(&mut self, env: &mut Env, to: PageReader, page: CoveragePage) {
        match to {
            PageReader::Shard(shard, question) if shard == env.knobs.id => {
                self.take_page(env, question, page)
            }
            PageReader::Shard(shard, question) => {
                env.out.push(Output::Hop { to: shard, message: Hop::Page { question, page } });
            }
            PageReader::Node(node, id) => env.send(node, page.into_peer_message(id)),
        }
    }

    /// Another shard or node has answered a question.
    pub(crate) fn on_page(&mut self, env: &mut Env, question: u64, page: CoveragePage) {
        self.take_page(env, question, page);
        self.publish(env);
    }

    fn take_page(&mut self, env: &mut Env, question: u64, page: CoveragePage) {
        // The scan may have been answered by its deadline, or its client may be gone.
        let Some(id) = self.questions.remove(&question) else { return };
        if self.expire_scan(env, id, env.now()) {
            return;
        }
        self.step(env, id, |scan, plan| scan.on_page(question, page, plan));
    }

    /// Has a scan take a step, and sends its answers.
    fn step(
        &mut self,
        env: &mut Env,
        id: RequestId,
        step: impl FnOnce(&mut Scan, &Plan<'_>) -> Result<Vec<Response>, Error>,
    ) {
        let Some(mut scan) = self.scans.remove(&id) else { return };
        let before = scan.asked();
        let stepped = env.with_plan(scan.n_val(), |plan| step(&mut scan, plan));
        let stepped = stepped.and_then(|answers| scan.reserve(&env.knobs.gathered).map(|()| answers));

        // Questions that were given up, and all of a scan that is over, are dropped.
        let is_over = stepped.is_err();
        let now = env.recent();
        let dropped = before.into_iter().filter(|&question| is_over || !scan.asks(question));
        for question in dropped.collect::<Vec<_>>() {
            self.questions.remove(&question);
            if let Some(slow) = &mut scan.slow {
                slow.answered(question, now);
            }
        }
        match stepped {
            Ok(answers) => {
                let is_query = scan.is_query();
                self.scans.insert(id, scan);
                if is_query { self.take_rows(env, id, answers) } else { self.send_answers(env, id, answers) }
            }
            Err(error) => {
                scan.note_end(env, Some(&error));
                env.reply(ReplyTo::Client(id), Err(error));
            }
        }
    }

    fn send_answers(&mut self, env: &mut Env, id: RequestId, answers: Vec<Response>) {
        for answer in answers {
            let more = has_more(&answer);
            if let Some(begun) = self.scans.get_mut(&id).and_then(Scan::take_begun) {
                count_latency(env, begun);
            }
            match self.scans.get_mut(&id) {
                Some(scan) if more => {
                    scan.set_sending(true);
                    if let Some(slow) = &mut scan.slow {
                        slow.send(env, env.recent());
                    }
                }
                _ => self.end(env, id, None),
            }
            env.out.push(Output::Reply { to: id, result: Ok(answer), more });
        }
        // An answer brings the next pages when it is taken.
        if self.scans.get(&id).is_some_and(|scan| !scan.is_sending()) {
            self.ask_pages(env, id);
        }
    }

    /// Gathers rows of a query, and goes on with the next page, the next part, or the answer.
    fn take_rows(&mut self, env: &mut Env, id: RequestId, answers: Vec<Response>) {
        let Some(scan) = self.scans.get_mut(&id) else { return };
        let n_val = scan.n_val();
        let next = match scan.take_rows(answers, &env.knobs.gathered) {
            Ok(QueryStep::MorePages) => return self.ask_pages(env, id),
            Ok(QueryStep::NextPart(part)) => self.covering_sets.search(env, n_val, *part).map(Some),
            Ok(QueryStep::Complete) => Ok(None),
            Err(error) => Err(error),
        };

        // Pages that were asked for and are not needed any more are of no scan.
        let Some(mut scan) = self.take(id) else { return };
        match next {
            Ok(Some(search)) => {
                scan.begin_part(search);
                self.scans.insert(id, scan);
                self.ask_pages(env, id);
            }
            Ok(None) => {
                if let Some(begun) = scan.take_begun() {
                    count_latency(env, begun);
                }
                scan.note_end(env, None);
                env.reply(ReplyTo::Client(id), Ok(Response::Findings(scan.into_findings())));
            }
            Err(error) => {
                scan.note_end(env, Some(&error));
                env.reply(ReplyTo::Client(id), Err(error));
            }
        }
    }

    /// A node has forgotten its questions: others are asked.
    pub(crate) fn fail(&mut self, env: &mut Env, node: NodeId) {
        for id in self.ids() {
            self.step(env, id, |scan, plan| scan.on_down(node, plan));
        }
        self.publish(env);
    }

    /// Asks again for pages that are late.
    pub(crate) fn tick(&mut self, env: &mut Env, now: Monotonic) {
        for id in self.ids() {
            self.step(env, id, |scan, plan| scan.tick(now, plan));
        }
        self.publish(env);
    }

    /// Answers all scans that are past their deadline.
    pub(crate) fn expire(&mut self, env: &mut Env, now: Monotonic) {
        for id in self.ids() {
            self.expire_scan(env, id, now);
        }
        self.look_for_slow(env, now);
        self.publish(env);
    }

    /// Answers a scan that is past its deadline; whether it was.
    fn expire_scan(&mut self, env: &mut Env, id: RequestId, now: Monotonic) -> bool {
        let is_due = self.scans.get(&id).is_some_and(|scan| scan.deadline() <= now);
        if is_due {
            self.end(env, id, Some(&Error::Timeout));
            env.reply(ReplyTo::Client(id), Err(Error::Timeout));
        }
        is_due
    }

    /// Forgets the scan of a client that is gone.
    pub(crate) fn forget(&mut self, env: &mut Env, id: RequestId) {
        drop(self.take(id));
        self.publish(env);
    }

    /// The deadlines of the scans under way.
    pub(crate) fn deadlines(&self) -> impl Iterator<Item = Monotonic> {
        self.scans.values().map(Scan::deadline)
    }

    /// Ends a scan with an answer or an error.
    fn end(&mut self, env: &mut Env, id: RequestId, error: Option<&Error>) {
        if let Some(mut scan) = self.take(id) {
            scan.note_end(env, error);
        }
    }

    /// Takes a scan with its questions.
    fn take(&mut self, id: RequestId) -> Option<Scan> {
        let scan = self.scans.remove(&id)?;
        for question in scan.asked() {
            self.questions.remove(&question);
        }
        Some(scan)
    }

    fn ids(&self) -> Vec<RequestId> {
        self.scans.keys().copied().collect()
    }

    fn count(&self, kind: ScanKind) -> usize {
        self.scans.values().filter(|scan| scan.kind() == kind).count()
    }

    fn len(&self) -> usize {
        self.scans.len() + self.key_pages.len() + self.index_pages.len()
    }

    fn publish(&self, env: &mut Env) {
        env.gauges.coverage = self.len();
    }

    /// Checks relations that hold between two inputs.
    pub(crate) fn invariants(&self, env: &Env) {
        assert_eq!(env.gauges.coverage, self.len(), "the gauge counts scans and pages");
        for kind in [ScanKind::Listing, ScanKind::Fold, ScanKind::Query] {
            assert!(self.count(kind) <= kind.scans_max(), "scans are bounded by their kind");
        }
        let asked: usize = self.scans.values().map(|scan| scan.asked().len()).sum();
        assert_eq!(asked, self.questions.len(), "each question that is asked is known");
        assert!(
            self.questions
                .iter()
                .all(|(&question, id)| { self.scans.get(id).is_some_and(|scan| scan.asks(question)) }),
            "each question is of a scan under way"
        );
        for scan in self.scans.values() {
            let waits = scan.slow.as_ref().is_none_or(|clock| clock.waits() != scan.is_sending());
            assert!(waits, "a client waits unless it has an answer to take");
        }
        self.looks.invariants();
        self.covering_sets.invariants(env);
        self.key_pages.invariants(env);
        self.index_pages.invariants(env);
    }
}

/// Names, or sums of a fold, of the whole ring.
fn key_scan(env: &Env, n_val: u32, listed: Listed, stream: bool) -> Result<Gathering, Error> {
    env.with_plan(n_val, |plan| kv::KeyScan::start(listed, stream, plan)).map(Gathering::Keys)
}

fn n_val_of_bucket(env: &Env, bucket: &Bucket) -> Result<u32, Error> {
    env.knobs.limits.check_bucket(bucket)?;
    Ok(env.props.get(bucket)?.n_val)
}

/// Counts how long an index query took to its first answer.
fn count_latency(env: &mut Env, begun: Monotonic) {
    let now = env.now();
    env.latency.add(Timed::Index, begun, now);
}
