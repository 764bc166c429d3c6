//! Protocols: bytes in, bytes out. First of all Riak's protocol buffers.
//!
//! The life of a connection that speaks them, in the order of the modules:
//! 1. [`frame`] cuts the byte stream into frames (length, message code, body) under a size limit;
//! 2. [`request`] turns a code and a body into a [`Request`], or into a [`DecodeError`] that says what to
//!    answer and whether to hang up;
//! 3. the caller does the work; [`Quorum`] reads the symbolic quorum numbers and [`errors`] holds the texts
//!    that clients compare against;
//! 4. [`response`] appends complete answer frames to an output buffer, object contents straight from
//!    borrowed parts.
//!
//! Invariants: no input makes a decoder panic; memory taken is bounded by bytes that have arrived; every
//! function is pure. Left out: sockets and timeouts (the server's), and the messages for data
//! types, map-reduce and TLS, which answer as a Riak node without those services does.
//!
//! The wire is described in `docs/formats/riak-pb.md`; it follows Basho's Riak KV 3.x.
//!
//! Beside it, [`http`] reads and writes HTTP/1.1 for Riak's other interface, and [`peer`] is our own: frames between
//! the nodes of a cluster. [`HelloProgress`] tells when a client's hello of TLS is whole.

pub mod codes;
pub mod errors;
pub mod frame;
mod hello_progress;
pub mod http;
pub mod messages;
pub mod peer;
mod quorum;
pub mod request;
pub mod response;
mod shape;
mod wire;
pub mod zlib;

pub use frame::{Frame, FrameError, Limits, next_frame};
pub use hello_progress::HelloProgress;
pub use prost::Message;
pub use quorum::Quorum;
pub use request::{DecodeError, Request};
