//! What is asked of a replica and what it answers; pages of listings; a bucket's properties.

use super::field::{Field, record, variants};
use crate::peer::{CopyPart, Load};
use bytes::{Bytes, BytesMut};
use kv::props::{StampedProps, StampedType};
use kv::reap::Round;
use kv::replica::{Answer, Ask, NodeId, Reason};
use kv::{Bucket, BucketProps, Error, Listed, Page, PageAsk, Stored, Want};
use protocol::peer::{Malformed, Reader, put_bytes};
use std::sync::Arc;

record!(Bucket { bucket_type, name });
record!(StampedProps { stamp, props });
record!(StampedType { stamp, active, props });
record!(Stored { head; value });

variants!(Ask, "no such question" {
    1 Read { want: want },
    2 Merge { reason: reason, hints: hints, head: head; value },
    3 Reap { round: round, tombstone: tombstone },
});

variants!(Round, "no such round" {
    1 Promise,
    2 Confirm,
    3 Remove,
});

record!(PageAsk { listed, partitions, start });
record!(Page { names, rest, next } without sum);
record!(CopyPart { rest, next, objects, bytes } without lost);

variants!(Listed, "nothing that is listed" {
    1 Keys { 0: bucket },
    2 Buckets { 0: bucket_type },
    3 Fold { 0: fold },
});

variants!(Want, "no such part of an object" {
    1 Head,
    2 Value,
});

variants!(Reason, "no such reason" {
    1 Write,
    2 Repair,
    3 Heal,
    4 Handoff,
    5 DualWrite,
    6 Copy,
});

variants!(Answer, "no such answer" {
    1 Read { 0: stored },
    2 Merged,
    3 Reaping { round: round, agrees: agrees },
});

/// The value that a question ends with.
pub(super) fn value_of_ask(ask: &Ask) -> Option<&Bytes> {
    match ask {
        Ask::Read { .. } | Ask::Reap { .. } => None,
        Ask::Merge { value, .. } => Some(value),
    }
}

/// The value that an answer ends with.
pub(super) fn value_of_answer(result: &Result<Answer, Error>) -> Option<&Bytes> {
    match result {
        Ok(Answer::Read(Some(stored))) => stored.value.as_ref(),
        Ok(Answer::Read(None) | Answer::Merged | Answer::Reaping { .. }) | Err(_) => None,
    }
}

impl Field for Load {
    fn put(&self, out: &mut BytesMut) {
        self.0.put(out);
    }
    fn take(from: &mut Reader) -> Result<Load, Malformed> {
        Ok(Load(u32::take(from)?))
    }
}

impl Field for NodeId {
    fn put(&self, out: &mut BytesMut) {
        self.0.put(out);
    }
    fn take(from: &mut Reader) -> Result<NodeId, Malformed> {
        Ok(NodeId(u16::take(from)?))
    }
}

/// In their stored form.
impl Field for Arc<BucketProps> {
    fn put(&self, out: &mut BytesMut) {
        put_bytes(out, &self.encode());
    }
    fn take(from: &mut Reader) -> Result<Arc<BucketProps>, Malformed> {
        let props = BucketProps::decode(&from.bytes()?);
        props.map(Arc::new).map_err(|_| Malformed("unreadable bucket properties"))
    }
}
