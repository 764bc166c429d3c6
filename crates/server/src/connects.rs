//! How many clients use Riak's protocol buffers: now, in the last minute, and since the start.

use base::Monotonic;
use std::cell::{Cell, RefCell};
use std::ops::AddAssign;
use std::rc::Rc;
use std::time::Duration;

/// Slots of the minute, and how long each lasts: a figure covers 50 to 60 seconds.
const SLOTS: u64 = 6;
const SLOT: Duration = Duration::from_secs(10);

/// Counts the connections of a thread.
#[derive(Default)]
pub struct Connects {
    active: Cell<u64>,
    total: Cell<u64>,
    /// Connections that began, by slot; and the number of the newest slot.
    minute: RefCell<([u64; SLOTS as usize], u64)>,
}

/// The figures, by Riak's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ConnectsRead {
    /// Connections that are open.
    pub pbc_active: u64,
    /// Those that began in the last minute.
    pub pbc_connects: u64,
    /// Those that began since the start.
    pub pbc_connects_total: u64,
}

/// An open connection.
pub struct Connected(Rc<Connects>);

impl Connects {
    /// A connection begins. It lasts as long as what this returns.
    pub fn begin(self: &Rc<Self>, now: Monotonic) -> Connected {
        self.active.set(self.active.get() + 1);
        self.total.set(self.total.get() + 1);
        self.turn(now);
        let (slots, newest) = &mut *self.minute.borrow_mut();
        slots[Self::place(*newest)] += 1;
        Connected(Rc::clone(self))
    }

    /// The figures as of now.
    pub fn read(&self, now: Monotonic) -> ConnectsRead {
        self.turn(now);
        ConnectsRead {
            pbc_active: self.active.get(),
            pbc_connects: self.minute.borrow().0.iter().sum(),
            pbc_connects_total: self.total.get(),
        }
    }

    /// Empties the slots whose turn has come again.
    fn turn(&self, now: Monotonic) {
        let (slots, newest) = &mut *self.minute.borrow_mut();
        let slot = now.0 / u64::try_from(SLOT.as_nanos()).expect("ten seconds");
        for passed in 1..=slot.saturating_sub(*newest).min(SLOTS) {
            slots[Self::place(*newest + passed)] = 0;
        }
        *newest = slot.max(*newest);
    }

    fn place(slot: u64) -> usize {
        usize::try_from(slot % SLOTS).expect("there are few slots")
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.active.set(self.0.active.get() - 1);
    }
}

impl AddAssign for ConnectsRead {
    fn add_assign(&mut self, other: ConnectsRead) {
        self.pbc_active += other.pbc_active;
        self.pbc_connects += other.pbc_connects;
        self.pbc_connects_total += other.pbc_connects_total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn a_minute_forgets_and_what_ends_is_not_active() {
        let connects = Rc::new(Connects::default());
        let open: Vec<Connected> = (0..100).map(|second| connects.begin(at(second))).collect();
        let read = connects.read(at(99));
        assert_eq!((read.pbc_active, read.pbc_connects, read.pbc_connects_total), (100, 60, 100));
        drop(open);
        let read = connects.read(at(120));
        assert_eq!((read.pbc_active, read.pbc_connects, read.pbc_connects_total), (0, 30, 100));
        assert_eq!(connects.read(at(10_000)).pbc_connects, 0);
    }
}
