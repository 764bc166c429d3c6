//! Security of the doors: the policy in force, TLS with clients, their logins, and the hashes of passwords.
//!
//! * [`Policies`]: the policy that all threads go by, published as it changes.
//! * [`PolicyFollower`]: the policy of the cluster's log, on its way there.
//! * [`answer`]: commands of operators. [`whoami`]: the user of a request. [`Hashing`]: the hashes of new passwords.
//! * [`DoorGuard`]: the part that the doors of all threads ask, and its figures.
//! * `logins`: decisions on logins, on a thread of their own where a hash is needed; `failures` bounds guesses.
//! * [`password`]: the verifier of a password, made and checked.
//! * [`ClientTls`]: the node's end of TLS with clients, and the name in a client's certificate.
//!
//! Decisions are of the crate `security`; this room has threads, time and hashes.

mod door;
#[cfg(test)]
mod door_tests;
mod failures;
mod follower;
mod hashing;
mod logins;
mod page;
pub(crate) mod password;
mod policies;
mod tls;
mod whoami;

pub(crate) use self::door::{DoorFigures, DoorGuard};
pub(crate) use self::follower::PolicyFollower;
pub(crate) use self::hashing::Hashing;
pub(crate) use self::logins::Verdict;
pub(crate) use self::page::answer;
pub(crate) use self::policies::Policies;
pub use self::tls::{ClientFiles, certificate_user};
pub(crate) use self::tls::{ClientTls, certified_name, check_apart};
pub(crate) use self::whoami::whoami;
