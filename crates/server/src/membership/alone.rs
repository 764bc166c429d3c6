//! The metadata log of a node alone: a cluster of one voter, without a standing.
//!
//! Consistent bucket types and the security policy rest on it. Without them it says nothing that a start could not say
//! again, so such a log is dropped when the node is told another name, zone or ring, and the node goes on where it
//! cannot be written.

use super::files::{Files, FilesError};
use ::membership::log::{FileError, Identity, Log};
use ::membership::state::State;
use base::Monotonic;
use bytes::Bytes;
use os::OsRng;

/// The state in the log of a folder without a standing; none if there is no log of a node alone.
///
/// # Errors
/// Those of [`Files::read_log`]; `Invalid` if a log is damaged, or of a newer program.
pub(super) fn kept(files: &Files) -> Result<Option<State>, FilesError> {
    let Some(bytes) = files.read_log()? else { return Ok(None) };
    let state = state_of(&bytes).map_err(|cause| files.invalid_log(&cause))?;
    Ok(state.filter(is_alone))
}

/// The committed state in the bytes of a log; none before its node has a history.
pub(super) fn state_of(log: &Bytes) -> Result<Option<State>, FileError> {
    let (cluster, node) = Log::owner_of(log)?;
    let identity = Identity { cluster, node, starts: 1, start: 1, address: String::new() };
    let (log, _) = Log::open(identity, log, Box::new(OsRng::new()), Monotonic(0))?;
    Ok(log.state().cloned())
}

/// Whether something rests on a state that a start could not say again: stores that are registered, or a policy.
pub(super) fn is_needed(state: &State) -> bool {
    state.registers_stores() || state.policy().is_some()
}

/// Whether others could not reach the only member: it listens to nobody.
fn is_alone(state: &State) -> bool {
    state.members().len() == 1 && state.members().values().all(|record| record.address.is_empty())
}

/// Whether the state is the one to which a first start with these words leads, as far as words decide on it. A ring may
/// have grown since in a folder that `has_data`.
pub(super) fn is_as_told(state: &State, fresh: &State, has_data: bool) -> bool {
    let told = |state: &State| state.members().values().next().map(|it| it.member.clone());
    let words = |state: &State| told(state).map(|member| (member.name, member.zone));
    words(state) == words(fresh)
        && state.prefixes() == fresh.prefixes()
        && (has_data || state.size() == fresh.size())
}
