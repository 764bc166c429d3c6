//! A node's configuration, and the origin of each option.
//!
//! [`SETTINGS`] is the table of options. The name of an option is its key in the file; its flag and its environment
//! variable follow from it. [`Config::load`] lays four layers over one another: defaults, `annulet.toml`, environment,
//! flags. The last layer that has an option counts.
//!
//! Invariants: an unknown key in the file is refused, with its line, since a misspelt option that is passed over is
//! worse than a node that does not start; an unknown `ANNULET_` variable is only warned of, for it may be meant for
//! another program. Each layer is text until the type of the option reads it, so all layers take the same texts.

mod client_tls;
mod cluster;
mod settings;
#[cfg(test)]
mod tests;
mod values;

pub use cluster::{Cluster, Member, NODE_NAME_BYTES_MAX, check_node_name};
pub use settings::{Config, SETTINGS, Setting};
pub(crate) use settings::{read_slow, show_slow};
pub use values::{LogFormat, SettingValue, Size};

use node::Rebuilding;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// The file that is read when none is named, if it is there.
pub const FILE_DEFAULT: &str = "annulet.toml";

/// What the environment variables begin with.
pub const VARIABLE_PREFIX: &str = "ANNULET_";

/// Variables that are no options of a node: the file's name, the log's level, the node that the command line asks
/// (`ANNULET_ADDRESS` and `ANNULET_HTTP` were its names in older versions), and its login there.
const OTHER_VARIABLES: [&str; 10] = [
    FILE_VARIABLE,
    "ANNULET_LOG",
    "ANNULET_NODE",
    "ANNULET_ADDRESS",
    "ANNULET_HTTP",
    "ANNULET_CA",
    "ANNULET_USER",
    "ANNULET_PASSWORD_FILE",
    "ANNULET_CERT",
    "ANNULET_KEY",
];

/// The variable that names the file.
const FILE_VARIABLE: &str = "ANNULET_CONFIG";

/// The folder of backups in a data folder, if the configuration names no other.
const BACKUP_FOLDER: &str = "backups";

/// The origin of an option's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No layer has it.
    Default,
    /// A line of a file.
    File(PathBuf, usize),
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => write!(out, "default"),
            Origin::File(path, line) => write!(out, "{}:{line}", path.display()),
            Origin::Environment(name) | Origin::Flag(name) => write!(out, "{name}"),
        }
    }
}

/// A value that cannot be, or a file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct ConfigError {
    /// The flag, variable, or file and line.
    pub place: String,
    /// What is wrong there.
    pub what: String,
}

impl ConfigError {
    fn new(place: impl fmt::Display, what: impl Into<String>) -> ConfigError {
        ConfigError { place: place.to_string(), what: what.into() }
    }

    /// An error of an option. A flag and a variable name the option themselves.
    fn of_option(name: &str, origin: &Origin, what: String) -> ConfigError {
        match origin {
            Origin::Default => ConfigError::new(name, what),
            Origin::File(..) => ConfigError::new(origin, format!("{name}: {what}")),
            Origin::Environment(_) | Origin::Flag(_) => ConfigError::new(origin, what),
        }
    }
}

/// A configuration with its origins.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// The origins of [`SETTINGS`], in their order.
    pub origins: Vec<Origin>,
    /// Variables that look like options and are none.
    pub unknown_variables: Vec<String>,
}

impl Config {
    /// The folder below which backups lie.
    pub fn backup_root(&self) -> PathBuf {
        self.backup_dir.clone().unwrap_or_else(|| self.data.join(BACKUP_FOLDER))
    }

    /// The rebuilds of hash trees.
    pub fn rebuilding(&self) -> Rebuilding {
        Rebuilding {
            every: self.tree_rebuild,
            check: self.tree_rebuild_check,
            turns: self.tree_rebuild_turns,
        }
    }

    /// Lays the layers over one another. `flags` are options' names with their text; `file` is the file that was
    /// asked for, which must be there.
    pub fn load(
        flags: Vec<(&'static str, String)>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        file: Option<&Path>,
    ) -> Result<Loaded, ConfigError> {
        let origins = vec![Origin::Default; SETTINGS.len()];
        let mut loaded = Loaded { config: Config::default(), origins, unknown_variables: Vec::new() };

        let variables = variables(environment)?;
        let named = variables.iter().find(|(name, _)| name == FILE_VARIABLE).map(|(_, path)| Path::new(path));
        // A link that leads nowhere was meant to be a file.
        let present = || Some(Path::new(FILE_DEFAULT)).filter(|path| path.symlink_metadata().is_ok());
        if let Some(path) = file.or(named).or_else(present) {
            loaded.read_file(path)?;
        }

        for (name, text) in &variables {
            match SETTINGS.iter().position(|setting| setting.variable() == *name) {
                Some(at) => loaded.set(at, text, Origin::Environment(name.clone()))?,
                None if OTHER_VARIABLES.contains(&&**name) => {}
                None => loaded.unknown_variables.push(name.clone()),
            }
        }

        for (name, text) in flags {
            let at = index_of(name).expect("flags are made from the settings");
            loaded.set(at, &text, Origin::Flag(format!("--{}", SETTINGS[at].flag())))?;
        }

        // The options of a cluster, and those of TLS, must fit together, wherever each of them comes from.
        let alone = |(name, what)| {
            let at = index_of(name).expect("it is one of the settings");
            ConfigError::of_option(name, &loaded.origins[at], what)
        };
        loaded.config.cluster().map_err(alone)?;
        loaded.config.client_tls().map_err(alone)?;
        Ok(loaded)
    }
}

impl Loaded {
    fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            ConfigError::new(path.display(), os::dangling_link(path).unwrap_or_else(|| error.to_string()))
        })?;
        self.read_text(&text, path)
    }

    fn read_text(&mut self, text: &str, path: &Path) -> Result<(), ConfigError> {
        let origin_at = |at: usize| {
            let lines_before = text.bytes().take(at).filter(|&byte| byte == b'\n').count();
            Origin::File(path.to_path_buf(), lines_before + 1)
        };
        let malformed = |error: toml::de::Error| {
            ConfigError::new(origin_at(error.span().map_or(0, |span| span.start)), error.message())
        };
        let table = DeTable::parse(text).map_err(malformed)?;

        let mut entries: Vec<_> = table.get_ref().iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let (origin, key) = (origin_at(key.span().start), key.get_ref());
            let at = index_of(key).ok_or_else(|| unknown_key(key, &origin))?;
            match value.get_ref() {
                DeValue::String(text) => self.set(at, text, origin)?,
                DeValue::Integer(number) if number.radix() == 10 => self.set(at, number.as_str(), origin)?,
                DeValue::Boolean(flag) => self.set(at, &flag.to_string(), origin)?,
                _ => {
                    let what = format!("{key} must be a number or a text in quotes");
                    return Err(ConfigError::new(origin, what));
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, at: usize, text: &str, origin: Origin) -> Result<(), ConfigError> {
        let read = SETTINGS[at].set(&mut self.config, text);
        read.map_err(|what| ConfigError::of_option(SETTINGS[at].name, &origin, what))?;
        self.origins[at] = origin;
        Ok(())
    }
}

fn index_of(name: &str) -> Option<usize> {
    SETTINGS.iter().position(|setting| setting.name == name)
}

fn unknown_key(key: &str, origin: &Origin) -> ConfigError {
    let known: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
    let meant = kv::closest(key, known.iter().copied()).map(|meant| format!("; did you mean {meant}?"));
    let (meant, known) = (meant.unwrap_or_default(), known.join(", "));
    ConfigError::new(origin, format!("unknown key {key:?}{meant}; the keys are {known}"))
}

/// The variable that may have been meant by one that is no option.
pub fn variable_meant_by(variable: &str) -> Option<String> {
    let name = variable.strip_prefix(VARIABLE_PREFIX)?;
    let known = SETTINGS.iter().map(|setting| setting.name).chain(["config", "log", "node"]);
    kv::closest(name, known).map(|meant| format!("{VARIABLE_PREFIX}{}", meant.to_ascii_uppercase()))
}

/// The variables that are meant for us.
fn variables(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<(String, String)>, ConfigError> {
    let ours = environment.into_iter().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| name.starts_with(VARIABLE_PREFIX))?;
        let failed = |_| ConfigError::new(&name, "the value is not UTF-8");
        Some(value.into_string().map_err(failed).map(|value| (name, value)))
    });
    ours.collect()
}
