//! What a fold asks of a node, and what it answers.

use super::field::{Field, record, variants};
use bytes::BytesMut;
use kv::Bucket;
use kv::fold::{Finds, Fold, KeyClock, KeySpan, Modified, Purge, Scope, Segments, Stats, Sum, TreeSize};
use protocol::peer::{Malformed, Reader};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

record!(Fold { scope, keys, segments, modified, finds });
record!(KeySpan { first, last });
record!(Segments { size, numbers });
record!(Modified { from, to });
record!(KeyClock { bucket, key, clock });
record!(Stats { count, bytes, sizes, siblings });

variants!(Scope, "nothing that a fold is over" {
    1 Bucket { 0: bucket },
    2 NVal { 0: n_val },
});

variants!(Finds, "nothing that a fold finds" {
    1 Root,
    2 Branches { 0: numbers },
    3 Tree { size: size, seed: seed },
    4 Clocks,
    5 Tombs,
    6 Siblings { 0: above },
    7 Sizes { 0: above },
    8 Stats,
    9 Count { 0: purge },
    10 Buckets,
    11 Objects,
});

variants!(Purge, "nothing that is purged" {
    1 Reap,
    2 Erase,
});

variants!(Sum, "nothing that a fold comes to" {
    1 Hashes { 0: hashes },
    2 Clocks { 0: clocks },
    3 Keys { 0: keys },
    4 Stats { 0: stats },
    5 Count { 0: count },
    6 Buckets { 0: buckets },
});

impl Field for Arc<Fold> {
    fn put(&self, out: &mut BytesMut) {
        Fold::put(self, out);
    }
    fn take(from: &mut Reader) -> Result<Arc<Fold>, Malformed> {
        let fold = Fold::take(from)?;
        fold.check().map_err(|_| Malformed("a fold that cannot be"))?;
        Ok(Arc::new(fold))
    }
}

/// Its number.
impl Field for TreeSize {
    fn put(&self, out: &mut BytesMut) {
        self.number().put(out);
    }
    fn take(from: &mut Reader) -> Result<TreeSize, Malformed> {
        TreeSize::numbered(Field::take(from)?).ok_or(Malformed("no such size of a tree"))
    }
}

impl Field for BTreeMap<u32, u64> {
    fn put(&self, out: &mut BytesMut) {
        self.iter().map(|(&number, &count)| (number, count)).collect::<Vec<(u32, u64)>>().put(out);
    }
    fn take(from: &mut Reader) -> Result<BTreeMap<u32, u64>, Malformed> {
        Ok(Vec::<(u32, u64)>::take(from)?.into_iter().collect())
    }
}

impl Field for BTreeSet<Bucket> {
    fn put(&self, out: &mut BytesMut) {
        self.len().put(out);
        self.iter().for_each(|bucket| bucket.put(out));
    }
    fn take(from: &mut Reader) -> Result<BTreeSet<Bucket>, Malformed> {
        Ok(Vec::<Bucket>::take(from)?.into_iter().collect())
    }
}
