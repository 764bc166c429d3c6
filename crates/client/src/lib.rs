//! A Riak protocol buffers client in Rust: blocking, one request at a time on one connection.
//!
//! For the command line and for tests that need a real socket; no pool, no retries, no name service.
//! Bucket types are given as `None` for the default one.
//!
//! Under TLS ([`Client::start_tls`]) a client may log in ([`Client::log_in`]).
//!
//! Invariant: an answer is never taken for that of another request. After a transport or protocol error,
//! a timeout included, the connection is dead and every later call says so; connect again.
//!
//! ```no_run
//! use client::{Client, Content, ReadOptions, Timeouts, WriteOptions};
//!
//! let mut client = Client::connect("127.0.0.1:8087", Timeouts::default())?;
//! let content = Content { value: "hello".into(), ..Content::default() };
//! client.put(None, b"bucket", Some(b"key"), content, &WriteOptions::default())?;
//! let fetched = client.get(None, b"bucket", b"key", &ReadOptions::default())?;
//! assert_eq!(fetched.map(|object| object.siblings[0].value.clone()), Some("hello".into()));
//! # Ok::<(), client::Error>(())
//! ```

mod connection;
mod error;
mod operations;
mod options;
mod transport;

pub use connection::{Client, Timeouts};
pub use error::Error;
pub use operations::{Fetched, ServerInfo, Stored, Terms};
pub use options::{QueryOptions, ReadOptions, WriteOptions};
pub use protocol::Quorum;
pub use protocol::messages::{BucketProps, Content};

#[cfg(test)]
mod tests;
