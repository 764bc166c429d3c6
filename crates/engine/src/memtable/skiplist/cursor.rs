//! Walks over a list in its order: one that borrows it, and one that keeps it alive.
//!
//! Both go forward only, from node to node, and see what is linked ahead of them meanwhile.

use super::ahead::{self, Ahead};
use super::{Node, NodeRef, SkipList};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

/// A borrowed walk over (key, seq, entry), in order. Entries inserted ahead of it while it goes may turn up or not.
#[derive(Clone)]
pub struct Iter<'a> {
    pub(super) node: Option<NodeRef<'a>>,
}

// SAFETY: an `Iter` is a shared borrow of a `SkipList`, which is `Sync`.
unsafe impl Send for Iter<'_> {}
// SAFETY: as above.
unsafe impl Sync for Iter<'_> {}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a [u8], u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let node = self.node?;
        self.node = node.next();
        Some((node.key(), node.seq(), node.entry()))
    }
}

/// A place in the list that keeps the list alive: at an entry, or past the last one, where a new cursor is.
#[derive(Clone)]
pub struct Cursor {
    /// A node of `list`.
    node: Option<NonNull<Node>>,
    ahead: Ahead,
    list: Arc<SkipList>,
}

// SAFETY: a `Cursor` shares a `SkipList`, which is `Send` and `Sync`; its pointers are into that list.
unsafe impl Send for Cursor {}
// SAFETY: as above.
unsafe impl Sync for Cursor {}

impl Cursor {
    pub(in crate::memtable) fn new(list: Arc<SkipList>) -> Self {
        Self { node: None, ahead: Ahead::NOWHERE, list }
    }

    /// Goes to the first entry of all.
    pub fn seek_first(&mut self) {
        let head = self.list.head();
        // SAFETY: it is the head.
        let ahead = unsafe { Ahead::behind(head) };
        (self.node, self.ahead) = (head.next().map(|node| node.0), ahead);
    }

    /// Goes to the first entry at or after `key`: the newest of its key.
    pub fn seek(&mut self, key: &[u8]) {
        self.seek_seq(key, u64::MAX);
    }

    /// Goes to the first entry at or after (`key`, `seq`): of `key` itself, the newest with at most `seq`.
    pub fn seek_seq(&mut self, key: &[u8], seq: u64) {
        let mut tall = self.list.head();
        let found = self.list.descend(key, seq, |level, node| {
            if level == ahead::LEVEL {
                tall = node;
            }
        });
        // SAFETY: it is the head, or was reached on the level.
        let ahead = unsafe { Ahead::behind(tall) };
        (self.node, self.ahead) = (found.map(|node| node.0), ahead);
    }

    /// Goes to an entry of the last key before `key`, or of the last key of all; past the last one if there is none.
    pub fn seek_before(&mut self, key: Option<&[u8]>) {
        self.node = self.list.last_before(key).map(|node| node.0);
        self.ahead = Ahead::NOWHERE;
    }

    /// Goes one entry on, and tells whether that is an older version of the same key. Panics past the last entry.
    pub fn step(&mut self) -> bool {
        let node = self.node();
        let next = node.next();
        // Whoever walks on finds it in the cache.
        // SAFETY: every tower has level 0.
        next.inspect(|next| unsafe { next.prefetch_next(0) });
        let is_older = next.is_some_and(|next| next.key() == node.key());
        let mut ahead = self.ahead;
        if let Some(next) = next {
            ahead.come_to(next);
        }
        (self.node, self.ahead) = (next.map(|node| node.0), ahead);
        is_older
    }

    /// True at an entry, false past the last one.
    pub fn valid(&self) -> bool {
        self.node.is_some()
    }

    /// The entry's key. Panics past the last entry.
    pub fn key(&self) -> &[u8] {
        self.node().key()
    }

    /// The entry's seq. Panics past the last entry.
    pub fn seq(&self) -> u64 {
        self.node().seq()
    }

    /// The entry. Panics past the last one.
    pub fn entry(&self) -> &[u8] {
        self.node().entry()
    }

    /// The reference is bound to this borrow, through which the list lives.
    fn node(&self) -> NodeRef<'_> {
        NodeRef(self.node.expect("the cursor is at an entry"), PhantomData)
    }
}
