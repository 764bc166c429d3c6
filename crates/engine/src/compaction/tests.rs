//! What compaction keeps, record by record.

use super::newest::Known;
use super::sift::{Verdict, verdict};
use crate::entry::{Entry, Jsn, Location};

const VALUE: Location = Location::Journal { offset: 64, len: 100 };

fn judged(location: Location, expires_ms: Option<u64>, newest: Option<(u64, Location)>) -> Verdict {
    let inline: &[u8] = if location == Location::Inline { b"value" } else { b"" };
    let entry = Entry { jsn: Jsn(10), location, head: b"", inline, expires_ms };
    verdict(&entry, newest.map(|(jsn, location)| Known { jsn: Jsn(jsn), location }))
}

/// The table in `sift.rs`, line by line: V is that very version, V is newer, there is no V.
#[test]
fn the_rule_is_what_its_table_says() {
    let row = |location, expires_ms, same| {
        let newer = Some((11, VALUE));
        [Some((10, same)), newer, None].map(|newest| judged(location, expires_ms, newest))
    };
    assert_eq!(row(VALUE, None, VALUE), [Verdict::Keep, Verdict::Drop, Verdict::Drop]);
    assert_eq!(
        row(VALUE, Some(5), Location::Deleted),
        [Verdict::DeletionIfItCovers, Verdict::Drop, Verdict::DeletionIfItCovers]
    );
    assert_eq!(row(VALUE, Some(5), VALUE), [Verdict::Keep, Verdict::Drop, Verdict::DeletionIfItCovers]);
    let inline = row(Location::Inline, None, Location::Inline);
    assert_eq!(inline, [Verdict::IfItCovers, Verdict::Drop, Verdict::IfItCovers]);
    let deleted = row(Location::Deleted, None, Location::Deleted);
    assert_eq!(deleted, [Verdict::Keep, Verdict::Drop, Verdict::IfItCovers]);
}

/// A ledger that knows only an older version than the record has lost something: the record stays.
#[test]
fn on_doubt_a_record_is_kept() {
    for location in [VALUE, Location::Inline, Location::Deleted] {
        assert_eq!(judged(location, None, Some((9, VALUE))), Verdict::Keep);
    }
}
