//! What the measured stores hold: object `n` has always the same key, head and value.

use crate::workload::SplitMix;

/// Bytes of the head of an object of ordinary size: a dot, a length, a hash.
pub const HEAD_LEN: usize = 24;

/// Random bytes that values are cut from: larger than the processor's caches near a core, so that copying a value
/// costs what it would cost.
const POOL_BYTES: usize = 4 << 20;

/// The lengths of keys, heads and values.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of a key: at least 8.
    pub key: usize,
    /// Bytes of a head.
    pub head: usize,
    /// Bytes of a value: at least 16.
    pub value: usize,
}

impl Shape {
    /// An object with a value of so many bytes.
    pub fn of_value(value: usize) -> Shape {
        Shape { key: 16, head: HEAD_LEN, value }
    }

    /// What a user gives: key, head and value.
    pub fn user_bytes(self) -> u64 {
        (self.key + self.head + self.value) as u64
    }
}

/// Makes objects.
pub struct Objects {
    /// Their shape.
    pub shape: Shape,
    pool: Vec<u8>,
    key: Vec<u8>,
    head: Vec<u8>,
    tag: [u8; 16],
}

/// Spreads numbers over all of 64 bits, each to another (splitmix64's mixing).
fn mixed(number: u64) -> u64 {
    SplitMix::new(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).next()
}

impl Objects {
    /// Makes objects of this shape.
    pub fn new(shape: Shape) -> Objects {
        let mut rng = SplitMix::new(77);
        let pool = (0..(POOL_BYTES + shape.value) / 8 + 1).flat_map(|_| rng.next().to_le_bytes()).collect();
        Objects { shape, pool, key: vec![0; shape.key], head: vec![0x11; shape.head], tag: [0; 16] }
    }

    /// The key of object `number`: as good as random, and of no other object.
    pub fn key(&mut self, number: u64) -> &[u8] {
        let mixed = mixed(number);
        self.key[..8].copy_from_slice(&mixed.to_be_bytes());
        if let Some(rest) = self.key.get_mut(8..16) {
            rest.copy_from_slice(&number.to_le_bytes());
        }
        &self.key
    }

    /// Key, head and the two parts of the value of object `number`, written for the `version`th time.
    pub fn object(&mut self, number: u64, version: u64) -> (&[u8], &[u8], [&[u8]; 2]) {
        self.key(number);
        if let Some(head) = self.head.get_mut(..8) {
            head.copy_from_slice(&version.to_le_bytes());
        }
        self.tag[..8].copy_from_slice(&number.to_le_bytes());
        self.tag[8..].copy_from_slice(&version.to_le_bytes());
        let at = ((number ^ version << 40).wrapping_mul(0x9E37_79B9) as usize) % POOL_BYTES;
        let rest = &self.pool[at..at + self.shape.value - self.tag.len()];
        (&self.key, &self.head, [&self.tag, rest])
    }

    /// Whether `value` is one of object `number`.
    pub fn is_value(&self, number: u64, value: &[u8]) -> bool {
        value.len() == self.shape.value && value[..8] == number.to_le_bytes()
    }
}
