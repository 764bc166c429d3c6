//! A member's record: the ring's member, its address, its starts and its fate.

use std::sync::Arc;

use ring::{Member, MemberState};

/// A member, with the facts that only the log knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The member of the ring.
    pub member: Member,
    /// Address for other nodes.
    pub address: Arc<str>,
    /// Starts of its data folder that were reported. A lower number is that of a restored folder.
    pub starts: u32,
    /// Its process of the last reported start.
    pub start: u64,
    /// Its fate.
    pub fate: MemberDecision,
}

/// The decision on a member, by the commits so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberDecision {
    /// It stays.
    #[default]
    Stays,
    /// It gives up its partitions, and goes; also when it was down meanwhile.
    Leaves,
    /// It is gone, and is forgotten as soon as it owns nothing.
    Forgotten,
}

impl Record {
    /// A member without a reported start.
    pub(crate) fn new(member: Member, address: &str) -> Record {
        Record { member, address: Arc::from(address), starts: 0, start: 0, fate: MemberDecision::Stays }
    }

    /// Whether it was removed by force, and counts as a member only until it owns nothing.
    pub fn is_forgotten(&self) -> bool {
        self.fate == MemberDecision::Forgotten
    }

    /// Whether the next claim gives it partitions.
    pub(super) fn claims(&self) -> bool {
        self.fate == MemberDecision::Stays && self.member.state.claims()
    }

    /// Whether its fate and its state can be those of one member.
    pub(super) fn has_fitting_fate(&self) -> bool {
        use MemberState::{Down, Exiting, Joining, Leaving, Valid};

        match self.fate {
            MemberDecision::Stays => matches!(self.member.state, Joining | Valid | Down),
            MemberDecision::Leaves => matches!(self.member.state, Leaving | Exiting | Down),
            MemberDecision::Forgotten => self.member.state == Down,
        }
    }

    /// Whether others wait for it. They do not wait for a member that is down.
    pub(super) fn is_live(&self) -> bool {
        self.member.state != MemberState::Down
    }
}
