//! Primaries that have a write and primaries that are read meet: of three, two and two. So a read of two primaries
//! shows every write that two primaries had acknowledged before it began, or what came after that write.
//!
//! Only while every disk is its own and keeps what it acknowledges.

use super::history::KeyHistory;
use crate::check::history::KeyName;
use crate::check::{Verdict, Violation};
use base::Monotonic;
use object::Context;
use std::collections::BTreeMap;

const CHECKER: &str = "strict quorums meet";

/// Primaries of three that any other two have one in common with.
const MAJORITY: u32 = 2;

/// The writes that a majority of primaries has.
#[derive(Debug, Default)]
pub(super) struct Strict {
    writes: BTreeMap<KeyName, Vec<(u64, Monotonic)>>,
    /// Some crash may take what was acknowledged.
    lossy: bool,
}

impl Strict {
    /// A write was acknowledged at `now` by this many primaries.
    pub(super) fn on_acknowledged(&mut self, key: &KeyName, number: u64, primaries: u32, now: Monotonic) {
        if primaries >= MAJORITY && key.has_memory() && !self.lossy {
            self.writes.entry(key.clone()).or_default().push((number, now));
        }
    }

    /// A disk is not what it was.
    pub(super) fn on_loss(&mut self) {
        self.writes.clear();
    }

    /// Some keys have ended.
    pub(super) fn forget(&mut self, is_of: impl Fn(&KeyName) -> bool) {
        self.writes.retain(|key, _| !is_of(key));
    }

    /// Crashes take what was acknowledged.
    pub(super) fn on_lossy(&mut self) {
        self.writes.clear();
        self.lossy = true;
    }

    /// Checks a read of this many primaries that began at `began`. `None` if there is nothing, and nothing is told
    /// of what there was.
    pub(super) fn check(
        &self,
        of_key: &KeyHistory,
        key: &KeyName,
        primaries: u32,
        began: Monotonic,
        context: Option<&Context>,
    ) -> Verdict {
        if primaries < MAJORITY || context.is_none() && of_key.has_deletes() {
            return Ok(());
        }
        for (number, known) in self.writes.get(key).into_iter().flatten() {
            let shows = |context: &Context| of_key.dots_of(*number).any(|dot| context.covers(dot));
            let is_known = of_key.dots_of(*number).next().is_some();
            if *known < began && is_known && !context.is_some_and(shows) {
                let what = format!("{key}: a read of {primaries} primaries does not know {number}");
                return Err(Violation::new(CHECKER, what));
            }
        }
        Ok(())
    }
}
