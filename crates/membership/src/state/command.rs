//! Commands of the log, and reasons to refuse one.

use bytes::Bytes;
use ring::{MemberState, NodeId, RingSize, RingVersion};

use super::births::StoreBirths;
use super::bounds::{FOUNDED_N_VAL_MAX, STORES_MAX, TEXT_BYTES_MAX};
use super::policy_records::PolicyChange;

/// A change of the cluster that waits for a commit, about one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It joins.
    Join,
    /// It gives up its partitions, and goes.
    Leave,
    /// The same, and this newcomer takes its place.
    Replace(NodeId),
    /// It is gone for good; this newcomer gets what it owned from those who stay.
    ForceReplace(NodeId),
    /// It is gone for good; others get what it owned from those who stay.
    ForceRemove,
    /// It has another weight.
    Weigh(u16),
}

impl Change {
    /// The newcomer that takes the member's place.
    pub fn by(&self) -> Option<NodeId> {
        match self {
            Change::Replace(by) | Change::ForceReplace(by) => Some(*by),
            _ => None,
        }
    }
}

/// An entry of the log that changes the state. `expected` is the state's version that the command was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A node asks to join: it gets a number, and its join is staged.
    Admit {
        /// The state's version.
        expected: u64,
        /// Its name.
        name: String,
        /// Where other nodes reach it.
        address: String,
        /// Its zone.
        zone: String,
        /// Its weight.
        weight: u16,
    },
    /// A change is staged; an earlier one of the same member is replaced.
    Stage {
        /// The state's version.
        expected: u64,
        /// The member.
        node: NodeId,
        /// What is to become of it; not [`Change::Join`], which comes of admission.
        change: Change,
    },
    /// More partitions are staged; an earlier number is replaced.
    StageRing {
        /// The state's version.
        expected: u64,
        /// How many there are to be.
        size: RingSize,
    },
    /// What is staged is forgotten, and so are those who wait to join.
    Clear {
        /// The state's version.
        expected: u64,
    },
    /// What is staged is carried out.
    Commit {
        /// The state's version.
        expected: u64,
        /// The owner of each partition to be, as the claim found.
        owners: Vec<NodeId>,
    },
    /// A member will not be reached for long.
    Down {
        /// The state's version.
        expected: u64,
        /// The member.
        node: NodeId,
    },
    /// All shards of a member go by what is published, and by nothing older.
    Adopted {
        /// The member.
        node: NodeId,
        /// The version of what is published.
        version: RingVersion,
    },
    /// All shards of a member have what the target asks it to have.
    Copied {
        /// The member.
        node: NodeId,
        /// The target's version.
        target: RingVersion,
    },
    /// An exiting member has stopped.
    Gone {
        /// The member.
        node: NodeId,
    },
    /// A member was started. One that was down is what it was before.
    Started {
        /// The member.
        node: NodeId,
        /// How often its data folder was.
        starts: u32,
        /// Its process: drawn at random at each start.
        start: u64,
        /// Where other nodes reach it now.
        address: String,
    },
    /// These actors make no more events.
    Retire {
        /// The actors.
        actors: Vec<u64>,
    },
    /// A slot gets a value, or loses it.
    Slot {
        /// The slot.
        name: Bytes,
        /// The value that it has.
        before: Option<Bytes>,
        /// The value that it is to have.
        value: Option<Bytes>,
    },
    /// Members are to register their stores: a first consistent bucket type is wanted. It is the first command that
    /// programs before version 4 of the state do not read, so it is proposed only when no member runs one.
    PrepareStores,
    /// A process registers its node's stores, in place of those before.
    RegisterStores {
        /// The member.
        node: NodeId,
        /// How often its data folder was started.
        starts: u32,
        /// Its process, which must be the one that the state has.
        start: u64,
        /// Its stores.
        stores: StoreBirths,
    },
    /// All groups of an n_val are founded on the ring in force, if they are not yet.
    FoundGroups {
        /// The state's version.
        expected: u64,
        /// The number of replicas.
        n_val: u8,
        /// Drawn at random for this founding.
        number: u64,
    },
    /// Groups are recovered without their majority: their later writes are newer than all before.
    RaiseEpoch {
        /// The number of replicas of the groups.
        n_val: u8,
        /// The epoch that they have.
        expected: u16,
    },
    /// Records of the security policy change, all or none. The first one is a command that programs without the
    /// policy's section do not read, so it is proposed only when no member runs one.
    ChangePolicy {
        /// The version of the policy.
        expected: u64,
        /// The records and their values to be; of two changes of one record the later one holds.
        changes: Vec<PolicyChange>,
    },
}

impl Command {
    /// Whether a member says with it how far it is, which changes nothing else unless a step ends with it.
    pub fn is_report(&self) -> bool {
        matches!(self, Command::Adopted { .. } | Command::Copied { .. })
    }
}

/// Why a command changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// It was made for a state that is no more: look again.
    #[error("the cluster has changed since: look at it and try again")]
    Stale,
    /// No such member.
    #[error("no such member")]
    NotMember,
    /// Another member has the name.
    #[error("another member has this name")]
    NameTaken,
    /// A bound is reached: members, staged changes, retired actors or slots.
    #[error("there are too many already")]
    Full,
    /// A member in this state cannot do that.
    #[error("the member is {0}")]
    State(MemberState),
    /// Who is to take a member's place does not wait to join, or takes another's.
    #[error("the node that is to take its place does not wait to join, or takes another's place")]
    NotJoining,
    /// Nobody would be left to own anything.
    #[error("no member would be left")]
    NobodyLeft,
    /// There is nothing to commit.
    #[error("nothing is staged")]
    NothingStaged,
    /// The owners do not fit the ring or the members.
    #[error("the owners do not fit the ring or its members")]
    Owners,
    /// The ring cannot have so many partitions.
    #[error(
        "a ring only grows, to a power of two: this one has {has} partitions, and at most {most}, by which its nodes order their keys"
    )]
    Size {
        /// How many it has.
        has: u32,
        /// The most it can have.
        most: u32,
    },
    /// Something moves, or is to.
    #[error("another change is under way: wait until it is carried out")]
    Moving,
    /// A text is empty or too long.
    #[error("a text is empty or longer than {TEXT_BYTES_MAX} bytes")]
    Text,
    /// The member's data folder was started more often than it says: it is a restored or copied one.
    #[error("the data folder is an older copy: it had been started {starts} times")]
    Restored {
        /// How often.
        starts: u32,
    },
    /// The process is not the one that was started last, as far as the state knows.
    #[error("this process is not the member's last registered start")]
    Life,
    /// No consistent bucket type was wanted.
    #[error("stores are not registered: no consistent bucket type was asked for")]
    Unprepared,
    /// A node cannot have such stores.
    #[error("a node has 1 to {STORES_MAX} stores, and no more bits of the ring than a prefix has")]
    Stores,
    /// An owner's process has not registered its stores.
    #[error("node {0} has not registered its stores yet: try again")]
    Unregistered(NodeId),
    /// No group can have so many voters.
    #[error("a consistent bucket type has an n_val from 1 to {FOUNDED_N_VAL_MAX}")]
    NVal,
    /// No group of this n_val is founded.
    #[error("no consistent bucket type has this n_val")]
    Unfounded,
    /// Partitions would move, and groups would not follow.
    #[error("partitions do not move while there are consistent bucket types")]
    Pinned,
    /// The security policy, a record of it or the change is beyond its bound.
    #[error("the security policy, or this change of it, is too large")]
    Policy,
}

/// Checks what people type.
pub(super) fn check_texts(name: &str, address: &str, zone: &str) -> Result<(), Rejected> {
    let long = [name, address, zone].iter().any(|text| text.len() > TEXT_BYTES_MAX);
    if long || name.is_empty() { Err(Rejected::Text) } else { Ok(()) }
}
