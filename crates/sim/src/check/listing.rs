//! On a quiet node, and on a quiet cluster, a listing names exactly the keys that reads find.

use super::{Verdict, Violation};
use bytes::Bytes;
use std::collections::BTreeSet;

const CHECKER: &str = "a listing is complete";

/// Compares what was listed with what was found.
pub fn check(bucket: &[u8], found: &BTreeSet<Bytes>, listed: &[Bytes]) -> Verdict {
    let names: BTreeSet<Bytes> = listed.iter().cloned().collect();
    if names == *found && names.len() == listed.len() {
        return Ok(());
    }
    let missing: Vec<_> = found.difference(&names).collect();
    let extra: Vec<_> = names.difference(found).collect();
    let (bucket, twice) = (bucket.escape_ascii(), listed.len() - names.len());
    Err(Violation::new(CHECKER, format!("{bucket}: missing {missing:?}, extra {extra:?}, {twice} twice")))
}
