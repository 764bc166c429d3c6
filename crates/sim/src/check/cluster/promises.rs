//! A replica keeps what it said it has, restarts included: the version that it answered for is in the one that it
//! has, for as long as its disk is its own.
//!
//! Only primaries are held to that; a fallback may forget what it has brought home. Nor is a bucket where a write
//! replaces what is there unread.

use super::NodeAt;
use crate::check::history::KeyName;
use crate::check::{Verdict, Violation};
use object::Context;
use std::collections::BTreeMap;

const CHECKER: &str = "a replica keeps what it acknowledged";

/// What one node has promised to have.
#[derive(Debug, Default)]
pub(super) struct Promises(BTreeMap<KeyName, Context>);

impl Promises {
    pub(super) fn promise(&mut self, key: &KeyName, context: &Context) {
        if key.has_memory() {
            self.0.entry(key.clone()).or_default().join(context);
        }
    }

    /// The node has given the key up.
    pub(super) fn release(&mut self, key: &KeyName) {
        self.0.remove(key);
    }

    /// Some keys have ended.
    pub(super) fn forget(&mut self, is_of: impl Fn(&KeyName) -> bool) {
        self.0.retain(|key, _| !is_of(key));
    }

    /// What the node is bound to have of `key`, if anything.
    pub(super) fn of(&self, key: &KeyName) -> Option<&Context> {
        self.0.get(key)
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
