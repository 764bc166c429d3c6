//! Limits of a user: operations and bytes a second, in all and on single bucket types.
//!
//! They are options of the user's record: `ops_per_s` and `bytes_per_s`, with `/TYPE` behind the name for one bucket
//! type. The value is a number of at least 1, or [`UNLIMITED`]. [`check`] decides on options that an operator sets.
//! [`Limits::of`] reads those of a record, and passes over values that it cannot read.
//!
//! Left out: limits of groups, which would need a rule for users of several groups.

use std::num::NonZeroU64;

use bytes::Bytes;

use crate::slot::Options;

/// The value of a limit that is no limit.
pub const UNLIMITED: &str = "unlimited";

const OPERATIONS: &[u8] = b"ops_per_s";
const BYTES: &[u8] = b"bytes_per_s";

/// Limits of one second; none where a part is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Operations.
    pub operations: Option<NonZeroU64>,
    /// Bytes of values that are written, and of answers.
    pub bytes: Option<NonZeroU64>,
}

/// The limits of a user, which each node keeps apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// For all requests.
    pub all: Rates,
    /// For requests on bucket types, by ascending name.
    types: Vec<(Bytes, Rates)>,
}

impl Limits {
    /// The limits among the options of a user; `None` without one.
    pub fn of(options: &Options) -> Option<Box<Limits>> {
        let mut limits = Limits::default();
        for (name, value) in options {
            let Some((is_bytes, bucket_type)) = part_of(name) else { continue };
            let Ok(Some(rate)) = rate_of(value) else { continue };
            let rates = match bucket_type {
                None => &mut limits.all,
                Some(bucket_type) => limits.rates_mut(&name.slice_ref(bucket_type)),
            };
            *(if is_bytes { &mut rates.bytes } else { &mut rates.operations }) = Some(rate);
        }
        (limits != Limits::default()).then(|| Box::new(limits))
    }

    /// The limits for requests on a bucket type; `None` without one.
    pub fn on_type(&self, bucket_type: &[u8]) -> Option<Rates> {
        let place = self.types.binary_search_by(|(name, _)| name[..].cmp(bucket_type)).ok()?;
        Some(self.types[place].1)
    }

    fn rates_mut(&mut self, bucket_type: &Bytes) -> &mut Rates {
        let place = match self.types.binary_search_by(|(name, _)| name.cmp(bucket_type)) {
            Ok(place) => place,
            Err(place) => {
                self.types.insert(place, (bucket_type.clone(), Rates::default()));
                place
            }
        };
        &mut self.types[place].1
    }
}

/// Whether an option has the name of a limit.
pub(crate) fn is_limit(name: &[u8]) -> bool {
    part_of(name).is_some()
}

/// Whether the value of an option can be taken. An option that is no limit may have any.
pub(crate) fn check(name: &[u8], value: &[u8]) -> bool {
    !is_limit(name) || rate_of(value).is_ok()
}

/// The part of the limits that an option's name stands for: whether it is of bytes, and its bucket type if it has one.
fn part_of(name: &[u8]) -> Option<(bool, Option<&[u8]>)> {
    [(BYTES, true), (OPERATIONS, false)].into_iter().find_map(|(prefix, is_bytes)| {
        match name.strip_prefix(prefix)? {
            [] => Some((is_bytes, None)),
            [b'/', bucket_type @ ..] if !bucket_type.is_empty() => Some((is_bytes, Some(bucket_type))),
            _ => None,
        }
    })
}

/// The rate of an option's value; `None` for [`UNLIMITED`].
fn rate_of(value: &[u8]) -> Result<Option<NonZeroU64>, ()> {
    if value == UNLIMITED.as_bytes() {
        return Ok(None);
    }
    let text = std::str::from_utf8(value).map_err(drop)?;
    // The standard library would take a sign as well.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(());
    }
    text.parse().map(Some).map_err(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(options: &[(&'static str, &'static str)]) -> Option<Box<Limits>> {
        Limits::of(&options.iter().map(|(name, value)| (Bytes::from(*name), Bytes::from(*value))).collect())
    }

    fn rates(operations: u64, bytes: u64) -> Rates {
        Rates { operations: NonZeroU64::new(operations), bytes: NonZeroU64::new(bytes) }
    }

    #[test]
    fn options_with_the_names_of_limits_are_limits() {
        assert_eq!(limits(&[("team", "blue"), ("ops_per_second", "1"), ("ops_per_s/", "1")]), None);
        let read = limits(&[
            ("ops_per_s", "100"),
            ("bytes_per_s/logs", "5"),
            ("ops_per_s/logs", "7"),
            ("ops_per_s/a/b", "9"),
            ("bytes_per_s", "unlimited"),
        ])
        .unwrap();
        assert_eq!(read.all, rates(100, 0));
        assert_eq!(read.on_type(b"logs"), Some(rates(7, 5)));
        assert_eq!(read.on_type(b"a/b"), Some(rates(9, 0)));
        assert_eq!(read.on_type(b"default"), None);
    }

    #[test]
    fn a_limit_is_a_number_of_at_least_one_or_unlimited() {
        for good in ["1", "18446744073709551615", "007", "unlimited"] {
            assert!(check(b"ops_per_s", good.as_bytes()), "{good}");
        }
        for bad in ["0", "", "-1", "+1", "1.5", "1k", "18446744073709551616", "Unlimited", "\u{663}"] {
            assert!(!check(b"bytes_per_s/t", bad.as_bytes()), "{bad}");
            assert_eq!(limits(&[("bytes_per_s/t", bad)]), None, "a record of another program: {bad}");
            assert!(check(b"bytes_per_second", bad.as_bytes()), "it is no limit");
        }
    }
}
