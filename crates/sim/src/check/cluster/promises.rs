//! A replica keeps what it said it has, restarts included: the version that it answered for is in the one that it
//! has, for as long as its disk is its own.
//!
//! Only primaries are held to that; a fallback may forget what it has brought home. Nor is a bucket where a write
//! replaces what is there unread. A version that had ended when it was merged is not kept, and nothing is of what it
//! had replaced.

use super::NodeAt;
use crate::check::history::KeyName;
use crate::check::{Verdict, Violation};
use object::Context;
use std::collections::BTreeMap;

const CHECKER: &str = "a replica keeps the writes that it acknowledged";

/// What one node has promised to have.
#[derive(Debug, Default)]
pub(super) struct Promises {
    made: BTreeMap<KeyName, Context>,
    /// Of keys that end, what it has merged that had ended.
    over: BTreeMap<KeyName, Context>,
}

impl Promises {
    pub(super) fn promise(&mut self, key: &KeyName, context: &Context) {
        if key.has_memory() && !self.over.get(key).is_some_and(|over| over.descends(context)) {
            self.made.entry(key.clone()).or_default().join(context);
        }
    }

    /// The node has merged a version that had ended.
    pub(super) fn end(&mut self, key: &KeyName, context: &Context) {
        let over = self.over.entry(key.clone()).or_default();
        over.join(context);
        if self.made.get(key).is_some_and(|made| over.descends(made)) {
            self.made.remove(key);
        }
    }

    /// The node has given the key up.
    pub(super) fn release(&mut self, key: &KeyName) {
        self.made.remove(key);
    }

    /// Some keys have ended.
    pub(super) fn forget(&mut self, is_of: impl Fn(&KeyName) -> bool) {
        self.made.retain(|key, _| !is_of(key));
        self.over.retain(|key, _| !is_of(key));
    }

    /// What the node is bound to have of `key`, if anything.
    pub(super) fn of(&self, key: &KeyName) -> Option<&Context> {
        self.made.get(key)
    }
}

/// Checks what `node` has seen of `key`, of which it was bound to have `promised` when it was asked.
pub(super) fn check(node: NodeAt, key: &KeyName, promised: &Context, has: &Context) -> Verdict {
    if has.descends(promised) {
        return Ok(());
    }
    let (promised, has) = (promised.entries(), has.entries());
    Err(Violation::new(CHECKER, format!("{key}: n{node} has {has:x?} and had promised {promised:x?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::{bucket, key, object_of};

    #[test]
    fn what_has_ended_takes_what_it_replaced_with_it() {
        let name = KeyName::of(&bucket(b"b"), &key());
        let [older, newer] =
            [&[(1, 1)][..], &[(1, 1), (2, 2)]].map(|of| object_of(of).head().context().clone());
        let mut promises = Promises::default();
        promises.promise(&name, &older);
        promises.end(&name, &newer);
        assert_eq!(promises.of(&name), None, "it is gone with what has ended");
        promises.promise(&name, &older);
        assert_eq!(promises.of(&name), None, "it came behind it");

        let mut promises = Promises::default();
        promises.promise(&name, &newer);
        promises.end(&name, &older);
        assert_eq!(promises.of(&name), Some(&newer), "what has ended was not all");
    }
}
