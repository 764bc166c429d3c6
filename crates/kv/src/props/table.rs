//! The buckets that have properties of their own, and the bucket types.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{BucketProps, Prop, StampedProps};
use crate::error::Error;
use crate::request::{Bucket, DEFAULT_TYPE};

/// The most buckets with properties of their own: every shard holds all of them in memory, and Riak's advice
/// is to use bucket types long before.
pub const BUCKETS_WITH_PROPS_MAX: usize = 10_000;

/// Finds a bucket's properties. A change is made in two steps, with the caller's durable write between:
/// [`BucketTable::changed`] decides what the properties will be, [`BucketTable::set`] puts them in force.
///
/// Each change has a stamp, and of two changes to one bucket the one with the higher stamp holds, in whatever order
/// nodes hear of them. So a bucket that has its type's properties again is remembered too.
///
/// A clone is a snapshot and costs nothing; the first change after one copies the table.
#[derive(Clone, Debug, Default)]
pub struct BucketTable {
    untyped: Arc<BucketProps>,
    own: Arc<BTreeMap<Bucket, StampedProps>>,
}

impl BucketTable {
    /// The properties in force for a bucket.
    pub fn get(&self, bucket: &Bucket) -> Result<&Arc<BucketProps>, Error> {
        let of_type = self.of_type(&bucket.bucket_type)?;
        if self.own.is_empty() {
            return Ok(of_type);
        }
        Ok(self.own.get(bucket).and_then(|own| own.props.as_ref()).unwrap_or(of_type))
    }

    /// The properties of a bucket type.
    pub fn of_type(&self, bucket_type: &Bytes) -> Result<&Arc<BucketProps>, Error> {
        if bucket_type == DEFAULT_TYPE { Ok(&self.untyped) } else { Err(Error::NoType(bucket_type.clone())) }
    }

    /// What a bucket's properties will be after `changes`.
    pub fn changed(&self, bucket: &Bucket, changes: &[Prop]) -> Result<Arc<BucketProps>, Error> {
        let props = self.get(bucket)?.with(changes)?;
        if !self.own.contains_key(bucket) && self.own.len() >= BUCKETS_WITH_PROPS_MAX {
            return Err(Error::TooManyBuckets { limit: BUCKETS_WITH_PROPS_MAX });
        }
        Ok(Arc::new(props))
    }

    /// Changes a bucket type's properties: refused, as only the default type is there and it is fixed.
    pub fn change_type(&self, bucket_type: &Bytes) -> Result<(), Error> {
        self.of_type(bucket_type)?;
        Err(Error::DefaultTypeFixed)
    }

    /// The stamp of a bucket's last change; 0 if there was none.
    pub fn stamp(&self, bucket: &Bucket) -> u64 {
        self.own.get(bucket).map_or(0, |own| own.stamp)
    }

    /// Puts a change in force, unless a later one is.
    pub fn set(&mut self, bucket: &Bucket, changed: StampedProps) {
        if changed.stamp < self.stamp(bucket) {
            return;
        }
        // A name in a request is a slice of a read buffer that would stay alive with it.
        let kept = Bucket {
            bucket_type: Bytes::copy_from_slice(&bucket.bucket_type),
            name: Bytes::copy_from_slice(&bucket.name),
        };
        Arc::make_mut(&mut self.own).insert(kept, changed);
    }

    /// How many buckets have been given properties of their own.
    pub fn len(&self) -> usize {
        self.own.len()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// The last change of each bucket that was changed.
    pub fn iter(&self) -> impl Iterator<Item = (&Bucket, &StampedProps)> {
        self.own.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(name: &str) -> Bucket {
        Bucket::untyped(Bytes::copy_from_slice(name.as_bytes()))
    }

    #[test]
    fn a_bucket_has_its_types_properties_until_it_is_given_some() {
        let mut table = BucketTable::default();
        let b = bucket("b");
        let props = table.changed(&b, &[Prop::AllowMult(true)]).unwrap();
        assert!(!table.get(&b).unwrap().allow_mult, "nothing is in force before it is set");
        table.set(&b, StampedProps { stamp: 5, props: Some(props) });
        assert!(table.get(&b).unwrap().allow_mult);
        assert!(!table.get(&bucket("c")).unwrap().allow_mult);
        let props = table.changed(&b, &[Prop::NVal(2)]).unwrap();
        assert!(props.allow_mult, "a second change builds on the first");
        table.set(&b, StampedProps { stamp: 4, props: None });
        assert!(table.get(&b).unwrap().allow_mult, "an earlier change comes late");
        table.set(&b, StampedProps { stamp: 6, props: None });
        assert!(!table.get(&b).unwrap().allow_mult);
        assert_eq!(table.stamp(&b), 6);
    }

    #[test]
    fn other_types_are_not_there() {
        let table = BucketTable::default();
        let nope = Bytes::from_static(b"nope");
        let typed = Bucket::typed(Some(nope.clone()), Bytes::from_static(b"b"));
        assert_eq!(table.get(&typed), Err(Error::NoType(nope.clone())));
        assert_eq!(table.changed(&typed, &[]), Err(Error::NoType(nope.clone())));
        assert_eq!(table.change_type(&nope), Err(Error::NoType(nope)));
        assert_eq!(table.change_type(&Bytes::from_static(DEFAULT_TYPE)), Err(Error::DefaultTypeFixed));
    }

    #[test]
    fn the_table_is_bounded() {
        let mut table = BucketTable::default();
        let props = Arc::new(BucketProps::default());
        for i in 0..BUCKETS_WITH_PROPS_MAX {
            table.set(&bucket(&i.to_string()), StampedProps { stamp: 1, props: Some(props.clone()) });
        }
        assert_eq!(
            table.changed(&bucket("one more"), &[]),
            Err(Error::TooManyBuckets { limit: BUCKETS_WITH_PROPS_MAX })
        );
        assert!(table.changed(&bucket("7"), &[Prop::NVal(1)]).is_ok());
    }
}
