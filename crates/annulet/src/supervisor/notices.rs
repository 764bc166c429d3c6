//! The choice of notices, as a pure step over looks at a node.
//!
//! * Readiness, once: when clients are served.
//! * A longer limit of the start or the stop: when a stage of it begins, and as long as the process uses CPU time. It
//!   recovers, or writes its last data.
//! * The watchdog's feed, when every shard has turned since the last one. A stop has a limit of its own: it is fed
//!   without a condition.
//!
//! Invariant: a node that has not served is never ready.

use server::Stage;
use std::time::Duration;

/// The longest pause between two looks at a node that starts or stops.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The pause of a node that serves without a watchdog: nothing is due until its stage changes.
const QUIET: Duration = Duration::from_secs(3600);

/// Looks for each period of the watchdog. An idle shard turns once a second, so the shortest useful period is some
/// seconds.
const LOOKS_PER_PERIOD: u32 = 4;

/// The limit of a start or a stop, from a look on. It outlives many looks, on a machine that is busy too.
const EXTENSION: Duration = Duration::from_secs(60);

/// The CPU time between two looks that counts as work. The looks themselves use less.
const WORK_MIN: Duration = Duration::from_millis(2);

/// The facts of a node at one moment.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) stage: Stage,
    /// The turns of each shard since its start.
    pub(super) turns: Vec<u64>,
    /// The CPU time that the process has used.
    pub(super) cpu: Duration,
}

/// A notice for the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    Ready,
    Stopping,
    Status(&'static str),
    /// The start or the stop may take so long from now on.
    Extend(Duration),
    Watchdog,
}

/// The notices that were given.
#[derive(Debug)]
pub(super) struct Notices {
    watchdog: Option<Duration>,
    /// The stage that was told last.
    told: Option<Stage>,
    /// The turns at the last feed.
    fed: Vec<u64>,
    /// The CPU time at the last extension.
    cpu: Duration,
}

impl Notices {
    /// For a watchdog of this period; `None` without one.
    pub(super) fn new(watchdog: Option<Duration>) -> Notices {
        Notices { watchdog, told: None, fed: Vec::new(), cpu: Duration::ZERO }
    }

    /// The pause until the next look, unless the stage changes before.
    pub(super) fn pause(&self) -> Duration {
        let feeds = self.watchdog.map(|period| period / LOOKS_PER_PERIOD);
        match self.told {
            Some(Stage::Serving) => feeds.unwrap_or(QUIET),
            _ => feeds.map_or(LOOK_EVERY, |pause| pause.min(LOOK_EVERY)),
        }
    }

    /// The notices that are due.
    pub(super) fn step(&mut self, look: &Look, out: &mut Vec<Notice>) {
        let begins = self.told != Some(look.stage);
        if begins {
            self.tell_stage(look.stage, out);
        }
        let works = look.cpu.saturating_sub(self.cpu) >= WORK_MIN;
        if look.stage != Stage::Serving && (begins || works) {
            self.cpu = look.cpu;
            out.push(Notice::Extend(EXTENSION));
        }
        if self.watchdog.is_some() && self.feeds(look) {
            self.fed.clone_from(&look.turns);
            out.push(Notice::Watchdog);
        }
    }

    fn tell_stage(&mut self, stage: Stage, out: &mut Vec<Notice>) {
        self.told = Some(stage);
        let (notice, status) = match stage {
            Stage::Opening => (None, "opens its stores"),
            Stage::Waiting => (None, "asks the other nodes before it serves"),
            Stage::Serving => (Some(Notice::Ready), "serves clients"),
            Stage::Stopping => (Some(Notice::Stopping), "stops: requests under way are answered"),
        };
        out.extend(notice);
        out.push(Notice::Status(status));
    }

    fn feeds(&self, look: &Look) -> bool {
        match look.stage {
            Stage::Opening | Stage::Waiting => false,
            Stage::Serving => {
                let fed = |shard: usize| self.fed.get(shard).copied();
                look.turns.iter().enumerate().all(|(shard, &turns)| fed(shard) != Some(turns))
            }
            Stage::Stopping => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(8);

    fn look(stage: Stage, turns: &[u64], cpu_ms: u64) -> Look {
        Look { stage, turns: turns.to_vec(), cpu: Duration::from_millis(cpu_ms) }
    }

    fn due(notices: &mut Notices, look: &Look) -> Vec<Notice> {
        let mut out = Vec::new();
        notices.step(look, &mut out);
        out
    }

    #[test]
    fn a_node_is_ready_once_and_only_when_it_serves() {
        let mut notices = Notices::new(None);
        let stages = [Stage::Opening, Stage::Waiting, Stage::Serving, Stage::Serving, Stage::Stopping];
        let is_told = |notice| {
            let mut notices = Notices::new(None);
            stages.map(|stage| due(&mut notices, &look(stage, &[0], 0)).contains(&notice))
        };
        assert_eq!(is_told(Notice::Ready), [false, false, true, false, false]);
        assert_eq!(is_told(Notice::Stopping), [false, false, false, false, true]);
        due(&mut notices, &look(Stage::Opening, &[], 0));
        let stopped = due(&mut notices, &look(Stage::Stopping, &[], 0));
        assert!(!stopped.contains(&Notice::Ready), "it never served");
    }

    #[test]
    fn a_start_has_longer_only_while_it_works() {
        let mut notices = Notices::new(None);
        let extend = Notice::Extend(EXTENSION);
        assert!(due(&mut notices, &look(Stage::Opening, &[], 0)).contains(&extend), "a stage begins");
        assert!(due(&mut notices, &look(Stage::Opening, &[], 50)).contains(&extend));
        assert_eq!(due(&mut notices, &look(Stage::Opening, &[], 51)), [], "a disk that hangs uses no CPU");
        assert_eq!(due(&mut notices, &look(Stage::Opening, &[], 60)), [extend]);
        assert!(!due(&mut notices, &look(Stage::Serving, &[0], 900)).contains(&extend));
        assert!(due(&mut notices, &look(Stage::Stopping, &[0], 950)).contains(&extend));
    }

    #[test]
    fn the_watchdog_is_fed_when_every_shard_has_turned() {
        let mut notices = Notices::new(Some(PERIOD));
        let mut feeds =
            |stage, turns: &[u64]| due(&mut notices, &look(stage, turns, 0)).contains(&Notice::Watchdog);
        assert!(!feeds(Stage::Opening, &[]) && !feeds(Stage::Waiting, &[1, 1]));
        assert!(feeds(Stage::Serving, &[5, 5]));
        assert!(!feeds(Stage::Serving, &[5, 5]));
        assert!(!feeds(Stage::Serving, &[9, 5]), "one shard hangs");
        assert!(feeds(Stage::Serving, &[9, 6]));
        assert!(feeds(Stage::Stopping, &[9, 6]) && feeds(Stage::Stopping, &[9, 6]));
        assert!(!due(&mut Notices::new(None), &look(Stage::Serving, &[1], 0)).contains(&Notice::Watchdog));
    }

    #[test]
    fn looks_come_several_times_in_a_period() {
        let pauses = |watchdog| {
            let mut notices = Notices::new(watchdog);
            let starts = notices.pause();
            due(&mut notices, &look(Stage::Serving, &[1], 0));
            [starts, notices.pause()]
        };
        assert_eq!(pauses(None), [LOOK_EVERY, QUIET], "a node that serves is not woken for nothing");
        assert_eq!(pauses(Some(PERIOD)), [PERIOD / 4, PERIOD / 4]);
        assert_eq!(pauses(Some(8 * PERIOD)), [LOOK_EVERY, 2 * PERIOD]);
    }
}
