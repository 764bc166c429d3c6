//! The step that a put and a delete share: from the stored head and a new sibling to the version to write.
//!
//! 1. [`Update::plan`] decides on the stored head alone which of its siblings stay.
//! 2. If any with a value does ([`Update::needs_values`]), the coordinator reads the stored values.
//! 3. [`Update::finish`] makes the new version, and holds it against the limits.
//!
//! A write of a key that is *written once* ([`Update::once`]) rests on nothing that is stored. All such writes of a key
//! are events of one actor, ordered by their time and then by what they write, so each covers those before it: replicas
//! that join two of them keep the later one, whichever came first. A tombstone covers what was deleted and nothing
//! later.
//!
//! A write *as is* (`asis`) has no event of its own. It stands for a version that exists elsewhere with the
//! context given, so it is merged with what is stored as another replica would be: it replaces what its context
//! covers, is dropped where the stored context covers it, and is a sibling otherwise. Its dot is the one with
//! the highest counter in the given context, and what results from writing it to an absent key has exactly
//! that context. Without a context it is an ordinary write.

use base::checksum::crc32c;
use bytes::Bytes;
use object::{Actor, Context, Dot, Head, MergePlan, Metadata, Object, Pick, Policy, UpdatePlan};

use crate::error::Error;
use crate::limits::Limits;
use crate::step::StepContext;
use crate::stored::Stored;
use crate::stored_head::{damaged, view};
use crate::stored_head::{decode, encode};

/// Bits of a counter of what is written once that do not come from the clock but from what is written: writes of one
/// microsecond differ in them. What is left for microseconds lasts until the year 2112.
const CONTENT_BITS: u32 = 12;

/// A planned version of a key.
#[derive(Debug)]
pub(crate) enum Update {
    /// A new event.
    Event { existing: Option<Head>, put: object::Put, plan: UpdatePlan },
    /// A version from elsewhere, merged with what is stored.
    Merge { existing: Head, plan: MergePlan, new: Object },
    /// A version from elsewhere where nothing was stored.
    AsIs(Object),
}

/// A version to write.
#[derive(Debug)]
pub(crate) struct Version {
    pub head: Bytes,
    pub values: Bytes,
}

impl Version {
    /// Head and values.
    pub fn into_parts(self) -> (Bytes, Bytes) {
        (self.head, self.values)
    }
}

impl Update {
    /// Plans `put` over `existing`.
    pub fn plan(
        existing: Option<Head>,
        mut put: object::Put,
        is_primary: bool,
        ctx: &mut StepContext<'_>,
    ) -> Result<Update, Error> {
        // Before the tombstone that is being reaped: the stored one may be newer.
        put.see_absent(existing.as_ref(), ctx.wall.millis());
        see_reaped(&mut put, ctx)?;
        let dot = (ctx.next_dot)(is_primary)?;
        if existing.as_ref().is_some_and(|head| head.context().covers(dot)) {
            return Err(Error::Damaged(format!("the stored context covers the new dot {dot:?}")));
        }
        let plan = object::plan_update(existing.as_ref(), &put, dot, ctx.props.policy()).map_err(refused)?;
        ctx.limits.check_siblings(plan.sibling_count())?;
        Ok(Update::Event { existing, put, plan })
    }

    /// A version of a key that is written once.
    pub fn once(metadata: Metadata, value: Bytes) -> Result<Update, Error> {
        let micros = metadata.last_modified.min(u64::MAX >> CONTENT_BITS);
        let put = |counter: u64| {
            let put = object::Put { context: None, metadata: metadata.clone(), value: value.clone() };
            object::update(None, put, Dot::new(Actor::WRITE_ONCE, counter), Policy::AllowMult)
                .map_err(refused)
        };
        let first = (micros << CONTENT_BITS).max(1);
        let content = crc32c(&encode(put(first)?.head())).rotate_left(1) ^ crc32c(&value);
        Ok(Update::AsIs(put(first | u64::from(content >> (u32::BITS - CONTENT_BITS)))?))
    }

    /// Plans `put` as it is, under its own context, over `existing`.
    pub fn plan_as_is(
        existing: Option<Head>,
        put: object::Put,
        is_primary: bool,
        ctx: &mut StepContext<'_>,
    ) -> Result<Update, Error> {
        let Some((given, newest)) = put.context.as_ref().and_then(|given| Some((given, newest_dot(given)?)))
        else {
            return Update::plan(existing, put, is_primary, ctx);
        };
        if given.covers((ctx.next_dot)(is_primary)?) {
            // It would hide this store's next writes of the key from birth.
            return Err(Error::BadContext);
        }
        let before = Some(without(given, newest));
        let put = object::Put { context: before, ..put };
        let new = object::update(None, put, newest, Policy::AllowMult).map_err(refused)?;
        let reaped = ctx.grave.tombstone().map(decode).transpose()?;
        let Some(existing) = existing.or(reaped) else { return Ok(Update::AsIs(new)) };
        let update = Update::join(existing, new).map_err(refused)?;
        if let Update::Merge { plan, .. } = &update {
            ctx.limits.check_siblings(plan.picks().len())?;
        }
        Ok(update)
    }

    /// Plans the join of a version from elsewhere with the stored one.
    pub fn join(existing: Head, new: Object) -> Result<Update, object::Error> {
        let plan = object::plan_merge(&existing, new.head())?;
        Ok(Update::Merge { existing, plan, new })
    }

    /// Asserts that the plan fits the versions that it is of.
    pub fn invariants(&self) {
        match self {
            Update::Event { existing, plan, .. } => {
                let stored = existing.as_ref().map_or(0, |head| head.siblings().len());
                assert!(plan.kept().iter().all(|&at| at < stored), "a sibling that stays is stored");
                assert!(plan.kept().is_sorted_by(|a, b| a < b), "each sibling stays once, in order");
            }
            Update::Merge { plan, .. } => {
                let siblings = plan.head().siblings().len();
                assert_eq!(plan.picks().len(), siblings, "each sibling of a join has one value");
            }
            Update::AsIs(_) => {}
        }
    }

    /// Whether the version to write is the stored one.
    pub fn changes_nothing(&self) -> bool {
        matches!(self, Update::Merge { existing, plan, .. } if plan.head() == existing)
    }

    /// Whether the values of stored siblings are needed to finish.
    pub fn needs_values(&self) -> bool {
        let has_value = |head: &Head, at: usize| head.siblings()[at].value_len > 0;
        match self {
            Update::Event { existing: Some(head), plan, .. } => {
                plan.kept().iter().any(|&at| has_value(head, at))
            }
            Update::Merge { existing, plan, .. } => {
                plan.picks().iter().any(|pick| matches!(pick, Pick::Left(at) if has_value(existing, *at)))
            }
            Update::Event { existing: None, .. } | Update::AsIs(_) => false,
        }
    }

    /// The version to write, within the limits for what clients write. `stored` is what was read, with the values
    /// if they are needed.
    pub fn finish_within(self, stored: Option<Stored>, limits: &Limits) -> Result<Version, Error> {
        let version = self.finish(stored)?;
        limits.check_object(&version.head, &version.values)?;
        Ok(version)
    }

    /// The version to write. Replicas must be able to become equal, so for what they send each other no limit
    /// holds but those of the store.
    pub fn finish(self, stored: Option<Stored>) -> Result<Version, Error> {
        if cfg!(debug_assertions) {
            self.invariants();
        }
        let needs_values = self.needs_values();
        let values = stored.and_then(|stored| stored.value).filter(|_| needs_values).unwrap_or_default();
        let object = match self {
            Update::AsIs(object) => object,
            Update::Event { existing: Some(head), put, plan } if !plan.kept().is_empty() => {
                let kept = values_of(&head, &values, plan.kept().iter().copied())?;
                plan.finish(Some(head), &kept, put)
            }
            Update::Event { existing, put, plan } => plan.finish(existing, &[], put),
            Update::Merge { existing, plan, new } => {
                let left = plan.picks().iter().filter_map(|pick| match pick {
                    Pick::Left(at) => Some(*at),
                    Pick::Right(_) => None,
                });
                let mut left = values_of(&existing, &values, left)?.into_iter();
                let values: Option<Vec<Bytes>> = plan
                    .picks()
                    .iter()
                    .map(|pick| match pick {
                        Pick::Left(_) => left.next(),
                        Pick::Right(at) => Some(new.value(*at)),
                    })
                    .collect();
                plan.finish(&values.expect("one value was taken for each pick"))
            }
        };
        let (head, values) = object.into_parts();
        Ok(Version { head: encode(&head), values })
    }
}

/// The values of the siblings at `places`, ascending; values shorter or longer than the head says are damage.
fn values_of(head: &Head, values: &Bytes, places: impl Iterator<Item = usize>) -> Result<Vec<Bytes>, Error> {
    if values.is_empty() {
        // Nothing was read because whoever stays has no value.
        return Ok(places.map(|_| Bytes::new()).collect());
    }
    let object = Object::new(head.clone(), values.clone()).map_err(damaged)?;
    Ok(places.map(|at| object.value(at)).collect())
}

/// The time of a new version of a key. `in_hand` is the newest among the versions of it that the coordinator has met;
/// the tombstone that this node remembers counts too.
pub(crate) fn time_of_version(in_hand: u64, ctx: &mut StepContext<'_>) -> Result<u64, Error> {
    let in_hand = match ctx.grave.tombstone() {
        Some(tombstone) => in_hand.max(view(tombstone)?.newest_time()),
        None => in_hand,
    };
    ctx.clock.see(in_hand, ctx.wall, None);
    Ok(ctx.clock.next(ctx.wall, in_hand))
}

/// Takes the write to have seen the tombstone that this node remembers: whoever still has that need not keep it.
fn see_reaped(put: &mut object::Put, ctx: &StepContext<'_>) -> Result<(), Error> {
    if let Some(tombstone) = ctx.grave.tombstone() {
        let seen = view(tombstone)?.context().to_context();
        put.context.get_or_insert_default().join(&seen);
    }
    Ok(())
}

fn newest_dot(context: &Context) -> Option<Dot> {
    let newest = context.entries().iter().max_by_key(|&&(actor, counter)| (counter, actor))?;
    Some(Dot::new(newest.0, newest.1))
}

/// `context` as it was before `dot`, its actor's last event in it.
fn without(context: &Context, dot: Dot) -> Context {
    let before = |&(actor, counter): &(object::Actor, u64)| {
        let counter = if actor == dot.actor { counter - 1 } else { counter };
        (counter > 0).then(|| Dot::new(actor, counter))
    };
    context.entries().iter().filter_map(before).collect()
}

/// Why a write cannot be planned: for a cause that the client brought.
fn refused(error: object::Error) -> Error {
    match error {
        object::Error::DotCovered(_) | object::Error::Context(_) => Error::BadContext,
        object::Error::TooManyActors => {
            let limit = object::ACTORS_MAX;
            Error::TooLarge { what: "causal context (actors)", len: limit + 1, limit }
        }
        other => damaged(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn once(last_modified: u64, value: &'static str) -> Object {
        let metadata = Metadata { last_modified, ..Metadata::default() };
        let Ok(Update::AsIs(object)) = Update::once(metadata, Bytes::from(value)) else {
            panic!("a version")
        };
        object
    }

    #[test]
    fn of_what_is_written_once_the_latest_stays_in_any_order() {
        let (early, late) = (once(7, "early"), once(8, "late"));
        let (same, other) = (once(8, "same"), once(8, "other"));
        assert_eq!(once(7, "early"), early, "a write that is repeated is the same");
        for (a, b) in [(&early, &late), (&late, &same), (&same, &other), (&late, &other)] {
            let (left, right) = (object::merge(a, b).unwrap(), object::merge(b, a).unwrap());
            assert_eq!(left, right);
            assert_eq!(left.head().siblings().len(), 1);
        }
        assert_eq!(object::merge(&late, &early).unwrap(), late);
        assert_eq!(once(u64::MAX, "the end of time").head().siblings().len(), 1);
        assert_eq!(once(0, "").head().siblings().len(), 1);
    }
}
