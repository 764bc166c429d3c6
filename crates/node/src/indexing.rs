//! How a node's stores keep the index entries of their objects: what entries there are is written in [`object::key`].

use engine::Indexing;
use object::{HeadView, key};

/// What every store of a node is opened with.
pub const INDEXING: Indexing = Indexing {
    may_have: HeadView::may_have_indexes,
    entries_of: key::entries_of,
    object_of: key::object_of_entry,
    objects: (key::OBJECTS_START, key::OBJECTS_END),
    entries: (key::ENTRIES_START, key::ENTRIES_END),
};
