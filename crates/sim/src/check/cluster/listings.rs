//! A listing has each name once, none that nobody wrote, and all that every primary is bound to show; whatever keeps it
//! from that is an error, never an end.
//!
//! A key is bound to be shown when the listing begins if each of its primaries has said that it has something of it,
//! since any of them may be asked; unless somebody tries to delete it, ever, or something is lost meanwhile. What a
//! primary has missed it need not list, as in Riak.

use super::{Checks, NodeAt};
use crate::check::history::{KeyName, Kind};
use crate::check::{Verdict, Violation};
use base::Monotonic;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

const CHECKER: &str = "a listing is whole";

/// A listing under way.
#[derive(Debug)]
struct Listing {
    bucket: Bytes,
    began: Monotonic,
    bound: BTreeSet<Bytes>,
    listed: BTreeSet<Bytes>,
}

/// Those of a cluster, by their requests.
#[derive(Debug, Default)]
pub(super) struct Listings {
    under_way: BTreeMap<u64, Listing>,
}

impl Checks {
    /// Request `id` has begun to list a bucket's keys. `primaries` names those of a key.
    pub fn on_list(
        &mut self,
        id: u64,
        bucket: &Bytes,
        now: Monotonic,
        primaries: impl Fn(&KeyName) -> Vec<NodeAt>,
    ) {
        let keys = self.history.keys().filter(|(key, _)| key.bucket() == bucket);
        let has = |key: &KeyName, node: NodeAt| self.promises[node].of(key).is_some();
        let bound = keys.filter(|(key, of_key)| {
            !of_key.has_deletes() && primaries(key).into_iter().all(|node| has(key, node))
        });
        let bound = bound.map(|(key, _)| Bytes::copy_from_slice(key.key())).collect();
        let listing = Listing { bucket: bucket.clone(), began: now, bound, listed: BTreeSet::new() };
        self.listings.under_way.insert(id, listing);
    }

    /// A part of a listing has left its node; `done`: the last one.
    pub fn on_listed(&mut self, id: u64, keys: &[Bytes], done: bool) -> Verdict {
        let broken = |what: String| Err(Violation::new(CHECKER, format!("request {id}: {what}")));
        let Some(listing) = self.listings.under_way.get_mut(&id) else {
            return broken("it has ended".to_owned());
        };
        for key in keys {
            if !listing.listed.insert(key.clone()) {
                return broken(format!("{} is listed twice", key.escape_ascii()));
            }
        }
        if !done {
            return Ok(());
        }
        let listing = self.listings.under_way.remove(&id).expect("just seen");
        let history = |key: &Bytes| {
            let bucket = kv::Bucket::untyped(listing.bucket.clone());
            self.history.key(&KeyName::of(&bucket, key))
        };
        let was_put = |key: &Bytes| {
            history(key).is_some_and(|it| it.writes.iter().any(|write| matches!(write.kind, Kind::Put(_))))
        };
        if let Some(key) = listing.listed.iter().find(|key| !was_put(key)) {
            return broken(format!("{} is listed, but was never written", key.escape_ascii()));
        }
        if self.lost_at.is_some_and(|lost_at| listing.began <= lost_at) {
            return Ok(());
        }
        let is_missing =
            |key: &&Bytes| !listing.listed.contains(*key) && history(key).is_some_and(|it| !it.has_deletes());
        if let Some(key) = listing.bound.iter().find(is_missing) {
            return broken(format!("{} is missing, and all its primaries have it", key.escape_ascii()));
        }
        Ok(())
    }
}

impl Listings {
    /// Forgets those of which no answer is awaited any more.
    pub(super) fn retain(&mut self, is_awaited: impl Fn(u64) -> bool) {
        self.under_way.retain(|id, _| is_awaited(*id));
    }
}
