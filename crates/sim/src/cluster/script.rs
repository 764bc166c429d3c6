//! What a world does in the place of a life by chance: the same nodes, disks and links, and a course of things that is
//! known.

use super::World;
use super::gossip::Gossip;
use super::overload::{self, Overload};
use super::rolling::Rolling;
use super::transfer::Transfer;
use crate::check::Verdict;

/// A course of things.
#[derive(Debug)]
pub(super) enum Script {
    /// Row C10.
    Transfer(Transfer),
    /// Row C13.
    Rolling(Rolling),
    /// Row C15.
    Overload(Overload),
    /// Row C16.
    Gossip(Gossip),
}

impl Script {
    /// The most that a shard may have under way while it is played, where that is not a handful.
    pub(super) fn work_max(&self) -> Option<usize> {
        matches!(self, Script::Overload(_)).then_some(overload::WORK_MAX)
    }
}

impl World {
    /// Goes on with the script.
    pub(super) fn play(&mut self) -> Verdict {
        let Some(mut script) = self.script.take() else { return Ok(()) };
        let verdict = match &mut script {
            Script::Transfer(transfer) => self.play_transfer(transfer),
            Script::Rolling(rolling) => self.play_rolling(rolling),
            Script::Overload(overload) => self.play_overload(overload),
            Script::Gossip(gossip) => self.play_gossip(gossip),
        };
        self.script = Some(script);
        verdict
    }
}
