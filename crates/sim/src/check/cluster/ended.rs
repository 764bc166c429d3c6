//! What has ended is shown to no reader.
//!
//! The world lets all clocks leap beyond the ends of what was written to a bucket before. From then on nothing of that
//! is promised any more, and nobody who asks is shown it; what is written later is promised, and shown, as ever. What
//! was asked before may have either answer.

use super::Checks;
use crate::check::history::KeyName;
use crate::check::{Verdict, Violation};
use base::Monotonic;
use bytes::Bytes;
use kv::response::Found;
use object::Head;

const CHECKER: &str = "expired objects are not returned";

/// The last leap.
#[derive(Debug)]
pub(super) struct Ended {
    /// The bucket whose objects end.
    bucket: Bytes,
    at: Monotonic,
    /// What was written before ends before this time, in milliseconds since 1970, and what is written later after it.
    wall_ms: u64,
}

impl Ended {
    /// Whether a version of `key` that ends then has ended on every node.
    pub(super) fn has(&self, key: &KeyName, ends_ms: Option<u64>) -> bool {
        *key.bucket() == self.bucket && ends_ms.is_some_and(|ends_ms| ends_ms <= self.wall_ms)
    }

    /// Checks what a reader was shown who asked at `began`.
    fn check(&self, key: &KeyName, found: &Found, began: Monotonic) -> Verdict {
        let head =
            Head::decode(&found.head).map_err(|error| Violation::new(CHECKER, format!("{key}: {error}")))?;
        let mut ends = head.siblings().iter().map(|sibling| sibling.metadata.expires_ms);
        match ends.find(|ends_ms| self.has(key, *ends_ms)) {
            Some(ends_ms) if began > self.at => {
                let what = format!("{key}: a sibling that ended at {ends_ms:?}");
                Err(Violation::new(CHECKER, what))
            }
            _ => Ok(()),
        }
    }
}

impl Checks {
    /// All clocks have leapt beyond the ends of what was written to `bucket` so far, which is before `wall_ms`.
    pub fn on_end(&mut self, bucket: &Bytes, now: Monotonic, wall_ms: u64) {
        let is_of = |key: &KeyName| key.bucket() == bucket;
        self.lost_at = Some(now);
        self.promises.iter_mut().for_each(|promises| promises.forget(is_of));
        self.strict.forget(is_of);
        self.homecoming.forget(is_of);
        self.history.on_end(is_of);
        self.ended = Some(Ended { bucket: bucket.clone(), at: now, wall_ms });
    }

    /// Checks what a reader was shown who asked at `began`.
    pub(super) fn check_not_ended(&self, key: &KeyName, found: &Found, began: Monotonic) -> Verdict {
        self.ended.as_ref().map_or(Ok(()), |ended| ended.check(key, found, began))
    }

    /// Whether a version of `key` that ends then has ended on every node.
    pub fn has_ended(&self, key: &KeyName, ends_ms: Option<u64>) -> bool {
        self.ended.as_ref().is_some_and(|ended| ended.has(key, ends_ms))
    }

    /// Checks what is left of `key` when all that was ever written to its bucket has ended: nothing, or a tombstone.
    pub fn check_over(&self, key: &KeyName, heads: &[Option<&Bytes>], found: Option<&Found>) -> Verdict {
        let broken = |what: String| Err(Violation::new(CHECKER, format!("{key}: {what}")));
        if let Some(found) = found {
            return broken(format!("{} bytes of a head are found", found.head.len()));
        }
        for head in heads.iter().flatten() {
            let head = Head::decode(head).map_err(|error| Violation::new(CHECKER, error.to_string()))?;
            if !head.siblings().iter().any(|sibling| sibling.metadata.deleted) {
                return broken("a node has it".to_owned());
            }
        }
        Ok(())
    }
}
