//! Circles: files of which each uses each other, directly or through others.

use super::arrows::Arrows;
use super::{Crate, FileId};
use std::collections::BTreeSet;

impl Crate {
    /// The circles of its files, the largest first.
    pub fn circles(&self) -> Vec<BTreeSet<FileId>> {
        circles(&self.arrows())
    }
}

/// The strongly connected components of more than one file, the largest first.
fn circles(arrows: &Arrows) -> Vec<BTreeSet<FileId>> {
    let mut found: Vec<BTreeSet<FileId>> = Vec::new();
    for &file in arrows.keys() {
        if found.iter().any(|circle| circle.contains(&file)) {
            continue;
        }
        let comes_back = |other: &FileId| reached(arrows, *other).contains(&file);
        let circle: BTreeSet<FileId> = reached(arrows, file).into_iter().filter(comes_back).collect();
        if circle.len() > 1 {
            found.push(circle);
        }
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

/// The files that a file uses, directly or through others.
fn reached(arrows: &Arrows, file: FileId) -> BTreeSet<FileId> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![file]);
    while let Some(file) = open.pop() {
        let used = arrows.get(&file).into_iter().flatten();
        open.extend(used.filter(|used| reached.insert(**used)));
    }
    reached
}
