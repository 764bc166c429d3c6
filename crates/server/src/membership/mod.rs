//! This node's part in its cluster's agreement: the crate `membership`, on a thread of its own.
//!
//! 1. A node has a standing, which is the number of a member: it founds the cluster with others, each for itself
//!    (`docs/decisions/0027`), or is admitted by its members (`docs/decisions/0035`).
//! 2. The thread takes words of other nodes, questions of operators, and time; it writes before it sends.
//! 3. Its words travel on the links of the shards, as messages that only shells understand. Links follow the members
//!    that it knows of.
//! 4. Shards go by what is agreed on, and what they report goes into the log.
//!
//! Invariants: the thread never waits for a shard, and a shard never waits for it: what does not fit into its queue is
//! lost, as on a network. When it cannot write, the node ends, unless it is alone and nothing rests on its log.
//!
//! * `handle.rs`: the queue of the thread, and its callers. `part.rs`: the thread, which routes between the parts that
//!   follow. `end.rs`: why it ends.
//! * `entry.rs`: the way of a node to its standing. `standing.rs`: the standing. `alone.rs`: the log of a node without
//!   one. `contacts.rs`: a newcomer's search for the state. `copy.rs`: a process that is told to be a copy.
//! * `storage.rs`: the durable log; `held_log.rs`: that of a restored node. `files.rs`: what is on the disk;
//!   `without_users.rs`: these in a restore without users. `stopped.rs`: the membership of a node that does not run.
//! * `requests.rs`: requests that wait for the log. `operator.rs`: operators' pages and changes; `cluster_page.rs`,
//!   `plan_page.rs`: the pages; `log_recovery.rs`: a lost majority of voters. `admission.rs`: newcomers at the door.
//!   `founding.rs`: the activation of a consistent bucket type. `loss.rs`: stores that are declared lost. `policy.rs`:
//!   commands about security; `enforced_policy.rs`: the policy in force; `mark.rs`: the mark of a folder that security
//!   is on. `ready.rs`: members of older programs.
//! * `consistent.rs`: the groups of this node. `births.rs`: the births of its stores. `agreement.rs`: the agreement
//!   that shards get. `restored.rs`: the groups of a restored node. `caught_up.rs`: the groups' progress since the
//!   start. `strong.rs`: all of that for operators.
//! * `publisher.rs`: what shards go by, and their reports. `board.rs`: where shards put these down. `limits.rs`: what
//!   copies may take. `n_vals.rs`: what they are made for.
//! * `health_monitor.rs`: the node's health, for the log. `reach.rs`: whether a majority is reached. `refusals.rs`:
//!   stores that take no writes. `watch.rs`: changes that do not go on.

mod admission;
mod agreement;
mod alone;
mod births;
mod board;
mod caught_up;
mod cluster_page;
mod consistent;
mod contacts;
mod copy;
mod end;
mod enforced_policy;
mod entry;
mod files;
mod founding;
mod handle;
mod health_monitor;
mod held_log;
mod limits;
mod log_recovery;
mod loss;
mod mark;
mod n_vals;
mod operator;
mod part;
mod plan_page;
mod policy;
mod publisher;
mod reach;
mod ready;
mod refusals;
mod requests;
mod restored;
mod standing;
mod stopped;
mod storage;
mod strong;
mod watch;
mod without_users;

pub use admission::{ADMISSION_MAX, Admitted, Newcomer};
pub(crate) use caught_up::GroupProgress;
pub use copy::CopyRefusal;
pub use end::End;
pub use entry::Entering;
pub use files::{FilesError, backed_up_files, has_groups};
pub use handle::{Handle, Inbox, queue};
pub use held_log::mark_restored;
pub use operator::Answered;
pub use part::Part;
pub(crate) use policy::PolicyCommand;
pub(crate) use publisher::topology;
pub use reach::Reach;
#[cfg(test)]
pub use reach::Reached;
pub use standing::{AsOf, STANDING_BYTES_MAX, Standing};
pub use stopped::StoppedNode;
pub use without_users::without_users;
