//! The login of a scenario's load, at nodes whose security is on.

use serde::Deserialize;
use std::path::PathBuf;

/// The files of a login, and the user. Paths are from the working directory, as in the options of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginFiles {
    /// Certificate authority of the client ports.
    pub ca: PathBuf,
    /// The user; that of the certificate if it is not said.
    pub user: Option<String>,
    /// File whose first line is the password.
    pub password_file: Option<PathBuf>,
    /// Client certificate of the user.
    pub cert: Option<PathBuf>,
    /// Key of the certificate.
    pub key: Option<PathBuf>,
}
