//! All records of the policy, within a bound of bytes.

use std::collections::BTreeMap;

use crate::Error;
use crate::permission::Permission;
use crate::policy::Policy;
use crate::slot::{Slot, SlotKey, Target, User};
use crate::source::SourceUser;

/// Bytes of all records: a snapshot of the log carries them in one piece, and each node holds them in memory.
pub const POLICY_BYTES_MAX: usize = 4 << 20;

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The record is made, or takes the place of the one of its name.
    Put(Slot),
    /// The record is removed.
    Remove(SlotKey),
}

/// All records, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    slots: BTreeMap<SlotKey, Slot>,
    /// Bytes of all of them.
    bytes: usize,
}

impl Slots {
    /// Makes all changes, in their order, or none.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the policy would have more than [`POLICY_BYTES_MAX`] bytes, and more than it has now:
    /// a change that removes is taken in any case.
    pub fn apply(&mut self, changes: &[Change]) -> Result<(), Error> {
        let bytes = self.bytes_after(changes);
        if bytes > POLICY_BYTES_MAX && bytes > self.bytes {
            return Err(Error::TooLarge { bytes });
        }
        for change in changes {
            match change {
                Change::Put(slot) => self.slots.insert(slot.key(), slot.clone()),
                Change::Remove(key) => self.slots.remove(key),
            };
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Bytes of the policy after changes.
    fn bytes_after(&self, changes: &[Change]) -> usize {
        let mut sizes = BTreeMap::new();
        for change in changes {
            match change {
                Change::Put(slot) => sizes.insert(slot.key(), slot.encode().len()),
                Change::Remove(key) => sizes.insert(key.clone(), 0),
            };
        }
        let before = |key: &SlotKey| self.slots.get(key).map_or(0, |slot| slot.encode().len());
        let gone: usize = sizes.keys().map(before).sum();
        self.bytes + sizes.values().sum::<usize>() - gone
    }

    /// The record of a name.
    pub fn get(&self, key: &SlotKey) -> Option<&Slot> {
        self.slots.get(key)
    }

    /// Whether a user has a source and may administer the cluster: somebody can take security out of force again.
    pub fn have_administrator(&self) -> bool {
        let policy = Policy::compile(self, 0);
        let administers = |user: &User| {
            let id = policy.user(user.name.as_bytes());
            id.is_some_and(|id| policy.may(id, Permission::Admin, Target::Any))
        };
        let has_source = |user: &User| {
            self.iter().any(|slot| match slot {
                Slot::Source(source) => match &source.user {
                    SourceUser::All => true,
                    SourceUser::User(name) => *name == user.name,
                },
                _ => false,
            })
        };
        self.iter().any(|slot| matches!(slot, Slot::User(user) if administers(user) && has_source(user)))
    }

    /// All records, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.values()
    }

    /// Bytes of all records.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;
    use crate::{Grant, Permissions, RESOURCE_NAME_BYTES_MAX, Resource, Role};

    fn grant(name: usize) -> Slot {
        let mut bucket_type = vec![b'x'; RESOURCE_NAME_BYTES_MAX];
        bucket_type[..8].copy_from_slice(&(name as u64).to_be_bytes());
        let resource = Resource::Type(bucket_type.into());
        Slot::Grant(Grant { role: Role::All, resource, permissions: Permissions(1) })
    }

    #[test]
    fn administrators_need_a_source_and_the_permission_on_everything() {
        let mut slots = Slots::default();
        let mut after = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let changes = Command::parse(&words).unwrap().plan(&slots, None).unwrap();
            slots.apply(&changes).unwrap();
            slots.have_administrator()
        };
        assert!(!after("add-user ann") && !after("add-source ann 127.0.0.1/32 trust"));
        assert!(!after("grant annulet.admin on t to ann") && after("grant annulet.admin on any to ann"));
        assert!(!after("del-source ann 127.0.0.1/32") && after("add-source all 10.0.0.0/8 trust"));
        assert!(!after("revoke annulet.admin on any from ann"));
    }

    #[test]
    fn a_policy_is_bounded_and_can_always_shrink() {
        let mut slots = Slots::default();
        let fit = POLICY_BYTES_MAX / grant(0).encode().len();
        for number in 0..fit {
            slots.apply(&[Change::Put(grant(number))]).unwrap();
        }
        let full = slots.clone();
        assert_eq!(slots.bytes(), slots.iter().map(|slot| slot.encode().len()).sum::<usize>());
        let refused = slots.apply(&[Change::Remove(SlotKey::Settings), Change::Put(grant(fit))]);
        assert!(matches!(refused, Err(Error::TooLarge { bytes }) if bytes > POLICY_BYTES_MAX));
        assert_eq!(slots, full, "all or none");

        slots.apply(&[Change::Put(grant(fit)), Change::Remove(grant(0).key())]).unwrap();
        assert_eq!(slots.bytes(), full.bytes());
        let all: Vec<_> = slots.iter().map(|slot| Change::Remove(slot.key())).collect();
        slots.apply(&all).unwrap();
        assert_eq!(slots, Slots::default());
    }
}
