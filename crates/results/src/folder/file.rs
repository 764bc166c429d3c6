//! `histograms.bin`: latencies by second, label and kind.
//!
//! A header, then blocks, each with its length and checksum. A block is one histogram, or the names of labels, which
//! come before the first histogram that uses them. Integers of a block are LEB128. A file that ends within a block was
//! cut by a crash: what stands before is good. A block whose checksum is wrong is damage.

use crate::Error;
use base::checksum::crc32c;
use histogram::{BUCKET_MAX, Histogram, Parts};
use std::path::Path;

const MAGIC: &[u8; 8] = b"ANULHIST";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 16;
const BLOCK_HEADER_LEN: usize = 8;

/// No block is longer: every bucket of one histogram at its longest, or a long list of labels.
const BLOCK_MAX: usize = 1 << 20;

/// Labels of one run: more would be no mix but a list of keys.
pub const LABELS_MAX: usize = 256;

const BLOCK_LABELS: u8 = 0;
const BLOCK_HISTOGRAM: u8 = 1;

/// What a latency is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Operations that were done, from the time at which they were due: what a user waits.
    Response,
    /// The same, from the time at which they were sent: what the server and the network took.
    Service,
    /// Operations that failed, from the time at which they were due.
    Failed,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Response, Kind::Service, Kind::Failed];

    fn number(self) -> u64 {
        match self {
            Kind::Response => 0,
            Kind::Service => 1,
            Kind::Failed => 2,
        }
    }
}

/// A histogram of one second, label and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies {
    /// Which second of the run.
    pub second: u64,
    /// The label's place in the list of labels.
    pub label: usize,
    /// What is counted.
    pub kind: Kind,
    /// The values.
    pub histogram: Histogram,
}

/// A file's beginning: the header and the labels.
pub fn begin(labels: &[String]) -> Vec<u8> {
    let mut out = Vec::from(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    let mut body = vec![BLOCK_LABELS];
    put(&mut body, labels.len() as u128);
    for label in labels {
        put(&mut body, label.len() as u128);
        body.extend_from_slice(label.as_bytes());
    }
    put_block(&mut out, &body);
    out
}

/// Appends one block.
pub fn append(out: &mut Vec<u8>, latencies: &Latencies) {
    let Latencies { second, label, kind, histogram } = latencies;
    let mut body = vec![BLOCK_HISTOGRAM];
    for field in [*second, *label as u64, kind.number(), histogram.min(), histogram.max()] {
        put(&mut body, field.into());
    }
    put(&mut body, histogram.sum());
    put(&mut body, histogram.squares());
    put(&mut body, histogram.buckets().len() as u128);
    let mut last = 0;
    for &(bucket, count) in histogram.buckets() {
        put(&mut body, (bucket - last).into());
        put(&mut body, count.into());
        last = bucket;
    }
    put_block(out, &body);
}

fn put_block(out: &mut Vec<u8>, body: &[u8]) {
    assert!(body.len() <= BLOCK_MAX, "a block of {} bytes", body.len());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32c(body).to_le_bytes());
    out.extend_from_slice(body);
}

fn put(out: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The labels and all whole blocks.
pub fn read(path: &Path, bytes: &[u8]) -> Result<(Vec<String>, Vec<Latencies>), Error> {
    decode(bytes).map_err(|what| Error::damaged(path, what))
}

fn decode(bytes: &[u8]) -> Result<(Vec<String>, Vec<Latencies>), String> {
    let header = bytes.get(..HEADER_LEN).ok_or("too short for a header")?;
    if &header[..8] != MAGIC {
        return Err("not a file of histograms".to_owned());
    }
    if crc32c(&header[..12]).to_le_bytes() != header[12..] {
        return Err("the header is damaged".to_owned());
    }
    if header[8..12] != VERSION.to_le_bytes() {
        return Err("written by a newer program".to_owned());
    }
    let (mut labels, mut all, mut at) = (Vec::new(), Vec::new(), HEADER_LEN);
    while let Some((body, next)) = block(bytes, at)? {
        let mut fields = Fields(body);
        let read = match fields.byte() {
            Some(BLOCK_LABELS) => fields.labels().map(|more| labels.extend(more)),
            Some(BLOCK_HISTOGRAM) => {
                fields.histogram().filter(|it| it.label < labels.len()).map(|it| all.push(it))
            }
            _ => None,
        };
        read.ok_or_else(|| format!("the block at byte {at} makes no sense"))?;
        at = next;
    }
    Ok((labels, all))
}

/// The body of the block at `at` and where the next begins; `None` at the end, or where a crash cut the file.
fn block(bytes: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, String> {
    let Some(header) = bytes.get(at..at + BLOCK_HEADER_LEN) else { return Ok(None) };
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (len, crc) = (word(0) as usize, word(4));
    if len > BLOCK_MAX {
        return Err(format!("the block at byte {at} claims {len} bytes"));
    }
    let begin = at + BLOCK_HEADER_LEN;
    let Some(body) = bytes.get(begin..begin + len) else { return Ok(None) };
    if crc32c(body) != crc {
        return Err(format!("the block at byte {at} is damaged"));
    }
    Ok(Some((body, begin + len)))
}

/// Reads the fields of a body; `None` where they make no sense.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn wide(&mut self) -> Option<u128> {
        let mut value = 0u128;
        for shift in (0..128).step_by(7) {
            let byte = self.byte()?;
            let bits = u128::from(byte & 0x7F);
            if shift > 0 && bits.leading_zeros() < shift {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn number(&mut self) -> Option<u64> {
        self.wide()?.try_into().ok()
    }

    fn labels(&mut self) -> Option<Vec<String>> {
        let count = usize::try_from(self.number()?).ok().filter(|&count| count <= LABELS_MAX)?;
        (0..count).map(|_| self.label()).collect()
    }

    fn label(&mut self) -> Option<String> {
        let len = usize::try_from(self.number()?).ok()?;
        let (name, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        String::from_utf8(name.to_vec()).ok()
    }

    fn histogram(&mut self) -> Option<Latencies> {
        let (second, label) = (self.number()?, usize::try_from(self.number()?).ok()?);
        let kind = self.number()?;
        let kind = Kind::ALL.into_iter().find(|it| it.number() == kind)?;
        let (min, max) = (self.number()?, self.number()?);
        let (sum, squares) = (self.wide()?, self.wide()?);
        let len = self.number()?;
        // Two bytes at least for each, so a claim takes no more memory than there are bytes.
        if len > self.0.len() as u64 / 2 {
            return None;
        }
        let mut buckets = Vec::with_capacity(len as usize);
        let mut next = 0u32;
        for at in 0..len {
            let step = u32::try_from(self.number()?).ok()?;
            let (bucket, count) = (next.checked_add(step)?, self.number()?);
            if (at > 0 && step == 0) || bucket > BUCKET_MAX {
                return None;
            }
            buckets.push((bucket, count));
            next = bucket;
        }
        let histogram = Histogram::of(Parts { buckets, min, max, sum, squares })?;
        self.0.is_empty().then_some(Latencies { second, label, kind, histogram })
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
