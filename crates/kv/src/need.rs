//! The requirements of quorums that a request can fail to meet.

/// The requirements a request can fail to meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Replies to a read.
    R,
    /// Primaries among the replies to a read.
    Pr,
    /// Replies to a write.
    W,
    /// Primaries among the replies to a write.
    Pw,
    /// Durable replies to a write.
    Dw,
    /// Distinct nodes among the replies.
    NodeConfirms,
}

impl Need {
    /// Whether it counts replies of whatever vnodes.
    pub fn counts_vnodes(self) -> bool {
        matches!(self, Need::R | Need::W | Need::Dw)
    }
}

impl std::fmt::Display for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Need::R => "r",
            Need::Pr => "pr",
            Need::W => "w",
            Need::Pw => "pw",
            Need::Dw => "dw",
            Need::NodeConfirms => "node_confirms",
        })
    }
}
