//! `annulet admin`: what operators do to a cluster.
//!
//! * `aae.rs`: hash trees of a node.
//! * `cert.rs`: certificates of nodes.
//! * `cluster.rs`: members of the cluster and changes of them.
//! * `compact.rs`: compaction of a node's stores.
//! * `diag.rs`: a file for whoever looks into a problem. `redact.rs`: without its secrets.
//! * `log.rs`: levels of a node's log. `login.rs`: HTTPS, and a user with a password.
//! * `http.rs`: requests to a running node.
//! * `purge.rs`: reaping and erasing.
//! * `security.rs`: users, groups, sources and grants.
//! * `service.rs`: waiting for a node.
//! * `slow.rs`: slow requests of a node.
//! * `stat.rs`: statistics of a node.
//! * `strong.rs`: groups of consistent bucket types. `recover.rs`: their recovery. `restored/`: that of restored nodes.
//! * `table.rs`: tables for people.
//! * `types.rs`: bucket types.

mod aae;
mod cert;
mod cluster;
mod compact;
mod diag;
pub(crate) mod http;
mod log;
pub(crate) mod login;
mod purge;
mod recover;
mod redact;
mod restored;
mod security;
mod service;
mod slow;
mod stat;
mod strong;
pub(crate) mod table;
mod types;

pub use cert::{DAYS_MAX, authority_files, make, make_clients, node_files};
pub(crate) use http::Endpoint;

use crate::failure::Failure;

/// Administration of a node or a cluster.
#[derive(clap::Args)]
pub struct Args {
    // It may stand before the command, too; the commands that ask a node have it.
    #[command(flatten)]
    _target: http::AdminTarget,
    #[command(subcommand)]
    command: Command,
}

/// The commands of `admin`.
#[derive(clap::Subcommand)]
enum Command {
    /// Make the certificate authority of a cluster, and a key and a certificate for each node. Existing files are
    /// kept.
    Cert(cert::CertArgs),
    /// Create, activate, change and show bucket types.
    #[command(subcommand)]
    BucketType(types::Command),
    /// Show a cluster's state; stage, preview and carry out changes of its members.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// List the members: state, share of the ring, reachability.
    MemberStatus(cluster::Shown),
    /// Show the ring, the leader and the voters.
    RingStatus(cluster::Shown),
    /// List the transfers to a node, and the nodes that a change waits for.
    Transfers(cluster::Shown),
    /// Show or change the limits of transfers.
    TransferLimit(cluster::Limit),
    /// Reap the tombstones of a bucket: deleted objects leave the disks once all members agree.
    #[command(subcommand)]
    Reap(purge::Command),
    /// Delete the objects of a bucket.
    #[command(subcommand)]
    Erase(purge::Command),
    /// Compact all waste of a node now, regardless of its schedule: deleted and overwritten data leaves the disk.
    Compact(compact::Args),
    /// Show the levels of a node's log, or set one until the node stops.
    Log(log::Args),
    /// Show the last slow requests of a node, or set the threshold until the node stops.
    Slow(slow::Args),
    /// Manage users, groups, sources and grants, in the words of riak-admin security.
    Security(security::Args),
    /// Show the statistics of a node, all or by name.
    Stat(stat::Args),
    /// Show the hash trees of each partition of a node: their age, their last comparison and its differences.
    AaeStatus(cluster::Shown),
    /// Compare the partitions of a node, or one of them, with the other replicas now, and repair the differences.
    AaeRepair(aae::Repair),
    /// Rebuild the hash trees of a node, or of one partition, from the stored data, to find lost objects.
    AaeRebuild(aae::Rebuild),
    /// Show the groups of consistent bucket types.
    #[command(subcommand)]
    Strong(strong::Command),
    /// The same as `strong status`, by Riak's name.
    EnsembleStatus(strong::Status),
    /// Write a file for whoever looks into a problem: options, figures, members, log lines, without secrets.
    Diag(diag::Args),
    /// Wait until a node is ready.
    WaitForService(service::Args),
}

/// Does it.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Cert(args) => cert::run(args),
        Command::BucketType(command) => types::run(command),
        Command::Cluster(command) => cluster::run(command),
        Command::MemberStatus(shown) => cluster::members(shown),
        Command::RingStatus(shown) => cluster::ring(shown),
        Command::Transfers(shown) => cluster::transfers(shown),
        Command::TransferLimit(limit) => cluster::limit(limit),
        Command::Reap(command) => purge::run("reap", command),
        Command::Erase(command) => purge::run("erase", command),
        Command::Compact(args) => compact::run(args),
        Command::Log(args) => log::run(args),
        Command::Slow(args) => slow::run(args),
        Command::Security(args) => security::run(args),
        Command::Stat(args) => stat::show(args),
        Command::AaeStatus(shown) => aae::status(shown),
        Command::AaeRepair(args) => aae::repair(args),
        Command::AaeRebuild(args) => aae::rebuild(args),
        Command::Strong(command) => strong::run(command),
        Command::EnsembleStatus(status) => strong::show(status),
        Command::Diag(args) => diag::run(args),
        Command::WaitForService(args) => service::wait(args),
    }
}
