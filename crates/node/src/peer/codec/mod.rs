//! Messages as frames.
//!
//! The number of a message's question and its time to live stand in the frame's header, the rest are fields
//! ([`field::Field`]) in the body. At most one field of a message is a value, and it comes last, as all bytes that
//! are left: so it is sent from where it lies, and what arrives is a slice of the frame.
//!
//! * `field.rs`: how things are written that are made of other things.
//! * `replica.rs`: what is asked of a replica and what it answers.
//! * `request.rs`: a client's request that is passed on, and the answer to it.
//! * `rows.rs`: what an index query asks of a node and what it answers.
//! * `folds.rs`: what a fold asks of a node and what it answers.
//! * `trees.rs`: what nodes ask each other about trees of hashes.
//! * `error.rs`: errors.
//!
//! Invariants: every message that the shards send comes back as it was, up to names of limits that the receiver does
//! not know; a decoder takes memory for bytes that have arrived, and for lists of [`field::LIST_MAX`] entries.
//!
//! The bytes are listed in `docs/formats/peer.md`.

mod error;
mod field;
mod folds;
mod replica;
mod request;
mod rows;
#[cfg(test)]
mod tests;
mod trees;

use super::{AskId, CopyPart, LeaderAnswer, Load, PeerMessage, PromiseBlock};
use crate::hop::ShardId;
use bytes::{Bytes, BytesMut};
use field::Field;
use kv::index::RowsPage;
use kv::props::PropsSums;
use kv::{Ask, Error, Listed, Page, PropsChange};
use protocol::peer::frame::{self, Frame, Header, TooLarge};
use protocol::peer::{FRAME_BYTES_MAX, Malformed, Reader};
use strong::Endpoint;
use strong::envelope::Lane;
use strong::group::Birth;
use strong::promise::Block;

/// A frame's kind: which message it is.
mod kind {
    pub(super) const PING: u8 = 1;
    pub(super) const PONG: u8 = 2;
    pub(super) const ASK: u8 = 3;
    pub(super) const ANSWER: u8 = 4;
    pub(super) const FORWARD: u8 = 5;
    pub(super) const FORWARDED: u8 = 6;
    pub(super) const PROPS: u8 = 7;
    pub(super) const PROPS_IN_FORCE: u8 = 8;
    pub(super) const TYPE_PROPS: u8 = 9;
    pub(super) const ASK_PAGE: u8 = 10;
    pub(super) const PAGE: u8 = 11;
    /// An ask that only one process is to answer.
    pub(super) const ASK_LIFE: u8 = 12;
    pub(super) const MEMBERSHIP: u8 = 13;
    pub(super) const ASK_COPY: u8 = 14;
    pub(super) const COPY_PART: u8 = 15;
    /// A part of a copy whose sender has lost something.
    pub(super) const COPY_PART_LOSSY: u8 = 16;
    pub(super) const ASK_PROPS: u8 = 17;
    /// A ping and a pong that say what properties their sender knows.
    pub(super) const PING_PROPS: u8 = 18;
    pub(super) const PONG_PROPS: u8 = 19;
    pub(super) const ASK_ROWS: u8 = 20;
    pub(super) const ROWS: u8 = 21;
    pub(super) const ASK_TREE: u8 = 22;
    pub(super) const TREE: u8 = 23;
    /// A page of a fold.
    pub(super) const SUM: u8 = 24;
    /// A ping with both sums over properties.
    pub(super) const PING_SUMS: u8 = 25;
    /// A pong with both sums over properties.
    pub(super) const PONG_SUMS: u8 = 26;
    /// Urgent messages of consistent groups.
    pub(super) const GROUPS_LIVENESS: u8 = 27;
    /// Other messages of consistent groups.
    pub(super) const GROUPS: u8 = 28;
    pub(super) const CATCH_UP: u8 = 29;
    pub(super) const ASK_LEADER: u8 = 30;
    pub(super) const LEADER_ANSWER: u8 = 31;
    /// Urgent messages of consistent groups, behind their sender's word about promises.
    pub(super) const GROUPS_LIVENESS_PROMISED: u8 = 32;
    /// Other messages of consistent groups, behind their sender's word about promises.
    pub(super) const GROUPS_PROMISED: u8 = 33;
    /// A ping with its sender's word about promises.
    pub(super) const PING_PROMISED: u8 = 34;
    /// A pong with its sender's word about promises.
    pub(super) const PONG_PROMISED: u8 = 35;
    /// Urgent messages of consistent groups, behind the birth of the store that sends them.
    pub(super) const GROUPS_LIVENESS_OF_STORE: u8 = 36;
    /// Other messages of consistent groups, behind the birth of the store that sends them.
    pub(super) const GROUPS_OF_STORE: u8 = 37;
}

/// The load that a node without memory for a message is taken to have: more than makes others prefer another replica.
const LOAD_FULL: u32 = 4096;

/// What becomes of a large message that a node has no memory for.
#[derive(Debug, PartialEq)]
pub enum RefusedMessage {
    /// Its sender is to be answered this.
    Answer(PeerMessage),
    /// It was an answer, and whoever asked is to be told this in its place.
    Instead(PeerMessage),
    /// Nobody waits for it.
    Nothing,
}

impl RefusedMessage {
    /// Of the message whose frame has this kind and number.
    pub fn of(kind: u8, id: u64) -> RefusedMessage {
        let id = AskId(id);
        let answer = PeerMessage::Answer { id, load: Load(LOAD_FULL), result: Err(Error::Overload) };
        let forwarded = PeerMessage::Forwarded { id, result: Box::new(Err(Error::Overload)) };
        let is_not_leader = LeaderAnswer::NotLeader { leader: None };
        let done = LeaderAnswer::Done(Box::new(Err(Error::Timeout)));
        match kind {
            kind::ASK_LEADER => {
                RefusedMessage::Answer(PeerMessage::LeaderAnswer { id, answer: is_not_leader })
            }
            // The leader may have executed the request.
            kind::LEADER_ANSWER => RefusedMessage::Instead(PeerMessage::LeaderAnswer { id, answer: done }),
            kind::ASK | kind::ASK_LIFE => RefusedMessage::Answer(answer),
            kind::FORWARD => RefusedMessage::Answer(forwarded),
            kind::ANSWER => RefusedMessage::Instead(answer),
            kind::FORWARDED => RefusedMessage::Instead(forwarded),
            _ => RefusedMessage::Nothing,
        }
    }
}

/// The first version of the protocol in which tombstones are reaped, bucket types told of and listings
/// asked for.
const VERSION_REAPS: u16 = 2;

/// The first version in which nodes agree on their members.
const VERSION_MEMBERSHIP: u16 = 3;

/// The first version of the protocol in which partitions move.
const VERSION_MOVES: u16 = 3;

/// The first version in which a sender that has lost something says so and goes on.
const VERSION_LOSSES: u16 = 4;

/// The first version in which nodes compare what properties they know.
const VERSION_DIGESTS: u16 = 5;

/// The first version in which nodes compare properties without their resets.
const VERSION_SUMS: u16 = 8;

/// The first version in which index queries are asked for.
const VERSION_ROWS: u16 = 5;

/// The first version in which trees of hashes are compared.
const VERSION_TREES: u16 = 6;

/// The first version in which folds are asked for.
const VERSION_FOLDS: u16 = 7;

/// The first version that knows consistent types, their groups and errors: an older program would take such a type for
/// one of replicas.
pub(crate) const VERSION_GROUPS: u16 = 9;

/// The first version in which a quorum that is not met names disks without room.
const VERSION_ROOM: u16 = 9;

/// The first version in which processes promise each other not to vote.
const VERSION_PROMISES: u16 = 11;

/// The first version in which messages of groups name the birth of their sender's store.
const VERSION_BIRTHS: u16 = 12;

/// The first version in which it is said that a backend cannot do something.
const VERSION_BACKENDS: u16 = 7;

const _: () = assert!(
    kv::limits::OBJECT_BYTES_MAX + kv::limits::HEAD_BYTES_MAX + (1 << 20) <= FRAME_BYTES_MAX,
    "the largest object can be sent to a replica"
);

/// Why a message is not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// It is larger than a frame can be.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A request or an answer that one node coordinates for itself.
    #[error("nodes do not pass this on to each other")]
    Unspoken,
    /// The receiver's program is older than this kind of message.
    #[error("the other node's program does not know this message")]
    TooNew,
}

impl From<EncodeError> for Error {
    fn from(error: EncodeError) -> Error {
        match error {
            EncodeError::TooLarge(TooLarge { len, max }) => {
                Error::TooLarge { what: "object", len, limit: max }
            }
            EncodeError::Unspoken | EncodeError::TooNew => Error::Store(error.to_string()),
        }
    }
}

/// Why a frame is no message. Its frame was sound, so the sender wrote what this program does not understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a message of kind {kind}: {what}")]
pub struct DecodeError {
    /// The frame's kind.
    pub kind: u8,
    /// What is wrong.
    pub what: &'static str,
}

impl PeerMessage {
    /// Appends the message's frame in this version of the protocol to `out`, and returns its value if that is to be
    /// written right after `out`, before anything else. An answer that cannot be sent becomes one that says so.
    ///
    /// # Errors
    /// [`EncodeError`] if it cannot be sent; `out` is as it was.
    pub fn encode(&self, version: u16, out: &mut BytesMut) -> Result<Option<Bytes>, EncodeError> {
        match (self.encode_as_is(version, out), self) {
            (Err(error), &PeerMessage::Answer { id, load, .. }) => {
                PeerMessage::Answer { id, load, result: Err(error.into()) }.encode_as_is(version, out)
            }
            (Err(error), &PeerMessage::LeaderAnswer { id, .. }) => {
                let answer = LeaderAnswer::Done(Box::new(Err(error.into())));
                PeerMessage::LeaderAnswer { id, answer }.encode_as_is(version, out)
            }
            (Err(error), &PeerMessage::Forwarded { id, .. }) => {
                PeerMessage::Forwarded { id, result: Box::new(Err(error.into())) }.encode_as_is(version, out)
            }
            (result, _) => result,
        }
    }

    fn encode_as_is(&self, version: u16, out: &mut BytesMut) -> Result<Option<Bytes>, EncodeError> {
        let start = frame::begin(out);
        match self.put_body(version, out) {
            Ok(value) => Ok(frame::end(out, start, self.header(version), value)?),
            Err(error) => {
                out.truncate(start);
                Err(error)
            }
        }
    }

    fn header(&self, version: u16) -> Header {
        let (kind, id, ttl_ms) = match self {
            PeerMessage::Ping { id, promise, props, .. } if names_promise(version, promise, *props) => {
                (kind::PING_PROMISED, id, 0)
            }
            PeerMessage::Pong { id, promise, props, .. } if names_promise(version, promise, *props) => {
                (kind::PONG_PROMISED, id, 0)
            }
            PeerMessage::Ping { id, props, .. } if names_sums(version, *props) => (kind::PING_SUMS, id, 0),
            PeerMessage::Pong { id, props, .. } if names_sums(version, *props) => (kind::PONG_SUMS, id, 0),
            PeerMessage::Ping { id, props, .. } if names_props(version, *props) => (kind::PING_PROPS, id, 0),
            PeerMessage::Ping { id, .. } => (kind::PING, id, 0),
            PeerMessage::Pong { id, props, .. } if names_props(version, *props) => (kind::PONG_PROPS, id, 0),
            PeerMessage::Pong { id, .. } => (kind::PONG, id, 0),
            PeerMessage::Ask { id, ttl_ms, life, .. } if names_life(version, *life) => {
                (kind::ASK_LIFE, id, *ttl_ms)
            }
            PeerMessage::Ask { id, ttl_ms, .. } => (kind::ASK, id, *ttl_ms),
            PeerMessage::Answer { id, .. } => (kind::ANSWER, id, 0),
            PeerMessage::Forward { id, ttl_ms, .. } => (kind::FORWARD, id, *ttl_ms),
            PeerMessage::Forwarded { id, .. } => (kind::FORWARDED, id, 0),
            PeerMessage::Props { id, change: PropsChange::Bucket(..) } => (kind::PROPS, id, 0),
            PeerMessage::Props { id, change: PropsChange::Type(..) } => (kind::TYPE_PROPS, id, 0),
            PeerMessage::PropsInForce { id } => (kind::PROPS_IN_FORCE, id, 0),
            PeerMessage::AskCopy { id, .. } => (kind::ASK_COPY, id, 0),
            PeerMessage::CopyPart { id, part } if names_losses(version, part) => {
                (kind::COPY_PART_LOSSY, id, 0)
            }
            PeerMessage::CopyPart { id, .. } => (kind::COPY_PART, id, 0),
            PeerMessage::AskPage { id, ttl_ms, .. } => (kind::ASK_PAGE, id, *ttl_ms),
            PeerMessage::Page { id, page: Ok(Page { sum: Some(_), .. }) } => (kind::SUM, id, 0),
            PeerMessage::Page { id, .. } => (kind::PAGE, id, 0),
            PeerMessage::AskProps { id, .. } => (kind::ASK_PROPS, id, 0),
            PeerMessage::AskRows { id, ttl_ms, .. } => (kind::ASK_ROWS, id, *ttl_ms),
            PeerMessage::Rows { id, .. } => (kind::ROWS, id, 0),
            PeerMessage::AskTree { id, .. } => (kind::ASK_TREE, id, 0),
            PeerMessage::Tree { id, .. } => (kind::TREE, id, 0),
            PeerMessage::Membership { .. } => (kind::MEMBERSHIP, &AskId(0), 0),
            PeerMessage::Groups { to, lane, block, birth, .. } => {
                let names_store = birth.is_some() && version >= VERSION_BIRTHS;
                let promises = block.is_some() && version >= VERSION_PROMISES;
                let kind = match (lane, names_store, promises) {
                    (Lane::Liveness, true, _) => kind::GROUPS_LIVENESS_OF_STORE,
                    (Lane::Requests, true, _) => kind::GROUPS_OF_STORE,
                    (Lane::Liveness, false, false) => kind::GROUPS_LIVENESS,
                    (Lane::Requests, false, false) => kind::GROUPS,
                    (Lane::Liveness, false, true) => kind::GROUPS_LIVENESS_PROMISED,
                    (Lane::Requests, false, true) => kind::GROUPS_PROMISED,
                };
                (kind, &AskId(to.0.into()), 0)
            }
            PeerMessage::CatchUp { to, .. } => (kind::CATCH_UP, &AskId(to.0.into()), 0),
            PeerMessage::AskLeader { id, ttl_ms, .. } => (kind::ASK_LEADER, id, *ttl_ms),
            PeerMessage::LeaderAnswer { id, .. } => (kind::LEADER_ANSWER, id, 0),
        };
        Header { kind, id: id.0, ttl_ms }
    }

    /// The oldest version of the protocol that knows the message.
    fn version_needed(&self) -> u16 {
        match self {
            PeerMessage::AskProps { .. } => VERSION_DIGESTS,
            PeerMessage::AskPage { ask, .. } if matches!(ask.listed, Listed::Fold(_)) => VERSION_FOLDS,
            PeerMessage::Props { change: PropsChange::Type(_, change), .. } if change.props.consistent => {
                VERSION_GROUPS
            }
            PeerMessage::Ask { ask: Ask::Reap { .. }, .. }
            | PeerMessage::AskPage { .. }
            | PeerMessage::Page { .. }
            | PeerMessage::Props { change: PropsChange::Type(..), .. } => VERSION_REAPS,
            PeerMessage::Membership { .. } => VERSION_MEMBERSHIP,
            PeerMessage::AskRows { .. } | PeerMessage::Rows { .. } => VERSION_ROWS,
            PeerMessage::AskTree { .. } | PeerMessage::Tree { .. } => VERSION_TREES,
            PeerMessage::AskCopy { .. } | PeerMessage::CopyPart { .. } => VERSION_MOVES,
            PeerMessage::Ask { ask: Ask::Merge { reason, .. }, .. } if reason.is_of_move() => VERSION_MOVES,
            PeerMessage::Groups { .. }
            | PeerMessage::CatchUp { .. }
            | PeerMessage::AskLeader { .. }
            | PeerMessage::LeaderAnswer { .. } => VERSION_GROUPS,
            PeerMessage::Answer { result: Err(error), .. } if error::is_of_consistent(error) => {
                VERSION_GROUPS
            }
            PeerMessage::Forwarded { result, .. }
                if result.as_ref().as_ref().is_err_and(error::is_of_consistent) =>
            {
                VERSION_GROUPS
            }
            _ => 0,
        }
    }

    /// Appends the fields, and returns the value that comes after them.
    fn put_body(&self, version: u16, out: &mut BytesMut) -> Result<Option<&Bytes>, EncodeError> {
        if version < self.version_needed() {
            return Err(EncodeError::TooNew);
        }
        match self {
            PeerMessage::Ask { id: _, ttl_ms: _, life, key, ask } => {
                if names_life(version, *life) {
                    life.put(out);
                }
                key.put(out);
                ask.put(out);
                Ok(replica::value_of_ask(ask))
            }
            PeerMessage::Answer { id: _, result, load } => {
                load.put(out);
                result.put(out);
                Ok(replica::value_of_answer(result))
            }
            PeerMessage::Forward { id: _, ttl_ms: _, request } => request::put_request(request, out),
            PeerMessage::Forwarded { id: _, result } => {
                let older = result.as_ref().as_ref().err().filter(|_| version < VERSION_ROOM);
                match older.and_then(error::without_room) {
                    Some(error) => request::put_result(&Err(error), out).map(|_| None),
                    None => request::put_result(result, out),
                }
            }
            PeerMessage::AskLeader { id: _, ttl_ms: _, life, number, request } => {
                life.put(out);
                number.map(|(Endpoint { life, shard }, number)| (life, (shard, number))).put(out);
                request::put_leader_request(request, out)
            }
            PeerMessage::LeaderAnswer { id: _, answer } => request::put_leader_answer(answer, out),
            PeerMessage::Groups { to: _, lane: _, block, birth, envelope } => {
                let block = block.as_ref().filter(|_| version >= VERSION_PROMISES);
                if let Some(birth) = birth.filter(|_| version >= VERSION_BIRTHS) {
                    birth.number().put(out);
                    block.is_some().put(out);
                }
                if let Some(block) = block {
                    block.put(out);
                }
                Ok(Some(envelope))
            }
            PeerMessage::CatchUp { to: _, message } => Ok(Some(message)),
            _ => {
                self.put_fields(version, out);
                Ok(None)
            }
        }
    }

    /// Appends the fields of a message without a value behind them.
    fn put_fields(&self, version: u16, out: &mut BytesMut) {
        match self {
            PeerMessage::Ping { id: _, life, load, props, promise }
            | PeerMessage::Pong { id: _, life, load, props, promise } => {
                life.put(out);
                load.put(out);
                if let Some(promise) = promise.as_ref().filter(|_| names_promise(version, promise, *props)) {
                    promise.life.put(out);
                    promise.block.put(out);
                }
                put_sums(*props, version, out);
            }
            PeerMessage::AskProps { id: _, leaves } => leaves.put(out),
            PeerMessage::Props { id: _, change: PropsChange::Bucket(bucket, change) } => {
                bucket.put(out);
                change.put(out);
            }
            PeerMessage::Props { id: _, change: PropsChange::Type(name, change) } => {
                name.put(out);
                change.put(out);
            }
            PeerMessage::PropsInForce { id: _ } => {}
            PeerMessage::Membership { bytes } => bytes.put(out),
            PeerMessage::AskPage { id: _, ttl_ms: _, ask } => ask.put(out),
            PeerMessage::Page { id: _, page: Ok(page @ Page { sum: Some(sum), .. }) } => {
                sum.put(out);
                page.put(out);
            }
            PeerMessage::Page { id: _, page } => page.put(out),
            PeerMessage::AskRows { id: _, ttl_ms: _, ask } => ask.put(out),
            PeerMessage::Rows { id: _, page: Err(Error::Unsupported(text)) }
                if version < VERSION_BACKENDS =>
            {
                Err::<RowsPage, _>(Error::Store(text.clone())).put(out);
            }
            PeerMessage::Rows { id: _, page } => page.put(out),
            PeerMessage::AskTree { id: _, partitions, ask } => {
                partitions.put(out);
                ask.put(out);
            }
            PeerMessage::Tree { id: _, answer } => answer.put(out),
            PeerMessage::AskCopy { id: _, target, partitions, start } => {
                target.put(out);
                partitions.put(out);
                start.put(out);
            }
            PeerMessage::CopyPart { id: _, part: Ok(part) } if !part.lost.is_empty() => {
                put_lossy_part(part, version, out);
            }
            PeerMessage::CopyPart { id: _, part } => part.put(out),
            PeerMessage::Ask { .. }
            | PeerMessage::Answer { .. }
            | PeerMessage::Forward { .. }
            | PeerMessage::Forwarded { .. }
            | PeerMessage::Groups { .. }
            | PeerMessage::CatchUp { .. }
            | PeerMessage::AskLeader { .. }
            | PeerMessage::LeaderAnswer { .. } => unreachable!("a value comes behind its fields"),
        }
    }

    /// The message in a frame. Its bytes are slices of the frame's body.
    ///
    /// # Errors
    /// [`DecodeError`] unless they are what [`encode`](PeerMessage::encode) writes.
    pub fn decode(frame: Frame) -> Result<PeerMessage, DecodeError> {
        let kind = frame.kind;
        decode(frame).map_err(|Malformed(what)| DecodeError { kind, what })
    }
}

/// Appends sums over bucket properties, as far as the version knows of them.
fn put_sums(props: Option<PropsSums>, version: u16, out: &mut BytesMut) {
    if let Some(sums) = props.filter(|_| names_props(version, props)) {
        sums.all.put(out);
    }
    if let Some(sums) = props.filter(|_| names_sums(version, props)) {
        sums.sets.unwrap_or_default().put(out);
        sums.is_kept.put(out);
    }
}

/// Appends a part of a transfer of which the sender has lost something.
fn put_lossy_part(part: &CopyPart, version: u16, out: &mut BytesMut) {
    if version >= VERSION_LOSSES {
        part.lost.put(out);
        part.put(out);
    } else {
        // A receiver that cannot make up for the loss is not to take the part for all.
        let error = Error::Damaged("the sender has lost a part of it".to_owned());
        Err::<CopyPart, Error>(error).put(out);
    }
}

/// Whether an ask is written with the process that is to answer it: an older program would not understand it, and takes
/// part in no reaping either.
fn names_life(version: u16, life: u64) -> bool {
    version >= VERSION_REAPS && life != 0
}

/// Whether a part is written with what its sender has lost.
fn names_losses(version: u16, part: &Result<CopyPart, Error>) -> bool {
    version >= VERSION_LOSSES && part.as_ref().is_ok_and(|part| !part.lost.is_empty())
}

/// Whether a ping or a pong says what properties its sender knows.
fn names_props(version: u16, props: Option<PropsSums>) -> bool {
    version >= VERSION_DIGESTS && props.is_some()
}

/// Whether it also says what they are without resets.
fn names_sums(version: u16, props: Option<PropsSums>) -> bool {
    version >= VERSION_SUMS && props.is_some_and(|sums| sums.sets.is_some())
}

/// Whether a ping or a pong has its sender's word about promises. Behind it come both sums over properties, or nothing.
fn names_promise(version: u16, promise: &Option<PromiseBlock>, props: Option<PropsSums>) -> bool {
    version >= VERSION_PROMISES && promise.is_some() && (props.is_none() || names_sums(version, props))
}

/// The word about promises in a ping or a pong of this kind.
fn take_promise(kind: u8, from: &mut Reader) -> Result<Option<PromiseBlock>, Malformed> {
    if !matches!(kind, kind::PING_PROMISED | kind::PONG_PROMISED) {
        return Ok(None);
    }
    Ok(Some(PromiseBlock { life: Field::take(from)?, block: Block::read(from)? }))
}

fn take_ask(id: AskId, ttl_ms: u32, life: u64, from: &mut Reader) -> Result<PeerMessage, Malformed> {
    Ok(PeerMessage::Ask { id, ttl_ms, life, key: Field::take(from)?, ask: Field::take(from)? })
}

/// The sums in a ping or a pong of this kind.
fn take_props(kind: u8, from: &mut Reader) -> Result<Option<PropsSums>, Malformed> {
    Ok(match kind {
        kind::PING | kind::PONG => None,
        kind::PING_PROMISED | kind::PONG_PROMISED if from.end().is_ok() => None,
        kind::PING_PROPS | kind::PONG_PROPS => {
            Some(PropsSums { all: Field::take(from)?, sets: None, is_kept: false })
        }
        _ => {
            let (all, sets) = (Field::take(from)?, Some(Field::take(from)?));
            Some(PropsSums { all, sets, is_kept: Field::take(from)? })
        }
    })
}

fn decode(frame: Frame) -> Result<PeerMessage, Malformed> {
    let (id, ttl_ms) = (AskId(frame.id), frame.ttl_ms);
    let from = &mut Reader::new(frame.body);
    let message = match frame.kind {
        kind::PING | kind::PING_PROPS | kind::PING_SUMS | kind::PING_PROMISED => {
            let (life, load) = (Field::take(from)?, Field::take(from)?);
            let promise = take_promise(frame.kind, from)?;
            PeerMessage::Ping { id, life, load, props: take_props(frame.kind, from)?, promise }
        }
        kind::PONG | kind::PONG_PROPS | kind::PONG_SUMS | kind::PONG_PROMISED => {
            let (life, load) = (Field::take(from)?, Field::take(from)?);
            let promise = take_promise(frame.kind, from)?;
            PeerMessage::Pong { id, life, load, props: take_props(frame.kind, from)?, promise }
        }
        kind::ASK_PROPS => PeerMessage::AskProps { id, leaves: Field::take(from)? },
        kind::ASK => take_ask(id, ttl_ms, 0, from)?,
        kind::ASK_LIFE => {
            let life = Field::take(from)?;
            take_ask(id, ttl_ms, life, from)?
        }
        kind::ANSWER => {
            let load = Field::take(from)?;
            PeerMessage::Answer { id, result: Field::take(from)?, load }
        }
        kind::FORWARD => PeerMessage::Forward { id, ttl_ms, request: Box::new(request::take_request(from)?) },
        kind::FORWARDED => PeerMessage::Forwarded { id, result: Box::new(request::take_result(from)?) },
        kind::PROPS => {
            let bucket = Field::take(from)?;
            PeerMessage::Props { id, change: PropsChange::Bucket(bucket, Field::take(from)?) }
        }
        kind::TYPE_PROPS => {
            let name = Field::take(from)?;
            PeerMessage::Props { id, change: PropsChange::Type(name, Field::take(from)?) }
        }
        kind::ASK_PAGE => PeerMessage::AskPage { id, ttl_ms, ask: Field::take(from)? },
        kind::PAGE => PeerMessage::Page { id, page: Field::take(from)? },
        kind::SUM => {
            let sum = Some(Field::take(from)?);
            PeerMessage::Page { id, page: Ok(Page { sum, ..Field::take(from)? }) }
        }
        kind::ASK_ROWS => PeerMessage::AskRows { id, ttl_ms, ask: Box::new(Field::take(from)?) },
        kind::ROWS => PeerMessage::Rows { id, page: Field::take(from)? },
        kind::MEMBERSHIP => PeerMessage::Membership { bytes: Field::take(from)? },
        kind::ASK_COPY => {
            let (target, partitions) = (Field::take(from)?, Field::take(from)?);
            PeerMessage::AskCopy { id, target, partitions, start: Field::take(from)? }
        }
        kind::COPY_PART => PeerMessage::CopyPart { id, part: Field::take(from)? },
        kind::COPY_PART_LOSSY => {
            let lost = Field::take(from)?;
            PeerMessage::CopyPart { id, part: Ok(CopyPart { lost, ..Field::take(from)? }) }
        }
        kind::ASK_TREE => {
            let partitions = Field::take(from)?;
            PeerMessage::AskTree { id, partitions, ask: Field::take(from)? }
        }
        kind::TREE => PeerMessage::Tree { id, answer: Field::take(from)? },
        kind::PROPS_IN_FORCE => PeerMessage::PropsInForce { id },
        kind::GROUPS_LIVENESS
        | kind::GROUPS
        | kind::GROUPS_LIVENESS_PROMISED
        | kind::GROUPS_PROMISED
        | kind::GROUPS_LIVENESS_OF_STORE
        | kind::GROUPS_OF_STORE => take_groups(frame.kind, id, from)?,
        kind::CATCH_UP => PeerMessage::CatchUp { to: shard_of(id)?, message: from.rest() },
        kind::ASK_LEADER => {
            let (life, number) = (Field::take(from)?, <Option<(u64, (u16, u64))> as Field>::take(from)?);
            let number = number.map(|(life, (shard, number))| (Endpoint { life, shard }, number));
            let request = Box::new(request::take_leader_request(from)?);
            PeerMessage::AskLeader { id, ttl_ms, life, number, request }
        }
        kind::LEADER_ANSWER => PeerMessage::LeaderAnswer { id, answer: request::take_leader_answer(from)? },
        _ => return Err(Malformed("there is no such kind")),
    };
    from.end()?;
    Ok(message)
}

/// Messages of consistent groups in a frame of this kind.
fn take_groups(kind: u8, id: AskId, from: &mut Reader) -> Result<PeerMessage, Malformed> {
    let lane = match kind {
        kind::GROUPS_LIVENESS | kind::GROUPS_LIVENESS_PROMISED | kind::GROUPS_LIVENESS_OF_STORE => {
            Lane::Liveness
        }
        _ => Lane::Requests,
    };

    let names_store = matches!(kind, kind::GROUPS_LIVENESS_OF_STORE | kind::GROUPS_OF_STORE);
    let (birth, promises) = if names_store {
        let birth = Birth::of(Field::take(from)?).ok_or(Malformed("there is no such birth"))?;
        (Some(birth), Field::take(from)?)
    } else {
        (None, matches!(kind, kind::GROUPS_LIVENESS_PROMISED | kind::GROUPS_PROMISED))
    };
    let block = if promises { Some(Block::read(from)?) } else { None };

    Ok(PeerMessage::Groups { to: shard_of(id)?, lane, block, birth, envelope: from.rest() })
}

/// The shard that a message without a question is for.
fn shard_of(id: AskId) -> Result<ShardId, Malformed> {
    u16::try_from(id.0).map(ShardId).map_err(|_| Malformed("there is no such shard"))
}
