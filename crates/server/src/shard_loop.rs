//! The loop of a shard's thread.
//!
//! 1. The shard takes a turn when it is woken, and at its deadlines.
//! 2. It is ticked every [`TICK`], or every [`QUIET_TICK`] while it has nothing to do.
//! 3. A stop ends the accepting of connections. Requests under way are answered, for [`DRAIN_MAX`] at most; then the
//!    store is closed.
//!
//! Invariant: a shard that is drained goes on until all are: what comes for one of them may come by the links of
//! another.
//!
//! Left out: the work of a turn (`local.rs`).

use crate::connections::Connections;
use crate::error::Error;
use crate::local::Local;
use crate::peer::Peers;
use base::{Clock, Monotonic};
use os::OsClock;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// How often deadlines, idle connections and the sync interval are looked at.
pub const TICK: Duration = Duration::from_millis(100);

/// The same while the shard has nothing to do: what wakes a core that sleeps is most of what an idle node costs. Such
/// ticks fall on multiples of it since the runtime began. Tokio looks at a timer that is further off when the stretch
/// of 64 ms begins that it falls in, and once more when it is due: with this that is one wake-up.
const QUIET_TICK: Duration = Duration::from_millis(16 * 64);

/// How often requests that wait to be begun are looked at while nothing else happens: they are refused in time.
const WAITING_LOOK: Duration = Duration::from_millis(5);

/// How long a clean stop waits for requests under way, and for others to hear of it.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// The loop: turns when woken and at the shard's deadlines, ticks, and in the end the clean stop.
pub async fn drive(
    began: Instant,
    (local, peers): (&Rc<Local>, Option<&Peers>),
    connections: &Rc<Connections>,
    mut stop: watch::Receiver<bool>,
    accepting: &[AbortHandle],
    (undrained, turned): (&AtomicUsize, &dyn Fn()),
) -> Result<Result<(), engine::Error>, Error> {
    let clock = OsClock::new();
    let mut ticked = Instant::now();
    // The same moment by both clocks.
    let clock_began = (clock.now(), ticked);
    let mut wake = pin!(tokio::time::sleep_until(ticked));
    local.tick(clock.now());
    let mut stopping: Option<Monotonic> = None;
    let (mut drained, mut closing) = (false, false);
    loop {
        turned();
        let tick_at = next_tick_after(ticked, began, local.is_quiet() && stopping.is_none());
        let deadline = local.next_deadline().map(|deadline| clock_began.1 + deadline.since(clock_began.0));
        let due = deadline.map_or(tick_at, |deadline| deadline.min(tick_at));
        if due != wake.deadline() {
            wake.as_mut().reset(due);
        }
        tokio::select! {
            biased;
            () = local.woken() => {
                local.turn();
                if local.has_more() {
                    // Answers and what has arrived go first, or nothing would end what those that wait are waiting for.
                    tokio::task::yield_now().await;
                }
            }
            () = tokio::time::sleep(WAITING_LOOK), if local.has_waiting() => local.turn(),
            () = &mut wake => {
                let woken = Instant::now();
                if woken < tick_at {
                    local.turn();
                } else {
                    ticked = woken;
                    local.tick(clock.now());
                    connections.sweep();
                }
            }
            // A sender that is gone means the same as a stop.
            _ = stop.changed(), if stopping.is_none() => {
                accepting.iter().for_each(AbortHandle::abort);
                connections.stop();
                local.begin_stop();
                // One that was not let in, as a copy of a data folder, has nobody to answer.
                let served = peers.is_none_or(|peers| peers.may_serve());
                stopping = Some(clock.now() + if served { DRAIN_MAX } else { Duration::ZERO });
            }
        }
        if let Some(closed) = local.take_closed() {
            return Ok(closed);
        }
        let Some(until) = stopping.filter(|_| !closing) else { continue };
        if (connections.is_empty() && local.is_drained()) != drained {
            drained = !drained;
            match drained {
                true => undrained.fetch_sub(1, Ordering::AcqRel),
                false => undrained.fetch_add(1, Ordering::AcqRel),
            };
        }
        if undrained.load(Ordering::Acquire) == 0 || clock.now() >= until {
            connections.abort_all();
            closing = true;
            local.begin_close();
        }
    }
}

/// When the shard is to be ticked next, in a runtime that began then.
fn next_tick_after(ticked: Instant, began: Instant, is_quiet: bool) -> Instant {
    match is_quiet {
        true => {
            let since = (ticked - began).as_nanos() % QUIET_TICK.as_nanos();
            ticked + QUIET_TICK - Duration::from_nanos(since as u64)
        }
        false => ticked + TICK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_ticks_fall_on_multiples_of_their_length() {
        let began = Instant::now();
        let at = |nanos| began + Duration::from_nanos(nanos);
        let tick = QUIET_TICK.as_nanos() as u64;
        for (ticked, next) in [(0, tick), (1, tick), (tick - 1, tick), (tick, 2 * tick), (tick + 1, 2 * tick)]
        {
            assert_eq!(next_tick_after(at(ticked), began, true), at(next), "{ticked}");
        }
        assert_eq!(next_tick_after(at(5), began, false), at(5) + TICK);
    }
}
