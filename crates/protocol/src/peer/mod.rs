//! What nodes of a cluster send each other, as far as it is bytes: what is in a frame's body is its user's business.
//!
//! A link carries messages one way, and begins when TLS is done:
//! 1. [`hello`]: whoever opened it says who it is, or that it wants to be a member; the other answers with the version
//!    that both will speak, or refuses. Answers of one node to the other's questions take a link of their own.
//! 2. [`frame`]: from then on, frames (length, checksum, kind, number) under a size limit.
//! 3. [`fields`]: what bodies are made of.
//!
//! Invariants: no input makes a decoder panic; memory taken is bounded by bytes that have arrived; nothing is
//! believed before its checksum has passed, but for a length, and that is compared with a limit first.
//!
//! The format is described in `docs/formats/peer.md`.

pub mod fields;
pub mod frame;
pub mod hello;

pub use fields::{Malformed, Reader, put_bytes, put_varint};
pub use frame::{FRAME_BYTES_MAX, Frame, FrameError, next_frame};
pub use hello::{
    ADMISSION, Greeting, Hello, HelloError, Join, Refusal, Reply, VERSION, Versions, cluster_fingerprint,
    common_version, negotiate,
};

#[cfg(test)]
mod tests;
