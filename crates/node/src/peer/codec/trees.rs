//! What nodes ask each other about trees of hashes, and what they answer.

use super::field::{Field, record, variants};
use bytes::BytesMut;
use kv::aae::{Axis, DAY_MAX, Grouping, KeyPage, TreeAnswer, TreeAsk, TreeId};
use protocol::peer::{Malformed, Reader};

/// Where the day begins behind the number of replicas: a tree of what does not end is named as before there were days.
const DAY_SHIFT: u32 = 8;

const _: () = assert!(kv::props::N_VAL_MAX < 1 << DAY_SHIFT && DAY_MAX <= u32::MAX >> DAY_SHIFT);

impl Field for TreeId {
    fn put(&self, out: &mut BytesMut) {
        self.first.put(out);
        (self.day << DAY_SHIFT | self.n_val).put(out);
    }
    fn take(from: &mut Reader) -> Result<TreeId, Malformed> {
        let (first, number) = (u16::take(from)?, u32::take(from)?);
        Ok(TreeId { first, n_val: number & ((1 << DAY_SHIFT) - 1), day: number >> DAY_SHIFT })
    }
}

/// Marks a number of bits as that of columns. Who has never heard of columns tells no groups of so many bits apart, and
/// calls all of them different: so all of the rows are looked at.
const COLUMNS: u32 = 1 << 31;

impl Field for Grouping {
    fn put(&self, out: &mut BytesMut) {
        (self.bits | if self.axis == Axis::Columns { COLUMNS } else { 0 }).put(out);
    }
    fn take(from: &mut Reader) -> Result<Grouping, Malformed> {
        let number = u32::take(from)?;
        let axis = if number & COLUMNS == 0 { Axis::Rows } else { Axis::Columns };
        Ok(Grouping { axis, bits: number & !COLUMNS })
    }
}

record!(KeyPage { keys, next });

variants!(TreeAsk, "no question about trees" {
    1 Roots { roots: roots },
    2 Groups { tree: tree, by: by, groups: groups },
    3 Keys { tree: tree, bits: bits, segments: segments, from: start },
});

variants!(TreeAnswer, "no answer about trees" {
    1 Roots { differ: differ, others: others },
    2 Groups { bits: bits, differ: differ },
    3 Keys { 0: page },
});
