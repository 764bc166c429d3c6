//! What a long walk will meet, fetched several nodes at a time.
//!
//! A walk from node to node waits for memory at each, since it knows where the next one is only when it has seen this
//! one. But the links of a higher level lead past many nodes at once: a walk that comes to a node with such a link has
//! several places ahead of it, a stretch of the list from each, and goes through all of these together, so that their
//! waits become one. What it does there is to ask for memory, and nothing else: the walk itself goes on from node to
//! node, and sees what it would have seen.
//!
//! Invariant: the tower of `next_tall` has [`LEVEL`], since the node was reached by a link of it. A walk meets the
//! node, as what is linked on a level is linked on all below it; or does not, where a writer has linked it behind the
//! walk's back: then the walk waits as it would have.

use super::{LINK_BYTES, Node, NodeRef};
use crate::prefetch::prefetch;
use std::ptr::NonNull;

/// Of the nodes one in 4^2 has a link of this level: a stretch is long enough to be worth its beginning, and short
/// enough that one more of them is no loss where a walk ends.
pub(super) const LEVEL: usize = 2;

/// Stretches that are gone through together: as many lines of memory as a core can wait for at once, each node having
/// two or three.
const LANES: usize = 8;

/// A walk that has come so far is long, twice as long as what it fetches at once: a short one would fetch more than it
/// meets.
const LONG_STEPS: u32 = 256;

/// Nodes of a stretch that are fetched at most. One in a hundred is longer, and the walk waits there as it would have.
const STRETCH_MAX: usize = 64;

/// A line of memory.
const LINE_BYTES: usize = 64;

/// A node's link, header and key lie in the first line or two, the head in the next.
const NODE_LINES: usize = 3;

/// What a walk knows of what is ahead of it.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    /// The node at which it fetches more, once the walk comes there; none if there is none.
    next_tall: Option<NonNull<Node>>,
    /// Nodes that the walk has come to.
    steps: u32,
}

/// Nodes from one on, up to another or the end of all.
#[derive(Clone, Copy)]
struct Stretch<'a> {
    at: Option<NodeRef<'a>>,
    end: Option<NodeRef<'a>>,
}

impl Ahead {
    /// Of a walk that is nowhere.
    pub(super) const NOWHERE: Ahead = Ahead { next_tall: None, steps: 0 };

    /// Of a walk that begins behind `tall`.
    ///
    /// # Safety
    /// `tall` is the head, or its tower has [`LEVEL`].
    pub(super) unsafe fn behind(tall: NodeRef<'_>) -> Ahead {
        // SAFETY: as the caller vouches.
        Ahead { next_tall: unsafe { tall.next_at(LEVEL) }.map(|next| next.0), steps: 0 }
    }

    /// The walk has come to `node`.
    #[inline]
    pub(super) fn come_to(&mut self, node: NodeRef<'_>) {
        self.steps = self.steps.saturating_add(1);
        // A model need not know what a processor does ahead.
        if self.next_tall == Some(node.0) && cfg!(not(loom)) {
            // SAFETY: the node was reached by a link of this level.
            self.next_tall = unsafe { self.go_ahead(node) }.map(|next| next.0);
        }
    }

    /// Fetches what is ahead of `node`, if the walk is long, and tells where to go on with that.
    ///
    /// # Safety
    /// The tower of `node` has [`LEVEL`].
    #[cold]
    unsafe fn go_ahead<'a>(&self, node: NodeRef<'a>) -> Option<NodeRef<'a>> {
        // SAFETY: as the caller vouches; each other was reached by a link of this level.
        let next = |node: NodeRef<'a>| unsafe { node.next_at(LEVEL) };
        if self.steps < LONG_STEPS {
            return next(node);
        }
        let mut from = Some(node);
        let mut stretches = [(); LANES].map(|()| {
            let at = from;
            from = at.and_then(next);
            Stretch { at, end: from }
        });
        for _ in 0..STRETCH_MAX {
            let mut goes_on = false;
            for stretch in &mut stretches {
                goes_on |= stretch.step();
            }
            if !goes_on {
                break;
            }
        }
        from
    }
}

impl Stretch<'_> {
    /// Asks for the next node; false if there is no other.
    fn step(&mut self) -> bool {
        self.at = self.at.and_then(NodeRef::next).filter(|next| !next.is(self.end));
        if let Some(next) = self.at {
            let first = next.0.as_ptr().cast::<u8>().wrapping_sub(LINK_BYTES);
            (0..NODE_LINES).for_each(|line| prefetch(first.wrapping_add(line * LINE_BYTES)));
        }
        self.at.is_some()
    }
}
