//! The head of an object: everything but its values.
//!
//! Layout (`docs/formats/object.md` is the full page): version, flags, number of siblings, length of the context,
//! the context's body, the siblings. A sibling names its dot by the place of its actor in the context and by how
//! far its counter lies below the context's, so an object with one sibling spends two bytes on it.
//!
//! There is no checksum: whoever stores or sends a head seals it together with the key.

use crate::codec::{put_bytes, put_varint};
use crate::context::Context;
use crate::dot::Dot;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::view::HeadView;
use crate::vtag::Vtag;

/// First byte of an encoded head.
pub(crate) const HEAD_VERSION: u8 = 1;
/// The same of one with a sibling that ends: what has none is written as it always was.
pub(crate) const HEAD_VERSION_ENDING: u8 = 2;
/// Bit of a head's flags: every sibling is a tombstone.
pub(crate) const FLAG_TOMBSTONE: u8 = 1;

/// Bits of a sibling's flags: the tombstone mark, and which of the optional fields follow.
pub(crate) mod field {
    pub(crate) const DELETED: u8 = 1 << 0;
    pub(crate) const CONTENT_TYPE: u8 = 1 << 1;
    pub(crate) const CHARSET: u8 = 1 << 2;
    pub(crate) const CONTENT_ENCODING: u8 = 1 << 3;
    pub(crate) const LINKS: u8 = 1 << 4;
    pub(crate) const USER_META: u8 = 1 << 5;
    pub(crate) const INDEXES: u8 = 1 << 6;
    pub(crate) const EXPIRES: u8 = 1 << 7;
}

/// A sibling without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiblingHead {
    /// The write that made it.
    pub dot: Dot,
    /// Length of its value.
    pub value_len: u32,
    /// What it carries beside the value.
    pub metadata: Metadata,
}

impl SiblingHead {
    /// Its version tag.
    pub fn vtag(&self) -> Vtag {
        Vtag::of_dot(self.dot, self.metadata.last_modified)
    }

    pub(crate) fn recency(&self) -> Recency {
        recency(self.dot, self.metadata.last_modified, self.metadata.deleted)
    }

    pub(crate) fn has_ended(&self, now_ms: u64) -> bool {
        self.metadata.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms)
    }
}

/// Orders siblings where only the newest counts: by time; at the same time a value beats a tombstone; then by dot.
pub(crate) type Recency = (u64, bool, u64, u64);

pub(crate) fn recency(dot: Dot, last_modified: u64, deleted: bool) -> Recency {
    (last_modified, !deleted, dot.counter, dot.actor.0)
}

/// Everything of an object but its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    context: Context,
    /// Ascending by dot, never empty, every dot covered by the context.
    siblings: Vec<SiblingHead>,
}

impl Head {
    /// A head of these parts.
    ///
    /// # Panics
    /// If they break an invariant of heads (see the crate's page).
    pub(crate) fn new(context: Context, siblings: Vec<SiblingHead>) -> Head {
        assert!(!siblings.is_empty(), "an object has a sibling");
        assert!(siblings.is_sorted_by(|a, b| a.dot < b.dot), "siblings are in order of their dots");
        assert!(
            siblings.iter().all(|sibling| context.covers(sibling.dot)),
            "the context covers the siblings"
        );
        Head { context, siblings }
    }

    /// Every write the object has seen.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The siblings, ascending by dot; at least one.
    pub fn siblings(&self) -> &[SiblingHead] {
        &self.siblings
    }

    /// The same head under another dot, with that dot alone as its context.
    ///
    /// # Panics
    /// If it has several siblings.
    pub fn with_dot(mut self, dot: Dot) -> Head {
        assert_eq!(self.siblings.len(), 1, "several siblings have several dots");
        self.siblings[0].dot = dot;
        let mut context = Context::new();
        context.add(dot);
        Head::new(context, self.siblings)
    }

    pub(crate) fn into_parts(self) -> (Context, Vec<SiblingHead>) {
        (self.context, self.siblings)
    }

    /// Whether every sibling is a tombstone: to readers, the key is absent.
    pub fn is_tombstone(&self) -> bool {
        self.siblings.iter().all(|sibling| sibling.metadata.deleted)
    }

    /// The latest time among the siblings, in microseconds since 1970.
    pub fn newest_time(&self) -> u64 {
        self.siblings.iter().map(|sibling| sibling.metadata.last_modified).max().unwrap_or(0)
    }

    /// Whether every sibling is a tombstone or has ended by then, in milliseconds since 1970: to readers, the key is
    /// absent.
    pub fn is_gone(&self, now_ms: u64) -> bool {
        self.siblings.iter().all(|sibling| sibling.metadata.deleted || sibling.has_ended(now_ms))
    }

    /// Whether `context` has all that the object has seen, so that nobody wrote since the client read it.
    pub fn is_unmodified(&self, context: &Context) -> bool {
        context.descends(&self.context)
    }

    /// Which sibling a bucket without siblings answers with.
    pub fn newest(&self) -> usize {
        (0..self.siblings.len())
            .max_by_key(|&at| self.siblings[at].recency())
            .expect("a head has at least one sibling")
    }

    /// The same without the siblings that have ended by then, in milliseconds since 1970; `None` if no sibling is left.
    /// It has seen them: a write that rests on it takes their place.
    pub fn without_ended(&self, now_ms: u64) -> Option<Head> {
        let left = self.siblings.iter().filter(|sibling| !sibling.has_ended(now_ms));
        let left: Vec<SiblingHead> = left.cloned().collect();
        (!left.is_empty()).then(|| Head::new(self.context.clone(), left))
    }

    /// Length of all values together.
    pub fn values_len(&self) -> u64 {
        self.siblings.iter().map(|sibling| u64::from(sibling.value_len)).sum()
    }

    /// The `ETag` of the object: its only sibling's vtag, or that of the context.
    pub fn etag(&self) -> Vtag {
        match self.siblings.as_slice() {
            [only] => only.vtag(),
            _ => Vtag::from(&self.context),
        }
    }

    /// Appends the encoded head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let ends = self.siblings.iter().any(|sibling| sibling.metadata.expires_ms.is_some());
        out.push(if ends { HEAD_VERSION_ENDING } else { HEAD_VERSION });
        out.push(if self.is_tombstone() { FLAG_TOMBSTONE } else { 0 });
        put_varint(out, self.siblings.len() as u64);
        put_varint(out, self.context.body_len() as u64);
        self.context.encode_body(out);
        for sibling in &self.siblings {
            self.encode_sibling(sibling, out);
        }
    }

    /// The head in `bytes`. To read one in place, see [`HeadView`].
    ///
    /// # Errors
    /// [`Error::Head`] unless they are what [`encode`](Head::encode) made.
    pub fn decode(bytes: &[u8]) -> Result<Head, Error> {
        Ok(HeadView::parse(bytes)?.to_head())
    }

    fn encode_sibling(&self, sibling: &SiblingHead, out: &mut Vec<u8>) {
        let at = self.context.position(sibling.dot.actor).expect("the context covers the siblings");
        let metadata = &sibling.metadata;
        out.push(flags(metadata));
        put_varint(out, at as u64);
        put_varint(out, self.context.entries()[at].1 - sibling.dot.counter);
        put_varint(out, metadata.last_modified);
        put_varint(out, u64::from(sibling.value_len));
        for text in
            [&metadata.content_type, &metadata.charset, &metadata.content_encoding].into_iter().flatten()
        {
            put_bytes(out, text);
        }
        put_list(out, &metadata.links, |out, link| {
            put_bytes(out, &link.bucket);
            put_bytes(out, &link.key);
            put_bytes(out, &link.tag);
        });
        put_list(out, &metadata.user_meta, |out, (key, value)| {
            put_bytes(out, key);
            put_varint(out, value.as_ref().map_or(0, |value| value.len() as u64 + 1));
            out.extend_from_slice(value.as_deref().unwrap_or_default());
        });
        put_list(out, &metadata.indexes, |out, entry| {
            put_bytes(out, &entry.field);
            put_bytes(out, &entry.value);
        });
        metadata.expires_ms.iter().for_each(|expires_ms| put_varint(out, *expires_ms));
    }
}

fn flags(metadata: &Metadata) -> u8 {
    let mark = |bit: u8, present: bool| if present { bit } else { 0 };
    mark(field::DELETED, metadata.deleted)
        | mark(field::CONTENT_TYPE, metadata.content_type.is_some())
        | mark(field::CHARSET, metadata.charset.is_some())
        | mark(field::CONTENT_ENCODING, metadata.content_encoding.is_some())
        | mark(field::LINKS, !metadata.links.is_empty())
        | mark(field::USER_META, !metadata.user_meta.is_empty())
        | mark(field::INDEXES, !metadata.indexes.is_empty())
        | mark(field::EXPIRES, metadata.expires_ms.is_some())
}

/// Appends a list that is not empty; the flags tell that an empty one is absent.
fn put_list<T>(out: &mut Vec<u8>, items: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    if !items.is_empty() {
        put_varint(out, items.len() as u64);
        items.iter().for_each(|item| put(out, item));
    }
}

#[cfg(test)]
mod tests;
