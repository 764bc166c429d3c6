//! From words to a command.

use bytes::Bytes;
use ipnet::IpNet;

use super::{Command, CommandError, Print, Settable, imported};
use crate::permission::{Permission, Permissions};
use crate::slot::{Mode, OPTION_BYTES_MAX, OPTIONS_MAX, Options, RESOURCE_NAME_BYTES_MAX, Resource};
use crate::source::{Method, normal_net};

const COMMANDS: &str = "add-user | alter-user | del-user | add-group | alter-group | del-group | add-source | \
     del-source | grant | revoke | print-users | print-user | print-groups | print-group | print-sources | \
     print-grants | explain | ciphers | status | enable | permissive | disable | accept-older-log";
const GRANT: &str = "grant <permissions> on any|<type> [bucket] to all|{<user>|<group>[,...]}";
const EXPLAIN: &str = "explain <user> <permission> any|<type> [bucket]";
const REVOKE: &str = "revoke <permissions> on any|<type> [bucket] from all|{<user>|<group>[,...]}";

impl Command {
    /// The command in words, the first of which names it.
    ///
    /// # Errors
    /// [`CommandError`], by the words alone.
    pub fn parse(words: &[&str]) -> Result<Command, CommandError> {
        Ok(match words {
            ["add-user", name, options @ ..] => Command::AddUser(copy(name), settable(options, true)?),
            ["alter-user", name, options @ ..] => Command::AlterUser(copy(name), settable(options, true)?),
            ["del-user", name] => Command::DelUser(copy(name)),
            ["add-group", name, options @ ..] => Command::AddGroup(copy(name), settable(options, false)?),
            ["alter-group", name, options @ ..] => Command::AlterGroup(copy(name), settable(options, false)?),
            ["del-group", name] => Command::DelGroup(copy(name)),
            ["add-source", users, cidr, name, options @ ..] => {
                let method = Method::named(name).ok_or_else(|| CommandError::Method((*name).to_owned()))?;
                Command::AddSource(list(users), net(cidr)?, method, options_of(options)?)
            }
            ["del-source", users, cidr] => Command::DelSource(list(users), net(cidr)?),
            ["grant", permissions, "on", rest @ ..] => {
                let (resource, roles) = resource_and_roles(rest, "to", GRANT)?;
                Command::Grant(permissions_of(permissions)?, resource, roles)
            }
            ["revoke", permissions, "on", rest @ ..] => {
                let (resource, roles) = resource_and_roles(rest, "from", REVOKE)?;
                Command::Revoke(permissions_of(permissions)?, resource, roles)
            }
            ["explain", user, permission, rest @ ..] => {
                let permission = Permission::named(permission)
                    .ok_or_else(|| CommandError::Permission((*permission).to_owned()))?;
                Command::Print(Print::Explain(copy(user), permission, resource(rest, EXPLAIN)?))
            }
            ["explain", ..] => return Err(CommandError::Usage(EXPLAIN)),
            ["grant", ..] => return Err(CommandError::Usage(GRANT)),
            ["revoke", ..] => return Err(CommandError::Usage(REVOKE)),
            ["ciphers", ciphers] if ciphers.len() <= OPTION_BYTES_MAX => Command::SetCiphers(copy(ciphers)),
            ["enable"] => Command::SetMode(Mode::On),
            ["permissive"] => Command::SetMode(Mode::Permissive),
            ["disable"] => Command::SetMode(Mode::Off),
            ["accept-older-log"] => Command::AcceptOlderLog,
            other => Command::Print(print(other).ok_or(CommandError::Usage(COMMANDS))?),
        })
    }
}

fn print(words: &[&str]) -> Option<Print> {
    Some(match words {
        ["print-users"] => Print::Users,
        ["print-user", name] => Print::User(copy(name)),
        ["print-groups"] => Print::Groups,
        ["print-group", name] => Print::Group(copy(name)),
        ["print-sources"] => Print::Sources,
        ["print-grants", name] => Print::Grants(copy(name)),
        ["ciphers"] => Print::Ciphers,
        ["status"] => Print::Status,
        _ => return None,
    })
}

fn copy(word: &str) -> Bytes {
    Bytes::copy_from_slice(word.as_bytes())
}

fn list(words: &str) -> Vec<Bytes> {
    words.split(',').filter(|word| !word.is_empty()).map(copy).collect()
}

fn net(cidr: &str) -> Result<IpNet, CommandError> {
    cidr.parse().map(normal_net).map_err(|_| CommandError::Net(cidr.to_owned()))
}

fn permissions_of(names: &str) -> Result<Permissions, CommandError> {
    let named = |name| Permission::named(name).ok_or_else(|| CommandError::Permission(name.to_owned()));
    names.split(',').map(named).collect()
}

/// Reads `any|<type> [bucket] <word> <roles>`.
fn resource_and_roles(
    words: &[&str],
    word: &str,
    usage: &'static str,
) -> Result<(Resource, Vec<Bytes>), CommandError> {
    let [of_resource @ .., between, roles] = words else { return Err(CommandError::Usage(usage)) };
    if *between != word {
        return Err(CommandError::Usage(usage));
    }
    Ok((resource(of_resource, usage)?, list(roles)))
}

/// Reads `any|<type> [bucket]`.
fn resource(words: &[&str], usage: &'static str) -> Result<Resource, CommandError> {
    let resource = match words {
        ["any"] => Resource::Any,
        [bucket_type] => Resource::Type(copy(bucket_type)),
        [bucket_type, bucket] if *bucket_type != "any" => Resource::Bucket(copy(bucket_type), copy(bucket)),
        _ => return Err(CommandError::Usage(usage)),
    };
    let is_name = |name: &Bytes| (1..=RESOURCE_NAME_BYTES_MAX).contains(&name.len());
    let names = match &resource {
        Resource::Any => true,
        Resource::Type(bucket_type) => is_name(bucket_type),
        Resource::Bucket(bucket_type, bucket) => is_name(bucket_type) && is_name(bucket),
    };
    if names { Ok(resource) } else { Err(CommandError::ResourceName) }
}

fn options_of(words: &[&str]) -> Result<Options, CommandError> {
    let mut options = Options::new();
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| CommandError::Option((*word).to_owned()))?;
        if name.len() > OPTION_BYTES_MAX || value.len() > OPTION_BYTES_MAX {
            return Err(CommandError::Options);
        }
        options.insert(copy(name), copy(value));
    }
    if options.len() > OPTIONS_MAX { Err(CommandError::Options) } else { Ok(options) }
}

/// Options of a user, or of a group, which has no password.
fn settable(words: &[&str], is_user: bool) -> Result<Settable, CommandError> {
    let mut options = options_of(words)?;
    let groups = options.remove(&b"groups"[..]).map(|groups| list(&String::from_utf8_lossy(&groups)));
    let password = if is_user { options.remove(&b"password"[..]) } else { None };
    if password.as_ref().is_some_and(Bytes::is_empty) {
        return Err(CommandError::EmptyPassword);
    }
    let hash = if is_user { options.remove(&b"password_hash"[..]) } else { None };
    let imported = hash.map(|hash| imported::read(&hash)).transpose()?;
    if imported.is_some() && password.is_some() {
        return Err(CommandError::PasswordHash);
    }
    Ok(Settable { groups, password, imported, options })
}
