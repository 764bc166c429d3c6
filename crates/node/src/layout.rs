//! What a data folder was made with, and cannot be changed by a start: the number of shards, the bits of the ring that
//! keys are ordered by, and the cluster's members, who decide where keys lie. Each shard's store remembers them.

use crate::members::Members;
use base::Disk;
use engine::{Error, manifest};
use ring::{Position, RingSize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SHARDS: &[u8] = b"shards";
const SHARD: &[u8] = b"shard";
const RING_SIZE: &[u8] = b"ring_size";
const MEMBERS: &[u8] = b"members";

/// The most shards of a node: cores of one machine.
pub const SHARDS_MAX: u16 = 256;

/// How a node's keys are laid out in its stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The number of shards.
    pub shards: u16,
    /// The ring's partitions.
    pub ring_size: RingSize,
}

impl Layout {
    /// The layout of the data in `data`; `None` if there is none yet. Blocks.
    pub fn read(disk: &mut dyn Disk, data: &Path) -> Result<Option<Layout>, Error> {
        let state = manifest::find(disk, &shard_dir(data, 0))?.map(|found| found.state);
        state.map(|state| Layout::of_metadata(&state.metadata)).transpose()
    }

    /// The members of the cluster that the data in `data` is of, by name; `None` if it is of a node alone. Blocks.
    pub fn read_members(disk: &mut dyn Disk, data: &Path) -> Result<Option<String>, Error> {
        let state = manifest::find(disk, &shard_dir(data, 0))?.map(|found| found.state);
        let members = state.and_then(|mut state| state.metadata.remove(MEMBERS));
        members
            .map(|names| String::from_utf8(names).map_err(|_| Error::Malformed("members in the manifest")))
            .transpose()
    }

    /// What shard `shard` of a node of this cluster tells its store to remember.
    pub fn metadata_with(&self, shard: u16, members: &Members) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut metadata = self.metadata(shard);
        if members.count() > 1 {
            metadata.insert(MEMBERS.to_vec(), members.to_string().into_bytes());
        }
        metadata
    }

    /// What shard `shard` of a node alone tells its store to remember.
    pub fn metadata(&self, shard: u16) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let numbers = [
            (SHARDS, u32::from(self.shards)),
            (SHARD, shard.into()),
            (RING_SIZE, self.ring_size.partitions()),
        ];
        numbers.into_iter().map(|(key, number)| (key.to_vec(), number.to_string().into_bytes())).collect()
    }

    /// The prefix of a key: the top bits of its position on the ring.
    pub fn prefix(&self, bucket: &kv::Bucket, key: &[u8]) -> u16 {
        Position::of_key(&bucket.bucket_type, &bucket.name, key).prefix(self.ring_size.bits())
    }

    /// What a store remembers of it.
    pub fn of_metadata(metadata: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<Layout, Error> {
        let number =
            |key: &[u8]| -> Option<u32> { std::str::from_utf8(metadata.get(key)?).ok()?.parse().ok() };
        let shards = number(SHARDS).and_then(|shards| u16::try_from(shards).ok());
        let ring_size = number(RING_SIZE).and_then(|size| RingSize::new(size).ok());
        match (shards, ring_size) {
            (Some(shards), Some(ring_size)) if (1..=SHARDS_MAX).contains(&shards) => {
                Ok(Layout { shards, ring_size })
            }
            _ => Err(Error::Malformed("layout in the manifest")),
        }
    }
}

/// The folder of a shard's store.
pub fn shard_dir(data: &Path, shard: u16) -> PathBuf {
    data.join(format!("shard-{shard:03}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_comes_back_from_what_a_store_remembers() {
        let layout = Layout { shards: 3, ring_size: RingSize::new(128).unwrap() };
        assert_eq!(Layout::of_metadata(&layout.metadata(2)), Ok(layout));
        let mut damaged = layout.metadata(2);
        damaged.insert(SHARDS.to_vec(), b"0".to_vec());
        assert!(Layout::of_metadata(&damaged).is_err());
        assert!(Layout::of_metadata(&BTreeMap::new()).is_err());
    }
}
