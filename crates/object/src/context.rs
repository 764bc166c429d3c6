//! The causal context: a set of writes, as a version vector.
//!
//! An entry `(a, c)` stands for all of the key's dots of actor `a` with a counter of at most `c`. Entries are in
//! ascending order of their actors and counters are never 0, so equal sets have equal vectors and equal bytes.
//!
//! Clients get a context as opaque bytes and send it back with a put: one version byte, the *body* (count,
//! then entries), a CRC32C. A head holds the same body, so the bytes for a client are copied, not computed.

use base::checksum::crc32c;

use crate::codec::{Malformed, Reader, put_varint, varint_len};
use crate::dot::{Actor, Dot};
use crate::error::Error;

/// Most actors a context may name. Contexts are folded long before ([`crate::Overwritten`]); the bound keeps a forged
/// context below 20 KiB.
pub const ACTORS_MAX: usize = 1024;

/// First byte of a context as clients see it.
const CLIENT_VERSION: u8 = 1;
/// An entry's least length: the actor, and a counter of one byte.
pub(crate) const ENTRY_LEN_MIN: usize = 9;
const CRC_LEN: usize = 4;

/// A set of writes of one key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Context {
    /// Ascending by actor; counters at least 1.
    entries: Vec<(Actor, u64)>,
}

impl Context {
    /// The empty set.
    pub fn new() -> Context {
        Context::default()
    }

    /// The entries, ascending by actor.
    pub fn entries(&self) -> &[(Actor, u64)] {
        &self.entries
    }

    /// Whether no write is in the set.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The highest counter of `actor` in the set, 0 if there is none.
    pub fn counter(&self, actor: Actor) -> u64 {
        self.position(actor).map_or(0, |at| self.entries[at].1)
    }

    /// Whether the write `dot` is in the set.
    pub fn covers(&self, dot: Dot) -> bool {
        dot.counter <= self.counter(dot.actor)
    }

    /// Whether every write of `other` is in the set (also if they are equal).
    pub fn descends(&self, other: &Context) -> bool {
        other.entries.iter().all(|&(actor, counter)| counter <= self.counter(actor))
    }

    /// Whether the set holds every write of `other` and more.
    pub fn dominates(&self, other: &Context) -> bool {
        self != other && self.descends(other)
    }

    /// Adds the write `dot`, and with it all earlier writes of its actor.
    pub fn add(&mut self, dot: Dot) {
        match self.position(dot.actor) {
            Ok(at) => self.entries[at].1 = self.entries[at].1.max(dot.counter),
            Err(at) => self.entries.insert(at, (dot.actor, dot.counter)),
        }
    }

    /// Adds every write of `other`.
    pub fn join(&mut self, other: &Context) {
        for &(actor, counter) in &other.entries {
            self.add(Dot::new(actor, counter));
        }
    }

    /// This, or an error if it names too many actors.
    pub(crate) fn bounded(self) -> Result<Context, Error> {
        if self.entries.len() > ACTORS_MAX { Err(Error::TooManyActors) } else { Ok(self) }
    }

    /// Where `actor`'s entry is, or would be.
    pub(crate) fn position(&self, actor: Actor) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&actor, |&(actor, _)| actor)
    }

    /// The opaque bytes for a client.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.body_len());
        self.encode_body(&mut body);
        let mut out = Vec::with_capacity(1 + body.len() + CRC_LEN);
        put_client_bytes(&mut out, &body);
        out
    }

    /// The context in a client's bytes.
    ///
    /// # Errors
    /// [`Error::Context`] unless they are what [`encode`](Context::encode) made.
    pub fn decode(bytes: &[u8]) -> Result<Context, Error> {
        let (sealed, crc) =
            bytes.split_last_chunk::<CRC_LEN>().ok_or(Error::Context("it is too short to be one"))?;
        let (&version, body) = sealed.split_first().ok_or(Error::Context("it is too short to be one"))?;
        if version != CLIENT_VERSION {
            return Err(Error::Context("its version is not known"));
        }
        if crc32c(sealed) != u32::from_le_bytes(*crc) {
            return Err(Error::Context("its checksum does not match"));
        }
        let view = ContextView::parse(body).map_err(|Malformed(why)| Error::Context(why))?;
        Ok(view.to_context())
    }

    /// Bytes [`encode_body`](Context::encode_body) appends.
    pub(crate) fn body_len(&self) -> usize {
        let entries: usize = self.entries.iter().map(|&(_, counter)| 8 + varint_len(counter)).sum();
        varint_len(self.entries.len() as u64) + entries
    }

    /// Appends the count and the entries.
    pub(crate) fn encode_body(&self, out: &mut Vec<u8>) {
        put_varint(out, self.entries.len() as u64);
        for &(actor, counter) in &self.entries {
            out.extend_from_slice(&actor.0.to_le_bytes());
            put_varint(out, counter);
        }
    }
}

impl FromIterator<Dot> for Context {
    fn from_iter<I: IntoIterator<Item = Dot>>(dots: I) -> Context {
        let mut context = Context::new();
        dots.into_iter().for_each(|dot| context.add(dot));
        context
    }
}

/// A context inside an encoded head, read in place.
#[derive(Debug, Clone, Copy)]
pub struct ContextView<'a> {
    /// The whole body, checked.
    body: &'a [u8],
    /// The body behind its count.
    entries: &'a [u8],
    len: usize,
}

impl<'a> ContextView<'a> {
    /// Checks that `body` is one, to its last byte.
    pub(crate) fn parse(body: &'a [u8]) -> Result<ContextView<'a>, Malformed> {
        let mut reader = Reader(body);
        let len = reader.varint_usize()?;
        if len > ACTORS_MAX || len > reader.remaining() / ENTRY_LEN_MIN {
            return Err(Malformed("it names too many actors"));
        }
        let view = ContextView { body, entries: reader.0, len };
        let mut previous = None;
        for _ in 0..len {
            let (actor, counter) = read_entry(&mut reader)?;
            if previous >= Some(actor) || counter == 0 {
                return Err(Malformed("its actors are out of order"));
            }
            previous = Some(actor);
        }
        if !reader.is_empty() {
            return Err(Malformed("bytes follow the context"));
        }
        Ok(view)
    }

    /// How many actors it names.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no write is in the set.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entries, ascending by actor.
    pub fn iter(&self) -> impl Iterator<Item = (Actor, u64)> + use<'a> {
        let mut reader = Reader(self.entries);
        std::iter::from_fn(move || read_entry(&mut reader).ok())
    }

    pub(crate) fn entries_reader(&self) -> Reader<'a> {
        Reader(self.entries)
    }

    /// Whether the write `dot` is in the set.
    pub fn covers(&self, dot: Dot) -> bool {
        self.iter().any(|(actor, counter)| actor == dot.actor && dot.counter <= counter)
    }

    /// Whether every write of `other` is in the set (also if they are equal).
    pub fn descends(&self, other: ContextView<'_>) -> bool {
        let mut mine = self.iter();
        // Both ascend by actor, so one walk over each is enough.
        other.iter().all(|(actor, counter)| {
            mine.by_ref()
                .find(|&(of, _)| of >= actor)
                .is_some_and(|(of, high)| of == actor && counter <= high)
        })
    }

    /// An owned copy.
    pub fn to_context(&self) -> Context {
        let mut entries = Vec::with_capacity(self.len);
        entries.extend(self.iter());
        Context { entries }
    }

    /// How many bytes [`write_client_bytes`](ContextView::write_client_bytes) appends.
    pub fn client_len(&self) -> usize {
        1 + self.body.len() + CRC_LEN
    }

    /// Appends the opaque bytes for a client: those of [`Context::encode`].
    pub fn write_client_bytes(&self, out: &mut Vec<u8>) {
        put_client_bytes(out, self.body);
    }
}

pub(crate) fn read_entry(reader: &mut Reader<'_>) -> Result<(Actor, u64), Malformed> {
    Ok((Actor(reader.u64_le()?), reader.varint()?))
}

fn put_client_bytes(out: &mut Vec<u8>, body: &[u8]) {
    let start = out.len();
    out.push(CLIENT_VERSION);
    out.extend_from_slice(body);
    let crc = crc32c(&out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn context(entries: &[(u64, u64)]) -> Context {
        entries.iter().map(|&(actor, counter)| Dot::new(Actor(actor), counter)).collect()
    }

    fn contexts() -> impl Strategy<Value = Context> {
        prop::collection::vec((0u64..6, 1u64..6), 0..6).prop_map(|entries| context(&entries))
    }

    #[test]
    fn golden_client_bytes() {
        let bytes = context(&[(0x0102_0304_0506_0708, 300), (1, 2)]).encode();
        let mut expected = vec![1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 2, 8, 7, 6, 5, 4, 3, 2, 1, 0xac, 0x02];
        expected.extend_from_slice(&[0xa8, 0x6e, 0xd2, 0x96]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn junk_is_refused() {
        assert!(Context::decode(b"").is_err());
        assert!(Context::decode(b"k\xcea```\xcc`\xca\x05R<\x17c\xf2\xae\x1ej{/\x00").is_err());
        let good = context(&[(1, 2), (3, 4)]).encode();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(matches!(Context::decode(&bad), Err(Error::Context(_))), "byte {at}");
            assert!(Context::decode(&good[..at]).is_err());
        }
    }

    #[test]
    fn a_sealed_body_is_still_checked() {
        let sealed = |body: &[u8]| {
            let mut out = Vec::new();
            put_client_bytes(&mut out, body);
            out
        };
        let entry = |actor: u8, counter: u8| [actor, 0, 0, 0, 0, 0, 0, 0, counter];
        let body = |count: u8, entries: &[[u8; 9]]| [&[count], entries.concat().as_slice()].concat();
        assert!(Context::decode(&sealed(&body(2, &[entry(1, 1), entry(2, 1)]))).is_ok());
        assert!(Context::decode(&sealed(&body(2, &[entry(2, 1), entry(1, 1)]))).is_err(), "order");
        assert!(Context::decode(&sealed(&body(2, &[entry(1, 1), entry(1, 2)]))).is_err(), "twice");
        assert!(Context::decode(&sealed(&body(1, &[entry(1, 0)]))).is_err(), "counter 0");
        assert!(Context::decode(&sealed(&body(1, &[entry(1, 1), entry(2, 1)]))).is_err(), "rest");
        let mut huge = Vec::new();
        put_varint(&mut huge, u64::MAX);
        assert!(Context::decode(&sealed(&huge)).is_err(), "count");
        let many: Context = (0..=ACTORS_MAX as u64).map(|actor| Dot::new(Actor(actor), 1)).collect();
        assert!(Context::decode(&many.encode()).is_err(), "bound");
        assert_eq!(many.bounded(), Err(Error::TooManyActors));
    }

    #[test]
    fn dominance() {
        let (small, large) = (context(&[(1, 2)]), context(&[(1, 3), (2, 1)]));
        assert!(large.dominates(&small) && large.descends(&small) && !small.descends(&large));
        assert!(large.descends(&large) && !large.dominates(&large));
        let other = context(&[(3, 1)]);
        assert!(!large.descends(&other) && !other.descends(&large));
        assert!(large.covers(Dot::new(Actor(1), 2)) && !large.covers(Dot::new(Actor(2), 2)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn join_is_the_least_upper_bound(a in contexts(), b in contexts(), c in contexts()) {
            let mut joined = a.clone();
            joined.join(&b);
            prop_assert!(joined.descends(&a) && joined.descends(&b));
            prop_assert_eq!(c.descends(&joined), c.descends(&a) && c.descends(&b));
            let mut other = b.clone();
            other.join(&a);
            prop_assert_eq!(joined, other);
        }

        #[test]
        fn a_view_knows_what_its_context_knows(a in contexts(), b in contexts(), actor in 0u64..6, counter in 1u64..6) {
            let body = |context: &Context| {
                let mut body = Vec::new();
                context.encode_body(&mut body);
                body
            };
            let (of_a, of_b) = (body(&a), body(&b));
            let view = |body| ContextView::parse(body).unwrap();
            let dot = Dot::new(Actor(actor), counter);
            prop_assert_eq!(view(&of_a).covers(dot), a.covers(dot));
            prop_assert_eq!(view(&of_a).descends(view(&of_b)), a.descends(&b));
        }

        #[test]
        fn client_bytes_round_trip(a in contexts()) {
            prop_assert_eq!(Context::decode(&a.encode()), Ok(a));
        }

        #[test]
        fn random_bodies_never_panic(body in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(view) = ContextView::parse(&body) {
                let mut again = Vec::new();
                view.to_context().encode_body(&mut again);
                prop_assert_eq!(again, body);
            }
        }
    }
}
