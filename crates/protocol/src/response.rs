//! Responses: complete frames appended to an output buffer.
//!
//! An object is written in one pass from borrowed parts ([`ContentView`]), with no message built in between:
//! a frame's length has a fixed size and is filled in at its end, and only the length of one content, which
//! precedes it as a varint, is computed ahead.
//!
//! Invariant: every function appends exactly one frame, whatever was in the buffer before. An answer that
//! no length field can hold is replaced by an error answer.

use prost::Message;

use crate::messages::{BucketProps, Content};
use crate::wire::{
    self, bytes_len, delimited_len, put_bytes, put_delimiter, put_optional, put_true, put_u32,
};
use crate::{codes, errors, frame};

/// A link, borrowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkRef<'a> {
    /// The other object's bucket.
    pub bucket: Option<&'a [u8]>,
    /// The other object's key.
    pub key: Option<&'a [u8]>,
    /// What the link means.
    pub tag: Option<&'a [u8]>,
}

/// A name with a value, borrowed.
pub type PairRef<'a> = (&'a [u8], Option<&'a [u8]>);

/// One sibling of an object as the encoder reads it. Each method is called twice, for the length and for
/// the bytes, and must answer the same. What is not there need not be written out: every part but the
/// value has a default.
pub trait ContentView {
    /// The value.
    fn value(&self) -> &[u8];
    /// The media type.
    fn content_type(&self) -> Option<&[u8]> {
        None
    }
    /// The character set.
    fn charset(&self) -> Option<&[u8]> {
        None
    }
    /// The content encoding.
    fn content_encoding(&self) -> Option<&[u8]> {
        None
    }
    /// The tag of this value.
    fn vtag(&self) -> Option<&[u8]> {
        None
    }
    /// Links to other objects.
    fn links(&self) -> impl Iterator<Item = LinkRef<'_>> {
        std::iter::empty()
    }
    /// When it was written, in seconds since 1970.
    fn last_mod(&self) -> Option<u32> {
        None
    }
    /// The microseconds of that second.
    fn last_mod_usecs(&self) -> Option<u32> {
        None
    }
    /// The client's own metadata.
    fn usermeta(&self) -> impl Iterator<Item = PairRef<'_>> {
        std::iter::empty()
    }
    /// Secondary index entries.
    fn indexes(&self) -> impl Iterator<Item = PairRef<'_>> {
        std::iter::empty()
    }
    /// Whether this is a tombstone.
    fn deleted(&self) -> bool {
        false
    }
}

/// How much of each sibling an answer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// All of it.
    Full,
    /// All but the value, which is written as empty.
    Head,
}

/// An error, in the words of [`crate::errors`]. Its code is always zero and always there.
pub fn error(out: &mut Vec<u8>, text: &str) {
    finish(out, |out| {
        let start = frame::begin(out, codes::ERROR_RESP);
        put_bytes(out, 1, text.as_bytes());
        put_u32(out, 2, Some(0));
        start
    });
}

/// An answer that is only its code: to a ping, a client id, a delete, a change of properties.
pub fn empty(out: &mut Vec<u8>, code: u8) {
    finish(out, |out| frame::begin(out, code));
}

/// The client id of this connection.
pub fn client_id(out: &mut Vec<u8>, client_id: &[u8]) {
    finish(out, |out| {
        let start = frame::begin(out, codes::GET_CLIENT_ID_RESP);
        put_bytes(out, 1, client_id);
        start
    });
}

/// The node's name and version. Clients parse the version as three numbers.
pub fn server_info(out: &mut Vec<u8>, node: &str, version: &str) {
    finish(out, |out| {
        let start = frame::begin(out, codes::GET_SERVER_INFO_RESP);
        put_bytes(out, 1, node.as_bytes());
        put_bytes(out, 2, version.as_bytes());
        start
    });
}

/// An object that was read.
pub fn get<C: ContentView>(
    out: &mut Vec<u8>,
    siblings: impl IntoIterator<Item = C>,
    vclock: &[u8],
    body: Body,
) {
    finish(out, |out| {
        let start = frame::begin(out, codes::GET_RESP);
        put_siblings(out, siblings, body);
        put_bytes(out, 2, vclock);
        start
    });
}

/// No object; `vclock` is that of its tombstone, if the client asked for it.
pub fn get_notfound(out: &mut Vec<u8>, vclock: Option<&[u8]>) {
    finish(out, |out| {
        let start = frame::begin(out, codes::GET_RESP);
        put_optional(out, 2, vclock);
        start
    });
}

/// The object still has the clock the client sent.
pub fn get_unchanged(out: &mut Vec<u8>) {
    finish(out, |out| {
        let start = frame::begin(out, codes::GET_RESP);
        put_true(out, 3, true);
        start
    });
}

/// An object that was written, for a client that asked to see it; `key` if the server invented it.
pub fn put<C: ContentView>(
    out: &mut Vec<u8>,
    siblings: impl IntoIterator<Item = C>,
    vclock: &[u8],
    key: Option<&[u8]>,
    body: Body,
) {
    finish(out, |out| {
        let start = frame::begin(out, codes::PUT_RESP);
        put_siblings(out, siblings, body);
        put_bytes(out, 2, vclock);
        put_optional(out, 3, key);
        start
    });
}

/// A write is done; `key` if the server invented it.
pub fn put_done(out: &mut Vec<u8>, key: Option<&[u8]>) {
    finish(out, |out| {
        let start = frame::begin(out, codes::PUT_RESP);
        put_optional(out, 3, key);
        start
    });
}

/// Some buckets. An answer that is no stream has all of them and no `done`.
pub fn list_buckets<B: AsRef<[u8]>>(out: &mut Vec<u8>, buckets: impl IntoIterator<Item = B>, done: bool) {
    put_list(out, codes::LIST_BUCKETS_RESP, buckets, done);
}

/// Some keys; `done` in the last message of the stream.
pub fn list_keys<B: AsRef<[u8]>>(out: &mut Vec<u8>, keys: impl IntoIterator<Item = B>, done: bool) {
    put_list(out, codes::LIST_KEYS_RESP, keys, done);
}

/// What an index query finds: keys, with terms if rows have them; `done` in the last message of a stream.
pub fn index<'a>(
    out: &mut Vec<u8>,
    rows: impl Iterator<Item = (Option<&'a [u8]>, &'a [u8])>,
    continuation: Option<&[u8]>,
    done: bool,
) {
    finish(out, |out| {
        let start = frame::begin(out, codes::INDEX_RESP);
        for (term, key) in rows {
            match term {
                None => put_bytes(out, 1, key),
                Some(term) => {
                    put_delimiter(out, 2, delimited_len(term.len()) + delimited_len(key.len()));
                    put_bytes(out, 1, term);
                    put_bytes(out, 2, key);
                }
            }
        }
        put_optional(out, 3, continuation);
        put_true(out, 4, done);
        start
    });
}

/// The answer to a fold, built before: what takes long is to find it.
pub fn fold(out: &mut Vec<u8>, code: u8, answer: &impl Message) {
    finish(out, |out| {
        let start = frame::begin(out, code);
        answer.encode_raw(out);
        start
    });
}

/// The properties of a bucket or a bucket type.
pub fn bucket_props(out: &mut Vec<u8>, props: &BucketProps) {
    finish(out, |out| {
        let start = frame::begin(out, codes::GET_BUCKET_RESP);
        put_delimiter(out, 1, props.encoded_len());
        props.encode_raw(out);
        start
    });
}

/// A preference list: partition number, node, and whether it is a primary.
pub fn preflist<'a>(out: &mut Vec<u8>, items: impl IntoIterator<Item = (u32, &'a str, bool)>) {
    finish(out, |out| {
        let start = frame::begin(out, codes::GET_PREFLIST_RESP);
        for (partition, node, primary) in items {
            let primary = u32::from(primary);
            let len =
                wire::u32_len(Some(partition)) + delimited_len(node.len()) + wire::u32_len(Some(primary));
            put_delimiter(out, 1, len);
            put_u32(out, 1, Some(partition));
            put_bytes(out, 2, node.as_bytes());
            put_u32(out, 3, Some(primary));
        }
        start
    });
}

/// Ends the frame that `write` began and wrote.
fn finish(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> usize) {
    let start = write(out);
    if !frame::end(out, start) {
        error(out, errors::RESPONSE_TOO_LARGE);
    }
}

fn put_list<B: AsRef<[u8]>>(out: &mut Vec<u8>, code: u8, names: impl IntoIterator<Item = B>, done: bool) {
    finish(out, |out| {
        let start = frame::begin(out, code);
        for name in names {
            put_bytes(out, 1, name.as_ref());
        }
        put_true(out, 2, done);
        start
    });
}

fn put_siblings<C: ContentView>(out: &mut Vec<u8>, siblings: impl IntoIterator<Item = C>, body: Body) {
    for sibling in siblings {
        put_content(out, &sibling, body);
    }
}

fn put_content<C: ContentView>(out: &mut Vec<u8>, content: &C, body: Body) {
    let value = match body {
        Body::Full => content.value(),
        Body::Head => &[],
    };
    let len = delimited_len(value.len()) + metadata_len(content);
    out.reserve(delimited_len(len));
    put_delimiter(out, 1, len);
    let start = out.len();
    put_bytes(out, 1, value);
    put_metadata(out, content);
    debug_assert_eq!(out.len() - start, len, "a content's length was computed wrong");
}

fn metadata_len<C: ContentView>(content: &C) -> usize {
    bytes_len(content.content_type())
        + bytes_len(content.charset())
        + bytes_len(content.content_encoding())
        + bytes_len(content.vtag())
        + content.links().map(|link| delimited_len(link_len(&link))).sum::<usize>()
        + wire::u32_len(content.last_mod())
        + wire::u32_len(content.last_mod_usecs())
        + content.usermeta().map(|pair| delimited_len(pair_len(pair))).sum::<usize>()
        + content.indexes().map(|pair| delimited_len(pair_len(pair))).sum::<usize>()
        + wire::true_len(content.deleted())
}

fn put_metadata<C: ContentView>(out: &mut Vec<u8>, content: &C) {
    put_optional(out, 2, content.content_type());
    put_optional(out, 3, content.charset());
    put_optional(out, 4, content.content_encoding());
    put_optional(out, 5, content.vtag());
    for link in content.links() {
        put_delimiter(out, 6, link_len(&link));
        put_optional(out, 1, link.bucket);
        put_optional(out, 2, link.key);
        put_optional(out, 3, link.tag);
    }
    put_u32(out, 7, content.last_mod());
    put_u32(out, 8, content.last_mod_usecs());
    for pair in content.usermeta() {
        put_pair(out, 9, pair);
    }
    for pair in content.indexes() {
        put_pair(out, 10, pair);
    }
    put_true(out, 11, content.deleted());
}

fn link_len(link: &LinkRef<'_>) -> usize {
    bytes_len(link.bucket) + bytes_len(link.key) + bytes_len(link.tag)
}

fn pair_len((key, value): PairRef<'_>) -> usize {
    delimited_len(key.len()) + bytes_len(value)
}

fn put_pair(out: &mut Vec<u8>, field: u8, pair: PairRef<'_>) {
    put_delimiter(out, field, pair_len(pair));
    put_bytes(out, 1, pair.0);
    put_optional(out, 2, pair.1);
}

impl<T: ContentView> ContentView for &T {
    fn value(&self) -> &[u8] {
        T::value(self)
    }
    fn content_type(&self) -> Option<&[u8]> {
        T::content_type(self)
    }
    fn charset(&self) -> Option<&[u8]> {
        T::charset(self)
    }
    fn content_encoding(&self) -> Option<&[u8]> {
        T::content_encoding(self)
    }
    fn vtag(&self) -> Option<&[u8]> {
        T::vtag(self)
    }
    fn links(&self) -> impl Iterator<Item = LinkRef<'_>> {
        T::links(self)
    }
    fn last_mod(&self) -> Option<u32> {
        T::last_mod(self)
    }
    fn last_mod_usecs(&self) -> Option<u32> {
        T::last_mod_usecs(self)
    }
    fn usermeta(&self) -> impl Iterator<Item = PairRef<'_>> {
        T::usermeta(self)
    }
    fn indexes(&self) -> impl Iterator<Item = PairRef<'_>> {
        T::indexes(self)
    }
    fn deleted(&self) -> bool {
        T::deleted(self)
    }
}

impl ContentView for Content {
    fn value(&self) -> &[u8] {
        &self.value
    }
    fn content_type(&self) -> Option<&[u8]> {
        self.content_type.as_deref()
    }
    fn charset(&self) -> Option<&[u8]> {
        self.charset.as_deref()
    }
    fn content_encoding(&self) -> Option<&[u8]> {
        self.content_encoding.as_deref()
    }
    fn vtag(&self) -> Option<&[u8]> {
        self.vtag.as_deref()
    }
    fn links(&self) -> impl Iterator<Item = LinkRef<'_>> {
        self.links.iter().map(|link| LinkRef {
            bucket: link.bucket.as_deref(),
            key: link.key.as_deref(),
            tag: link.tag.as_deref(),
        })
    }
    fn last_mod(&self) -> Option<u32> {
        self.last_mod
    }
    fn last_mod_usecs(&self) -> Option<u32> {
        self.last_mod_usecs
    }
    fn usermeta(&self) -> impl Iterator<Item = PairRef<'_>> {
        self.usermeta.iter().map(|pair| (&pair.key[..], pair.value.as_deref()))
    }
    fn indexes(&self) -> impl Iterator<Item = PairRef<'_>> {
        self.indexes.iter().map(|pair| (&pair.key[..], pair.value.as_deref()))
    }
    fn deleted(&self) -> bool {
        self.deleted == Some(true)
    }
}
