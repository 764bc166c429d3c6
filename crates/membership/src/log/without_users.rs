//! The log of a restored node without the users of its cluster, whose verifiers of passwords are in the policy.
//!
//! 1. The state of the committed entries gets another policy, and takes the place of all of them.
//! 2. Entries behind it stay, since another node may know that they are committed. Their changes of the policy go.
//! 3. The history is another one, with a nonce that follows from the one before.
//!
//! Invariants: nodes whose logs are made from those of one history agree, whichever of its entries each has; a node of
//! the history before and a node of this one refuse each other, so that no two policies have one version.
//!
//! Left out: the meaning of records, which the caller has.

use base::Monotonic;
use base::Rng;
use base::rng::SplitMix64;
use bytes::Bytes;

use super::entry::{Epoch, Payload};
use super::file::{self, FileError};
use super::{Identity, Log};
use crate::state::Command;

impl Log {
    /// The file of the log in `bytes` with these records as its whole policy, by ascending key. A log without a history
    /// has no policy, and stays as it is.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn without_users(bytes: &Bytes, records: &[(Bytes, Bytes)]) -> Result<Bytes, FileError> {
        let (cluster, node) = file::owner(bytes)?;
        let identity = Identity { cluster, node, starts: 1, start: 1, address: String::new() };
        // Nothing is drawn from it that is in the file.
        let rng = Box::new(SplitMix64::new(0));
        let (mut log, _) = Log::open(identity, bytes, rng, Monotonic(0))?;
        let Some(state) = &mut log.state else { return Ok(bytes.clone()) };

        state.replace_policy(records);
        log.epoch = Epoch { nonce: SplitMix64::new(log.epoch.nonce).next_u64(), ..log.epoch };
        let (base, commit) = (log.snapshot(), log.commit);
        let store = log.raw.mut_store();
        store.base = base;
        store.entries.retain(|entry| entry.index > commit);
        for entry in &mut store.entries {
            if let Payload::Command(Command::ChangePolicy { changes, .. }) = &mut entry.payload {
                changes.clear();
            }
        }
        Ok(log.whole_file())
    }
}
