//! What a primary missed comes home without anybody reading it: once faults are over, and before the first read,
//! every primary has every acknowledged write whose coordinator has lived since.
//!
//! A coordinator that has died may have taken with it that somebody had not confirmed; so does a disk that is lost.
//! Then only a read finds what is missing.

use super::NodeAt;
use super::quorums::Reached;
use crate::check::history::KeyName;
use crate::check::{Verdict, Violation};
use base::Monotonic;
use object::{Context, Dot};
use std::collections::{BTreeMap, BTreeSet};

const CHECKER: &str = "missed writes reach their replicas";

/// Writes whose coordinators have lived since.
#[derive(Debug, Default)]
pub(super) struct Homecoming {
    /// When each node died last.
    deaths: BTreeMap<NodeAt, Monotonic>,
    writes: BTreeMap<KeyName, Vec<Written>>,
}

#[derive(Debug)]
struct Written {
    number: u64,
    /// When it was asked for.
    began: Monotonic,
    /// Whoever may have coordinated it.
    coordinators: BTreeSet<NodeAt>,
}

impl Homecoming {
    /// `node` has acknowledged a write that was asked for at `began`.
    pub(super) fn on_acknowledged(
        &mut self,
        key: &KeyName,
        number: u64,
        (node, began): (NodeAt, Monotonic),
        reached: &Reached,
    ) {
        if key.has_memory() {
            let coordinators = reached.coordinators(number, node);
            self.writes.entry(key.clone()).or_default().push(Written { number, began, coordinators });
        }
    }

    pub(super) fn on_death(&mut self, node: NodeAt, now: Monotonic) {
        self.deaths.insert(node, now);
    }

    /// A disk is not what it was: nothing is known of what was missed before.
    pub(super) fn on_loss(&mut self) {
        self.writes.clear();
    }

    /// Some keys have ended.
    pub(super) fn forget(&mut self, is_of: impl Fn(&KeyName) -> bool) {
        self.writes.retain(|key, _| !is_of(key));
    }

    /// Checks what a primary has seen. `dots` are those that a write was seen with.
    pub(super) fn check(
        &self,
        node: NodeAt,
        key: &KeyName,
        has: &Context,
        dots: impl Fn(u64) -> Vec<Dot>,
    ) -> Verdict {
        let lives = |written: &&Written| {
            let died = |at: &NodeAt| self.deaths.get(at).is_some_and(|died| *died >= written.began);
            !written.coordinators.iter().any(died)
        };
        for written in self.writes.get(key).into_iter().flatten().filter(lives) {
            let dots = dots(written.number);
            if !dots.is_empty() && !dots.iter().any(|dot| has.covers(*dot)) {
                let what = format!("{key}: {} never came to n{node}", written.number);
                return Err(Violation::new(CHECKER, what));
            }
        }
        Ok(())
    }
}
