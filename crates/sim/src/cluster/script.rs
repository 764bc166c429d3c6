//! What a world does in the place of a life by chance: the same nodes, disks and links, and a course of things that is known.

use super::World;
use super::gossip::Gossip;
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
    /// Row C16.
    Gossip(Gossip),
}

impl World {
    /// Goes on with the script.
    pub(super) fn play(&mut self) -> Verdict {
        let Some(mut script) = self.script.take() else { return Ok(()) };
        let verdict = match &mut script {
            Script::Transfer(transfer) => self.play_transfer(transfer),
            Script::Rolling(rolling) => self.play_rolling(rolling),
            Script::Gossip(gossip) => self.play_gossip(gossip),
        };
        self.script = Some(script);
        verdict
    }
}
