//! Grants by name for a check: those of one role, or those of several as one table.
//!
//! The names of a table are chosen by administrators. A client chooses the name that is looked up alone, so that it
//! cannot make a lookup slow: the hash may be a fixed one.

use base::FastMap;
use bytes::Bytes;

use crate::permission::Permissions;
use crate::slot::Resource;

/// Names that a lookup compares one after the other: up to so many, a hash costs more.
const COMPARED_MAX: usize = 2;

/// Permissions by resource.
#[derive(Debug, Default)]
pub(super) struct Grants {
    /// Those on everything.
    pub any: Permissions,
    /// Those on bucket types and their buckets, by the type's name.
    types: FastMap<Bytes, OfType>,
    /// Names of types and of buckets in it.
    names: usize,
}

#[derive(Debug, Default)]
struct OfType {
    /// Those on all buckets of the type.
    all: Permissions,
    /// Those on single buckets, by name.
    buckets: FastMap<Bytes, Permissions>,
}

impl Grants {
    /// The permissions of several tables in one: on each resource those that one of them has.
    pub fn merged<'a>(tables: impl Iterator<Item = &'a Grants>) -> Grants {
        let mut merged = Grants::default();
        for table in tables {
            merged.any = merged.any.with(table.any);
            for (bucket_type, of_type) in &table.types {
                merged.add(bucket_type, None, of_type.all);
                for (bucket, permissions) in &of_type.buckets {
                    merged.add(bucket_type, Some(bucket), *permissions);
                }
            }
        }

        // Maps grow by doubling, and these grow no more.
        merged.types.shrink_to_fit();
        merged.types.values_mut().for_each(|of_type| of_type.buckets.shrink_to_fit());
        merged
    }

    /// Adds permissions on a type or on a bucket of it.
    fn add(&mut self, bucket_type: &Bytes, bucket: Option<&Bytes>, permissions: Permissions) {
        let of_type = self.types.entry(bucket_type.clone()).or_insert_with(|| {
            self.names += 1;
            OfType::default()
        });
        let before = match bucket {
            None => &mut of_type.all,
            Some(bucket) => of_type.buckets.entry(bucket.clone()).or_insert_with(|| {
                self.names += 1;
                Permissions::NONE
            }),
        };
        *before = before.with(permissions);
    }

    /// The number of names in it, which its memory is in proportion to.
    pub fn names(&self) -> usize {
        self.names
    }

    /// Adds a grant.
    pub fn push(&mut self, resource: &Resource, permissions: Permissions) {
        match resource {
            Resource::Any => self.any = permissions,
            Resource::Type(bucket_type) => self.add(bucket_type, None, permissions),
            Resource::Bucket(bucket_type, bucket) => self.add(bucket_type, Some(bucket), permissions),
        }
    }

    /// Permissions on all of a bucket type.
    pub fn on_type(&self, bucket_type: &[u8]) -> Permissions {
        find(&self.types, bucket_type).map_or(Permissions::NONE, |of_type| of_type.all)
    }

    /// Permissions on one bucket by its own name.
    pub fn on_bucket(&self, bucket_type: &[u8], bucket: &[u8]) -> Permissions {
        let buckets = find(&self.types, bucket_type).map(|of_type| &of_type.buckets);
        buckets.and_then(|buckets| find(buckets, bucket)).copied().unwrap_or_default()
    }

    /// Permissions on a bucket type, or on a bucket by its own name or its type's.
    #[inline]
    pub fn on(&self, bucket_type: &[u8], bucket: Option<&[u8]>) -> Permissions {
        let Some(of_type) = find(&self.types, bucket_type) else { return Permissions::NONE };
        let on_bucket = bucket.and_then(|bucket| find(&of_type.buckets, bucket));
        of_type.all.with(on_bucket.copied().unwrap_or_default())
    }
}

/// The entry of a name.
#[inline]
fn find<'a, T>(entries: &'a FastMap<Bytes, T>, name: &[u8]) -> Option<&'a T> {
    if base::planted!(PermissionByPrefix) {
        return entries.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, found)| found);
    }
    if entries.len() <= COMPARED_MAX {
        return entries.iter().find(|(other, _)| other[..] == *name).map(|(_, found)| found);
    }
    entries.get(name)
}
