//! A node's decisions: coordinators, bucket properties, quorums, as pure state machines.
//!
//! A session turns frames into a [`Request`]. The shard loop looks its bucket's properties up ([`BucketTable`])
//! and steps the coordinator of its kind ([`Get`], [`Put`], [`Delete`]) with [`Event`]s until an [`Action`]
//! holds the [`Response`] or [`Error`] to send back. Listings are filters over a fold ([`list`]).
//!
//! Nothing here reads a clock, a store or a socket; everything that varies arrives in an event or a [`Turn`].
//! Left out: other nodes. A node is alone so far, and its one copy answers for all of a key's vnodes
//! ([`quorum`]).

pub mod delete;
pub mod error;
pub mod get;
pub mod limits;
pub mod list;
pub mod props;
pub mod put;
pub mod quorum;
pub mod request;
pub mod response;
pub mod turn;
mod update;

pub use delete::Delete;
pub use error::Error;
pub use get::Get;
pub use limits::Limits;
pub use props::{BucketProps, BucketTable, Prop};
pub use put::Put;
pub use quorum::Quorum;
pub use request::{
    Bucket, DeleteRequest, GetRequest, ListBucketsRequest, ListKeysRequest, PutRequest, Request, Return,
};
pub use response::{Found, PreflistEntry, Response};
pub use turn::{Action, Event, Stored, Turn, Want};
