//! How a scan goes over the keys of one bucket between two bounds: from one wanted prefix to the next, and in each over
//! the bucket, so that nothing else is read.

use bytes::Bytes;
use engine::fold::Visit;
use kv::Bucket;
use kv::index::PrefixSet;
use object::key;

/// Keys of a bucket between two bounds, of some prefixes.
pub(crate) struct Stretch {
    pub bucket: Bucket,
    pub first: Bytes,
    /// `None` for the bucket's last.
    pub last: Option<Bytes>,
    pub own: PrefixSet,
}

impl Stretch {
    /// Those behind this key.
    pub fn behind(mut self, after: Option<Bytes>) -> Stretch {
        if let Some(after) = after.filter(|after| *after >= self.first) {
            self.first = [&after[..], &[0]].concat().into();
        }
        self
    }

    /// The ledger key right behind a key.
    pub fn behind_key(&self, prefix: u16, key: &[u8]) -> Vec<u8> {
        [&self.beginning(prefix)[..], key, &[0]].concat()
    }

    /// From a ledger key, or from the first, to the end of the last prefix.
    pub fn range(&self, from: Option<Vec<u8>>) -> key::KeyRange {
        let first = self.start(self.own.first().unwrap_or_default());
        let last = self.own.iter().last().unwrap_or_default();
        key::KeyRange { start: from.unwrap_or_default().max(first), end: key::objects_at(last).end }
    }

    /// Where the scan is to go on behind a prefix.
    pub fn seek_behind(&self, prefix: u16) -> Visit {
        let next = prefix.checked_add(1).and_then(|next| self.own.reach(next));
        seek(next.map(|next| self.start(next)))
    }

    /// The bytes that all keys of the bucket with a prefix begin with.
    fn beginning(&self, prefix: u16) -> Vec<u8> {
        key::objects_of_bucket(prefix, &self.bucket.bucket_type, &self.bucket.name).start
    }

    /// The first key with a prefix.
    fn start(&self, prefix: u16) -> Vec<u8> {
        [&self.beginning(prefix)[..], &self.first].concat()
    }

    fn is_behind(&self, key: &[u8]) -> bool {
        self.last.as_ref().is_some_and(|last| key > *last)
    }
}

/// Where a scan over them is.
#[derive(Default)]
pub(crate) struct Walk {
    prefix: u16,
    /// The bytes that the keys of its prefix begin with; empty before the first.
    beginning: Vec<u8>,
}

impl Walk {
    /// The prefix of the last key.
    pub fn prefix(&self) -> u16 {
        self.prefix
    }

    /// The key of an object that is wanted, or where such a one may be.
    pub fn key<'a>(&mut self, of: &Stretch, ledger_key: &'a [u8]) -> Result<&'a [u8], Visit> {
        let prefix = key::prefix_of(ledger_key);
        if self.beginning.is_empty() || self.prefix != prefix {
            match of.own.reach(prefix) {
                Some(own) if own == prefix => {
                    self.prefix = prefix;
                    self.beginning = of.beginning(prefix);
                }
                own => return Err(seek(own.map(|own| of.start(own)))),
            }
        }
        match ledger_key.strip_prefix(&self.beginning[..]) {
            // Behind its first key, in case that the scan came here without a seek.
            Some(key) if key < &of.first[..] => Err(seek(Some(of.start(prefix)))),
            Some(key) if of.is_behind(key) => Err(of.seek_behind(prefix)),
            Some(key) => Ok(key),
            None if ledger_key < &self.beginning[..] => Err(seek(Some(of.start(prefix)))),
            None => Err(of.seek_behind(prefix)),
        }
    }
}

/// The partitions that a scan has still to visit.
pub(crate) struct Wanted {
    partitions: Vec<u16>,
    at: usize,
}

impl Wanted {
    /// These, ascending.
    pub fn new(partitions: Vec<u16>) -> Wanted {
        Wanted { partitions, at: 0 }
    }

    /// Goes to the first wanted partition from this one on; `None` behind the last.
    pub fn reach(&mut self, partition: u16) -> Option<u16> {
        while self.partitions.get(self.at).is_some_and(|&wanted| wanted < partition) {
            self.at += 1;
        }
        self.partitions.get(self.at).copied()
    }
}

/// Goes on at a key, or ends the scan.
pub(crate) fn seek(to: Option<Vec<u8>>) -> Visit {
    Visit::Seek(to.unwrap_or_else(|| key::objects().end))
}
