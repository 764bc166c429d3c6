//! Frames of a link that are written together.
//!
//! 1. Messages of the queue are encoded. Values are not copied: they are written from where they are.
//! 2. All of it is written, in pieces that TLS encrypts at once.
//!
//! Invariant: a batch passes its limit by one frame at most.
//!
//! Left out: the order of messages (`queue.rs`).

use super::channel::Channel;
use super::queue::Waiting;
use base::Monotonic;
use bytes::{Bytes, BytesMut};
use kv::reap::FRAME_WAIT_MAX;
use node::{PeerMessage, ShardId};
use std::io::{self, IoSlice};

/// The most that is encrypted and written at once: what more could be saved by a larger write is little, and what
/// comes meanwhile in a more urgent lane waits for it.
const WRITE_BYTES_MAX: usize = 256 << 10;

/// Frames that are written together.
pub(super) struct Batch {
    version: u16,
    out: BytesMut,
    /// Values that follow so many bytes of `out`.
    values: Vec<(usize, Bytes)>,
    bytes: usize,
    frames: u64,
}

impl Batch {
    /// Without a frame, in this version of the protocol.
    pub(super) fn new(version: u16) -> Batch {
        Batch { version, out: BytesMut::new(), values: Vec::new(), bytes: 0, frames: 0 }
    }

    /// Its frames.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// The bytes of its frames.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it takes no more.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= WRITE_BYTES_MAX
    }

    /// Takes messages from a queue until it is full. Those that are not sent are given back.
    pub(super) fn fill(
        &mut self,
        now: Monotonic,
        mut next: impl FnMut() -> Option<Waiting>,
        mut give_back: impl FnMut(ShardId, PeerMessage),
    ) {
        while !self.is_full() {
            let Some(Waiting { from, message, since }) = next() else { return };
            if now.since(since) > FRAME_WAIT_MAX {
                // Frames so old may be from before a reaping.
                give_back(from, message);
                continue;
            }
            let before = self.out.len();
            match message.encode(self.version, &mut self.out) {
                Ok(value) => {
                    self.frames += 1;
                    self.bytes += self.out.len() - before + value.as_ref().map_or(0, Bytes::len);
                    self.values.extend(value.map(|value| (self.out.len(), value)));
                }
                Err(error) => {
                    tracing::warn!(%error, "a message cannot be sent");
                    give_back(from, message);
                }
            }
        }
    }

    /// Writes all of it.
    pub(super) async fn write(&self, channel: &mut Channel) -> io::Result<()> {
        if self.values.is_empty() {
            // Every small batch; the limit is passed by one frame at most, whose value is small.
            return channel.write(&[IoSlice::new(&self.out)]).await;
        }
        let mut pieces = Vec::with_capacity(2 * self.values.len() + 1);
        let mut bytes = 0;
        for piece in self.segments().flat_map(|segment| segment.chunks(WRITE_BYTES_MAX)) {
            if bytes + piece.len() > WRITE_BYTES_MAX {
                channel.write(&pieces).await?;
                pieces.clear();
                bytes = 0;
            }
            bytes += piece.len();
            pieces.push(IoSlice::new(piece));
        }
        channel.write(&pieces).await
    }

    /// Frames to be written, in order.
    fn segments(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.values.iter().map(|(end, _)| *end));
        let heads = starts.zip(self.values.iter().map(|(end, value)| (*end, &value[..])));
        let last = self.values.last().map_or(0, |(end, _)| *end);
        heads.flat_map(|(start, (end, value))| [&self.out[start..end], value]).chain([&self.out[last..]])
    }

    /// Drops its frames, which are written.
    pub(super) fn clear(&mut self) {
        self.out.clear();
        self.values.clear();
        (self.bytes, self.frames) = (0, 0);
    }
}
