//! Why a command ends without success: an exit code and one line for a person.

use crate::terms;
use std::io::{self, ErrorKind};
use std::path::Path;

/// It failed, or there is no such object.
pub const FAILED: u8 = 1;

/// The command cannot be run as given.
pub const UNUSABLE: u8 = 2;

/// The object has siblings and none was chosen.
pub const SIBLINGS: u8 = 3;

/// How a command ended, if not well.
#[derive(Debug)]
pub struct Failure {
    /// The process's exit code.
    pub code: u8,
    /// What to print; nothing when all has been said.
    pub text: String,
}

impl Failure {
    /// A failure with a line of text.
    pub fn new(code: u8, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into() }
    }
}

/// Refuses a path that is a symbolic link to nowhere, or leads over one.
pub fn check_links(path: &Path) -> Result<(), Failure> {
    os::dangling_link(path).map_or(Ok(()), |what| Err(Failure::new(UNUSABLE, what)))
}

/// Of standard input and output. A reader that has left (`annulet kv ls | head`) has what it wanted.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            ErrorKind::BrokenPipe => Failure::new(0, ""),
            _ => Failure::new(FAILED, error.to_string()),
        }
    }
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Failure {
        match error {
            client::Error::Server(answer) => Failure::new(FAILED, terms::explained(&answer)),
            error => Failure::new(FAILED, error.to_string()),
        }
    }
}

/// Why a node cannot be reached, and what to do about it.
pub fn unreachable(address: &str, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::ConnectionRefused => {
            "; no node listens there: `annulet serve` starts one, and --node or ANNULET_NODE names another"
        }
        // An error without the system's number, which a connection has, is of the resolver.
        kind if kind != ErrorKind::TimedOut && error.raw_os_error().is_none() => {
            "; --node and ANNULET_NODE name a node by its host and port, such as localhost:8098"
        }
        _ => "",
    };
    Failure::new(FAILED, format!("cannot connect to {address}: {error}{advice}"))
}

/// Why the local socket of a node cannot be reached, and the way to do so.
pub fn no_local_node(data: &Path, error: &io::Error) -> Failure {
    let data = data.display();
    let what = match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            format!(
                "no node runs on the data folder {data} of this machine ({error}); --node names one by its address"
            )
        }
        ErrorKind::PermissionDenied => {
            format!("{data}: {error}: only the node's user and root may use its local socket")
        }
        _ => format!("{data}: {error}"),
    };
    Failure::new(FAILED, what)
}
