//! The membership of a node that does not run, for offline commands on its data folder.
//!
//! Invariant: as long as it is held, no process can start on the folder.
//!
//! Left out: whether the folder is the newest of its node, which only the cluster knows.

use std::collections::BTreeMap;
use std::path::Path;

use ::membership::log::Log;
use ::membership::state::State;
use node::KnownCluster;
use ring::{Birth, NodeId};

use super::alone;
use super::files::{FOLDER, Files, FilesError};

/// A stopped node, as the metadata log in its folder has it.
pub struct StoppedNode {
    node: NodeId,
    state: State,
    /// Locks the folder.
    _files: Files,
}

impl StoppedNode {
    /// The node of a data folder; none if the folder has no metadata log with a history.
    ///
    /// # Errors
    /// [`FilesError`]; `Locked` while a process uses the folder, `Invalid` if the log is damaged.
    pub fn open(data: &Path) -> Result<Option<StoppedNode>, FilesError> {
        if !data.join(FOLDER).is_dir() {
            return Ok(None);
        }
        let files = Files::open(data)?;
        let Some(bytes) = files.read_log()? else { return Ok(None) };
        let (_, node) = Log::owner_of(&bytes).map_err(|cause| files.invalid_log(&cause))?;
        let state = alone::state_of(&bytes).map_err(|cause| files.invalid_log(&cause))?;
        Ok(state.map(|state| StoppedNode { node, state, _files: files }))
    }

    /// Its number.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Names of all members.
    pub fn names(&self) -> BTreeMap<NodeId, String> {
        let members = self.state.members();
        members.iter().map(|(node, record)| (*node, record.member.name.to_string())).collect()
    }

    /// The births of its stores, by shard, as the last start that was registered gave them.
    pub fn births(&self) -> &[Birth] {
        self.state.last_registration(self.node).map_or(&[], |registration| &registration.stores.births)
    }

    /// The agreement that its groups are recovered by.
    pub fn known_cluster(&self) -> KnownCluster {
        let state = &self.state;
        let stores_of = |&node: &NodeId| Some((node, state.last_registration(node)?.stores.clone()));
        KnownCluster {
            node: self.node,
            foundings: state.foundings().map(|(n_val, founding)| (n_val, founding.clone())).collect(),
            stores: state.members().keys().filter_map(stores_of).collect(),
            prefixes: state.prefixes(),
        }
    }
}
