//! An ordered list of entries with one writer and any number of readers that never lock.
//!
//! Follows Pugh's "Skip Lists: A Probabilistic Alternative to Balanced Trees" (1990), laid out in an arena and
//! published as LevelDB's and RocksDB's memtables do. The order is (key bytes ascending, seq descending), so the first
//! node at or after (key, s) is the newest entry of the key that a reader at seq s may see.
//!
//! Invariants:
//! - a node is complete (header, key, entry, tower) before the release store that links it, and afterwards only the
//!   pointers change, by atomic stores: whoever loads a link with acquire sees the whole node;
//! - a node is linked from level 0 up, so one that is seen at a level is linked at all levels below it;
//! - nothing is unlinked, and nodes live as long as the list: a reference to a node is good while the list is borrowed.
//!
//! A node in the arena, in ascending addresses; a `NonNull<Node>` points at the header, so that the low levels, the
//! header and the key, which a search reads together, are neighbours:
//!
//! ```text
//! next[height-1] .. next[1] next[0] | seq u64, key_len u32, entry_len u32, before | key | entry | pad to 8
//! ```
//!
//! A descent waits for memory at each node that it looks at: so it asks for the next level's while it compares this
//! one's.
//!
//! A lookup of a key goes by the list's point index (`index`), and descends only where that cannot tell.
//!
//! An insert may be deferred: the node is complete and in the index, where lookups of its key's newest entry find it,
//! and is linked later with others, whose places are searched for at once (`lanes`). Until then walks do not meet it,
//! and neither do lookups of older entries.
//!
//! Left out: removal, and walking backwards for readers; nobody needs them.

mod ahead;
mod cursor;
mod lanes;

use std::cmp;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::arena::{ALIGN, Arena, Bump};
use super::index::{Found, Index};
use super::sync::{AtomicPtr, AtomicUsize, Written};
use crate::prefetch::prefetch;

pub use cursor::{Cursor, Iter};

/// Levels of the tallest tower. With one node in four rising a level, 12 levels serve 4^12 = 16 million entries.
const HEIGHT_MAX: usize = 12;

/// Any constant but zero: equal histories give equal lists, and a simulation replays.
const HEIGHT_SEED: u64 = 0x2545_F491_4F6C_DD1D;

const LINK_BYTES: usize = size_of::<AtomicPtr<Node>>();
const NODE_BYTES: usize = size_of::<Node>();

// The tower ends where the header begins, and both start aligned.
const _: () = assert!(LINK_BYTES.is_multiple_of(ALIGN) && NODE_BYTES.is_multiple_of(ALIGN));
const _: () = assert!(align_of::<AtomicPtr<Node>>() <= ALIGN && align_of::<Node>() <= ALIGN);

/// What readers share.
pub(super) struct SkipList {
    /// A node before all others, with a tower of [`HEIGHT_MAX`] and no key.
    head: NonNull<Node>,
    /// Levels in use. A stale value is harmless: a search then starts lower, or at a level that is still empty.
    height: AtomicUsize,
    // Counters for their own sake: no model needs to see them.
    len: std::sync::atomic::AtomicUsize,
    bytes: std::sync::atomic::AtomicUsize,
    /// Holds complete nodes of this list only.
    index: Index<Node>,
    arena: Arena,
}

// SAFETY: the nodes behind `head` live in `arena`, which moves with the list; they are plain bytes and atomics.
unsafe impl Send for SkipList {}
// SAFETY: through `&SkipList` nodes are only read; the one `Inserter` changes only atomics of nodes that are linked.
unsafe impl Sync for SkipList {}

/// The one writer of a list.
pub(super) struct Inserter {
    list: Arc<SkipList>,
    bump: Bump,
    height_state: u64,
    /// The place just after the node that was linked last.
    /// A next insert that belongs right there, as when keys come in order, needs no search.
    splice: Before,
    /// Nodes that are to be linked, oldest first; at most [`lanes::LANES`].
    deferred: Vec<Deferred>,
}

/// A place in the list: for each level the last node before it, the head where there is none.
#[derive(Clone, Copy)]
struct Before([NonNull<Node>; HEIGHT_MAX]);

/// A node that is in the index and not linked.
#[derive(Clone, Copy)]
struct Deferred {
    node: NonNull<Node>,
    height: usize,
}

// SAFETY: `splice` and `deferred` point into the list that `list` keeps alive, and the list may be used from any
// thread.
unsafe impl Send for Inserter {}
// SAFETY: `&Inserter` gives nothing but the shared list.
unsafe impl Sync for Inserter {}

/// A node's header; the tower lies before it, the key and the entry after it.
#[repr(C)]
struct Node {
    header: Written<Header>,
    /// The node before it at level 0. The writer's own: readers walk forwards only, so no order is needed.
    before: AtomicPtr<Node>,
}

#[derive(Clone, Copy)]
struct Header {
    seq: u64,
    key_len: u32,
    entry_len: u32,
}

/// A complete node of a list that is borrowed for `'a`.
#[derive(Clone, Copy)]
struct NodeRef<'a>(NonNull<Node>, PhantomData<&'a SkipList>);

impl SkipList {
    /// The newest entry of `key`, which has this hash, with a seq of at most `seq_max`.
    pub(super) fn get(&self, key: &[u8], hash: u64, seq_max: u64) -> Option<(u64, &[u8])> {
        match self.index.find(hash, |node| self.node(node).key() == key) {
            Found::Newest(_, newest) if self.node(newest).seq() <= seq_max => {
                Some((self.node(newest).seq(), self.node(newest).entry()))
            }
            Found::Absent => None,
            // Of a key with many versions an old one may be far from the newest: a descent finds it sooner.
            Found::Newest(..) | Found::Unknown => self.search(key, seq_max),
        }
    }

    /// [`get`](Self::get) without the index.
    pub(super) fn search(&self, key: &[u8], seq_max: u64) -> Option<(u64, &[u8])> {
        let node = self.seek(key, seq_max)?;
        (node.key() == key).then(|| (node.seq(), node.entry()))
    }

    /// The entries at and after (`key`, `seq`).
    pub(super) fn iter_from(&self, key: &[u8], seq: u64) -> Iter<'_> {
        Iter { node: self.seek(key, seq) }
    }

    /// All entries.
    pub(super) fn iter(&self) -> Iter<'_> {
        Iter { node: self.head().next() }
    }

    /// Fetches where the index would have a key of this hash.
    pub(super) fn prefetch(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    fn head(&self) -> NodeRef<'_> {
        self.node(self.head)
    }

    /// Counts one more entry, of so many bytes.
    fn count(&self, bytes: usize) {
        self.len.store(self.len.load(Relaxed) + 1, Relaxed);
        self.bytes.store(self.bytes.load(Relaxed) + bytes, Relaxed);
    }

    /// A node of this list, borrowed with it.
    fn node(&self, node: NonNull<Node>) -> NodeRef<'_> {
        NodeRef(node, PhantomData)
    }

    /// The first node at or after (`key`, `seq`).
    fn seek(&self, key: &[u8], seq: u64) -> Option<NodeRef<'_>> {
        self.descend(key, seq, |_, _| ())
    }

    /// The last node whose key is before `key`, or the last of all.
    fn last_before(&self, key: Option<&[u8]>) -> Option<NodeRef<'_>> {
        let mut node = self.head();
        for level in (0..self.height.load(Relaxed)).rev() {
            // SAFETY: the head has every level; any other node was reached through a link of this level or a higher.
            while let Some(next) = unsafe { node.next_at(level) } {
                if key.is_some_and(|key| next.key() >= key) {
                    break;
                }
                node = next;
            }
        }
        (!node.is(Some(self.head()))).then_some(node)
    }

    /// The first node at or after (`key`, `seq`), having called `before` with the last node before it at each level.
    fn descend<'a>(
        &'a self,
        key: &[u8],
        seq: u64,
        mut before: impl FnMut(usize, NodeRef<'a>),
    ) -> Option<NodeRef<'a>> {
        let mut node = self.head();
        let mut level = self.height.load(Relaxed) - 1;
        let mut beyond = None; // the node the level above ended at: often met again, and known to be at or after
        loop {
            // SAFETY: the head has every level; any other node was reached through a link of this level or a higher.
            let next = unsafe { node.next_at(level) };
            // SAFETY: as above; the level is one below those.
            level.checked_sub(1).inspect(|&below| unsafe { node.prefetch_next(below) });
            match next {
                Some(next) if !next.is(beyond) && next.cmp(key, seq).is_lt() => node = next,
                _ => {
                    before(level, node);
                    if level == 0 {
                        return next;
                    }
                    beyond = next;
                    level -= 1;
                }
            }
        }
    }
}

impl Inserter {
    /// The writer of a new, empty list, whose index is made for so many keys at first.
    pub(super) fn new(index_keys: usize) -> Self {
        let (arena, mut bump) = (Arena::new(), Bump::new());
        let head = Node::alloc(&arena, &mut bump, HEIGHT_MAX, &[], 0, &[]).0;
        let list = SkipList {
            head,
            height: AtomicUsize::new(1),
            len: std::sync::atomic::AtomicUsize::new(0),
            bytes: std::sync::atomic::AtomicUsize::new(0),
            index: Index::new(index_keys),
            arena,
        };
        let splice = Before([head; HEIGHT_MAX]);
        Self { list: Arc::new(list), bump, height_state: HEIGHT_SEED, splice, deferred: Vec::new() }
    }

    /// The list that it writes, for reading.
    pub(super) fn list(&self) -> &Arc<SkipList> {
        &self.list
    }

    /// Adds an entry, the parts joined, of a key that has this hash; (key, seq) must be new. It links what was deferred
    /// before.
    pub(super) fn insert(&mut self, key: &[u8], hash: u64, seq: u64, entry_parts: &[&[u8]]) {
        self.link_deferred();
        let Self { list, bump, height_state, splice, .. } = self;
        let list = &**list;
        let height = random_height(height_state);
        let claim = list.index.claim(hash, |node| list.node(node).key() == key);
        let (node, bytes) = Node::alloc(&list.arena, bump, height, key, seq, entry_parts);
        let (older, newer) = match claim.newest {
            Some(newest) if list.node(newest).seq() < seq => (Some(newest), None),
            newest => (None, newest),
        };
        match older {
            // A newer version stands right before the newest so far, and without a tower nothing else is to be
            // found: three in four overwrites need no search. The fourth has a tower, so that the versions of a key
            // that is written again and again can be passed by.
            Some(older) if height == 1 => link_between(list, list.node(older).before(), node, Some(older)),
            _ => link(list, splice, node, height, key, seq),
        }
        claim.publish(newer.unwrap_or(node));
        list.count(bytes);
    }

    /// Adds an entry that is linked later, and is found through the index until then. Its seq must be above those of
    /// all others.
    pub(super) fn defer(&mut self, key: &[u8], hash: u64, seq: u64, entry_parts: &[&[u8]]) {
        if self.deferred.len() == lanes::LANES {
            self.link_deferred();
        }
        let Self { list, bump, height_state, splice, deferred } = self;
        let list = &**list;
        let height = random_height(height_state);
        let claim = list.index.claim(hash, |node| list.node(node).key() == key);
        let (node, bytes) = Node::alloc(&list.arena, bump, height, key, seq, entry_parts);
        let linked = claim.newest.filter(|newest| list.node(*newest).is_linked());
        if let Some(older) = linked.filter(|_| height == 1) {
            // As with an insert: its place is known.
            link_between(list, list.node(older).before(), node, Some(older));
        } else if !claim.has_slot() || (deferred.is_empty() && follows_newest(list, splice, key, seq)) {
            // Only the list can tell of it, or its place is known.
            link(list, splice, node, height, key, seq);
        } else {
            deferred.push(Deferred { node, height });
        }
        claim.publish(node);
        list.count(bytes);
    }

    /// Links all nodes that were deferred.
    pub(super) fn link_deferred(&mut self) {
        let Self { list, splice, deferred, .. } = self;
        let list = &**list;
        if let [Deferred { node, height }] = deferred[..] {
            let new = list.node(node);
            link(list, splice, node, height, new.key(), new.seq());
        } else if let Some(last) = deferred.len().checked_sub(1) {
            let mut places = [Before([list.head; HEIGHT_MAX]); lanes::LANES];
            lanes::find_places(list, deferred.iter().map(|new| list.node(new.node)), &mut places);
            for (index, (new, mut place)) in deferred.iter().zip(places).enumerate() {
                let node = list.node(new.node);
                // The place after the last one, at all levels, is where a next insert may belong.
                let levels = if index == last { HEIGHT_MAX } else { new.height };
                place.advance(list, levels, node.key(), node.seq());
                link_at(list, &mut place, new.node, new.height);
                if index == last {
                    *splice = place;
                }
            }
        }
        deferred.clear();
    }

    /// Whether all entries up to this seq are linked.
    pub(super) fn is_linked_to(&self, seq: u64) -> bool {
        self.deferred.first().is_none_or(|first| self.list.node(first.node).seq() > seq)
    }
}

impl Before {
    /// Goes past nodes before (`key`, `seq`) that were linked since the place was found.
    fn advance(&mut self, list: &SkipList, levels: usize, key: &[u8], seq: u64) {
        for (level, before) in self.0[..levels].iter_mut().enumerate() {
            // SAFETY: a node that was found on a level, the head included, has it; so has one that is linked there.
            while let Some(next) = unsafe { list.node(*before).next_at(level) } {
                if next.cmp(key, seq).is_ge() {
                    break;
                }
                *before = next.0;
            }
        }
    }
}

/// Links a node where it belongs.
fn link(list: &SkipList, splice: &mut Before, node: NonNull<Node>, height: usize, key: &[u8], seq: u64) {
    if !follows_newest(list, splice, key, seq) {
        list.descend(key, seq, |level, node| splice.0[level] = node.0);
    }
    link_at(list, splice, node, height);
}

/// Links a node at every level of its tower, from level 0 up, at its place, which is the one behind it afterwards.
fn link_at(list: &SkipList, place: &mut Before, node: NonNull<Node>, height: usize) {
    let Before(place) = place;
    let new = list.node(node);
    let (key, seq) = (new.key(), new.seq());
    let after = list.node(place[0]).next();
    assert!(after.is_none_or(|node| node.cmp(key, seq).is_ne()), "a (key, seq) is inserted once");
    if height > list.height.load(Relaxed) {
        list.height.store(height, Relaxed); // a reader that sees it early finds the head's null link, and goes on
    }
    link_between(list, place[0], node, after.map(|after| after.0));
    place[0] = node;
    for (level, before) in place[..height].iter_mut().enumerate().skip(1) {
        // SAFETY: the new node's tower and, being linked at `level` or the head, its predecessor's have this level.
        let (link, link_before) = unsafe { (Node::link(node, level), Node::link(*before, level)) };
        link.store(link_before.load(Relaxed), Relaxed);
        // Whoever loads this link with acquire sees the header, the bytes and the links of levels up to this one.
        link_before.store(node.as_ptr(), Release);
        *before = node;
    }
}

/// True if (`key`, `seq`) belongs right behind the node that was linked last. The splice then holds at every level:
/// whatever comes after that node at any level comes after it at level 0 too, and so after the new entry.
fn follows_newest(list: &SkipList, splice: &Before, key: &[u8], seq: u64) -> bool {
    let newest = list.node(splice.0[0]);
    let is_after = newest.is(Some(list.head())) || newest.cmp(key, seq).is_lt();
    is_after && newest.next().is_none_or(|next| next.cmp(key, seq).is_ge())
}

/// Links a complete node at level 0 between two neighbours; at the end there is none after it. Only the list's writer
/// may call it.
fn link_between(list: &SkipList, before: NonNull<Node>, node: NonNull<Node>, after: Option<NonNull<Node>>) {
    debug_assert_eq!(list.node(before).next().map(|next| next.0), after, "two nodes are no neighbours");
    list.node(node).set_before(before);
    if let Some(after) = after {
        list.node(after).set_before(node);
    }
    // SAFETY: every tower has level 0.
    let (link, link_before) = unsafe { (Node::link(node, 0), Node::link(before, 0)) };
    link.store(after.map_or(ptr::null_mut(), NonNull::as_ptr), Relaxed);
    // Whoever loads this link with acquire sees the header, the bytes and the link.
    link_before.store(node.as_ptr(), Release);
}

/// 1, and one more with a chance of 1 in 4 each, from a xorshift (Marsaglia 2003).
fn random_height(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    // Two low bits that are both zero are a 1 in 4 chance. The upper bit ends the count at the greatest height.
    1 + (*state | 1 << (2 * (HEIGHT_MAX - 1))).trailing_zeros() as usize / 2
}

impl Node {
    /// A node with null links, and the arena's bytes it takes.
    fn alloc(
        arena: &Arena,
        bump: &mut Bump,
        height: usize,
        key: &[u8],
        seq: u64,
        entry_parts: &[&[u8]],
    ) -> (NonNull<Node>, usize) {
        let entry_len: usize = entry_parts.iter().map(|part| part.len()).sum();
        let header = Header {
            seq,
            key_len: u32::try_from(key.len()).expect("a key is far below 4 GiB"),
            entry_len: u32::try_from(entry_len).expect("an entry is far below 4 GiB"),
        };
        let tower_bytes = height * LINK_BYTES;
        let bytes = (tower_bytes + NODE_BYTES + key.len() + entry_len).next_multiple_of(ALIGN);
        let start = bump.alloc(arena, bytes);
        // SAFETY: every write is inside the `bytes` just handed out, which nobody else knows yet: the tower from
        // `start`, then the header, the key and the parts, whose lengths `bytes` is the sum of. Sizes and alignments
        // are multiples of `ALIGN` (asserted above), so tower and header are aligned.
        unsafe {
            let tower = start.cast::<AtomicPtr<Node>>();
            for level in 0..height {
                tower.add(level).write(AtomicPtr::new(ptr::null_mut()));
            }
            let node = start.add(tower_bytes).cast::<Node>();
            node.write(Node { header: Written::new(header), before: AtomicPtr::new(ptr::null_mut()) });
            let mut end = node.add(1).cast::<u8>();
            for part in std::iter::once(&key).chain(entry_parts) {
                end.copy_from_nonoverlapping(NonNull::from(*part).cast(), part.len());
                end = end.add(part.len());
            }
            (node, bytes)
        }
    }

    /// A level of a node's tower.
    ///
    /// # Safety
    /// The node is complete and lives for `'a`, and its tower has the level.
    unsafe fn link<'a>(node: NonNull<Node>, level: usize) -> &'a AtomicPtr<Node> {
        // SAFETY: the tower lies right before the header, level 0 last; the pointer's provenance is the whole chunk.
        unsafe { node.cast::<AtomicPtr<Node>>().sub(level + 1).as_ref() }
    }
}

impl<'a> NodeRef<'a> {
    fn header(self) -> Header {
        // SAFETY: the node is complete and outlives `'a`; headers are never written again.
        unsafe { self.0.as_ref() }.header.get()
    }

    fn seq(self) -> u64 {
        self.header().seq
    }

    /// The node before it at level 0, for the writer.
    fn before(self) -> NonNull<Node> {
        // SAFETY: the node is complete and outlives `'a`.
        let before = unsafe { self.0.as_ref() }.before.load(Relaxed);
        NonNull::new(before).expect("every node but the head is linked behind another")
    }

    /// Whether it has been linked, for the writer. Not for the head.
    fn is_linked(self) -> bool {
        // SAFETY: the node is complete and outlives `'a`.
        !unsafe { self.0.as_ref() }.before.load(Relaxed).is_null()
    }

    fn set_before(self, before: NonNull<Node>) {
        // SAFETY: the node is complete and outlives `'a`.
        unsafe { self.0.as_ref() }.before.store(before.as_ptr(), Relaxed);
    }

    fn key(self) -> &'a [u8] {
        let header = self.header();
        // SAFETY: `key_len` written bytes follow the header, live for `'a`, and are never written again.
        unsafe { NonNull::slice_from_raw_parts(self.0.add(1).cast(), header.key_len as usize).as_ref() }
    }

    fn entry(self) -> &'a [u8] {
        let header = self.header();
        // SAFETY: `entry_len` written bytes follow the key, live for `'a`, and are never written again.
        unsafe {
            let start = self.0.add(1).cast().add(header.key_len as usize);
            NonNull::slice_from_raw_parts(start, header.entry_len as usize).as_ref()
        }
    }

    fn next(self) -> Option<NodeRef<'a>> {
        // SAFETY: every tower has level 0.
        unsafe { self.next_at(0) }
    }

    /// The node that follows on `level`.
    ///
    /// # Safety
    /// This node's tower has the level.
    unsafe fn next_at(self, level: usize) -> Option<NodeRef<'a>> {
        // SAFETY: the node outlives `'a`, and the caller vouches for the level.
        let next = unsafe { Node::link(self.0, level) }.load(Acquire);
        // A node is linked when it is complete, and it lives as long as this one.
        NonNull::new(next).map(|next| NodeRef(next, PhantomData))
    }

    /// Fetches the node that follows on `level`, for whoever is about to look at it.
    ///
    /// # Safety
    /// This node's tower has the level.
    #[inline]
    unsafe fn prefetch_next(self, level: usize) {
        // A model need not know what a processor does ahead.
        if cfg!(not(loom)) {
            // SAFETY: the node outlives `'a`, and the caller vouches for the level.
            prefetch(unsafe { Node::link(self.0, level) }.load(Relaxed));
        }
    }

    fn is(self, other: Option<NodeRef<'_>>) -> bool {
        other.is_some_and(|other| self.0 == other.0)
    }

    /// Where this node stands to (`key`, `seq`): key ascending, then seq descending.
    fn cmp(self, key: &[u8], seq: u64) -> cmp::Ordering {
        self.key().cmp(key).then_with(|| seq.cmp(&self.seq()))
    }
}
