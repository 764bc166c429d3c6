//! Listings: whoever the client is connected to gathers pages from every shard.
//!
//! On a cluster a node lists what it has itself, and so only if it is a primary of every partition; any other answers
//! an error rather than a part. What a node has missed while it was away it lists once its hints are home.
//!
//! A page is one scan of the store, which skips from bucket to bucket and from prefix to prefix. The next page
//! of a shard is asked for when the client has taken what came before, so a slow client holds at most one page
//! of each shard.

use super::{Origin, Output, Shard, store_error};
use crate::hop::{Hop, Listed, RequestId, ShardId};
use base::Monotonic;
use bytes::Bytes;
use engine::fold::{ScanId, ScanPage, ScanRequest, Visit, Visitor};
use kv::list::{Gather, PIECE_NAMES_MAX, is_listed};
use kv::{Bucket, BucketTable, Error, ListBucketsRequest, ListKeysRequest, Response};
use object::key::{self, ObjectKey};
use std::collections::BTreeMap;

/// A listing that is being gathered here.
struct Listing {
    listed: Listed,
    gather: Gather,
    deadline: Monotonic,
    /// Shards whose next page may be asked for, and where it begins.
    ready: Vec<(ShardId, Option<Bytes>)>,
}

/// A page that is being read here, for whoever gathers it.
struct Page {
    to: ShardId,
    id: RequestId,
    listed: Listed,
}

/// All listings, and all pages being read.
#[derive(Default)]
pub(super) struct Listings {
    gathering: BTreeMap<RequestId, Listing>,
    reading: BTreeMap<ScanId, Page>,
}

impl Listings {
    pub(super) fn len(&self) -> usize {
        self.gathering.len() + self.reading.len()
    }

    pub(super) fn forget(&mut self, id: RequestId) {
        self.gathering.remove(&id);
    }
}

impl Shard {
    pub(super) fn list_keys(&mut self, origin: Origin, list: ListKeysRequest, deadline: Monotonic) {
        let checked = self.config.limits.check_bucket(&list.bucket);
        let checked = checked.and_then(|()| Ok(self.table.get(&list.bucket)?.n_val));
        if let Err(error) = checked.and_then(|n_val| self.check_coverage(n_val)) {
            return self.reply(origin, Err(error));
        }
        let gather = Gather::keys(self.config.layout.shards.into());
        self.start_listing(origin, Listed::Keys(list.bucket), gather, deadline);
    }

    pub(super) fn list_buckets(&mut self, origin: Origin, list: ListBucketsRequest, deadline: Monotonic) {
        let checked = self.table.least_n_val(&list.bucket_type);
        if let Err(error) = checked.and_then(|n_val| self.check_coverage(n_val)) {
            return self.reply(origin, Err(error));
        }
        let gather = Gather::buckets(self.config.layout.shards.into(), list.stream);
        self.start_listing(origin, Listed::Buckets(list.bucket_type), gather, deadline);
    }

    /// Whether this node is a primary of every partition for buckets of this n.
    fn check_coverage(&self, n_val: u32) -> Result<(), Error> {
        let (ring, here) = (&self.config.ring, self.config.members.here());
        let n_val = usize::try_from(n_val).unwrap_or(usize::MAX);
        let is_held = |partition| ring.preflist(partition, n_val).any(|entry| entry.node == here);
        if ring.size().all().all(is_held) { Ok(()) } else { Err(Error::NotCovered) }
    }

    fn start_listing(&mut self, origin: Origin, listed: Listed, gather: Gather, deadline: Monotonic) {
        let Origin::Here(id) = origin else { unreachable!("a listing is gathered where its client is") };
        let ready = (0..self.config.layout.shards).map(|shard| (ShardId(shard), None)).collect();
        self.listings.gathering.insert(id, Listing { listed, gather, deadline, ready });
        self.ask_pages(id);
    }

    /// Asks every shard that is ready for its next page.
    pub(super) fn ask_pages(&mut self, id: RequestId) {
        let Some(listing) = self.listings.gathering.get_mut(&id) else { return };
        let from = self.config.id;
        let listed = listing.listed.clone();
        for (to, cursor) in std::mem::take(&mut listing.ready) {
            if to == from {
                self.read_page(from, id, &listed, cursor);
            } else {
                let message = Hop::AskPage { from, id, listed: listed.clone(), cursor };
                self.outputs.push(Output::Hop { to, message });
            }
        }
    }

    /// Starts reading a page for `to`.
    pub(super) fn read_page(&mut self, to: ShardId, id: RequestId, listed: &Listed, cursor: Option<Bytes>) {
        let range = key::objects();
        let request = ScanRequest {
            start: cursor.unwrap_or_else(|| Bytes::from(range.start)),
            end: Bytes::from(range.end),
            items_max: PIECE_NAMES_MAX,
            visitor: visitor(listed, &self.table),
        };
        match self.store.scan(request) {
            Ok(scan) => {
                self.listings.reading.insert(scan, Page { to, id, listed: listed.clone() });
            }
            Err(error) => self.send_page(to, id, Err(store_error(error))),
        }
    }

    pub(super) fn on_scan(&mut self, scan: ScanId, page: Result<ScanPage, engine::Error>) {
        let Page { to, id, listed } = self.listings.reading.remove(&scan).expect("a scan is answered once");
        let page = page.map_err(store_error).and_then(|page| {
            let names: Result<_, Error> = page.items.iter().map(|(key, _)| name_of(&listed, key)).collect();
            Ok((names?, page.next))
        });
        self.send_page(to, id, page);
    }

    fn send_page(&mut self, to: ShardId, id: RequestId, page: Result<(Vec<Bytes>, Option<Bytes>), Error>) {
        let from = self.config.id;
        if to == from {
            self.on_page(from, id, page);
        } else {
            self.outputs.push(Output::Hop { to, message: Hop::Page { from, id, page } });
        }
    }

    pub(super) fn on_page(
        &mut self,
        from: ShardId,
        id: RequestId,
        page: Result<(Vec<Bytes>, Option<Bytes>), Error>,
    ) {
        // It may have been answered by its deadline, or its client may be gone.
        let Some(listing) = self.listings.gathering.get_mut(&id) else { return };
        match page.and_then(|page| listing.take(from, page)) {
            Err(error) => {
                self.listings.gathering.remove(&id);
                self.reply(Origin::Here(id), Err(error));
            }
            Ok(answers) => self.answer_listing(id, answers),
        }
    }

    fn answer_listing(&mut self, id: RequestId, answers: Vec<Response>) {
        if answers.is_empty() {
            return self.ask_pages(id);
        }
        for answer in answers {
            let more =
                !matches!(answer, Response::Keys { done: true, .. } | Response::Buckets { done: true, .. });
            if !more {
                self.listings.gathering.remove(&id);
            }
            self.outputs.push(Output::Reply { to: id, result: Ok(answer), more });
        }
    }

    pub(super) fn expire_listings(&mut self, now: Monotonic) {
        let due = self.listings.gathering.iter().filter(|(_, listing)| listing.deadline <= now);
        let expired: Vec<RequestId> = due.map(|(&id, _)| id).collect();
        for id in expired {
            self.listings.gathering.remove(&id);
            self.reply(Origin::Here(id), Err(Error::Timeout));
        }
    }
}

impl Listing {
    /// Takes a shard's page, and tells what is to be answered now.
    fn take(&mut self, from: ShardId, page: (Vec<Bytes>, Option<Bytes>)) -> Result<Vec<Response>, Error> {
        let (names, next) = page;
        let mut answers = Vec::new();
        if !names.is_empty() {
            answers.extend(self.gather.on_piece(names)?);
        }
        match next {
            Some(next) => self.ready.push((from, Some(next))),
            None => answers.extend(self.gather.on_end()),
        }
        Ok(answers)
    }
}

fn name_of(listed: &Listed, key: &[u8]) -> Result<Bytes, Error> {
    let parts = key::decode_object_key(key).map_err(|error| Error::Damaged(error.to_string()))?;
    Ok(match listed {
        Listed::Keys(_) => Bytes::copy_from_slice(parts.key),
        Listed::Buckets(_) => Bytes::from(parts.bucket.into_owned()),
    })
}

/// Decides what is listed, and skips what cannot be. An entry that cannot be read is taken, so that whoever
/// names it reports the damage.
fn visitor(listed: &Listed, table: &BucketTable) -> Visitor {
    let (listed, table) = (listed.clone(), table.clone());
    Box::new(move |key, head| match key::decode_object_key(key) {
        Err(_) => Visit::Take,
        Ok(parts) => match &listed {
            Listed::Keys(bucket) => visit_key(bucket, &table, &parts, head),
            Listed::Buckets(bucket_type) => visit_bucket(bucket_type, &table, &parts, head),
        },
    })
}

fn visit_key(bucket: &Bucket, table: &BucketTable, parts: &ObjectKey<'_>, head: &[u8]) -> Visit {
    let here = (&parts.bucket_type[..], &parts.bucket[..]);
    let wanted = (&bucket.bucket_type[..], &bucket.name[..]);
    match here.cmp(&wanted) {
        std::cmp::Ordering::Equal if listed_head(head, bucket, table) => Visit::Take,
        std::cmp::Ordering::Equal => Visit::Skip,
        std::cmp::Ordering::Less => {
            Visit::Seek(key::objects_of_bucket(parts.prefix, wanted.0, wanted.1).start)
        }
        std::cmp::Ordering::Greater => match parts.prefix.checked_add(1) {
            Some(next) => Visit::Seek(key::objects_of_bucket(next, wanted.0, wanted.1).start),
            None => Visit::Seek(key::objects().end),
        },
    }
}

fn visit_bucket(bucket_type: &Bytes, table: &BucketTable, parts: &ObjectKey<'_>, head: &[u8]) -> Visit {
    match parts.bucket_type[..].cmp(&bucket_type[..]) {
        std::cmp::Ordering::Equal => {
            let bucket =
                Bucket { bucket_type: bucket_type.clone(), name: Bytes::copy_from_slice(&parts.bucket) };
            if listed_head(head, &bucket, table) {
                Visit::TakeAndSeek(key::objects_of_bucket(parts.prefix, bucket_type, &parts.bucket).end)
            } else {
                Visit::Skip
            }
        }
        std::cmp::Ordering::Less => Visit::Seek(key::objects_of_type(parts.prefix, bucket_type).start),
        std::cmp::Ordering::Greater => match parts.prefix.checked_add(1) {
            Some(next) => Visit::Seek(key::objects_of_type(next, bucket_type).start),
            None => Visit::Seek(key::objects().end),
        },
    }
}

// A head that cannot be read is listed: its key is there, and reading it says what is wrong.
fn listed_head(head: &[u8], bucket: &Bucket, table: &BucketTable) -> bool {
    table.get_as_replica(bucket).is_ok_and(|props| is_listed(head, props).unwrap_or(true))
}
