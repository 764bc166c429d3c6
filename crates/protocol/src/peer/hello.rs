//! The first words on a connection: a [`Hello`] from the node that opened it as a link, or a [`Join`] from one that is
//! no member yet; a [`Reply`] from the other. Behind the welcome of a newcomer comes one frame of kind [`ADMISSION`].
//!
//! ```text
//! magic 8 | length u16 | fields | crc32c u32 of all before
//! ```
//!
//! The length counts what follows it, checksum included. A newer program may append fields to a hello, which are not
//! read: what is known about the form of the rest is only agreed on here.
//!
//! Whether the opener is who it says is for the caller to check, against its certificate.

use base::checksum::crc32c;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use xxhash_rust::xxh3::xxh3_64;

use super::fields::{Malformed, Reader, put_bytes};

/// The newest version of the protocol between nodes, as of this program.
pub const VERSION: u16 = 12;

/// The oldest version that is still spoken.
pub const VERSION_MIN: u16 = 1;

/// The largest hello or reply, checksum included. A link is not yet known to be of any use while it is read.
pub const HELLO_BYTES_MAX: usize = 4 << 10;

/// The longest name of a node: a host's name is 253 bytes at most.
pub const NAME_BYTES_MAX: usize = 1 << 10;

/// The longest reason of a refusal; the rest is cut off.
pub const TEXT_BYTES_MAX: usize = 1 << 10;

/// The kind of the frame that tells a newcomer which node it is from now on.
pub const ADMISSION: u8 = 1;

const HELLO_MAGIC: &[u8; 8] = b"ANNULETP";
const JOIN_MAGIC: &[u8; 8] = b"ANNULETJ";
const REPLY_MAGIC: &[u8; 8] = b"ANNULETW";
const HEADER_LEN: usize = 10;
const CRC_LEN: usize = 4;

const WELCOME: u8 = 1;
const REFUSED: u8 = 2;
const NOT_MEMBER: u8 = 3;
const COPY: u8 = 4;

/// The versions a program speaks: all from `min` to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The oldest.
    pub min: u16,
    /// The newest.
    pub max: u16,
}

impl Versions {
    /// This program's.
    pub const OURS: Versions = Versions { min: VERSION_MIN, max: VERSION };
}

impl std::fmt::Display for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {}", self.min, self.max)
    }
}

/// What the opener of a link says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The versions it speaks.
    pub versions: Versions,
    /// Its cluster: the number that it was founded with.
    pub cluster: u64,
    /// Its process: another number means that it was started again.
    pub life: u64,
    /// Its node's name.
    pub from: String,
    /// Where the others reach it now; empty if it does not say, as an older program.
    pub address: String,
}

/// What a node says that wants to become a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// The versions it speaks.
    pub versions: Versions,
    /// What its share of the partitions is in proportion to.
    pub weight: u16,
    /// Its name.
    pub from: String,
    /// Where the others are to reach it.
    pub address: String,
    /// What may fail as a whole with it; empty if nothing is said.
    pub zone: String,
}

/// The first words of whoever opens a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// A member opens a link.
    Hello(Hello),
    /// Somebody wants to become a member.
    Join(Join),
}

/// What the other answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Frames may follow.
    Welcome {
        /// The version in which they are written.
        version: u16,
    },
    /// The link is closed.
    Refused {
        /// Why, for the log of the one refused.
        text: String,
    },
    /// The link is closed: the opener is no member, as far as the other knows.
    NotMember {
        /// The history of the cluster that it knows, and
        epoch: u32,
        /// its last entry.
        commit: u64,
    },
    /// The link is closed: another process of the opener's node is alive. The opener's data folder is a copy, or the
    /// other's is.
    Copy {
        /// The other process.
        original: u64,
        /// The history of the cluster that the acceptor knows, and
        epoch: u32,
        /// its last entry.
        commit: u64,
        /// Whether the other process is the one that is registered, as of then.
        is_registered: bool,
    },
}

/// Bytes that are no hello, or no reply: the link must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// The first bytes are not those of an Annulet node.
    #[error("not a node's greeting")]
    Magic,
    /// Longer than [`HELLO_BYTES_MAX`].
    #[error("a greeting of {0} bytes, {HELLO_BYTES_MAX} allowed")]
    TooLarge(usize),
    /// The bytes are not those that were sent.
    #[error("a greeting fails its checksum")]
    Checksum,
    /// The checksum is right and the bytes still make no sense.
    #[error("malformed greeting: {0}")]
    Malformed(#[from] Malformed),
}

/// Why two nodes do not speak with each other. The text is what the one refused is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// They have no version in common.
    #[error("peer protocol versions {theirs} are offered, {ours} spoken here")]
    Versions {
        /// Those spoken here.
        ours: Versions,
        /// Those offered.
        theirs: Versions,
    },
    /// They were founded with different members or ring sizes, or apart.
    #[error(
        "another cluster, founded apart or with other members or another ring size ({theirs:016x} there, {ours:016x} here)"
    )]
    Cluster {
        /// The cluster here.
        ours: u64,
        /// The cluster there.
        theirs: u64,
    },
}

/// The newest version that both speak.
///
/// # Errors
/// [`Refusal::Versions`].
pub fn common_version(ours: Versions, theirs: Versions) -> Result<u16, Refusal> {
    let version = ours.max.min(theirs.max);
    if version < ours.min.max(theirs.min) { Err(Refusal::Versions { ours, theirs }) } else { Ok(version) }
}

/// The newest version that both speak, if they are of the same cluster.
///
/// # Errors
/// [`Refusal`].
pub fn negotiate(ours: &Hello, theirs: &Hello) -> Result<u16, Refusal> {
    let version = common_version(ours.versions, theirs.versions)?;
    if ours.cluster != theirs.cluster {
        return Err(Refusal::Cluster { ours: ours.cluster, theirs: theirs.cluster });
    }
    Ok(version)
}

/// The number of a cluster that is founded by several nodes at once, which must come to the same: a hash of the ring's
/// size, of by how many prefixes they order their keys, and of the members' names, in the order in which they are
/// numbered. Where keys are ordered by the ring's own bits the prefixes are left out, as by older programs.
pub fn cluster_fingerprint<'a>(
    ring_size: u32,
    prefixes: u32,
    names: impl IntoIterator<Item = &'a str>,
) -> u64 {
    let mut out = BytesMut::new();
    out.put_u32_le(ring_size);
    if prefixes != ring_size {
        out.put_u32_le(prefixes);
    }
    names.into_iter().for_each(|name| put_bytes(&mut out, name.as_bytes()));
    xxh3_64(&out)
}

impl Hello {
    /// Appends it.
    ///
    /// # Panics
    /// If the name or the address is longer than [`NAME_BYTES_MAX`].
    pub fn encode(&self, out: &mut BytesMut) {
        let texts = [&self.from, &self.address];
        assert!(
            texts.iter().all(|text| text.len() <= NAME_BYTES_MAX),
            "settings are checked when they are set"
        );
        seal(out, HELLO_MAGIC, |out| {
            out.put_u16_le(self.versions.min);
            out.put_u16_le(self.versions.max);
            out.put_u64_le(self.cluster);
            out.put_u64_le(self.life);
            texts.iter().for_each(|text| put_bytes(out, text.as_bytes()));
        });
    }

    /// Takes one off the front of `buf`; `None` says that more bytes must be read first.
    ///
    /// # Errors
    /// [`HelloError`], as soon as it is certain.
    pub fn read(buf: &mut BytesMut) -> Result<Option<Hello>, HelloError> {
        let Some(fields) = open(buf, HELLO_MAGIC)? else { return Ok(None) };
        let mut fields = Reader::new(fields);
        Ok(Some(Hello {
            versions: Versions { min: fields.u16()?, max: fields.u16()? },
            cluster: fields.u64()?,
            life: fields.u64()?,
            from: short_text(&mut fields)?,
            address: if fields.end().is_ok() { String::new() } else { short_text(&mut fields)? },
        }))
    }
}

impl Join {
    /// Appends it.
    ///
    /// # Panics
    /// If a text is longer than [`NAME_BYTES_MAX`].
    pub fn encode(&self, out: &mut BytesMut) {
        let texts = [&self.from, &self.address, &self.zone];
        assert!(
            texts.iter().all(|text| text.len() <= NAME_BYTES_MAX),
            "settings are checked when they are set"
        );
        seal(out, JOIN_MAGIC, |out| {
            out.put_u16_le(self.versions.min);
            out.put_u16_le(self.versions.max);
            out.put_u16_le(self.weight);
            texts.iter().for_each(|text| put_bytes(out, text.as_bytes()));
        });
    }
}

impl Greeting {
    /// Takes one off the front of `buf`; `None` says that more bytes must be read first.
    ///
    /// # Errors
    /// [`HelloError`], as soon as it is certain.
    pub fn read(buf: &mut BytesMut) -> Result<Option<Greeting>, HelloError> {
        if buf.get(JOIN_MAGIC.len() - 1) != JOIN_MAGIC.last() {
            return Ok(Hello::read(buf)?.map(Greeting::Hello));
        }
        let Some(fields) = open(buf, JOIN_MAGIC)? else { return Ok(None) };
        let mut fields = Reader::new(fields);
        Ok(Some(Greeting::Join(Join {
            versions: Versions { min: fields.u16()?, max: fields.u16()? },
            weight: fields.u16()?,
            from: short_text(&mut fields)?,
            address: short_text(&mut fields)?,
            zone: short_text(&mut fields)?,
        })))
    }
}

fn short_text(fields: &mut Reader) -> Result<String, Malformed> {
    let bytes = fields.bytes()?;
    if bytes.len() > NAME_BYTES_MAX {
        return Err(Malformed("a name is too long"));
    }
    std::str::from_utf8(&bytes).map(str::to_owned).map_err(|_| Malformed("a name is not text"))
}

impl Reply {
    /// Appends it, with no more than [`TEXT_BYTES_MAX`] of a text.
    pub fn encode(&self, out: &mut BytesMut) {
        seal(out, REPLY_MAGIC, |out| match self {
            Reply::Welcome { version } => {
                out.put_u8(WELCOME);
                out.put_u16_le(*version);
            }
            Reply::Refused { text } => {
                out.put_u8(REFUSED);
                put_bytes(out, &text.as_bytes()[..text.floor_char_boundary(TEXT_BYTES_MAX)]);
            }
            Reply::NotMember { epoch, commit } => {
                out.put_u8(NOT_MEMBER);
                out.put_u32_le(*epoch);
                out.put_u64_le(*commit);
            }
            Reply::Copy { original, epoch, commit, is_registered } => {
                out.put_u8(COPY);
                out.put_u64_le(*original);
                out.put_u32_le(*epoch);
                out.put_u64_le(*commit);
                out.put_u8(u8::from(*is_registered));
            }
        });
    }

    /// Takes one off the front of `buf`; `None` says that more bytes must be read first.
    ///
    /// # Errors
    /// [`HelloError`], as soon as it is certain.
    pub fn read(buf: &mut BytesMut) -> Result<Option<Reply>, HelloError> {
        let Some(fields) = open(buf, REPLY_MAGIC)? else { return Ok(None) };
        let mut fields = Reader::new(fields);
        Ok(Some(match fields.u8()? {
            WELCOME => Reply::Welcome { version: fields.u16()? },
            REFUSED => Reply::Refused { text: String::from_utf8_lossy(&fields.bytes()?).into_owned() },
            NOT_MEMBER => Reply::NotMember { epoch: fields.u32()?, commit: fields.u64()? },
            COPY => Reply::Copy {
                original: fields.u64()?,
                epoch: fields.u32()?,
                commit: fields.u64()?,
                is_registered: fields.u8()? != 0,
            },
            _ => return Err(Malformed("neither welcome nor refusal").into()),
        }))
    }
}

/// Appends the fields that `put` appends, between magic and checksum.
fn seal(out: &mut BytesMut, magic: &[u8; 8], put: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_slice(magic);
    out.put_u16_le(0);
    put(out);
    let len = out.len() - start - HEADER_LEN + CRC_LEN;
    assert!(HEADER_LEN + len <= HELLO_BYTES_MAX, "names and texts are bounded");
    let len = u16::try_from(len).expect("HELLO_BYTES_MAX fits");
    out[start + magic.len()..start + HEADER_LEN].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c(&out[start..]);
    out.put_u32_le(crc);
}

/// Takes what [`seal`] wrote off the front of `buf`, and returns the fields.
fn open(buf: &mut BytesMut, magic: &[u8; 8]) -> Result<Option<Bytes>, HelloError> {
    let begun = buf.len().min(magic.len());
    if buf[..begun] != magic[..begun] {
        return Err(HelloError::Magic);
    }
    let Some(header) = buf.first_chunk::<HEADER_LEN>() else {
        buf.reserve(HELLO_BYTES_MAX);
        return Ok(None);
    };
    let len = HEADER_LEN + usize::from(u16::from_le_bytes([header[8], header[9]]));
    if len > HELLO_BYTES_MAX {
        return Err(HelloError::TooLarge(len));
    }
    if buf.len() < len {
        buf.reserve(HELLO_BYTES_MAX);
        return Ok(None);
    }
    let (summed, crc) = buf[..len].split_last_chunk::<CRC_LEN>().ok_or(HelloError::Checksum)?;
    if summed.len() < HEADER_LEN || crc32c(summed) != u32::from_le_bytes(*crc) {
        return Err(HelloError::Checksum);
    }
    let mut fields = buf.split_to(len);
    fields.advance(HEADER_LEN);
    fields.truncate(len - HEADER_LEN - CRC_LEN);
    Ok(Some(fields.freeze()))
}
