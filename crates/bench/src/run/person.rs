//! Index entries of people and queries for them, as in the seeds' secondary index and NHS loads.
//!
//! A person has one to three postcodes (`postcode_bin`: one of 76 areas with a district from 1 to 26, `|`, and eight
//! characters of base64), a date of birth (`dateofbirth_bin`: `YYYYMMDD|` and the same) and the time of the last change
//! (`lastmodified_bin`).

use crate::rng::Rng;
use results::utc;
use std::io::Write;

/// The fields that are asked.
pub const POSTCODE: &str = "postcode_bin";
pub const DATE_OF_BIRTH: &str = "dateofbirth_bin";

const AREAS: u64 = 76;
const DISTRICTS: u64 = 26;
const YEARS: std::ops::Range<u64> = 1951..2021;
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes the entries of a person in place of what is in `out`.
pub fn indexes(rng: &mut Rng, out: &mut Vec<(&str, Vec<u8>)>) {
    let postcodes = 1 + rng.below(3) as usize;
    out.resize_with(postcodes + 2, || ("", Vec::new()));
    for (name, term) in &mut out[..postcodes] {
        *name = POSTCODE;
        term.clear();
        put_district(rng, term);
        put_salt(rng, term);
    }
    let (name, birth) = &mut out[postcodes];
    *name = DATE_OF_BIRTH;
    birth.clear();
    put_date(birth, date(rng));
    put_salt(rng, birth);
    let (name, change) = &mut out[postcodes + 1];
    *name = "lastmodified_bin";
    change.clear();
    change.extend_from_slice(utc(now_ms()).as_bytes());
}

/// A district, its suffixes from `a` to before `last`.
pub fn postcodes(last: char, rng: &mut Rng, [from, to]: [&mut Vec<u8>; 2]) {
    put_district(rng, from);
    to.extend_from_slice(from);
    from.extend_from_slice(b"|a");
    write!(to, "|{last}").expect("a Vec takes everything");
}

/// So many days of a month, at most.
pub fn dates(days: u32, rng: &mut Rng, [from, to]: [&mut Vec<u8>; 2]) {
    let (year, month, day) = date(rng);
    put_date(from, (year, month, day));
    put_date(to, (year, month, (day + u64::from(days) - 1).min(31)));
    to.extend_from_slice(b"|~");
}

fn put_district(rng: &mut Rng, out: &mut Vec<u8>) {
    let area = rng.below(AREAS);
    // Two letters for each area: enough that each has its own.
    out.extend_from_slice(&[b'A' + (area / 26) as u8, b'A' + (area % 26) as u8]);
    write!(out, "{}", 1 + rng.below(DISTRICTS)).expect("a Vec takes everything");
}

fn put_salt(rng: &mut Rng, out: &mut Vec<u8>) {
    out.push(b'|');
    let mut bits = rng.next();
    // Four bytes as base64: six characters and the padding.
    for _ in 0..6 {
        out.push(BASE64[(bits & 63) as usize]);
        bits >>= 6;
    }
    out.extend_from_slice(b"==");
}

fn date(rng: &mut Rng) -> (u64, u64, u64) {
    (YEARS.start + rng.below(YEARS.end - YEARS.start), 1 + rng.below(12), 1 + rng.below(28))
}

fn put_date(out: &mut Vec<u8>, (year, month, day): (u64, u64, u64)) {
    write!(out, "{year:04}{month:02}{day:02}").expect("a Vec takes everything");
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_has_terms_that_its_queries_find() {
        let (mut rng, mut out) = (Rng::new(2), Vec::new());
        let mut counts = [0; 4];
        for _ in 0..1000 {
            indexes(&mut rng, &mut out);
            counts[out.len() - 2] += 1;
            let text = |at: usize| String::from_utf8(out[at].1.clone()).unwrap();
            let (district, salt) =
                text(0).split_once('|').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
            assert!((3..=4).contains(&district.len()) && salt.len() == 8);
            assert_eq!((out[out.len() - 2].0, text(out.len() - 2).len()), ("dateofbirth_bin", 17));
            assert_eq!((out[out.len() - 1].0, text(out.len() - 1).len()), ("lastmodified_bin", 20));
        }
        assert!(counts[1] > 250 && counts[2] > 250 && counts[3] > 250);
        let (mut from, mut to) = (Vec::new(), Vec::new());
        postcodes('h', &mut rng, [&mut from, &mut to]);
        assert!(from.ends_with(b"|a") && to.ends_with(b"|h") && from[..from.len() - 1] == to[..to.len() - 1]);
        let (mut from, mut to) = (Vec::new(), Vec::new());
        dates(3, &mut rng, [&mut from, &mut to]);
        assert!(from.len() == 8 && to.ends_with(b"|~") && from < to);
    }
}
