//! Index queries: the shard of the client's connection merges the rows that the shards of a covering set find
//! ([`kv::index::Search`]). How a shard finds them is in `index_pages.rs`.
//!
//! The next page of a part is asked for when the client has taken the earlier ones, as for listings (`key_scan.rs`).
//!
//! A covering set costs as much as the ring is large, and is the same for all queries of the same number of replicas
//! while nodes neither come nor go: so the last one is kept ([`Cover`]).

use crate::coverage::gathered::Gathered;
use crate::coverage::index_pages::IndexPages;
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
use kv::index::{PrefixSet, Query, Row, RowsAsk, RowsPage, Search, Telling};
use kv::query::{QueryRequest, Tally};
use kv::{Bucket, Error, IndexRequest, Response};
use ring::Ring;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Queries that one shard's clients run at a time: each may hold an answer in one piece.
const SEARCHES_MAX: usize = 256;

/// A query that is being answered here.
struct IndexQuery {
    search: Search,
    /// The gathering of its rows, if the client does not get them as they are.
    tally: Option<Box<Tally>>,
    n_val: u32,
    deadline: Monotonic,
    /// Whether the client has still to take the last answer.
    sending: bool,
    memory: Gathered,
}

/// A covering set, and the state that it depends on.
struct Cover {
    ring: Arc<Ring>,
    n_val: u32,
    up: Vec<NodeId>,
    parts: Vec<(Source, PrefixSet)>,
}

/// All queries, and all pages of rows being read.
#[derive(Default)]
pub(crate) struct IndexScans {
    under_way: BTreeMap<RequestId, IndexQuery>,
    /// Whose page each question is about. Those of queries that are over are dropped with them.
    questions: BTreeMap<u64, RequestId>,
    cover: Option<Cover>,
    reads: IndexPages,
}

impl IndexScans {
    pub(crate) fn len(&self) -> usize {
        self.under_way.len() + self.reads.len()
    }

    /// The deadlines of all that are answered here.
    pub(crate) fn deadlines(&self) -> impl Iterator<Item = Monotonic> {
        self.under_way.values().map(|searching| searching.deadline)
    }

    pub(crate) fn forget(&mut self, id: RequestId) {
        let Some(searching) = self.under_way.remove(&id) else { return };
        for question in searching.search.asked() {
            self.questions.remove(&question);
        }
    }

    pub(crate) fn search(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        request: IndexRequest,
        deadline: Monotonic,
    ) {
        let bucket = request.bucket.clone();
        let started = request.plan().and_then(|plan| self.start_search(env, &bucket, plan, None, deadline));
        self.begin_search(env, reply_to, started);
    }

    pub(crate) fn query(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        request: QueryRequest,
        deadline: Monotonic,
    ) {
        let started = Tally::new(request).and_then(|mut tally| {
            let bucket = tally.bucket().clone();
            let part = tally.next_part()?.expect("a query has a part");
            self.start_search(env, &bucket, part, Some(Box::new(tally)), deadline)
        });
        self.begin_search(env, reply_to, started);
    }

    fn begin_search(&mut self, env: &mut Env, reply_to: ReplyTo, started: Result<IndexQuery, Error>) {
        let ReplyTo::Client(id) = reply_to else { unreachable!("a query is answered where its client is") };
        if self.under_way.len() >= SEARCHES_MAX {
            env.counters.refused += 1;
            return env.reply(reply_to, Err(Error::Overload));
        }
        match started {
            Ok(searching) => {
                env.deadlines.note(searching.deadline);
                self.under_way.insert(id, searching);
                self.ask_rows(env, id);
            }
            Err(error) => env.reply(reply_to, Err(error)),
        }
    }

    fn start_search(
        &mut self,
        env: &mut Env,
        bucket: &Bucket,
        part: (Query, Option<Row>, Telling),
        tally: Option<Box<Tally>>,
        deadline: Monotonic,
    ) -> Result<IndexQuery, Error> {
        env.knobs.limits.check_bucket(bucket)?;
        let n_val = env.props.get(bucket)?.n_val;
        let search = self.search_of(env, n_val, part)?;
        Ok(IndexQuery { search, tally, n_val, deadline, sending: false, memory: Gathered::default() })
    }

    fn search_of(
        &mut self,
        env: &mut Env,
        n_val: u32,
        (query, after, telling): (Query, Option<Row>, Telling),
    ) -> Result<Search, Error> {
        let cover = self.cover(env, n_val)?;
        Ok(env.with_plan(n_val, |plan| Search::over(cover, query, after, telling, plan)))
    }

    fn cover(&mut self, env: &mut Env, n_val: u32) -> Result<Vec<(Source, PrefixSet)>, Error> {
        let up: Vec<NodeId> = env.peers.up().collect();
        let is_same =
            |it: &&Cover| it.n_val == n_val && it.up == up && Arc::ptr_eq(&it.ring, &env.topology.ring);
        if let Some(cover) = self.cover.as_ref().filter(is_same) {
            return Ok(cover.parts.clone());
        }
        let parts = env.with_plan(n_val, |plan| {
            let all = plan.prefixes.all();
            let all = all.map(|prefix| u16::try_from(prefix.0).expect("a prefix has at most 16 bits"));
            plan.cover(all, &BTreeSet::new())
        })?;
        let parts = parts.into_iter().map(|(source, prefixes)| (source, prefixes.into_iter().collect()));
        let parts: Vec<(Source, PrefixSet)> = parts.collect();
        let ring = Arc::clone(&env.topology.ring);
        self.cover = Some(Cover { ring, n_val, up, parts: parts.clone() });
        Ok(parts)
    }

    /// The client has taken the last answer.
    pub(crate) fn go_on_searching(&mut self, env: &mut Env, id: RequestId) {
        if let Some(searching) = self.under_way.get_mut(&id) {
            searching.sending = false;
            self.ask_rows(env, id);
        }
    }

    /// Asks for every page that may be asked for.
    fn ask_rows(&mut self, env: &mut Env, id: RequestId) {
        let now = env.now();
        if self.expire_search(env, id, now) {
            return;
        }
        let Some(searching) = self.under_way.get_mut(&id) else { return };
        let deadline = searching.deadline;
        let questions = searching.search.ask(now, || env.next_id());
        for (question, ..) in &questions {
            self.questions.insert(*question, id);
        }
        for (question, source, ask) in questions {
            self.ask_for_rows(env, question, source, ask, deadline);
        }
    }

    fn ask_for_rows(
        &mut self,
        env: &mut Env,
        question: u64,
        source: Source,
        ask: RowsAsk,
        deadline: Monotonic,
    ) {
        let from = env.knobs.id;
        match source {
            Source::Here(shard) if shard == from.0 => self.read(env, PageReader::Shard(from, question), &ask),
            Source::Here(shard) => {
                let message = Hop::AskRows { from, question, ask: Box::new(ask) };
                env.out.push(Output::Hop { to: ShardId(shard), message });
            }
            Source::Node(to) => {
                let (id, ttl_ms) = (env.ask_id(question), env.ttl_ms(deadline));
                env.send(to, PeerMessage::AskRows { id, ttl_ms, ask: Box::new(ask) });
            }
        }
    }

    /// Reads a page for another shard's.
    pub(crate) fn on_shard_asks_rows(&mut self, env: &mut Env, from: ShardId, question: u64, ask: &RowsAsk) {
        self.read(env, PageReader::Shard(from, question), ask);
    }

    /// Reads a page for another node's.
    pub(crate) fn on_peer_asks_rows(&mut self, env: &mut Env, from: NodeId, id: AskId, ask: &RowsAsk) {
        let to = PageReader::Node(from, id);
        if self.reads.are_full() || env.gauges.requests() >= 2 * WORK_MAX {
            env.counters.refused += 1;
            return self.send_rows(env, to, Err(Error::Overload));
        }
        self.read(env, to, ask);
    }

    fn read(&mut self, env: &mut Env, to: PageReader, ask: &RowsAsk) {
        if let Err(error) = self.reads.read(env, to, ask) {
            self.send_rows(env, to, Err(error));
        }
    }

    /// Takes the end of a scan, if it is of rows.
    pub(crate) fn on_scan(
        &mut self,
        env: &mut Env,
        scan: ScanId,
        page: Result<ScanPage, engine::Error>,
    ) -> Result<(), Result<ScanPage, engine::Error>> {
        let (to, page) = self.reads.on_scan(scan, page)?;
        self.send_rows(env, to, page);
        Ok(())
    }

    fn send_rows(&mut self, env: &mut Env, to: PageReader, page: Result<RowsPage, Error>) {
        match to {
            PageReader::Shard(shard, question) if shard == env.knobs.id => self.on_rows(env, question, page),
            PageReader::Shard(shard, question) => {
                env.out.push(Output::Hop { to: shard, message: Hop::Rows { question, page } });
            }
            PageReader::Node(node, id) => env.send(node, PeerMessage::Rows { id, page }),
        }
    }

    /// Takes a page of rows, from wherever it comes.
    pub(crate) fn on_rows(&mut self, env: &mut Env, question: u64, page: Result<RowsPage, Error>) {
        // It may have been answered by its deadline, or its client may be gone.
        let Some(id) = self.questions.remove(&question) else { return };
        if self.expire_search(env, id, env.now()) {
            return;
        }
        self.step_search(env, id, |search, plan| search.on_page(question, page, plan));
    }

    /// Has a query take a step, and sends its answers.
    fn step_search(
        &mut self,
        env: &mut Env,
        id: RequestId,
        step: impl FnOnce(&mut Search, &Plan<'_>) -> Result<Vec<Response>, Error>,
    ) {
        let Some(mut searching) = self.under_way.remove(&id) else { return };
        let before: Vec<u64> = searching.search.asked().collect();
        let stepped = env.with_plan(searching.n_val, |plan| step(&mut searching.search, plan));
        let stepped = stepped.and_then(|answers| {
            searching.memory.grow(&env.knobs.gathered, searching.search.gathered_bytes())?;
            Ok(answers)
        });
        let is_over = stepped.is_err();
        for question in before.into_iter().filter(|&question| is_over || !searching.search.asks(question)) {
            self.questions.remove(&question);
        }
        match stepped {
            Ok(answers) => {
                self.under_way.insert(id, searching);
                self.answer_search(env, id, answers);
            }
            Err(error) => {
                env.reply(ReplyTo::Client(id), Err(error));
            }
        }
    }

    fn answer_search(&mut self, env: &mut Env, id: RequestId, answers: Vec<Response>) {
        if self.under_way.get(&id).is_some_and(|searching| searching.tally.is_some()) {
            return self.tally(env, id, answers);
        }
        for answer in answers {
            let more = !matches!(&answer, Response::Rows(rows) if rows.done);
            match self.under_way.get_mut(&id) {
                Some(searching) if more => searching.sending = true,
                _ => self.forget(id),
            }
            env.out.push(Output::Reply { to: id, result: Ok(answer), more });
        }
        // An answer brings the next pages when it is taken.
        if self.under_way.get(&id).is_some_and(|searching| !searching.sending) {
            self.ask_rows(env, id);
        }
    }

    /// Gathers rows, and goes on with the next page, the next part, or the answer.
    fn tally(&mut self, env: &mut Env, id: RequestId, answers: Vec<Response>) {
        let Some(searching) = self.under_way.get_mut(&id) else { return };
        let Some(tally) = &mut searching.tally else { unreachable!("it is gathered") };
        let mut is_over = false;
        let mut next = Ok(None);
        for answer in answers {
            let Response::Rows(rows) = answer else { unreachable!("it is an index query's") };
            is_over = rows.done;
            next = tally
                .take(rows)
                .and_then(|()| searching.memory.grow(&env.knobs.gathered, tally.gathered_bytes()))
                .and_then(|()| if is_over { tally.next_part() } else { Ok(None) });
            if next.is_err() {
                break;
            }
        }
        if !is_over && next.is_ok() {
            return self.ask_rows(env, id);
        }
        // Pages that were asked for and are not needed any more are nobody's.
        for question in searching.search.asked() {
            self.questions.remove(&question);
        }
        let n_val = searching.n_val;
        let search = next.and_then(|part| part.map(|part| self.search_of(env, n_val, part)).transpose());
        match search {
            Ok(Some(search)) => {
                if let Some(searching) = self.under_way.get_mut(&id) {
                    searching.search = search;
                }
                self.ask_rows(env, id);
            }
            Ok(None) => {
                let tally = self.under_way.remove(&id).and_then(|searching| searching.tally);
                let tally = tally.expect("it was there");
                env.reply(ReplyTo::Client(id), Ok(Response::Findings(tally.end())));
            }
            Err(error) => {
                self.under_way.remove(&id);
                env.reply(ReplyTo::Client(id), Err(error));
            }
        }
    }

    /// A node can no longer be reached: others are asked for its missing pages.
    pub(crate) fn fail_rows(&mut self, env: &mut Env, node: NodeId) {
        let ids: Vec<RequestId> = self.under_way.keys().copied().collect();
        for id in ids {
            self.step_search(env, id, |search, plan| search.on_down(node, plan).map(|()| Vec::new()));
        }
    }

    /// Answers a query that is past its deadline; whether it was.
    fn expire_search(&mut self, env: &mut Env, id: RequestId, now: Monotonic) -> bool {
        let is_due = self.under_way.get(&id).is_some_and(|searching| searching.deadline <= now);
        if is_due {
            self.forget(id);
            env.reply(ReplyTo::Client(id), Err(Error::Timeout));
        }
        is_due
    }

    pub(crate) fn expire_searches(&mut self, env: &mut Env, now: Monotonic) {
        let ids: Vec<RequestId> = self.under_way.keys().copied().collect();
        for id in ids {
            self.expire_search(env, id, now);
        }
    }

    /// Asks again for pages that are late.
    pub(crate) fn tick_searches(&mut self, env: &mut Env, now: Monotonic) {
        let ids: Vec<RequestId> = self.under_way.keys().copied().collect();
        for id in ids {
            self.step_search(env, id, |search, plan| search.tick(now, plan).map(|()| Vec::new()));
        }
    }

    /// Each question is of a query under way, which asks it; bounds hold.
    pub(crate) fn invariants(&self) {
        debug_assert!(self.under_way.len() <= SEARCHES_MAX, "queries are bounded");
        let asked = self.under_way.values().map(|searching| searching.search.asked().count());
        debug_assert_eq!(asked.sum::<usize>(), self.questions.len(), "each question that is asked is known");
        debug_assert!(
            self.questions.iter().all(|(&question, id)| {
                self.under_way.get(id).is_some_and(|searching| searching.search.asks(question))
            }),
            "each question is of a query under way"
        );
    }
}
