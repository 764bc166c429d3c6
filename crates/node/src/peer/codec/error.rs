//! Errors.
//!
//! A name that an error holds travels as text, so that the two nodes need not know the same ones.

use super::field::{Field, variants};
use bytes::BytesMut;
use kv::error::Name;
use kv::need::Need;
use kv::props::{Reason, TypeStatus};
use kv::{Error, Prop};
use object::index::{IndexError, IndexErrors};
use protocol::peer::{Malformed, Reader, put_bytes};

variants!(Error, "no such error" {
    1 NValViolation { 0: n },
    2 Unsatisfied { need: need, want: want, got: got },
    3 InsufficientVnodes { have: have, need: need },
    4 Unreachable,
    5 MatchFound,
    6 Modified,
    7 NotFoundCondition,
    8 NoType { 0: name },
    9 EmptyName { 0: name },
    10 BadContext,
    11 BadIndex { 0: errors },
    12 TooLarge { what: what, len: len, limit: limit },
    13 TooManySiblings { got: got, limit: limit },
    14 InvalidProps { 0: reasons },
    15 TooManyBuckets { limit: limit },
    16 DefaultTypeFixed,
    17 ListTooLong { limit: limit },
    18 Timeout,
    19 Overload,
    20 Damaged { 0: text },
    21 Fenced { 0: text },
    22 Store { 0: text },
    23 NotCovered,
    24 TypeStatus { 0: status },
    25 TooManyTypes { limit: limit },
    26 Exhausted { 0: text },
    27 BadQuery { 0: text },
    28 AnswerTooLong { limit: limit },
    29 Unsupported { 0: text },
    30 TooManyResets { limit: limit },
    31 Precommit { 0: reason },
    32 Failed,
    33 Unavailable,
    34 NotInConsistentTypes { 0: what },
    35 NoRoom { need: need, want: want, got: got, full: full },
});

variants!(TypeStatus, "no such status" {
    1 Created,
    2 Ready,
    3 Active,
});

variants!(Need, "no such requirement" {
    1 R,
    2 Pr,
    3 W,
    4 Pw,
    5 Dw,
    6 NodeConfirms,
});

variants!(Name, "no such name" {
    1 Bucket,
    2 Key,
    3 Type,
});

variants!(Reason, "no such reason" {
    1 Word { 0: word },
    2 Text { 0: text },
});

variants!(IndexError, "no such index error" {
    1 FieldParsingFailed { field: field, value: value },
    2 UnknownFieldType { field: field },
});

impl Field for IndexErrors {
    fn put(&self, out: &mut BytesMut) {
        self.0.put(out);
    }
    fn take(from: &mut Reader) -> Result<IndexErrors, Malformed> {
        Ok(IndexErrors(Field::take(from)?))
    }
}

/// Whether it is an error of consistent types alone.
pub(super) fn is_of_consistent(error: &Error) -> bool {
    matches!(error, Error::Failed | Error::Unavailable | Error::NotInConsistentTypes(_))
}

/// The error of a program that does not tell of full disks; `None` if that is this one.
pub(super) fn without_room(error: &Error) -> Option<Error> {
    match *error {
        Error::NoRoom { need, want, got, .. } => Some(Error::Unsatisfied { need, want, got }),
        _ => None,
    }
}

/// What an error of this program can be about, beside bucket properties.
pub(super) const NAMES: [&str; 10] = [
    "value",
    "metadata",
    "object head",
    "object",
    "bucket",
    "key",
    "bucket type",
    "causal context (actors)",
    "not_integer",
    "not_valid_quorum",
];

/// What stands for a name that this program does not know.
pub(super) const OTHER: &str = "something";

impl Field for &'static str {
    fn put(&self, out: &mut BytesMut) {
        put_bytes(out, self.as_bytes());
    }
    fn take(from: &mut Reader) -> Result<&'static str, Malformed> {
        let name = from.bytes()?;
        let mut known = NAMES.iter().chain(Prop::NAMES);
        Ok(known.find(|known| known.as_bytes() == name).copied().unwrap_or(OTHER))
    }
}
