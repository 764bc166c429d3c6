//! `annulet admin`: what operators do to a cluster.
//!
//! * `aae.rs`: hash trees of a node.
//! * `cert.rs`: certificates of nodes.
//! * `cluster.rs`: members of the cluster and changes of them.
//! * `compact.rs`: compaction of a node's stores.
//! * `http.rs`: requests to a running node.
//! * `purge.rs`: reaping and erasing.
//! * `service.rs`: waiting for a node.
//! * `stat.rs`: statistics of a node.
//! * `table.rs`: tables for people.
//! * `types.rs`: bucket types.

mod aae;
mod cert;
mod cluster;
mod compact;
pub(crate) mod http;
mod purge;
mod service;
mod stat;
mod table;
mod types;

pub use cert::{authority_files, make, node_files};

use crate::failure::Failure;

/// What is administered, and by which node.
#[derive(clap::Args)]
pub struct Args {
    // It may stand before the command, too; the commands that ask a node have it.
    #[command(flatten)]
    _node: http::Node,
    #[command(subcommand)]
    command: Command,
}

/// What is administered.
#[derive(clap::Subcommand)]
enum Command {
    /// Make the certificate authority of a cluster, and a key and a certificate for each node. What is there already
    /// is kept.
    Cert(cert::CertArgs),
    /// Create, activate, change and show bucket types.
    #[command(subcommand)]
    BucketType(types::Command),
    /// Show a cluster's state, stage changes of its members, and see what they would do.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// List the members: state, share of the ring, whether they are reached.
    MemberStatus(cluster::Shown),
    /// Show the ring, and who leads and votes.
    RingStatus(cluster::Shown),
    /// List what is on its way to a node, and whom a change waits for.
    Transfers(cluster::Shown),
    /// Show how much transfers may take, or change it.
    TransferLimit(cluster::Limit),
    /// Reap the tombstones of a bucket: what was deleted goes from the disks, once all members agree.
    #[command(subcommand)]
    Reap(purge::Command),
    /// Delete the objects of a bucket.
    #[command(subcommand)]
    Erase(purge::Command),
    /// Compact all waste of a node, whatever its schedule: deleted and overwritten data leaves the disk.
    Compact(compact::Args),
    /// Show a node's statistics, all or some.
    Stat(stat::Args),
    /// Show how it stands with the hash trees of each partition of a node: when they were made and compared, what differed.
    AaeStatus(cluster::Shown),
    /// Have all that a node holds, or one partition, compared with what others hold now, and repaired.
    AaeRepair(aae::Repair),
    /// Have the hash trees of all that a node holds, or of one partition, made anew from what is stored, which finds what was lost.
    AaeRebuild(aae::Rebuild),
    /// Wait until a node serves.
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
        Command::Stat(args) => stat::show(args),
        Command::AaeStatus(shown) => aae::status(shown),
        Command::AaeRepair(args) => aae::repair(args),
        Command::AaeRebuild(args) => aae::rebuild(args),
        Command::WaitForService(args) => service::wait(args),
    }
}
