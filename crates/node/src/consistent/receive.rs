//! The receiving end of a catch-up: parts that are looked up, and keys that are dropped before.
//!
//! Left out: the records that go to the journal (`journal.rs`), and the receiver's decisions (crate `strong`).

use engine::{Lookup, Want};
use strong::catch_up::{Checkpoint, Item, Place};

use super::context::GroupContext;
use super::group::GroupKey;
use super::incoming_part::IncomingPart;
use super::keys::drop_keys;
use super::lookups::WaitingLookup;

/// Takes a part that the receiving end of a group wants written, with the record of it; tells whether it can be written
/// at once.
pub(super) fn take_part(
    cx: &mut GroupContext<'_>,
    key: GroupKey,
    (drops, items): (bool, Vec<Item>),
    checkpoint: Checkpoint,
) -> bool {
    let Some(held) = cx.groups.get_mut(key) else { return false };
    held.checkpoint = Some(checkpoint);
    debug_assert!(held.part.is_none(), "the receiving end waits for the part before");
    let mut part = IncomingPart::new(drops, items);
    for name in part.keys() {
        match cx.env.store.lookup_since(&name, Want::Head, held.dropped_at) {
            Lookup::Done(found) => part.on_found(&name, found),
            Lookup::NeedsIo(id) => {
                part.wait();
                cx.lookups.add(id, WaitingLookup::Incoming { group: key, key: name });
            }
        }
    }

    let is_ready = part.is_ready();
    held.part = part;
    is_ready
}

/// Drops the keys of a group whose record says that they are dropped, and of which no part is there: a crash may have
/// come between the record and the drop.
pub(super) fn drop_keys_again(cx: &mut GroupContext<'_>, key: GroupKey) {
    let Some(held) = cx.groups.get_mut(key) else { return };
    let has_to_drop = held
        .checkpoint
        .as_ref()
        .is_some_and(|it| it.is_incomplete && it.base == 0 && it.place == Place::Begin);
    if !has_to_drop {
        return;
    }
    match drop_keys(cx.env, key) {
        Ok(seq) => held.dropped_at = seq,
        // Without the drop it must not be refilled. It is opened again with the next message.
        Err(_) => cx.groups.remove(key),
    }
}
