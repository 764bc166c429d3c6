//! What compaction keeps, record by record.

use super::newest::{Known, Newest};
use super::reader::Listed;
use super::sift::{Fate, Ground, Sieve, Verdict, verdict};
use crate::entry::{Entry, Jsn, Location, Seq};
use crate::error::Damage;
use crate::lost::{LostRange, LostRanges};
use crate::manifest::Version;
use crate::table::testing::MemDisk;
use bytes::Bytes;
use std::sync::Arc;

const VALUE: Location = Location::Journal { offset: 64, len: 100 };

fn judged(location: Location, expires_ms: Option<u64>, newest: Option<(u64, Location)>) -> Verdict {
    judged_of(false, location, expires_ms, newest.map(|(jsn, location)| (jsn, jsn, location)))
}

/// Of `newest` jsn, seq and location are told.
fn judged_of(
    is_proposed: bool,
    location: Location,
    expires_ms: Option<u64>,
    newest: Option<(u64, u64, Location)>,
) -> Verdict {
    let inline: &[u8] = if location == Location::Inline { b"value" } else { b"" };
    let entry = Entry { jsn: Jsn(10), location, head: b"", inline, expires_ms };
    let (key, bytes) = (Bytes::from_static(b"k"), Bytes::new());
    let listed = Listed { key, seq: Seq(10), is_proposed, entry: bytes, other: None };
    verdict(
        &listed,
        &entry,
        newest.map(|(jsn, seq, location)| Known { jsn: Jsn(jsn), seq: Seq(seq), location }),
    )
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

/// An entry of a group's log is a version only if the ledger says so, and versions of entries are not in the order of
/// their jsns.
#[test]
fn an_entry_of_a_log_is_kept_if_the_ledger_is_made_of_it() {
    let entry = |location, newest| judged_of(true, location, None, newest);
    let others = [Some((9, 20, VALUE)), Some((11, 12, VALUE)), None];
    for location in [VALUE, Location::Inline] {
        assert_eq!(others.map(|newest| entry(location, newest)), [Verdict::Drop; 3]);
    }
    assert_eq!(entry(VALUE, Some((10, 20, VALUE))), Verdict::Keep);
    assert_eq!(entry(Location::Inline, Some((10, 20, Location::Inline))), Verdict::IfItCovers);
    let data = |seq| judged_of(false, VALUE, None, Some((9, seq, VALUE)));
    assert_eq!([data(11), data(9)], [Verdict::Drop, Verdict::Keep]);
}

/// A ledger that knows only an older version than the record has lost something: the record stays.
#[test]
fn on_doubt_a_record_is_kept() {
    for location in [VALUE, Location::Inline, Location::Deleted] {
        assert_eq!(judged(location, None, Some((9, VALUE))), Verdict::Keep);
    }
}

/// Three records, as versions 1 to 3, before a ledger that has nothing and lost this: what becomes of them, and whether
/// a value goes on in tables alone.
fn sifted(ground: Ground, lost: Arc<LostRanges>) -> ([Fate; 3], bool) {
    let listed = |seq: u64, location| {
        let inline: &[u8] = if location == Location::Inline { b"value" } else { b"" };
        let mut entry = Vec::new();
        Entry { jsn: Jsn(seq), location, head: b"", inline, expires_ms: None }.encode(&mut entry);
        Listed {
            key: Bytes::from(vec![b'k', seq as u8]),
            seq: Seq(seq),
            is_proposed: false,
            entry: entry.into(),
            other: None,
        }
    };
    let chunk = [listed(1, Location::Inline), listed(2, Location::Deleted), listed(3, Location::Inline)];
    let mut newest = Newest::new(Seq(3), Vec::new(), Arc::new(Version::new(Default::default())), lost);
    let mut sieve = Sieve::new(ground);
    sieve.judge(&mut MemDisk::default(), &mut newest, &chunk).unwrap();
    let in_doubt = sieve.in_doubt;
    sieve.settle_unseen(in_doubt);
    ([0, 1, 2].map(|at| sieve.fate(at)), sieve.drops_inlines)
}

/// An inline value goes where nothing is older and a table has its version; everything else is looked up, and stays
/// until older segments are looked through. Where a look finds that something was lost nothing goes unseen.
#[test]
fn only_an_inline_value_that_nothing_needs_goes_unseen() {
    let ground = Ground { indexing: None, is_oldest: true, in_tables: Seq(2) };
    let sound = Arc::<LostRanges>::default;
    assert_eq!(sifted(ground, sound()), ([Fate::Dropped, Fate::Kept, Fate::Kept], true));
    let nothing_goes = ([Fate::Kept; 3], false);
    assert_eq!(sifted(Ground { is_oldest: false, ..ground }, sound()), nothing_goes);
    assert_eq!(sifted(Ground { in_tables: Seq(0), ..ground }, sound()), nothing_goes);
    let damage = Damage { file: "tables/1.tbl".into(), offset: 0, what: "a block" };
    let lost = LostRanges::new([LostRange::everything(Seq(9), damage)]);
    assert_eq!(sifted(ground, lost), nothing_goes);
}
