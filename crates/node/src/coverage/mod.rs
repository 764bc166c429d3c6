//! Requests that cover all partitions: scans of keys and buckets, folds, index queries.
//!
//! Invariant: the gauge of coverage counts the scans and queries of this shard's clients, and the pages being read.

pub(crate) mod fold;
pub(crate) mod gathered;
pub(crate) mod index_pages;
pub(crate) mod index_scan;
pub(crate) mod key_pages;
pub(crate) mod key_scan;
pub(crate) mod page_reader;
pub(crate) mod walk;

use crate::hop::{RequestId, ShardId};
use crate::peer::{AskId, NodeId};
use crate::shard::env::Env;
use crate::shard::reply_to::ReplyTo;
use base::Monotonic;
use engine::fold::{ScanId, ScanPage};
use index_scan::IndexScans;
use key_scan::KeyScans;
use kv::fold::FoldRequest;
use kv::index::{RowsAsk, RowsPage};
use kv::query::QueryRequest;
use kv::{Error, IndexRequest, ListBucketsRequest, ListKeysRequest, Page, PageAsk};

/// All scans and queries of this shard's clients, and all pages being read.
#[derive(Default)]
pub(crate) struct Coverage {
    key_scans: KeyScans,
    index_scans: IndexScans,
}

impl Coverage {
    /// Begins a listing of a bucket's keys.
    pub(crate) fn list_keys(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        list: ListKeysRequest,
        deadline: Monotonic,
    ) {
        self.key_scans.list_keys(env, reply_to, list, deadline);
        self.publish(env);
    }

    /// Begins a listing of a type's buckets.
    pub(crate) fn list_buckets(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        list: ListBucketsRequest,
        deadline: Monotonic,
    ) {
        self.key_scans.list_buckets(env, reply_to, list, deadline);
        self.publish(env);
    }

    /// Begins a fold.
    pub(crate) fn fold(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        request: FoldRequest,
        deadline: Monotonic,
    ) {
        self.key_scans.fold(env, reply_to, request, deadline);
        self.publish(env);
    }

    /// Begins an index query.
    pub(crate) fn search(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        request: IndexRequest,
        deadline: Monotonic,
    ) {
        self.index_scans.search(env, reply_to, request, deadline);
        self.publish(env);
    }

    /// Begins a query.
    pub(crate) fn query(
        &mut self,
        env: &mut Env,
        reply_to: ReplyTo,
        request: QueryRequest,
        deadline: Monotonic,
    ) {
        self.index_scans.query(env, reply_to, request, deadline);
        self.publish(env);
    }

    /// The client has taken the last part of its answer.
    pub(crate) fn proceed(&mut self, env: &mut Env, id: RequestId) {
        self.key_scans.go_on_listing(env, id);
        self.index_scans.go_on_searching(env, id);
        self.publish(env);
    }

    /// Another shard asks for a page.
    pub(crate) fn on_shard_asks_page(&mut self, env: &mut Env, from: ShardId, question: u64, ask: &PageAsk) {
        self.key_scans.on_shard_asks_page(env, from, question, ask);
        self.publish(env);
    }

    /// Another node asks for a page.
    pub(crate) fn on_peer_asks_page(&mut self, env: &mut Env, from: NodeId, id: AskId, ask: &PageAsk) {
        self.key_scans.on_peer_asks_page(env, from, id, ask);
        self.publish(env);
    }

    /// Another shard or node has answered with a page.
    pub(crate) fn on_page(&mut self, env: &mut Env, question: u64, page: Result<Page, Error>) {
        self.key_scans.on_page(env, question, page);
        self.publish(env);
    }

    /// Another shard asks for a page of rows.
    pub(crate) fn on_shard_asks_rows(&mut self, env: &mut Env, from: ShardId, question: u64, ask: &RowsAsk) {
        self.index_scans.on_shard_asks_rows(env, from, question, ask);
        self.publish(env);
    }

    /// Another node asks for a page of rows.
    pub(crate) fn on_peer_asks_rows(&mut self, env: &mut Env, from: NodeId, id: AskId, ask: &RowsAsk) {
        self.index_scans.on_peer_asks_rows(env, from, id, ask);
        self.publish(env);
    }

    /// Another shard or node has answered with a page of rows.
    pub(crate) fn on_rows(&mut self, env: &mut Env, question: u64, page: Result<RowsPage, Error>) {
        self.index_scans.on_rows(env, question, page);
        self.publish(env);
    }

    /// Takes the end of a scan, if it is of a page.
    pub(crate) fn on_scan(
        &mut self,
        env: &mut Env,
        scan: ScanId,
        page: Result<ScanPage, engine::Error>,
    ) -> Result<(), Result<ScanPage, engine::Error>> {
        let page = self.index_scans.on_scan(env, scan, page);
        let page = page.or_else(|page| self.key_scans.on_scan(env, scan, page));
        self.publish(env);
        page
    }

    /// A node has forgotten its questions: others are asked.
    pub(crate) fn fail(&mut self, env: &mut Env, node: NodeId) {
        self.key_scans.fail_pages(env, node);
        self.index_scans.fail_rows(env, node);
        self.publish(env);
    }

    /// Answers all that is past its deadline.
    pub(crate) fn expire(&mut self, env: &mut Env, now: Monotonic) {
        self.key_scans.expire_listings(env, now);
        self.index_scans.expire_searches(env, now);
        self.publish(env);
    }

    /// Asks again for pages that are late.
    pub(crate) fn tick(&mut self, env: &mut Env, now: Monotonic) {
        self.key_scans.tick_listings(env, now);
        self.index_scans.tick_searches(env, now);
        self.publish(env);
    }

    /// Forgets the request of a client that is gone.
    pub(crate) fn forget(&mut self, env: &mut Env, id: RequestId) {
        self.key_scans.forget(id);
        self.index_scans.forget(id);
        self.publish(env);
    }

    /// The deadlines of the scans and queries under way.
    pub(crate) fn deadlines(&self) -> impl Iterator<Item = Monotonic> {
        self.key_scans.deadlines().chain(self.index_scans.deadlines())
    }

    /// Checks relations that hold between two inputs.
    pub(crate) fn invariants(&self, env: &Env) {
        debug_assert_eq!(env.gauges.coverage, self.len(), "the gauge counts scans, queries and pages");
        self.key_scans.invariants();
        self.index_scans.invariants();
    }

    fn len(&self) -> usize {
        self.key_scans.len() + self.index_scans.len()
    }

    fn publish(&self, env: &mut Env) {
        env.gauges.coverage = self.len();
    }
}
