//! A node's decisions: coordinators, bucket properties, quorums, as pure state machines.
//!
//! A session turns frames into a [`Request`]. The shard loop looks its bucket's properties up ([`BucketTable`])
//! and steps the coordinator of its kind ([`Get`], [`Put`], [`Delete`]) with [`Event`]s until an [`Action`]
//! holds the [`Response`] or [`Error`] to send back. Listings are filters over a fold ([`list`]) on each node of a
//! covering set ([`coverage`]); index queries are merged from pages of rows ([`index`]).
//!
//! A coordinator asks the replicas that a [`Placement`] names. On the other side of the question [`Merge`] joins a
//! version with the replica's, and [`Deliver`] brings a hint home to a node that was away. [`DualWrite`] and
//! [`TransferKey`] take versions along while a partition moves. [`Reap`] removes tombstones for good.
//!
//! Keys of [`consistent`] types have groups instead of coordinators.
//!
//! [`aae`] finds the differences of replicas; a [`fold`] of two clusters shows theirs. A [`purge`] reaps or deletes the
//! findings of a fold.
//!
//! Nothing here reads a clock, a store or a socket; everything that varies arrives in an event or a [`StepContext`].

pub mod aae;
pub mod bucket;
mod closest;
pub mod condition;
pub mod consistent;
pub mod coverage;
pub mod delete;
pub mod deliver;
pub mod dual_write;
pub mod error;
pub mod fold;
pub mod get;
pub mod index;
pub mod limits;
pub mod list;
pub mod merge;
pub mod need;
pub mod needs;
pub mod placement;
mod planted;
pub mod props;
pub mod purge;
pub mod put;
pub mod query;
pub mod quorum;
mod read_quorum;
pub mod reap;
pub mod replica;
mod replies;
pub mod request;
pub mod response;
pub mod step;
pub mod stored;
mod stored_head;
mod update;
pub mod version_clock;
mod write_quorum;

pub use bucket::Bucket;
pub use closest::closest;
pub use condition::{Conditions, Tags, Unmet, Validators};
pub use coverage::{KeyScan, Listed, Page, PageAsk};
pub use delete::Delete;
pub use deliver::Deliver;
pub use dual_write::{DualWrite, TransferKey};
pub use error::Error;
pub use fold::FoldRequest;
pub use get::{Get, ends_soon};
pub use index::IndexRequest;
pub use limits::Limits;
pub use merge::Merge;
pub use placement::{Hint, Placement, Roles, Spares};
pub use props::{BucketProps, BucketTable, Prop, PropsChange, TypeChange, TypeStatus};
pub use purge::{PurgeJob, PurgeTask};
pub use put::Put;
pub use quorum::Quorum;
pub use reap::{Graveyard, Reap};
pub use replica::{Answer, Ask, NodeId, ReadStrategy, Reason};
pub use request::{
    DeleteRequest, GetRequest, ListBucketsRequest, ListKeysRequest, PutRequest, Request, Return,
};
pub use response::{Found, Member, PreflistEntry, Response};
pub use step::{Action, Event, Next, StepContext};
pub use stored::{Stored, Want};
pub use version_clock::{TimeAhead, VersionClock};
