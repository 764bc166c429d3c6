//! Comparison of this shard's trees: with roots and groups of another node, and with the keys of a fold.

use super::kept::KeptTree;
use super::trees::Trees;
use crate::peer::NodeId;
use crate::shard::env::Env;
use engine::fold::KeySegments;
use kv::Error;
use kv::aae::{Grouping, KeyPage, ROOTS_MAX, Range, Tree, TreeAnswer, TreeId};
use std::collections::{BTreeMap, BTreeSet};

/// Groups in one question that are answered.
const GROUPS_MAX: usize = 65_536;

/// Also of days on which keys end here, and none there.
pub(super) fn compare_roots(
    env: &Env,
    trees: &mut Trees,
    from: NodeId,
    roots: Vec<(TreeId, u32)>,
) -> TreeAnswer {
    let (now, wall) = (env.now(), env.clock.wall());
    let (mut differ, mut others) = (Vec::new(), Vec::new());
    let told: BTreeSet<TreeId> = roots.iter().map(|(tree, _)| *tree).collect();
    for (tree, root) in roots.into_iter().take(ROOTS_MAX) {
        if env.knobs.layout.shard_of(tree.first) != env.knobs.id.0 {
            others.push(tree);
        } else if trees.is_whole(tree.first) {
            trees.notes().set_compared(tree.first, from, now);
            if trees.root(tree) != root && tree.is_comparable(wall) {
                differ.push(tree);
            }
            if tree.day == 0 {
                let here = trees.of_all_days(tree);
                differ.extend(here.filter(|it| !told.contains(it) && it.is_comparable(wall)));
            }
        }
    }
    TreeAnswer::Roots { differ, others }
}

pub(super) fn compare_groups(
    trees: &Trees,
    tree: TreeId,
    by: Grouping,
    groups: &[(u32, u32)],
) -> Result<TreeAnswer, Error> {
    if groups.len() > GROUPS_MAX {
        return Err(Error::Overload);
    }
    let kept = trees.get(tree).map(KeptTree::tree);
    let hash = |number| kept.map_or(0, |tree| tree.group_by(by, number));
    let differ = groups.iter().filter(|(number, theirs)| hash(*number) != *theirs).map(|(number, _)| *number);
    // An empty tree tells apart as much as the other does.
    let bits = kept.map_or(kv::aae::BITS_MAX, Tree::bits);
    Ok(TreeAnswer::Groups { bits, differ: differ.collect() })
}

/// Compares a tree with the keys of a fold, where nothing has changed meanwhile. Where something was lost, or
/// `has_left_out` says that it cannot be read, it is no wonder that they differ.
pub(super) fn check_tree(
    env: &mut Env,
    trees: &mut Trees,
    (tree, version): (TreeId, Option<Option<u64>>),
    range: &Range,
    page: &KeyPage,
    has_left_out: bool,
) {
    let kept = trees.get(tree);
    let is_as_it_was = version == Some(kept.map(|kept| kept.version()));
    if !is_as_it_was || page.next.is_some() || !trees.is_whole(tree.first) {
        return;
    }
    let bits = range.bits;
    let mut hashes: BTreeMap<u32, u32> = range.segments.iter().map(|&it| (it, 0)).collect();
    for (key, hash) in &page.keys {
        *hashes.entry(KeySegments::number_of(key, bits)).or_default() ^= hash;
    }
    let group = |segment: u32| kept.map_or(0, |kept| kept.tree().group(segment, bits));
    let is_right = hashes.into_iter().all(|(segment, hash)| group(segment) == hash);
    let is_finer = kept.is_some_and(|kept| kept.tree().bits() < bits);
    if !is_right && !is_finer {
        let keys = env.ownership().keys_of(tree.first, None);
        let is_known = kept.is_some_and(|kept| kept.is_unsure())
            || has_left_out
            // Its keys end by clocks.
            || tree.day != 0
            || env.store.check_range(&keys.start, &keys.end).is_err();
        env.counters.trees_wrong += u64::from(!is_known);
        trees.make_anew(tree.first);
    }
}
