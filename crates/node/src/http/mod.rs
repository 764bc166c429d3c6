//! Riak's HTTP over the node's requests and responses: pure, one [`Session`] per connection.
//!
//! 1. `session` is the connection's state machine: it has requests read, routes them, and keeps the form of the answer
//!    until the answer is there.
//! 2. `route` finds the resource that a path names: an object, or one of the pages that are about the node.
//! 3. `answer_form` makes a [`kv::Request`] of a route, and writes the answer. Each kind of resource has a folder or
//!    file: `object/`, `props`, `listing`, `index`, `query`, `fold`, `preflist`, `admin`, and `root` for the list of
//!    resources. `options` reads the options that queries share, `names` writes names as JSON. `question` has the
//!    questions that no store answers.
//! 4. `change` names changes of operators for the audit log. `guard` refuses requests that a page of another site has
//!    its reader send, by the node's names in `hosts`.
//! 5. `unbuilt` names the features of Riak whose routes are not built.
//! 6. `login` reads the login of a request, and `needs` is the table of permissions by route.
//! 7. `fault` has Riak's statuses and sentences for errors.
//!
//! Invariants: requests are answered in their order, each once; a request that is well framed and wrong otherwise
//! costs its client nothing but the answer. Sockets and timeouts belong to the server.
//!
//! Left out: link walking, map-reduce and data types.

mod admin;
mod answer_form;
mod change;
#[cfg(test)]
mod coding_tests;
mod fault;
mod fold;
#[cfg(test)]
mod fold_tests;
#[cfg(test)]
mod golden;
mod guard;
#[cfg(test)]
mod guard_tests;
mod hosts;
mod index;
#[cfg(test)]
mod index_tests;
mod listing;
mod login;
#[cfg(test)]
mod login_tests;
#[cfg(test)]
mod memory_tests;
mod names;
mod needs;
#[cfg(test)]
mod needs_tests;
mod object;
mod options;
#[cfg(test)]
mod pages_tests;
mod preflist;
mod props;
mod props_json;
mod query;
mod question;
mod root;
mod route;
mod session;
#[cfg(test)]
mod tests;
mod unbuilt;
#[cfg(test)]
mod unbuilt_tests;

pub use admin::{BackupPage, ClusterPage, CompactPage, PurgePage, StrongPage, TreesPage};
pub use change::Change;
pub use hosts::{HostName, HostNames};
pub use login::Claim;
pub use names::put_name;
pub use question::Question;
pub use session::{Incoming, Session};
