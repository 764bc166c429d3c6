//! Why a node does not start, or did not stop cleanly.

use crate::membership::FilesError;
use os::Address;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A server error. All are fatal; each names what a person has to change.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be listened on.
    #[error("{option}: cannot listen on {address}: {cause}{}", listen_advice(cause))]
    Listen {
        /// The option that names the address.
        option: &'static str,
        /// The address.
        address: Address,
        /// What the system said.
        cause: io::Error,
    },
    /// The name of an address to listen on is not resolved.
    #[error(
        "{option}: cannot listen on {address}: the name is not resolved ({cause}): give a name or an address of this \
         machine, or 0.0.0.0 for all its addresses"
    )]
    ListenName {
        /// The option that names the address.
        option: &'static str,
        /// The address.
        address: Address,
        /// What the system's resolver said.
        cause: io::Error,
    },
    /// The data folder was made with another layout than was asked for.
    #[error("the data in {} was made with {what} = {has}, not {asked}", data.display())]
    Layout {
        /// The data folder.
        data: PathBuf,
        /// Which option.
        what: &'static str,
        /// What it was made with.
        has: String,
        /// What was asked for.
        asked: String,
    },
    /// The data folder is of another cluster, or of a node alone.
    #[error("the data in {} is of {has}, but this node is to be of {asked}", data.display())]
    Members {
        /// The data folder.
        data: PathBuf,
        /// Whose it is.
        has: String,
        /// Whose it was to be.
        asked: String,
    },
    /// Another process has the data folder.
    #[error("another process is using the data in {}", .0.display())]
    Locked(PathBuf),
    /// A store cannot be opened or closed.
    #[error("the data in {}: {cause}{}", folder.display(), store_advice(cause))]
    Store {
        /// The store's folder.
        folder: PathBuf,
        /// Why.
        cause: engine::Error,
    },
    /// Options do not fit together, or not the data folder.
    #[error("{0}: {1}")]
    Options(&'static str, String),
    /// Clients of other machines would be served without a login.
    #[error(
        "{option}: {address}: other machines reach this address, and security is {mode}, so that every client may \
         read, write and administer: listen at a loopback address, or turn security on first (start at loopback \
         addresses for that), or set --insecure if each client that reaches the address is trusted"
    )]
    Exposed {
        /// The option that names the address.
        option: &'static str,
        /// The address.
        address: SocketAddr,
        /// The mode of security.
        mode: &'static str,
    },
    /// A certificate or a key is of no use.
    #[error(transparent)]
    Tls(#[from] crate::peer::TlsError),
    /// This node cannot take part in its cluster.
    #[error("{0}")]
    Membership(String),
    /// A thread, a signal handler or the like could not be had.
    #[error("{0}: {1}")]
    System(&'static str, std::io::Error),
}

impl From<FilesError> for Error {
    fn from(error: FilesError) -> Error {
        match error {
            FilesError::Locked(path) => Error::Locked(path),
            other => Error::Membership(other.to_string()),
        }
    }
}

/// The remedy where a store cannot be opened or closed.
fn store_advice(cause: &engine::Error) -> &'static str {
    match cause {
        engine::Error::Damaged(_) => {
            ": `annulet check --repair` rebuilds tables from the journal, and --accept-loss gives the rest up, which \
             other replicas may have"
        }
        _ => "",
    }
}

/// What to do where an address cannot be listened on.
fn listen_advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrNotAvailable => {
            ": not an address of this machine; give one of its addresses, or 0.0.0.0 for all of them"
        }
        io::ErrorKind::AddrInUse => ": another process listens there; give another port",
        _ => "",
    }
}
