//! Riak's protocol buffers over the node's requests and responses: pure, one [`Session`] per connection.
//!
//! `session` is the connection's state machine, `decode` turns messages into [`kv::Request`]s, `encode`
//! writes [`kv::Response`]s and [`kv::Error`]s as frames. Sockets, and timeouts of idle connections, belong to
//! the server. `needs` is the table of permissions, which the session asks.

/// The version that clients are told: that of the Riak whose protocol is spoken, since clients choose what they
/// use by it.
pub const RIAK_VERSION: &str = "3.2.3";

mod decode;
mod encode;
mod fold;
#[cfg(test)]
mod fold_tests;
#[cfg(test)]
pub(crate) mod matrix_tests;
mod needs;
mod session;
#[cfg(test)]
pub(crate) mod transcript;

pub use session::{Identity, Incoming, LOGINS_FAILED_MAX, Session};
