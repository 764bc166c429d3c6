//! Questions to other nodes that were not sent, since nothing was left of what they would have brought: the tasks that
//! ask are told in the next turn.

use crate::peer::{AskId, NodeId};

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct UnsentAsks(Vec<(NodeId, AskId)>);

impl UnsentAsks {
    /// A question is not sent.
    pub fn push(&mut self, to: NodeId, id: AskId) {
        self.0.push((to, id));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes them.
    pub fn take(&mut self) -> Vec<(NodeId, AskId)> {
        std::mem::take(&mut self.0)
    }
}
