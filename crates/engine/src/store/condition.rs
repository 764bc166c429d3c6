//! Conditional batches: applied if keys still have the versions that the caller knows.
//!
//! Owner and store are one thread, so nothing comes between the look and the write. A look that has to wait for the
//! disk parks like any lookup; the caller tries again when its event comes, and finds the block in the cache (which
//! must be large enough for one).

use super::{Lookup, LookupId, Store, Want, Write};
use crate::entry::Seq;
use crate::error::Error;

/// What must be true of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its newest version; `None` if it must not be there.
    pub version: Option<Seq>,
}

/// What became of a conditional batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteIf {
    /// It was applied; this is the version of its last write.
    Written(Seq),
    /// A condition does not hold, and nothing was written.
    Refused {
        /// The first such condition's place in the list.
        condition: usize,
        /// The version that its key has.
        version: Option<Seq>,
    },
    /// The disk must be waited for: try again when this lookup's event has come. Its answer means nothing here.
    NeedsIo(LookupId),
}

impl Store {
    /// Applies `batch` if all `conditions` hold.
    pub fn write_if(&mut self, conditions: &[Condition<'_>], batch: &[Write<'_>]) -> Result<WriteIf, Error> {
        for (condition, Condition { key, version }) in conditions.iter().enumerate() {
            let found = match self.lookup(key, Want::Head) {
                Lookup::Done(answer) => answer?.map(|found| found.seq),
                Lookup::NeedsIo(id) => return Ok(WriteIf::NeedsIo(id)),
            };
            if found != *version {
                return Ok(WriteIf::Refused { condition, version: found });
            }
        }
        self.write(batch).map(WriteIf::Written)
    }
}
