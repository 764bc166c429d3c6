//! Why the membership's thread ends by itself, and the node with it.
//!
//! Left out: how it is found out that the node is no member ([`Part`](super::Part)), or that its data folder is a copy
//! (`copy.rs`).

use super::standing::Standing;
use ::membership::{ClusterId, Stop};

/// Why the thread ends by itself, and the node with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The node has left its cluster, as it was told to.
    Left,
    /// It cannot go on.
    Lost(String),
}

impl From<String> for End {
    fn from(why: String) -> End {
        End::Lost(why)
    }
}

impl From<Stop> for End {
    fn from(stop: Stop) -> End {
        End::Lost(stop.to_string())
    }
}

impl End {
    /// Of a node that is no member any more. One that has said that it goes has left.
    pub(super) fn no_member(has_gone: bool) -> End {
        if has_gone { End::Left } else { Stop::Removed.into() }
    }

    /// Of a node that has founded a cluster alone though it is a member of another, as a member of that says: its
    /// folder was emptied.
    pub(super) fn founded_twice(standing: &Standing, by: &str, cluster: ClusterId) -> End {
        let name = &standing.record().member.name;
        End::Lost(format!(
            "{by} is of the cluster {cluster}, which has {name} as a member: this data folder has founded another \
             cluster, {}. If the folder of {name} was emptied, restore it. Else have {name} removed there by `annulet \
             admin cluster force-remove {name}` and a commit, empty this folder, and start with --join",
            standing.cluster()
        ))
    }
}
