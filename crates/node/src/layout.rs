//! What a data folder was made with, and cannot be changed by a start: the number of shards, the bits of the ring that
//! keys are ordered by, and whose it is: which node of which cluster. Each shard's store remembers them.

use base::Disk;
use engine::{Error, manifest};
use ring::{NodeId, Position, RingSize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SHARDS: &[u8] = b"shards";
const SHARD: &[u8] = b"shard";
const RING_SIZE: &[u8] = b"ring_size";
const CLUSTER: &[u8] = b"cluster";
const NODE: &[u8] = b"node";
/// Of older folders: the names of all members.
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

    /// Whose the data in `data` is; `None` if there is none yet. Blocks.
    pub fn read_owner(disk: &mut dyn Disk, data: &Path) -> Result<Option<Owner>, Error> {
        let state = manifest::find(disk, &shard_dir(data, 0))?.map(|found| found.state);
        state.map(|state| Owner::of_metadata(&state.metadata)).transpose()
    }

    /// What shard `shard` of this owner's node tells its store to remember.
    pub fn metadata_with(&self, shard: u16, owner: &Owner) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut metadata = self.metadata(shard);
        match owner {
            Owner::Alone => {}
            Owner::Founder(members) => {
                metadata.insert(MEMBERS.to_vec(), members.clone().into_bytes());
            }
            Owner::Member { cluster, node } => {
                metadata.insert(CLUSTER.to_vec(), format!("{cluster:016x}").into_bytes());
                metadata.insert(NODE.to_vec(), node.to_string().into_bytes());
            }
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

/// Whose a data folder is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A node alone, or one that was alone when it was made.
    Alone,
    /// A node of the cluster that these members founded, by name, with commas in between: what older programs remembered.
    Founder(String),
    /// This node of this cluster.
    Member {
        /// The cluster's number.
        cluster: u64,
        /// The node's.
        node: NodeId,
    },
}

impl Owner {
    fn of_metadata(metadata: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<Owner, Error> {
        let text = |key: &[u8]| metadata.get(key).map(|value| std::str::from_utf8(value).unwrap_or_default());
        match (text(CLUSTER), text(NODE), text(MEMBERS)) {
            (None, None, None) => Ok(Owner::Alone),
            (None, None, Some(members)) if !members.is_empty() => Ok(Owner::Founder(members.to_owned())),
            (Some(cluster), Some(node), _) => u64::from_str_radix(cluster, 16)
                .ok()
                .zip(node.parse().ok())
                .map(|(cluster, node)| Owner::Member { cluster, node: NodeId(node) })
                .ok_or(Error::Malformed("the owner in the manifest")),
            _ => Err(Error::Malformed("the owner in the manifest")),
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

    #[test]
    fn an_owner_comes_back_from_what_a_store_remembers() {
        let layout = Layout { shards: 1, ring_size: RingSize::default() };
        let founder = Owner::Founder("a@h,b@h".to_owned());
        let member = Owner::Member { cluster: 0x0123_4567_89ab_cdef, node: NodeId(4) };
        for owner in [Owner::Alone, founder, member.clone()] {
            assert_eq!(Owner::of_metadata(&layout.metadata_with(0, &owner)), Ok(owner));
        }
        let metadata = layout.metadata_with(0, &member);
        assert_eq!(metadata[CLUSTER], b"0123456789abcdef");
        for (key, value) in [(CLUSTER, &b"x"[..]), (NODE, b"65536"), (NODE, b"")] {
            let mut damaged = metadata.clone();
            damaged.insert(key.to_vec(), value.to_vec());
            assert!(Owner::of_metadata(&damaged).is_err());
            damaged.remove(key);
            assert!(Owner::of_metadata(&damaged).is_err());
        }
    }
}
