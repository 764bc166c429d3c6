//! Messages between the shards' threads.
//!
//! A sender collects what it has for a shard during a turn and puts it down at once; the receiver is woken if
//! its box was empty. What waits is bounded by the requests that shards take on ([`node::shard::WORK_MAX`]):
//! every message belongs to one.

use node::{Hop, ShardId};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// One shard's box.
#[derive(Default)]
pub struct Mailbox {
    messages: Mutex<Vec<Hop>>,
    /// Wakes the shard's loop; also what its disk and its jobs call.
    pub wake: Arc<Notify>,
}

/// All shards' boxes.
pub struct Mailboxes(Vec<Mailbox>);

impl Mailboxes {
    /// Boxes for `shards` shards.
    pub fn new(shards: u16) -> Mailboxes {
        Mailboxes((0..shards).map(|_| Mailbox::default()).collect())
    }

    /// The box of a shard.
    pub fn of(&self, shard: ShardId) -> &Mailbox {
        &self.0[usize::from(shard.0)]
    }
}

impl Mailbox {
    /// Puts messages down, in order, and wakes the receiver if it has none yet.
    pub fn put(&self, messages: &mut Vec<Hop>) {
        let mut waiting = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let wake = waiting.is_empty() && !messages.is_empty();
        waiting.append(messages);
        drop(waiting);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Moves what is there to `taken`, which is empty.
    pub fn take(&self, taken: &mut Vec<Hop>) {
        assert!(taken.is_empty(), "messages that were taken are handled first");
        std::mem::swap(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner), taken);
    }
}
