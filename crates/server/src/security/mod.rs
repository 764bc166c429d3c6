//! Security of the doors: the policy in force, and the hashes of passwords.
//!
//! * [`Policies`]: the policy that all threads go by, published as it changes.
//! * [`password`]: the verifier of a password, made and checked.
//!
//! Decisions are of the crate `security`; this room has threads, time and hashes.

pub(crate) mod password;
mod policies;

pub(crate) use self::policies::Policies;
