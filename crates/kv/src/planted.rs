//! Mutants that need more than an expression at their site. In a product build their calls are removed as dead code.

use std::collections::BTreeMap;

use object::{Head, Object};
use ring::{NodeId, Partition, Ring};

use crate::error::Error;
use crate::step::StepContext;
use crate::update::Update;

/// `HintAppliedTwice`: the first sibling of `sent` as a write of its own, with a new dot.
pub(crate) fn write_anew(existing: Head, sent: &Object, ctx: &mut StepContext<'_>) -> Result<Update, Error> {
    let metadata = sent.head().siblings()[0].metadata.clone();
    let put = object::Put { context: None, metadata, value: sent.value(0) };
    Update::plan(Some(existing), put, true, ctx)
}

/// `ListedByTwo`: other nodes list the partitions of `here` as well.
pub(crate) fn cover_twice(
    cover: &mut BTreeMap<NodeId, Vec<Partition>>,
    ring: &Ring,
    n_val: usize,
    here: NodeId,
    usable: impl Fn(Partition, NodeId) -> bool,
) {
    let mine = cover.get(&here).cloned().unwrap_or_default();
    let others = |at: Partition, node: NodeId| node != here && usable(at, node);
    let twice = ring.cover(mine, n_val, None, others).unwrap_or_default();
    twice.into_iter().for_each(|(node, more)| cover.entry(node).or_default().extend(more));
}
