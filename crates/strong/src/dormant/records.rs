//! The records of dormant groups.

use base::FastMap;
use ring::NodeId;

use crate::group::NUMBER_MAX;
use crate::promise::Process;

/// Bytes of a dormant group in [`DormantGroups`] at most, with its share of the map's free places.
pub const DORMANT_BYTES_MAX: usize = 80;

/// Bytes of a term or an index: both are below [`NUMBER_MAX`].
const NUMBER_BYTES: usize = 6;

const _: () = assert!(NUMBER_MAX <= 1 << (8 * NUMBER_BYTES), "a number fits");

/// The record of a dormant group. It is of bytes, so that the map has no gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DormantGroup {
    life: [u8; 8],
    node: [u8; 2],
    term: [u8; NUMBER_BYTES],
    last: [u8; NUMBER_BYTES],
}

/// A map's place has a group's name, the record and one byte; at worst, right after it grew, 7 of 16 places are used.
const _: () =
    assert!((size_of::<(u32, DormantGroup)>() + 1) * 16 / 7 <= DORMANT_BYTES_MAX, "records are small");

impl DormantGroup {
    /// The record of a group with a leader in its present term, and a last index up to which all is applied.
    pub fn new(leader: Process, term: u64, last: u64) -> DormantGroup {
        DormantGroup {
            life: leader.life.to_le_bytes(),
            node: leader.node.0.to_le_bytes(),
            term: bytes_of(term),
            last: bytes_of(last),
        }
    }

    /// The process that leads the group.
    pub fn leader(&self) -> Process {
        Process { node: NodeId(u16::from_le_bytes(self.node)), life: u64::from_le_bytes(self.life) }
    }

    /// The term that it leads.
    pub fn term(&self) -> u64 {
        number_of(self.term)
    }

    /// The last entry, which is applied.
    pub fn last(&self) -> u64 {
        number_of(self.last)
    }
}

fn bytes_of(number: u64) -> [u8; NUMBER_BYTES] {
    assert!(number < NUMBER_MAX, "terms and indexes are bounded");
    let [bytes @ .., _, _] = number.to_le_bytes();
    bytes
}

fn number_of(bytes: [u8; NUMBER_BYTES]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The dormant groups of a shard.
pub struct DormantGroups<G> {
    records: FastMap<G, DormantGroup>,
}

impl<G> Default for DormantGroups<G> {
    fn default() -> DormantGroups<G> {
        DormantGroups { records: FastMap::default() }
    }
}

impl<G: Ord + Copy + std::hash::Hash> DormantGroups<G> {
    /// Adds a group that was unloaded.
    pub fn add(&mut self, group: G, record: DormantGroup) {
        let before = self.records.insert(group, record);
        assert!(before.is_none(), "a group is unloaded once");
    }

    /// The record of a group.
    pub fn get(&self, group: G) -> Option<&DormantGroup> {
        self.records.get(&group)
    }

    /// Takes the record of a group that is loaded.
    pub fn take(&mut self, group: G) -> Option<DormantGroup> {
        self.records.remove(&group)
    }

    /// Takes all groups: this store has no part in them any more.
    pub fn take_all(&mut self) -> Vec<G> {
        std::mem::take(&mut self.records).into_keys().collect()
    }

    /// Groups that a process of a node leads, in order.
    pub fn led_by(&self, node: NodeId) -> Vec<G> {
        let mut led: Vec<G> =
            self.records.iter().filter(|(_, it)| it.leader().node == node).map(|(group, _)| *group).collect();
        led.sort_unstable();
        led
    }

    /// All groups with their records.
    pub fn iter(&self) -> impl Iterator<Item = (G, &DormantGroup)> {
        self.records.iter().map(|(group, record)| (*group, record))
    }

    /// The number of groups.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(node: u16, life: u64) -> Process {
        Process { node: NodeId(node), life }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let numbers = [0, 1, 255, 256, 0x0102_0304_0506, NUMBER_MAX - 1];
        for (term, last) in numbers.into_iter().flat_map(|term| numbers.map(|last| (term, last))) {
            let leader = process(0xABCD, u64::MAX - term);
            let record = DormantGroup::new(leader, term, last);
            assert_eq!((record.leader(), record.term(), record.last()), (leader, term, last));
        }
    }

    #[test]
    fn a_dormant_group_takes_few_bytes_however_many_there_are() {
        let mut groups = DormantGroups::default();
        for group in 0..70_000u32 {
            groups.add(group, DormantGroup::new(process(1, 2), 3, 4));
            // The map says how many it has room for: 7 of 8 places.
            let places = groups.records.capacity() * 8 / 7;
            let bytes = places * (size_of::<(u32, DormantGroup)>() + 1);
            assert!(groups.len() < 16 || bytes <= DORMANT_BYTES_MAX * groups.len(), "{group}: {bytes}");
        }
    }

    #[test]
    fn groups_are_found_by_the_node_of_their_leader() {
        let mut groups = DormantGroups::default();
        for (group, node) in [(5, 1), (3, 2), (4, 1)] {
            groups.add(group, DormantGroup::new(process(node, 9), 2, 7));
        }
        assert_eq!(groups.led_by(NodeId(1)), [4, 5]);
        assert_eq!(groups.take(4).map(|it| it.leader()), Some(process(1, 9)));
        assert_eq!((groups.led_by(NodeId(1)), groups.len()), (vec![5], 2));
        let mut all = groups.take_all();
        all.sort_unstable();
        assert_eq!((all, groups.is_empty()), (vec![3, 5], true));
    }
}
