//! The bucket types, and the buckets that have properties of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use object::key;

use super::digest::Digest;
use super::{BucketProps, Prop, StampedProps, StampedType, Subject, TYPES_MAX, TypeChange, TypeStatus};
use crate::bucket::{Bucket, DEFAULT_TYPE};
use crate::error::Error;

/// The most buckets with properties of their own: every shard holds all of them in memory, and Riak's advice
/// is to use bucket types long before.
pub const BUCKETS_WITH_PROPS_MAX: usize = 10_000;

/// The most resets that are remembered: every shard holds all of them, some 150 bytes each. While all members can be
/// reached a reset is remembered for a few minutes, so this allows some 200 resets a second.
pub const RESETS_MAX: usize = 50_000;

/// A change of a bucket's or a bucket type's properties, as it is kept and told to other nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum PropsChange {
    /// Of a bucket.
    Bucket(Bucket, StampedProps),
    /// Of the bucket type of this name.
    Type(Bytes, StampedType),
}

impl PropsChange {
    /// The time that orders it among others, in microseconds since 1970.
    pub fn stamp(&self) -> u64 {
        match self {
            PropsChange::Bucket(_, change) => change.stamp,
            PropsChange::Type(_, change) => change.stamp,
        }
    }

    /// The ledger key under which it is kept.
    pub fn ledger_key(&self) -> Vec<u8> {
        match self {
            PropsChange::Bucket(bucket, _) => {
                let mut out = Vec::new();
                key::encode_bucket_key(&bucket.bucket_type, &bucket.name, &mut out);
                out
            }
            PropsChange::Type(name, _) => key::bucket_type(name),
        }
    }

    /// What is kept there.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            PropsChange::Bucket(_, change) => change.encode(),
            PropsChange::Type(_, change) => change.encode(),
        }
    }

    /// Whether it gives a bucket its type's properties again.
    pub fn is_reset(&self) -> bool {
        matches!(self, PropsChange::Bucket(_, StampedProps { props: None, .. }))
    }
}

/// Whether resets count when two nodes compare their changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resets {
    /// They do: programs before version 8 of the protocol between nodes compare so, and forget none.
    Counted,
    /// They do not.
    Left,
}

/// The sums by which two nodes find out whether they know the same, as one of them says them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropsSums {
    /// Over all changes ([`Resets::Counted`]).
    pub all: u64,
    /// Over all but resets ([`Resets::Left`]); an older program does not say.
    pub sets: Option<u64>,
    /// Whether the sender would know the same after a restart: all that it knows is on its disk.
    pub is_kept: bool,
}

impl PropsSums {
    /// Which of the sums a node that says these is to be compared by.
    pub fn compared_by(self) -> Resets {
        if self.sets.is_some() { Resets::Left } else { Resets::Counted }
    }
}

/// Finds a bucket's properties. A change is made in two steps, with the caller's durable write between:
/// [`BucketTable::changed`] decides what the properties will be, [`BucketTable::set`] puts them in force.
///
/// Each change has a stamp, and of two changes to one bucket the one with the higher stamp holds, in whatever order
/// nodes hear of them; of two with the same stamp the one whose form is larger. So a reset is remembered too, until no
/// member can have earlier properties of the bucket ([`BucketTable::forget`]). It takes no place among the buckets with
/// properties.
///
/// A clone is a snapshot and costs nothing; the first change after one copies the table.
#[derive(Clone, Debug, Default)]
pub struct BucketTable {
    untyped: Arc<BucketProps>,
    types: Arc<BTreeMap<Bytes, StampedType>>,
    /// Buckets that have properties of their own.
    own: Arc<BTreeMap<Bucket, StampedProps>>,
    /// Buckets that have their type's again.
    resets: Arc<BTreeMap<Bucket, Reset>>,
    /// Changes put in force since the process was started.
    applied: u64,
    /// Of all changes.
    digest: Digest,
    /// Of all but resets.
    set_digest: Digest,
}

/// A reset that is remembered.
#[derive(Clone, Copy, Debug)]
struct Reset {
    stamp: u64,
    /// Which of the changes that were put in force here it is.
    number: u64,
}

impl Reset {
    fn change(self) -> StampedProps {
        StampedProps { stamp: self.stamp, props: None }
    }
}

impl BucketTable {
    /// Asserts relations that hold after each change. Costs as much as the sums, however large the table is.
    pub fn invariants(&self) {
        self.digest.invariants();
        self.set_digest.invariants();
        let is_same = self.digest == self.set_digest;
        debug_assert!(!self.resets.is_empty() || is_same, "without resets the sums are the same");
        let is_empty = self.types.is_empty() && self.own.is_empty();
        let has_sum = self.set_digest != Digest::default();
        debug_assert!(!is_empty || !has_sum, "a change that was taken off is in no sum");
    }

    /// Asserts the relations of a bucket after a change of it, where its stamp was this one.
    fn bucket_invariants(&self, bucket: &Bucket, before: u64) {
        self.invariants();
        debug_assert!(self.stamp(bucket) >= before, "a later change of a bucket stays in force");
        let own = self.own.get(bucket);
        debug_assert_ne!(
            own.is_some(),
            self.resets.contains_key(bucket),
            "a bucket is set or reset, not both"
        );
        debug_assert!(own.is_none_or(|own| own.props.is_some()), "a bucket that is set has properties");
    }

    /// Asserts the relations of a type after a change of it.
    fn type_invariants(&self, name: &Bytes, before: Option<(bool, u64)>) {
        self.invariants();
        let now = self.types.get(name).map(|it| (it.active, it.stamp));
        debug_assert!(now >= before, "an active type stays active, and a later change in force");
    }

    /// The properties in force for a bucket.
    pub fn get(&self, bucket: &Bucket) -> Result<&Arc<BucketProps>, Error> {
        let of_type = self.of_type(&bucket.bucket_type)?;
        Ok(self.own_or(bucket, of_type))
    }

    /// The same for a replica, which may not have heard yet that the type is active.
    pub fn get_as_replica(&self, bucket: &Bucket) -> Result<&Arc<BucketProps>, Error> {
        let of_type = match self.types.get(&bucket.bucket_type) {
            Some(created) => &created.props,
            None => self.of_type(&bucket.bucket_type)?,
        };
        Ok(self.own_or(bucket, of_type))
    }

    fn own_or<'a>(&'a self, bucket: &Bucket, of_type: &'a Arc<BucketProps>) -> &'a Arc<BucketProps> {
        if self.own.is_empty() {
            return of_type;
        }
        self.own.get(bucket).and_then(|own| own.props.as_ref()).unwrap_or(of_type)
    }

    /// The properties of a bucket type that can be used.
    pub fn of_type(&self, bucket_type: &Bytes) -> Result<&Arc<BucketProps>, Error> {
        if bucket_type == DEFAULT_TYPE {
            return Ok(&self.untyped);
        }
        let active = self.types.get(bucket_type).filter(|it| it.active);
        active.map(|it| &it.props).ok_or_else(|| Error::NoType(bucket_type.clone()))
    }

    /// The bucket's properties after `changes`. `None` if these are the defaults of an untyped bucket, which cannot
    /// change: the bucket needs no properties of its own.
    ///
    /// # Errors
    /// As for [`BucketProps::changed`], and [`Error::TooManyBuckets`].
    pub fn changed(&self, bucket: &Bucket, changes: &[Prop]) -> Result<Option<Arc<BucketProps>>, Error> {
        let untyped = bucket.bucket_type == DEFAULT_TYPE;
        let subject = if untyped { Subject::UntypedBucket } else { Subject::Typed };
        let props = self.get(bucket)?.changed(changes, subject)?;
        if untyped && props == *self.untyped {
            return Ok(None);
        }
        if !self.own.contains_key(bucket) && self.own.len() >= BUCKETS_WITH_PROPS_MAX {
            return Err(Error::TooManyBuckets { limit: BUCKETS_WITH_PROPS_MAX });
        }
        Ok(Some(Arc::new(props)))
    }

    /// Whether a reset of a bucket can be remembered.
    ///
    /// # Errors
    /// [`Error::TooManyResets`].
    pub fn check_reset(&self, bucket: &Bucket) -> Result<(), Error> {
        if self.resets.len() >= RESETS_MAX && !self.resets.contains_key(bucket) {
            return Err(Error::TooManyResets { limit: RESETS_MAX });
        }
        Ok(())
    }

    /// What a bucket type will be after `change`, with a stamp of `now` or later. `all_up`: whether every node can be
    /// reached, so that none is left that does not know a type that is in use.
    pub fn changed_type(
        &self,
        name: &Bytes,
        change: &TypeChange,
        now: u64,
        all_up: bool,
    ) -> Result<StampedType, Error> {
        if name == DEFAULT_TYPE {
            return Err(Error::DefaultTypeFixed);
        }
        let known = self.types.get(name);
        let stamp = now.max(known.map_or(0, |known| known.stamp).saturating_add(1));
        let status = |known: &StampedType| status(known, all_up);
        let changed = match (change, known) {
            (TypeChange::Create(_), Some(known)) if known.active => Err(Error::TypeStatus(status(known))),
            (TypeChange::Create(_), None) if self.types.len() >= TYPES_MAX => {
                Err(Error::TooManyTypes { limit: TYPES_MAX })
            }
            (TypeChange::Create(changes), _) => {
                let props = BucketProps::of_new_type().changed(changes, Subject::NewType)?;
                Ok(StampedType { stamp, active: false, props: Arc::new(props) })
            }
            (_, None) => Err(Error::NoType(name.clone())),
            (TypeChange::Update(changes), Some(known)) if known.active => {
                let props = known.props.changed(changes, Subject::Typed)?;
                Ok(StampedType { stamp, active: true, props: Arc::new(props) })
            }
            (TypeChange::Update(_), Some(known)) => Err(Error::TypeStatus(status(known))),
            (TypeChange::Activate, Some(known)) if known.active => Ok(known.clone()),
            (TypeChange::Activate, Some(_)) if !all_up => Err(Error::TypeStatus(TypeStatus::Created)),
            (TypeChange::Activate, Some(known)) => Ok(StampedType { stamp, active: true, ..known.clone() }),
        };

        let is_later = |new: &StampedType, known: &StampedType| {
            new == known || new.stamp > known.stamp || known.stamp == u64::MAX
        };
        let is_next = |new: &StampedType| known.is_none_or(|known| is_later(new, known));
        debug_assert!(changed.as_ref().map_or(true, is_next), "a type's change is later than the one before");
        changed
    }

    /// The bucket types with their status, the default one first.
    pub fn types(&self, all_up: bool) -> Vec<(Bytes, TypeStatus, Arc<BucketProps>)> {
        let default = (Bytes::from_static(DEFAULT_TYPE), TypeStatus::Active, Arc::clone(&self.untyped));
        let others =
            self.types.iter().map(|(name, it)| (name.clone(), status(it, all_up), Arc::clone(&it.props)));
        std::iter::once(default).chain(others).collect()
    }

    /// The newest stamp of all changes; 0 if there was none.
    pub fn newest_stamp(&self) -> u64 {
        let types = self.types.values().map(|it| it.stamp);
        let own = self.own.values().map(|own| own.stamp);
        types.chain(own).chain(self.resets.values().map(|reset| reset.stamp)).max().unwrap_or(0)
    }

    /// The stamp of a bucket type's last change; 0 if there was none.
    pub fn type_stamp(&self, name: &Bytes) -> u64 {
        self.types.get(name).map_or(0, |it| it.stamp)
    }

    /// The stamp of a bucket's last change; 0 if there was none.
    pub fn stamp(&self, bucket: &Bucket) -> u64 {
        let reset = self.resets.get(bucket).map(|reset| reset.stamp);
        self.own.get(bucket).map(|own| own.stamp).or(reset).unwrap_or(0)
    }

    /// The bucket's change in force; `None` if none is known.
    fn stamped(&self, bucket: &Bucket) -> Option<StampedProps> {
        let reset = || self.resets.get(bucket).map(|reset| reset.change());
        self.own.get(bucket).cloned().or_else(reset)
    }

    /// Whether a change would come into force: whether nothing that holds over it is known.
    pub fn is_news(&self, change: &PropsChange) -> bool {
        match change {
            PropsChange::Bucket(bucket, change) => {
                self.stamped(bucket).is_none_or(|known| change.supersedes(&known))
            }
            PropsChange::Type(name, change) => {
                self.types.get(name).is_none_or(|known| change.supersedes(known))
            }
        }
    }

    /// Puts a change in force, unless a later one is.
    pub fn apply(&mut self, change: PropsChange) {
        match change {
            PropsChange::Bucket(bucket, change) => self.set(&bucket, change),
            PropsChange::Type(name, change) => self.set_type(&name, change),
        }
    }

    /// Puts a bucket's change in force, unless a later one is.
    pub fn set(&mut self, bucket: &Bucket, changed: StampedProps) {
        let known = self.stamped(bucket);
        if known.as_ref().is_some_and(|known| !changed.supersedes(known)) {
            return;
        }
        let before = known.as_ref().map_or(0, |known| known.stamp);
        if let Some(known) = known {
            self.remove(&PropsChange::Bucket(bucket.clone(), known));
        }
        // A name in a request is a slice of a read buffer that would stay alive with it.
        let kept = Bucket {
            bucket_type: Bytes::copy_from_slice(&bucket.bucket_type),
            name: Bytes::copy_from_slice(&bucket.name),
        };
        self.applied += 1;
        self.count(&PropsChange::Bucket(kept.clone(), changed.clone()));
        if changed.props.is_some() {
            Arc::make_mut(&mut self.own).insert(kept, changed);
        } else {
            let reset = Reset { stamp: changed.stamp, number: self.applied };
            Arc::make_mut(&mut self.resets).insert(kept, reset);
        }

        if cfg!(debug_assertions) {
            self.bucket_invariants(bucket, before);
        }
    }

    fn set_type(&mut self, name: &Bytes, changed: StampedType) {
        if self.types.get(name).is_some_and(|known| !changed.supersedes(known)) {
            return;
        }
        let kept = Bytes::copy_from_slice(name);
        let known = self.types.get(name).cloned();
        let before = known.as_ref().map(|known| (known.active, known.stamp));
        if let Some(known) = known {
            self.remove(&PropsChange::Type(kept.clone(), known));
        }
        self.applied += 1;
        self.count(&PropsChange::Type(kept.clone(), changed.clone()));
        Arc::make_mut(&mut self.types).insert(kept, changed);

        if cfg!(debug_assertions) {
            self.type_invariants(name, before);
        }
    }

    /// Adds a change to the sums.
    fn count(&mut self, change: &PropsChange) {
        self.digest.add(change);
        if !change.is_reset() {
            self.set_digest.add(change);
        }
    }

    /// Removes a change that is in force, from the sums too.
    fn remove(&mut self, change: &PropsChange) {
        self.digest.take_off(change);
        if !change.is_reset() {
            self.set_digest.take_off(change);
        }
        match change {
            PropsChange::Bucket(bucket, _) if change.is_reset() => {
                Arc::make_mut(&mut self.resets).remove(bucket);
            }
            PropsChange::Bucket(bucket, _) => drop(Arc::make_mut(&mut self.own).remove(bucket)),
            PropsChange::Type(name, _) => drop(Arc::make_mut(&mut self.types).remove(name)),
        }
    }

    /// How many buckets have properties of their own.
    pub fn len(&self) -> usize {
        self.own.len()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// How many resets are remembered.
    pub fn resets(&self) -> usize {
        self.resets.len()
    }

    /// The number of the last change that was put in force here.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Up to `max` of the resets that are among the first `applied` changes.
    pub fn resets_up_to(&self, applied: u64, max: usize) -> Vec<PropsChange> {
        let due = self.resets.iter().filter(|(_, reset)| reset.number <= applied).take(max);
        due.map(|(bucket, reset)| PropsChange::Bucket(bucket.clone(), reset.change())).collect()
    }

    /// Forgets a reset, unless a later change is in force. Only for a reset that every member has taken: else a member
    /// that still has earlier properties of the bucket would bring them back.
    pub fn forget(&mut self, reset: &PropsChange) {
        if reset.is_reset() && self.in_force(reset).as_ref() == Some(reset) {
            self.remove(reset);
        }

        if cfg!(debug_assertions) {
            self.invariants();
        }
    }

    /// The change in force of what `change` is about, if there was one.
    pub fn in_force(&self, change: &PropsChange) -> Option<PropsChange> {
        match change {
            PropsChange::Bucket(bucket, _) => {
                self.stamped(bucket).map(|known| PropsChange::Bucket(bucket.clone(), known))
            }
            PropsChange::Type(name, _) => {
                self.types.get(name).map(|it| PropsChange::Type(name.clone(), it.clone()))
            }
        }
    }

    /// Takes back a change that could not be kept: what was in force `before` is so again, unless a later change is by
    /// now.
    pub fn take_back(&mut self, change: &PropsChange, before: Option<PropsChange>) {
        if self.in_force(change).as_ref() != Some(change) {
            return;
        }
        self.remove(change);
        if let Some(before) = before {
            self.apply(before);
        }
    }

    /// The smallest n among the buckets of a type.
    pub fn least_n_val(&self, bucket_type: &Bytes) -> Result<u32, Error> {
        let of_type = self.of_type(bucket_type)?.n_val;
        let own = self.own.iter().filter(|(bucket, _)| bucket.bucket_type == *bucket_type);
        Ok(own.filter_map(|(_, own)| Some(own.props.as_ref()?.n_val)).fold(of_type, u32::min))
    }

    /// The numbers of replicas that buckets have, each once: those of types that are not active yet among them.
    pub fn n_vals(&self) -> BTreeSet<u32> {
        let types = self.types.values().map(|it| it.props.n_val);
        let own = self.own.values().filter_map(|own| Some(own.props.as_ref()?.n_val));
        types.chain(own).chain([self.untyped.n_val]).collect()
    }

    /// The last change of each type and of each bucket that was changed; types first, since buckets need them.
    pub fn changes(&self) -> impl Iterator<Item = PropsChange> {
        let types = self.types.iter().map(|(name, it)| PropsChange::Type(name.clone(), it.clone()));
        let own = self.own.iter().map(|(bucket, it)| PropsChange::Bucket(bucket.clone(), it.clone()));
        let reset = |(bucket, it): (&Bucket, &Reset)| PropsChange::Bucket(bucket.clone(), it.change());
        types.chain(own).chain(self.resets.iter().map(reset))
    }

    /// A sum over all changes: equal at two nodes that know the same ones, different at others but for a chance of one
    /// in 2^64. Without resets it says whether two nodes have the same properties in force: what one of them has
    /// forgotten does not count.
    pub fn digest(&self, resets: Resets) -> u64 {
        self.digest_of(resets).root()
    }

    /// The same for each part of them: what another node is to compare with its own.
    pub fn leaves(&self, resets: Resets) -> &[u64] {
        self.digest_of(resets).leaves()
    }

    /// [`changes`](Self::changes) of those parts in which a node with these [`leaves`](Self::leaves) knows something
    /// else: resets among them in either case, since they end the earlier properties that such a node may have.
    pub fn changes_unlike(&self, resets: Resets, leaves: &[u64]) -> impl Iterator<Item = PropsChange> {
        self.changes().filter(move |change| self.digest_of(resets).is_unlike(leaves, change))
    }

    /// What this node says of its changes. `is_kept`: whether they are all on its disk.
    pub fn sums(&self, is_kept: bool) -> PropsSums {
        PropsSums { all: self.digest.root(), sets: Some(self.set_digest.root()), is_kept }
    }

    /// Whether a node with these sums knows the same.
    pub fn agrees(&self, theirs: PropsSums) -> bool {
        theirs.sets.map_or(theirs.all == self.digest.root(), |sets| sets == self.set_digest.root())
    }

    fn digest_of(&self, resets: Resets) -> &Digest {
        match resets {
            Resets::Counted => &self.digest,
            Resets::Left => &self.set_digest,
        }
    }
}

fn status(known: &StampedType, all_up: bool) -> TypeStatus {
    match (known.active, all_up) {
        (true, _) => TypeStatus::Active,
        (false, true) => TypeStatus::Ready,
        (false, false) => TypeStatus::Created,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Bytes = Bytes::from_static(b"t");

    fn bucket(name: &str) -> Bucket {
        Bucket::untyped(Bytes::copy_from_slice(name.as_bytes()))
    }

    fn typed(name: &str) -> Bucket {
        Bucket { bucket_type: T, ..bucket(name) }
    }

    #[test]
    fn a_change_is_taken_back_unless_a_later_one_is_in_force() {
        let mut table = BucketTable::default();
        let change = |stamp, n| {
            let props = BucketProps::default().with(&[Prop::NVal(n)]);
            PropsChange::Bucket(bucket("b"), StampedProps { stamp, props: Some(Arc::new(props.unwrap())) })
        };
        let n_val = |table: &BucketTable| table.get(&bucket("b")).unwrap().n_val;
        let (first, second, third) = (change(1, 1), change(2, 2), change(3, 4));
        assert_eq!(table.in_force(&first), None);
        table.apply(first.clone());
        table.take_back(&first, None);
        assert_eq!((n_val(&table), table.len()), (3, 0));
        table.apply(first.clone());
        table.apply(second.clone());
        table.take_back(&second, Some(first.clone()));
        assert_eq!((n_val(&table), table.in_force(&second)), (1, Some(first.clone())));
        table.apply(third);
        table.take_back(&first, None);
        assert_eq!(n_val(&table), 4);
    }

    #[test]
    fn a_bucket_has_its_types_properties_until_it_is_given_some() {
        let mut table = BucketTable::default();
        let b = bucket("b");
        let props = table.changed(&b, &[Prop::AllowMult(true)]).unwrap().unwrap();
        assert!(!table.get(&b).unwrap().allow_mult, "nothing is in force before it is set");
        table.set(&b, StampedProps { stamp: 5, props: Some(props) });
        assert!(table.get(&b).unwrap().allow_mult);
        assert!(!table.get(&bucket("c")).unwrap().allow_mult);
        let props = table.changed(&b, &[Prop::NVal(2)]).unwrap().unwrap();
        assert!(props.allow_mult, "a second change builds on the first");
        assert_eq!(table.least_n_val(&b.bucket_type), Ok(3));
        table.set(&b, StampedProps { stamp: 6, props: Some(props) });
        assert_eq!(table.least_n_val(&b.bucket_type), Ok(2));
        table.set(&b, StampedProps { stamp: 5, props: None });
        assert!(table.get(&b).unwrap().allow_mult, "an earlier change comes late");
        table.set(&b, StampedProps { stamp: 7, props: None });
        assert!(!table.get(&b).unwrap().allow_mult);
        assert_eq!(table.stamp(&b), 7);
    }

    #[test]
    fn other_types_are_not_there() {
        let table = BucketTable::default();
        assert_eq!(table.get(&typed("b")), Err(Error::NoType(T)));
        assert_eq!(table.get_as_replica(&typed("b")), Err(Error::NoType(T)));
        assert_eq!(table.changed(&typed("b"), &[]), Err(Error::NoType(T)));
        for change in [TypeChange::Update(Vec::new()), TypeChange::Activate] {
            assert_eq!(table.changed_type(&T, &change, 1, true), Err(Error::NoType(T)));
        }
        let create = TypeChange::Create(Vec::new());
        let default = Bytes::from_static(DEFAULT_TYPE);
        assert_eq!(table.changed_type(&default, &create, 1, true), Err(Error::DefaultTypeFixed));
    }

    #[test]
    fn a_type_is_created_then_activated_then_updated() {
        let mut table = BucketTable::default();
        let mut change = |change: TypeChange, all_up| {
            let changed = table.changed_type(&T, &change, 10, all_up)?;
            let change = PropsChange::Type(T, changed.clone());
            assert!(table.is_news(&change) || changed.active);
            table.apply(change);
            assert!(table.get_as_replica(&typed("b")).is_ok(), "a replica serves a type that is not active");
            assert_eq!(table.get(&typed("b")).is_ok(), changed.active);
            Ok((changed.stamp, changed.props.n_val))
        };
        let create = |n| TypeChange::Create(vec![Prop::NVal(n)]);
        assert_eq!(change(create(2), false), Ok((10, 2)));
        assert_eq!(change(create(5), true), Ok((11, 5)), "again, while it is not active");
        assert_eq!(change(TypeChange::Update(Vec::new()), true), Err(Error::TypeStatus(TypeStatus::Ready)));
        assert_eq!(change(TypeChange::Activate, false), Err(Error::TypeStatus(TypeStatus::Created)));
        assert_eq!(change(TypeChange::Activate, true), Ok((12, 5)));
        assert_eq!(change(TypeChange::Activate, false), Ok((12, 5)), "it is");
        assert_eq!(change(create(1), true), Err(Error::TypeStatus(TypeStatus::Active)));
        assert_eq!(change(TypeChange::Update(vec![Prop::NVal(4)]), false), Ok((13, 4)));
        let late = StampedType { stamp: 99, active: false, props: Arc::default() };
        table.apply(PropsChange::Type(T, late));
        assert_eq!(table.get(&typed("b")).unwrap().n_val, 4, "a creation that comes late");
        assert!(table.changed(&typed("b"), &[Prop::WriteOnce(true)]).is_err());
    }

    #[test]
    fn the_table_is_bounded() {
        let mut table = BucketTable::default();
        let props = Arc::new(BucketProps::default());
        for i in 0..BUCKETS_WITH_PROPS_MAX {
            table.set(&bucket(&i.to_string()), StampedProps { stamp: 1, props: Some(props.clone()) });
        }
        assert_eq!(
            table.changed(&bucket("one more"), &[Prop::NVal(1)]),
            Err(Error::TooManyBuckets { limit: BUCKETS_WITH_PROPS_MAX })
        );
        assert!(table.changed(&bucket("7"), &[Prop::NVal(1)]).is_ok());
        for i in 0..TYPES_MAX {
            let it = StampedType { stamp: 1, active: false, props: props.clone() };
            table.apply(PropsChange::Type(Bytes::from(i.to_string()), it));
        }
        let create = TypeChange::Create(Vec::new());
        assert_eq!(table.changed_type(&T, &create, 1, true), Err(Error::TooManyTypes { limit: TYPES_MAX }));
        assert_eq!(table.types(true).len(), TYPES_MAX + 1);
        assert_eq!(table.changes().count(), TYPES_MAX + BUCKETS_WITH_PROPS_MAX);
    }

    #[test]
    fn a_reset_frees_the_place_and_resets_are_bounded_too() {
        let mut table = BucketTable::default();
        let props = Arc::new(BucketProps { n_val: 2, ..BucketProps::default() });
        for i in 0..BUCKETS_WITH_PROPS_MAX {
            table.set(&bucket(&i.to_string()), StampedProps { stamp: 1, props: Some(Arc::clone(&props)) });
        }
        table.set(&bucket("7"), StampedProps { stamp: 2, props: None });
        assert_eq!((table.len(), table.resets()), (BUCKETS_WITH_PROPS_MAX - 1, 1));
        assert!(table.changed(&bucket("one more"), &[Prop::NVal(1)]).is_ok());
        assert_eq!(table.changed(&bucket("one more"), &[Prop::NVal(3)]), Ok(None), "these are the defaults");
        for i in 0..RESETS_MAX {
            table.set(&bucket(&i.to_string()), StampedProps { stamp: 3, props: None });
        }
        assert_eq!((table.len(), table.resets()), (0, RESETS_MAX));
        assert_eq!(table.check_reset(&bucket("new")), Err(Error::TooManyResets { limit: RESETS_MAX }));
        assert_eq!(table.check_reset(&bucket("7")), Ok(()), "it is remembered already");
    }

    #[test]
    fn a_reset_that_is_forgotten_leaves_nothing() {
        let mut table = BucketTable::default();
        let empty = [Resets::Counted, Resets::Left].map(|resets| table.digest(resets));
        let props = Some(Arc::new(BucketProps::default()));
        table.set(&bucket("b"), StampedProps { stamp: 1, props: props.clone() });
        table.set(&bucket("b"), StampedProps { stamp: 2, props: None });
        assert_eq!(table.digest(Resets::Left), empty[1], "a reset does not count");
        assert_ne!(table.digest(Resets::Counted), empty[0]);
        assert_eq!(table.resets_up_to(table.applied() - 1, 9), []);
        let due = table.resets_up_to(table.applied(), 9);
        assert_eq!(due.len(), 1);

        let mut later = table.clone();
        later.set(&bucket("b"), StampedProps { stamp: 3, props });
        later.forget(&due[0]);
        assert_eq!((later.len(), later.stamp(&bucket("b"))), (1, 3), "a later change stays");

        table.forget(&due[0]);
        assert_eq!([Resets::Counted, Resets::Left].map(|resets| table.digest(resets)), empty);
        assert_eq!((table.changes().count(), table.stamp(&bucket("b"))), (0, 0));
    }
}
