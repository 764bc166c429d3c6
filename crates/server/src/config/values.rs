//! Texts of options: a reader and a writer for each type of value.
//!
//! Sizes and times have readers of their own. The crates for them also read decimal units or fractions, and print other
//! texts than the ones that were read (`7days` for `168h`).

use super::cluster::{self, Member};
use backends::Kind;
use engine::compression::{Codec, CompressAt};
use engine::{Durability, fold::JournalCheck};
use kv::ReadStrategy;
use node::StrongReads;
use node::http::HostName;
use node::{SlowKeys, Turns, store::TypeBackends};
use os::Address;
use ring::RingSize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Longer than any use of these options, and far from overflowing a clock.
const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Names of units with their sizes, ascending.
type Units = [(&'static str, u64); 4];

/// Units of size in bytes.
const SIZES: Units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// Units of time in milliseconds.
const TIMES: Units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

/// The form of the log's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// An object of JSON in each line.
    Json,
}

/// A value of an option.
pub trait SettingValue: Sized {
    /// Its placeholder in a usage text.
    const FORM: &'static str;

    /// Its noun in errors about bounds.
    const NOUN: &'static str = "a number";

    /// Reads a text, or names its fault.
    fn read(text: &str) -> Result<Self, String>;

    /// The text that is read as this value.
    fn show(&self) -> String;
}

/// Reads a text as a value within bounds.
pub(super) fn read_within<V>(text: &str, bounds: RangeInclusive<V>) -> Result<V, String>
where
    V: SettingValue + PartialOrd,
{
    let (min, max) = (bounds.start().show(), bounds.end().show());
    let value = V::read(text).ok().filter(|value| bounds.contains(value));
    value.ok_or_else(|| format!("{text:?} is not {} from {min} to {max}", V::NOUN))
}

/// The bounds of a value, as text.
pub(super) fn show_bounds<V: SettingValue>(bounds: &RangeInclusive<V>) -> String {
    format!("{} to {}", bounds.start().show(), bounds.end().show())
}

/// Reads a word, or with `read` any other text.
pub(super) fn read_word_or<V>(
    text: &str,
    words: Words<V>,
    read: impl Fn(&str) -> Result<V, String>,
) -> Result<V, String> {
    let names: Vec<&str> = words.iter().map(|(word, _)| *word).filter(|word| !word.is_empty()).collect();
    match words.into_iter().find(|(word, _)| *word == text) {
        Some((_, value)) => Ok(value),
        None if names.is_empty() => read(text),
        None => read(text).map_err(|what| format!("{what}, nor {}", names.join(" or "))),
    }
}

/// The text of a value, which is a word only if its type has none.
pub(super) fn show_word_or<V: SettingValue + PartialEq>(value: &V, words: Words<V>) -> String {
    let own = value.show();
    let has_own = V::read(&own).is_ok_and(|read| read == *value);
    let word = words.into_iter().find(|(_, meant)| !has_own && meant == value);
    word.map_or(own, |(word, _)| word.to_owned())
}

/// Words of one option for some values, beside the texts of its type.
type Words<V> = Vec<(&'static str, V)>;

/// Types of which each value is a word. A word stands here and nowhere else.
macro_rules! words {
    ($($type:ty { $first:literal => $value:path $(, $word:literal => $other:path)* })+) => {$(
        impl SettingValue for $type {
            const FORM: &'static str = concat!($first $(, "|", $word)*);

            fn read(text: &str) -> Result<$type, String> {
                match text {
                    $first => Ok($value),
                    $($word => Ok($other),)*
                    _ => Err(format!("{text:?} is none of {}", Self::FORM.replace('|', ", "))),
                }
            }

            fn show(&self) -> String {
                let word = match self {
                    $value => $first,
                    $($other => $word,)*
                };
                word.to_owned()
            }
        }
    )+};
}

words! {
    Durability { "none" => Durability::None, "interval" => Durability::Interval, "sync" => Durability::Sync }
    StrongReads {
        "lease" => StrongReads::Lease, "ask" => StrongReads::Ask
    }
    ReadStrategy {
        "local" => ReadStrategy::LocalValue, "heads" => ReadStrategy::Heads, "values" => ReadStrategy::Values
    }
    JournalCheck {
        "none" => JournalCheck::None, "presence" => JournalCheck::Presence, "values" => JournalCheck::Checksum
    }
    LogFormat { "text" => LogFormat::Text, "json" => LogFormat::Json }
    SlowKeys { "plain" => SlowKeys::Plain, "hash" => SlowKeys::Hash, "none" => SlowKeys::None }
    Turns { "node" => Turns::Node, "cluster" => Turns::Cluster }
    Codec { "lz4" => Codec::Lz4, "zstd" => Codec::Zstd }
    CompressAt { "receipt" => CompressAt::Receipt, "compaction" => CompressAt::Compaction }
}

/// Types with functions that read and show their texts; in brackets a noun other than the usual one.
macro_rules! texts {
    ($($type:ty, $form:literal $(($noun:literal))?: $read:expr, $show:expr;)+) => {$(
        impl SettingValue for $type {
            const FORM: &'static str = $form;
            $(const NOUN: &'static str = $noun;)?

            fn read(text: &str) -> Result<$type, String> {
                $read(text)
            }

            fn show(&self) -> String {
                $show(self)
            }
        }
    )+};
}

texts! {
    bool, "on|off": read_switch, |is_on: &bool| if *is_on { "on".to_owned() } else { "off".to_owned() };
    String, "TEXT": |text: &str| Ok(text.to_owned()), String::clone;
    PathBuf, "FILE": read_path, |path: &PathBuf| path.display().to_string();
    Address, "HOST:PORT": str::parse, Address::to_string;
    Vec<HostName>, "NAME,...": read_host_names, |names: &Vec<HostName>| join(names, HostName::to_string);
    Member, "NAME=HOST:PORT": cluster::read_member, Member::to_string;
    RingSize, "N": |text: &str| text.parse().map_err(|error: ring::Error| error.to_string()), RingSize::to_string;
    Kind, "NAME": Kind::read, |kind: &Kind| kind.name().to_owned();
    TypeBackends, "TYPE=NAME,...": TypeBackends::read, TypeBackends::to_string;
    Duration, "TIME": read_duration, show_duration;
    Size, "SIZE" ("a size such as 64MiB or 8GiB,"): read_size, |size: &Size| show_units(size.0, &SIZES);
    i32, "N": read_number, i32::to_string;
    u16, "N": read_number, u16::to_string;
    u64, "N": read_number, u64::to_string;
    usize, "N": read_number, usize::to_string;
}

/// `None` has a text only as a word of the option.
impl<T: SettingValue> SettingValue for Option<T> {
    const FORM: &'static str = T::FORM;
    const NOUN: &'static str = T::NOUN;

    fn read(text: &str) -> Result<Option<T>, String> {
        T::read(text).map(Some)
    }

    fn show(&self) -> String {
        self.as_ref().map(T::show).unwrap_or_default()
    }
}

/// A list with commas between. A part without a text is a mistake, such as a variable that is not set.
impl<T: SettingValue> SettingValue for Vec<T> {
    const FORM: &'static str = T::FORM;

    fn read(text: &str) -> Result<Vec<T>, String> {
        text.split(',').filter(|_| !text.is_empty()).map(|part| T::read(part.trim())).collect()
    }

    fn show(&self) -> String {
        join(self, T::show)
    }
}

/// Bytes of memory or disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// TOML has words of its own.
fn read_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err(format!("{text:?} is none of on, off")),
    }
}

fn read_number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

fn read_path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("empty".to_owned()) } else { Ok(PathBuf::from(text)) }
}

/// IPv6 stands in brackets or without.
fn read_host_names(text: &str) -> Result<Vec<HostName>, String> {
    let read = |text: &str| {
        let name = text.parse().ok().map(HostName::address).or_else(|| HostName::read(text.as_bytes()));
        name.ok_or_else(|| {
            format!("{text:?} is not the name of a host, without a port, such as db.example.com")
        })
    };
    text.split(',').filter(|text| !text.is_empty()).map(read).collect()
}

fn join<T>(list: &[T], show: impl Fn(&T) -> String) -> String {
    list.iter().map(show).collect::<Vec<_>>().join(",")
}

fn read_size(text: &str) -> Result<Size, String> {
    read_units(text, &SIZES).map(Size).ok_or_else(|| format!("{text:?} is not a size such as 64MiB or 8GiB"))
}

fn read_duration(text: &str) -> Result<Duration, String> {
    let time = read_units(text, &TIMES).map(Duration::from_millis);
    let time = time.filter(|time| !time.is_zero() && *time <= DURATION_MAX);
    time.ok_or_else(|| format!("{text:?} is not a time such as 250ms, 90s, 10m or 1h, up to 8760h"))
}

fn show_duration(time: &Duration) -> String {
    show_units(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), &TIMES)
}

/// A whole number and a unit; without one, nobody could tell seconds from milliseconds.
fn read_units(text: &str, units: &Units) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (_, size) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*size)
}

/// In the largest unit of which it is a whole number; zero in the smallest.
fn show_units(count: u64, units: &Units) -> String {
    let is_whole = |(_, size): &&(&str, u64)| count != 0 && count.is_multiple_of(*size);
    let (unit, size) = units.iter().rfind(is_whole).unwrap_or(&units[0]);
    format!("{}{unit}", count / size)
}
