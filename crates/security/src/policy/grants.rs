//! The grants of one role, sorted for a check.

use bytes::Bytes;

use crate::permission::Permissions;
use crate::slot::Resource;

/// Permissions of one role, by resource.
#[derive(Debug, Default)]
pub(super) struct Grants {
    /// Those on everything.
    pub any: Permissions,
    /// Those on bucket types and their buckets, by the type's name.
    types: Vec<(Bytes, OfType)>,
}

#[derive(Debug, Default)]
struct OfType {
    /// Those on all buckets of the type.
    all: Permissions,
    /// Those on single buckets, by name.
    buckets: Vec<(Bytes, Permissions)>,
}

impl Grants {
    /// Adds a grant; grants come by ascending resource, as records are sorted.
    pub fn push(&mut self, resource: &Resource, permissions: Permissions) {
        match resource {
            Resource::Any => self.any = permissions,
            Resource::Type(bucket_type) => self.of_type(bucket_type).all = permissions,
            Resource::Bucket(bucket_type, bucket) => {
                self.of_type(bucket_type).buckets.push((bucket.clone(), permissions));
            }
        }
    }

    fn of_type(&mut self, bucket_type: &Bytes) -> &mut OfType {
        let place = match self.types.binary_search_by(|(name, _)| name.cmp(bucket_type)) {
            Ok(place) => place,
            Err(place) => {
                self.types.insert(place, (bucket_type.clone(), OfType::default()));
                place
            }
        };
        &mut self.types[place].1
    }

    /// Permissions on all of a bucket type.
    pub fn on_type(&self, bucket_type: &[u8]) -> Permissions {
        find(&self.types, bucket_type).map_or(Permissions::NONE, |of_type| of_type.all)
    }

    /// Permissions on one bucket by its own name.
    pub fn on_bucket(&self, bucket_type: &[u8], bucket: &[u8]) -> Permissions {
        let buckets = find(&self.types, bucket_type).map(|of_type| &of_type.buckets[..]);
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

/// The entry of a name in a sorted row.
#[inline]
fn find<'a, T>(row: &'a [(Bytes, T)], name: &[u8]) -> Option<&'a T> {
    if base::planted!(PermissionByPrefix) {
        return row.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, found)| found);
    }
    let place = row.binary_search_by(|(other, _)| other[..].cmp(name)).ok()?;
    Some(&row[place].1)
}
