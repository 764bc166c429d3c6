//! Stores of objects behind one small trait: our engine, and others that a user may know.
//!
//! [`Backend`] is what all of them do; [`Kind`] names them and opens them. A key has a head and a value, as in the
//! engine: a head is what can be had of an object without its value.
//!
//! | name | what it is | in |
//! |---|---|---|
//! | `annulet` | our engine | every program |
//! | `memory` | a map, and nothing on a disk | every program |
//! | `bitcask` | a log, with its keys in memory: Bitcask's shape on our journal's records | every program |
//! | `hash` | blocks of a file, with a hash index in memory: Aerospike's shape | every program |
//! | `fjall`, `fjall-blob` | an LSM tree in Rust; its large values in files of their own | feature `fjall` |
//! | `lmdb` | a B-tree over a mapped file, in C | feature `lmdb` |
//! | `mdbx` | LMDB's B-tree, gone on with | feature `mdbx` |
//! | `redb` | a B-tree in Rust | feature `redb` |
//! | `rocksdb`, `rocksdb-blob` | an LSM tree in C++, the system's library; its large values in blob files | feature `rocksdb` |
//! | `wiredtiger` | a B-tree in C with a cache and a log, the system's library | feature `wiredtiger` |
//!
//! [`shared`] has many threads use one of them. [`packed`] lays arrays of small entries of one size over any of them.
//!
//! Invariants that one suite holds all of them to (`tests/conformance.rs`): a batch is seen as a whole or not at all;
//! what was written is read, by this one and after a restart; a fold tells each key of its range once, in order, as of
//! one moment.
//!
//! What an engine cannot do is refused with an error of its own kind ([`Error::Refused`], [`Error::TooLarge`]), never
//! done in part. Each has one store, of one owner, whose calls wait: what a thread that owns a shard needs. A foreign
//! engine does its own I/O and has threads of its own; it finds damage when its library does.
//!
//! A node serves from any of them, or from several for several bucket types (`node::store`). Left out so far: folds
//! over key segments and snapshots, as capabilities that are emulated where an engine has none.

mod annulet;
mod backend;
mod bitcask;
mod error;
#[cfg(feature = "fjall")]
mod fjall;
mod folder;
pub mod hash;
mod kind;
mod little;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "mdbx")]
mod mdbx;
mod memory;
pub mod packed;
#[cfg(feature = "foreign")]
mod pair;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
pub mod shared;
#[cfg(test)]
mod testing;
#[cfg(feature = "wiredtiger")]
mod wiredtiger;

pub use backend::{Backend, Item, Limits, Lookup, Object, Visit, What, Write};
pub use engine::{Damage, Durability, Jobs, Machine};
pub use error::Error;
pub use kind::{Kind, Settings};
