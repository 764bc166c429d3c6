//! The holder's table: the promises of other processes to this one, as they were told.
//!
//! A grant is a fact that stays true: "the promise of that number stands until that reading of our clock". So a copy
//! of the table that is out of date is safe, and each shard may have its own.

use std::collections::BTreeMap;

use base::Monotonic;

use super::{Block, GRANT, PROCESSES_MAX, Process};

/// A promise of another process to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Its number.
    pub number: u64,
    /// The reading of this process's clock before which the promise stands.
    pub until: Monotonic,
}

/// The grants of all other processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grants {
    grants: BTreeMap<Process, Grant>,
}

impl Grants {
    /// Takes the block of a message that is for this life of this node.
    ///
    /// Called before the groups take the messages of the envelope: their answers name this promise.
    pub fn hear(&mut self, from: Process, block: &Block, receipt: Monotonic) {
        let Some((number, stamp)) = block.promise else { return };
        let since = if base::planted!(LeaseFromReceipt) { receipt } else { stamp };
        let heard = Grant { number, until: since + GRANT };
        // A stamp that this process has not given yet is none of its own.
        if stamp > receipt || !self.grants.contains_key(&from) && !self.make_room(receipt) {
            return;
        }
        let grant = self.grants.entry(from).or_insert(heard);
        // Messages come late: a lower number is of an earlier promise.
        if number == grant.number {
            grant.until = grant.until.max(heard.until);
        } else if number > grant.number {
            *grant = heard;
        }
    }

    /// The end of a promise of a process; none if the number is not its last one.
    pub fn until(&self, from: Process, number: u64) -> Option<Monotonic> {
        let grant = if base::planted!(LeaseAcrossLife) {
            let of_node = self.grants.iter().filter(|(process, _)| process.node == from.node);
            of_node.map(|(_, grant)| grant).max_by_key(|grant| grant.until)?
        } else {
            self.grants.get(&from)?
        };
        (grant.number == number).then_some(grant.until)
    }

    /// Forgets the other lives of a node.
    pub fn register(&mut self, process: Process) {
        self.grants.retain(|it, _| it.node != process.node || *it == process);
    }

    /// Makes room for one more process; whether there is any.
    fn make_room(&mut self, now: Monotonic) -> bool {
        if self.grants.len() >= PROCESSES_MAX {
            self.grants.retain(|_, grant| grant.until > now);
        }
        self.grants.len() < PROCESSES_MAX
    }
}
