//! The keys of a group in its store: their ranges, scans, drops and losses.

use std::collections::BTreeSet;

use bytes::Bytes;
use engine::Seq;
use object::key;

use super::group::GroupKey;
use crate::shard::env::Env;

/// Drops all keys of a group; tells the version of the drop.
pub(super) fn drop_keys(env: &mut Env, group: GroupKey) -> Result<Seq, engine::Error> {
    let ranges = ranges_of(env, group);
    let drops: Vec<engine::Write<'_>> = ranges
        .iter()
        .map(|range| engine::Write::DropRange { start: &range.start, end: &range.end })
        .collect();
    if drops.is_empty() { Ok(Seq(0)) } else { env.store.write(&drops) }
}

/// The keys of a group.
fn ranges_of(env: &Env, group: GroupKey) -> Vec<key::KeyRange> {
    let types = types_of(env, group.n_val).into_iter();
    types.map(|bucket_type| key::objects_of_type(group.prefix, &bucket_type)).collect()
}

/// The consistent bucket types with groups of so many voters.
pub(super) fn types_of(env: &Env, n_val: u8) -> BTreeSet<Bytes> {
    let types = env.props.types(true).into_iter();
    let is_of_group = |props: &kv::BucketProps| props.consistent && props.n_val == u32::from(n_val);
    types.filter(|(_, _, props)| is_of_group(props)).map(|(name, _, _)| name).collect()
}

/// Whether a ledger key is of one of these bucket types.
pub(super) fn is_of(types: &BTreeSet<Bytes>, ledger_key: &[u8]) -> bool {
    key::bucket_type_of(ledger_key).is_some_and(|name| types.contains(&*name))
}

/// Whether the store may have lost keys of a group, which it dropped last with the version `dropped_at`.
pub(super) fn has_losses(env: &Env, key: GroupKey, dropped_at: Seq) -> bool {
    let is_lost =
        |range: &key::KeyRange| env.store.check_range_since(&range.start, &range.end, dropped_at).is_err();
    ranges_of(env, key).iter().any(is_lost)
}
