//! When faults are over, replicas become equal within a bounded time; and a read of all of them shows all that
//! they have.

use super::{NodeAt, Reaped, context_of};
use crate::check::history::KeyName;
use crate::check::{Verdict, Violation};
use bytes::Bytes;
use object::{Context, HeadView};
use std::collections::BTreeMap;

const EQUAL: &str = "replicas become equal";
const READ: &str = "a read of all replicas shows all";

/// The heads that the replicas of one key have.
#[derive(Clone, Debug, Default)]
pub struct Copies(BTreeMap<NodeAt, Option<Bytes>>);

impl Copies {
    /// What `node` has.
    pub fn insert(&mut self, node: NodeAt, head: Option<Bytes>) {
        self.0.insert(node, head);
    }

    /// Whether all are byte for byte the same. One that still has a tombstone which was reaped has nothing.
    pub(super) fn are_equal(&self, key: &KeyName, reaped: &Reaped) -> bool {
        let mut heads = self.0.values().map(|head| head.as_ref().filter(|head| !reaped.has(key, head)));
        let first = heads.next();
        heads.all(|head| Some(head) == first)
    }

    /// Whether these copies, all equal, are those, but for what has been reaped.
    pub fn are_as(&self, then: &Copies, key: &KeyName, reaped: &Reaped) -> bool {
        let unreaped =
            |copies: &Copies| copies.0.values().flatten().find(|head| !reaped.has(key, head)).cloned();
        unreaped(self) == unreaped(then)
    }

    /// Whether each has all that a read has shown: where it has not, the read is repairing it.
    pub(super) fn have(&self, key: &KeyName, read: &Context, reaped: &Reaped) -> bool {
        let has = |head: &Option<Bytes>| reaped.with(key, context_of(head.as_ref())).descends(read);
        !key.has_memory() || self.0.values().all(has)
    }

    /// That they have not become equal in time.
    pub fn differ(&self, key: &KeyName) -> Violation {
        let shown: Vec<String> =
            self.0.iter().map(|(node, head)| format!("n{node} has {}", show(head))).collect();
        Violation::new(EQUAL, format!("{key}: {}", shown.join(", ")))
    }

    /// What each node has.
    pub fn of_nodes(&self) -> impl Iterator<Item = (NodeAt, Option<&Bytes>)> {
        self.0.iter().map(|(node, head)| (*node, head.as_ref()))
    }

    fn heads(&self) -> impl Iterator<Item = (NodeAt, &Bytes)> {
        self.0.iter().filter_map(|(node, head)| Some((*node, head.as_ref()?)))
    }
}

/// Checks a read of all replicas, which had at least `copies` when it began.
pub(super) fn check_read(key: &KeyName, copies: &Copies, answer: &Context) -> Verdict {
    for (node, head) in copies.heads().filter(|_| key.has_memory()) {
        let Ok(view) = HeadView::parse(head) else {
            return Err(Violation::new(READ, format!("{key}: n{node} has an unreadable head")));
        };
        if !answer.descends(&view.context().to_context()) {
            let (read, has) = (answer.entries(), show(&Some(head.clone())));
            return Err(Violation::new(READ, format!("{key}: a read is under {read:?}, n{node} has {has}")));
        }
    }
    Ok(())
}

fn show(head: &Option<Bytes>) -> String {
    let Some(head) = head else { return "nothing".to_owned() };
    match object::Head::decode(head) {
        Ok(head) => {
            let dots: Vec<_> = head.siblings().iter().map(|s| (s.dot.actor.0, s.dot.counter)).collect();
            format!("{dots:x?} under {:x?}", head.context().entries())
        }
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::{bucket, key, object_of};

    fn head(number: u64) -> Bytes {
        let mut head = Vec::new();
        object_of(&[(number, number)]).head().encode(&mut head);
        head.into()
    }

    /// What three nodes have, each the write with this number.
    fn copies(numbers: [Option<u64>; 3]) -> Copies {
        Copies(numbers.map(|number| number.map(head)).into_iter().enumerate().collect())
    }

    #[test]
    fn what_came_home_since_makes_copies_others() {
        let name = KeyName::of(&bucket(b"b"), &key());
        let all = |number| copies([Some(number); 3]);
        let mut reaped = Reaped::default();
        assert!(all(1).are_as(&all(1), &name, &reaped));
        assert!(!all(2).are_as(&all(1), &name, &reaped), "a hint has come home, and nodes compare");
        assert!(!copies([None; 3]).are_as(&all(1), &name, &reaped), "it was lost");

        reaped.on_removed(&name, &head(1), 1);
        assert!(copies([None, Some(1), None]).are_as(&all(1), &name, &reaped), "it was reaped");
        assert!(!all(2).are_as(&all(1), &name, &reaped));
    }
}
