//! The promiser's table: the promises of one process to others. All shards of the process share it.
//!
//! [`Promises::hear`] renews and [`Promises::close`] closes; each is one step under the table's lock. Numbers are drawn
//! from one counter of the process, so an entry may be dropped without its number coming back.
//!
//! A process that has just started does not know the promises of its lives before. It makes none of its votes depend on
//! them: for [`PROMISE`] it does not vote at all ([`Promises::is_new`]).

use std::collections::BTreeMap;
use std::time::Duration;

use base::Monotonic;
use ring::NodeId;

use super::{Block, ECHO_AGE_MAX, PROCESSES_MAX, PROMISE, Process};

/// The effect of a message on the promise to its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It renewed nothing.
    None,
    /// It opened a promise, under a number of its own.
    Opened,
    /// It renewed a promise that stood.
    Renewed,
    /// It renewed a promise whose time had passed, and which no vote had closed.
    Lapsed,
}

/// A promise to one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Promise {
    /// The number of the last promise; zero for none yet.
    number: u64,
    /// The promise is neither closed nor released. Its time may have passed.
    is_open: bool,
    /// The last receipt that renewed it.
    receipt: Monotonic,
    /// The highest stamp of a message that renewed it, by the holder's clock.
    stamp: Monotonic,
    /// The highest stamp heard from the holder, whether or not it renewed.
    heard: Monotonic,
    /// The holder has given up all leases of its life.
    is_released: bool,
}

/// Promises of one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Promises {
    started: Monotonic,
    /// The number of the last promise to any process.
    number: u64,
    promises: BTreeMap<Process, Promise>,
    /// The registered life of each node.
    registered: BTreeMap<NodeId, u64>,
}

impl Promises {
    /// No promises of a process that started at that reading of its clock.
    pub fn new(started: Monotonic) -> Promises {
        Promises { started, number: 0, promises: BTreeMap::new(), registered: BTreeMap::new() }
    }

    /// The time for which this process does not vote yet, since it may have made promises before its start.
    pub fn is_new(&self, now: Monotonic) -> Option<Duration> {
        left(self.started, now).filter(|_| !base::planted!(PromiseForgotten))
    }

    /// Notes the life of a node that the cluster has registered. Promises to its other lives are not renewed.
    ///
    /// They stand until their time has passed: a process whose folder was cloned may be running.
    pub fn register(&mut self, process: Process, now: Monotonic) {
        self.registered.insert(process.node, process.life);
        self.promises.retain(|it, promise| it.node != process.node || *it == process || promise.stands(now));
    }

    /// Whether the cluster has registered a process as that of its node.
    pub fn is_registered(&self, process: Process) -> bool {
        self.registered.get(&process.node) == Some(&process.life)
    }

    /// Takes the block of a message, received at a reading that was taken after the message had come.
    pub fn hear(&mut self, from: Process, block: &Block, receipt: Monotonic) -> Renewal {
        if self.is_superseded(from) || !self.promises.contains_key(&from) && !self.make_room(receipt) {
            return Renewal::None;
        }
        let next = self.number + 1;
        let promise = self.promises.entry(from).or_default();
        promise.heard = promise.heard.max(block.stamp);
        if block.is_released {
            (promise.is_released, promise.is_open) = (true, false);
        }
        let is_heard = base::planted!(RenewedOneWay) || hears_us(block, receipt);
        if !block.asks || !is_heard || promise.is_released {
            return Renewal::None;
        }
        let has_lapsed = promise.is_open && left(promise.receipt, receipt).is_none();
        if promise.renew(block.stamp, receipt, next) {
            self.number = next;
            return Renewal::Opened;
        }
        if has_lapsed { Renewal::Lapsed } else { Renewal::Renewed }
    }

    /// Closes the promise to a process, if its time has passed or it was released. Votes of this step may then be
    /// against it; a later renewal has another number.
    ///
    /// # Errors
    /// The time for which it stands.
    pub fn close(&mut self, to: Process, now: Monotonic) -> Result<(), Duration> {
        if let Some(left) = self.left(to, now) {
            return Err(left);
        }
        if let Some(promise) = self.promises.get_mut(&to) {
            promise.is_open = false;
        }
        Ok(())
    }

    /// The time for which the promise to a process stands; none if it may be closed.
    pub fn left(&self, to: Process, now: Monotonic) -> Option<Duration> {
        let promise = self.promises.get(&to).filter(|promise| promise.is_open)?;
        left(promise.receipt, now)
    }

    /// The number of the open promise to a process, for answers to its leaders; none if it is closed.
    pub fn number(&self, to: Process) -> Option<u64> {
        self.promises.get(&to).filter(|promise| promise.is_open).map(|promise| promise.number)
    }

    /// The last stamp heard from a process, and the promise to it with the stamp that renewed it, for a block.
    pub fn told(&self, to: Process) -> (Option<Monotonic>, Option<(u64, Monotonic)>) {
        let promise = self.promises.get(&to);
        let open = promise.filter(|promise| promise.is_open);
        (promise.map(|promise| promise.heard), open.map(|promise| (promise.number, promise.stamp)))
    }

    /// Whether the cluster has registered another life of the node.
    fn is_superseded(&self, process: Process) -> bool {
        self.registered.get(&process.node).is_some_and(|life| *life != process.life)
    }

    /// Makes room for one more process; whether there is any. A process without an entry gets no promise.
    fn make_room(&mut self, now: Monotonic) -> bool {
        if self.promises.len() >= PROCESSES_MAX {
            self.promises.retain(|_, promise| promise.stands(now));
        }
        self.promises.len() < PROCESSES_MAX
    }
}

impl Promise {
    /// Renews the promise, or opens one under a number; whether that was used.
    fn renew(&mut self, stamp: Monotonic, receipt: Monotonic, next: u64) -> bool {
        let is_opened = !self.is_open;
        if is_opened && (self.number == 0 || !base::planted!(PromiseRevived)) {
            self.number = next;
        }
        self.is_open = true;
        self.receipt = self.receipt.max(receipt);
        self.stamp = self.stamp.max(stamp);
        is_opened
    }

    fn stands(&self, now: Monotonic) -> bool {
        self.is_open && left(self.receipt, now).is_some()
    }
}

/// The time that is left of a promise since a reading of the clock.
fn left(since: Monotonic, now: Monotonic) -> Option<Duration> {
    PROMISE.checked_sub(now.since(since)).filter(|left| !left.is_zero())
}

/// Whether the sender of a block has heard this process within [`ECHO_AGE_MAX`].
fn hears_us(block: &Block, receipt: Monotonic) -> bool {
    block.echo.is_some_and(|echo| echo <= receipt && receipt.since(echo) <= ECHO_AGE_MAX)
}
