//! Security of the doors: the policy in force, and the hashes of passwords.
//!
//! * [`Policies`]: the policy that all threads go by, published as it changes.
//! * [`PolicyFollower`]: the policy of the cluster's log, on its way there.
//! * [`answer`]: commands of operators. [`Hashing`]: the hashes of new passwords.
//! * [`password`]: the verifier of a password, made and checked.
//!
//! Decisions are of the crate `security`; this room has threads, time and hashes.

mod follower;
mod hashing;
mod page;
pub(crate) mod password;
mod policies;

pub(crate) use self::follower::PolicyFollower;
pub(crate) use self::hashing::Hashing;
pub(crate) use self::page::answer;
pub(crate) use self::policies::Policies;
