//! The faults that a world can have, and the odds of each.

use base::Rng;
use base::rng::SplitMix64;
use std::fmt;

/// A kind of fault. A world counts what fires; a seed counts only if all that it enabled did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A message vanished.
    Loss,
    /// A message arrived twice.
    Duplicate,
    /// A message was overtaken by a later one of its link.
    Reorder,
    /// A message was held up far longer than usual.
    Lag,
    /// A message took a way of its own, far longer than anything else on its link.
    Late,
    /// A message ran into a cut link.
    Cut,
    /// A sender was told that a message could not be sent.
    Bounce,
    /// What a node reports to all came when it was thought of no more.
    LateReport,
    /// Nodes were cut from others, both ways.
    Partition,
    /// Nodes were cut from others, one way.
    OneWay,
    /// A cut came and went, again and again.
    Flapping,
    /// A process stood still for a while.
    Pause,
    /// No operation of a disk ended for a while.
    Stall,
    /// A wall clock jumped.
    ClockJump,
    /// All machines lost power at once.
    Blackout,
    /// A machine lost power.
    PowerCut,
    /// A process was killed; what the system had buffered survived.
    ProcessKill,
    /// A crash happened while a write was under way.
    CrashInWrite,
    /// A block that had not been synced was gone after a crash.
    LostBlock,
    /// A block that had not been synced was there in part after a crash.
    TornBlock,
    /// A change to a directory that had not been synced was gone after a crash.
    LostEntry,
    /// A stored bit flipped.
    BitFlip,
    /// A block was written in another block's place.
    Misdirect,
    /// A read failed.
    ReadError,
    /// A write failed.
    WriteError,
    /// A sync failed.
    SyncError,
    /// A write found no space.
    NoSpace,
    /// A read from memory came back short.
    ShortRead,
    /// A read from memory found nothing.
    ColdRead,
    /// A disk operation took far longer than usual.
    SlowDisk,
    /// A node was started with an empty disk.
    Wiped,
    /// A node was started with an older copy of its disk.
    Restored,
    /// A node was started with a copy of another node's disk.
    Cloned,
    /// A node died and was never started again.
    GoneForGood,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Fault::Loss => "loss",
            Fault::Duplicate => "duplicate",
            Fault::Reorder => "reorder",
            Fault::Lag => "lag",
            Fault::Late => "late",
            Fault::Cut => "cut",
            Fault::Bounce => "bounce",
            Fault::LateReport => "late-report",
            Fault::Partition => "partition",
            Fault::OneWay => "one-way",
            Fault::Flapping => "flapping",
            Fault::Pause => "pause",
            Fault::Stall => "stall",
            Fault::ClockJump => "clock-jump",
            Fault::Blackout => "blackout",
            Fault::PowerCut => "power-cut",
            Fault::ProcessKill => "process-kill",
            Fault::CrashInWrite => "crash-in-write",
            Fault::LostBlock => "lost-block",
            Fault::TornBlock => "torn-block",
            Fault::LostEntry => "lost-entry",
            Fault::BitFlip => "bit-flip",
            Fault::Misdirect => "misdirect",
            Fault::ReadError => "read-error",
            Fault::WriteError => "write-error",
            Fault::SyncError => "sync-error",
            Fault::NoSpace => "no-space",
            Fault::ShortRead => "short-read",
            Fault::ColdRead => "cold-read",
            Fault::SlowDisk => "slow-disk",
            Fault::Wiped => "wiped",
            Fault::Restored => "restored",
            Fault::Cloned => "cloned",
            Fault::GoneForGood => "gone-for-good",
        })
    }
}

/// How likely something is, in parts of a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Odds(u32);

impl Odds {
    const WHOLE: u32 = 1_000_000;

    /// It does not happen.
    pub const NEVER: Odds = Odds(0);
    /// It happens each time.
    pub const ALWAYS: Odds = Odds(Odds::WHOLE);

    /// It happens once in `times` on average.
    pub const fn one_in(times: u32) -> Odds {
        assert!(times > 0 && times <= Odds::WHOLE, "odds finer than a millionth");
        Odds(Odds::WHOLE / times)
    }

    /// It happens this many times in a million.
    pub const fn in_a_million(times: u32) -> Odds {
        assert!(times <= Odds::WHOLE, "more often than each time");
        Odds(times)
    }

    /// Whether it can happen.
    pub fn enabled(self) -> bool {
        self != Odds::NEVER
    }

    /// Whether it happens this time.
    pub fn fires(self, rng: &mut SplitMix64) -> bool {
        self.enabled() && rng.chance(u64::from(self.0), u64::from(Odds::WHOLE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    #[test]
    fn odds_are_about_what_they_say() {
        let mut rng = Seed(1).stream("odds", 0);
        let hits = (0..10_000).filter(|_| Odds::one_in(10).fires(&mut rng)).count();
        assert!((800..1200).contains(&hits), "{hits}");
        assert!((0..100).all(|_| Odds::ALWAYS.fires(&mut rng) && !Odds::NEVER.fires(&mut rng)));
    }
}
