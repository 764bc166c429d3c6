//! What an index query asks of a node, and what it answers.

use super::field::{Field, record, variants};
use bytes::BytesMut;
use kv::index::{KeyOrder, Pick, PrefixSet, Query, Row, RowsAsk, RowsPage, Span};
use protocol::peer::{Malformed, Reader};

record!(RowsAsk { query, prefixes, after, rows_max });
record!(Query { bucket, span, pick });
record!(Row { term, key });
record!(RowsPage { rows, next, others });

variants!(Span, "nothing that is looked through" {
    1 Terms { field: field, first: first, last: last },
    2 Keys { first: first, last: last, order: order },
});

variants!(Pick, "no way to pick" {
    1 All,
    2 Matching { 0: pattern },
    3 Where { pipeline: pipeline, condition: condition },
});

variants!(KeyOrder, "no such order" {
    1 Name,
    2 Place,
});

/// Its words.
impl Field for PrefixSet {
    fn put(&self, out: &mut BytesMut) {
        self.words().len().put(out);
        self.words().iter().for_each(|word| word.put(out));
    }
    fn take(from: &mut Reader) -> Result<PrefixSet, Malformed> {
        PrefixSet::from_words(Field::take(from)?).ok_or(Malformed("no set of prefixes"))
    }
}
