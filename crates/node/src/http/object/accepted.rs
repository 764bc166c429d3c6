//! What a client accepts of an object, as Riak negotiates it.
//!
//! * A value has one media type, character set and coding: those it was written with. A header that takes none of them
//!   is answered 406.
//! * What was written without a coding can be answered as it is, or compressed where `Accept-Encoding` prefers it.
//!
//! Compression is work on the shard's thread, so it has bounds: what is short gains nothing, and what is longer than
//! [`PACKED_MAX`] goes as it is. Riak compresses whatever its client prefers compressed.

use bytes::Bytes;
use object::SiblingView;
use protocol::http::{Head, accept, gzip};

use crate::http::fault::Fault;

/// What fits into one packet arrives no sooner if it is shorter.
const PACKED_MIN: usize = 1400;

/// One to four milliseconds, which everybody else on the shard waits.
const PACKED_MAX: usize = 256 << 10;

const IDENTITY: &[u8] = b"identity";
const GZIP: &[u8] = b"gzip";
/// What a client is taken to accept that names other character sets.
const CHARSET_DEFAULT: &[u8] = b"iso-8859-1";

/// The headers that say it.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    types: Option<Bytes>,
    charsets: Option<Bytes>,
    codings: Option<Bytes>,
}

/// How a body goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    AsItIs,
    Gzip,
}

impl Accepted {
    pub fn of(head: &Head) -> Accepted {
        let mut accepted = Accepted::default();
        for (name, value) in head.headers() {
            // Most headers are none of these, and are told apart by their length.
            let place = match name.len() {
                6 if name.eq_ignore_ascii_case(b"accept") => &mut accepted.types,
                14 if name.eq_ignore_ascii_case(b"accept-charset") => &mut accepted.charsets,
                15 if name.eq_ignore_ascii_case(b"accept-encoding") => &mut accepted.codings,
                _ => continue,
            };
            place.get_or_insert_with(|| head.share(value));
        }
        accepted
    }

    /// How well a media type is taken, of 1000.
    pub fn quality(&self, media_type: &[u8]) -> u16 {
        self.types.as_deref().map_or(1000, |types| accept::quality(types, media_type))
    }

    /// The preferred media type among `offered`, `default` without an `Accept` header; `None` if none is accepted.
    pub fn prefer<'a>(&self, offered: &[&'a [u8]], default: &'a [u8]) -> Option<&'a [u8]> {
        let Some(types) = self.types.as_deref() else { return Some(default) };
        accept::prefer(types, offered).map(|chosen| offered[chosen])
    }

    /// Whether what is about to be written could be answered.
    pub fn check_write(&self, content_type: &[u8], charset: Option<&[u8]>) -> Result<(), Fault> {
        self.check_type(content_type)?;
        self.check_charset(charset)?;
        self.coding(None).map(|_| ())
    }

    /// Whether a value may be answered as it was written; its body, if that is to be compressed.
    pub fn pack_value(
        &self,
        sibling: &SiblingView<'_>,
        content_type: &[u8],
        value: &[u8],
    ) -> Result<Option<Vec<u8>>, Fault> {
        self.check_type(content_type)?;
        self.check_charset(sibling.charset)?;
        self.pack(sibling.content_encoding, value)
    }

    /// A body, if it is to be compressed.
    pub fn pack(&self, stored: Option<&[u8]>, body: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let coding = self.coding(stored)?;
        if coding == Coding::AsItIs || !(PACKED_MIN..=PACKED_MAX).contains(&body.len()) {
            return Ok(None);
        }
        let packed = gzip::compress(body);
        Ok((packed.len() < body.len()).then_some(packed))
    }

    /// How a body goes out that was written in the coding `stored`.
    fn coding(&self, stored: Option<&[u8]>) -> Result<Coding, Fault> {
        let Some(codings) = self.codings.as_deref() else { return Ok(Coding::AsItIs) };
        let chosen = match stored {
            Some(stored) => accept::choose(codings, &[stored], IDENTITY),
            None => accept::choose(codings, &[IDENTITY, GZIP], IDENTITY),
        };
        match chosen {
            Some(0) => Ok(Coding::AsItIs),
            Some(_) => Ok(Coding::Gzip),
            None => Err(Fault::new(406, "The object's coding is not among those that are accepted")),
        }
    }

    fn check_type(&self, content_type: &[u8]) -> Result<(), Fault> {
        if self.quality(content_type) == 0 {
            return Err(not_acceptable());
        }
        Ok(())
    }

    fn check_charset(&self, charset: Option<&[u8]>) -> Result<(), Fault> {
        let (Some(accepted), Some(charset)) = (self.charsets.as_deref(), charset) else { return Ok(()) };
        match accept::choose(accepted, &[charset], CHARSET_DEFAULT) {
            Some(_) => Ok(()),
            None => Err(Fault::new(406, "The object's character set is not among those that are accepted")),
        }
    }
}

pub(super) fn not_acceptable() -> Fault {
    Fault::new(406, "The object's type is not among those that are accepted")
}
