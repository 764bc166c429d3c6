//! The names on a simulated disk: what the system shows, what the platter holds, and the changes between.
//!
//! A sync of a directory makes the names in it durable. A crash keeps or loses each other change on its own:
//! harsher than a journalling file system, which loses them from the end, and just what POSIX promises. A
//! rename within a directory is one change. A directory whose own name is lost takes all below it along.

use super::file::ChangeNumber;
use base::Rng;
use base::rng::SplitMix64;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Inode(pub(super) u64);

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    File(Inode),
    Dir,
}

type Names = BTreeMap<PathBuf, Entry>;

/// All names of a disk.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    cached: Names,
    durable: Names,
    unsynced: Vec<(ChangeNumber, Change)>,
}

#[derive(Clone, Debug)]
enum Change {
    Put { path: PathBuf, entry: Entry },
    Remove { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, entry: Entry },
}

impl Tree {
    /// A disk with nothing but `root` and the directories above it, durably.
    pub(super) fn new(root: &Path) -> Tree {
        let names: Names = root.ancestors().map(|dir| (dir.to_path_buf(), Entry::Dir)).collect();
        Tree { cached: names.clone(), durable: names, unsynced: Vec::new() }
    }

    /// What `path` stands for.
    pub(super) fn get(&self, path: &Path) -> Option<Entry> {
        self.cached.get(path).copied()
    }

    /// Whether `path` is a directory.
    pub(super) fn is_dir(&self, path: &Path) -> bool {
        self.get(path) == Some(Entry::Dir)
    }

    /// The files that have names now, in the order of the names.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, Inode)> {
        self.cached.iter().filter_map(|(path, entry)| match entry {
            Entry::File(inode) => Some((path.as_path(), *inode)),
            Entry::Dir => None,
        })
    }

    /// The file names in `dir`, ascending.
    pub(super) fn list(&self, dir: &Path) -> Vec<String> {
        let inside = self.files().filter(|(path, _)| path.parent() == Some(dir));
        inside.filter_map(|(path, _)| Some(path.file_name()?.to_string_lossy().into_owned())).collect()
    }

    /// Gives a file or directory a name.
    pub(super) fn put(&mut self, number: ChangeNumber, path: &Path, entry: Entry) {
        self.change(number, Change::Put { path: path.to_path_buf(), entry });
    }

    /// Takes a name away.
    pub(super) fn remove(&mut self, number: ChangeNumber, path: &Path) {
        self.change(number, Change::Remove { path: path.to_path_buf() });
    }

    /// Gives a file another name in the same directory.
    pub(super) fn rename(&mut self, number: ChangeNumber, from: &Path, to: &Path, entry: Entry) {
        assert_eq!(from.parent(), to.parent(), "a rename across directories is not simulated");
        self.change(number, Change::Rename { from: from.to_path_buf(), to: to.to_path_buf(), entry });
    }

    /// Makes durable what was done in `dir` up to `begun`, when the sync began.
    pub(super) fn sync(&mut self, dir: &Path, begun: ChangeNumber) {
        for change in self.take_covered(dir, begun) {
            change.apply(&mut self.durable);
        }
    }

    /// Fails to sync `dir`: each change is durable or not, and forgotten. Returns how many were lost.
    pub(super) fn sync_failed(&mut self, dir: &Path, begun: ChangeNumber, rng: &mut SplitMix64) -> u64 {
        let covered = self.take_covered(dir, begun);
        settle(&mut self.durable, covered, rng)
    }

    /// Loses power: of what was not synced, `rng` picks what is there. Returns how many changes were lost.
    pub(super) fn crash(&mut self, rng: &mut SplitMix64) -> u64 {
        let unsynced = std::mem::take(&mut self.unsynced).into_iter().map(|(_, change)| change).collect();
        let lost = settle(&mut self.durable, unsynced, rng);
        self.cached = self.durable.clone();
        lost
    }

    /// The files that have or may yet get a name.
    pub(super) fn reachable(&self) -> BTreeSet<Inode> {
        let names = self.cached.values().chain(self.durable.values()).copied();
        let changes = self.unsynced.iter().filter_map(|(_, change)| change.entry());
        names.chain(changes).filter_map(Entry::inode).collect()
    }

    fn change(&mut self, number: ChangeNumber, change: Change) {
        change.apply(&mut self.cached);
        self.unsynced.push((number, change));
    }

    fn take_covered(&mut self, dir: &Path, begun: ChangeNumber) -> Vec<Change> {
        let all = std::mem::take(&mut self.unsynced);
        let (covered, rest) = all.into_iter().partition::<Vec<_>, _>(|(number, change)| {
            *number <= begun && change.path().parent() == Some(dir)
        });
        self.unsynced = rest;
        covered.into_iter().map(|(_, change)| change).collect()
    }
}

impl Entry {
    fn inode(self) -> Option<Inode> {
        match self {
            Entry::File(inode) => Some(inode),
            Entry::Dir => None,
        }
    }
}

impl Change {
    fn path(&self) -> &Path {
        match self {
            Change::Put { path, .. } | Change::Remove { path } | Change::Rename { to: path, .. } => path,
        }
    }

    fn entry(&self) -> Option<Entry> {
        match self {
            Change::Put { entry, .. } | Change::Rename { entry, .. } => Some(*entry),
            Change::Remove { .. } => None,
        }
    }

    fn apply(&self, names: &mut Names) {
        match self {
            Change::Put { path, entry } => {
                names.insert(path.clone(), *entry);
            }
            Change::Remove { path } => {
                names.remove(path);
            }
            Change::Rename { from, to, entry } => {
                names.remove(from);
                names.insert(to.clone(), *entry);
            }
        }
    }
}

/// Carries over to `names` what the seed picks of `changes`, and returns how many it did not. All or nothing
/// in half of all cases, as with blocks.
fn settle(names: &mut Names, changes: Vec<Change>, rng: &mut SplitMix64) -> u64 {
    let style = rng.below(4);
    let mut lost = 0;
    for change in changes {
        let kept = match style {
            0 => false,
            1 => true,
            _ => rng.chance(1, 2),
        };
        match kept {
            true => change.apply(names),
            false => lost += 1,
        }
    }
    drop_orphans(names);
    lost
}

/// Drops what lies in directories that are gone. Parents sort before what they hold.
fn drop_orphans(names: &mut Names) {
    let mut dirs = BTreeSet::new();
    names.retain(|path, entry| {
        let held = path.parent().is_none_or(|parent| dirs.contains(parent));
        if held && *entry == Entry::Dir {
            dirs.insert(path.clone());
        }
        held
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    const DIR: &str = "/data";

    fn path(name: &str) -> PathBuf {
        Path::new(DIR).join(name)
    }

    fn file(number: u64) -> Entry {
        Entry::File(Inode(number))
    }

    /// What a directory lists after a crash, over many seeds.
    fn outcomes(build: impl Fn(&mut Tree)) -> BTreeSet<Vec<String>> {
        let crash = |seed| {
            let mut tree = Tree::new(Path::new(DIR));
            build(&mut tree);
            tree.crash(&mut Seed(seed).stream("tree", 0));
            tree.list(Path::new(DIR))
        };
        (0..200).map(crash).collect()
    }

    #[test]
    fn each_unsynced_change_is_kept_or_lost_on_its_own() {
        let found = outcomes(|tree| {
            tree.put(ChangeNumber(1), &path("old"), file(1));
            tree.sync(Path::new(DIR), ChangeNumber(1));
            tree.put(ChangeNumber(2), &path("new"), file(2));
            tree.remove(ChangeNumber(3), &path("old"));
        });
        let expected: [&[&str]; 4] = [&[], &["new"], &["new", "old"], &["old"]];
        assert!(found.iter().eq(expected.iter()), "{found:?}");
    }

    #[test]
    fn a_synced_directory_is_certain() {
        let found = outcomes(|tree| {
            tree.put(ChangeNumber(1), &path("a.tmp"), file(1));
            tree.rename(ChangeNumber(2), &path("a.tmp"), &path("a"), file(1));
            tree.sync(Path::new(DIR), ChangeNumber(2));
        });
        assert!(found.iter().eq([["a"]].iter()), "{found:?}");
    }

    #[test]
    fn a_sync_covers_what_it_began_after_and_its_own_directory_only() {
        let found = outcomes(|tree| {
            tree.put(ChangeNumber(1), &path("a"), file(1));
            tree.put(ChangeNumber(2), &path("b"), file(2));
            tree.sync(Path::new("/"), ChangeNumber(2));
            tree.sync(Path::new(DIR), ChangeNumber(1));
        });
        let expected: [&[&str]; 2] = [&["a"], &["a", "b"]];
        assert!(found.iter().eq(expected.iter()), "{found:?}");
    }

    #[test]
    fn a_rename_leaves_the_old_or_the_new() {
        let found = outcomes(|tree| {
            tree.put(ChangeNumber(1), &path("a.tmp"), file(1));
            tree.sync(Path::new(DIR), ChangeNumber(1));
            tree.rename(ChangeNumber(2), &path("a.tmp"), &path("a"), file(1));
        });
        assert!(found.iter().eq([["a"], ["a.tmp"]].iter()), "{found:?}");
    }

    #[test]
    fn a_lost_directory_takes_its_files_along() {
        for seed in 0..50 {
            let mut tree = Tree::new(Path::new(DIR));
            tree.put(ChangeNumber(1), &path("sub"), Entry::Dir);
            tree.put(ChangeNumber(2), &path("sub/x"), file(1));
            tree.sync(&path("sub"), ChangeNumber(2));
            tree.crash(&mut Seed(seed).stream("tree", 1));
            assert_eq!(tree.get(&path("sub/x")).is_some(), tree.is_dir(&path("sub")));
        }
    }
}
