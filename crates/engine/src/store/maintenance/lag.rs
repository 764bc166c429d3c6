//! The lag of compaction, as writes are slowed by it: what is found rises in steps, and waits are not to.
//!
//! A flush or a merge that ends may tell of a segment's worth of dead bytes at once, which are as long in going as a
//! segment is in coming. Were writes slowed by that at once, a batch of a hundred would wait for tens of milliseconds,
//! and all that came with it, and then not at all. So what they are slowed by rises over a segment of writes towards
//! what is found, and falls with it at once: what has gone is not to be waited for. By writes and not by the clock,
//! since what is found rises with writes, and a store that is written slowly has time.
//!
//! Left out: where writes wait longest, which is `pressure.rs`'s.

/// In a thousandth: a write is a small part of a segment.
const UNIT: u64 = 1 << 20;

/// What writes are slowed by.
#[derive(Default)]
pub(in crate::store) struct Lag {
    /// In thousandths of where they wait longest, and parts of these.
    level: u64,
    /// Bytes that the journal had been given by then.
    written: u64,
}

impl Lag {
    /// So much is found, in thousandths, now that the journal was given so many bytes since the store was opened.
    pub(in crate::store) fn follow(&mut self, found: u64, written: u64, segment_bytes: u64) {
        let come = written - self.written;
        self.written = written;
        let (found, all) = (found.saturating_mul(UNIT), segment_bytes.max(1));
        let rise = u128::from(found.saturating_sub(self.level)) * u128::from(come.min(all)) / u128::from(all);
        self.level = found.min(self.level + u64::try_from(rise).expect("not more than all of it"));
    }

    /// In thousandths.
    pub(in crate::store) fn level(&self) -> u64 {
        self.level / UNIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 16 << 20;

    #[test]
    fn a_step_is_followed_over_a_segment_of_writes() {
        let mut lag = Lag::default();
        let levels: Vec<u64> = (0..=2000)
            .map(|kib| {
                lag.follow(800, kib << 10, SEGMENT);
                lag.level()
            })
            .collect();
        assert!(levels.is_sorted_by(|a, b| a <= b && b - a <= 1), "no write sees much of it");
        assert!((85..100).contains(&levels[2000]), "an eighth of the way, nearly: {}", levels[2000]);
        lag.follow(800, (2 << 20) + SEGMENT, SEGMENT);
        assert_eq!(lag.level(), 800);
    }

    #[test]
    fn what_has_gone_is_not_waited_for() {
        let mut lag = Lag::default();
        lag.follow(900, SEGMENT, SEGMENT);
        lag.follow(500, SEGMENT, SEGMENT);
        assert_eq!(lag.level(), 500);
        lag.follow(u64::MAX, u64::MAX, u64::MAX);
        assert!(lag.level() > 500);
    }
}
