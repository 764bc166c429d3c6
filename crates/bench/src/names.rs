//! Keys from numbers.

use crate::keys::{UNIQUE_FROM, unique_parts};
use crate::rng::mix;
use std::io::Write;
use std::sync::Arc;

/// The length of a unique key.
const UNIQUE_LEN: usize = 17;

/// How a number is written as a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Naming {
    /// Decimal digits with leading zeros, at least so many, after a prefix.
    Decimal {
        /// What every key begins with.
        prefix: String,
        /// Digits at least.
        digits: usize,
    },
    /// Eight bytes, big-endian.
    Binary,
    /// Lines of a file.
    Lines(Arc<Vec<Vec<u8>>>),
}

impl Naming {
    /// Writes the key of a number in place of what is in `out`. A unique key is nine digits and four bytes (in
    /// hexadecimal, so that it can stand in a URL) that differ between workers and runs, whatever the naming.
    pub fn write(&self, id: u64, run: u32, out: &mut Vec<u8>) {
        out.clear();
        if let Some((worker, counter)) = unique_parts(id) {
            let salt = mix(u64::from(run) << 32 | u64::from(worker)) as u32;
            write!(out, "{counter:09}{salt:08x}").expect("a Vec takes everything");
            return;
        }
        match self {
            Naming::Decimal { prefix, digits } => {
                out.extend_from_slice(prefix.as_bytes());
                put_decimal(out, id, *digits);
            }
            Naming::Binary => out.extend_from_slice(&id.to_be_bytes()),
            Naming::Lines(lines) => out.extend_from_slice(&lines[(id % lines.len() as u64) as usize]),
        }
    }
}

impl Naming {
    /// The number of a key that [`Naming::write`] has written; `None` of a unique one, of a line of a file, and of what
    /// it would not write.
    pub fn number(&self, key: &[u8]) -> Option<u64> {
        match self {
            // As long as a unique one, which may have no letter either.
            Naming::Decimal { digits, .. } if *digits == UNIQUE_LEN => None,
            Naming::Decimal { prefix, digits } => {
                let text = key.strip_prefix(prefix.as_bytes())?;
                let is_written = text.len() >= *digits
                    && text.iter().all(u8::is_ascii_digit)
                    && (text.len() == *digits || text[0] != b'0');
                let number = std::str::from_utf8(text).ok().filter(|_| is_written)?.parse().ok();
                number.filter(|number| *number < UNIQUE_FROM)
            }
            Naming::Binary => key.try_into().ok().map(u64::from_be_bytes),
            Naming::Lines(_) => None,
        }
    }
}

fn put_decimal(out: &mut Vec<u8>, mut number: u64, digits: usize) {
    let mut text = [b'0'; 20];
    let mut at = text.len();
    while number > 0 {
        at -= 1;
        text[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    out.extend_from_slice(&text[at.min(text.len() - digits.min(text.len()))..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::unique_first;

    #[test]
    fn keys_become_their_numbers_again() {
        let decimal = |digits| Naming::Decimal { prefix: "k".to_owned(), digits };
        let mut out = Vec::new();
        for naming in [decimal(6), decimal(1), Naming::Binary] {
            for id in [0, 7, 999_999, 1_000_000, 1 << 40] {
                naming.write(id, 1, &mut out);
                assert_eq!(naming.number(&out), Some(id), "{naming:?}");
            }
            naming.write(unique_first(3) + 7, 1, &mut out);
            assert_eq!(naming.number(&out), None);
        }
        for other in ["", "k", "k12345", "k0123456", "123456", "k12345x", "k+12345", "k99999999999999999999"]
        {
            assert_eq!(decimal(6).number(other.as_bytes()), None, "{other}");
        }
        assert_eq!(Naming::Lines(Arc::new(vec![b"a".to_vec()])).number(b"a"), None);
    }

    #[test]
    fn numbers_become_keys() {
        let named = |naming: &Naming, id| {
            let mut out = b"before".to_vec();
            naming.write(id, 1, &mut out);
            out
        };
        let decimal = Naming::Decimal { prefix: "k".to_owned(), digits: 6 };
        assert_eq!(named(&decimal, 42), b"k000042");
        assert_eq!(named(&decimal, 12_345_678), b"k12345678");
        assert_eq!(named(&decimal, 0), b"k000000");
        assert_eq!(named(&Naming::Binary, 258), [0, 0, 0, 0, 0, 0, 1, 2]);
        let lines = Naming::Lines(Arc::new(vec![b"a".to_vec(), b"b".to_vec()]));
        assert_eq!(named(&lines, 1), b"b");
        let unique = named(&decimal, unique_first(3) + 7);
        assert!(unique.starts_with(b"000000007") && unique.len() == 17);
        assert_ne!(unique, named(&decimal, unique_first(4) + 7));
    }
}
