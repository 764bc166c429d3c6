//! An encoded head, read in place: no allocation, no copy.
//!
//! [`HeadView::parse`] walks the whole head once and checks every rule of the format. The iterators walk it again
//! and can then meet no error; should they, they end early rather than panic.

use std::marker::PhantomData;

use bytes::Bytes;

use crate::codec::{Malformed, Reader, Result};
use crate::context::{ContextView, ENTRY_LEN_MIN, read_entry};
use crate::dot::{Actor, Dot};
use crate::error::Error;
use crate::head::{
    FLAG_TOMBSTONE, HEAD_VERSION, HEAD_VERSION_ENDING, Head, Recency, SiblingHead, field, recency,
};
use crate::index::IndexEntry;
use crate::metadata::{Link, Metadata};
use crate::vtag::Vtag;

/// An encoded head that was checked.
#[derive(Debug, Clone, Copy)]
pub struct HeadView<'a> {
    context: ContextView<'a>,
    siblings: &'a [u8],
    sibling_count: usize,
    values_len: u64,
    is_tombstone: bool,
    newest_time: u64,
    /// When the first of the siblings ends that do, and when the last; `None` if some do not.
    first_end_ms: Option<u64>,
    last_end_ms: Option<u64>,
}

impl<'a> HeadView<'a> {
    /// Checks that `bytes` are a head, to the last byte.
    ///
    /// # Errors
    /// [`Error::Head`] unless they are what [`Head::encode`] made.
    pub fn parse(bytes: &'a [u8]) -> std::result::Result<HeadView<'a>, Error> {
        HeadView::check(bytes).map_err(|Malformed(why)| Error::Head(why))
    }

    fn check(bytes: &'a [u8]) -> Result<HeadView<'a>> {
        let mut reader = Reader(bytes);
        let version = reader.byte()?;
        if ![HEAD_VERSION, HEAD_VERSION_ENDING].contains(&version) {
            return Err(Malformed("its version is not known"));
        }
        let flags = reader.byte()?;
        let sibling_count = reader.varint_usize()?;
        let context = ContextView::parse(reader.bytes()?)?;
        let mut view = HeadView {
            context,
            siblings: reader.0,
            sibling_count,
            values_len: 0,
            is_tombstone: flags == FLAG_TOMBSTONE,
            newest_time: 0,
            first_end_ms: None,
            last_end_ms: None,
        };
        view.check_siblings(flags)?;
        if view.first_end_ms.is_some() != (version == HEAD_VERSION_ENDING) {
            return Err(Malformed("its version differs from that of the ended entry"));
        }
        Ok(view)
    }

    fn check_siblings(&mut self, flags: u8) -> Result<()> {
        let mut siblings = self.siblings();
        let (mut all_deleted, mut all_end) = (true, true);
        let mut previous = None;
        for _ in 0..self.sibling_count {
            let sibling = siblings.read()?;
            if previous >= Some(sibling.dot) {
                return Err(Malformed("its siblings are out of order"));
            }
            previous = Some(sibling.dot);
            all_deleted &= sibling.deleted;
            self.newest_time = self.newest_time.max(sibling.last_modified);
            all_end &= sibling.expires_ms.is_some();
            if let Some(end) = sibling.expires_ms {
                self.first_end_ms = Some(self.first_end_ms.map_or(end, |first| first.min(end)));
                self.last_end_ms = self.last_end_ms.max(Some(end));
            }
        }
        self.last_end_ms = self.last_end_ms.filter(|_| all_end);
        if previous.is_none() {
            return Err(Malformed("it has no sibling"));
        }
        if flags != if all_deleted { FLAG_TOMBSTONE } else { 0 } {
            return Err(Malformed("its flags do not match"));
        }
        if !siblings.reader.is_empty() {
            return Err(Malformed("bytes follow the siblings"));
        }
        self.values_len = siblings.value_offset;
        Ok(())
    }

    /// Whether these are the bytes of a head with one sibling that is a value, as nearly all are. It looks at the first
    /// of them only, so they need not be a head.
    pub fn is_one_value(bytes: &[u8]) -> bool {
        bytes.starts_with(&[HEAD_VERSION, 0, 1])
    }

    /// Whether a head with these bytes has index entries, at the cost of a look at the first sibling where it is the
    /// only one, as nearly always. False of what is no head.
    pub fn may_have_indexes(bytes: &[u8]) -> bool {
        let first = || -> Result<bool> {
            let mut reader = Reader(bytes.get(3..).unwrap_or_default());
            reader.bytes()?;
            Ok(reader.byte()? & field::INDEXES != 0)
        };
        if HeadView::is_one_value(bytes) {
            return first().unwrap_or(false);
        }
        let all = |head: HeadView<'_>| head.siblings().any(|sibling| sibling.indexes.len() > 0);
        HeadView::parse(bytes).is_ok_and(all)
    }

    /// Whether the context of a head with these bytes names more than so many actors. Nearly all heads are too short
    /// for that, and not looked at.
    #[inline]
    pub fn has_more_actors(bytes: &[u8], most: usize) -> bool {
        bytes.len() / ENTRY_LEN_MIN > most && HeadView::actors_of(bytes) > most
    }

    /// How many actors the context of a head with these bytes names, at the cost of a look at its first bytes. 0 of
    /// what is no head.
    pub fn actors_of(bytes: &[u8]) -> usize {
        let count = || -> Result<usize> {
            let mut reader = Reader(bytes.get(2..).unwrap_or_default());
            reader.varint()?;
            reader.varint()?;
            reader.varint_usize()
        };
        count().unwrap_or(0)
    }

    /// Every write the object has seen.
    pub fn context(&self) -> ContextView<'a> {
        self.context
    }

    /// How many siblings there are; at least one.
    pub fn sibling_count(&self) -> usize {
        self.sibling_count
    }

    /// Whether every sibling is a tombstone: to readers, the key is absent.
    pub fn is_tombstone(&self) -> bool {
        self.is_tombstone
    }

    /// The latest time among the siblings, in microseconds since 1970.
    pub fn newest_time(&self) -> u64 {
        self.newest_time
    }

    /// When the object is gone, in milliseconds since 1970: when the last of its siblings ends. `None` if one never
    /// does, as tombstones.
    pub fn expires_ms(&self) -> Option<u64> {
        self.last_end_ms
    }

    /// The same of an encoded head, at the cost of a look at its first byte where nothing ends. `None` of what is no
    /// head.
    pub fn expiry_of(bytes: &[u8]) -> Option<u64> {
        if !HeadView::may_end(bytes) {
            return None;
        }
        HeadView::parse(bytes).ok()?.expires_ms()
    }

    /// Whether a sibling of an encoded head ends, by its first byte.
    pub fn may_end(bytes: &[u8]) -> bool {
        bytes.first() == Some(&HEAD_VERSION_ENDING)
    }

    /// Whether these are the bytes of a head whose siblings all are tombstones, at the cost of a look at its flags.
    /// They need not be a head.
    pub fn may_be_tombstone(bytes: &[u8]) -> bool {
        bytes.get(1) == Some(&FLAG_TOMBSTONE)
    }

    /// Whether a sibling has ended by then, in milliseconds since 1970.
    pub fn has_ended(&self, now_ms: u64) -> bool {
        self.first_end_ms.is_some_and(|end| end <= now_ms)
    }

    /// Whether every sibling is a tombstone or has ended by then: to readers, the key is absent.
    pub fn is_gone(&self, now_ms: u64) -> bool {
        let is_gone = |sibling: SiblingView<'_>| sibling.deleted || sibling.has_ended(now_ms);
        self.is_tombstone || (self.has_ended(now_ms) && self.siblings().all(is_gone))
    }

    /// Whether `context` has all that the object has seen, so that nobody has written since. It may name more: entries
    /// that say nothing any more go from an object's context, and stay in what a client was given before.
    pub fn is_unmodified(&self, context: &crate::Context) -> bool {
        self.context.iter().all(|(actor, counter)| counter <= context.counter(actor))
    }

    /// Length of all values together.
    pub fn values_len(&self) -> u64 {
        self.values_len
    }

    /// The siblings, ascending by dot.
    pub fn siblings(&self) -> Siblings<'a> {
        let mut actors = self.context.entries_reader();
        Siblings {
            reader: Reader(self.siblings),
            remaining: self.sibling_count,
            value_offset: 0,
            actor: read_entry(&mut actors).ok(),
            actor_at: 0,
            actors,
        }
    }

    /// Whether the merge of this with `other` is this: nearly always, of a write and what it came after.
    pub fn absorbs(&self, other: &HeadView<'_>) -> bool {
        // What `other` has and this has not is dropped then, for its context covers it.
        self.context.descends(other.context)
            && self.siblings().all(|mine| {
                !other.context.covers(mine.dot) || other.siblings().any(|theirs| theirs.dot == mine.dot)
            })
    }

    /// The sibling a bucket without siblings answers with.
    pub fn newest(&self) -> SiblingView<'a> {
        self.siblings().max_by_key(SiblingView::recency).expect("a head has at least one sibling")
    }

    /// The same of those that have not ended by then; `None` if all have.
    pub fn newest_at(&self, now_ms: u64) -> Option<SiblingView<'a>> {
        self.siblings().filter(|sibling| !sibling.has_ended(now_ms)).max_by_key(SiblingView::recency)
    }

    /// The `ETag` of the object: its only sibling's vtag, or that of the context.
    pub fn etag(&self) -> Vtag {
        match self.siblings().next() {
            Some(only) if self.sibling_count == 1 => only.vtag(),
            _ => Vtag::of_context(self.context.iter()),
        }
    }

    /// An owned copy.
    pub fn to_head(&self) -> Head {
        let mut siblings = Vec::with_capacity(self.sibling_count);
        siblings.extend(self.siblings().map(|sibling| sibling.to_sibling_head()));
        Head::new(self.context.to_context(), siblings)
    }
}

/// Walks the siblings of a head.
#[derive(Debug, Clone)]
pub struct Siblings<'a> {
    reader: Reader<'a>,
    remaining: usize,
    value_offset: u64,
    /// The context's entries behind `actor`. Siblings are in order of their dots, so this too only moves forward,
    /// and a head costs time in proportion to its length, whoever made it.
    actors: Reader<'a>,
    actor_at: u64,
    actor: Option<(Actor, u64)>,
}

impl<'a> Siblings<'a> {
    fn read(&mut self) -> Result<SiblingView<'a>> {
        let flags = self.reader.byte()?;
        let dot = self.read_dot()?;
        let last_modified = self.reader.varint()?;
        let value_len = u32::try_from(self.reader.varint()?).map_err(|_| Malformed("a value is too long"))?;
        let deleted = flags & field::DELETED != 0;
        if deleted && value_len > 0 {
            return Err(Malformed("a tombstone has a value"));
        }
        if deleted && flags & field::EXPIRES != 0 {
            return Err(Malformed("a tombstone ends"));
        }
        let value_offset = self.value_offset;
        self.value_offset += u64::from(value_len);
        Ok(SiblingView {
            dot,
            last_modified,
            deleted,
            value_offset,
            value_len,
            content_type: self.read_text(flags & field::CONTENT_TYPE)?,
            charset: self.read_text(flags & field::CHARSET)?,
            content_encoding: self.read_text(flags & field::CONTENT_ENCODING)?,
            links: self.read_items(flags & field::LINKS)?,
            user_meta: self.read_items(flags & field::USER_META)?,
            indexes: self.read_items(flags & field::INDEXES)?,
            expires_ms: if flags & field::EXPIRES == 0 { None } else { Some(self.reader.varint()?) },
        })
    }

    fn read_dot(&mut self) -> Result<Dot> {
        let at = self.reader.varint()?;
        if at < self.actor_at {
            return Err(Malformed("its siblings are out of order"));
        }
        while self.actor_at < at && self.actor.is_some() {
            self.actor = read_entry(&mut self.actors).ok();
            self.actor_at += 1;
        }
        let (actor, highest) = self.actor.ok_or(Malformed("a sibling's actor is not in the context"))?;
        match highest.checked_sub(self.reader.varint()?) {
            Some(counter) if counter > 0 => Ok(Dot { actor, counter }),
            _ => Err(Malformed("a sibling's counter is not above 0")),
        }
    }

    fn read_text(&mut self, present: u8) -> Result<Option<&'a [u8]>> {
        if present == 0 { Ok(None) } else { self.reader.bytes().map(Some) }
    }

    fn read_items<T: Item<'a>>(&mut self, present: u8) -> Result<Items<'a, T>> {
        let mut items = Items { reader: Reader(&[]), remaining: 0, item: PhantomData };
        if present == 0 {
            return Ok(items);
        }
        items.remaining = self.reader.varint_usize()?;
        items.reader = self.reader;
        if items.remaining == 0 {
            return Err(Malformed("an empty list is stored"));
        }
        for _ in 0..items.remaining {
            T::read(&mut self.reader)?;
        }
        Ok(items)
    }
}

impl<'a> Iterator for Siblings<'a> {
    type Item = SiblingView<'a>;

    fn next(&mut self) -> Option<SiblingView<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        self.read().ok()
    }
}

/// One sibling of an encoded head.
#[derive(Debug, Clone)]
pub struct SiblingView<'a> {
    /// The write that made it.
    pub dot: Dot,
    /// When it was written, in microseconds since 1970.
    pub last_modified: u64,
    /// Whether it is a tombstone.
    pub deleted: bool,
    /// Where its value begins in the object's values.
    pub value_offset: u64,
    /// Length of its value.
    pub value_len: u32,
    /// The value's media type.
    pub content_type: Option<&'a [u8]>,
    /// The value's character set.
    pub charset: Option<&'a [u8]>,
    /// How the value is packed.
    pub content_encoding: Option<&'a [u8]>,
    /// Links.
    pub links: Items<'a, LinkView<'a>>,
    /// The client's own pairs.
    pub user_meta: Items<'a, UserMetaView<'a>>,
    /// Index entries.
    pub indexes: Items<'a, IndexView<'a>>,
    /// When it ends, in milliseconds since 1970; `None` for never.
    pub expires_ms: Option<u64>,
}

impl SiblingView<'_> {
    /// Its version tag.
    pub fn vtag(&self) -> Vtag {
        Vtag::of_dot(self.dot, self.last_modified)
    }

    /// An owned copy.
    pub fn to_sibling_head(&self) -> SiblingHead {
        let own = Bytes::copy_from_slice;
        SiblingHead {
            dot: self.dot,
            value_len: self.value_len,
            metadata: Metadata {
                content_type: self.content_type.map(own),
                charset: self.charset.map(own),
                content_encoding: self.content_encoding.map(own),
                links: self
                    .links
                    .clone()
                    .map(|link| Link { bucket: own(link.bucket), key: own(link.key), tag: own(link.tag) })
                    .collect(),
                user_meta: self.user_meta.clone().map(|pair| (own(pair.key), pair.value.map(own))).collect(),
                indexes: self
                    .indexes
                    .clone()
                    .map(|entry| IndexEntry { field: own(entry.field), value: own(entry.value) })
                    .collect(),
                last_modified: self.last_modified,
                deleted: self.deleted,
                expires_ms: self.expires_ms,
            },
        }
    }

    fn has_ended(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms)
    }

    fn recency(&self) -> Recency {
        recency(self.dot, self.last_modified, self.deleted)
    }
}

/// A list inside an encoded sibling.
#[derive(Debug, Clone)]
pub struct Items<'a, T> {
    reader: Reader<'a>,
    remaining: usize,
    item: PhantomData<T>,
}

impl<'a, T: Item<'a>> Iterator for Items<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.remaining = self.remaining.checked_sub(1)?;
        T::read(&mut self.reader).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl<'a, T: Item<'a>> ExactSizeIterator for Items<'a, T> {}

/// What a list can hold; implemented here only, for nobody else can name its argument.
pub trait Item<'a>: Sized {
    #[doc(hidden)]
    fn read(reader: &mut Reader<'a>) -> Result<Self>;
}

/// A link, in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkView<'a> {
    /// The bucket linked to.
    pub bucket: &'a [u8],
    /// The key linked to.
    pub key: &'a [u8],
    /// What the link means.
    pub tag: &'a [u8],
}

/// One of the client's own pairs, in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserMetaView<'a> {
    /// Its name.
    pub key: &'a [u8],
    /// Its value, if it has one.
    pub value: Option<&'a [u8]>,
}

/// An index entry, in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexView<'a> {
    /// The field, with its suffix.
    pub field: &'a [u8],
    /// The term, as sent.
    pub value: &'a [u8],
}

impl<'a> Item<'a> for LinkView<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<LinkView<'a>> {
        Ok(LinkView { bucket: reader.bytes()?, key: reader.bytes()?, tag: reader.bytes()? })
    }
}

impl<'a> Item<'a> for UserMetaView<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<UserMetaView<'a>> {
        let key = reader.bytes()?;
        // 0 is an absent value; a present one has its length plus one.
        let value = match reader.varint_usize()?.checked_sub(1) {
            None => None,
            Some(len) => Some(reader.take(len)?),
        };
        Ok(UserMetaView { key, value })
    }
}

impl<'a> Item<'a> for IndexView<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<IndexView<'a>> {
        Ok(IndexView { field: reader.bytes()?, value: reader.bytes()? })
    }
}
