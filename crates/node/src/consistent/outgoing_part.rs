//! A part of a catch-up as the sending end's store makes it.
//!
//! 1. A part is a page of heads with versions above the base. The page is read when all that was applied as the part
//!    was wanted may be acknowledged, so it shows all of that.
//! 2. The values of its keys are looked up. A key that was reaped since is left out.
//! 3. The sending end takes as many keys as fit into a message; the next part begins behind them.

use std::collections::BTreeMap;

use bytes::Bytes;
use engine::fold::{ScanId, ScanPage, Visit};
use engine::{Found, Lookup, Seq, Want};
use kv::consistent::{join_object, stored_version, version_of};
use object::key;
use strong::catch_up::{Item, PART_BYTES_MAX, SenderInput};
use strong::group::VoterId;

use super::context::GroupContext;
use super::group::GroupKey;
use super::keys::{is_of, types_of};
use super::lookups::WaitingLookup;

/// Keys of one part at most: some tens of kilobytes of them.
const PART_KEYS_MAX: usize = 256;

/// The catch-up that a part belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CatchUpId {
    pub key: GroupKey,
    pub voter: VoterId,
    pub number: u64,
}

/// A part that waits until its page shows all that was applied.
pub(super) struct WantedPart {
    pub of: CatchUpId,
    /// Versions above this one are taken.
    pub above: u64,
    /// The last key of the part before.
    pub after: Option<Bytes>,
    /// The entry that is applied, and the last write of the store then.
    pub applied: (u64, u64),
    pub seq: Seq,
}

/// A part whose values are looked up.
pub(super) struct GatheredPart {
    pub of: CatchUpId,
    applied: (u64, u64),
    is_last: bool,
    items: BTreeMap<Bytes, Item>,
    /// Lookups that wait for the disk.
    missing: usize,
    /// A lookup failed.
    is_broken: bool,
}

/// Parts on their way to sending ends.
#[derive(Default)]
pub(super) struct OutgoingParts {
    /// Parts that wait for their page.
    wanted: Vec<WantedPart>,
    /// Pages that are read.
    scans: BTreeMap<ScanId, WantedPart>,
    /// Parts whose values are looked up, by number.
    found: BTreeMap<u64, GatheredPart>,
    /// The number of the last one.
    last: u64,
}

impl OutgoingParts {
    /// Has a part's page read once it shows all that is applied now.
    pub fn want(&mut self, part: WantedPart) {
        self.wanted.push(part);
    }

    /// Reads the pages of parts that show all by now; tells the catch-ups whose pages cannot be read.
    pub fn begin_pages(&mut self, cx: &mut GroupContext<'_>) -> Vec<CatchUpId> {
        let acknowledged = cx.env.store.acknowledged();
        let (waiting, ready): (Vec<WantedPart>, Vec<WantedPart>) =
            std::mem::take(&mut self.wanted).into_iter().partition(|wanted| wanted.seq > acknowledged);
        self.wanted = waiting;
        let mut broken = Vec::new();
        for wanted in ready {
            match begin_page(cx, &wanted) {
                Some(id) => drop(self.scans.insert(id, wanted)),
                None => broken.push(wanted.of),
            }
        }
        broken
    }

    /// Takes the part that a page was read for.
    pub fn take_scan(&mut self, id: ScanId) -> Option<WantedPart> {
        self.scans.remove(&id)
    }

    /// Looks the values of a part's keys up; the part, if none waits for the disk.
    pub fn gather(
        &mut self,
        cx: &mut GroupContext<'_>,
        wanted: &WantedPart,
        page: &ScanPage,
    ) -> Option<GatheredPart> {
        let mut part = GatheredPart {
            of: wanted.of,
            applied: wanted.applied,
            is_last: page.next.is_none(),
            items: BTreeMap::new(),
            missing: 0,
            is_broken: false,
        };
        self.last += 1;
        let key = wanted.of.key;
        let dropped_at = cx.groups.dropped_at(key);
        for (name, _) in page.items.iter() {
            let name = Bytes::copy_from_slice(name);
            match cx.env.store.lookup_since(&name, Want::Value, dropped_at) {
                Lookup::Done(found) => {
                    cx.work.note_damage(key, &found);
                    part.add(name, found);
                }
                Lookup::NeedsIo(id) => {
                    part.missing += 1;
                    cx.lookups.add(id, WaitingLookup::Part { part: self.last, key: name });
                }
            }
        }
        if part.missing == 0 {
            return Some(part);
        }
        self.found.insert(self.last, part);
        None
    }

    /// Takes the value of a part's key; the part, if it was the last one.
    pub fn on_found(
        &mut self,
        cx: &mut GroupContext<'_>,
        number: u64,
        name: Bytes,
        found: Result<Option<Found>, engine::Error>,
    ) -> Option<GatheredPart> {
        let part = self.found.get_mut(&number)?;
        part.missing -= 1;
        cx.work.note_damage(part.of.key, &found);
        part.add(name, found);
        if part.missing == 0 { self.found.remove(&number) } else { None }
    }
}

impl GatheredPart {
    fn add(&mut self, key: Bytes, found: Result<Option<Found>, engine::Error>) {
        match found {
            Ok(Some(found)) => match (stored_version(&found.head), version_of(&found.head)) {
                (Ok(version), Ok(live)) => {
                    let value = found.value.unwrap_or_default();
                    let object = live.map(|_| join_object(&found.head, &value));
                    self.items.insert(key.clone(), Item { key, version, object });
                }
                _ => self.is_broken = true,
            },
            // It was reaped since.
            Ok(None) => {}
            Err(_) => self.is_broken = true,
        }
    }

    /// The input for its sending end, with as many keys as fit into a message; none if the part cannot be sent.
    pub fn into_input(self) -> Option<SenderInput> {
        let mut items: Vec<Item> = self.items.into_values().collect();
        let mut bytes = 0;
        let fits = items.iter().take_while(|item| {
            bytes += item.key.len() + item.object.as_ref().map_or(0, Bytes::len);
            bytes <= PART_BYTES_MAX
        });
        let count = fits.count().max(1);
        let is_last = self.is_last && count >= items.len();
        items.truncate(count);
        // All keys of a page may be gone by now, which only a reaping does: then the part is read again.
        let can_be_sent = !self.is_broken && (!items.is_empty() || is_last);
        can_be_sent.then_some(SenderInput::Folded {
            number: self.of.number,
            applied: self.applied,
            items,
            is_last,
        })
    }
}

/// Begins to read the page of a part; none if the store refuses it.
fn begin_page(cx: &mut GroupContext<'_>, wanted: &WantedPart) -> Option<ScanId> {
    let key = wanted.of.key;
    let types = types_of(cx.env, key.n_val);
    if types.is_empty() {
        // This node does not know yet which keys are the group's.
        return None;
    }
    let range = key::objects_at(key.prefix);
    let behind = |after: &Bytes| [&after[..], &[0]].concat().into();
    let start: Bytes = wanted.after.as_ref().map_or_else(|| range.start.into(), behind);
    let above = wanted.above;
    let visitor = move |key: &[u8], head: &[u8]| {
        let is_newer = || stored_version(head).is_ok_and(|version| version.index() > above);
        if is_of(&types, key) && is_newer() { Visit::Take } else { Visit::Skip }
    };
    cx.scan(key, start..range.end.into(), PART_KEYS_MAX, visitor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::consistent::tombstone;
    use ring::Birth;
    use strong::group::Version;

    fn part(items: &[(&'static str, usize)], is_last: bool) -> GatheredPart {
        let voter = VoterId { node: crate::peer::NodeId(1), birth: Birth::of(1).expect("below 2^48") };
        let of = CatchUpId { key: GroupKey { n_val: 3, prefix: 7 }, voter, number: 9 };
        let item = |&(key, len): &(&'static str, usize)| {
            let key = Bytes::from_static(key.as_bytes());
            let object = Some(Bytes::from(vec![0; len]));
            (key.clone(), Item { key, version: Version::new(0, 5), object })
        };
        let items = items.iter().map(item).collect();
        GatheredPart { of, applied: (5, 1), is_last, items, missing: 0, is_broken: false }
    }

    /// The keys that are sent, and whether they are the last ones.
    fn sent(part: GatheredPart) -> Option<(Vec<Bytes>, bool)> {
        let Some(SenderInput::Folded { number, applied, items, is_last }) = part.into_input() else {
            return None;
        };
        assert_eq!((number, applied), (9, (5, 1)));
        Some((items.into_iter().map(|item| item.key).collect(), is_last))
    }

    #[test]
    fn a_part_has_as_many_keys_as_fit_into_a_message() {
        let half = PART_BYTES_MAX / 2;
        let two = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
        assert_eq!(sent(part(&[("a", 1), ("b", 1)], true)), Some((two.to_vec(), true)));
        let cut = sent(part(&[("a", half), ("b", half - 2), ("c", 1)], true));
        assert_eq!(cut, Some((two.to_vec(), false)), "the next part begins behind them");
        let large = sent(part(&[("a", 2 * PART_BYTES_MAX), ("b", 1)], true));
        assert_eq!(large, Some((two[..1].to_vec(), false)), "a large object has a part of its own");
    }

    #[test]
    fn a_part_that_cannot_be_sent_breaks_the_catch_up() {
        assert_eq!(sent(part(&[], true)), Some((Vec::new(), true)), "the end of an empty range");
        assert_eq!(sent(part(&[], false)), None, "all its keys were reaped");

        let (key, head) = (Bytes::from_static(b"a"), tombstone(Version::new(0, 5)));
        let found = |head| Ok(Some(Found { seq: Seq(1), head, value: None, expires_ms: None }));
        let mut reaped = part(&[], true);
        reaped.add(key.clone(), Ok(None));
        assert_eq!(sent(reaped), Some((Vec::new(), true)));
        let mut deleted = part(&[], true);
        deleted.add(key.clone(), found(head));
        assert_eq!(sent(deleted), Some((vec![key.clone()], true)));
        for unreadable in [found(Bytes::from_static(b"?")), Err(engine::Error::Malformed("a test"))] {
            let mut broken = part(&[("b", 1)], true);
            broken.add(key.clone(), unreadable);
            assert_eq!(sent(broken), None);
        }
    }
}
