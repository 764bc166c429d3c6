//! The records of the security policy, opaque here, and their bytes.
//!
//! Invariants: the version grows with each change; records stay within their bounds, and a policy beyond them can only
//! become smaller.
//!
//! Left out: the meaning of records, which the crate `security` has, and their place in a state (`policy.rs`).

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_bytes, put_varint};

use super::bounds::{
    POLICY_BYTES_MAX, POLICY_CHANGES_BYTES_MAX, POLICY_RECORD_BYTES_MAX, POLICY_RECORDS_MAX,
};
use super::fields::{count, option, put_option};

/// A change of one record: its key, and the value that it is to have, or none.
pub type PolicyChange = (Bytes, Option<Bytes>);

/// The records, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRecords {
    version: u64,
    records: BTreeMap<Bytes, Bytes>,
    /// Bytes of all values.
    bytes: usize,
}

impl PolicyRecords {
    /// The key and the value of each record, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.records.iter()
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.records.get(key)
    }

    /// Bytes of all values. A key is no longer than its value, so that all take twice as many at most.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Those of a version, by ascending key.
    pub(super) fn of(version: u64, records: &[(Bytes, Bytes)]) -> PolicyRecords {
        let mut policy = PolicyRecords { version, ..PolicyRecords::default() };
        for (key, value) in records {
            assert!(is_record(key, value), "the program makes records that it reads");
            policy.set(&(key.clone(), Some(value.clone())));
        }
        policy
    }

    /// Their version.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Gives them another version.
    pub(super) fn set_version(&mut self, version: u64) {
        assert!(version > self.version, "the version grows with each change");
        self.version = version;
    }

    /// The records with these changes, of the same version; `None` if they would be beyond their bounds, and not
    /// smaller than these.
    pub(super) fn with(&self, changes: &[PolicyChange]) -> Option<PolicyRecords> {
        let mut after = self.clone();
        changes.iter().for_each(|change| after.set(change));
        let is_smaller = after.bytes <= self.bytes && after.records.len() <= self.records.len();
        (after.is_within_bounds() || is_smaller).then_some(after)
    }

    fn set(&mut self, (key, value): &PolicyChange) {
        // A copy: a slice would keep the message that it came in.
        let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        let before = match value {
            Some(value) => {
                self.bytes += value.len();
                self.records.insert(copy(key), copy(value))
            }
            None => self.records.remove(key),
        };
        self.bytes -= before.map_or(0, |before| before.len());
    }

    fn is_within_bounds(&self) -> bool {
        self.bytes <= POLICY_BYTES_MAX && self.records.len() <= POLICY_RECORDS_MAX
    }

    pub(super) fn put(&self, out: &mut BytesMut) {
        out.put_u64_le(self.version);
        put_varint(out, self.records.len() as u64);
        for (key, value) in &self.records {
            put_bytes(out, key);
            put_bytes(out, value);
        }
    }

    pub(super) fn read(fields: &mut Reader) -> Result<PolicyRecords, Malformed> {
        let mut policy = PolicyRecords { version: fields.u64()?, ..PolicyRecords::default() };
        for _ in 0..count(fields, POLICY_RECORDS_MAX)? {
            let (key, value) = (fields.bytes()?, fields.bytes()?);
            if policy.records.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(Malformed("records out of order"));
            }
            if !is_record(&key, &value) {
                return Err(Malformed("a record of a policy that cannot be"));
            }
            policy.set(&(key, Some(value)));
        }
        if policy.version == 0 || !policy.is_within_bounds() {
            return Err(Malformed("a policy that cannot be"));
        }
        Ok(policy)
    }
}

/// Whether a record can have this key and this value.
pub(super) fn is_record(key: &Bytes, value: &Bytes) -> bool {
    (1..=value.len()).contains(&key.len()) && value.len() <= POLICY_RECORD_BYTES_MAX
}

/// Bytes of changes, as their bound counts them.
pub fn changes_bytes(changes: &[PolicyChange]) -> usize {
    changes.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Bytes::len)).sum()
}

pub(super) fn put_changes(out: &mut BytesMut, changes: &[PolicyChange]) {
    put_varint(out, changes.len() as u64);
    for (key, value) in changes {
        put_bytes(out, key);
        put_option(out, value.as_ref());
    }
}

/// Takes changes off the front; those beyond the bounds of a command are refused.
pub(super) fn read_changes(fields: &mut Reader) -> Result<Vec<PolicyChange>, Malformed> {
    let count = count(fields, POLICY_CHANGES_BYTES_MAX)?;
    let mut changes: Vec<PolicyChange> = Vec::new();
    let mut bytes = 0;
    for _ in 0..count {
        let change = (fields.bytes()?, option(fields)?);
        bytes += changes_bytes(std::slice::from_ref(&change));
        // An empty key would not count.
        if bytes > POLICY_CHANGES_BYTES_MAX || change.0.is_empty() {
            return Err(Malformed("changes of a policy that cannot be"));
        }
        changes.push(change);
    }
    Ok(changes)
}
