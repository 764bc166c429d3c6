//! A node's processor, where a world is to run out of it: its one shard has one thread, and what that does takes time.
//!
//! 1. What the thread takes and what it sends has a price: a request of a client and its answer, a message of another
//!    node and to it, a turn. The shard does its work at once, and then the thread is busy for as long as all that
//!    costs.
//! 2. What comes meanwhile waits in the order in which it comes, as in sockets. Of looks at the time one waits at most.
//!
//! So a pass over what has arrived is as long as what has arrived, which is what a shard decides by whom to refuse.
//!
//! Left out: disks and jobs, which have threads of their own; time that passes within a turn, which a shard sees in the
//! next; several shards of a node.

use super::{Event, World};
use crate::check::Verdict;
use base::Monotonic;
use std::collections::VecDeque;
use std::time::Duration;

// What things cost is taken from real nodes (docs/benchmarks/quorum.md).

/// A client's request is read and decoded, and its answer encoded and sent, whether it is served or refused: `send` and
/// `recv` of clients are 22 % of the 35 µs that a put takes of three nodes at their peak.
pub(super) const REQUEST: Duration = Duration::from_micros(4);
pub(super) const ANSWER: Duration = Duration::from_micros(4);
/// A message between nodes, at each end of it, with its part of the work that it is about. A request has eight of these
/// ends where an object has three replicas: a quarter of a millisecond, as reads of values between 8 and 64 KB take (90
/// and 390 µs where replicas differ). Of 1 KB it would be 4 µs; then to read what is refused, at five times the peak,
/// would take all the time there is, whoever refuses.
pub(super) const MESSAGE: Duration = Duration::from_micros(30);
/// A turn, whatever is done in it: calls of the system for disk and sockets.
const TURN: Duration = Duration::from_micros(10);

/// The processor.
#[derive(Debug, Default)]
pub(super) struct Processor {
    /// When it has done what it was given.
    free_at: Monotonic,
    /// What it has to do next.
    waiting: VecDeque<Event>,
}

impl Processor {
    /// Whether it is told the time when it is free, anyhow.
    fn is_to_tick(&self) -> bool {
        self.waiting.iter().any(|event| matches!(event, Event::Tick(_)))
    }
}

impl World {
    /// Gives an event to whom it is for, unless that one's processor is busy: then it waits.
    pub(super) fn handle_when_free(&mut self, event: Event) -> Verdict {
        let now = self.events.now();
        if let Some(at) = event.worker()
            && let Some(processor) = &mut self.hosts[at].processor
            && (processor.free_at > now || !processor.waiting.is_empty())
        {
            if processor.waiting.is_empty() {
                self.events.at(processor.free_at, Event::Free(at));
            }
            if !matches!(event, Event::Tick(_)) || !processor.is_to_tick() {
                processor.waiting.push_back(event);
            }
            return Ok(());
        }
        self.handle(event)
    }

    /// A processor may be free for what has waited longest.
    pub(super) fn on_free(&mut self, at: usize) -> Verdict {
        let now = self.events.now();
        let is_free = |processor: &&mut Processor| processor.free_at <= now;
        let processor = self.hosts[at].processor.as_mut().filter(is_free);
        if let Some(event) = processor.and_then(|processor| processor.waiting.pop_front()) {
            self.handle(event)?;
        }
        if let Some(processor) = &self.hosts[at].processor
            && !processor.waiting.is_empty()
        {
            self.events.at(processor.free_at, Event::Free(at));
        }
        Ok(())
    }

    /// From now on work takes no time, on any node.
    pub(super) fn free_all(&mut self) -> Verdict {
        for at in 0..self.hosts.len() {
            let processor = self.hosts[at].processor.take();
            for event in processor.into_iter().flat_map(|processor| processor.waiting) {
                self.handle(event)?;
            }
        }
        Ok(())
    }

    /// A node's processor has more to do.
    pub(super) fn charge(&mut self, at: usize, price: Duration) {
        let now = self.events.now();
        if let Some(processor) = &mut self.hosts[at].processor {
            processor.free_at = processor.free_at.max(now) + price;
        }
    }

    /// It has a turn to do.
    pub(super) fn charge_turn(&mut self, at: usize) {
        self.charge(at, TURN);
    }
}
