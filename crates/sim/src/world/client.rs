//! A client: one request at a time, to any shard, on a handful of keys, with the contexts that it was given.

use super::{BUCKETS, key_name};
use crate::check::history::{NEWEST_BUCKET, NUMBERS_FROM, PROPS_BUCKET, SIBLINGS_BUCKET};
use crate::check::siblings::{metadata_of, value_of};
use crate::show;
use base::Rng;
use base::rng::SplitMix64;
use bytes::Bytes;
use kv::request::Return;
use kv::{Bucket, DeleteRequest, Error, GetRequest, ListKeysRequest, Prop, PutRequest, Request, Response};
use std::collections::BTreeMap;

/// Milliseconds after which a node is to give up, far longer than anything the world does to it.
pub(super) const TIMEOUT_MS: u32 = 5000;

type Place = (usize, u64);

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) rng: SplitMix64,
    /// What it was told last of each key, which may be long ago.
    contexts: BTreeMap<Place, Bytes>,
    /// What it reads to write it afterwards.
    updating: Option<Place>,
    /// The request that it waits for, and its key.
    pub(super) waiting: Option<(u64, Option<Place>)>,
}

impl Client {
    pub(super) fn new(rng: SplitMix64) -> Client {
        Client { rng, contexts: BTreeMap::new(), updating: None, waiting: None }
    }

    /// The next request, as number `number` of the world.
    pub(super) fn next(&mut self, number: u64, keys: u64) -> Request {
        if let Some(place) = self.updating.take() {
            self.waiting = Some((number, Some(place)));
            let context = self.contexts.get(&place).cloned();
            return self.put(number, place, context);
        }
        let place = (usize::try_from(self.rng.below(2)).expect("a small number"), self.rng.below(keys));
        self.waiting = Some((number, Some(place)));
        match self.rng.below(20) {
            0..5 => {
                self.updating = Some(place);
                self.get(place)
            }
            5..10 => self.get(place),
            10..12 => {
                let context = self.contexts.get(&place).cloned();
                self.put(number, place, context)
            }
            12..16 => self.put(number, place, None),
            16 => {
                let context = self.contexts.get(&place).cloned().filter(|_| self.rng.chance(3, 4));
                let (bucket, key) = names(place);
                let timeout = Some(TIMEOUT_MS);
                Request::Delete(DeleteRequest { context, timeout, ..DeleteRequest::new(bucket, key) })
            }
            17 => {
                self.waiting = Some((number, None));
                list(BUCKETS[place.0])
            }
            18 => {
                self.waiting = Some((number, None));
                set_props(number)
            }
            _ => {
                self.waiting = Some((number, None));
                Request::GetProps(bucket(PROPS_BUCKET))
            }
        }
    }

    fn get(&mut self, place: Place) -> Request {
        let (bucket, key) = names(place);
        Request::Get(GetRequest {
            head: self.rng.chance(1, 4),
            deleted_context: self.rng.chance(1, 2),
            timeout: Some(TIMEOUT_MS),
            ..GetRequest::new(bucket, key)
        })
    }

    fn put(&mut self, number: u64, place: Place, context: Option<Bytes>) -> Request {
        let (bucket, key) = names(place);
        let returned = match self.rng.below(6) {
            0 => Return::Head,
            1 => Return::Body,
            _ => Return::Nothing,
        };
        let put = PutRequest::new(bucket, Some(key), metadata_of(number), value_of(number));
        Request::put(PutRequest { context, returned, timeout: Some(TIMEOUT_MS), ..put })
    }

    /// Takes an answer, unless it has given up on the request. True when it is the one waited for.
    pub(super) fn on_answer(&mut self, number: u64, result: &Result<Response, Error>, more: bool) -> bool {
        let Some((_, place)) = self.waiting.filter(|(waiting, _)| *waiting == number) else { return false };
        let context = show::context(result);
        if let (Some(place), Some(context)) = (place, context) {
            self.contexts.insert(place, context);
        }
        if more {
            return false;
        }
        if result.is_err() {
            self.updating = None;
        }
        self.waiting = None;
        true
    }

    /// Gives up on the request that it waits for.
    pub(super) fn give_up(&mut self) {
        self.waiting = None;
        self.updating = None;
    }
}

fn names((at, key): Place) -> (Bucket, Bytes) {
    (bucket(BUCKETS[at]), key_name(key))
}

fn bucket(name: &'static [u8]) -> Bucket {
    Bucket::untyped(Bytes::from_static(name))
}

/// Reads a key of the bucket at `at`.
pub(super) fn get(at: usize, key: u64) -> Request {
    let (bucket, key) = names((at, key));
    Request::Get(GetRequest { timeout: Some(TIMEOUT_MS), ..GetRequest::new(bucket, key) })
}

/// Lists a bucket.
pub(super) fn list(name: &'static [u8]) -> Request {
    Request::ListKeys(ListKeysRequest { bucket: bucket(name), timeout: Some(TIMEOUT_MS) })
}

/// Reads the properties that change.
pub(super) fn get_props() -> Request {
    Request::GetProps(bucket(PROPS_BUCKET))
}

/// Makes the bucket with siblings what it is.
pub(super) fn allow_siblings() -> Request {
    Request::SetProps(bucket(SIBLINGS_BUCKET), vec![Prop::AllowMult(true)])
}

/// Changes properties that do nothing, to see whether they stay.
fn set_props(number: u64) -> Request {
    debug_assert!(number >= NUMBERS_FROM && BUCKETS.contains(&NEWEST_BUCKET));
    let number = u32::try_from(number).expect("a world has fewer requests");
    Request::SetProps(bucket(PROPS_BUCKET), vec![Prop::YoungVclock(number)])
}
