//! Counters of links, for `/stats`.

use serde::Serialize;

base::counters! {
    /// Traffic with one node, or with all of them.
    #[derive(Serialize)]
    pub struct PeerFigures {
        /// Connections that we opened and may send on.
        peer_links_up,
        /// Connections that others opened, and that we read from.
        peer_links_in,
        /// Messages written.
        peer_frames_sent,
        /// Their bytes, before encryption.
        peer_bytes_sent,
        /// Calls of the system that wrote them.
        peer_writes,
        /// Messages given back because the link was down or too much waited for it.
        peer_bounced,
        /// Messages that came.
        peer_frames_received,
        /// Their bytes, after decryption.
        peer_bytes_received,
        /// Reads that brought them.
        peer_reads,
    }
}
