//! Memory of an answer in one piece while it is gathered: of an index query, a query, a listing of buckets, a fold.
//!
//! Each of them has a bound of its own, but many run at a time. All shards of a node reserve from one budget; an answer
//! for which there is no room is refused with `overload`, early, and others go on. Left out: pages of rows on their
//! way, which are bounded by their number.

use base::budget::{Budget, LARGE_BYTES, Reservation};
use kv::Error;
use std::sync::Arc;

/// Memory is reserved in steps of so many bytes: an atomic operation for each page would cost more than it saves.
const STEP_BYTES: usize = 4 * LARGE_BYTES;

/// The memory that one answer has reserved.
#[derive(Default)]
pub(crate) struct Gathered {
    reservation: Option<Reservation>,
}

impl Gathered {
    /// Reserves memory for an answer that has grown to so many bytes.
    ///
    /// # Errors
    /// [`Error::Overload`] if there is no room for it now.
    pub fn grow(&mut self, budget: &Arc<Budget>, bytes: usize) -> Result<(), Error> {
        if bytes < LARGE_BYTES {
            return Ok(());
        }
        let wanted = bytes.next_multiple_of(STEP_BYTES);
        let fits = match &mut self.reservation {
            Some(reservation) => reservation.bytes() >= wanted || reservation.resize(wanted),
            none => {
                *none = budget.reserve(wanted);
                none.is_some()
            }
        };
        if fits { Ok(()) } else { Err(Error::Overload) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_share_one_budget_and_give_it_back() {
        let budget = Budget::new(3 * STEP_BYTES);
        let (mut first, mut second) = (Gathered::default(), Gathered::default());
        assert_eq!(first.grow(&budget, LARGE_BYTES - 1), Ok(()));
        assert_eq!(budget.used(), 0, "small answers are not counted");
        assert_eq!(first.grow(&budget, STEP_BYTES + 1), Ok(()));
        assert_eq!(second.grow(&budget, STEP_BYTES), Ok(()));
        assert_eq!(second.grow(&budget, STEP_BYTES + 1), Err(Error::Overload));
        assert_eq!(first.grow(&budget, 2 * STEP_BYTES), Ok(()), "its step covers it");
        drop(first);
        assert_eq!(second.grow(&budget, 3 * STEP_BYTES), Ok(()));
        drop(second);
        assert_eq!(budget.used(), 0);
    }
}
