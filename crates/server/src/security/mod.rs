//! Security of the doors: the policy in force, TLS with clients, their logins, and the hashes of passwords.
//!
//! * [`PolicyFollower`]: the policy of the cluster's log, on its way to the one that all threads go by
//!   (`security::Policies`).
//! * [`answer`]: commands of operators. [`whoami`]: the user of a request. [`Hashing`]: the hashes of new passwords.
//! * [`DoorGuard`]: the part that the doors of all threads ask, and its figures.
//! * `logins`: decisions on logins, on a thread of their own where a hash is needed; `failures` bounds guesses,
//!   `hash_budget` their share of a processor, `login_times` has the addresses at which guesses from elsewhere slow no
//!   user down.
//! * `rehash`: hashes of Riak, replaced at their first login.
//! * `handshakes`: places of handshakes of TLS, `handshake_turns` for all threads; [`Piece`]: the arithmetic of one.
//! * `audit_log`: lines of the audit log about logins and denials; `audit_limits` bounds them.
//! * `limit_usage`: the use of users' limits.
//! * [`password`]: the verifier of a password, made and checked.
//! * `tls`: the node's end of TLS with clients, and the name in a client's certificate; `revocation` has the lists
//!   of those that do not count any more.
//! * [`ClientCertificates`]: the one in force. [`reload`] replaces it, and the one between nodes.
//!
//! Decisions are of the crate `security`; this room has threads, time and hashes.

mod audit_limits;
mod audit_log;
mod certificates;
mod door;
#[cfg(test)]
mod door_tests;
mod failures;
mod follower;
mod handshake_piece;
mod handshake_turns;
mod handshakes;
mod hash_budget;
mod hashing;
mod limit_usage;
mod login_times;
mod logins;
mod page;
pub(crate) mod password;
#[cfg(all(test, feature = "planted"))]
mod planted_tests;
mod rehash;
mod reload;
mod revocation;
mod tls;
mod whoami;

pub(crate) use self::certificates::ClientCertificates;
pub(crate) use self::door::{DoorFigures, DoorGuard};
pub(crate) use self::follower::{PolicyFollower, PolicyPoint};
pub(crate) use self::handshake_piece::Piece;
pub(crate) use self::handshakes::UNDER_WAY_MAX as HANDSHAKES_MAX;
pub(crate) use self::hashing::Hashing;
pub(crate) use self::limit_usage::AdmittedRequest;
pub(crate) use self::logins::Verdict;
pub(crate) use self::page::answer;
pub(crate) use self::reload::reload;
pub(crate) use self::tls::certified_name;
pub use self::tls::{ClientFiles, certificate_user};
pub(crate) use self::whoami::whoami;
pub(crate) use ::security::Policies;
