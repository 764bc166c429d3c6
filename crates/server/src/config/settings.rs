//! The table of options.

use super::{ANTI_ENTROPY_DEFAULT, Config, DeleteMode, cluster};
use crate::trees;
use backends::Kind;
use engine::compression::ZSTD_LEVELS;
use engine::{Codec, CompressAt, Durability};
use kv::ReadStrategy;
use node::Turns;
use node::http::HostName;
use node::layout::SHARDS_MAX;
use node::store::TypeBackends;
use os::Address;
use ring::RingSize;
use std::path::PathBuf;
use std::time::Duration;

/// Longer than any use of these options, and far from overflowing a clock.
const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// More would not fit the file descriptors of any process.
const CONNECTIONS_LIMIT: usize = 1 << 20;

/// Below it compaction would copy nearly everything for nearly nothing; above it there is none to speak of.
const SPACE_TARGETS: (usize, usize) = (105, 1000);

/// Units of size and their bytes, ascending.
const SIZES: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// Units of time and their milliseconds, ascending.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

/// One option of a node.
pub struct Setting {
    /// Its key in the file; in capitals and with a prefix, its environment variable.
    pub name: &'static str,
    /// Its flag, without the dashes in front: its name with dashes for underscores.
    pub flag: &'static str,
    /// What stands for its value in a usage text.
    pub value_name: &'static str,
    /// What it does.
    pub help: &'static str,
    set: fn(&mut Config, &str) -> Result<(), String>,
    show: fn(&Config) -> String,
}

/// All options.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "data",
        flag: "data",
        value_name: "DIR",
        help: "Data folder, made if missing",
        set: |config, text| {
            if text.is_empty() {
                return Err("empty".to_owned());
            }
            config.data = PathBuf::from(text);
            Ok(())
        },
        show: |config| config.data.display().to_string(),
    },
    Setting {
        name: "pb_listen",
        flag: "pb-listen",
        value_name: "HOST:PORT",
        help: "Where Riak's protocol buffers are served; port 0 takes any",
        set: |config, text| address(text).map(|address| config.pb_listen = address),
        show: |config| config.pb_listen.to_string(),
    },
    Setting {
        name: "http_listen",
        flag: "http-listen",
        value_name: "HOST:PORT",
        help: "Where HTTP is served, which is the whole API: objects and administration, and nobody is authenticated",
        set: |config, text| address(text).map(|address| config.http_listen = address),
        show: |config| config.http_listen.to_string(),
    },
    Setting {
        name: "http_host",
        flag: "http-host",
        value_name: "NAME,...",
        help: "More names of this node in HTTP's Host header, for browsers, and for proxies before a loopback address",
        set: |config, text| host_names(text).map(|names| config.http_hosts = names),
        show: |config| config.http_hosts.iter().map(HostName::to_string).collect::<Vec<_>>().join(","),
    },
    Setting {
        name: "insecure",
        flag: "insecure",
        value_name: "on|off",
        help: "Serve clients beyond this machine without a warning, though nobody is authenticated; a later version \
               needs it for that",
        set: |config, text| {
            config.insecure = match text {
                "on" | "true" => true,
                "off" | "false" => false,
                _ => return Err(format!("{text:?} is none of on, off")),
            };
            Ok(())
        },
        show: |config| if config.insecure { "on".to_owned() } else { "off".to_owned() },
    },
    Setting {
        name: "name",
        flag: "name",
        value_name: "NAME@HOST",
        help: "The node's name",
        set: |config, text| {
            check_name(text)?;
            config.name = text.to_owned();
            Ok(())
        },
        show: |config| config.name.clone(),
    },
    Setting {
        name: "ring_size",
        flag: "ring-size",
        value_name: "N",
        help: "Partitions of a new data folder's ring: a power of two from 8 to 65536; 64 if not given",
        set: |config, text| {
            let size = text.parse::<RingSize>().map_err(|error| error.to_string())?;
            config.ring_size = Some(size);
            Ok(())
        },
        show: |config| config.ring_size.unwrap_or_default().partitions().to_string(),
    },
    Setting {
        name: "shards",
        flag: "shards",
        value_name: "N",
        help: "Shards of a new data folder, threads with a store; by default cores but one, each with 64 MiB",
        set: |config, text| {
            let shards = number(text, 1, usize::from(SHARDS_MAX))?;
            config.shards = u16::try_from(shards).ok();
            Ok(())
        },
        show: |config| {
            config.shards.map_or("one for each core but one".to_owned(), |shards| shards.to_string())
        },
    },
    Setting {
        name: "backend",
        flag: "backend",
        value_name: "NAME",
        help: "Backend of a new data folder: annulet, or another that can do less, such as memory, bitcask or hash; annulet if not given",
        set: |config, text| Kind::read(text).map(|kind| config.backend = Some(kind)),
        show: |config| config.backend.unwrap_or_default().name().to_owned(),
    },
    Setting {
        name: "type_backends",
        flag: "type-backends",
        value_name: "TYPE=NAME,...",
        help: "Bucket types of a new data folder with stores of their own, and of which backend these are: cache=memory,archive=bitcask; none if not given",
        set: |config, text| TypeBackends::read(text).map(|types| config.type_backends = Some(types)),
        show: |config| config.type_backends.as_ref().map(TypeBackends::to_string).unwrap_or_default(),
    },
    Setting {
        name: "durability",
        flag: "durability",
        value_name: "none|interval|sync",
        help: "When a write is acknowledged: in memory, written, or written and synced",
        set: |config, text| {
            config.durability = match text {
                "none" => Durability::None,
                "interval" => Durability::Interval,
                "sync" => Durability::Sync,
                _ => return Err(format!("{text:?} is none of none, interval, sync")),
            };
            Ok(())
        },
        show: |config| {
            let word = match config.durability {
                Durability::None => "none",
                Durability::Interval => "interval",
                Durability::Sync => "sync",
            };
            word.to_owned()
        },
    },
    Setting {
        name: "sync_interval",
        flag: "sync-interval",
        value_name: "TIME",
        help: "With durability interval: the longest time until a sync, such as 250ms or 1s",
        set: |config, text| duration(text).map(|duration| config.sync_interval = duration),
        show: |config| show_duration(config.sync_interval),
    },
    Setting {
        name: "read_form",
        flag: "read-form",
        value_name: "local|heads|values",
        help: "How reads ask in a cluster: value here and heads of the others, heads of all first, or values of all",
        set: |config, text| {
            config.read_form = match text {
                "local" => ReadStrategy::LocalValue,
                "heads" => ReadStrategy::Heads,
                "values" => ReadStrategy::Values,
                _ => return Err(format!("{text:?} is none of local, heads, values")),
            };
            Ok(())
        },
        show: |config| {
            let word = match config.read_form {
                ReadStrategy::LocalValue => "local",
                ReadStrategy::Heads => "heads",
                ReadStrategy::Values => "values",
            };
            word.to_owned()
        },
    },
    Setting {
        name: "delete_mode",
        flag: "delete-mode",
        value_name: "keep|immediate|TIME",
        help: "When the tombstone of a deleted key is removed: never, at once, or after a time such as 3s",
        set: |config, text| {
            config.delete_mode = match text {
                "keep" => DeleteMode::Keep,
                "immediate" => DeleteMode::After(Duration::ZERO),
                _ => DeleteMode::After(
                    duration(text).map_err(|what| format!("{what}, nor keep or immediate"))?,
                ),
            };
            Ok(())
        },
        show: |config| match config.delete_mode {
            DeleteMode::Keep => "keep".to_owned(),
            DeleteMode::After(Duration::ZERO) => "immediate".to_owned(),
            DeleteMode::After(delay) => show_duration(delay),
        },
    },
    Setting {
        name: "anti_entropy",
        flag: "anti-entropy",
        value_name: "on|off|TIME",
        help: "How often all that the node holds is compared with what others hold, and repaired; on: every minute",
        set: |config, text| {
            config.anti_entropy = match text {
                "on" => Some(ANTI_ENTROPY_DEFAULT),
                "off" => None,
                _ => match duration(text).map_err(|what| format!("{what}, nor on or off"))? {
                    Duration::ZERO => return Err("never is off".to_owned()),
                    interval => Some(interval),
                },
            };
            Ok(())
        },
        show: |config| config.anti_entropy.map_or_else(|| "off".to_owned(), show_duration),
    },
    Setting {
        name: "tree_rebuild",
        flag: "tree-rebuild",
        value_name: "TIME|off",
        help: "How often the hashes for that are made anew from what is stored, to find what was lost",
        set: |config, text| {
            config.rebuilding.every = match text {
                "off" => None,
                _ => match duration(text).map_err(|what| format!("{what}, nor off"))? {
                    Duration::ZERO => return Err("never is off".to_owned()),
                    every => Some(every),
                },
            };
            Ok(())
        },
        show: |config| config.rebuilding.every.map_or_else(|| "off".to_owned(), show_duration),
    },
    Setting {
        name: "tree_rebuild_check",
        flag: "tree-rebuild-check",
        value_name: "none|presence|values",
        help: "What is looked for then beside the keys: nothing, that their values are there, or the values, each of which is read",
        set: |config, text| {
            let none = || format!("{text:?} is none of none, presence, values");
            config.rebuilding.check = trees::check_named(text).ok_or_else(none)?;
            Ok(())
        },
        show: |config| trees::name_of(config.rebuilding.check).to_owned(),
    },
    Setting {
        name: "tree_rebuild_turns",
        flag: "tree-rebuild-turns",
        value_name: "node|cluster",
        help: "Whether one shard of each node does that at a time, or one of the whole cluster",
        set: |config, text| {
            config.rebuilding.turns = match text {
                "node" => Turns::Node,
                "cluster" => Turns::Cluster,
                _ => return Err(format!("{text:?} is none of node, cluster")),
            };
            Ok(())
        },
        show: |config| match config.rebuilding.turns {
            Turns::Node => "node".to_owned(),
            Turns::Cluster => "cluster".to_owned(),
        },
    },
    Setting {
        name: "compression",
        flag: "compression",
        value_name: "none|lz4|zstd",
        help: "How values of more than 256 bytes are compressed; zstd only in builds with that feature",
        set: |config, text| {
            config.compression = match text {
                "none" => None,
                "lz4" => Some(Codec::Lz4),
                "zstd" if Codec::Zstd.is_built() => Some(Codec::Zstd),
                "zstd" => return Err("this build leaves zstd out (cargo feature `zstd`)".to_owned()),
                _ => return Err(format!("{text:?} is none of none, lz4, zstd")),
            };
            Ok(())
        },
        show: |config| {
            let word = match config.compression {
                None => "none",
                Some(Codec::Lz4) => "lz4",
                Some(Codec::Zstd) => "zstd",
            };
            word.to_owned()
        },
    },
    Setting {
        name: "compress_at",
        flag: "compress-at",
        value_name: "receipt|compaction",
        help: "When values are compressed: as they are written, or as compaction moves them",
        set: |config, text| {
            config.compress_at = match text {
                "receipt" => CompressAt::Receipt,
                "compaction" => CompressAt::Compaction,
                _ => return Err(format!("{text:?} is none of receipt, compaction")),
            };
            Ok(())
        },
        show: |config| {
            let word = match config.compress_at {
                CompressAt::Receipt => "receipt",
                CompressAt::Compaction => "compaction",
            };
            word.to_owned()
        },
    },
    Setting {
        name: "zstd_level",
        flag: "zstd-level",
        value_name: "LEVEL",
        help: "The level at which zstd compresses, from 1, the fastest, to 19",
        set: |config, text| {
            let level = text.parse().ok().filter(|level| ZSTD_LEVELS.contains(level));
            config.zstd_level = level.ok_or_else(|| format!("{text:?} is not a number from 1 to 19"))?;
            Ok(())
        },
        show: |config| config.zstd_level.to_string(),
    },
    Setting {
        name: "memory",
        flag: "memory",
        value_name: "SIZE",
        help: "Memory to plan with, such as 8GiB; what the machine has, or the process may use, if not given",
        set: |config, text| automatic(text, (64 << 20, 1 << 50)).map(|bytes| config.memory = bytes),
        show: |config| show_automatic(config.memory),
    },
    Setting {
        name: "memtable",
        flag: "memtable",
        value_name: "SIZE",
        help: "Size of a memtable, such as 16MiB, of which each shard has up to three; by the memory if not given",
        set: |config, text| automatic(text, (64 << 10, 1 << 30)).map(|bytes| config.memtable = bytes),
        show: |config| show_automatic(config.memtable),
    },
    Setting {
        name: "block_cache",
        flag: "block-cache",
        value_name: "SIZE",
        help: "Table blocks that each shard keeps in memory, such as 64MiB; by the memory if not given",
        set: |config, text| automatic(text, (64 << 10, 1 << 44)).map(|bytes| config.block_cache = bytes),
        show: |config| show_automatic(config.block_cache),
    },
    Setting {
        name: "space_target",
        flag: "space-target",
        value_name: "PERCENT",
        help: "How large the journal may be, in per cent of what is of use in it, before it is compacted",
        set: |config, text| {
            number(text, SPACE_TARGETS.0, SPACE_TARGETS.1).map(|percent| config.space_target = percent as u64)
        },
        show: |config| config.space_target.to_string(),
    },
    Setting {
        name: "disk_reserve",
        flag: "disk-reserve",
        value_name: "SIZE",
        help: "Free space of the disk that is kept back: with less, writes are refused; 256MiB a shard if not given",
        set: |config, text| automatic(text, (0, 1 << 50)).map(|bytes| config.disk_reserve = bytes),
        show: |config| show_automatic(config.disk_reserve),
    },
    Setting {
        name: "scrub_period",
        flag: "scrub-period",
        value_name: "none|TIME",
        help: "Within this time all that is stored is read again, to find damage, such as 168h",
        set: |config, text| {
            config.scrub_period = match text {
                "none" => Duration::ZERO,
                _ => duration(text).map_err(|what| format!("{what}, nor none"))?,
            };
            Ok(())
        },
        show: |config| match config.scrub_period {
            Duration::ZERO => "none".to_owned(),
            period => show_duration(period),
        },
    },
    Setting {
        name: "waste_retention",
        flag: "waste-retention",
        value_name: "none|TIME",
        help: "How long segments that were compacted are kept aside, such as 24h",
        set: |config, text| {
            config.waste_retention = match text {
                "none" => Duration::ZERO,
                _ => duration(text).map_err(|what| format!("{what}, nor none"))?,
            };
            Ok(())
        },
        show: |config| match config.waste_retention {
            Duration::ZERO => "none".to_owned(),
            retention => show_duration(retention),
        },
    },
    Setting {
        name: "backup_dir",
        flag: "backup-dir",
        value_name: "DIR",
        help: "Backups of the running node lie below this folder; in the data folder, as backups, if not given",
        set: |config, text| optional(text, path).map(|path| config.backup_dir = path),
        show: |config| show_path(config.backup_dir.as_ref()),
    },
    Setting {
        name: "connections_max",
        flag: "connections-max",
        value_name: "N",
        help: "Connections at a time, of both protocols together",
        set: |config, text| number(text, 1, CONNECTIONS_LIMIT).map(|number| config.connections_max = number),
        show: |config| config.connections_max.to_string(),
    },
    Setting {
        name: "idle_timeout",
        flag: "idle-timeout",
        value_name: "TIME",
        help: "A connection that says nothing for so long is closed, such as 90s, 10m or 1h",
        set: |config, text| duration(text).map(|duration| config.idle_timeout = duration),
        show: |config| show_duration(config.idle_timeout),
    },
    Setting {
        name: "cluster",
        flag: "cluster",
        value_name: "NAME=HOST:PORT,...",
        help: "The nodes that found a cluster, this one among them, and where each listens to the others; the same on \
               each of them. Later: where to look for members that have moved",
        set: |config, text| cluster::read(text).map(|members| config.cluster = members),
        show: |config| cluster::show(&config.cluster),
    },
    Setting {
        name: "join",
        flag: "join",
        value_name: "HOST:PORT,...",
        help: "Join the cluster of a member that listens there, with an empty data folder; later starts need this \
               option or cluster, too",
        set: |config, text| cluster::read_contacts(text).map(|contacts| config.join = contacts),
        show: |config| cluster::show_contacts(&config.join),
    },
    Setting {
        name: "zone",
        flag: "zone",
        value_name: "ZONE",
        help: "What may fail as a whole with a node that joins: a rack, a room; copies are kept in different ones",
        set: |config, text| {
            cluster::check_zone(text)?;
            config.zone = text.to_owned();
            Ok(())
        },
        show: |config| config.zone.clone(),
    },
    Setting {
        name: "weight",
        flag: "weight",
        value_name: "N",
        help: "A node that joins takes a share of the partitions in proportion to it",
        set: |config, text| {
            config.weight = u16::try_from(number(text, 1, usize::from(u16::MAX))?).unwrap_or(u16::MAX);
            Ok(())
        },
        show: |config| config.weight.to_string(),
    },
    Setting {
        name: "peer_listen",
        flag: "peer-listen",
        value_name: "HOST:PORT",
        help: "Where this node listens to the others; its address in the cluster's list if not given",
        set: |config, text| optional(text, address).map(|address| config.peer_listen = address),
        show: |config| config.peer_listen.as_ref().map_or(String::new(), |address| address.to_string()),
    },
    Setting {
        name: "peer_address",
        flag: "peer-address",
        value_name: "HOST:PORT",
        help: "Where other nodes reach this one, if not where it listens to them",
        set: |config, text| optional(text, address).map(|address| config.peer_address = address),
        show: |config| config.peer_address.as_ref().map_or(String::new(), |address| address.to_string()),
    },
    Setting {
        name: "peer_ca",
        flag: "peer-ca",
        value_name: "FILE",
        help: "The certificate of the cluster's certificate authority",
        set: |config, text| optional(text, path).map(|path| config.peer_ca = path),
        show: |config| show_path(config.peer_ca.as_ref()),
    },
    Setting {
        name: "peer_cert",
        flag: "peer-cert",
        value_name: "FILE",
        help: "This node's certificate, which names it",
        set: |config, text| optional(text, path).map(|path| config.peer_cert = path),
        show: |config| show_path(config.peer_cert.as_ref()),
    },
    Setting {
        name: "peer_key",
        flag: "peer-key",
        value_name: "FILE",
        help: "The key of this node's certificate",
        set: |config, text| optional(text, path).map(|path| config.peer_key = path),
        show: |config| show_path(config.peer_key.as_ref()),
    },
];

impl Setting {
    /// The setting of this name.
    pub fn named(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }

    /// The value of its flag without a value, if it may come so.
    pub fn value_alone(&self) -> Option<&'static str> {
        (self.name == "insecure").then_some("on")
    }

    /// The value that `config` has, as text.
    pub fn show(&self, config: &Config) -> String {
        (self.show)(config)
    }

    /// Reads a value; says what is wrong with it.
    pub(super) fn set(&self, config: &mut Config, text: &str) -> Result<(), String> {
        (self.set)(config, text)
    }
}

/// A node's name; it may not have what stands between names in a list.
pub(super) fn check_name(text: &str) -> Result<(), String> {
    let sound = text.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty());
    if !sound || text.contains(|c: char| c.is_whitespace() || c == ',' || c == '=') {
        return Err(format!("{text:?} is not of the form name@host"));
    }
    Ok(())
}

/// An option that can also be absent: the empty text.
fn optional<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text.is_empty() { Ok(None) } else { read(text).map(Some) }
}

fn path(text: &str) -> Result<PathBuf, String> {
    Ok(PathBuf::from(text))
}

fn show_path(path: Option<&PathBuf>) -> String {
    path.map_or(String::new(), |path| path.display().to_string())
}

fn address(text: &str) -> Result<Address, String> {
    text.parse()
}

/// Names of hosts with commas between; IPv6 with or without brackets.
fn host_names(text: &str) -> Result<Vec<HostName>, String> {
    let name = |text: &str| {
        let address = text.parse().ok().map(HostName::address);
        address.or_else(|| HostName::read(text.as_bytes())).ok_or_else(|| {
            format!("{text:?} is not the name of a host, without a port, such as db.example.com")
        })
    };
    text.split(',').filter(|text| !text.is_empty()).map(name).collect()
}

fn number(text: &str, min: usize, max: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("{text:?} is not a number from {min} to {max}"))
}

/// A size within bounds, or `auto`.
fn automatic(text: &str, (min, max): (u64, u64)) -> Result<Option<u64>, String> {
    if text == "auto" {
        return Ok(None);
    }
    let digits = text.len() - text.trim_start_matches(|byte: char| byte.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let bytes_per_unit = SIZES.iter().find(|(name, _)| *name == unit).map(|(_, bytes)| *bytes);
    let bytes =
        number.parse::<u64>().ok().zip(bytes_per_unit).and_then(|(number, unit)| number.checked_mul(unit));
    bytes.filter(|bytes| (min..=max).contains(bytes)).map(Some).ok_or_else(|| {
        let (min, max) = (show_size(min), show_size(max));
        format!("{text:?} is not auto, nor a size such as 64MiB or 8GiB, from {min} to {max}")
    })
}

fn show_automatic(bytes: Option<u64>) -> String {
    bytes.map_or("auto".to_owned(), show_size)
}

/// In the largest unit of which it is a whole number.
fn show_size(bytes: u64) -> String {
    let (unit, size) = SIZES.iter().rfind(|(_, size)| bytes.is_multiple_of(*size)).unwrap_or(&SIZES[0]);
    format!("{}{unit}", bytes / size)
}

/// A whole number and a unit; without one, nobody could tell seconds from milliseconds.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|byte: char| byte.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let millis_per_unit = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, millis)| *millis);
    let millis =
        number.parse::<u64>().ok().zip(millis_per_unit).and_then(|(number, unit)| number.checked_mul(unit));
    let duration = millis.map(Duration::from_millis).filter(|&it| it > Duration::ZERO && it <= DURATION_MAX);
    duration.ok_or_else(|| format!("{text:?} is not a time such as 250ms, 90s, 10m or 1h, up to 8760h"))
}

/// In the largest unit of which it is a whole number.
fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let (unit, size) = UNITS.iter().rfind(|(_, size)| millis.is_multiple_of(*size)).unwrap_or(&UNITS[0]);
    format!("{}{unit}", millis / size)
}
