//! Trees of hashes as answers have them, by either protocol: hashes of four bytes each, big-endian, and branches in
//! zlib's form.

use kv::fold::{BRANCH, Finds, Folded, TreeSize};
use protocol::zlib;

const _: () = assert!(BRANCH * size_of::<u32>() <= zlib::STORED_MAX, "a branch is one block");

/// Hashes of a branch in zlib's form.
pub(crate) fn branch(hashes: &[u32; BRANCH]) -> Vec<u8> {
    zlib::stored(&joined(*hashes))
}

/// The hashes of all branches.
pub(crate) fn level_one(folded: &Folded) -> Vec<u8> {
    let branches = |size: TreeSize| 0..size.branches();
    match folded.fold.finds {
        Finds::Tree { size, .. } => {
            joined(branches(size).map(|number| folded.tree.of(number).iter().fold(0, |all, one| all ^ one)))
        }
        // These are what was found.
        _ => joined(branches(TreeSize::Large).map(|number| folded.tree.get(number))),
    }
}

/// Hashes as they are.
pub(crate) fn joined(hashes: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BRANCH * size_of::<u32>());
    hashes.into_iter().for_each(|hash| bytes.extend_from_slice(&hash.to_be_bytes()));
    bytes
}
