//! A replica keeps what it said it has, restarts included: the version that it answered for is in the one that it
//! has, for as long as its disk is its own.
//!
//! Only primaries are held to that; a fallback may forget what it has brought home. Nor is a bucket where a write
//! replaces what is there unread.

use super::NodeAt;
use crate::check::history::KeyName;
use crate::check::{Verdict, Violation};
use bytes::Bytes;
use object::{Context, HeadView};
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

    pub(super) fn has(&self, key: &KeyName) -> bool {
        self.0.contains_key(key)
    }

    /// Checks what the node has.
    pub(super) fn check(&self, node: NodeAt, key: &KeyName, head: Option<&Bytes>) -> Verdict {
        let Some(promised) = self.0.get(key) else { return Ok(()) };
        let has = head.and_then(|head| HeadView::parse(head).ok()).map(|head| head.context().to_context());
        if has.as_ref().is_some_and(|has| has.descends(promised)) {
            return Ok(());
        }
        let (promised, has) = (promised.entries(), has.unwrap_or_default());
        let what = format!("{key}: n{node} has {:x?} and had promised {promised:x?}", has.entries());
        Err(Violation::new(CHECKER, what))
    }
}
