//! Counters of links, for `/stats`.

use serde::Serialize;
use std::ops::AddAssign;

/// What went to and came from one node, or all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PeerFigures {
    /// Connections that we opened and may send on.
    pub peer_links_up: u64,
    /// Connections that others opened, and that we read from.
    pub peer_links_in: u64,
    /// Messages written.
    pub peer_frames_sent: u64,
    /// Their bytes, before encryption.
    pub peer_bytes_sent: u64,
    /// Calls of the system that wrote them.
    pub peer_writes: u64,
    /// Messages given back because the link was down or too much waited for it.
    pub peer_bounced: u64,
    /// Messages that came.
    pub peer_frames_received: u64,
    /// Their bytes, after decryption.
    pub peer_bytes_received: u64,
    /// Reads that brought them.
    pub peer_reads: u64,
}

impl AddAssign for PeerFigures {
    fn add_assign(&mut self, other: PeerFigures) {
        self.peer_links_up += other.peer_links_up;
        self.peer_links_in += other.peer_links_in;
        self.peer_frames_sent += other.peer_frames_sent;
        self.peer_bytes_sent += other.peer_bytes_sent;
        self.peer_writes += other.peer_writes;
        self.peer_bounced += other.peer_bounced;
        self.peer_frames_received += other.peer_frames_received;
        self.peer_bytes_received += other.peer_bytes_received;
        self.peer_reads += other.peer_reads;
    }
}
