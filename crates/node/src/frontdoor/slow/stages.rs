//! The stages of a request, with their times.
//!
//! At any time a request is in one stage, from when it came to its answer, so the times of all stages sum to its whole
//! time. A replica is asked and answers beside that: the waits for replicas have times of their own.
//!
//! A request that waits for the disk here and for replicas is in the stage of the disk. What its shard does between two
//! stages counts for the one before.

use base::Monotonic;
use ring::NodeId;
use std::time::Duration;

/// A stage of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowStage {
    /// It waits for its shard to begin it: admission, the way from another shard, pacing of writes.
    #[default]
    Queued,
    /// Its first step.
    Begin,
    /// It waits behind another write of its key.
    Key,
    /// It waits for the stored head.
    Head,
    /// It waits for a stored value.
    Disk,
    /// It waits for the sync of what it has written, or of what its answer rests on.
    Sync,
    /// It waits for other nodes alone.
    Replicas,
    /// It waits for its consistent group to have a leader.
    Leader,
    /// It waits for a majority of the voters of its group.
    Majority,
    /// Its entry is committed, and waits to be applied.
    Apply,
    /// A scan waits for pages, of this node or of others.
    Pages,
    /// The client of a scan has a part of its answer to take.
    Client,
}

/// The number of stages.
pub const STAGES: usize = 12;

impl SlowStage {
    /// All stages, in the order in which requests usually go through them.
    pub const ALL: [SlowStage; STAGES] = [
        SlowStage::Queued,
        SlowStage::Begin,
        SlowStage::Key,
        SlowStage::Head,
        SlowStage::Disk,
        SlowStage::Sync,
        SlowStage::Replicas,
        SlowStage::Leader,
        SlowStage::Majority,
        SlowStage::Apply,
        SlowStage::Pages,
        SlowStage::Client,
    ];

    /// Its name in lines and answers.
    pub fn name(self) -> &'static str {
        match self {
            SlowStage::Queued => "queued",
            SlowStage::Begin => "begin",
            SlowStage::Key => "key",
            SlowStage::Head => "head",
            SlowStage::Disk => "disk",
            SlowStage::Sync => "sync",
            SlowStage::Replicas => "replicas",
            SlowStage::Leader => "leader",
            SlowStage::Majority => "majority",
            SlowStage::Apply => "apply",
            SlowStage::Pages => "pages",
            SlowStage::Client => "client",
        }
    }
}

/// Replicas whose waits are kept: the others of five, and two that stand in.
const REPLICAS_MAX: usize = 6;

/// A wait for another node. Times are in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    node: u16,
    waits: bool,
    /// When it was asked last, from when the request came.
    asked: u32,
    /// The time of all its answers.
    waited: u32,
}

/// The stages of one request, as they pass. It holds no memory of its own, since each task has one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StageClock {
    came: Monotonic,
    /// When the stage began that it is in, to a microsecond.
    since: Monotonic,
    stage: SlowStage,
    /// Microseconds in each stage.
    spent: [u32; STAGES],
    asked: [Asked; REPLICAS_MAX],
    /// How many of `asked` are in use.
    replicas: u8,
}

impl StageClock {
    /// The stages of a request that came then and begins now.
    pub fn begun(came: Monotonic, now: Monotonic) -> StageClock {
        let mut stages = StageClock { came, since: came, ..StageClock::default() };
        stages.enter(SlowStage::Begin, now);
        stages
    }

    /// When the request came to its node.
    pub fn came(&self) -> Monotonic {
        self.came
    }

    /// The request enters a stage.
    pub fn enter(&mut self, stage: SlowStage, now: Monotonic) {
        let micros = micros_since(self.since, now);
        let spent = &mut self.spent[self.stage as usize];
        *spent = spent.saturating_add(micros);
        // To the microsecond, so that nothing is lost between stages.
        self.since = self.since + Duration::from_micros(micros.into());
        self.stage = stage;
    }

    /// A node is asked.
    pub fn ask(&mut self, node: NodeId, now: Monotonic) {
        let asked = micros_since(self.came, now);
        if let Some(known) = self.of(node) {
            (known.waits, known.asked) = (true, asked);
            return;
        }
        if let Some(free) = self.asked.get_mut(usize::from(self.replicas)) {
            *free = Asked { node: node.0, waits: true, asked, waited: 0 };
            self.replicas += 1;
        }
    }

    /// A node has answered, or will not.
    pub fn answered(&mut self, node: NodeId, now: Monotonic) {
        let at = micros_since(self.came, now);
        if let Some(known) = self.of(node).filter(|known| known.waits) {
            known.waits = false;
            known.waited = known.waited.saturating_add(at.saturating_sub(known.asked));
        }
    }

    /// The time of each stage by now; their sum is the time since the request came.
    pub fn times(&self, now: Monotonic) -> [Duration; STAGES] {
        let mut all = *self;
        all.enter(self.stage, now);
        all.spent.map(|micros| Duration::from_micros(micros.into()))
    }

    /// The nodes that were asked, the time that each has taken by now, and whether it has yet to answer.
    pub fn replicas(&self, now: Monotonic) -> impl Iterator<Item = (NodeId, Duration, bool)> {
        let at = micros_since(self.came, now);
        self.asked.iter().take(self.replicas.into()).map(move |known| {
            let waits = if known.waits { at.saturating_sub(known.asked) } else { 0 };
            let micros = known.waited.saturating_add(waits);
            (NodeId(known.node), Duration::from_micros(micros.into()), known.waits)
        })
    }

    fn of(&mut self, node: NodeId) -> Option<&mut Asked> {
        self.asked.iter_mut().take(self.replicas.into()).find(|asked| asked.node == node.0)
    }
}

fn micros_since(earlier: Monotonic, now: Monotonic) -> u32 {
    u32::try_from(now.since(earlier).as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;
    use std::collections::BTreeMap;

    /// Random stages and answers, against lists of all of them.
    #[test]
    fn stages_sum_to_the_whole() {
        for seed in 0..200 {
            let mut rng = SplitMix64::new(seed);
            let came = Monotonic(rng.next_u64() % 1_000_000_000);
            let mut now = came + Duration::from_nanos(rng.next_u64() % 5_000_000);
            let mut stages = StageClock::begun(came, now);
            let (mut stage, mut spent) = (SlowStage::Begin, [Duration::ZERO; STAGES]);
            spent[0] = now.since(came);
            let mut waits: BTreeMap<u16, (Duration, Option<Monotonic>)> = BTreeMap::new();
            for _ in 0..rng.next_u64() % 40 {
                let passed = Duration::from_nanos(rng.next_u64() % 5_000_000);
                now = now + passed;
                spent[stage as usize] += passed;
                let node = (rng.next_u64() % REPLICAS_MAX as u64) as u16;
                match rng.next_u64() % 3 {
                    0 => {
                        stage = SlowStage::ALL[(rng.next_u64() % STAGES as u64) as usize];
                        stages.enter(stage, now);
                    }
                    1 => {
                        let wait = waits.entry(node).or_default();
                        if wait.1.is_none() {
                            wait.1 = Some(now);
                            stages.ask(NodeId(node), now);
                        }
                    }
                    _ => {
                        if let Some((time, asked)) = waits.get_mut(&node) {
                            *time += asked.take().map_or(Duration::ZERO, |asked| now.since(asked));
                        }
                        stages.answered(NodeId(node), now);
                    }
                }
            }

            let times = stages.times(now);
            let whole: Duration = times.iter().sum();
            assert!(now.since(came) - whole < Duration::from_micros(1), "{seed}: {times:?}");
            for (told, spent) in times.iter().zip(&spent) {
                assert!(told.abs_diff(*spent) < Duration::from_micros(50), "{seed}: {times:?} {spent:?}");
            }
            let told: BTreeMap<u16, _> =
                stages.replicas(now).map(|(node, time, waits)| (node.0, (time, waits))).collect();
            assert_eq!(told.len(), waits.len());
            for (node, (time, asked)) in waits {
                let time = time + asked.map_or(Duration::ZERO, |asked| now.since(asked));
                assert!(told[&node].0.abs_diff(time) < Duration::from_micros(50), "{seed}: {node}");
                assert_eq!(told[&node].1, asked.is_some());
            }
        }
    }

    #[test]
    fn more_replicas_than_are_kept_change_nothing() {
        let mut stages = StageClock::begun(Monotonic(0), Monotonic(0));
        (0..20).for_each(|node| stages.ask(NodeId(node), Monotonic(0)));
        (0..20).for_each(|node| stages.answered(NodeId(node), Monotonic(9_000)));
        assert_eq!(stages.replicas(Monotonic(9_000)).count(), REPLICAS_MAX);
        assert!(SlowStage::ALL.iter().enumerate().all(|(at, stage)| *stage as usize == at));
    }
}
