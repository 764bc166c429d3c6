//! The shell: sockets, threads, configuration, statistics. It decides nothing about data.
//!
//! Each shard has a thread with a tokio runtime of its own, a listener of its own on the shared port
//! (`SO_REUSEPORT`), and the connections that the kernel gives to that listener. A connection hands requests to
//! its own thread's shard by a call, not a message; what belongs to another shard hops there in a mailbox,
//! together with whatever else this turn sends there.
//!
//! * `serve.rs`: start and stop. `data_folder.rs`: the data that is there. `signals.rs`: signals that it heeds.
//!   `client_ports.rs`: the listeners of clients. `admin_socket.rs`: the local socket.
//! * `common.rs`: the parts that all threads share. `shard_threads.rs`: the shards' threads, for the main thread.
//!   `thread.rs`: a shard's thread. `shard_store.rs`: its store, opened. `shard_loop.rs`: its loop. `accept.rs`: its
//!   doors for clients. `local.rs`: the part of it that connections and the loop share. `mailbox.rs`: messages between
//!   threads.
//! * `socket.rs`, `stream.rs`: a client's connection, in plaintext or under TLS. `pb.rs`, `http.rs`: connections of
//!   Riak's protocol buffers and its HTTP. `connections.rs`, `pace.rs`: the time that each may take.
//!   `connection_end.rs`: its end in a stop. `input.rs`: the buffer that each reads into. `connects.rs`: the number of
//!   connections.
//! * `peer/`: links between the nodes of a cluster. `membership/`: what these agree on.
//! * `backup.rs`: backups while it serves. `trees.rs`: its hash trees, for operators.
//!   `purge.rs`: tombstones and objects that operators have removed.
//! * `memory/`: how much memory the node may use and how that is divided. `unsent.rs`: answers that clients have not
//!   taken.
//! * `security/`: the policy in force, the guard of the doors, logins, and hashes of passwords.
//! * `progress.rs`: the stages of a node, for its supervisor.
//! * `levels.rs`: levels of the log. `audit.rs`: changes of operators.
//! * `stats.rs`: what `/stats` says. `node_stats.rs`: its collection from all threads. `metrics.rs`: the same for
//!   Prometheus. `targets.rs`: where that finds the members. `verdict.rs`: the state of the node in words. `health.rs`:
//!   the answers for balancers. `drain.rs`: their wait. `config.rs`: what it is told.

mod accept;
pub mod admin_socket;
mod audit;
pub mod backup;
mod client_ports;
mod common;
mod compact;
mod compute_threads;
pub mod config;
mod connection_end;
mod connections;
mod connects;
mod data_folder;
mod drain;
mod error;
mod figure_pages;
mod groups;
mod health;
mod http;
mod input;
mod levels;
mod listen;
mod local;
mod machine;
mod mailbox;
mod membership;
mod memory;
mod metrics;
mod node_stats;
mod pace;
mod pb;
pub mod peer;
mod proc_file;
mod process;
mod progress;
mod purge;
mod security;
mod serve;
mod shard_loop;
mod shard_store;
mod shard_threads;
mod signals;
mod slow;
mod socket;
mod stats;
mod store_figures;
mod stream;
mod system;
mod targets;
mod thread;
mod trees;
mod unsent;
mod verdict;

pub use config::Config;
pub use data_folder::shards_default;
pub use error::Error;
pub use levels::LogLevels;
pub use membership::StoppedNode;
pub use memory::{LimitSource, MemoryLimit};
pub use progress::{Progress, Stage};
pub use security::certificate_user;
pub use serve::{Started, serve};
