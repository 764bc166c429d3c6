//! A handle that reads on any thread, beside the owner and other readers, without a lock on the way.
//!
//! A reader follows its store: each call shows what may be acknowledged by then. One that is pinned stays at its
//! snapshot. Its calls wait for the disk where the page cache does not have what they ask for.
//!
//! A reader holds memtables and tables that it last read from, at most one state of the store; [`Reader::refresh`]
//! lets go of an old one, and so does the next call.

use super::publish::Published;
use super::{Blocks, Publisher, Range, RecordAt, SharedBlocks, Snapshot, Stretches};
use crate::embedded::MakeDisk;
use crate::entry::{Location, Seq};
use crate::error::Error;
use crate::fold::{Combining, Control, FoldEnd, FoldRequest, FoldWalk, MemberOf, RangeSet, Visited};
use crate::store::{Found, Want};
use base::{Clock, Disk, Progress};
use bytes::Bytes;
use std::sync::Arc;

/// Keys of one call of [`Reader::get_many`]: their values are held at once.
pub const KEYS_MANY_MAX: usize = 4096;

/// Reads on any thread.
pub struct Reader {
    source: Source,
    snapshot: Snapshot,
    disks: MakeDisk,
    disk: Box<dyn Disk>,
    blocks: SharedBlocks,
}

#[derive(Clone)]
enum Source {
    Live { published: Arc<Published>, generation: u64, clock: Arc<dyn Clock> },
    Pinned,
}

impl Reader {
    /// A reader that follows what `publisher` publishes, and keeps blocks in `blocks`.
    pub(crate) fn live(
        publisher: &Publisher,
        disks: MakeDisk,
        clock: Arc<dyn Clock>,
        blocks: SharedBlocks,
    ) -> Reader {
        let published = publisher.published().expect("the caller has begun to publish");
        let (snapshot, generation) = published.first();
        Reader::new(Source::Live { published, generation, clock }, snapshot, disks, blocks)
    }

    /// A reader of one moment.
    pub(crate) fn pinned(snapshot: Snapshot, disks: MakeDisk, blocks: SharedBlocks) -> Reader {
        Reader::new(Source::Pinned, snapshot, disks, blocks)
    }

    fn new(source: Source, snapshot: Snapshot, disks: MakeDisk, blocks: SharedBlocks) -> Reader {
        let disk = disks();
        Reader { source, snapshot, disks, disk, blocks }
    }

    /// Head and value of a key's newest version.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Found>, Error> {
        self.find(key, Want::Value)
    }

    /// The head of a key's newest version.
    pub fn head(&mut self, key: &[u8]) -> Result<Option<Found>, Error> {
        self.find(key, Want::Head)
    }

    /// The number of a key's newest version.
    pub fn version(&mut self, key: &[u8]) -> Result<Option<Seq>, Error> {
        Ok(self.head(key)?.map(|found| found.seq))
    }

    /// Heads and values of many keys, all as of one moment, in the order of `keys`. The journal is read in the order
    /// in which it lies on the disk. At most [`KEYS_MANY_MAX`] keys.
    pub fn get_many(&mut self, keys: &[&[u8]]) -> Result<Vec<Result<Option<Found>, Error>>, Error> {
        self.find_many(keys, Want::Value)
    }

    /// Heads of many keys, all as of one moment, in the order of `keys`. At most [`KEYS_MANY_MAX`] keys.
    pub fn head_many(&mut self, keys: &[&[u8]]) -> Result<Vec<Result<Option<Found>, Error>>, Error> {
        self.find_many(keys, Want::Head)
    }

    /// The keys from `start` up to `end`, which is not among them, with their newest versions, from either end. An
    /// empty `end` is none.
    pub fn range(&mut self, start: &[u8], end: &[u8], want: Want) -> Result<Range<'_>, Error> {
        self.refresh();
        Range::new(self.snapshot.clone(), &mut *self.disk, start, end, want)
    }

    /// Folds over the ledger, and over values if the request says so, on this thread. `visit` sees each item and
    /// says how to go on.
    pub fn fold(
        &mut self,
        request: FoldRequest,
        visit: &mut dyn FnMut(&Visited<'_>) -> Control,
    ) -> Result<FoldEnd, Error> {
        self.refresh();
        let mut walk = FoldWalk::new(request, self.snapshot.clone())?;
        while walk.step(&mut *self.disk, visit)? == Progress::More {}
        Ok(walk.end())
    }

    /// What the keys of several ranges are about, combined; ascending, each once, all as of one moment.
    ///
    /// ```
    /// # fn main() -> Result<(), engine::Error> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let machine = engine::Machine::new(os::OsDisk::blocking().blocking_handles(), os::OsClock::new(), os::OsRng::new());
    /// # let mut store = engine::Embedded::open(folder.path(), engine::Options::default(), machine)?;
    /// use engine::fold::{KeyRange, RangeSet};
    ///
    /// // Entries of an index: a term, and whom it is about.
    /// for entry in [b"blue/ann", b"blue/bob", b"tall/bob", b"tall/cat"] {
    ///     store.put(entry, b"", b"")?;
    /// }
    /// let of = |term: &'static [u8]| RangeSet::Of(KeyRange::prefix(term));
    /// let name = |entry: &[u8]| Some(entry[5..].to_vec());
    /// let mut reader = store.reader();
    /// assert_eq!(reader.combine(&of(b"blue/").intersect(of(b"tall/")), name)?, [b"bob"]);
    /// assert_eq!(reader.combine(&of(b"blue/").subtract(of(b"tall/")), name)?, [b"ann"]);
    /// assert_eq!(reader.combine(&of(b"blue/").union(of(b"tall/")), name)?, [b"ann", b"bob", b"cat"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TooLarge`] if there are more than [`SET_RANGES_MAX`](crate::fold::SET_RANGES_MAX) ranges, or more is
    /// held than [`MEMBERS_BYTES_MAX`](crate::fold::MEMBERS_BYTES_MAX).
    pub fn combine(&mut self, set: &RangeSet, member_of: MemberOf) -> Result<Vec<Vec<u8>>, Error> {
        self.refresh();
        let (snapshot, disk) = (&self.snapshot, &mut *self.disk);
        let mut fold = |request: FoldRequest, visit: &mut dyn FnMut(&Visited<'_>) -> Control| {
            let mut walk = FoldWalk::new(request, snapshot.clone())?;
            while walk.step(disk, visit)? == Progress::More {}
            Ok(())
        };
        Combining::combine(set, member_of, &mut fold)
    }

    /// Whether there is no key.
    pub fn is_empty(&mut self) -> Result<bool, Error> {
        Ok(self.range(b"", b"", Want::Head)?.next().transpose()?.is_none())
    }

    /// What it shows now, for as long as that is held.
    pub fn snapshot(&mut self) -> Snapshot {
        self.refresh();
        self.snapshot.clone()
    }

    /// Another reader for another thread, which shows the same and shares the blocks.
    pub fn another(&self) -> Reader {
        let (source, snapshot) = (self.source.clone(), self.snapshot.clone());
        Reader::new(source, snapshot, Arc::clone(&self.disks), self.blocks.clone())
    }

    /// A reader that stays at what this one shows now.
    pub fn pin(&mut self) -> Reader {
        Reader::pinned(self.snapshot(), Arc::clone(&self.disks), self.blocks.clone())
    }

    /// Shows from now on what the store's owner has published; a pinned reader stays where it is.
    pub fn refresh(&mut self) {
        if let Source::Live { published, generation, clock } = &mut self.source {
            *generation = published.refresh(&mut self.snapshot, *generation);
            self.snapshot.now_ms = clock.wall().0 / 1000;
        }
    }

    fn find(&mut self, key: &[u8], want: Want) -> Result<Option<Found>, Error> {
        self.refresh();
        self.snapshot.find(key, want, &mut Blocks { disk: &mut *self.disk, cache: &self.blocks })
    }

    fn find_many(&mut self, keys: &[&[u8]], want: Want) -> Result<Vec<Result<Option<Found>, Error>>, Error> {
        if keys.len() > KEYS_MANY_MAX {
            return Err(Error::TooLarge { what: "a list of keys", len: keys.len(), limit: KEYS_MANY_MAX });
        }
        self.refresh();
        let mut answers: Vec<Result<Option<Found>, Error>> = keys.iter().map(|_| Ok(None)).collect();
        let mut order: Vec<usize> = (0..keys.len()).collect();
        // Neighbours share blocks.
        order.sort_unstable_by_key(|&index| keys[index]);
        let mut records = Stretches::default();
        for index in order {
            let mut blocks = Blocks { disk: &mut *self.disk, cache: &self.blocks };
            answers[index] = match self.snapshot.newest(keys[index], &mut blocks) {
                Ok(Some(newest)) => match newest.location {
                    Location::Journal { offset, len } if want == Want::Value => {
                        let at = RecordAt::new(&self.snapshot.segments, newest.jsn, newest.seq, offset, len);
                        at.map(|at| {
                            records.push(at, index);
                            None
                        })
                    }
                    _ => newest.into_found(keys[index], want, &self.snapshot.segments, blocks.disk).map(Some),
                },
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
        }
        records.sort();
        while let Some((at, index, data)) = records.next(&mut *self.disk) {
            // Whoever keeps one answer is not to keep its neighbours in memory.
            let alone = |data: Bytes| if data.is_unique() { data } else { Bytes::copy_from_slice(&data) };
            answers[index] = data.and_then(|data| at.check(keys[index], alone(data))).map(Some);
        }
        Ok(answers)
    }
}
