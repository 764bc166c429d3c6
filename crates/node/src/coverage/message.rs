//! Questions for pages and their answers, as other nodes get them.
//!
//! Between the shards of a node one pair of messages carries both kinds of pages ([`CoverageAsk`], [`CoveragePage`]).
//! Between nodes each kind has messages of its own, since older nodes know them so.

use crate::hop::{CoverageAsk, CoveragePage};
use crate::peer::{AskId, PeerMessage};
use kv::Error;

impl CoverageAsk {
    /// The question as another node gets it.
    pub(crate) fn into_peer_message(self, id: AskId, ttl_ms: u32) -> PeerMessage {
        match self {
            CoverageAsk::Keys(ask) => PeerMessage::AskPage { id, ttl_ms, ask },
            CoverageAsk::Rows(ask) => PeerMessage::AskRows { id, ttl_ms, ask },
        }
    }

    /// The answer of a shard that reads no page for this question.
    pub(crate) fn refusal(&self, error: Error) -> CoveragePage {
        match self {
            CoverageAsk::Keys(_) => CoveragePage::Keys(Err(error)),
            CoverageAsk::Rows(_) => CoveragePage::Rows(Err(error)),
        }
    }
}

impl CoveragePage {
    /// The answer as another node gets it.
    pub(crate) fn into_peer_message(self, id: AskId) -> PeerMessage {
        match self {
            CoveragePage::Keys(page) => PeerMessage::Page { id, page },
            CoveragePage::Rows(page) => PeerMessage::Rows { id, page },
        }
    }
}
