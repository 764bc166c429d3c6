//! Walks several sources as one, the newest version of each key only.

use super::{Item, Source};
use crate::error::Error;
use base::Disk;

/// A cursor over the newest versions of the keys of all sources. It shows deletions; its caller leaves them out.
///
/// The sources are few (a handful of level-0 tables and one run for each deeper level), so the least key is
/// found by looking at each: a heap would compare as often and move more.
pub struct MergeIter {
    sources: Vec<Box<dyn Source>>,
    /// The source whose entry is shown.
    winner: Option<usize>,
    /// A copy of the last key shown, to leave its older versions behind.
    key: Vec<u8>,
    read: u64,
}

impl MergeIter {
    /// A cursor at no entry until it seeks.
    pub fn new(sources: Vec<Box<dyn Source>>) -> MergeIter {
        MergeIter { sources, winner: None, key: Vec::new(), read: 0 }
    }

    /// How many versions it has passed, superseded ones included.
    pub fn versions_read(&self) -> u64 {
        self.read
    }

    /// The first source whose key is least and, among those, whose seq is greatest.
    fn least(&self) -> Option<usize> {
        let mut least: Option<(usize, Item<'_>)> = None;
        for (index, source) in self.sources.iter().enumerate() {
            let Some(item) = source.item() else { continue };
            let better = least.is_none_or(|(_, best)| match item.key.cmp(best.key) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => item.seq > best.seq,
                std::cmp::Ordering::Greater => false,
            });
            if better {
                least = Some((index, item));
            }
        }
        least.map(|(index, _)| index)
    }
}

impl Source for MergeIter {
    fn seek(&mut self, disk: &mut dyn Disk, key: &[u8]) -> Result<(), Error> {
        self.winner = None;
        for source in &mut self.sources {
            source.seek(disk, key)?;
        }
        self.winner = self.least();
        Ok(())
    }

    fn next(&mut self, disk: &mut dyn Disk) -> Result<(), Error> {
        let winner = self.winner.take().expect("there is nothing after the end");
        let item = self.sources[winner].item().expect("the winner is at an entry");
        self.key.clear();
        self.key.extend_from_slice(item.key);
        for source in &mut self.sources {
            while source.item().is_some_and(|item| item.key == self.key) {
                source.next(disk)?;
                self.read += 1;
            }
        }
        self.winner = self.least();
        Ok(())
    }

    fn item(&self) -> Option<Item<'_>> {
        self.sources[self.winner?].item()
    }
}
