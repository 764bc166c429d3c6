//! A client: one request at a time, to the node that it is attached to, on a handful of keys of each bucket, with
//! the contexts that it was given.

use super::plan::Plan;
use super::{BUCKETS, ONCE, key_name};
use crate::check::history::{ONCE_TYPE, PROPS_BUCKET};
use crate::check::siblings::{metadata_of, value_of};
use crate::seed::{between, index_below};
use crate::show;
use base::Rng;
use base::rng::SplitMix64;
use bytes::Bytes;
use kv::request::Return;
use kv::{Bucket, DeleteRequest, Error, GetRequest, Prop, PutRequest, Quorum, Request, Response};
use std::collections::BTreeMap;
use std::time::Duration;

/// A key: its bucket's place among [`BUCKETS`], and its number.
pub(super) type Place = (usize, u64);

/// Of twenty requests, those that delete: more where tombstones are reaped, which takes a delete that everybody hears
/// of.
const DELETES: u64 = 2;
const DELETES_REAPED: u64 = 6;
/// One in this many requests to a node alone is about the properties of a bucket.
const PROPS_EVERY: u64 = 12;

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) rng: SplitMix64,
    /// Of twenty requests, those that delete.
    deletes: u64,
    /// Whether it deletes keys that are written once, too.
    deletes_once: bool,
    /// Whether it deletes what it has not seen, too.
    deletes_unseen: bool,
    /// Whether it asks for what buckets say, and sets no conditions.
    pub(super) is_plain: bool,
    /// Whether it also changes and reads bucket properties: of a node alone, where changes are in force at once.
    changes_props: bool,
    /// How many of the buckets it uses.
    buckets: usize,
    /// The node that it speaks to.
    pub(super) node: usize,
    /// What it was told last of each key, which may be long ago.
    contexts: BTreeMap<Place, Bytes>,
    /// What it reads to write it afterwards.
    updating: Option<Place>,
    /// The request that it waits for, and its key.
    waiting: Option<(u64, Place)>,
}

impl Client {
    /// One of a cluster that goes by this plan.
    pub(super) fn new(mut rng: SplitMix64, plan: &Plan) -> Client {
        let node = index_below(&mut rng, plan.nodes());
        let (reaps, is_alone) = (plan.reaping.delay.is_some(), plan.is_alone());
        Client {
            rng,
            deletes: if reaps && !is_alone { DELETES_REAPED } else { DELETES },
            deletes_once: !reaps,
            deletes_unseen: plan.deletes_unseen,
            is_plain: is_alone,
            changes_props: is_alone,
            buckets: plan.buckets(),
            node,
            contexts: BTreeMap::new(),
            updating: None,
            waiting: None,
        }
    }

    /// Whether it waits for an answer.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// The next request, as number `number` of the world, and how long the node may take for it.
    pub(super) fn next(
        &mut self,
        number: u64,
        keys: u64,
        timeout_max: Duration,
        nodes: usize,
    ) -> (Request, Duration) {
        if self.waiting.is_some() {
            // It has given up on the last one, and perhaps on the node.
            self.updating = None;
            self.attach(nodes, 1, 2);
        }
        self.attach(nodes, 1, 12);
        let longest = u64::try_from(timeout_max.as_millis()).expect("seconds");
        let millis = between(&mut self.rng, longest / 4, longest);
        let timeout = u32::try_from(millis).expect("seconds");
        let request = self.request(number, keys, timeout);
        (request, Duration::from_millis(millis))
    }

    fn attach(&mut self, nodes: usize, once: u64, of: u64) {
        if self.rng.chance(once, of) {
            self.node = index_below(&mut self.rng, nodes);
        }
    }

    fn request(&mut self, number: u64, keys: u64, timeout: u32) -> Request {
        if let Some(place) = self.updating.take() {
            self.waiting = Some((number, place));
            let context = self.contexts.get(&place).cloned();
            return self.put(number, place, context, timeout);
        }
        // Half of all requests are for the bucket with siblings, which is checked best.
        let bucket = index_below(&mut self.rng, 2 * self.buckets - 2).saturating_sub(self.buckets - 2);
        let place = (bucket, self.rng.below(keys));
        self.waiting = Some((number, place));
        if self.changes_props && self.rng.chance(1, PROPS_EVERY) {
            return self.props(number);
        }
        let known = self.contexts.get(&place).cloned();
        match self.rng.below(20) {
            0..7 => {
                self.updating = Some(place);
                self.get(place, timeout)
            }
            7..10 => self.get(place, timeout),
            draw if draw >= 20 - self.deletes
                && (bucket != ONCE || self.deletes_once)
                && (known.is_some() || self.deletes_unseen) =>
            {
                self.delete(place, known, timeout)
            }
            draw if draw % 2 == 0 => self.put(number, place, known, timeout),
            _ => self.put(number, place, None, timeout),
        }
    }

    /// Mostly what the bucket says.
    fn quorum(&mut self) -> Quorum {
        match self.rng.below(16) {
            _ if self.is_plain => Quorum::Default,
            0 => Quorum::One,
            1 => Quorum::All,
            2 => Quorum::Quorum,
            3 => Quorum::Exactly(2),
            _ => Quorum::Default,
        }
    }

    /// Mostly whatever there is.
    fn sloppy(&mut self) -> Option<bool> {
        self.rng.chance(1, 12).then_some(false).filter(|_| !self.is_plain)
    }

    fn get(&mut self, place: Place, timeout: u32) -> Request {
        let (bucket, key) = names(place);
        Request::Get(GetRequest {
            r: self.quorum(),
            pr: self.quorum(),
            n_val: self.rng.chance(1, 16).then_some(2).filter(|_| !self.is_plain),
            sloppy_quorum: self.sloppy(),
            basic_quorum: self.rng.chance(1, 6).then_some(true).filter(|_| !self.is_plain),
            notfound_ok: self.rng.chance(1, 6).then_some(false).filter(|_| !self.is_plain),
            head: self.rng.chance(1, 4),
            deleted_context: self.rng.chance(1, 2),
            timeout: Some(timeout),
            ..GetRequest::new(bucket, key)
        })
    }

    fn put(&mut self, number: u64, place: Place, context: Option<Bytes>, timeout: u32) -> Request {
        let (bucket, key) = names(place);
        let returned = match self.rng.below(6) {
            0 => Return::Head,
            1 => Return::Body,
            _ => Return::Nothing,
        };
        let put = PutRequest::new(bucket, Some(key), metadata_of(number), value_of(number));
        let (w, dw, pw) = (self.quorum(), self.quorum(), self.quorum());
        let node_confirms =
            if self.rng.chance(1, 8) && !self.is_plain { Quorum::Exactly(2) } else { Quorum::Default };
        let sloppy_quorum = self.sloppy();
        let timeout = Some(timeout);
        let is_conditional = self.rng.chance(1, 12) && !self.is_plain;
        let put = PutRequest {
            if_none_match: is_conditional && context.is_none(),
            if_not_modified: is_conditional && context.is_some(),
            ..put
        };
        Request::put(PutRequest {
            context,
            w,
            dw,
            pw,
            node_confirms,
            sloppy_quorum,
            timeout,
            returned,
            ..put
        })
    }

    fn delete(&mut self, place: Place, known: Option<Bytes>, timeout: u32) -> Request {
        let (bucket, key) = names(place);
        let context = known.filter(|_| self.rng.chance(5, 6) || !self.deletes_unseen);
        let (r, w, dw, pw) = (self.quorum(), self.quorum(), self.quorum(), self.quorum());
        let timeout = Some(timeout);
        Request::Delete(DeleteRequest { context, r, w, dw, pw, timeout, ..DeleteRequest::new(bucket, key) })
    }

    /// Changes or reads a property without effect, to check its durability.
    fn props(&mut self, number: u64) -> Request {
        let bucket = Bucket::untyped(Bytes::from_static(PROPS_BUCKET));
        let number = u32::try_from(number).expect("a world has fewer requests");
        match self.rng.chance(1, 2) {
            true => Request::SetProps(bucket, vec![Prop::YoungVclock(number)]),
            false => Request::GetProps(bucket),
        }
    }

    /// Takes an answer, unless it has given up on the request. True when it is the one waited for.
    pub(super) fn on_answer(&mut self, number: u64, result: &Result<Response, Error>) -> bool {
        let Some((_, place)) = self.waiting.take_if(|(waiting, _)| *waiting == number) else { return false };
        if let Some(context) = show::context(result) {
            self.contexts.insert(place, context);
        }
        if result.is_err() {
            self.updating = None;
        }
        true
    }
}

/// The names of a key.
pub(super) fn names((at, key): Place) -> (Bucket, Bytes) {
    (bucket(at), key_name(key))
}

/// The bucket at `at`.
pub(super) fn bucket(at: usize) -> Bucket {
    let bucket_type = (at == ONCE).then(|| Bytes::from_static(ONCE_TYPE));
    Bucket::typed(bucket_type, Bytes::from_static(BUCKETS[at]))
}
