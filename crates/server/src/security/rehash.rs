//! Imported hashes of Riak, replaced by argon2id after the first login that proves the password.
//!
//! 1. The thread of logins has verified a password against an imported hash, and has told the client.
//! 2. It makes a verifier of argon2id, and hands a change of the policy to the thread of the membership.
//! 3. The change names the hash that it replaces: a password that was changed meanwhile stays.
//!
//! Invariants: a login never waits for the change; a node has one under way at most, so that operators' commands find
//! places. A change that is not made, such as without a majority, is tried again with the next login that is verified.

use super::password::{hash, secret_bytes};
use crate::membership::Answered;
use security::{Command, Credential, Name};
use std::sync::{Arc, OnceLock};
use tokio::sync::oneshot::{self, error::TryRecvError};

/// The way to the policy of the cluster's log.
pub(crate) type PolicySink = Box<dyn Fn(Command) -> oneshot::Receiver<Answered> + Send + Sync>;

/// The replacement of imported hashes.
pub(super) struct Rehashes {
    /// Empty until the node has its part in the cluster.
    sink: Arc<OnceLock<PolicySink>>,
    under_way: Option<oneshot::Receiver<Answered>>,
}

impl Rehashes {
    pub(super) fn new(sink: Arc<OnceLock<PolicySink>>) -> Rehashes {
        Rehashes { sink, under_way: None }
    }

    /// Replaces the imported hash of a user by one of this password. Another hash stays.
    pub(super) fn replace(&mut self, user: Name, before: Credential, password: &[u8]) {
        let Credential::RiakPbkdf2 { .. } = before else { return };
        if let Some(answer) = &mut self.under_way
            && matches!(answer.try_recv(), Err(TryRecvError::Empty))
        {
            return;
        }
        let Some(sink) = self.sink.get() else { return };
        tracing::info!(target: "audit", %user, security = "rehash of an imported password", "audit");
        let after = hash(password, &secret_bytes());
        self.under_way = Some(sink(Command::Rehash { user, before, after }));
    }
}
