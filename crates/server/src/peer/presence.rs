//! Which process speaks for each member, as the door knows it: a data folder that was copied makes a second one, which
//! is turned away.
//!
//! 1. A connection that is welcomed gets a [`Presence`], which is dropped when the connection ends. The process of a
//!    member's open connections *holds* the member.
//! 2. Another process of the member that asks for a connection waits a moment for the end of the holder's: those of a
//!    process that ended close at once, so a restart does not wait. If they stay open, the holder is alive, or stopped
//!    and not ended: the other one is a copy.
//! 3. One process is registered as the member's by the metadata log. It takes the place of a holder that is not.
//!
//! Invariant: connections of two processes of one member are never open together, but for the time that closing takes.
//!
//! Left out: what a process does that is told to be a copy (`membership/copy.rs`); members without an open connection
//! to this node. A connection that rests, as in clusters of more than 33 nodes, holds nothing: some of the others have
//! one that does not.

use ring::NodeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

/// How long the end of a holder's connections is waited for: the kernel closes those of a process that ended at once,
/// and a busy thread may take so long to notice.
pub(super) const GRACE: Duration = Duration::from_millis(500);

/// How long a process still holds its member when this node has closed its connections: it connects again within this
/// time.
const LINGER: Duration = Duration::from_secs(3);

/// Who asks for a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    /// The member.
    pub(super) node: NodeId,
    /// Its process.
    pub(super) life: u64,
    /// The process that the metadata log has for the member; 0 if it has none.
    pub(super) registered: u64,
}

/// The process that holds a member.
#[derive(Debug, Default)]
struct Holder {
    life: u64,
    /// Its connections by number, and what ends each.
    open: BTreeMap<u64, Arc<Notify>>,
    lingers_until: Option<Instant>,
}

impl Holder {
    fn is_alive(&self, now: Instant) -> bool {
        !self.open.is_empty() || self.lingers_until.is_some_and(|until| now < until)
    }
}

#[derive(Debug, Default)]
struct Holders {
    by_node: BTreeMap<NodeId, Holder>,
    last: u64,
}

impl Holders {
    /// The connection's number, what ends it, and whether its process was another's successor; or the process that
    /// holds the member.
    fn enter(&mut self, caller: Caller, now: Instant) -> Result<(u64, Arc<Notify>, bool), u64> {
        let holder = self.by_node.entry(caller.node).or_default();
        let is_new = holder.life != caller.life;
        if is_new {
            let takes_over = caller.life == caller.registered;
            if holder.is_alive(now) && !takes_over {
                return Err(holder.life);
            }
            holder.open.values().for_each(|end| end.notify_one());
            *holder = Holder { life: caller.life, ..Holder::default() };
        }
        self.last += 1;
        let end = Arc::new(Notify::new());
        holder.open.insert(self.last, Arc::clone(&end));
        holder.lingers_until = None;
        Ok((self.last, end, is_new))
    }

    fn leave(&mut self, node: NodeId, number: u64) {
        if let Some(holder) = self.by_node.get_mut(&node) {
            holder.open.remove(&number);
        }
    }

    fn linger(&mut self, node: NodeId, life: u64, until: Instant) {
        if let Some(holder) = self.by_node.get_mut(&node).filter(|holder| holder.life == life) {
            holder.lingers_until = Some(until);
        }
    }
}

/// The processes that hold members.
#[derive(Debug, Default)]
pub(super) struct Presences {
    holders: Mutex<Holders>,
    /// Changes whenever a connection ends.
    ended: watch::Sender<()>,
}

impl Presences {
    fn holders(&self) -> MutexGuard<'_, Holders> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a process in, or says which other one holds the member after [`GRACE`].
    pub(super) async fn admit(self: &Arc<Self>, caller: Caller) -> Result<Presence, u64> {
        let until = Instant::now() + GRACE;
        let mut ended = self.ended.subscribe();
        loop {
            let entered = self.holders().enter(caller, Instant::now());
            match entered {
                Ok((number, end, is_new)) => {
                    let (presences, Caller { node, life, .. }) = (Arc::clone(self), caller);
                    return Ok(Presence { presences, node, life, number, end, is_new });
                }
                Err(holder) if Instant::now() >= until => return Err(holder),
                Err(_) => {
                    // The sender is this, and what comes of a time-out is decided above.
                    timeout_at(until, ended.changed()).await.ok();
                }
            }
        }
    }
}

/// A connection of the process that holds a member.
#[derive(Debug)]
pub(super) struct Presence {
    presences: Arc<Presences>,
    node: NodeId,
    life: u64,
    number: u64,
    end: Arc<Notify>,
    is_new: bool,
}

impl Presence {
    /// The member.
    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    /// Whether this is the first connection of its process, after another's or after none.
    pub(super) fn is_new_process(&self) -> bool {
        self.is_new
    }

    /// Waits until another process has taken the member over.
    pub(super) async fn taken_over(&self) {
        self.end.notified().await;
    }

    /// This node closes the connection: the process is still there.
    pub(super) fn linger(&self) {
        self.presences.holders().linger(self.node, self.life, Instant::now() + LINGER);
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.presences.holders().leave(self.node, self.number);
        self.presences.ended.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    const NODE: NodeId = NodeId(1);

    fn caller(life: u64, registered: u64) -> Caller {
        Caller { node: NODE, life, registered }
    }

    #[test]
    fn a_process_holds_its_member_while_a_connection_is_open() {
        let (mut holders, now) = (Holders::default(), Instant::now());
        let (first, ..) = holders.enter(caller(7, 0), now).unwrap();
        let (second, ..) = holders.enter(caller(7, 0), now).unwrap();
        assert_eq!(holders.enter(caller(8, 0), now).unwrap_err(), 7, "a copy");
        assert_eq!(holders.enter(caller(8, 7), now).unwrap_err(), 7);
        assert!(
            holders.enter(Caller { node: NodeId(2), life: 8, registered: 0 }, now).is_ok(),
            "another member"
        );
        holders.leave(NODE, first);
        assert_eq!(holders.enter(caller(8, 0), now).unwrap_err(), 7);
        holders.leave(NODE, second);
        assert!(holders.enter(caller(8, 0), now).is_ok(), "it was started again");
        // What is left of the one before changes nothing.
        holders.leave(NODE, second);
        holders.linger(NODE, 7, now + LINGER);
        assert_eq!(holders.enter(caller(7, 0), now).unwrap_err(), 8);
    }

    #[test]
    fn a_process_whose_connections_were_closed_here_holds_on_for_a_moment() {
        let (mut holders, now) = (Holders::default(), Instant::now());
        let (number, ..) = holders.enter(caller(7, 0), now).unwrap();
        holders.linger(NODE, 7, now + LINGER);
        holders.leave(NODE, number);
        assert_eq!(holders.enter(caller(8, 0), now).unwrap_err(), 7);
        assert!(holders.enter(caller(8, 0), now + LINGER).is_ok());
    }

    #[tokio::test]
    async fn the_registered_process_takes_the_place_of_one_that_is_not() {
        let presences = Arc::new(Presences::default());
        let copy = presences.admit(caller(8, 7)).await.unwrap();
        let original = presences.admit(caller(7, 7)).await.unwrap();
        copy.taken_over().await;
        drop(copy);
        assert_eq!(presences.admit(caller(8, 7)).await.unwrap_err(), 7);
        drop(original);
        assert!(presences.admit(caller(8, 7)).await.is_ok());
    }

    #[tokio::test]
    async fn a_restart_waits_for_the_end_of_its_predecessors_connections() {
        let presences = Arc::new(Presences::default());
        let before = presences.admit(caller(7, 7)).await.unwrap();
        let (admitted, ()) = tokio::join!(presences.admit(caller(8, 7)), async {
            tokio::task::yield_now().await;
            drop(before);
        });
        assert!(admitted.is_ok());
    }
}
