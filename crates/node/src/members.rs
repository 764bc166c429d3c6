//! The nodes of a cluster, as one of them knows them.

use kv::replica::NodeId;
use ring::Member;
use std::fmt;
use std::sync::Arc;

/// Who is in the cluster. A member's number is its own for life; they need not follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    here: NodeId,
    members: Arc<ring::Members>,
}

impl Members {
    /// A node alone.
    pub fn alone(name: &str) -> Members {
        Members::new([name], name).expect("one name differs from all others")
    }

    /// The members of a ring; `None` unless `here` is one of them.
    pub fn of(here: NodeId, members: Arc<ring::Members>) -> Option<Members> {
        members.get(here)?;
        Some(Members { here, members })
    }

    /// The members by name, numbered in the order of their names; `None` unless the names differ and `here` is one of
    /// them.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>, here: &str) -> Option<Members> {
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable();
        let number = |at: usize| u16::try_from(at).ok().map(NodeId);
        let here = number(names.iter().position(|name| *name == here)?)?;
        let members: Option<Vec<Member>> =
            names.iter().enumerate().map(|(at, name)| Some(Member::new(number(at)?, name))).collect();
        // It refuses names that do not differ.
        Some(Members { here, members: Arc::new(ring::Members::new(members?).ok()?) })
    }

    /// As the ring knows them.
    pub fn of_ring(&self) -> &Arc<ring::Members> {
        &self.members
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
        &self.members.get(node).expect("whoever asks means a member").name
    }

    /// All members, in the order of their numbers.
    pub fn all(&self) -> impl Iterator<Item = NodeId> + use<> {
        let members = Arc::clone(&self.members);
        (0..self.count()).map_while(move |at| members.iter().nth(at).map(|member| member.id))
    }

    /// Whether this is a member's number.
    pub fn has(&self, node: NodeId) -> bool {
        self.members.get(node).is_some()
    }

    /// All but this one.
    pub fn others(&self) -> impl Iterator<Item = NodeId> + use<> {
        let here = self.here;
        self.all().filter(move |&node| node != here)
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.members.len()
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.members.iter().map(|member| &*member.name).collect();
        f.write_str(&names.join(","))
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

    #[test]
    fn numbers_may_have_gaps() {
        let members = [(7, "c@h"), (2, "a@h")].map(|(id, name)| Member::new(NodeId(id), name));
        let members = Arc::new(ring::Members::new(members).unwrap());
        assert_eq!(Members::of(NodeId(3), Arc::clone(&members)), None);
        let members = Members::of(NodeId(7), members).unwrap();
        assert_eq!(members.all().collect::<Vec<_>>(), [NodeId(2), NodeId(7)]);
        assert_eq!(members.others().collect::<Vec<_>>(), [NodeId(2)]);
        assert!(members.has(NodeId(2)) && !members.has(NodeId(0)));
    }
}
