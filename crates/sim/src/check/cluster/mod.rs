//! What the nodes of a cluster promise together, checked at each node's boundary and on the wire between them.
//!
//! While the world lives, only what holds at every moment is checked: dots, values, answers, quorums, and that a
//! version never shows a sibling together with its replacement. What was acknowledged is asked for in the end,
//! when faults are over and the replicas have become equal. One file for each promise:
//!
//! * `acknowledged.rs`: no acknowledged write is lost.
//! * `deletes.rs`: nothing comes back whose delete was acknowledged.
//! * `ended.rs`: what has ended is shown to nobody.
//! * `siblings.rs`: what is shown was written, no more often than asked for, and not beside what replaced it.
//! * `replicas.rs`: replicas become equal, and a read of all of them shows all that they have.
//! * `bounded.rs`: a shard never holds much, and holds nothing once everything is quiet.
//! * `answers.rs`: each request is answered once, in time, by the node that it reached; errors are of known kinds.
//! * `quorums.rs`: as many primaries and nodes have a write as its quorums say.
//! * `strict.rs`: a read of two primaries shows what two primaries had acknowledged.
//! * `promises.rs`: a replica keeps what it said it has.
//! * `reaped.rs`: what replicas need not have any more.
//! * `homecoming.rs`: what a primary missed comes to it without being read.
//! * `listings.rs`: a listing has what all primaries have, each name once, or fails.
//! * `searches.rs`: an index query tells rows that were written, in order, each once, all that all primaries have, or
//!   fails.
//! * `single.rs`: with one replica, each read shows the writes that were acknowledged or shown before.
//!
//! Dots are checked by [`crate::check::dots`]: across nodes, restarts, and disks that were copied.
//!
//! With one node the checks at each read are stricter: no other node can cause a timeout or a stale replica.
//!
//! A write that was acknowledged by fewer than two nodes may be lost with one of them ([`Checks::on_loss`]).

mod acknowledged;
mod answers;
mod bounded;
mod deletes;
mod ended;
mod history;
mod homecoming;
mod listings;
mod promises;
mod quorums;
mod reaped;
mod replicas;
mod searches;
mod siblings;
mod single;
mod strict;
#[cfg(test)]
mod tests;
mod trees;

pub use bounded::check as check_bounds;
pub use reaped::Reaped;
pub use replicas::Copies;
pub use searches::{Row, Told, Wanted};
pub use trees::check as check_trees;

use super::answers::Causes;
use super::answers::{self as single_answers, Answers, mismatch};
use super::dots::Dots;
use super::history::{KeyName, Kind, is_props_number};
use super::siblings::{Shown, number_of, read};
use super::{Verdict, Violation};
use crate::show;
use base::Monotonic;
use bytes::Bytes;
use ended::Ended;
use history::History;
use homecoming::Homecoming;
use kv::reap::Round;
use kv::replica::{Answer, Ask, Reason};
use kv::response::Found;
use kv::{Error, Prop, Request, Response};
use listings::Listings;
use node::PeerMessage;
use object::{Context, HeadView};
use promises::Promises;
use quorums::{Asks, Reached};
use searches::Searches;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use strict::Strict;

/// How much later than its deadline an answer may be: two ticks, a turn, and the way between shards.
pub const SLACK: Duration = Duration::from_millis(30);

/// A node of the cluster, by its number.
pub type NodeAt = usize;

/// What a request asks for, as far as it is checked.
#[derive(Clone, Debug)]
enum Asked {
    /// `absence_counts`: that a replica has nothing is a reply that meets quorums.
    Get {
        key: KeyName,
        primaries: u32,
        absence_counts: bool,
    },
    Put {
        key: KeyName,
        at: usize,
        number: u64,
        asks: Asks,
        conditional: bool,
    },
    Delete {
        key: KeyName,
        at: usize,
        asks: Asks,
    },
    SetProps {
        key: KeyName,
        at: usize,
    },
    GetProps(KeyName),
    /// A page of an index query.
    Search,
    Other,
}

/// A question of one node to another.
#[derive(Clone, Debug)]
struct Question {
    key: KeyName,
    /// Of a version to be joined: its writes, and its context.
    numbers: Vec<u64>,
    context: Option<Context>,
    /// When that ends.
    ends_ms: Option<u64>,
}

/// All checkers of a cluster.
#[derive(Debug)]
pub struct Checks {
    history: History,
    dots: Dots,
    reached: Reached,
    answers: Vec<Answers>,
    promises: Vec<Promises>,
    homecoming: Homecoming,
    strict: Strict,
    reaped: Reaped,
    listings: Listings,
    searches: Searches,
    asked: BTreeMap<u64, (NodeAt, Monotonic, Asked)>,
    /// When something was lost last: what was under way then promises nothing.
    lost_at: Option<Monotonic>,
    /// What has ended last.
    ended: Option<Ended>,
    /// By number, and by who was asked: one piece of work asks all its replicas under one number.
    questions: BTreeMap<(u64, NodeAt), Question>,
    /// Distinct nodes that must have a write of any bucket, whatever the write says.
    node_confirms: u32,
    /// The world has one node, and each object one replica.
    is_single: bool,
}

impl Checks {
    /// For `nodes` nodes whose buckets ask for `node_confirms`.
    pub fn new(nodes: usize, node_confirms: u32) -> Checks {
        Checks {
            history: History::default(),
            dots: Dots::default(),
            reached: Reached::default(),
            answers: (0..nodes).map(|_| Answers::default()).collect(),
            promises: (0..nodes).map(|_| Promises::default()).collect(),
            homecoming: Homecoming::default(),
            strict: Strict::default(),
            reaped: Reaped::default(),
            listings: Listings::default(),
            searches: Searches::default(),
            asked: BTreeMap::new(),
            lost_at: None,
            ended: None,
            questions: BTreeMap::new(),
            node_confirms,
            is_single: nodes == 1,
        }
    }

    /// A request has reached `node`, which is to answer it by `deadline`.
    pub fn on_request(
        &mut self,
        id: u64,
        node: NodeAt,
        request: &Request,
        now: Monotonic,
        deadline: Monotonic,
    ) {
        let asks = Asks::of(request, self.node_confirms);
        let context = |bytes: &Option<Bytes>| {
            let decode = |bytes| Context::decode(bytes).expect("clients send back what they were given");
            bytes.as_ref().map(|bytes: &Bytes| decode(bytes))
        };
        let asked = match request {
            Request::Get(get) => {
                let key = KeyName::of(&get.bucket, &get.key);
                let absence_counts = get.notfound_ok.unwrap_or(true);
                Asked::Get { key, primaries: asks.primaries, absence_counts }
            }
            Request::Put(put) => {
                let key = KeyName::of(&put.bucket, put.key.as_ref().expect("clients name their keys"));
                let number = number_of(&put.metadata).expect("clients number their writes");
                let at = self.history.begin(&key, Kind::Put(number), context(&put.context), now);
                let conditional = put.if_none_match || put.if_not_modified;
                Asked::Put { key, at, number, asks, conditional }
            }
            Request::Delete(delete) => {
                let key = KeyName::of(&delete.bucket, &delete.key);
                let at = self.history.begin(&key, Kind::Delete, context(&delete.context), now);
                Asked::Delete { key, at, asks }
            }
            Request::SetProps(bucket, changes) => match changes[..] {
                [Prop::YoungVclock(number)] => {
                    let key = KeyName::props(bucket);
                    let at = self.history.begin(&key, Kind::Put(number.into()), None, now);
                    Asked::SetProps { key, at }
                }
                _ => Asked::Other,
            },
            Request::GetProps(bucket) => Asked::GetProps(KeyName::props(bucket)),
            Request::Index(_) => Asked::Search,
            _ => Asked::Other,
        };
        self.asked.insert(id, (node, now, asked));
        self.answers[node].on_request(id, deadline);
    }

    /// Request `id` is the delete of a key by an erase, which may take what its fold has told of it, a context, and
    /// nothing else.
    pub fn on_erase(&mut self, id: u64, (context, told): (&Bytes, Monotonic)) {
        if let Some((_, _, Asked::Delete { key, at, .. })) = self.asked.get(&id) {
            let context = Context::decode(context).expect("folds tell what clients may send back");
            self.history.erase(key, *at, (context, told));
        }
    }

    /// Nobody waits for the answer to request `id` any more, which is no write.
    pub fn on_given_up(&mut self, id: u64) {
        if let Some((node, ..)) = self.asked.remove(&id) {
            self.answers[node].on_given_up(id);
        }
        self.listings.retain(|listing| listing != id);
    }

    /// An answer has left its node. `causes` are what may have gone wrong anywhere in the cluster; `primaries`
    /// names the primaries of a key.
    pub fn on_answer(
        &mut self,
        id: u64,
        result: &Result<Response, Error>,
        now: Monotonic,
        causes: Causes,
        primaries: impl Fn(&KeyName) -> Vec<NodeAt>,
    ) -> Verdict {
        let Some((node, began, asked)) = self.asked.remove(&id) else {
            return Err(mismatch(format_args!("request {id} is answered twice")));
        };
        self.answers[node].on_answer(id, false)?;
        self.listings.retain(|listing| listing != id);
        let response = match result {
            Ok(response) => response,
            // Whoever prepares nodes looks whether they have heard of a bucket type yet.
            Err(Error::NoType(_) | Error::TypeStatus(_))
                if matches!(asked, Asked::GetProps(_) | Asked::Other) =>
            {
                return Ok(());
            }
            // A new store may not have built its index yet.
            Err(Error::NotCovered) if matches!(asked, Asked::Search) => return Ok(()),
            Err(error) if self.is_single => {
                if let Asked::Put { key, at, .. }
                | Asked::Delete { key, at, .. }
                | Asked::SetProps { key, at } = &asked
                    && single_answers::is_refusal(error)
                {
                    self.history.refuse(key, *at);
                }
                return single_answers::judge(error, causes);
            }
            Err(error) => {
                let conditional = matches!(&asked, Asked::Put { conditional: true, .. });
                return answers::judge(error, causes, conditional);
            }
        };
        let promises_nothing = self.lost_at.is_some_and(|lost_at| began <= lost_at);
        match (&asked, response) {
            (Asked::Get { key, primaries, .. }, Response::Found(found)) => {
                self.on_found(key, found, Some((began, now)))?;
                self.check_not_ended(key, found, began)?;
                self.check_strict(key, *primaries, began, result)
            }
            (Asked::Get { key, primaries, absence_counts }, Response::NotFound { .. }) => {
                self.check_single(key, &Shown::default(), Some((began, now)))?;
                let primaries = if *absence_counts { *primaries } else { 0 };
                self.check_strict(key, primaries, began, result)
            }
            (Asked::Search | Asked::Other, _) => Ok(()),
            (Asked::Put { key, at, number, asks, .. }, Response::Put { object, .. }) => {
                if let Some(found) = object {
                    self.on_found(key, found, Some((began, now)))?;
                    self.check_not_ended(key, found, began)?;
                }
                // Elsewhere a write may lose to a newer one at once, and be sent on without its value.
                if key.has_siblings() || !key.has_memory() {
                    self.reached.check(key, *number, asks, node, &primaries(key))?;
                }
                if promises_nothing {
                    return Ok(());
                }
                let safe = self.is_single || asks.is_safe() || self.reached.others(*number) >= 2;
                self.history.acknowledge(key, *at, now, safe);
                if self.is_single {
                    return Ok(());
                }
                self.strict.on_acknowledged(key, *number, asks.durable_primaries(), now);
                self.homecoming.on_acknowledged(key, *number, (node, began), &self.reached);
                Ok(())
            }
            (Asked::Delete { key, at, asks }, Response::Deleted) => {
                if !promises_nothing {
                    self.history.acknowledge(key, *at, now, self.is_single || asks.is_safe());
                }
                Ok(())
            }
            (Asked::SetProps { key, at }, Response::PropsSet) => {
                self.history.acknowledge(key, *at, now, self.is_single);
                Ok(())
            }
            (Asked::GetProps(key), Response::Props(props)) => {
                self.check_props(key, props.young_vclock, began)
            }
            (asked, response) => Err(mismatch(format_args!("{asked:?} was answered {response:?}"))),
        }
    }

    /// With one replica: checks an answer to a reader. Its request began and ended at these times.
    fn check_single(
        &mut self,
        key: &KeyName,
        shown: &Shown,
        reader: Option<(Monotonic, Monotonic)>,
    ) -> Verdict {
        let Some((began, now)) = reader.filter(|_| self.is_single) else { return Ok(()) };
        single::check(&self.history, key, shown, began)?;
        self.history.observe(key, shown, now);
        Ok(())
    }

    fn check_props(&self, key: &KeyName, number: u32, began: Monotonic) -> Verdict {
        let Some(of_key) = self.history.key(key).filter(|_| self.is_single) else { return Ok(()) };
        let number = u64::from(number);
        let numbers = if is_props_number(number) { vec![(None, number)] } else { Vec::new() };
        single::check_newest(of_key, key, &Shown { numbers, tombstones: Vec::new() }, began)
    }

    fn check_strict(
        &self,
        key: &KeyName,
        primaries: u32,
        began: Monotonic,
        result: &Result<Response, Error>,
    ) -> Verdict {
        let context = show::context(result).and_then(|bytes| Context::decode(&bytes).ok());
        let context = context.map(|context| self.reaped.with(key, context));
        let Some(of_key) = self.history.key(key) else { return Ok(()) };
        self.strict.check(of_key, key, primaries, began, context.as_ref())
    }

    /// A node says something to another.
    pub fn on_message(&mut self, from: NodeAt, to: NodeAt, message: &PeerMessage) -> Verdict {
        match message {
            PeerMessage::Ask { id, key, ask, .. } => self.on_question(from, (id.0, to), key, ask),
            PeerMessage::Answer { id, result: Ok(answer), .. } => self.on_reply(from, id.0, answer),
            PeerMessage::Forward { request, .. } => {
                if let Request::Put(put) = &**request {
                    let number = number_of(&put.metadata).expect("clients number their writes");
                    self.reached.on_forward(number, from, to)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn on_question(&mut self, from: NodeAt, id: (u64, NodeAt), key: &Bytes, ask: &Ask) -> Verdict {
        let key = key_name(key)?;
        let mut question = Question { key, numbers: Vec::new(), context: None, ends_ms: None };
        if let Ask::Merge { head, value, reason, .. } = ask {
            let found = Found { head: head.clone(), value: Some(value.clone()), newest_only: false };
            let shown = self.on_found(&question.key, &found, None)?;
            question.numbers = shown.numbers.iter().map(|(_, number)| *number).collect();
            question.context = HeadView::parse(head).ok().map(|head| head.context().to_context());
            question.ends_ms = HeadView::expiry_of(head);
            if *reason == Reason::Write {
                question.numbers.iter().for_each(|number| self.reached.on_coordinated(*number, from));
            }
        }
        if let Ask::Reap { round: Round::Remove, tombstone } = ask {
            self.reaped.on_removed(&question.key, tombstone, id.0);
        }
        self.questions.insert(id, question);
        Ok(())
    }

    fn on_reply(&mut self, from: NodeAt, id: u64, answer: &Answer) -> Verdict {
        let Some(question) = self.questions.get(&(id, from)).cloned() else {
            return Err(mismatch(format_args!("n{from} answers question {id:x}, which was never asked")));
        };
        match answer {
            Answer::Read(Some(stored)) => {
                let found =
                    Found { head: stored.head.clone(), value: stored.value.clone(), newest_only: false };
                self.on_found(&question.key, &found, None)?;
            }
            Answer::Read(None) | Answer::Reaping { .. } => {}
            Answer::Merged => {
                question.numbers.iter().for_each(|number| self.reached.on_merged(*number, from));
                if let Some(context) = &question.context {
                    let history = self.history.key(&question.key);
                    let seen = history.into_iter().flat_map(|history| history.seen_in(context));
                    seen.for_each(|number| self.reached.on_merged(number, from));
                    if self.has_ended(&question.key, question.ends_ms) {
                        self.promises[from].end(&question.key, context);
                    } else {
                        self.promises[from].promise(&question.key, context);
                    }
                }
            }
        }
        Ok(())
    }

    /// A version was shown to another node, or to a reader. Its request began and ended at these times.
    fn on_found(
        &mut self,
        key: &KeyName,
        found: &Found,
        reader: Option<(Monotonic, Monotonic)>,
    ) -> Result<Shown, Violation> {
        let shown = read(key, found)?;
        self.dots.check(key, &shown)?;
        self.history.remember_dots(key, &shown);
        self.check_single(key, &shown, reader)?;
        siblings::check(self.history.key(key), key, &shown)?;
        Ok(shown)
    }

    /// What `node` is bound to have of `key`, if anything: held against what it has by `check_promise`.
    pub fn promised(&self, node: NodeAt, key: &KeyName) -> Option<Context> {
        self.promises[node].of(key).cloned()
    }

    /// `node` has given `key` up: when it is a primary again, it has what it is given then.
    pub fn release(&mut self, node: NodeAt, key: &KeyName) {
        self.promises[node].release(key);
    }

    /// Checks what `node` has of `key`, of which it was bound to have `promised` when it was asked.
    pub fn check_promise(
        &self,
        node: NodeAt,
        key: &KeyName,
        promised: &Context,
        head: Option<&Bytes>,
    ) -> Verdict {
        promises::check(node, key, promised, &self.reaped.with(key, context_of(head)))
    }

    /// Checks a read of all replicas, which had at least `copies` when it began. A node alone sends no message about
    /// the tombstones that it reaps, so its copies are not compared.
    pub fn check_read(&self, key: &KeyName, copies: &Copies, answer: &Context) -> Verdict {
        if self.is_single {
            return Ok(());
        }
        replicas::check_read(key, copies, &self.reaped.with(key, answer.clone()))
    }

    /// Whether replicas are equal, and have all that a read has shown.
    pub fn are_done(&self, key: &KeyName, copies: &Copies, read: &Context) -> bool {
        copies.are_equal(key, &self.reaped) && copies.have(key, read, &self.reaped)
    }

    /// What has been reaped.
    pub fn reaped(&self) -> &Reaped {
        &self.reaped
    }

    /// How often something was reaped.
    pub fn reaps(&self) -> u64 {
        self.reaped.count()
    }

    /// Checks what a primary has before anything was read.
    pub fn check_home(&self, node: NodeAt, key: &KeyName, head: Option<&Bytes>) -> Verdict {
        let of_key = self.history.key(key);
        let dots = |number| of_key.map(|of_key| of_key.dots_of(number).collect()).unwrap_or_default();
        self.homecoming.check(node, key, &self.reaped.with(key, context_of(head)), dots)
    }

    /// Checks the state that all replicas agree on, when nothing is under way any more. With one replica the read
    /// itself was checked.
    pub fn check_end(&self, key: &KeyName, found: Option<&Found>, context: &Context) -> Verdict {
        if self.is_single {
            return Ok(());
        }
        let shown = found.map(|found| read(key, found)).transpose()?.unwrap_or_default();
        let shown = if found.is_some_and(|found| found.newest_only) { newest(found, shown) } else { shown };
        let Some(of_key) = self.history.key(key) else { return Ok(()) };
        deletes::check(of_key, key, &shown)?;
        siblings::check_end(of_key, key, &shown)?;
        acknowledged::check(of_key, key, &shown, &self.reaped.with(key, context.clone()))
    }

    /// The process of `node` has died. With `lost_after`, what became known later may be lost on it.
    pub fn on_death(&mut self, node: NodeAt, now: Monotonic, lost_after: Option<Monotonic>) {
        self.answers[node].on_death();
        self.asked.retain(|_, (at, _, _)| *at != node);
        let asked = &self.asked;
        self.listings.retain(|id| asked.contains_key(&id));
        self.homecoming.on_death(node, now);
        if self.is_single {
            self.history.on_end_of_process(now);
        }
        if let Some(limit) = lost_after {
            self.lost_at = Some(now);
            self.promises[node] = Promises::default();
            self.strict.on_lossy();
            self.history.on_loss(Some(limit));
            self.homecoming.on_loss();
        }
    }

    /// The disk of `node` is not what it was: only what two nodes have is still promised.
    pub fn on_loss(&mut self, node: NodeAt, now: Monotonic) {
        self.lost_at = Some(now);
        self.promises[node] = Promises::default();
        self.strict.on_loss();
        self.history.on_loss(None);
        self.homecoming.on_loss();
    }

    /// A node goes on after a pause.
    pub fn on_resume(&mut self, node: NodeAt, now: Monotonic) {
        self.answers[node].put_off(now + SLACK);
    }

    /// Whether every request is answered.
    pub fn is_idle(&self) -> bool {
        self.answers.iter().all(Answers::is_idle)
    }

    /// Whether some request to `node`, which runs, should have been answered by now.
    pub fn check_deadlines(&self, node: NodeAt, now: Monotonic) -> Verdict {
        self.answers[node].check_deadlines(now)
    }

    /// How often each kind of write was acknowledged and is checked in the end.
    pub fn acknowledged(&self) -> u64 {
        self.history.acknowledged()
    }
}

/// What a copy has seen.
fn context_of(head: Option<&Bytes>) -> Context {
    let view = head.and_then(|head| HeadView::parse(head).ok());
    view.map(|head| head.context().to_context()).unwrap_or_default()
}

/// What a bucket that shows no siblings shows.
fn newest(found: Option<&Found>, shown: Shown) -> Shown {
    let dot = found.and_then(|found| HeadView::parse(&found.head).ok()).map(|head| head.newest().dot);
    let dots = BTreeSet::from_iter(dot);
    let is_newest = |dot: &Option<object::Dot>| dot.is_some_and(|dot| dots.contains(&dot));
    Shown {
        numbers: shown.numbers.into_iter().filter(|(dot, _)| is_newest(dot)).collect(),
        tombstones: shown.tombstones.into_iter().filter(|dot| dots.contains(dot)).collect(),
    }
}

/// The name of a ledger key.
fn key_name(key: &Bytes) -> Result<KeyName, Violation> {
    let parts = object::key::decode_object_key(key)
        .map_err(|error| mismatch(format_args!("a question about no object: {error}")))?;
    let bucket = kv::Bucket::untyped(Bytes::copy_from_slice(&parts.bucket));
    Ok(KeyName::of(&bucket, &Bytes::copy_from_slice(parts.key)))
}
