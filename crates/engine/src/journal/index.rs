//! Where the records of a compacted segment stand: jsn to offset, in under two bytes for each record.
//!
//! Compaction moves values and writes no ledger entry, so the offsets in the ledger's entries are stale for what it
//! has moved. Numbers and offsets both ascend through a segment, and are kept as two Elias-Fano sequences: the upper
//! bits in unary, the lower ones packed. `n` numbers out of a range of `u` take `2 + log2(u / n)` bits each.
//!
//! Follows Elias (1974) and Vigna, "Quasi-succinct indices" (2013); the select sample is every 64th number.

use super::record::ALIGN;
use crate::entry::Jsn;
use crate::table::fields::Fields;

/// Every so many numbers the place of its upper bits is remembered, to find the others from.
const SAMPLE: usize = 64;

/// More records than this cannot stand in 4 GiB: a count beyond it is no count.
const RECORDS_MAX: usize = (1 << 32) / super::record::HEADER_BYTES;

/// The index of one compacted segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentIndex {
    jsns: EliasFano,
    /// In units of [`ALIGN`].
    offsets: EliasFano,
    /// Where the last record ends, if that is known. It is no part of what is stored.
    end: Option<u32>,
}

impl SegmentIndex {
    /// An index of records, which ascend by number and by offset.
    pub fn new(records: &[(Jsn, u32)]) -> SegmentIndex {
        assert!(records.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "records ascend");
        SegmentIndex {
            jsns: EliasFano::new(records.iter().map(|(jsn, _)| jsn.0)),
            offsets: EliasFano::new(records.iter().map(|(_, offset)| u64::from(*offset) / ALIGN as u64)),
            end: None,
        }
    }

    /// With the place where the records end.
    pub fn ending_at(self, end: u64) -> SegmentIndex {
        SegmentIndex { end: u32::try_from(end).ok(), ..self }
    }

    /// Where record `jsn` stands, if it is in the segment.
    pub fn find(&self, jsn: Jsn) -> Option<u32> {
        let at = self.jsns.find(jsn.0)?;
        u32::try_from(self.offsets.get(at) * ALIGN as u64).ok()
    }

    /// Where record `jsn` stands, if it is in the segment, and how long it is with its padding, if that is known: up to
    /// the next record.
    pub fn place(&self, jsn: Jsn) -> Option<(u32, Option<u32>)> {
        let at = self.jsns.find(jsn.0)?;
        let offset = |at| u32::try_from(self.offsets.get(at) * ALIGN as u64).ok();
        let start = offset(at)?;
        let end = if at + 1 < self.len() { offset(at + 1) } else { self.end };
        Some((start, end.and_then(|end| end.checked_sub(start))))
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.jsns.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.jsns.memory() + self.offsets.memory()
    }

    /// Its bytes in a segment.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.memory() + 64);
        self.jsns.encode(&mut out);
        self.offsets.encode(&mut out);
        out
    }

    /// Reads what [`SegmentIndex::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Option<SegmentIndex> {
        let mut fields = Fields::new(bytes);
        let (jsns, offsets) = (EliasFano::decode(&mut fields)?, EliasFano::decode(&mut fields)?);
        let index = SegmentIndex { jsns, offsets, end: None };
        fields.end()?;
        (index.jsns.len == index.offsets.len).then_some(index)
    }
}

/// An ascending sequence of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EliasFano {
    len: usize,
    /// The first number: the others are kept less it.
    base: u64,
    low_bits: u32,
    low: Vec<u64>,
    /// The number at place `i` with upper bits `h` has the bit `h + i`.
    high: Vec<u64>,
    /// The place in `high` of every [`SAMPLE`]th number's bit.
    samples: Vec<u32>,
}

impl EliasFano {
    fn new(numbers: impl Iterator<Item = u64> + Clone) -> EliasFano {
        let base = numbers.clone().next().unwrap_or(0);
        let (len, last) = numbers.clone().fold((0, base), |(len, _), number| (len + 1, number));
        let low_bits = ((last - base) / (len as u64).max(1)).checked_ilog2().unwrap_or(0);
        let high_len = len + shifted(last - base, low_bits) + 1;
        let mut sequence = EliasFano {
            len,
            base,
            low_bits,
            low: vec![0; (len * low_bits as usize).div_ceil(64)],
            high: vec![0; high_len.div_ceil(64)],
            samples: Vec::new(),
        };
        for (at, number) in numbers.enumerate() {
            let rest = number - base;
            sequence.set_low(at, rest & mask(low_bits));
            let bit = shifted(rest, low_bits) + at;
            sequence.high[bit / 64] |= 1 << (bit % 64);
        }
        sequence.samples = samples_of(&sequence.high, len).expect("a bit was set for each number");
        sequence
    }

    fn get(&self, at: usize) -> u64 {
        let high = (self.select(at) - at) as u64;
        self.base + (high << self.low_bits) + self.low_at(at)
    }

    /// The place of `number`, if it is there.
    fn find(&self, number: u64) -> Option<usize> {
        let (mut from, mut to) = (0, self.len);
        while from < to {
            let middle = from.midpoint(to);
            match self.get(middle).cmp(&number) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        None
    }

    /// Where the bit of the number at `at` is.
    fn select(&self, at: usize) -> usize {
        let bit = self.samples[at / SAMPLE] as usize;
        let mut left = at % SAMPLE;
        let mut word = self.high[bit / 64] & (u64::MAX << (bit % 64));
        let mut index = bit / 64;
        loop {
            let ones = word.count_ones() as usize;
            if left < ones {
                break;
            }
            left -= ones;
            index += 1;
            word = self.high[index];
        }
        for _ in 0..left {
            word &= word - 1;
        }
        index * 64 + word.trailing_zeros() as usize
    }

    fn low_at(&self, at: usize) -> u64 {
        if self.low_bits == 0 {
            return 0;
        }
        let bit = at * self.low_bits as usize;
        let (word, shift) = (bit / 64, bit % 64);
        let mut low = self.low[word] >> shift;
        if shift + self.low_bits as usize > 64 {
            low |= self.low[word + 1] << (64 - shift);
        }
        low & mask(self.low_bits)
    }

    fn set_low(&mut self, at: usize, low: u64) {
        if self.low_bits == 0 {
            return;
        }
        let bit = at * self.low_bits as usize;
        let (word, shift) = (bit / 64, bit % 64);
        self.low[word] |= low << shift;
        if shift + self.low_bits as usize > 64 {
            self.low[word + 1] |= low >> (64 - shift);
        }
    }

    fn memory(&self) -> usize {
        (self.low.len() + self.high.len()) * 8 + self.samples.len() * 4
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let counts = [self.len, self.low_bits as usize, self.low.len(), self.high.len()];
        out.extend_from_slice(&self.base.to_le_bytes());
        counts.iter().for_each(|&count| out.extend_from_slice(&(count as u64).to_le_bytes()));
        self.low.iter().chain(&self.high).for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }

    fn decode(fields: &mut Fields<'_>) -> Option<EliasFano> {
        let base = fields.u64()?;
        let (len, low_bits) = (fields.usize()?, u32::try_from(fields.u64()?).ok()?);
        let (low_len, high_len) = (fields.usize()?, fields.usize()?);
        if len > RECORDS_MAX || low_bits >= 64 || low_len != (len * low_bits as usize).div_ceil(64) {
            return None;
        }
        let (low, high) = (words(fields, low_len)?, words(fields, high_len)?);
        let samples = samples_of(&high, len)?;
        let sequence = EliasFano { len, base, low_bits, low, high, samples };
        // The largest number must fit, and then all do.
        if let Some(last) = len.checked_sub(1) {
            let high = (sequence.select(last) - last) as u64;
            let rest = high.checked_shl(low_bits).filter(|shifted| shifted >> low_bits == high)?;
            base.checked_add(rest)?.checked_add(mask(low_bits))?;
        }
        Some(sequence)
    }
}

fn words(fields: &mut Fields<'_>, len: usize) -> Option<Vec<u64>> {
    let bytes = fields.take(len.checked_mul(8)?)?;
    Some(bytes.chunks_exact(8).map(|word| super::record::get_u64(word, 0)).collect())
}

/// The places of every [`SAMPLE`]th bit that is set; `None` if not exactly `len` are.
fn samples_of(high: &[u64], len: usize) -> Option<Vec<u32>> {
    let mut samples = Vec::with_capacity(len.div_ceil(SAMPLE));
    let mut seen = 0;
    for (index, &word) in high.iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            if seen % SAMPLE == 0 {
                samples.push(u32::try_from(index * 64 + rest.trailing_zeros() as usize).ok()?);
            }
            seen += 1;
            rest &= rest - 1;
        }
    }
    (seen == len).then_some(samples)
}

fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

fn shifted(number: u64, bits: u32) -> usize {
    usize::try_from(number >> bits).expect("the upper part of a number is about as large as their count")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn index_of(steps: &[(u64, u32)]) -> (SegmentIndex, Vec<(Jsn, u32)>) {
        let (mut jsn, mut offset) = (1_000_000, 64);
        let records: Vec<(Jsn, u32)> = steps
            .iter()
            .map(|(more, len)| {
                jsn += 1 + more;
                offset += len * 8;
                (Jsn(jsn), offset)
            })
            .collect();
        (SegmentIndex::new(&records), records)
    }

    proptest! {
        #[test]
        fn every_record_is_found_and_no_other(steps in vec((0u64..9, 7u32..300), 0..400), far in 0u64..1 << 40) {
            let (index, mut records) = index_of(&steps);
            if let Some(last) = records.last_mut() {
                last.0.0 += far;
            }
            let index = if far > 0 { SegmentIndex::new(&records) } else { index };
            for (jsn, offset) in &records {
                prop_assert_eq!(index.find(*jsn), Some(*offset));
            }
            let known: std::collections::BTreeMap<u64, u32> = records.iter().map(|(j, o)| (j.0, *o)).collect();
            for jsn in 999_990..1_000_200 {
                prop_assert_eq!(index.find(Jsn(jsn)), known.get(&jsn).copied());
            }
            prop_assert_eq!(SegmentIndex::decode(&index.encode()), Some(index));
        }

        #[test]
        fn nonsense_is_no_index(steps in vec((0u64..9, 7u32..300), 1..40), at: prop::sample::Index, byte: u8) {
            let mut bytes = index_of(&steps).0.encode();
            let at = at.index(bytes.len());
            bytes[at] ^= byte;
            if let Some(index) = SegmentIndex::decode(&bytes) {
                (0..2_000_000).step_by(1000).for_each(|jsn| { index.find(Jsn(jsn)); });
            }
            prop_assert_eq!(SegmentIndex::decode(&bytes[..at]), None);
        }
    }

    #[test]
    fn it_costs_less_than_two_bytes_for_each_record_of_a_kilobyte() {
        let steps: Vec<(u64, u32)> = (0..100_000u64).map(|n| (n * 7919 % 3, 130 + (n % 20) as u32)).collect();
        let (index, _) = index_of(&steps);
        assert!(index.memory() < 2 * index.len(), "{} bytes", index.memory());
    }

    #[test]
    fn a_record_goes_up_to_the_next_one() {
        let index = SegmentIndex::new(&[(Jsn(7), 8), (Jsn(9), 16), (Jsn(10), 40)]);
        assert_eq!(index.place(Jsn(7)), Some((8, Some(8))));
        assert_eq!(index.place(Jsn(8)), None);
        assert_eq!(index.place(Jsn(10)), Some((40, None)));
        assert_eq!(index.clone().ending_at(64).place(Jsn(10)), Some((40, Some(24))));
        assert_eq!(SegmentIndex::decode(&index.clone().ending_at(64).encode()), Some(index));
    }

    /// Computed by hand: numbers 0, 2, 3 less the base 7 have no lower bits; offsets 8, 16, 40 are 1, 2, 5.
    #[test]
    fn golden_bytes() {
        let index = SegmentIndex::new(&[(Jsn(7), 8), (Jsn(9), 16), (Jsn(10), 40)]);
        let words: Vec<u64> =
            index.encode().chunks(8).map(|word| super::super::record::get_u64(word, 0)).collect();
        assert_eq!(words, [7, 3, 0, 0, 1, 0b10_1001, 1, 3, 0, 0, 1, 0b100_0101]);
    }
}
