//! The words of `riak-admin security`: parsed to a command, then planned as changes of records.
//!
//! 1. [`Command::parse`] reads the words, without a look at the policy.
//! 2. The caller hashes [`Command::password`], which needs a salt and time.
//! 3. [`Command::plan`] gives the changes, or Riak's text for the error.
//!
//! 4. [`Print::show`] gives the tables of a command that shows something.
//!
//! Invariants: a plan is a function of its arguments. A command that fails changes nothing.

mod imported;
mod parse;
mod plan;
mod show;

use bytes::Bytes;
use ipnet::IpNet;

use crate::credential::{Credential, PBKDF2_ROUNDS_MAX};
use crate::limits::UNLIMITED;
use crate::name::{Name, NameError};
use crate::permission::{Permission, Permissions};
use crate::slot::{Mode, OPTION_BYTES_MAX, Options, Resource};
use crate::source::Method;

pub use self::show::{Cell, Table, View};

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Makes a user.
    AddUser(Bytes, Settable),
    /// Changes the named options of a user.
    AlterUser(Bytes, Settable),
    /// Removes a user, with sources and grants.
    DelUser(Bytes),
    /// Makes a group.
    AddGroup(Bytes, Settable),
    /// Changes the named options of a group.
    AlterGroup(Bytes, Settable),
    /// Removes a group, with memberships and grants.
    DelGroup(Bytes),
    /// Makes or replaces a source of some users.
    AddSource(Vec<Bytes>, IpNet, Method, Options),
    /// Removes a source of some users.
    DelSource(Vec<Bytes>, IpNet),
    /// Grants permissions to roles.
    Grant(Permissions, Resource, Vec<Bytes>),
    /// Revokes permissions of roles.
    Revoke(Permissions, Resource, Vec<Bytes>),
    /// Shows something, and changes nothing.
    Print(Print),
    /// Sets the ciphers.
    SetCiphers(Bytes),
    /// Puts security in force, or takes it out of force.
    SetMode(Mode),
    /// Has a node go by its metadata log, though the mark that security is on is of a newer one. Changes no record.
    AcceptOlderLog,
    /// Replaces the verifier of a user, unless it was changed meanwhile. No words say this: a node does it after a
    /// login with an imported hash.
    Rehash {
        /// The user.
        user: Name,
        /// The verifier that is replaced.
        before: Credential,
        /// The one in its place, of the same password.
        after: Credential,
    },
}

/// A view of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Print {
    /// All users.
    Users,
    /// One user.
    User(Bytes),
    /// All groups.
    Groups,
    /// One group.
    Group(Bytes),
    /// All sources.
    Sources,
    /// The grants of a role.
    Grants(Bytes),
    /// The ciphers.
    Ciphers,
    /// Whether security is on.
    Status,
    /// Why a user has a permission on something, or has not.
    Explain(Bytes, Permission, Resource),
}

/// Options of a user or a group that are set; the others stay.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Settable {
    /// All groups, in place of those before.
    pub groups: Option<Vec<Bytes>>,
    /// The password of a user.
    pub password: Option<Bytes>,
    /// The verifier of a password that is imported, in place of a password.
    pub imported: Option<Credential>,
    /// Other options.
    pub options: Options,
}

/// Shows no password.
impl std::fmt::Debug for Settable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let password = self.password.as_ref().map(|_| "..");
        let mut fields = f.debug_struct("Settable");
        fields.field("groups", &self.groups).field("password", &password);
        fields.field("imported", &self.imported);
        fields.field("options", &self.options).finish()
    }
}

/// Why a command fails. Its `Display` is Riak's text, where Riak has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The words are no command.
    #[error("Usage: security {0}")]
    Usage(&'static str),
    /// An option is not of the form `key=value`.
    #[error("Invalid option {0}, options are of the form key=value")]
    Option(String),
    /// Nobody could log in and administer the cluster.
    #[error(
        "Security is not enabled: nobody could disable it again. Give a user a source, and grant annulet.admin on any"
    )]
    NoAdministrator,
    /// There are more options, or longer ones, than a record has.
    #[error("There are too many options, or one is too long")]
    Options,
    /// The value of a limit is none.
    #[error("{0} is a number of at least 1, or {UNLIMITED}")]
    Limit(String),
    /// A group has no limits.
    #[error("{0} is an option of users alone")]
    LimitOfGroup(String),
    /// A hash cannot be imported.
    #[error(
        "A password_hash is pbkdf2-hmac-sha1:ITERATIONS:SALT:HASH, with salt and hash in hexadecimal digits, 1 to \
         {PBKDF2_ROUNDS_MAX} iterations and a hash of 20 bytes; no password stands beside it"
    )]
    PasswordHash,
    /// A password is empty.
    #[error("A password must not be empty")]
    EmptyPassword,
    /// There is no such permission.
    #[error("Permission not recognized: {0}")]
    Permission(String),
    /// A network is none.
    #[error("Invalid CIDR: {0}")]
    Net(String),
    /// There is no such method.
    #[error("Source not recognized: {0}")]
    Method(String),
    /// The name of a bucket type or a bucket is empty, or too long.
    #[error("Invalid name of a bucket type or a bucket")]
    ResourceName,
    /// A name cannot be taken.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name is taken.
    #[error("This name is already in use")]
    InUse,
    /// There is no such user.
    #[error("User not recognized: {0}")]
    User(String),
    /// There is no such group.
    #[error("Group not recognized: {0}")]
    Group(String),
    /// There are no such users or groups.
    #[error("Name(s) not recognized: {0}")]
    Names(String),
    /// These are users and groups.
    #[error("Ambiguous names need to be prefixed with 'user/' or 'group/': {0}")]
    Ambiguous(String),
    /// The groups would be in each other.
    #[error("Group {0} would be in itself")]
    Cycle(String),
    /// A user or a group would be in too many groups.
    #[error("A user or a group is in at most {} groups", crate::slot::MEMBERSHIPS_MAX)]
    Memberships,
    /// Groups would be nested too deep, or a user would be in too many in all.
    #[error("Groups are nested too deep, or too many count for one user")]
    TooManyGroups,
}

impl Command {
    /// The password that the caller hashes before it plans.
    pub fn password(&self) -> Option<&[u8]> {
        match self {
            Command::AddUser(_, set) | Command::AlterUser(_, set) => set.password.as_deref(),
            _ => None,
        }
    }

    /// Sets the password of a user, as if it stood among the words: beside them it is in no list of processes.
    ///
    /// # Errors
    /// [`CommandError::EmptyPassword`]; [`CommandError::Usage`] for a command that has no password, or one already.
    pub fn set_password(&mut self, password: Bytes) -> Result<(), CommandError> {
        match self {
            _ if password.is_empty() => Err(CommandError::EmptyPassword),
            _ if password.len() > OPTION_BYTES_MAX => Err(CommandError::Options),
            Command::AddUser(_, set) | Command::AlterUser(_, set)
                if set.password.is_none() && set.imported.is_none() =>
            {
                set.password = Some(password);
                Ok(())
            }
            _ => Err(CommandError::Usage("add-user|alter-user <user> [options], with one password")),
        }
    }

    /// The sentence after a change, as Riak prints it; empty where Riak prints nothing.
    pub fn done(&self) -> String {
        let deleted = |name: &Bytes| format!("Successfully deleted {}", String::from_utf8_lossy(name));
        match self {
            Command::AddUser(..) | Command::AlterUser(..) => String::new(),
            Command::AddGroup(..) | Command::AlterGroup(..) => String::new(),
            Command::DelUser(name) | Command::DelGroup(name) => deleted(name),
            Command::AddSource(..) => "Successfully added source".to_owned(),
            Command::DelSource(..) => "Deleted source".to_owned(),
            Command::Grant(..) => "Successfully granted".to_owned(),
            Command::Revoke(..) => "Successfully revoked".to_owned(),
            Command::SetMode(Mode::On) => "Enabled".to_owned(),
            Command::SetMode(Mode::Permissive) => "Permissive".to_owned(),
            Command::SetMode(Mode::Off) => "Disabled".to_owned(),
            Command::AcceptOlderLog => "The node goes by its metadata log".to_owned(),
            Command::SetCiphers(_) | Command::Print(_) | Command::Rehash { .. } => String::new(),
        }
    }
}

#[cfg(test)]
mod tests;
