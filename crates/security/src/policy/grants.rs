//! Grants sorted for a check: those of one role, or those of several as one table.

use bytes::Bytes;

use crate::permission::Permissions;
use crate::slot::Resource;

/// Permissions by resource.
#[derive(Debug, Default)]
pub(super) struct Grants {
    /// Those on everything.
    pub any: Permissions,
    /// Those on bucket types and their buckets, by the type's name.
    types: Vec<(Bytes, OfType)>,
    /// Names of types and of buckets in it.
    names: usize,
}

#[derive(Debug, Default)]
struct OfType {
    /// Those on all buckets of the type.
    all: Permissions,
    /// Those on single buckets, by name.
    buckets: Vec<(Bytes, Permissions)>,
}

impl Grants {
    /// The permissions of several tables in one: on each resource those that one of them has.
    pub fn merged<'a>(tables: impl Iterator<Item = &'a Grants>) -> Grants {
        let mut merged = Grants::default();
        let mut rows: Vec<(&Bytes, Option<&Bytes>, Permissions)> = Vec::new();
        for table in tables {
            merged.any = merged.any.with(table.any);
            for (bucket_type, of_type) in &table.types {
                rows.push((bucket_type, None, of_type.all));
                let buckets = of_type.buckets.iter();
                rows.extend(buckets.map(|(bucket, permissions)| (bucket_type, Some(bucket), *permissions)));
            }
        }

        // Each table is sorted, and the sort makes use of that. A type stands before its buckets.
        rows.sort_by_key(|&(bucket_type, bucket, _)| (bucket_type, bucket));
        for row in rows.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            let (bucket_type, bucket, _) = row[0];
            let permissions = row.iter().fold(Permissions::NONE, |all, row| all.with(row.2));
            merged.append(bucket_type, bucket, permissions);
        }

        // Rows grow by doubling, and these grow no more.
        merged.types.shrink_to_fit();
        merged.types.iter_mut().for_each(|(_, of_type)| of_type.buckets.shrink_to_fit());
        merged
    }

    /// Adds the permissions on a type or on a bucket behind those of all resources before it.
    fn append(&mut self, bucket_type: &Bytes, bucket: Option<&Bytes>, permissions: Permissions) {
        self.names += 1;
        match bucket {
            None => self.types.push((bucket_type.clone(), OfType { all: permissions, buckets: Vec::new() })),
            Some(bucket) => {
                let (_, of_type) = self.types.last_mut().expect("a type comes before its buckets");
                of_type.buckets.push((bucket.clone(), permissions));
            }
        }
    }

    /// The number of names in it, which its memory is in proportion to.
    pub fn names(&self) -> usize {
        self.names
    }

    /// Adds a grant; grants come by ascending resource, as records are sorted.
    pub fn push(&mut self, resource: &Resource, permissions: Permissions) {
        match resource {
            Resource::Any => self.any = permissions,
            Resource::Type(bucket_type) => self.of_type(bucket_type).all = permissions,
            Resource::Bucket(bucket_type, bucket) => {
                self.of_type(bucket_type).buckets.push((bucket.clone(), permissions));
                self.names += 1;
            }
        }
    }

    fn of_type(&mut self, bucket_type: &Bytes) -> &mut OfType {
        let place = match self.types.binary_search_by(|(name, _)| name.cmp(bucket_type)) {
            Ok(place) => place,
            Err(place) => {
                self.types.insert(place, (bucket_type.clone(), OfType::default()));
                self.names += 1;
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
