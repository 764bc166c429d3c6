//! Pages of rows: what this shard finds for an index query ([`kv::index`]), of the prefixes that it is asked for.
//!
//! * The entries of a field lie in the order of their terms, and each ends with its object's prefix: one scan between
//!   two terms, of which an entry is taken if its prefix is wanted and its term matches.
//! * Keys in the order in which they lie: one scan, from one wanted prefix to the next, and in each over the bucket.
//! * Keys in order: a look into each wanted prefix, which ends as soon as its next key is behind those that are known
//!   to come first. So a page costs a seek for each prefix, but holds no more than a page.
//!
//! A page ends when it is full or when [`VISITED_MAX`] entries were looked at, with or without a row: it says up to
//! where it is complete.

use crate::coverage::page_reader::PageReader;
use crate::coverage::walk::{Stretch, Walk};
use crate::layout::Layout;
use crate::shard::env::Env;
use crate::shard::owners::ScanOwner;
use crate::shard::store_error::store_error;
use crate::topology::Epoch;
use base::spawn::Outcome;
use bytes::Bytes;
use engine::fold::{ScanId, ScanPage, ScanRequest, Visit, Visitor};
use kv::index::{
    KeyOrder, PAGE_ROWS_MAX, Pick, Picker, PrefixSet, Query, Row, RowList, RowRef, RowsAsk, RowsPage, Span,
};
use kv::list::is_listed;
use kv::{Bucket, BucketProps, Error};
use object::key;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pages that are read at a time, beyond which other nodes are refused: as for listings.
const READS_MAX: usize = 64;

/// Entries that are looked at for one page: a fraction of a second of work, well below an asker's patience, so that a
/// regex that nothing matches makes pages without rows and not one that never comes.
const VISITED_MAX: usize = 500_000;

/// A page that is being read here.
struct Read {
    to: PageReader,
    found: Found,
    others: Vec<PrefixSet>,
}

/// How a page's rows are found in what a scan brings.
enum Found {
    /// Each item is an entry that begins with these names; the cell has the place where the scan was ended early.
    Entries(Outcome<Row>, Bytes),
    /// Each item is an object; the cell as for entries.
    Keys(Outcome<Row>),
    /// The cell has the first keys, so many at most; there are no items.
    First(Outcome<BTreeSet<Bytes>>, usize),
}

/// The prefixes of this shard that this node is to tell of.
struct Kept {
    epoch: Epoch,
    n_val: u32,
    prefixes: PrefixSet,
}

/// All pages being read.
#[derive(Default)]
pub(crate) struct IndexPages {
    reads: BTreeMap<ScanId, Read>,
    kept: Option<Kept>,
    /// The prefixes of each shard of this node, once they were asked for: to place them one by one would take longer
    /// than a page on a large ring.
    of_shards: Vec<PrefixSet>,
}

impl IndexPages {
    pub fn len(&self) -> usize {
        self.reads.len()
    }

    /// Whether another node's page would be one too many.
    pub fn are_full(&self) -> bool {
        self.reads.len() >= READS_MAX
    }

    /// Begins to read a page.
    ///
    /// # Errors
    /// If it cannot be read here.
    pub fn read(&mut self, env: &mut Env, to: PageReader, ask: &RowsAsk) -> Result<(), Error> {
        let props = Arc::clone(env.props.get_as_replica(&ask.query.bucket)?);
        let (own, others) = self.split(env, &ask.prefixes);
        // Whoever asks may go by a ring that was in force when the query began.
        let is_kept =
            own.difference(self.kept(env, props.n_val)).is_empty() || base::planted!(GivenUpSearched);
        if own.is_empty() || !is_kept {
            return Err(Error::NotCovered);
        }
        if matches!(ask.query.span, Span::Terms { .. }) {
            check_entries(env, &ask.query.bucket, &own)?;
        }
        let (request, found) = scan_for(ask, own, props, env.clock.wall().millis())?;
        let bucket_type = &ask.query.bucket.bucket_type;
        // To look at an entry is quick where no term need be matched.
        let scan = match (&ask.query.span, &ask.query.pick) {
            (Span::Terms { .. }, Pick::All) => env.store.scan_ahead_of(bucket_type, request),
            _ => env.store.scan_of(bucket_type, request),
        };
        let scan = scan.map_err(store_error)?;
        env.scan_owners.note(scan, ScanOwner::IndexPage);
        self.reads.insert(scan, Read { to, found, others });
        Ok(())
    }

    /// The prefixes of this shard, and those of each other one.
    fn split(&mut self, env: &Env, prefixes: &PrefixSet) -> (PrefixSet, Vec<PrefixSet>) {
        let (layout, here) = (env.knobs.layout, usize::from(env.knobs.id.0));
        let of_shards = &mut self.of_shards;
        if of_shards.is_empty() {
            of_shards.resize(usize::from(layout.shards), PrefixSet::default());
            for prefix in all_prefixes(layout) {
                of_shards[usize::from(layout.shard_of(prefix))].insert(prefix);
            }
        }
        let mut parts: Vec<PrefixSet> = of_shards.iter().map(|of| prefixes.intersection(of)).collect();
        let own = parts.swap_remove(here);
        parts.retain(|part| !part.is_empty());
        (own, parts)
    }

    /// The prefixes of this shard that this node keeps, of buckets with so many replicas.
    fn kept(&mut self, env: &Env, n_val: u32) -> &PrefixSet {
        let epoch = env.topology.epoch;
        let is_known = |kept: &Kept| kept.epoch == epoch && kept.n_val == n_val;
        if !self.kept.as_ref().is_some_and(is_known) {
            let layout = env.knobs.layout;
            let own = all_prefixes(layout).filter(|&prefix| layout.shard_of(prefix) == env.knobs.id.0);
            let prefixes = own.filter(|&prefix| !env.ownership().has_given_up(prefix, n_val)).collect();
            self.kept = Some(Kept { epoch, n_val, prefixes });
        }
        &self.kept.as_ref().expect("just made").prefixes
    }

    /// Takes the end of a scan: the page, and its reader.
    pub fn on_scan(
        &mut self,
        scan: ScanId,
        page: Result<ScanPage, engine::Error>,
    ) -> (PageReader, Result<RowsPage, Error>) {
        let Some(read) = self.reads.remove(&scan) else { unreachable!("{scan:?} is of a page") };
        let to = read.to;
        (to, page.map_err(store_error).and_then(|page| read.end(page)))
    }

    /// Each page being read has a scan.
    pub fn invariants(&self, env: &Env) {
        assert!(
            self.reads.keys().all(|&scan| env.scan_owners.of(scan) == Some(&ScanOwner::IndexPage)),
            "a page being read has a scan under way"
        );
        let shards = usize::from(env.knobs.layout.shards);
        assert!(self.of_shards.is_empty() || self.of_shards.len() == shards, "each shard has its prefixes");
    }
}

/// Fails unless the entries of all of a bucket's objects with these prefixes are there: an older program has kept none,
/// and the store makes them; an object that was lost has none.
fn check_entries(env: &Env, bucket: &Bucket, own: &PrefixSet) -> Result<(), Error> {
    if let Some(backend) = env.store.without_indexes(&bucket.bucket_type) {
        return Err(Error::Unsupported(format!(
            "{{indexes_not_supported,{backend}}}: a node of this cluster has a backend without secondary indexes"
        )));
    }
    if !env.store.is_indexed(&bucket.bucket_type) {
        return Err(Error::NotCovered);
    }
    let check = |range: key::KeyRange| env.store.check_range(&range.start, &range.end);
    if check(key::objects()).is_ok() {
        return Ok(());
    }
    own.iter().try_for_each(|prefix| check(key::objects_at(prefix)).map_err(store_error))
}

impl Read {
    fn end(self, page: ScanPage) -> Result<RowsPage, Error> {
        let is_full = page.next.is_some();
        let mut rows = RowList::with_capacity(page.items.len(), page.items.len() * ROW_BYTES);
        let ended = match self.found {
            Found::Entries(ended, names) => {
                for (entry, _) in page.items.iter() {
                    let put = |out: &mut Vec<u8>| key::put_term_and_key(&names, entry, out);
                    rows.push_with(put).map_err(|error| damaged(&error))?;
                }
                ended.take()
            }
            Found::Keys(ended) => {
                for (object, _) in page.items.iter() {
                    let parts = key::decode_object_key(object).map_err(|error| damaged(&error))?;
                    rows.push(RowRef { term: &KeyOrder::term_of_place(parts.prefix), key: parts.key });
                }
                ended.take()
            }
            Found::First(first, rows_max) => {
                let first = first.take().unwrap_or_default();
                first.iter().for_each(|key| rows.push(RowRef { term: b"", key }));
                let next = rows.last().filter(|_| rows.len() >= rows_max).map(RowRef::to_row);
                return Ok(RowsPage { rows, next, others: self.others });
            }
        };
        let next = if is_full { rows.last().map(RowRef::to_row) } else { ended };
        Ok(RowsPage { rows, next, others: self.others })
    }
}

/// What a row is thought to take, for the first buffer of a page.
const ROW_BYTES: usize = 32;

fn all_prefixes(layout: Layout) -> impl Iterator<Item = u16> {
    let all = layout.prefixes.all();
    all.map(|prefix| u16::try_from(prefix.0).expect("a prefix has at most 16 bits"))
}

fn damaged(error: &object::Error) -> Error {
    Error::Damaged(error.to_string())
}

/// The scan that finds a page of rows of these prefixes, and how its rows are found in what it brings.
fn scan_for(
    ask: &RowsAsk,
    own: PrefixSet,
    props: Arc<BucketProps>,
    now_ms: u64,
) -> Result<(ScanRequest, Found), Error> {
    let picker = Picker::new(&ask.query.pick)?;
    let rows_max = usize::try_from(ask.rows_max).unwrap_or(usize::MAX).clamp(1, PAGE_ROWS_MAX);
    let (range, visitor, found) = match &ask.query.span {
        Span::Terms { .. } => {
            let range = entries_of(&ask.query, ask.after.as_ref());
            let ended = Outcome::new();
            let names = Bytes::from(names_of(&ask.query));
            let visitor = take_entries(own, picker, names.clone(), range.end.clone(), ended.clone());
            (range, visitor, Found::Entries(ended, names))
        }
        Span::Keys { first, last, order } => {
            let bucket = ask.query.bucket.clone();
            let of = Stretch { bucket, first: first.clone(), last: last.clone(), own };
            let keys = Keys { of, picker, props, now_ms };
            match order {
                KeyOrder::Place => {
                    let range = keys.range(ask.after.as_ref());
                    let ended = Outcome::new();
                    (range, keys.take_as_they_lie(ended.clone()), Found::Keys(ended))
                }
                KeyOrder::Name => {
                    let after = ask.after.as_ref().map(|row| row.key.clone());
                    let keys = Keys { of: keys.of.behind(after), ..keys };
                    let first = Outcome::new();
                    let range = keys.range(None);
                    (range, keys.keep_first(rows_max, first.clone()), Found::First(first, rows_max))
                }
            }
        }
    };
    let (start, end) = (Bytes::from(range.start), Bytes::from(range.end));
    // Between bounds the wrong way round nothing lies.
    let end = end.max(start.clone());
    Ok((ScanRequest { start, end, items_max: rows_max, visitor, past_losses: false }, found))
}

/// What all entries of a query's field begin with.
fn names_of(query: &Query) -> Vec<u8> {
    let Span::Terms { field, .. } = &query.span else { unreachable!("it is over a field") };
    key::index_entries(&query.bucket.bucket_type, &query.bucket.name, field).start
}

fn entries_of(query: &Query, after: Option<&Row>) -> key::KeyRange {
    let Span::Terms { field, first, last } = &query.span else { unreachable!("it is over a field") };
    let Bucket { bucket_type, name } = &query.bucket;
    let mut range = key::index_range(bucket_type, name, field, first, last);
    if let Some(after) = after {
        let start = key::index_after(bucket_type, name, field, &after.term, &after.key);
        range.start = range.start.max(start);
    }
    range
}

/// Takes the entries of objects with these prefixes whose terms match, and ends the scan after so many entries.
fn take_entries(own: PrefixSet, picker: Picker, names: Bytes, end: Vec<u8>, ended: Outcome<Row>) -> Visitor {
    let mut visited = 0;
    let mut read = Vec::new();
    Box::new(move |entry, _| {
        visited += 1;
        let is_wanted = own.contains(key::index_prefix_of(entry))
            && (picker.takes_all() || {
                read.clear();
                // One that cannot be read is taken, so that whoever names it reports the damage.
                key::put_term_and_key(&names, entry, &mut read).map_or(true, |term_len| {
                    let (term, key) = read.split_at(term_len);
                    picker.takes(term, key)
                })
            });
        if visited < VISITED_MAX {
            return if is_wanted { Visit::Take } else { Visit::Skip };
        }
        read.clear();
        if let Ok(term_len) = key::put_term_and_key(&names, entry, &mut read) {
            let (term, key) = read.split_at(term_len);
            ended.set(RowRef { term, key }.to_row());
        }
        if is_wanted { Visit::TakeAndSeek(end.clone()) } else { Visit::Seek(end.clone()) }
    })
}

/// Keys of a bucket of which some are picked.
struct Keys {
    of: Stretch,
    picker: Picker,
    props: Arc<BucketProps>,
    /// When it is, in milliseconds since 1970.
    now_ms: u64,
}

impl Keys {
    /// From behind a row in the order in which keys lie, or from the first, to the end of the last prefix.
    fn range(&self, after: Option<&Row>) -> key::KeyRange {
        let place = after.and_then(|row| Some((u16::from_be_bytes(row.term[..].try_into().ok()?), &row.key)));
        self.of.range(place.map(|(prefix, key)| self.of.behind_key(prefix, key)))
    }

    fn is_listed(&self, head: &[u8]) -> bool {
        // A head that cannot be read is listed: its key is there, and reading it says what is wrong.
        is_listed(head, &self.props, self.now_ms).unwrap_or(true)
    }

    fn takes(&self, key: &[u8], head: &[u8]) -> bool {
        self.picker.takes(key, key) && self.is_listed(head)
    }

    fn take_as_they_lie(self, ended: Outcome<Row>) -> Visitor {
        let mut walk = Walk::default();
        let mut visited = 0;
        Box::new(move |ledger_key, head| {
            let key = match walk.key(&self.of, ledger_key) {
                Ok(key) => key,
                Err(visit) => return visit,
            };
            visited += 1;
            if visited >= VISITED_MAX {
                ended.set(RowRef { term: &KeyOrder::term_of_place(walk.prefix()), key }.to_row());
                let end = key::objects().end;
                return if self.takes(key, head) { Visit::TakeAndSeek(end) } else { Visit::Seek(end) };
            }
            if self.takes(key, head) { Visit::Take } else { Visit::Skip }
        })
    }

    /// Keeps the first keys in a cell.
    fn keep_first(self, rows_max: usize, kept: Outcome<BTreeSet<Bytes>>) -> Visitor {
        let mut walk = Walk::default();
        Box::new(move |ledger_key, head| {
            let key = match walk.key(&self.of, ledger_key) {
                Ok(key) => key,
                Err(visit) => return visit,
            };
            let mut first = kept.take().unwrap_or_default();
            let is_full = first.len() >= rows_max;
            let is_late = is_full && first.last().is_some_and(|last| key > *last);
            if !is_late && self.takes(key, head) {
                first.insert(Bytes::copy_from_slice(key));
                if first.len() > rows_max {
                    first.pop_last();
                }
            }
            kept.set(first);
            if is_late { self.of.seek_behind(walk.prefix()) } else { Visit::Skip }
        })
    }
}
