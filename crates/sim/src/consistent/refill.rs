//! The scenario of a voter that is refilled again and again, because its catch-up breaks.
//!
//! 1. The voter is cut off, and keys are written that only catch-ups are about: more than one part has.
//! 2. The other voters restart, so that no log has these entries any more.
//! 3. The voter is joined again. Once its catch-up begins, its links break and mend several times. In a script some
//!    keys of the first part are deleted at the first break.

use super::clients::request_of;
use super::scenario::{Cast, DOWN, Kind, Scenario};
use super::{Key, Message, World, client_id, node_id};
use crate::network::Packet;
use bytes::Bytes;
use std::time::Duration;
use strong::linearizability::Action;

/// The interval at which a scenario looks for a catch-up: about the time of one part.
const CATCH_UP_LOOK_EVERY: Duration = Duration::from_millis(3);
/// Looks for a catch-up: some seconds of them.
const CATCH_UP_LOOKS_MAX: u32 = 1_500;
/// Keys written for a catch-up: more than one part has.
pub(super) const FILL_KEYS: u64 = 330;
/// Fills, each of a share of these keys: a group takes 256 entries at once.
const FILLS: u32 = 3;
/// Keys deleted beside a catch-up: some of its first part.
const DELETIONS: usize = 40;

impl World {
    pub(super) fn play_refill(&mut self, scenario: &mut Scenario, cast: Cast) -> Option<Duration> {
        let away = [(cast.leader, cast.follower), (cast.other, cast.follower)];
        let away = [away, away.map(|(from, to)| (to, from))].concat();
        let filled = 1 + FILLS;
        match scenario.stage {
            1 => {
                let links = self.links_of(cast.follower, true);
                self.set_links(&links, true);
                Some(self.draw_duration(100, 300))
            }
            stage if stage <= filled => {
                self.fill(cast, stage - 2);
                Some(Duration::from_millis(200))
            }
            stage if stage == filled + 1 => {
                self.crash(cast.leader, DOWN);
                self.crash(cast.other, DOWN);
                Some(self.plan.agreement_max * 3 + Duration::from_millis(500))
            }
            stage if stage == filled + 2 => {
                scenario.catch_ups = self.catch_ups();
                self.mend();
                Some(CATCH_UP_LOOK_EVERY)
            }
            stage if stage == filled + 3 => {
                scenario.looks += 1;
                if self.catch_ups() == scenario.catch_ups && scenario.looks < CATCH_UP_LOOKS_MAX {
                    scenario.stage -= 1;
                    return Some(CATCH_UP_LOOK_EVERY);
                }
                Some(self.draw_duration(0, 8))
            }
            stage if stage < filled + 9 => {
                let is_cut = (stage - filled).is_multiple_of(2);
                self.set_links(&away, is_cut);
                if scenario.kind == Kind::Deleted && stage == filled + 4 {
                    self.delete_filled(cast);
                }
                Some(if is_cut { self.draw_duration(100, 700) } else { self.draw_duration(2, 300) })
            }
            stage if stage == filled + 9 => {
                self.mend();
                Some(Duration::from_secs(2))
            }
            _ => None,
        }
    }

    fn catch_ups(&mut self) -> u64 {
        let mut catch_ups = 0;
        for host in &mut self.hosts {
            for shard in 0..host.shards() {
                let shard = host.machine.shard(shard);
                catch_ups += shard.map_or(0, |shard| shard.stats().counters.consistent_catch_ups);
            }
        }
        catch_ups
    }

    /// Writes a share of the keys that only catch-ups are about.
    fn fill(&mut self, cast: Cast, share: u32) {
        let names = self.fill_names(cast);
        let shares = usize::try_from(FILLS).expect("a few");
        for name in names.chunks(names.len().div_ceil(shares)).nth(share as usize).into_iter().flatten() {
            self.ask_to_fill(cast, name, Action::PutOnce);
        }
    }

    /// Deletes the first of these keys, which are in the first part of a catch-up.
    fn delete_filled(&mut self, cast: Cast) {
        let mut names = self.fill_names(cast);
        names.sort_unstable();
        names.truncate(DELETIONS);
        names.iter().for_each(|name| self.ask_to_fill(cast, name, |_| Action::Delete));
    }

    /// The names of a group's keys that only catch-ups are about.
    fn fill_names(&self, cast: Cast) -> Vec<Bytes> {
        let prefix = self.groups[cast.group];
        let keys = self.fill_keys.iter().filter(|key| key.prefix == prefix);
        keys.map(|Key { name, .. }| name.clone()).collect()
    }

    /// Asks the leader for a write of a key. Nobody waits for the answer.
    fn ask_to_fill(&mut self, cast: Cast, name: &Bytes, action: impl Fn(u64) -> Action) {
        self.numbers += 1;
        let request = request_of(name.clone(), action(self.numbers), None, Duration::from_secs(1), 0);
        let message = Message::Ask { number: self.numbers, request: Box::new(request) };
        let (from, to) = (client_id(0), node_id(cast.leader));
        self.outside.send(&mut self.events, Packet { from, to, message });
    }
}
