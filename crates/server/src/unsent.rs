//! Memory of answers that a client has not taken yet.
//!
//! An answer is reserved before it is written out, so that clients which take nothing cannot fill memory: beyond the
//! budget they are answered `overload`, which needs none.

use base::budget::LARGE_BYTES;
use base::{Budget, Reservation};
use kv::{Error, Response};
use std::sync::Arc;

/// The part of the budget that a connection's output takes.
#[derive(Default)]
pub struct Unsent(Option<Reservation>);

impl Unsent {
    /// Reserves memory for an answer that is about to be written out; puts `overload` in its place, and returns false,
    /// if there is not so much.
    pub fn begin(&mut self, result: &mut Result<Response, Error>, budget: &Arc<Budget>) -> bool {
        let bytes = result.as_ref().map_or(0, Response::weight);
        if bytes < LARGE_BYTES {
            return true;
        }
        let fits = match &mut self.0 {
            Some(memory) => memory.resize(memory.bytes() + bytes),
            None => {
                self.0 = budget.reserve(bytes);
                self.0.is_some()
            }
        };
        if !fits {
            *result = Err(Error::Overload);
        }
        fits
    }

    /// The output was sent.
    pub fn end(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use kv::Found;

    fn answer(bytes: usize) -> Result<Response, Error> {
        let value = Some(Bytes::from(vec![0; bytes]));
        Ok(Response::Found(Found { head: Bytes::new(), value, newest_only: false }))
    }

    #[test]
    fn answers_beyond_the_budget_are_refused_until_others_were_sent() {
        let budget = Budget::new(100 << 10);
        let (mut one, mut other) = (Unsent::default(), Unsent::default());
        assert!(one.begin(&mut answer(40 << 10), &budget) && one.begin(&mut answer(40 << 10), &budget));
        let mut refused = answer(40 << 10);
        assert!(!other.begin(&mut refused, &budget));
        assert_eq!(refused, Err(Error::Overload));
        assert!(other.begin(&mut answer(LARGE_BYTES - 1), &budget), "small ones go through");
        one.end();
        assert!(other.begin(&mut answer(100 << 10), &budget));
        assert_eq!(budget.used(), 100 << 10);
        drop(other);
        assert_eq!(budget.used(), 0);
    }
}
