//! The window: the memory of a shard for log entries, shared by its groups.
//!
//! A group keeps applied entries for voters that are a little behind. All groups of a shard together keep at most
//! [`WINDOW_BYTES_MAX`]; the least recently used one is trimmed first.

use std::collections::BTreeMap;

/// Bytes of log entries of all groups of a shard: a second of writes at 32 MiB/s, so a voter may restart a connection
/// without catch-up.
pub const WINDOW_BYTES_MAX: usize = 32 << 20;

/// Bytes of the logs of groups, in the order of their use.
pub struct Window<G> {
    /// Bytes of a group's log, and the number of its last use.
    groups: BTreeMap<G, (usize, u64)>,
    /// Groups by their last use.
    uses: BTreeMap<u64, G>,
    used: u64,
    bytes: usize,
    bytes_max: usize,
}

impl<G: Ord + Copy> Window<G> {
    /// A window of at most that many bytes.
    pub fn new(bytes_max: usize) -> Window<G> {
        Window { groups: BTreeMap::new(), uses: BTreeMap::new(), used: 0, bytes: 0, bytes_max }
    }

    /// Notes the use of a group, and the bytes of its log.
    pub fn note(&mut self, group: G, bytes: usize) {
        if bytes == 0 {
            return self.set(group, 0);
        }
        self.used += 1;
        let before = self.groups.insert(group, (bytes, self.used));
        self.uses.insert(self.used, group);
        self.bytes += bytes;
        if let Some((bytes, used)) = before {
            self.bytes -= bytes;
            self.uses.remove(&used);
        }
    }

    /// Groups to be trimmed, and the bytes that each may keep; they count as trimmed from now on.
    ///
    /// A group that keeps more, because its entries are not applied, says so with its next use.
    pub fn over(&mut self) -> Vec<(G, usize)> {
        let mut trimmed = Vec::new();
        while self.bytes > self.bytes_max
            && let Some((_, &group)) = self.uses.first_key_value()
        {
            let (bytes, _) = self.groups[&group];
            let keeps = bytes.saturating_sub(self.bytes - self.bytes_max);
            self.set(group, keeps);
            trimmed.push((group, keeps));
        }
        self.invariants();
        trimmed
    }

    /// Bytes of all groups.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn set(&mut self, group: G, bytes: usize) {
        let Some(entry) = self.groups.get_mut(&group) else { return };
        self.bytes = self.bytes - entry.0 + bytes;
        entry.0 = bytes;
        if bytes == 0 {
            self.uses.remove(&entry.1);
            self.groups.remove(&group);
        }
    }

    fn invariants(&self) {
        debug_assert_eq!(self.groups.len(), self.uses.len(), "each group has one last use");
        debug_assert!(self.bytes <= self.bytes_max, "the window is within its bound");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_group_is_trimmed_first() {
        let mut window = Window::new(100);
        window.note('a', 40);
        window.note('b', 40);
        window.note('a', 50);
        assert_eq!(window.over(), []);
        window.note('c', 30);
        assert_eq!((window.over(), window.bytes()), (vec![('b', 20)], 100));
        window.note('d', 60);
        assert_eq!(window.over(), [('b', 0), ('a', 10)]);
        window.note('d', 500);
        assert_eq!((window.over(), window.bytes()), (vec![('a', 0), ('c', 0), ('d', 100)], 100));
        window.note('d', 0);
        assert_eq!((window.over(), window.bytes()), (vec![], 0));
    }
}
