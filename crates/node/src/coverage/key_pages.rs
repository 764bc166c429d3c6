//! Pages of listings and of folds: what this shard has of the partitions that it is asked for.
//!
//! A page is one scan of the store, which goes from one wanted partition to the next and in each of them only over the
//! bucket, or from bucket to bucket. Other shards' partitions stay in the page's rest, for whoever asks to send on.

use crate::coverage::fold::{Folding, n_val_of, visitor_of};
use crate::coverage::page_reader::PageReader;
use crate::coverage::walk::{Wanted, seek};
use crate::hop::ShardId;
use crate::shard::env::Env;
use crate::shard::owners::ScanOwner;
use crate::shard::store_error::store_error;
use bytes::Bytes;
use engine::fold::{ScanId, ScanPage, ScanRequest, Visit, Visitor};
use kv::fold::Scope;
use kv::list::{PIECE_NAMES_MAX, is_listed};
use kv::{Bucket, BucketProps, BucketTable, Error, Listed, Page, PageAsk};
use object::key;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pages that are read at a time, beyond which other nodes are refused: each is up to a megabyte, and a few fill the
/// disk and the cores.
const PAGES_MAX: usize = 64;

/// A page that is being read here.
struct Reading {
    to: PageReader,
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
pub(crate) struct KeyPages {
    reads: BTreeMap<ScanId, Reading>,
}

impl KeyPages {
    pub fn len(&self) -> usize {
        self.reads.len()
    }

    /// Whether another node's page would be one too many.
    pub fn are_full(&self) -> bool {
        self.reads.len() >= PAGES_MAX
    }

    /// Begins to read a page.
    ///
    /// # Errors
    /// If it cannot be read here.
    pub fn read(&mut self, env: &mut Env, to: PageReader, ask: &PageAsk) -> Result<(), Error> {
        let (own, others) = plan_page(env, ask)?;
        let range = key::objects_at(own[0]);
        let start = ask.start.clone().filter(|start| range.contains(start));
        let last = own[own.len() - 1];
        let (visitor, folding) = visitor(env, &ask.listed, own.clone())?;

        let request = ScanRequest {
            start: start.unwrap_or_else(|| Bytes::from(range.start)),
            end: Bytes::from(key::objects_at(last).end),
            items_max: PIECE_NAMES_MAX,
            visitor,
            past_losses: false,
        };
        let scan = match bucket_type_of(&ask.listed) {
            Some(bucket_type) => env.store.scan_of(bucket_type, request),
            None => env.store.scan(request),
        };

        let scan = scan.map_err(store_error)?;
        let listed = ask.listed.clone();
        env.scan_owners.note(scan, ScanOwner::KeyPage);
        self.reads.insert(scan, Reading { to, listed, folding, own, others });
        Ok(())
    }

    /// Takes the end of a scan: the page, and its reader.
    pub fn on_scan(
        &mut self,
        scan: ScanId,
        page: Result<ScanPage, engine::Error>,
    ) -> (PageReader, Result<Page, Error>) {
        let Some(reading) = self.reads.remove(&scan) else { unreachable!("{scan:?} is of a page") };
        let to = reading.to;
        (to, page.map_err(store_error).and_then(|page| reading.end(page)))
    }

    /// Each page being read has a scan.
    pub fn invariants(&self, env: &Env) {
        assert!(
            self.reads.keys().all(|&scan| env.scan_owners.of(scan) == Some(&ScanOwner::KeyPage)),
            "a page being read has a scan under way"
        );
        let have_partitions = self.reads.values().all(|reading| !reading.own.is_empty());
        assert!(have_partitions, "a page is of partitions of this shard");
    }
}

/// The partitions to scan, the first that was asked and this shard's behind it, and those that are left.
fn plan_page(env: &Env, ask: &PageAsk) -> Result<(Vec<u16>, Vec<u16>), Error> {
    let layout = env.knobs.layout;
    let first = *ask.partitions.first().ok_or(Error::NotCovered)?;
    let is_own =
        |partition: &u16| *partition >= first && ShardId(layout.shard_of(*partition)) == env.knobs.id;
    let (mut own, others): (Vec<u16>, Vec<u16>) = ask.partitions.iter().partition(|it| is_own(it));
    own.sort_unstable();
    own.dedup();

    let n_val = match &ask.listed {
        Listed::Keys(bucket) => env.props.get_as_replica(bucket)?.n_val,
        Listed::Buckets(_) => env.topology.n_val_max(),
        Listed::Fold(fold) => n_val_of(env, fold)?,
    };
    // The sender of the question may go by a ring that was in force when the listing began.
    if own.iter().any(|&partition| env.ownership().has_given_up(partition, n_val)) {
        return Err(Error::NotCovered);
    }
    if own.first() == Some(&first) { Ok((own, others)) } else { Err(Error::NotCovered) }
}

fn visitor(env: &Env, listed: &Listed, own: Vec<u16>) -> Result<(Visitor, Option<Folding>), Error> {
    let now_ms = env.clock.wall().millis();
    Ok(match listed {
        Listed::Keys(bucket) => {
            let props = Arc::clone(env.props.get_as_replica(bucket)?);
            (keys_of(bucket.clone(), props, own, now_ms), None)
        }
        Listed::Buckets(bucket_type) => {
            (buckets_of(bucket_type.clone(), env.props.clone(), own, now_ms), None)
        }
        Listed::Fold(fold) => {
            let (visitor, folding) = visitor_of(env, fold, own);
            (visitor, Some(folding))
        }
    })
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
