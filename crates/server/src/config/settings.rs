//! The table of options.

#[cfg(test)]
mod tests;

use super::cluster::{Member, check_name, check_zone};
use super::values::{LogFormat, SettingValue, Size, read_within, read_word_or, show_bounds, show_word_or};
use backends::Kind;
use engine::compression::ZSTD_LEVELS;
use engine::{Codec, CompressAt, Durability, fold::JournalCheck};
use kv::ReadStrategy;
use node::StrongReads;
use node::http::HostName;
use node::layout::SHARDS_MAX;
use node::{Rebuilding, SlowKeys, Turns, store::TypeBackends};
use os::Address;
use ring::RingSize;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

/// One option of a node.
pub struct Setting {
    /// Its key in the file, from which its flag and its variable follow.
    pub name: &'static str,
    /// Its description.
    pub help: &'static str,
    form: &'static str,
    words: &'static [&'static str],
    bounds: fn() -> Option<String>,
    set: fn(&mut Config, &str) -> Result<(), String>,
    show: fn(&Config) -> String,
}

impl Setting {
    /// Its flag without the dashes in front.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Its environment variable.
    pub fn variable(&self) -> String {
        format!("{}{}", super::VARIABLE_PREFIX, self.name.to_ascii_uppercase())
    }

    /// The placeholder of its value in a usage text.
    pub fn form(&self) -> String {
        let words = self.words.iter().filter(|word| !word.is_empty());
        words.chain([&self.form]).copied().collect::<Vec<_>>().join("|")
    }

    /// The least and the most value, as texts.
    pub fn bounds(&self) -> Option<String> {
        (self.bounds)()
    }

    /// Whether its flag may stand without a value, for `on`.
    pub fn is_switch(&self) -> bool {
        self.form == bool::FORM
    }

    /// The value that `config` has, as text; empty for none.
    pub fn show(&self, config: &Config) -> String {
        (self.show)(config)
    }

    /// Reads a value; says what is wrong with it.
    pub(super) fn set(&self, config: &mut Config, text: &str) -> Result<(), String> {
        (self.set)(config, text)
    }
}

/// The first of several expressions.
macro_rules! first {
    ($first:expr $(, $rest:expr)*) => {
        $first
    };
}

/// Makes [`Config`], its defaults and [`SETTINGS`] of rows:
///
/// ```text
/// /// Description.
/// name: Type as "PLACEHOLDER" where check [bounds] { "word" => value } = default;
/// ```
///
/// The type reads and shows the texts. Optional: a placeholder other than the type's, a check of the text, bounds of
/// the value, words for some values beside the texts of its type.
macro_rules! settings {
    ($(
        $(#[doc = $help:literal])+
        $name:ident: $type:ty
            $(as $form:literal)? $(where $check:path)? $([$bounds:expr])? $({ $($word:literal => $value:expr),+ })?
            = $default:expr;
    )+) => {
        /// A node's configuration.
        #[derive(Clone, Debug)]
        pub struct Config {$(
            $(#[doc = $help])+
            pub $name: $type,
        )+}

        impl Default for Config {
            fn default() -> Config {
                Config { $($name: $default,)+ }
            }
        }

        /// All options.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            name: stringify!($name),
            help: concat!($($help),+).trim_ascii(),
            form: first!($($form,)? <$type>::FORM),
            words: &[$($($word),+)?],
            bounds: || first!($(Some(show_bounds::<$type>(&($bounds))),)? None),
            set: |config, text| {
                $($check(text)?;)?
                let words = vec![$($(($word, $value)),+)?];
                let read = first!($(|text: &str| read_within(text, $bounds),)? SettingValue::read);
                config.$name = read_word_or(text, words, read)?;
                Ok(())
            },
            show: |config| show_word_or(&config.$name, vec![$($(($word, $value)),+)?]),
        },)+];
    };
}

settings! {
    /// Data folder, made if missing
    data: PathBuf as "DIR" = PathBuf::from("./annulet-data");
    /// Address of Riak's protocol buffers; port 0 takes any free port
    pb_listen: Address = (Ipv4Addr::LOCALHOST.into(), 8087).into();
    /// Address of HTTP, the whole interface: objects and administration, without authentication
    http_listen: Address = (Ipv4Addr::LOCALHOST.into(), 8098).into();
    /// Address of HTTPS, the same interface under TLS; needs tls-cert
    https_listen: Option<Address> { "" => None } = None;
    /// Certificate of this node for clients, with those between it and its authority: STARTTLS and HTTPS
    tls_cert: Option<PathBuf> { "" => None } = None;
    /// Key of that certificate
    tls_key: Option<PathBuf> { "" => None } = None;
    /// Certificate of the authority of clients' certificates; a client may do without one
    tls_client_ca: Option<PathBuf> { "" => None } = None;
    /// Revocation lists of that authority; a file has one or several
    tls_client_crl: Vec<PathBuf> as "FILE,..." = Vec::new();
    /// More names of this node in HTTP's Host header, for browsers and for proxies before a loopback address
    http_host: Vec<HostName> = Vec::new();
    /// Serve other machines without security: each client that reaches a port reads, writes and administers
    insecure: bool = false;
    /// Name of the node
    name: String as "NAME@HOST" where check_name = "annulet@127.0.0.1".to_owned();
    /// Partitions of a new data folder's ring: a power of two from 8 to 65536, 64 by default
    ring_size: Option<RingSize> = None;
    /// Shards of a new data folder, each a thread with a store; by default one for each core but one, with 64 MiB each
    shards: Option<u16> [Some(1)..=Some(SHARDS_MAX)] = None;
    /// Backend of a new data folder: annulet by default, or one with fewer features, such as memory, bitcask or hash
    backend: Option<Kind> = None;
    /// Bucket types with stores of their own in a new data folder, and the backend of each, such as
    /// cache=memory,archive=bitcask; none by default
    type_backends: Option<TypeBackends> = None;
    /// Moment at which a write is acknowledged: in memory, written, or written and synced
    durability: Durability = Durability::Sync;
    /// Longest time until a sync with durability interval, such as 250ms or 1s
    sync_interval: Duration = Duration::from_secs(1);
    /// Requests of a read in a cluster: value here and heads of the others, heads of all first, or values of all
    read_form: ReadStrategy = ReadStrategy::LocalValue;
    /// Reads of consistent bucket types: by the lease of a leader, which rests on clocks, or by a question to others
    strong_reads: StrongReads = StrongReads::Ask;
    // The default is Riak's.
    /// Removal of the tombstone of a deleted key: never, at once, or after a time such as 3s
    delete_mode: Option<Duration> { "keep" => None, "immediate" => Some(Duration::ZERO) }
        = Some(Duration::from_secs(3));
    /// Interval of anti-entropy, which compares replicas with those of other nodes and repairs them; on is one minute
    anti_entropy: Option<Duration> { "on" => Some(ANTI_ENTROPY_DEFAULT), "off" => None } = Some(ANTI_ENTROPY_DEFAULT);
    /// Interval at which the hash trees of anti-entropy are rebuilt from the stored data, to find lost objects
    tree_rebuild: Option<Duration> { "off" => None } = Rebuilding::default().every;
    /// Check of values during a rebuild: none, that each value is present, or that each value can be read
    tree_rebuild_check: JournalCheck = Rebuilding::default().check;
    /// Rebuilds at a time: in one shard of each node, or in one shard of the whole cluster
    tree_rebuild_turns: Turns = Rebuilding::default().turns;
    /// Compression of values of more than 256 bytes; zstd only in builds with that feature
    compression: Option<Codec> where check_codec { "none" => None } = None;
    /// Compress values as they are written, or as compaction moves them
    compress_at: CompressAt = CompressAt::Receipt;
    /// Level of zstd, from 1, the fastest, to 19
    zstd_level: i32 as "LEVEL" [ZSTD_LEVELS] = engine::Options::default().zstd_level;
    /// Memory to plan with, such as 8GiB; auto: the memory of the machine, or the limit of the process
    memory: Option<Size> [Some(Size(64 << 20))..=Some(Size(1 << 50))] { "auto" => None } = None;
    /// Size of a memtable, such as 16MiB, of which each shard has up to three; auto: by the memory
    memtable: Option<Size> [Some(Size(64 << 10))..=Some(Size(1 << 30))] { "auto" => None } = None;
    /// Table blocks that each shard keeps in memory, such as 64MiB; auto: by the memory
    block_cache: Option<Size> [Some(Size(64 << 10))..=Some(Size(1 << 44))] { "auto" => None } = None;
    // Below the bounds compaction copies nearly everything for nearly nothing; above them there is nearly none.
    /// Size of the journal at which compaction begins, in per cent of its bytes in use
    space_target: u64 as "PERCENT" [105..=1000] = engine::Options::default().space_target_percent;
    /// Free space of the disk that is kept back: with less, writes are refused; auto: 256MiB for each shard
    disk_reserve: Option<Size> [Some(Size(0))..=Some(Size(1 << 50))] { "auto" => None } = None;
    /// Time within which all stored data is read once, to find damage, such as 168h
    scrub_period: Duration { "none" => Duration::ZERO } = engine::Options::default().scrub_period;
    /// Time that compacted segments are kept aside, such as 24h
    waste_retention: Duration { "none" => Duration::ZERO } = Duration::ZERO;
    /// Folder of the backups of the running node; by default the folder backups in the data folder
    backup_dir: Option<PathBuf> as "DIR" { "" => None } = None;
    // Each costs a few kilobytes and a file descriptor, of which processes commonly have 2^16 and none has 2^20.
    /// Connections at a time, of both protocols together
    connections_max: usize [1..=1 << 20] = 10_000;
    // A client that is there uses its pooled connections within the hour; one that is gone gives its place back.
    /// Time after which a silent connection is closed, such as 90s, 10m or 1h
    idle_timeout: Duration = Duration::from_secs(3600);
    /// Form of the log's lines on standard error
    log_format: LogFormat = LogFormat::Text;
    /// Least time of a request that the log of slow requests has
    slow: Option<Duration> { "off" => None, "0" => None } = Some(SLOW_DEFAULT);
    /// Keys in the log of slow requests: as they are, a hash of each, or none
    slow_keys: SlowKeys = SlowKeys::Hash;
    // Balancers ask every few seconds, and turn away after one or two refusals.
    /// Time between the first "not ready" of a stop and closed doors, if a balancer has asked for /health/ready lately
    drain_wait: Duration { "none" => Duration::ZERO } = Duration::from_secs(5);
    /// The nodes that found a cluster, this one among them, and their addresses for other nodes; the same on each of
    /// them. Later: places to look for members that have moved
    cluster: Vec<Member> as "NAME=HOST:PORT,..." = Vec::new();
    /// Join the cluster of a member at one of these addresses, with an empty data folder; later starts need this option
    /// or cluster, too
    join: Vec<Address> as "HOST:PORT,..." = Vec::new();
    /// Failure domain of a node that joins, such as a rack or a room; replicas are kept in different zones
    zone: String as "ZONE" where check_zone = String::new();
    /// Share of the partitions of a node that joins, in proportion to the other nodes
    weight: u16 [1..=u16::MAX] = ring::WEIGHT_DEFAULT;
    /// Address at which this node listens to other nodes; by default its address in the option cluster
    peer_listen: Option<Address> { "" => None } = None;
    /// Address at which other nodes reach this one, if it is not the one where it listens
    peer_address: Option<Address> { "" => None } = None;
    /// Certificate of the cluster's certificate authority
    peer_ca: Option<PathBuf> { "" => None } = None;
    /// Certificate of this node
    peer_cert: Option<PathBuf> { "" => None } = None;
    /// Key of this node's certificate
    peer_key: Option<PathBuf> { "" => None } = None;
}

/// Its price in a quiet cluster: one question to each neighbour.
const ANTI_ENTROPY_DEFAULT: Duration = Duration::from_secs(60);

/// Far above a request that waits for a few disks, and below the patience of most clients.
const SLOW_DEFAULT: Duration = Duration::from_millis(100);

/// Reads a threshold of slow requests, as the option does; `None`: there are none.
pub(crate) fn read_slow(text: &str) -> Result<Option<Duration>, String> {
    let mut config = Config::default();
    slow_setting().set(&mut config, text)?;
    Ok(config.slow)
}

/// The text of a threshold of slow requests.
pub(crate) fn show_slow(threshold: Option<Duration>) -> String {
    slow_setting().show(&Config { slow: threshold, ..Config::default() })
}

fn slow_setting() -> &'static Setting {
    SETTINGS.iter().find(|setting| setting.name == "slow").expect("the table has it")
}

/// This build may leave a codec out.
fn check_codec(text: &str) -> Result<(), String> {
    match Codec::read(text) {
        Ok(codec) if !codec.is_built() => {
            Err(format!("this build leaves {text} out (cargo feature `{text}`)"))
        }
        _ => Ok(()),
    }
}
