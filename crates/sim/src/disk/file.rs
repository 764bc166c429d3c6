//! One simulated file: what the system shows, what the platter holds, and the changes between the two.
//!
//! Reads see `cached`. A sync carries changes over to `durable`. A crash carries over what the seed picks:
//!
//! * of each block, the first few of the writes that touched it, none to all: a disk writes whole blocks, so a
//!   later write to a block carries the earlier ones with it, while blocks reach the platter in any order;
//! * where a write to a block did not make it, sometimes its first bytes: a torn block;
//! * of the length, the truncations and the room made ahead, which are metadata and go in order, a prefix; a length
//!   between two of them counts too. Length without data reads as zeros, data beyond the length is gone.
//!
//! Bytes that no unsynced write covers are never harmed by a crash: see `a_crash_spares_what_was_synced`.
//!
//! A failed sync does the same to what it was to cover, and then forgets it: the system takes those pages for
//! clean, keeps showing them, and no later sync writes them again (Rebello et al., ATC 2020). Simpler than
//! life, and harsher: a later write to the same block does not bring the forgotten bytes along.

use super::image::{Image, parts};
use crate::fault::Odds;
use crate::seed::{between, index_below};
use base::Rng;
use base::rng::SplitMix64;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Where in the order of a disk's changes something lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct ChangeNumber(pub(super) u64);

/// How a crash treats blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct CrashRule {
    /// The unit that reaches the platter or does not.
    pub(super) block_len: u64,
    /// How likely a block that did not make it is there in part.
    pub(super) torn: Odds,
}

/// What a crash did to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Harm {
    /// Writes to blocks that are gone.
    pub(super) lost: u64,
    /// Blocks that are there in part.
    pub(super) torn: u64,
}

/// A file.
#[derive(Clone, Debug, Default)]
pub(super) struct SimFile {
    cached: Image,
    durable: Image,
    unsynced: Vec<Change>,
    /// Where the room begins that was made ahead of writes, as far as is known: after a crash there is none.
    written: u64,
}

#[derive(Clone, Debug)]
struct Change {
    number: ChangeNumber,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Write { offset: u64, data: Bytes },
    Truncate { len: u64 },
    Room { len: u64 },
}

impl SimFile {
    /// The length that the system shows.
    pub(super) fn len(&self) -> u64 {
        self.cached.len()
    }

    /// The end of what was written: the length without the room behind it.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// The space that the file takes.
    pub(super) fn allocated(&self) -> u64 {
        self.cached.allocated()
    }

    /// Reads what the system shows.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        self.cached.read(offset, buf)
    }

    /// Writes, not durably.
    pub(super) fn write(&mut self, number: ChangeNumber, offset: u64, data: Bytes) {
        self.cached.write(offset, &data);
        if !data.is_empty() {
            self.written = self.written.max(offset + data.len() as u64);
        }
        self.unsynced.push(Change { number, kind: Kind::Write { offset, data } });
    }

    /// Cuts or extends, not durably.
    pub(super) fn truncate(&mut self, number: ChangeNumber, len: u64) {
        self.cached.truncate(len);
        self.written = len;
        self.unsynced.push(Change { number, kind: Kind::Truncate { len } });
    }

    /// Makes room ahead of writes, not durably.
    pub(super) fn make_room(&mut self, number: ChangeNumber, len: u64) {
        self.cached.make_room(len);
        self.unsynced.push(Change { number, kind: Kind::Room { len } });
    }

    /// Makes durable what was done up to `begun`, when the sync began, and from `own` on: what the syncing
    /// operation itself wrote. What others did in between is not promised, and so not given.
    pub(super) fn sync(&mut self, begun: ChangeNumber, own: Option<ChangeNumber>) {
        for change in self.take_covered(begun, own) {
            change.kind.apply(&mut self.durable);
        }
    }

    /// Fails to sync: what was to be covered is durable or not as `rng` has it, and forgotten.
    pub(super) fn sync_failed(
        &mut self,
        begun: ChangeNumber,
        own: Option<ChangeNumber>,
        rule: CrashRule,
        rng: &mut SplitMix64,
    ) -> Harm {
        let covered = self.take_covered(begun, own);
        settle(&mut self.durable, &covered, rule, rng)
    }

    /// Loses power: of what was not synced, `rng` picks what is there.
    pub(super) fn crash(&mut self, rule: CrashRule, rng: &mut SplitMix64) -> Harm {
        let unsynced = std::mem::take(&mut self.unsynced);
        let harm = settle(&mut self.durable, &unsynced, rule, rng);
        self.cached = self.durable.clone();
        self.written = self.cached.len();
        harm
    }

    /// Damages what is stored at `offset` by putting `data` there, durably and behind the system's back.
    pub(super) fn damage(&mut self, offset: u64, data: &[u8]) {
        for image in [&mut self.cached, &mut self.durable] {
            let room = usize::try_from(image.len().saturating_sub(offset)).unwrap_or(usize::MAX);
            image.write(offset, &data[..data.len().min(room)]);
        }
    }

    fn take_covered(&mut self, begun: ChangeNumber, own: Option<ChangeNumber>) -> Vec<Change> {
        let is_own = |change: &Change| own.is_some_and(|own| change.number >= own);
        let between = |change: &Change| change.number > begun && !is_own(change);
        // Where somebody else's bytes were overwritten by our own, they have the same pages, and go along.
        let entangled = self.unsynced.iter().filter(|change| is_own(change)).any(|own| {
            self.unsynced.iter().filter(|change| between(change)).any(|other| own.kind.overlaps(&other.kind))
        });
        let all = std::mem::take(&mut self.unsynced);
        let (covered, rest) = all.into_iter().partition(|change| entangled || !between(change));
        self.unsynced = rest;
        covered
    }
}

impl Kind {
    fn apply(&self, image: &mut Image) {
        match self {
            Kind::Write { offset, data } => image.write(*offset, data),
            Kind::Truncate { len } => image.truncate(*len),
            Kind::Room { len } => image.make_room(*len),
        }
    }

    fn overlaps(&self, other: &Kind) -> bool {
        match (self, other) {
            (Kind::Write { offset: a, data: x }, Kind::Write { offset: b, data: y }) => {
                *a < b + y.len() as u64 && *b < a + x.len() as u64
            }
            _ => true,
        }
    }

    fn len_after(&self, len: u64) -> u64 {
        match self {
            Kind::Write { offset, data } if !data.is_empty() => len.max(offset + data.len() as u64),
            Kind::Write { .. } => len,
            Kind::Truncate { len } => *len,
            Kind::Room { len: room } => len.max(*room),
        }
    }
}

/// How many of the writes to a block reach the platter, and how many bytes of the next one.
#[derive(Clone, Copy, Debug, Default)]
struct BlockFate {
    writes: u64,
    kept: u64,
    torn: bool,
    seen: u64,
}

/// Carries over to `image` what the seed picks of `changes`.
fn settle(image: &mut Image, changes: &[Change], rule: CrashRule, rng: &mut SplitMix64) -> Harm {
    let mut blocks = fates(changes, rule, rng);
    let (metadata, len) = metadata_kept(image.len(), changes, rng);
    let mut harm = Harm::default();
    for (index, change) in changes.iter().enumerate() {
        match &change.kind {
            Kind::Truncate { .. } | Kind::Room { .. } if index < metadata => change.kind.apply(image),
            Kind::Truncate { .. } | Kind::Room { .. } => {}
            Kind::Write { offset, data } => {
                for part in parts(*offset, data.len(), rule.block_len) {
                    let fate = blocks.get_mut(&part.block).expect("each block has a fate");
                    fate.seen += 1;
                    let data = &data[part.start..part.start + part.len];
                    if fate.seen <= fate.kept {
                        image.write(part.offset, data);
                        continue;
                    }
                    harm.lost += 1;
                    if fate.torn && fate.seen == fate.kept + 1 {
                        harm.torn += 1;
                        image.write(part.offset, &data[..index_below(rng, data.len())]);
                    }
                }
            }
        }
    }
    image.truncate(len);
    harm
}

/// Draws the fate of each block. Half of all crashes take all or nothing: a mix of many blocks hardly ever
/// comes out as either, and both are where bugs are.
fn fates(changes: &[Change], rule: CrashRule, rng: &mut SplitMix64) -> BTreeMap<u64, BlockFate> {
    let mut blocks = BTreeMap::<u64, BlockFate>::new();
    for change in changes {
        if let Kind::Write { offset, data } = &change.kind {
            parts(*offset, data.len(), rule.block_len)
                .for_each(|part| blocks.entry(part.block).or_default().writes += 1);
        }
    }
    let style = rng.below(4);
    for fate in blocks.values_mut() {
        fate.kept = match style {
            0 => 0,
            1 => fate.writes,
            _ => rng.below(fate.writes + 1),
        };
        fate.torn = rule.torn.fires(rng);
    }
    blocks
}

/// Draws how many of the changes' metadata survive, and the length that the file has then.
fn metadata_kept(len: u64, changes: &[Change], rng: &mut SplitMix64) -> (usize, u64) {
    if rng.chance(1, 2) {
        return (changes.len(), changes.iter().fold(len, |len, change| change.kind.len_after(len)));
    }
    let kept = index_below(rng, changes.len() + 1);
    let len = changes[..kept].iter().fold(len, |len, change| change.kind.len_after(len));
    match changes.get(kept).map(|next| &next.kind) {
        Some(next @ (Kind::Write { .. } | Kind::Room { .. })) => {
            (kept, between(rng, len, next.len_after(len)))
        }
        _ => (kept, len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    const RULE: CrashRule = CrashRule { block_len: 512, torn: Odds::one_in(4) };
    const MAX: u64 = 6000;

    fn bytes_of(file: &SimFile) -> Vec<u8> {
        let mut buf = vec![0; MAX as usize * 2];
        let len = file.read(0, &mut buf);
        buf.truncate(len);
        buf
    }

    /// Of each byte, everything that it may be after a crash: its synced value and what was written since.
    #[derive(Default)]
    struct Model {
        allowed: Vec<Vec<u8>>,
        len: u64,
        len_range: (u64, u64),
    }

    impl Model {
        fn sync(&mut self, synced: &[u8]) {
            self.allowed =
                (0..MAX * 2).map(|at| vec![synced.get(at as usize).copied().unwrap_or(0)]).collect();
            self.len = synced.len() as u64;
            self.len_range = (self.len, self.len);
        }

        fn changed(&mut self, len: u64) {
            self.len = len;
            self.len_range = (self.len_range.0.min(len), self.len_range.1.max(len));
        }

        fn check(&self, crashed: &[u8]) {
            let len = crashed.len() as u64;
            assert!((self.len_range.0..=self.len_range.1).contains(&len), "{len} of {:?}", self.len_range);
            for (at, byte) in crashed.iter().enumerate() {
                assert!(
                    self.allowed[at].contains(byte),
                    "byte {at} is {byte}, not of {:?}",
                    self.allowed[at]
                );
            }
        }
    }

    #[test]
    fn a_crash_spares_what_was_synced() {
        let mut harm = Harm::default();
        let mut outcomes = std::collections::BTreeSet::new();
        for seed in 0..3000 {
            let mut rng = Seed(seed).stream("file", 0);
            let (mut file, mut model) = (SimFile::default(), Model::default());
            model.sync(&[]);
            for step in 1..=rng.below(24) {
                let number = ChangeNumber(step);
                match rng.below(10) {
                    0 => {
                        file.sync(number, None);
                        model.sync(&bytes_of(&file));
                    }
                    1 => {
                        let len = rng.below(MAX);
                        file.truncate(number, len);
                        // What a truncation took may come back as zeros under a later, longer length.
                        model.allowed[len as usize..].iter_mut().for_each(|byte| byte.push(0));
                        model.changed(len);
                    }
                    2 => {
                        let len = rng.below(MAX * 2);
                        file.make_room(number, len);
                        model.changed(model.len.max(len));
                    }
                    _ => {
                        let (offset, len) = (rng.below(MAX), 1 + rng.below(1500));
                        file.write(number, offset, Bytes::from(vec![step as u8; len as usize]));
                        (offset..offset + len).for_each(|at| model.allowed[at as usize].push(step as u8));
                        model.changed(model.len.max(offset + len));
                    }
                }
            }
            let now = file.crash(RULE, &mut rng);
            harm = Harm { lost: harm.lost + now.lost, torn: harm.torn + now.torn };
            model.check(&bytes_of(&file));
            outcomes.insert(bytes_of(&file).len());
        }
        assert!(harm.lost > 1000 && harm.torn > 100 && outcomes.len() > 500, "{harm:?} {}", outcomes.len());
    }

    #[test]
    fn a_block_never_has_a_later_write_without_the_earlier() {
        for seed in 0..500 {
            let mut rng = Seed(seed).stream("file", 1);
            let mut file = SimFile::default();
            file.truncate(ChangeNumber(1), 512);
            file.sync(ChangeNumber(1), None);
            file.write(ChangeNumber(2), 0, Bytes::from_static(&[1; 100]));
            file.write(ChangeNumber(3), 100, Bytes::from_static(&[2; 100]));
            file.crash(CrashRule { torn: Odds::NEVER, ..RULE }, &mut rng);
            let bytes = bytes_of(&file);
            assert!(bytes[100] == 0 || bytes[0] == 1);
        }
    }

    #[test]
    fn a_sync_promises_only_what_it_began_after() {
        let write = |file: &mut SimFile, number: u64| {
            file.write(ChangeNumber(number), number * 512, Bytes::from(vec![number as u8; 512]));
        };
        let mut lost = 0;
        for seed in 0..200 {
            let mut file = SimFile::default();
            (1..=4).for_each(|number| write(&mut file, number));
            file.sync(ChangeNumber(2), Some(ChangeNumber(4)));
            file.crash(RULE, &mut Seed(seed).stream("file", 2));
            let bytes = bytes_of(&file);
            assert_eq!((bytes[512], bytes[1024], bytes[2048]), (1, 2, 4));
            lost += u32::from(bytes[1536] != 3);
        }
        assert!((50..150).contains(&lost), "{lost}");
    }

    #[test]
    fn a_failed_sync_lies_until_the_crash() {
        let (mut lost, mut kept) = (0, 0);
        for seed in 0..200 {
            let mut rng = Seed(seed).stream("file", 3);
            let mut file = SimFile::default();
            file.write(ChangeNumber(1), 0, Bytes::from_static(b"word"));
            file.sync_failed(ChangeNumber(1), None, RULE, &mut rng);
            file.sync(ChangeNumber(1), None);
            assert_eq!(bytes_of(&file), b"word", "the page cache shows it");
            file.crash(RULE, &mut rng);
            match bytes_of(&file) == b"word" {
                true => kept += 1,
                false => lost += 1,
            }
        }
        assert!(lost > 40 && kept > 40, "{lost} lost, {kept} kept");
    }
}
