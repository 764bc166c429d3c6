//! The nodes of a cluster, fixed when a node starts.

use kv::replica::NodeId;
use std::fmt;
use std::sync::Arc;

/// Who is in the cluster. Every node has the same list, so a node's number is its place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    here: NodeId,
    names: Vec<Arc<str>>,
}

impl Members {
    /// A node alone.
    pub fn alone(name: &str) -> Members {
        Members { here: NodeId(0), names: vec![Arc::from(name)] }
    }

    /// The members by name; `None` unless the names differ and `here` is one of them.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>, here: &str) -> Option<Members> {
        let mut names: Vec<Arc<str>> = names.into_iter().map(Arc::from).collect();
        names.sort_unstable();
        let differ = names.is_sorted_by(|a, b| a < b);
        let at = names.iter().position(|name| **name == *here).filter(|_| differ)?;
        Some(Members { here: NodeId(u16::try_from(at).ok()?), names })
    }

    /// This node.
    pub fn here(&self) -> NodeId {
        self.here
    }

    /// A member's name.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn name(&self, node: NodeId) -> &Arc<str> {
        &self.names[usize::from(node.0)]
    }

    /// All members.
    pub fn all(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.names.len()).map(|at| NodeId(u16::try_from(at).expect("nodes are numbered by sixteen bits")))
    }

    /// All but this one.
    pub fn others(&self) -> impl Iterator<Item = NodeId> + use<> {
        let here = self.here;
        self.all().filter(move |&node| node != here)
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.names.len()
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_numbered_alike_everywhere() {
        let names = ["b@h", "c@h", "a@h"];
        let members = Members::new(names, "b@h").unwrap();
        assert_eq!((members.here(), members.count()), (NodeId(1), 3));
        assert_eq!(&**members.name(NodeId(0)), "a@h");
        assert_eq!(members.to_string(), "a@h,b@h,c@h");
        assert_eq!(members.others().collect::<Vec<_>>(), [NodeId(0), NodeId(2)]);
        assert_eq!(Members::new(names, "d@h"), None);
        assert_eq!(Members::new(["a@h", "a@h"], "a@h"), None);
    }
}
