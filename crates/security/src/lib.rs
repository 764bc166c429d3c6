//! Security: users, groups, sources and grants, and the decisions that rest on them.
//!
//! * [`Slot`]: one record of the policy. Its bytes have a version and a page (`docs/formats/security.md`).
//! * [`Slots`]: all records, within [`POLICY_BYTES_MAX`].
//! * [`Policy`]: the records, compiled; immutable, with a version. It decides on logins and permissions, and explains.
//! * [`Policies`]: the policy in force, for all threads of a node.
//! * [`Needs`]: the permissions that a request needs. The tables of them are where requests are decoded, in `node`.
//! * [`Access`]: the rights of one connection, by the policy in force and the user that has logged in.
//! * [`Limits`]: operations and bytes a second that a user may have, and [`Meters`]: the use of them in a node.
//! * [`Command`]: the words of `riak-admin security`, as changes of records.
//! * [`EnabledMark`]: the bytes of a node's mark that security is on.
//!
//! Invariants: no input makes [`Slot::read`] panic, or take memory that the bytes do not back. A missing record,
//! and a record that names a missing one, gives no permission.
//!
//! The crate has no network, no disk and no clock, and it computes no password hash.

mod access;
mod certificate;
mod codec;
mod command;
mod credential;
mod limits;
mod mark;
mod meters;
mod name;
mod needs;
mod permission;
mod policies;
mod policy;
mod slot;
mod slots;
mod source;

pub use self::access::{Access, Denied, LOCAL_PERMISSIONS};
pub use self::certificate::{Attribute, common_name};
pub use self::codec::SLOT_VERSION;
pub use self::command::{Cell, Command, CommandError, Print, Settable, Table, View};
pub use self::credential::{Credential, PBKDF2_ROUNDS_MAX, VERIFIER_BYTES_MAX};
pub use self::limits::{Limits, Rates, UNLIMITED};
pub use self::mark::EnabledMark;
pub use self::meters::Meters;
pub use self::name::{NAME_BYTES_MAX, Name, NameError};
pub use self::needs::{KeptNeeds, Needs};
pub use self::permission::{Permission, Permissions};
pub use self::policies::Policies;
pub use self::policy::{
    EFFECTIVE_GROUPS_MAX, Explanation, GROUP_DEPTH_MAX, Login, MERGED_NAMES_MAX, Offer, Policy, Refusal,
    UserId,
};
pub use self::slot::{
    Grant, Group, MEMBERSHIPS_MAX, Mode, OPTION_BYTES_MAX, OPTIONS_MAX, Options, RESOURCE_NAME_BYTES_MAX,
    Resource, Role, Settings, Slot, SlotKey, Target, User,
};
pub use self::slots::{Change, POLICY_BYTES_MAX, Slots};
pub use self::source::{Method, Source, SourceUser, normal_address, normal_net};

/// Why records cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A newer program wrote the record: it is kept as it is, and not understood.
    #[error("a record of security has version {0}, which this program does not know")]
    Version(u8),
    /// The bytes are no record.
    #[error(transparent)]
    Malformed(#[from] protocol::peer::Malformed),
    /// The policy would be too large.
    #[error("the security policy would have {bytes} bytes; it has at most {POLICY_BYTES_MAX}")]
    TooLarge {
        /// Bytes that it would have.
        bytes: usize,
    },
}
