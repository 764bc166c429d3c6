//! What a data folder was made with, and cannot be changed by a start: the number of shards, by how much of their
//! position keys are ordered and given to shards, and whose it is: which node of which cluster. Each shard's store
//! remembers them, or, of another backend than annulet's own, a file beside them ([`founding`]).
//!
//! Keys are ordered by more bits of their position than the ring has ([`RingSize::finest`]), so that the ring can grow:
//! a partition is a range of *prefixes*, of fewer prefixes when there are more partitions. A shard is chosen by the
//! bits that the ring had when the folder was made: a smaller partition is in the shard that the larger one was in.
//!
//! Invariant: all nodes of a cluster have the same prefixes, since keys travel with them.

use crate::store::founding::{self, Founding};
use base::Disk;
use engine::{Error, manifest};
use ring::{NodeId, Partition, Position, RingSize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

const SHARDS: &[u8] = b"shards";
const SHARD: &[u8] = b"shard";
/// Where keys are ordered by the ring's own bits, as in folders that older programs have made.
const RING_SIZE: &[u8] = b"ring_size";
/// The same where keys are ordered more finely; by another name, so that an older program does not take one for the
/// other.
const FOUNDED: &[u8] = b"founded_with";
const PREFIXES: &[u8] = b"prefixes";
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
    /// The ring's partitions when the folder was made: what a shard is chosen by.
    pub ring_size: RingSize,
    /// The prefixes that keys are ordered by: the most partitions that the ring can have.
    pub prefixes: RingSize,
}

impl Layout {
    /// That of a folder that is made now, for a ring of this size.
    pub fn new(shards: u16, ring_size: RingSize) -> Layout {
        Layout { shards, ring_size, prefixes: ring_size.finest() }
    }

    /// The layout of the data in `data`; `None` if there is none yet. Blocks.
    pub fn read(disk: &mut dyn Disk, data: &Path) -> Result<Option<Layout>, Error> {
        read_metadata(disk, data)?.map(|(_, metadata)| Layout::of_metadata(&metadata)).transpose()
    }

    /// Whose the data in `data` is; `None` if there is none yet. Blocks.
    pub fn read_owner(disk: &mut dyn Disk, data: &Path) -> Result<Option<Owner>, Error> {
        read_metadata(disk, data)?.map(|(_, metadata)| Owner::of_metadata(&metadata)).transpose()
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
        let (ring_size, prefixes) = (self.ring_size.partitions(), self.prefixes.partitions());
        let order = match prefixes == ring_size {
            true => vec![(RING_SIZE, ring_size)],
            false => vec![(FOUNDED, ring_size), (PREFIXES, prefixes)],
        };
        let numbers = [(SHARDS, u32::from(self.shards)), (SHARD, shard.into())].into_iter().chain(order);
        numbers.map(|(key, number)| (key.to_vec(), number.to_string().into_bytes())).collect()
    }

    /// The prefix of a key: the top bits of its position on the ring.
    pub fn prefix(&self, bucket: &kv::Bucket, key: &[u8]) -> u16 {
        Position::of_key(&bucket.bucket_type, &bucket.name, key).prefix(self.prefixes.bits())
    }

    /// The shard of the keys with this prefix.
    pub fn shard_of(&self, prefix: u16) -> u16 {
        ring::shard_of(prefix >> (self.prefixes.bits() - self.ring_size.bits()), self.shards)
    }

    /// Where on the ring the keys with this prefix begin. A ring has all of them in one partition.
    pub fn position(&self, prefix: u16) -> Position {
        // What another node sends may be beyond the last.
        let prefix = u32::from(prefix) & (self.prefixes.partitions() - 1);
        self.prefixes.first(Partition(prefix))
    }

    /// The prefixes of a partition of a ring of this size.
    pub fn prefixes_of(&self, partition: Partition, size: RingSize) -> RangeInclusive<u16> {
        let first = self.prefixes.convert(partition, size).0;
        let count = self.prefixes.partitions() >> size.bits();
        let narrow = |prefix: u32| u16::try_from(prefix).expect("a prefix has at most 16 bits");
        narrow(first)..=narrow(first + count - 1)
    }

    /// What a store remembers of it.
    pub fn of_metadata(metadata: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<Layout, Error> {
        let number =
            |key: &[u8]| -> Option<u32> { std::str::from_utf8(metadata.get(key)?).ok()?.parse().ok() };
        let shards = number(SHARDS).and_then(|shards| u16::try_from(shards).ok());
        let size = |key: &[u8]| number(key).and_then(|size| RingSize::new(size).ok());
        let order = size(RING_SIZE).map(|size| (size, size)).or_else(|| size(FOUNDED).zip(size(PREFIXES)));
        match (shards, order) {
            (Some(shards), Some((ring_size, prefixes)))
                if (1..=SHARDS_MAX).contains(&shards) && ring_size <= prefixes =>
            {
                Ok(Layout { shards, ring_size, prefixes })
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
    /// A node of the cluster that these members founded, by name, with commas in between: what older programs
    /// remembered.
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

/// What the stores of the data in `data` are; `None` if there is none yet. Blocks.
pub fn read_founding(disk: &mut dyn Disk, data: &Path) -> Result<Option<Founding>, Error> {
    Ok(read_metadata(disk, data)?.map(|(founding, _)| founding))
}

fn read_metadata(disk: &mut dyn Disk, data: &Path) -> Result<Option<(Founding, founding::Metadata)>, Error> {
    if let Some(founded) = founding::read(disk, data)? {
        return Ok(Some(founded));
    }
    let found = manifest::find(disk, &shard_dir(data, 0))?;
    Ok(found.map(|found| (Founding::default(), found.state.metadata)))
}

/// The folder of a shard's store.
pub fn shard_dir(data: &Path, shard: u16) -> PathBuf {
    data.join(format!("shard-{shard:03}"))
}

/// The folder of a shard's store of a bucket type.
pub fn type_dir(data: &Path, shard: u16, bucket_type: &str) -> PathBuf {
    data.join(format!("shard-{shard:03}.{bucket_type}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_comes_back_from_what_a_store_remembers() {
        let layout = Layout::new(3, RingSize::new(128).unwrap());
        assert_eq!(Layout::of_metadata(&layout.metadata(2)), Ok(layout));
        for (key, value) in [(SHARDS, "0"), (PREFIXES, "64"), (PREFIXES, "100")] {
            let mut damaged = layout.metadata(2);
            damaged.insert(key.to_vec(), value.into());
            assert!(Layout::of_metadata(&damaged).is_err(), "{value}");
        }
        assert!(Layout::of_metadata(&BTreeMap::new()).is_err());
    }

    #[test]
    fn a_folder_of_an_older_program_is_ordered_by_its_ring() {
        let size = RingSize::new(128).unwrap();
        let old = [("shards", "3"), ("shard", "2"), ("ring_size", "128")];
        let old: BTreeMap<Vec<u8>, Vec<u8>> = old.map(|(key, value)| (key.into(), value.into())).into();
        let layout = Layout { shards: 3, ring_size: size, prefixes: size };
        assert_eq!((Layout::of_metadata(&old), layout.metadata(2)), (Ok(layout), old));
        assert!(!Layout::new(3, size).metadata(2).contains_key(RING_SIZE), "an older program refuses it");
    }

    #[test]
    fn a_partition_is_a_range_of_prefixes_in_one_shard() {
        for (founded, grown) in [(8, 8), (8, 32), (64, 1_024), (16_384, 65_536), (65_536, 65_536)] {
            let layout = Layout::new(5, RingSize::new(founded).unwrap());
            let size = RingSize::new(grown).unwrap();
            let mut next = 0;
            for partition in size.all() {
                let prefixes = layout.prefixes_of(partition, size);
                assert_eq!(u32::from(*prefixes.start()), next);
                for prefix in prefixes.clone() {
                    assert_eq!(size.partition(layout.position(prefix)), partition);
                    assert_eq!(layout.shard_of(prefix), layout.shard_of(*prefixes.start()));
                }
                next = u32::from(*prefixes.end()) + 1;
            }
            assert_eq!(next, layout.prefixes.partitions());
        }
    }

    #[test]
    fn an_owner_comes_back_from_what_a_store_remembers() {
        let layout = Layout::new(1, RingSize::default());
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
