//! Numbers of replicas of ledger keys. Keys of consistent types have none here: their groups keep replicas equal.

use ::object::key;
use bytes::Bytes;
use kv::{Bucket, BucketTable};

/// Finds the number of replicas of a ledger key; those of a bucket stand together.
pub(crate) struct NVals {
    table: BucketTable,
    /// All before the key's own name, and the number there, if its bucket is known.
    last: Option<(Box<[u8]>, Option<u32>)>,
}

impl NVals {
    pub fn new(table: BucketTable) -> NVals {
        NVals { table, last: None }
    }

    pub fn of(&mut self, ledger_key: &[u8]) -> Option<u32> {
        if let Some((names, n_val)) = &self.last
            && ledger_key.starts_with(names)
        {
            return *n_val;
        }
        let parts = key::decode_object_key(ledger_key).ok()?;
        let names = ledger_key[..ledger_key.len() - parts.key.len()].into();
        let bucket = Bucket {
            bucket_type: Bytes::copy_from_slice(&parts.bucket_type),
            name: Bytes::copy_from_slice(&parts.bucket),
        };
        let props = self.table.get_as_replica(&bucket).ok();
        let n_val = props.filter(|props| !props.consistent || base::planted!(RepairBesideGroup));
        let n_val = n_val.map(|props| props.n_val);
        self.last = Some((names, n_val));
        n_val
    }
}
