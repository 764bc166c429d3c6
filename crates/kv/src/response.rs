//! Answers of a node, independent of the protocol.
//!
//! An object stays in its stored form ([`Found`]): the session that writes it out reads the head in place, so a
//! GET builds nothing between the store and the socket.

use std::sync::Arc;

use bytes::Bytes;

use crate::fold::Folded;
use crate::index::Rows;
use crate::props::BucketProps;
use crate::props::type_status::TypeStatus;
use crate::query::Findings;

/// A node's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// To a read: the object.
    Found(Found),
    /// To a read: no object; the context of the deleted one, if the client asked for it.
    NotFound {
        /// The tombstone's context.
        deleted_context: Option<Bytes>,
    },
    /// To a read with `if_modified`: the object still has that context.
    Unchanged,
    /// To a write.
    Put {
        /// The resulting object, if the client asked for it.
        object: Option<Found>,
        /// The key, if the coordinator invented it.
        key: Option<Bytes>,
    },
    /// To a delete.
    Deleted,
    /// Some buckets; further answers follow unless `done`.
    Buckets {
        /// Names.
        names: Vec<Bytes>,
        /// Whether this is the last answer.
        done: bool,
    },
    /// Some keys; further answers follow unless `done`.
    Keys {
        /// Keys.
        keys: Vec<Bytes>,
        /// Whether this is the last answer.
        done: bool,
    },
    /// Some of what an index query finds; further answers follow unless it is done.
    Rows(Rows),
    /// What a query of several parts finds.
    Findings(Findings),
    /// What a fold has come to.
    Folded(Box<Folded>),
    /// The properties of a bucket or a bucket type.
    Props(Arc<BucketProps>),
    /// The bucket types with their status and properties, the default one first.
    Types(Vec<(Bytes, TypeStatus, Arc<BucketProps>)>),
    /// The nodes of the cluster.
    Members(Vec<Member>),
    /// A bucket's or a bucket type's properties are changed.
    PropsSet,
    /// A bucket has its type's properties again.
    PropsReset,
    /// The vnodes that hold a key.
    Preflist(Vec<PreflistEntry>),
}

/// An object as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The encoded head: read it with [`object::HeadView`].
    pub head: Bytes,
    /// The values of all siblings, one after the other; `None` if they are to be left out of the answer.
    pub value: Option<Bytes>,
    /// Answer only the newest sibling: the bucket does not show siblings, though it may hold some from a time
    /// when it did.
    pub newest_only: bool,
}

/// A node of the cluster, as another sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it is the node that answers.
    pub here: bool,
    /// Whether it can be reached.
    pub up: bool,
}

/// One vnode of a preference list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreflistEntry {
    /// The partition's number on the ring.
    pub partition: u32,
    /// The name of the node that holds it.
    pub node: Arc<str>,
    /// Whether that is a primary, not a fallback.
    pub primary: bool,
}

/// What a name in a list takes beside its bytes, in memory or in an answer.
const NAME_BYTES: usize = 32;

impl Response {
    /// About how many bytes an answer to a client takes that says it, as far as that may be much.
    pub fn weight(&self) -> usize {
        let of_names = |names: &[Bytes]| names.iter().map(|name| NAME_BYTES + name.len()).sum();
        match self {
            Response::Found(found) | Response::Put { object: Some(found), .. } => {
                found.head.len() + found.value.as_ref().map_or(0, Bytes::len)
            }
            Response::Buckets { names, .. } => of_names(names),
            Response::Keys { keys, .. } => of_names(keys),
            Response::Rows(rows) => NAME_BYTES * rows.rows.len() + rows.rows.bytes(),
            _ => 0,
        }
    }
}
