//! A backup's files of a node's part in its cluster, without the users of the cluster.
//!
//! The log and the standing have the security policy, and so verifiers of passwords. They are restored with a policy
//! that has security on and nobody in it: the ports let no client in, and the local socket administers the node. The
//! mode of the backup does not count, since another node's backup may be of another moment, and all must agree.

use super::files::{FOLDER, LOG, STANDING};
use super::standing::Standing;
use ::backup::Error;
use ::membership::log::Log;
use ::security::{Mode, Settings, Slot};
use bytes::Bytes;

/// The bytes of a file of a backup, of its name and its bytes, without users.
///
/// # Errors
/// [`Error::Damaged`] if the file cannot be read, or a newer program wrote it.
pub fn without_users(name: &str, data: Bytes) -> Result<Bytes, Error> {
    let damaged = |what: String| Error::Damaged { file: name.to_owned(), what };
    let records = [closed_doors()];
    match name.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix('/')) {
        Some(LOG) => Log::without_users(&data, &records).map_err(|cause| damaged(cause.to_string())),
        Some(STANDING) => {
            let mut standing = Standing::decode(&data).map_err(|cause| damaged(cause.to_string()))?;
            standing.state.replace_policy(&records);
            Ok(standing.encode().into())
        }
        _ => Ok(data),
    }
}

/// The record of settings with security on.
fn closed_doors() -> (Bytes, Bytes) {
    let slot = Slot::Settings(Settings { mode: Mode::On, ..Settings::default() });
    (slot.key().encode(), slot.encode())
}
