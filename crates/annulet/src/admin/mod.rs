//! `annulet admin`: what operators do to a cluster.
//!
//! * `cert.rs`: certificates for its nodes. * `types.rs`: bucket types. * `http.rs`: how a running node is asked.

mod cert;
pub(crate) mod http;
mod types;

pub use cert::{authority_files, make, node_files};

use crate::failure::Failure;

/// What is administered.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Make the certificate authority of a cluster, and a key and a certificate for each node. What is there already
    /// is kept.
    Cert(cert::CertArgs),
    /// Create, activate, change and show bucket types.
    #[command(subcommand)]
    BucketType(types::Command),
}

/// Does it.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Cert(args) => cert::run(args),
        Command::BucketType(command) => types::run(command),
    }
}
