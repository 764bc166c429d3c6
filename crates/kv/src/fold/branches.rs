//! The hashes of a tree, by branch: a branch that was never changed has none, and takes no memory.

use std::collections::BTreeMap;

/// Segments of a branch, as in Riak.
pub const BRANCH: usize = 256;

/// Hashes of segments by their numbers, or of the branches of a large tree. A hash is the XOR of leaves; where there is
/// none it is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branches(BTreeMap<u32, Box<[u32; BRANCH]>>);

impl Branches {
    /// Changes the hash of this number.
    pub fn change(&mut self, number: u32, hash: u32) {
        let (branch, at) = split(number);
        self.0.entry(branch).or_insert_with(|| Box::new([0; BRANCH]))[at] ^= hash;
    }

    /// The hash of this number.
    pub fn get(&self, number: u32) -> u32 {
        let (branch, at) = split(number);
        self.0.get(&branch).map_or(0, |hashes| hashes[at])
    }

    /// The hashes of a branch.
    pub fn of(&self, branch: u32) -> [u32; BRANCH] {
        self.0.get(&branch).map_or([0; BRANCH], |hashes| **hashes)
    }

    /// All branches that something has changed, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u32; BRANCH])> {
        self.0.iter().map(|(&number, hashes)| (number, &**hashes))
    }
}

fn split(number: u32) -> (u32, usize) {
    (number / BRANCH as u32, usize::try_from(number % BRANCH as u32).expect("below 256"))
}
