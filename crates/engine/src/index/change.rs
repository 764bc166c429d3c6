//! What changes among the entries when an object goes from one head to another.

use super::{Before, Indexing};
use crate::store::Write;
use std::cmp::Ordering;
use std::ops::Range;

/// The entries that go and those that come, each once, in the order of their keys.
#[derive(Debug, Default)]
pub struct Change {
    bytes: Vec<u8>,
    gone: Vec<Range<usize>>,
    come: Vec<Range<usize>>,
    /// When those that come end.
    expires_ms: Option<u64>,
}

impl Change {
    /// The change that `write` makes where `before` was; nothing if neither has entries. With `all`, what stays is
    /// written again: it may not be there.
    pub fn of(indexing: &Indexing, write: &Write<'_>, before: Before<'_>, all: bool) -> Option<Change> {
        let (key, after, expires_ms) = match *write {
            Write::Put { key, head, .. } => (key, head, None),
            Write::PutUntil { key, head, expires_ms, .. } => (key, head, Some(expires_ms)),
            Write::Delete { key } => (key, &b""[..], None),
            Write::DropRange { .. } => return None,
        };
        let (before, ended) = match before {
            Before::Version { head, expires_ms } => (head, expires_ms),
            Before::Nothing | Before::Unknown => (&b""[..], None),
        };
        if !(indexing.may_have)(before) && !(indexing.may_have)(after) {
            return None;
        }
        let mut bytes = Vec::new();
        let had = entries(indexing, key, before, &mut bytes);
        let has = entries(indexing, key, after, &mut bytes);
        // An entry ends when its object does.
        let all = all || ended != expires_ms;
        let (gone, come) = difference(&bytes, had, has, all);
        let stays_of_deleted = come.is_empty() && base::planted!(EntryOfDeleted);
        let stays = stays_of_deleted || !come.is_empty() && base::planted!(StaleIndexEntry);
        let gone = if stays { Vec::new() } else { gone };
        Some(Change { bytes, gone, come, expires_ms })
    }

    /// The writes that make it.
    pub fn writes(&self) -> impl Iterator<Item = Write<'_>> {
        let gone = self.gone.iter().map(|at| Write::Delete { key: &self.bytes[at.clone()] });
        let come = self.come.iter().map(|at| {
            let key = &self.bytes[at.clone()];
            match self.expires_ms {
                None => Write::Put { key, head: &[], value: &[] },
                Some(expires_ms) => Write::PutUntil { key, head: &[], value: &[], expires_ms },
            }
        });
        gone.chain(come)
    }
}

/// Appends the entries of a head to `bytes`, and tells where each is, in the order of their keys, each once.
pub(crate) fn entries(
    indexing: &Indexing,
    key: &[u8],
    head: &[u8],
    bytes: &mut Vec<u8>,
) -> Vec<Range<usize>> {
    let mut places = Vec::new();
    if (indexing.may_have)(head) {
        (indexing.entries_of)(key, head, &mut |entry| {
            let start = bytes.len();
            bytes.extend_from_slice(entry);
            places.push(start..bytes.len());
        });
    }
    places.sort_unstable_by(|a, b| bytes[a.clone()].cmp(&bytes[b.clone()]));
    places.dedup_by(|a, b| bytes[a.clone()] == bytes[b.clone()]);
    places
}

/// What is only in `had`, and what is only in `has`, or with `all` in that at all.
fn difference(
    bytes: &[u8],
    had: Vec<Range<usize>>,
    has: Vec<Range<usize>>,
    all: bool,
) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    let (mut gone, mut come) = (Vec::new(), Vec::new());
    let mut had = had.into_iter().peekable();
    for entry in has {
        let order = loop {
            let Some(next) = had.peek() else { break Ordering::Greater };
            let order = bytes[next.clone()].cmp(&bytes[entry.clone()]);
            if order.is_ge() {
                break order;
            }
            gone.extend(had.next());
        };
        if order.is_eq() {
            had.next();
        }
        if all || order.is_ne() {
            come.push(entry);
        }
    }
    gone.extend(had);
    (gone, come)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::testing::INDEXING;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    type Keys = BTreeSet<Vec<u8>>;

    fn keys(head: &[u8]) -> Keys {
        let mut keys = Keys::new();
        (INDEXING.entries_of)(b"o1", head, &mut |entry| {
            keys.insert(entry.to_vec());
        });
        keys
    }

    fn terms() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(b'a'..b'h', 0..6)
    }

    proptest! {
        #[test]
        fn it_leads_from_one_set_to_the_other(before in terms(), after in terms(), ends in any::<[bool; 3]>()) {
            let [expired, expires, all] = ends;
            let old = Before::Version { head: &before, expires_ms: expired.then_some(5) };
            let write = match expires {
                true => Write::PutUntil { key: b"o1", head: &after, value: &[], expires_ms: 7 },
                false => Write::Put { key: b"o1", head: &after, value: &[] },
            };
            let (had, has) = (keys(&before), keys(&after));
            let Some(change) = Change::of(&INDEXING, &write, old, all) else {
                prop_assert!(had.is_empty() && has.is_empty());
                return Ok(());
            };
            let (mut gone, mut come) = (Keys::new(), Keys::new());
            for write in change.writes() {
                let is_right = match write {
                    Write::Delete { key } => gone.insert(key.to_vec()),
                    Write::Put { key, .. } => !expires && come.insert(key.to_vec()),
                    Write::PutUntil { key, expires_ms, .. } => expires && expires_ms == 7 && come.insert(key.to_vec()),
                    Write::DropRange { .. } => false,
                };
                prop_assert!(is_right);
            }
            let stays = if all || expired || expires { Keys::new() } else { &had & &has };
            prop_assert_eq!(gone, &had - &has);
            prop_assert_eq!(come, &has - &stays);
        }
    }
}
