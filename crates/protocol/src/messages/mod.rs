//! The protocol's messages as structs, one field per field of Riak's definition, with its numbers.
//!
//! Byte strings are [`bytes::Bytes`]: decoded from a [`bytes::Bytes`] they are slices of it, not copies.
//! Required fields are plain, optional ones `Option`: an absent field is not an empty one (a delete without
//! a clock is not a delete with an empty clock). The struct `prost` fills from a message that lacks a
//! required field holds an empty one; [`crate::Request::decode`] refuses such a message before.
//!
//! - [`kv`]: objects, and listing them;
//! - [`index`]: finding objects by their index entries;
//! - [`fold`]: going through many keys;
//! - [`bucket`]: bucket properties and types;
//! - [`admin`]: errors, client ids, server info, preference lists.

pub mod admin;
pub mod bucket;
pub mod fold;
pub mod index;
pub mod kv;

pub use admin::*;
pub use bucket::*;
pub use fold::*;
pub use index::*;
pub use kv::*;
