//! What a node is told when it starts, and where it is told so.
//!
//! Each option has one row in a table ([`SETTINGS`]): its flag, its environment variable and its key in the file
//! follow from its name, and one function reads its text wherever that comes from. [`Config::load`] lays four
//! layers over one another: default, `annulet.toml`, environment, flags. The last one that says something counts,
//! and what each option came from is kept for the log.
//!
//! Invariants: an unknown key in the file is refused, with its line, since a misspelt option that is passed over
//! is worse than a node that does not start; an unknown `ANNULET_` variable is only warned of, for it may be
//! meant for another program.

mod cluster;
mod file;
mod settings;
#[cfg(test)]
mod tests;

pub use cluster::{Cluster, Member, NODE_NAME_BYTES_MAX, check_node_name};
pub use settings::{SETTINGS, Setting};

use backends::Kind;
use engine::{Codec, CompressAt, Durability};
use kv::ReadStrategy;
use node::Rebuilding;
use node::http::HostName;
use node::store::TypeBackends;
use os::Address;
use ring::RingSize;
use std::ffi::OsString;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that is read when none is named, if it is there.
pub const FILE_DEFAULT: &str = "annulet.toml";

/// What the environment variables begin with.
pub const VARIABLE_PREFIX: &str = "ANNULET_";

/// Variables that are no options of a node: the file's name, the log's level, and which node the command line
/// asks (the last two were its names in older versions).
const OTHER_VARIABLES: [&str; 5] = ["CONFIG", "LOG", "NODE", "ADDRESS", "HTTP"];

/// Connections at a time unless said otherwise: each costs a few kilobytes and a file descriptor, of which a
/// process commonly may have 2^16 and more.
const CONNECTIONS_MAX_DEFAULT: usize = 10_000;

/// A client that is there uses its pooled connections within the hour; one that is gone gives its place back.
const IDLE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(3600);

/// How long a tombstone is kept: Riak's default.
const DELETE_DELAY_DEFAULT: Duration = Duration::from_secs(3);

/// How often nodes compare what they hold: what a quiet cluster pays is one question to each neighbour.
const ANTI_ENTROPY_DEFAULT: Duration = Duration::from_secs(60);

/// What becomes of tombstones that all primaries have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteMode {
    /// They are kept, and other nodes may not reap them either.
    Keep,
    /// They are reaped when they are so old.
    After(Duration),
}

impl DeleteMode {
    /// How old they must be; `None` if they are kept.
    pub fn delay(self) -> Option<Duration> {
        match self {
            DeleteMode::Keep => None,
            DeleteMode::After(delay) => Some(delay),
        }
    }
}

/// A node's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data folder.
    pub data: PathBuf,
    /// Where Riak's protocol buffers are served.
    pub pb_listen: Address,
    /// Where HTTP is served.
    pub http_listen: Address,
    /// Names of the node in HTTP's `Host` header, beside its addresses.
    pub http_hosts: Vec<HostName>,
    /// Whether it is meant that clients beyond this machine are not authenticated.
    pub insecure: bool,
    /// The node's name, as `name@host`.
    pub name: String,
    /// Partitions of the ring of a new data folder; an existing one must agree. `None`: what is there, or the
    /// default.
    pub ring_size: Option<RingSize>,
    /// Shards of a new data folder; an existing one must agree. `None`: what is there, or the default.
    pub shards: Option<u16>,
    /// The backend of a new data folder; an existing one must agree. `None`: what is there, or annulet's own.
    pub backend: Option<Kind>,
    /// The bucket types of a new data folder with stores of their own, and their backends; an existing one must agree. `None`: those of what is
    /// there, or none.
    pub type_backends: Option<TypeBackends>,
    /// When a write is acknowledged.
    pub durability: Durability,
    /// How reads ask their replicas while the node is not too busy.
    pub read_form: ReadStrategy,
    /// What becomes of tombstones.
    pub delete_mode: DeleteMode,
    /// How often all that the node holds is compared with what others hold; `None` for never.
    pub anti_entropy: Option<Duration>,
    /// When the hashes for that are made anew from what is stored.
    pub rebuilding: Rebuilding,
    /// Under [`Durability::Interval`]: how long a write may wait for its sync.
    pub sync_interval: Duration,
    /// How values are compressed.
    pub compression: Option<Codec>,
    /// And when.
    pub compress_at: CompressAt,
    /// The level at which Zstandard compresses.
    pub zstd_level: i32,
    /// Bytes of memory to plan with. `None`: what the machine has, or the process may use.
    pub memory: Option<u64>,
    /// Bytes of a memtable, of which each shard has up to three. `None`: by the memory.
    pub memtable: Option<u64>,
    /// Bytes of table blocks that each shard keeps. `None`: by the memory.
    pub block_cache: Option<u64>,
    /// How large the journal may be, in per cent of the bytes in it that are of use.
    pub space_target: u64,
    /// Free bytes of the disk that are kept back. `None`: by the number of shards.
    pub disk_reserve: Option<u64>,
    /// Within this time all that is stored is read again once; zero for never.
    pub scrub_period: Duration,
    /// How long compacted segments are kept aside.
    pub waste_retention: Duration,
    /// Below it lie the backups that are asked for while the node runs. `None`: in the data folder.
    pub backup_dir: Option<PathBuf>,
    /// Connections at a time, of both protocols together.
    pub connections_max: usize,
    /// A connection that says nothing for so long is closed.
    pub idle_timeout: Duration,
    /// The nodes that found a cluster by name, this one among them. None, and nobody to [`Config::join`]: the node is alone.
    pub cluster: Vec<Member>,
    /// Where members of a cluster listen that it joins.
    pub join: Vec<Address>,
    /// What may fail as a whole with the node, when it joins.
    pub zone: String,
    /// What its share of the partitions is in proportion to, when it joins.
    pub weight: u16,
    /// Where other nodes connect to.
    pub peer_listen: Option<Address>,
    /// Where they reach it, if not there.
    pub peer_address: Option<Address>,
    /// The certificate of the cluster's certificate authority.
    pub peer_ca: Option<PathBuf>,
    /// This node's certificate.
    pub peer_cert: Option<PathBuf>,
    /// The key of that certificate.
    pub peer_key: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            data: PathBuf::from("./annulet-data"),
            pb_listen: Address::from((Ipv4Addr::LOCALHOST.into(), 8087)),
            http_listen: Address::from((Ipv4Addr::LOCALHOST.into(), 8098)),
            http_hosts: Vec::new(),
            insecure: false,
            name: "annulet@127.0.0.1".to_owned(),
            ring_size: None,
            shards: None,
            backend: None,
            type_backends: None,
            durability: Durability::Sync,
            read_form: ReadStrategy::LocalValue,
            delete_mode: DeleteMode::After(DELETE_DELAY_DEFAULT),
            anti_entropy: Some(ANTI_ENTROPY_DEFAULT),
            rebuilding: Rebuilding::default(),
            sync_interval: Duration::from_secs(1),
            compression: None,
            compress_at: CompressAt::Receipt,
            zstd_level: engine::Options::default().zstd_level,
            memory: None,
            disk_reserve: None,
            scrub_period: engine::Options::default().scrub_period,
            waste_retention: Duration::ZERO,
            backup_dir: None,
            memtable: None,
            block_cache: None,
            space_target: engine::Options::default().space_target_percent,
            connections_max: CONNECTIONS_MAX_DEFAULT,
            idle_timeout: IDLE_TIMEOUT_DEFAULT,
            cluster: Vec::new(),
            join: Vec::new(),
            zone: String::new(),
            weight: ring::WEIGHT_DEFAULT,
            peer_listen: None,
            peer_address: None,
            peer_ca: None,
            peer_cert: None,
            peer_key: None,
        }
    }
}

/// Where an option's value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
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

/// The variable that may have been meant by one that is no option.
pub fn variable_meant_by(variable: &str) -> Option<String> {
    let name = variable.strip_prefix(VARIABLE_PREFIX)?;
    let known = SETTINGS.iter().map(|setting| setting.name).chain(["config", "log", "node"]);
    kv::closest(name, known).map(|meant| format!("{VARIABLE_PREFIX}{}", meant.to_ascii_uppercase()))
}

/// A configuration, and how it came about.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Where each of [`SETTINGS`] came from, in their order.
    pub origins: Vec<Origin>,
    /// Variables that look like options and are none.
    pub unknown_variables: Vec<String>,
}

/// The folder of backups in a data folder, if the configuration names no other.
const BACKUP_FOLDER: &str = "backups";

impl Config {
    /// The folder below which backups lie.
    pub fn backup_root(&self) -> PathBuf {
        self.backup_dir.clone().unwrap_or_else(|| self.data.join(BACKUP_FOLDER))
    }

    /// Lays the layers over one another. `flags` are options' names with their text; `file` is the file that was
    /// asked for, which must be there.
    pub fn load(
        flags: Vec<(&'static str, String)>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        file: Option<&Path>,
    ) -> Result<Loaded, ConfigError> {
        let mut loaded = Loaded {
            config: Config::default(),
            origins: vec![Origin::Default; SETTINGS.len()],
            unknown_variables: Vec::new(),
        };
        let variables = variables(environment)?;
        let named = variables.iter().find(|(name, _)| name == "CONFIG").map(|(_, path)| PathBuf::from(path));
        match file.map(Path::to_path_buf).or(named) {
            Some(path) => loaded.read_file(&path)?,
            // A link that leads nowhere was meant to be a file.
            None if Path::new(FILE_DEFAULT).symlink_metadata().is_ok() => {
                loaded.read_file(Path::new(FILE_DEFAULT))?;
            }
            None => {}
        }
        for (name, text) in variables {
            let variable = format!("{VARIABLE_PREFIX}{name}");
            match Setting::named(&name.to_ascii_lowercase()) {
                Some(_) if name != name.to_ascii_uppercase() => loaded.unknown_variables.push(variable),
                Some(setting) => loaded.set(setting, &text, Origin::Environment(variable))?,
                None if OTHER_VARIABLES.contains(&&*name) => {}
                None => loaded.unknown_variables.push(variable),
            }
        }
        for (name, text) in flags {
            let setting = Setting::named(name).expect("flags are made from the settings");
            loaded.set(setting, &text, Origin::Flag(format!("--{}", setting.flag)))?;
        }
        loaded.check_cluster()?;
        Ok(loaded)
    }
}

impl Loaded {
    /// The options of a cluster must fit together, wherever each of them comes from.
    fn check_cluster(&self) -> Result<(), ConfigError> {
        let Err((name, what)) = self.config.cluster() else { return Ok(()) };
        let at = SETTINGS.iter().position(|setting| setting.name == name);
        let place = match &self.origins[at.expect("it is one of the settings")] {
            Origin::Default => name.to_owned(),
            origin @ Origin::File(..) => format!("{origin}: {name}"),
            origin => origin.to_string(),
        };
        Err(ConfigError { place, what })
    }

    fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let failed = |error: std::io::Error| ConfigError {
            place: path.display().to_string(),
            what: os::dangling_link(path).unwrap_or_else(|| error.to_string()),
        };
        let text = std::fs::read_to_string(path).map_err(failed)?;
        self.read_text(&text, path)
    }

    fn read_text(&mut self, text: &str, path: &Path) -> Result<(), ConfigError> {
        for (line, key, value) in file::entries(text, path)? {
            let origin = Origin::File(path.to_path_buf(), line);
            let setting = Setting::named(&key).ok_or_else(|| file::unknown_key(&key, &origin))?;
            let value = value.ok_or_else(|| ConfigError {
                place: origin.to_string(),
                what: format!("{key} must be a number or a text in quotes"),
            })?;
            self.set(setting, &value, origin)?;
        }
        Ok(())
    }

    fn set(&mut self, setting: &Setting, text: &str, origin: Origin) -> Result<(), ConfigError> {
        if let Err(what) = setting.set(&mut self.config, text) {
            // A flag and a variable name the option themselves.
            let key = if matches!(origin, Origin::File(..)) {
                format!("{}: ", setting.name)
            } else {
                String::new()
            };
            return Err(ConfigError { place: origin.to_string(), what: format!("{key}{what}") });
        }
        let index = SETTINGS.iter().position(|other| other.name == setting.name);
        self.origins[index.expect("a setting is one of the settings")] = origin;
        Ok(())
    }
}

/// The variables that are meant for us, without their prefix.
fn variables(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<(String, String)>, ConfigError> {
    let mut ours = Vec::new();
    for (name, value) in environment {
        if let Some(short) = name.to_str().and_then(|name| name.strip_prefix(VARIABLE_PREFIX)) {
            let value = value.into_string().map_err(|_| ConfigError {
                place: format!("{VARIABLE_PREFIX}{short}"),
                what: "the value is not UTF-8".to_owned(),
            })?;
            ours.push((short.to_owned(), value));
        }
    }
    Ok(ours)
}
