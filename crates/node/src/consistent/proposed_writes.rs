//! Writes of requests whose entries are on their way, for the log of slow requests.

use std::collections::VecDeque;

/// Writes whose entries this store has proposed and not applied, in the order of their indexes.
///
/// Bounded by the requests under way: an entry that is applied, or replaced, takes its write out.
#[derive(Debug, Default)]
pub(super) struct ProposedWrites {
    /// The index of each entry, and the token of its request.
    writes: VecDeque<(u64, u64)>,
    /// All entries up to this one are synced here.
    synced: u64,
}

impl ProposedWrites {
    /// A write's entry is proposed.
    pub fn push(&mut self, index: u64, token: u64) {
        // Entries of an earlier term with the same indexes are replaced.
        while self.writes.pop_back_if(|(last, _)| *last >= index).is_some() {}
        self.synced = self.synced.min(index - 1);
        self.writes.push_back((index, token));
    }

    /// The entries up to this one are synced: the tokens of those that were not.
    pub fn sync(&mut self, through: u64) -> impl Iterator<Item = u64> {
        let first = self.writes.partition_point(|(index, _)| *index <= self.synced);
        self.synced = self.synced.max(through);
        self.upto(first, self.synced)
    }

    /// The tokens of writes up to this entry.
    pub fn through(&self, through: u64) -> impl Iterator<Item = u64> {
        self.upto(0, through)
    }

    /// The entries up to this one are applied.
    pub fn apply(&mut self, through: u64) {
        while self.writes.pop_front_if(|(index, _)| *index <= through).is_some() {}
    }

    fn upto(&self, first: usize, through: u64) -> impl Iterator<Item = u64> {
        let writes = self.writes.iter().skip(first);
        writes.take_while(move |(index, _)| *index <= through).map(|(_, token)| *token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;

    /// Random proposals, replacements, syncs and applied entries, against lists of all writes.
    #[test]
    fn each_write_is_told_of_its_sync_once() {
        for seed in 0..200 {
            let mut rng = SplitMix64::new(seed);
            let (mut proposed, mut last, mut synced, mut applied) =
                (ProposedWrites::default(), 0u64, 0, 0u64);
            let mut waiting: Vec<(u64, u64)> = Vec::new();
            for token in 0..200 {
                match rng.next_u64() % 4 {
                    0 | 1 => {
                        // Now and then entries that are not applied are replaced.
                        let back = if rng.next_u64().is_multiple_of(8) { rng.next_u64() % 4 } else { 0 };
                        let index = last.max(applied) + 1 - back.min(last.saturating_sub(applied));
                        waiting.retain(|(known, _)| *known < index);
                        synced = synced.min(index - 1);
                        waiting.push((index, token));
                        proposed.push(index, token);
                        last = index;
                    }
                    2 => {
                        let through = rng.next_u64() % (last + 1);
                        let told: Vec<u64> = proposed.sync(through).collect();
                        let new = |index: u64| index > synced && index <= through;
                        let expected: Vec<u64> = waiting
                            .iter()
                            .filter(|(index, _)| new(*index))
                            .map(|(_, token)| *token)
                            .collect();
                        assert_eq!(told, expected, "{seed}");
                        synced = synced.max(through);
                    }
                    _ => {
                        applied = applied.max(rng.next_u64() % (last + 1));
                        proposed.apply(applied);
                        waiting.retain(|(index, _)| *index > applied);
                    }
                }
                let all: Vec<u64> = waiting.iter().map(|(_, token)| *token).collect();
                assert_eq!(proposed.through(u64::MAX).collect::<Vec<_>>(), all, "{seed}");
            }
        }
    }
}
