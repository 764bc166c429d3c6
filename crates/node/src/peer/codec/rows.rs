//! What an index query asks of a node, and what it answers.

use super::field::{Field, LIST_MAX, record, variants};
use bytes::BytesMut;
use kv::index::{KeyOrder, Pick, PrefixSet, Query, Row, RowList, RowRef, RowsAsk, RowsPage, Span};
use protocol::peer::{Malformed, Reader, put_bytes};

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

/// As a list of rows.
impl Field for RowList {
    fn put(&self, out: &mut BytesMut) {
        self.len().put(out);
        for row in self.iter() {
            put_bytes(out, row.term);
            put_bytes(out, row.key);
        }
    }
    fn take(from: &mut Reader) -> Result<RowList, Malformed> {
        let count = from.count()?;
        if count > LIST_MAX {
            return Err(Malformed("a list is too long"));
        }
        let mut rows = RowList::default();
        for _ in 0..count {
            let (term, key) = (from.bytes()?, from.bytes()?);
            rows.push(RowRef { term: &term, key: &key });
        }
        Ok(rows)
    }
}
