//! Clients: each has one request under way at any node, and each request is an operation of its key's history.
//!
//! A client knows the context of what it has read or written last, and uses it for conditions; also when the key has
//! changed since.
//!
//! Outcomes: an answer *failed* is a read of another value; *timeout*, silence and a broken connection leave it open
//! whether a write takes effect; all other errors say that it never does.

use super::scenario::Scenario;
use super::{Event, Message, World, client_id, node_id};
use crate::network::Packet;
use crate::seed::{between, duration_between, index_below};
use crate::show;
use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use bytes::Bytes;
use kv::{Bucket, DeleteRequest, Error, GetRequest, PutRequest, Request, Response, Return};
use object::Metadata;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use strong::linearizability::{Action, Operation, Outcome, Value};

/// The consistent bucket type.
pub(super) const TYPE: Bytes = Bytes::from_static(b"strong");
/// The longest wait beyond a request's timeout, besides the node's clock: delays of the way.
const PATIENCE_MAX: Duration = Duration::from_millis(100);
/// The shortest timeout: some round trips.
const TIMEOUT_MIN: Duration = Duration::from_millis(50);
/// The shortest and the longest pause between two requests of a burst.
const BURST_PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(40));
/// The shortest and the longest burst, in requests.
const BURST: (u64, u64) = (5, 25);

/// A client.
pub(super) struct Client {
    rng: SplitMix64,
    /// The node that it asks.
    node: usize,
    /// The context and the value of each key that it knows last.
    seen: BTreeMap<usize, (Bytes, Value)>,
    /// The keys whose contexts are of the time before a restore of all nodes.
    aged: BTreeSet<usize>,
    /// Requests to come in this burst.
    burst: u64,
    /// The key that it reads next: one whose condition failed.
    rereads: Option<usize>,
}

/// A request without an answer.
pub(super) struct Pending {
    pub(super) client: usize,
    pub(super) node: usize,
    pub(super) key: usize,
    pub(super) action: Action,
    pub(super) call: u64,
    /// Whether its context is of the time before a restore of all nodes: the object may be the same or not.
    pub(super) is_aged: bool,
}

impl Client {
    pub(super) fn new(mut rng: SplitMix64, nodes: usize) -> Client {
        let node = index_below(&mut rng, nodes);
        let (seen, aged) = (BTreeMap::new(), BTreeSet::new());
        Client { rng, node, seen, aged, burst: 0, rereads: None }
    }

    /// All nodes are restored.
    pub(super) fn age_contexts(&mut self) {
        self.aged = self.seen.keys().copied().collect();
    }

    fn see(&mut self, key: usize, context: Bytes, value: Value) {
        self.aged.remove(&key);
        self.seen.insert(key, (context, value));
    }
}

pub(super) fn bucket() -> Bucket {
    Bucket { bucket_type: TYPE, name: Bytes::from_static(b"b") }
}

/// The value as clients write it: its number, and some spaces.
fn text_of(value: Value, padding: usize) -> Bytes {
    Bytes::from(format!("{value}{:padding$}", ""))
}

/// The request of an action; `context` is that of its condition, and `padding` the length of a value beside its number.
pub(super) fn request_of(
    key: Bytes,
    action: Action,
    context: Option<Bytes>,
    timeout: Duration,
    padding: usize,
) -> Request {
    let timeout = Some(u32::try_from(timeout.as_millis()).expect("some seconds"));
    let put = |value| {
        let put = PutRequest::new(bucket(), Some(key.clone()), Metadata::default(), text_of(value, padding));
        Request::put(PutRequest { context: context.clone(), returned: Return::Head, timeout, ..put })
    };
    match action {
        Action::Get => Request::Get(GetRequest { timeout, ..GetRequest::new(bucket(), key) }),
        Action::Put(value) | Action::PutOnce(value) | Action::Cas { value, .. } => put(value),
        Action::Delete | Action::DeleteIf { .. } => {
            Request::Delete(DeleteRequest { context, timeout, ..DeleteRequest::new(bucket(), key) })
        }
    }
}

/// The meaning of an answer.
pub(super) fn outcome_of(result: &Result<Response, Error>) -> Outcome {
    match result {
        Ok(Response::Found(found)) => {
            let text = found.value.as_ref().and_then(|value| std::str::from_utf8(value).ok());
            // A value that nobody wrote is for the checker to report.
            Outcome::Read(Some(text.and_then(|text| text.trim_end().parse().ok()).unwrap_or(Value::MAX)))
        }
        Ok(Response::NotFound { .. }) => Outcome::Read(None),
        Ok(_) => Outcome::Done,
        Err(Error::Failed) => Outcome::Failed,
        Err(Error::Timeout) => Outcome::Timeout,
        Err(_) => Outcome::Unavailable,
    }
}

/// The value that a client knows by an answer, of an action that tells one.
pub(super) fn value_of(action: Action, outcome: Outcome) -> Option<Value> {
    match (action, outcome) {
        (Action::Get, Outcome::Read(value)) => value,
        (Action::Put(value) | Action::PutOnce(value) | Action::Cas { value, .. }, Outcome::Done) => {
            Some(value)
        }
        _ => None,
    }
}

impl World {
    pub(super) fn schedule_client(&mut self, at: usize) {
        let is_focused = self.focus().is_some();
        // What is still to come then needs time, and no longer histories.
        let rest = if self.has_seen_enough() { 20 } else { 1 };
        let client = &mut self.clients[at];
        let is_in_burst = self.plan.bursts && client.burst > 0 && rest == 1;
        let (shortest, longest) = match is_focused || is_in_burst {
            true => BURST_PAUSE,
            false if client.rng.chance(1, 6) => (Duration::ZERO, self.plan.think_max * 10),
            false => (Duration::ZERO, self.plan.think_max * rest),
        };
        match client.burst.checked_sub(1) {
            Some(left) => client.burst = left,
            None => client.burst = between(&mut client.rng, BURST.0, BURST.1),
        }
        let think = duration_between(&mut client.rng, shortest, longest);
        self.events.after(think, Event::Client(at));
    }

    /// A client sends its next request.
    pub(super) fn on_client(&mut self, at: usize) {
        if !self.has_clients() {
            return;
        }
        let nodes = self.plan.nodes();
        let focus = self.focus();
        let key = self.draw_key(at, focus);
        let client = &mut self.clients[at];
        if client.rng.chance(1, if focus.is_some() { 3 } else { 10 }) {
            client.node = index_below(&mut client.rng, nodes);
        }
        self.numbers += 1;
        let number = self.numbers;
        let seen = client.seen.get(&key).cloned();
        let is_reread = client.rereads.take() == Some(key);
        let (action, context) = match (client.rng.below(16), seen) {
            _ if is_reread => (Action::Get, None),
            (0 | 1, _) => (Action::Delete, None),
            (2 | 3, _) => (Action::PutOnce(number), None),
            (4, Some((context, expected))) => (Action::DeleteIf { expected }, Some(context)),
            (5..=10, Some((context, expected))) => (Action::Cas { expected, value: number }, Some(context)),
            (5..=10, None) if self.plan.bursts => (Action::PutOnce(number), None),
            _ => (Action::Get, None),
        };
        let is_fat = self.plan.padding_max > 0 && client.rng.chance(1, 2);
        let padding = if is_fat { index_below(&mut client.rng, self.plan.padding_max) } else { 0 };
        let timeout = duration_between(&mut client.rng, TIMEOUT_MIN, self.plan.timeout_max);
        // The node's clock may be slow.
        let patience = timeout * 11 / 10 + duration_between(&mut client.rng, Duration::ZERO, PATIENCE_MAX);
        let node = client.node;
        let name = self.keys[key].name.clone();
        let request = request_of(name, action, context, timeout, padding);
        let call = self.events.now().0;
        let is_aged = self.clients[at].aged.contains(&key)
            && matches!(action, Action::Cas { .. } | Action::DeleteIf { .. });
        self.pending.insert(number, Pending { client: at, node, key, action, call, is_aged });
        self.events.after(patience, Event::GiveUpWaiting(number));
        self.trace.line(format_args!("c{at} #{number} to n{node}: {} {action:?}", show::request(&request)));
        let message = Message::Ask { number, request: Box::new(request) };
        self.outside.send(&mut self.events, Packet { from: client_id(at), to: node_id(node), message });
    }

    /// The key of a client's next request.
    fn draw_key(&mut self, at: usize, focus: Option<usize>) -> usize {
        let client = &mut self.clients[at];
        if let Some(key) = client.rereads {
            return key;
        }
        let keys = self.keys.len();
        if let Some(prefix) = focus.map(|group| self.groups[group])
            && client.rng.chance(3, 4)
        {
            let of_group = self.keys.iter().enumerate().filter(|(_, key)| key.prefix == prefix);
            let of_group: Vec<usize> = of_group.map(|(key, _)| key).collect();
            return of_group[index_below(&mut client.rng, of_group.len())];
        }
        // Some keys have most of the requests, so that conditions meet.
        let among = if client.rng.chance(2, 3) { keys.min(HOT_KEYS) } else { keys };
        index_below(&mut client.rng, among)
    }

    /// The group that clients turn to now.
    fn focus(&self) -> Option<usize> {
        self.scenario.as_ref().and_then(Scenario::focus)
    }

    /// A client takes an answer, if it still waits for it.
    pub(super) fn on_client_answer(&mut self, number: u64, result: &Result<Response, Error>) {
        let Some(pending) = self.pending.get(&number) else { return };
        let (client, key, action) = (&mut self.clients[pending.client], pending.key, pending.action);
        let outcome = outcome_of(result);
        match (outcome, show::context(result)) {
            (Outcome::Read(Some(value)), Some(context)) => client.see(key, context, value),
            (Outcome::Read(None), _) => drop(client.seen.remove(&key)),
            (Outcome::Done, context) => match (action, context) {
                (Action::PutOnce(value) | Action::Cas { value, .. }, Some(context)) => {
                    client.see(key, context, value);
                }
                _ => drop(client.seen.remove(&key)),
            },
            (Outcome::Failed, _) if client.rng.chance(1, 2) => {
                client.seen.remove(&key);
                client.rereads = Some(key).filter(|_| self.plan.bursts);
            }
            _ => {}
        }
        self.finish(number, outcome);
    }

    /// Notes the end of a request; its client thinks about the next one.
    pub(super) fn finish(&mut self, number: u64, outcome: Outcome) {
        let Some(pending) = self.pending.remove(&number) else { return };
        let Pending { client, key, action, call, is_aged, .. } = pending;
        let nodes = self.plan.nodes();
        let asking = &mut self.clients[client];
        if matches!(outcome, Outcome::Unavailable | Outcome::Timeout) && asking.rng.chance(1, 2) {
            asking.node = index_below(&mut asking.rng, nodes);
        }
        if !(is_aged && outcome == Outcome::Failed) {
            self.note(key, Operation { call, end: self.events.now().0, action, outcome });
        }
        self.schedule_client(client);
    }

    /// A client's connection broke with its node: nobody knows what became of its request.
    pub(super) fn break_connections(&mut self, node: usize) {
        let broken: Vec<u64> =
            self.pending.iter().filter(|(_, it)| it.node == node).map(|(&number, _)| number).collect();
        for number in broken {
            if self.requests.remove(&number).is_some() {
                self.finish(number, Outcome::Timeout);
            }
        }
    }

    /// The time as histories have it.
    pub(super) fn instant(&self) -> Monotonic {
        self.events.now()
    }
}

/// Keys that have most of the requests.
const HOT_KEYS: usize = 3;
