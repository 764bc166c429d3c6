//! Permissions: their names, their numbers in records, and sets of them.

use std::fmt;

macro_rules! permissions {
    ($($variant:ident = $number:literal, $name:literal;)*) => {
        /// A right that a role may have. Its number is its bit in records, and is never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Permission {
            $(#[doc = concat!("`", $name, "`")]
            $variant = $number,)*
        }

        impl Permission {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Permission] = &[$(Permission::$variant),*];

            /// Its name on the command line and in answers.
            pub fn name(self) -> &'static str {
                match self { $(Permission::$variant => $name,)* }
            }
        }
    };
}

permissions! {
    Get = 0, "riak_kv.get";
    Put = 1, "riak_kv.put";
    Delete = 2, "riak_kv.delete";
    Index = 3, "riak_kv.index";
    ListKeys = 4, "riak_kv.list_keys";
    ListBuckets = 5, "riak_kv.list_buckets";
    MapReduce = 6, "riak_kv.mapreduce";
    GetPreflist = 7, "riak_kv.get_preflist";
    GetBucket = 8, "riak_core.get_bucket";
    SetBucket = 9, "riak_core.set_bucket";
    GetBucketType = 10, "riak_core.get_bucket_type";
    SetBucketType = 11, "riak_core.set_bucket_type";
    SearchAdmin = 12, "search.admin";
    SearchQuery = 13, "search.query";
    TsGet = 14, "riak_ts.get";
    TsPut = 15, "riak_ts.put";
    TsDelete = 16, "riak_ts.delete";
    TsListKeys = 17, "riak_ts.list_keys";
    TsCoverage = 18, "riak_ts.coverage";
    TsCreateTable = 19, "riak_ts.create_table";
    TsQuerySelect = 20, "riak_ts.query_select";
    TsDescribeTable = 21, "riak_ts.describe_table";
    TsShowTables = 22, "riak_ts.show_tables";
    Fold = 32, "annulet.fold";
    Purge = 33, "annulet.purge";
    Repl = 34, "annulet.repl";
    Admin = 35, "annulet.admin";
    Stats = 36, "annulet.stats";
    SlotsRead = 37, "annulet.slots_read";
    SlotsWrite = 38, "annulet.slots_write";
}

impl Permission {
    /// The permission of a name.
    pub fn named(name: &str) -> Option<Permission> {
        Permission::ALL.iter().copied().find(|permission| permission.name() == name)
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of permissions. Bits that this program does not know are kept: a newer program has granted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions(pub u64);

impl Permissions {
    /// The set without any.
    pub const NONE: Permissions = Permissions(0);

    /// Whether `permission` is in the set.
    #[inline]
    pub fn has(self, permission: Permission) -> bool {
        self.0 & Permissions::from(permission).0 != 0
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Permissions in one of both.
    #[inline]
    pub fn with(self, other: Permissions) -> Permissions {
        Permissions(self.0 | other.0)
    }

    /// Permissions in this one alone.
    #[inline]
    pub fn without(self, other: Permissions) -> Permissions {
        Permissions(self.0 & !other.0)
    }

    /// The permissions in it that this program knows.
    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.iter().copied().filter(move |&permission| self.has(permission))
    }
}

impl From<Permission> for Permissions {
    #[inline]
    fn from(permission: Permission) -> Permissions {
        Permissions(1 << permission as u8)
    }
}

impl FromIterator<Permission> for Permissions {
    fn from_iter<I: IntoIterator<Item = Permission>>(permissions: I) -> Permissions {
        permissions.into_iter().fold(Permissions::NONE, |set, permission| set.with(permission.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_distinct() {
        for (place, &permission) in Permission::ALL.iter().enumerate() {
            assert_eq!(Permission::named(permission.name()), Some(permission));
            assert!(Permission::ALL[..place].iter().all(|&before| before < permission));
        }
        assert_eq!(Permission::named("riak_kv.ge"), None);
        assert!((Permission::SlotsWrite as u8) < 64, "a bit of a record");
    }

    #[test]
    fn sets_keep_bits_of_newer_programs() {
        let newer = Permissions(1 << 63);
        let set: Permissions = [Permission::Get, Permission::Fold].into_iter().collect();
        let both = set.with(newer);
        assert!(both.has(Permission::Get) && !both.has(Permission::Put));
        assert_eq!(both.without(set), newer);
        assert_eq!(both.iter().collect::<Vec<_>>(), [Permission::Get, Permission::Fold]);
    }
}
