//! An object with its values.

use bytes::{Bytes, BytesMut};

use crate::error::Error;
use crate::head::Head;

/// A head and the values of its siblings, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    head: Head,
    /// As long as the head says.
    values: Bytes,
}

impl Object {
    /// A stored head and its stored values.
    ///
    /// # Errors
    /// [`Error::Head`] if the values are not as long as the head says.
    pub fn new(head: Head, values: Bytes) -> Result<Object, Error> {
        if head.values_len() != values.len() as u64 {
            return Err(Error::Head("its values are not as long as it says"));
        }
        Ok(Object { head, values })
    }

    /// A head and one value for each of its siblings, which must have the lengths the head says.
    pub(crate) fn from_values(head: Head, values: &[Bytes]) -> Object {
        assert_eq!(head.siblings().len(), values.len(), "each sibling has a value");
        for (sibling, value) in head.siblings().iter().zip(values) {
            assert_eq!(
                u64::from(sibling.value_len),
                value.len() as u64,
                "a value has the length its head says"
            );
        }
        Object { head, values: concat(values) }
    }

    /// Everything but the values.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The values of the siblings, one after the other.
    pub fn values(&self) -> &Bytes {
        &self.values
    }

    /// The value of the sibling at `at`.
    ///
    /// # Panics
    /// If there is no such sibling.
    pub fn value(&self, at: usize) -> Bytes {
        let len_of = |at: usize| self.head.siblings()[at].value_len as usize;
        let start: usize = (0..at).map(len_of).sum();
        self.values.slice(start..start + len_of(at))
    }

    /// The same without the siblings that have ended by then ([`Head::without_ended`]).
    pub fn without_ended(&self, now_ms: u64) -> Option<Object> {
        let head = self.head.without_ended(now_ms)?;
        let siblings = (0..).zip(self.head.siblings());
        let left = siblings.filter(|(_, sibling)| !sibling.has_ended(now_ms));
        let values: Vec<Bytes> = left.map(|(at, _)| self.value(at)).collect();
        Some(Object::from_values(head, &values))
    }

    /// Both parts.
    pub fn into_parts(self) -> (Head, Bytes) {
        (self.head, self.values)
    }
}

/// One buffer of all values; without a copy if only one is not empty.
fn concat(values: &[Bytes]) -> Bytes {
    let mut full = values.iter().filter(|value| !value.is_empty());
    match (full.next(), full.next()) {
        (None, _) => Bytes::new(),
        (Some(only), None) => only.clone(),
        _ => {
            let mut all = BytesMut::with_capacity(values.iter().map(Bytes::len).sum());
            values.iter().for_each(|value| all.extend_from_slice(value));
            all.freeze()
        }
    }
}
