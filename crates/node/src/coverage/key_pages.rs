//! KeyPages of listings and of folds: what this shard has of the partitions that it is asked for.
//!
//! A page is one scan of the store, which goes from one wanted partition to the next and in each of them only over the
//! bucket, or from bucket to bucket. Other shards' partitions stay in the page's rest, for whoever asks to send on.

use crate::coverage::fold::Folding;
use crate::hop::{Hop, ShardId};
use crate::peer::{AskId, NodeId, PeerMessage};
use crate::shard::Shard;
use crate::shard::knobs::WORK_MAX;
use crate::shard::output::Output;
use crate::shard::store_error::store_error;
use bytes::Bytes;
use engine::fold::{ScanId, ScanPage, ScanRequest, Visit, Visitor};
use kv::fold::Scope;
use kv::list::{PIECE_NAMES_MAX, is_listed};
use kv::{Bucket, BucketProps, BucketTable, Error, Listed, Page, PageAsk};
use object::key;
use std::collections::BTreeMap;
use std::sync::Arc;

/// KeyPages that are read for other nodes at a time: each is up to a megabyte, and a few fill the disk and the cores.
const PAGES_MAX: usize = 64;

/// Whom a page is for.
#[derive(Clone, Copy, Debug)]
enum Reader {
    Shard(ShardId, u64),
    Node(NodeId, AskId),
}

/// A page that is being read here.
struct Reading {
    to: Reader,
    listed: Listed,
    /// What a fold finds.
    folding: Option<Folding>,
    /// Partitions of this shard in the scan, ascending.
    own: Vec<u16>,
    /// Partitions that are not.
    others: Vec<u16>,
}

/// All pages being read.
#[derive(Default)]
pub(crate) struct KeyPages(BTreeMap<ScanId, Reading>);

impl KeyPages {
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl Shard {
    /// Reads a page for a listing of this shard's.
    pub(crate) fn read_page_here(&mut self, question: u64, ask: &PageAsk) {
        self.read_page(Reader::Shard(self.env.knobs.id, question), ask);
    }

    /// Reads a page for another shard's.
    pub(crate) fn on_shard_asks_page(&mut self, from: ShardId, question: u64, ask: &PageAsk) {
        self.read_page(Reader::Shard(from, question), ask);
    }

    /// Reads a page for another node's.
    pub(crate) fn on_peer_asks_page(&mut self, from: NodeId, id: AskId, ask: &PageAsk) {
        let to = Reader::Node(from, id);
        if self.listings.pages.len() >= PAGES_MAX || self.env.gauges.requests() >= 2 * WORK_MAX {
            self.env.counters.refused += 1;
            return self.send_page(to, Err(Error::Overload));
        }
        self.read_page(to, ask);
    }

    fn read_page(&mut self, to: Reader, ask: &PageAsk) {
        match self.plan_page(ask).and_then(|(own, others)| self.scan_page(to, ask, own, others)) {
            Ok(()) => {}
            Err(error) => self.send_page(to, Err(error)),
        }
    }

    /// The partitions to scan, the first that was asked and this shard's behind it, and those that are left.
    fn plan_page(&self, ask: &PageAsk) -> Result<(Vec<u16>, Vec<u16>), Error> {
        let layout = self.env.knobs.layout;
        let first = *ask.partitions.first().ok_or(Error::NotCovered)?;
        let is_own = |partition: &u16| {
            *partition >= first && ShardId(layout.shard_of(*partition)) == self.env.knobs.id
        };
        let (mut own, others): (Vec<u16>, Vec<u16>) = ask.partitions.iter().partition(|it| is_own(it));
        own.sort_unstable();
        own.dedup();
        let n_val = match &ask.listed {
            Listed::Keys(bucket) => self.env.props.get_as_replica(bucket)?.n_val,
            Listed::Buckets(_) => self.env.topology.n_val_max(),
            Listed::Fold(fold) => self.n_val_of(fold)?,
        };
        // Whoever asks may go by a ring that was in force when the listing began.
        if own.iter().any(|&partition| self.env.ownership().has_given_up(partition, n_val)) {
            return Err(Error::NotCovered);
        }
        if own.first() == Some(&first) { Ok((own, others)) } else { Err(Error::NotCovered) }
    }

    fn scan_page(&mut self, to: Reader, ask: &PageAsk, own: Vec<u16>, others: Vec<u16>) -> Result<(), Error> {
        let range = key::objects_at(own[0]);
        let start = ask.start.clone().filter(|start| range.contains(start));
        let last = own[own.len() - 1];
        let (visitor, folding) = self.visitor(&ask.listed, own.clone())?;
        let request = ScanRequest {
            start: start.unwrap_or_else(|| Bytes::from(range.start)),
            end: Bytes::from(key::objects_at(last).end),
            items_max: PIECE_NAMES_MAX,
            visitor,
            past_losses: false,
        };
        let scan = match bucket_type_of(&ask.listed) {
            Some(bucket_type) => self.env.store.scan_of(bucket_type, request),
            None => self.env.store.scan(request),
        };
        let scan = scan.map_err(store_error)?;
        let listed = ask.listed.clone();
        self.listings.pages.0.insert(scan, Reading { to, listed, folding, own, others });
        self.publish_coverage();
        Ok(())
    }

    fn visitor(&self, listed: &Listed, own: Vec<u16>) -> Result<(Visitor, Option<Folding>), Error> {
        let now_ms = self.env.clock.wall().millis();
        Ok(match listed {
            Listed::Keys(bucket) => {
                let props = Arc::clone(self.env.props.get_as_replica(bucket)?);
                (keys_of(bucket.clone(), props, own, now_ms), None)
            }
            Listed::Buckets(bucket_type) => {
                (buckets_of(bucket_type.clone(), self.env.props.clone(), own, now_ms), None)
            }
            Listed::Fold(fold) => {
                let (visitor, folding) = self.visitor_of_fold(fold, own);
                (visitor, Some(folding))
            }
        })
    }

    pub(crate) fn on_scan(&mut self, scan: ScanId, page: Result<ScanPage, engine::Error>) {
        // One that nobody waits for was about what moved: that has changed since.
        let Some(reading) = self.listings.pages.0.remove(&scan) else { return };
        self.publish_coverage();
        let to = reading.to;
        self.send_page(to, page.map_err(store_error).and_then(|page| reading.end(page)));
    }

    fn send_page(&mut self, to: Reader, page: Result<Page, Error>) {
        match to {
            Reader::Shard(shard, question) if shard == self.env.knobs.id => self.on_page(question, page),
            Reader::Shard(shard, question) => {
                self.env.out.push(Output::Hop { to: shard, message: Hop::Page { question, page } });
            }
            Reader::Node(node, id) => self.env.send(node, PeerMessage::Page { id, page }),
        }
    }
}

impl Reading {
    fn end(self, mut page: ScanPage) -> Result<Page, Error> {
        let mut sum = None;
        if let Some(folding) = &self.folding {
            let (found, next) = folding.end()?;
            (sum, page.next) = (Some(found), next);
        }
        let names: Result<Vec<Bytes>, Error> =
            page.items.into_iter().map(|(key, _)| name_of(&self.listed, key)).collect();
        let mut rest = self.own;
        match &page.next {
            Some(next) => rest.retain(|&partition| partition >= key::prefix_of(next)),
            None => rest.clear(),
        }
        // The scan may have stopped between two partitions that are wanted.
        let next = page.next.filter(|next| rest.first() == Some(&key::prefix_of(next)));
        rest.extend(self.others);
        Ok(Page { names: names?, sum, rest, next })
    }
}

/// The type of all that is listed; `None` if it may be of several.
fn bucket_type_of(listed: &Listed) -> Option<&Bytes> {
    match listed {
        Listed::Keys(bucket) => Some(&bucket.bucket_type),
        Listed::Buckets(bucket_type) => Some(bucket_type),
        Listed::Fold(fold) => match &fold.scope {
            Scope::Bucket(bucket) => Some(&bucket.bucket_type),
            Scope::NVal(_) => None,
        },
    }
}

fn name_of(listed: &Listed, key: Bytes) -> Result<Bytes, Error> {
    let parts = key::decode_object_key(&key).map_err(|error| Error::Damaged(error.to_string()))?;
    Ok(match listed {
        Listed::Keys(_) => key.slice_ref(parts.key),
        Listed::Buckets(_) | Listed::Fold(_) => Bytes::from(parts.bucket.into_owned()),
    })
}

/// The partitions that a scan has still to visit.
pub(crate) struct Wanted {
    partitions: Vec<u16>,
    at: usize,
}

impl Wanted {
    /// These, ascending.
    pub(crate) fn new(partitions: Vec<u16>) -> Wanted {
        Wanted { partitions, at: 0 }
    }

    /// Goes to the first wanted partition from this one on; `None` behind the last.
    pub(crate) fn reach(&mut self, partition: u16) -> Option<u16> {
        while self.partitions.get(self.at).is_some_and(|&wanted| wanted < partition) {
            self.at += 1;
        }
        self.partitions.get(self.at).copied()
    }
}

pub(crate) fn seek(to: Option<Vec<u8>>) -> Visit {
    Visit::Seek(to.unwrap_or_else(|| key::objects().end))
}

/// Takes the keys of a bucket. All of them begin alike in a partition, so no key is taken apart.
fn keys_of(bucket: Bucket, props: Arc<BucketProps>, partitions: Vec<u16>, now_ms: u64) -> Visitor {
    let beginning =
        move |prefix: u16| key::objects_of_bucket(prefix, &bucket.bucket_type, &bucket.name).start;
    let mut wanted = Wanted::new(partitions);
    let mut here: Option<(u16, Vec<u8>)> = None;
    Box::new(move |key, head| {
        let prefix = key::prefix_of(key);
        if here.as_ref().is_none_or(|(at, _)| *at < prefix) {
            here = wanted.reach(prefix).map(|partition| (partition, beginning(partition)));
        }
        let Some((_, start)) = &here else { return seek(None) };
        if key.starts_with(start) {
            let is_listed = listed_head(head, &props, now_ms) || base::planted!(DeletedListed);
            return if is_listed { Visit::Take } else { Visit::Skip };
        }
        if key < &start[..] {
            return Visit::Seek(start.clone());
        }
        here = prefix.checked_add(1).and_then(|next| wanted.reach(next)).map(|next| (next, beginning(next)));
        seek(here.as_ref().map(|(_, start)| start.clone()))
    })
}

/// Takes one key of each bucket of a type. An entry that cannot be read is taken, so that whoever names it reports the
/// damage.
fn buckets_of(bucket_type: Bytes, table: BucketTable, partitions: Vec<u16>, now_ms: u64) -> Visitor {
    let mut wanted = Wanted::new(partitions);
    Box::new(move |key, head| {
        let Ok(parts) = key::decode_object_key(key) else { return Visit::Take };
        let of_type = |prefix: u16| key::objects_of_type(prefix, &bucket_type).start;
        if wanted.reach(parts.prefix) != Some(parts.prefix) {
            return seek(wanted.reach(parts.prefix).map(of_type));
        }
        match parts.bucket_type[..].cmp(&bucket_type[..]) {
            std::cmp::Ordering::Less => Visit::Seek(of_type(parts.prefix)),
            std::cmp::Ordering::Equal => {
                let name = Bytes::copy_from_slice(&parts.bucket);
                let bucket = Bucket { bucket_type: bucket_type.clone(), name };
                if table.get_as_replica(&bucket).is_ok_and(|props| listed_head(head, props, now_ms)) {
                    Visit::TakeAndSeek(key::objects_of_bucket(parts.prefix, &bucket_type, &parts.bucket).end)
                } else {
                    Visit::Skip
                }
            }
            std::cmp::Ordering::Greater => {
                seek(parts.prefix.checked_add(1).and_then(|next| wanted.reach(next)).map(of_type))
            }
        }
    })
}

// A head that cannot be read is listed: its key is there, and reading it says what is wrong.
fn listed_head(head: &[u8], props: &BucketProps, now_ms: u64) -> bool {
    is_listed(head, props, now_ms).unwrap_or(true)
}
