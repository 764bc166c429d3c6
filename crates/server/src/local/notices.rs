//! Lines of the log about the finds of a shard since the last tick: damage, losses of copies, and clocks that are
//! ahead.

use node::Shard;

/// Logs the finds of a shard.
pub(super) fn tell(shard: &mut Shard) {
    for damage in shard.control().take_damage() {
        tracing::warn!(%damage, "damage found");
    }
    for loss in shard.control().take_copy_losses() {
        let from = shard.status().name_of(loss.from);
        let others: Vec<String> = loss.others.iter().map(|&node| shard.status().name_of(node)).collect();
        match others[..] {
            [] => tracing::error!(
                from,
                partition = %loss.partition,
                "the sender of a partition has lost objects, and no other replica is complete: these objects are lost"
            ),
            _ => tracing::warn!(
                from,
                partition = %loss.partition,
                others = others.join(", "),
                "the sender of a partition has lost objects: they are copied from other replicas, too"
            ),
        }
    }
    if let Some(ahead) = shard.control().take_time_ahead() {
        let writer = ahead.writer.map_or("unknown".to_owned(), |node| shard.status().name_of(node));
        tracing::warn!(
            writer,
            seconds = ahead.seconds,
            "a version's time is far ahead of this node's clock: check the clocks of all nodes"
        );
    }
}
