//! Bounds of a state.

/// Members at once, without the forgotten: the ring and the failure detector are measured up to it.
pub const MEMBERS_MAX: usize = 1_000;

/// Staged changes at once: as many as a person can review.
pub const STAGED_MAX: usize = 64;

/// Bytes of a name, an address or a zone.
pub const TEXT_BYTES_MAX: usize = 255;

/// Retired actors remembered; more are refused, since forgetting one could bring its events back.
pub const RETIRED_MAX: usize = 65_536;

/// Stores of a node, one for each shard.
pub const STORES_MAX: usize = 256;

/// The largest n_val of a consistent bucket type: voters of a group.
pub const FOUNDED_N_VAL_MAX: u8 = 7;

/// Slots for opaque values such as bucket types; 10,000 buckets with properties fit.
pub const SLOTS_MAX: usize = 16_384;

/// Bytes of the values of all records of the security policy: a snapshot carries them in one piece, and each node holds
/// them in memory. The crate `security` has the same bound.
pub const POLICY_BYTES_MAX: usize = 4 << 20;

/// Records of the security policy: each takes some 200 bytes of memory beside its own, and 65,536 of the usual length
/// have more than [`POLICY_BYTES_MAX`].
pub const POLICY_RECORDS_MAX: usize = 65_536;

/// Bytes of a record's value: a user with as many groups and options as there can be has some 50 KiB.
pub const POLICY_RECORD_BYTES_MAX: usize = 64 << 10;

/// Bytes of keys and values in one change of the security policy: the removal of a group with some 2,000 members. A
/// message of news and the log's file hold many commands, so one must not have the size of a policy.
pub const POLICY_CHANGES_BYTES_MAX: usize = 256 << 10;

/// Bytes of a slot's name and value together.
pub const SLOT_BYTES_MAX: usize = 4_096;
