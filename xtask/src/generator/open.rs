//! The open loop: operations start at a rate, whatever becomes of those before them.
//!
//! One request is outstanding on each connection. An operation whose time has come takes the connection that has
//! been idle for the longest, so all servers are asked evenly; when none is idle it is not sent, as with a client
//! whose pool is at its end, and counts as not answered. Latency runs from the time at which an operation was due,
//! so a generator that is late hides nothing.
//!
//! What became of operations is kept by slices of the time at which they were due: an answer that comes after its
//! phase is still one of that phase.

use super::{Connection, SILENCE_MAX, Session};
use crate::stats::Latencies;
use crate::sys::thread_cpu;
use crate::workload::{Keys, Workload};
use crate::{Result, proc};
use std::collections::VecDeque;
use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// While all connections are busy, answers are looked at so often: a server that wakes the generator with each of
/// them pays for that, and the generator for so many looks, on cores that both need.
const PAUSE: Duration = Duration::from_millis(1);

/// What became of the operations that were due in one slice of time.
pub struct Slice {
    /// Operations that were due.
    pub due: u64,
    /// Of these, those that found all connections busy.
    pub unsent: u64,
    /// Those that were answered rightly.
    pub answered: u64,
    /// Those that the server refused to do.
    pub refused: u64,
    /// Those that failed otherwise.
    pub failed: u64,
    /// Of those answered rightly, from the time at which they were due.
    pub latencies: Latencies,
    /// Of those refused, from when they were sent.
    pub refusals: Latencies,
}

impl Slice {
    fn new() -> Slice {
        let (latencies, refusals) = (Latencies::new(), Latencies::new());
        Slice { due: 0, unsent: 0, answered: 0, refused: 0, failed: 0, latencies, refusals }
    }

    /// The sum of several.
    pub fn sum<'a>(slices: impl IntoIterator<Item = &'a Slice>) -> Slice {
        slices.into_iter().fold(Slice::new(), |mut sum, slice| {
            sum.due += slice.due;
            sum.unsent += slice.unsent;
            sum.answered += slice.answered;
            sum.refused += slice.refused;
            sum.failed += slice.failed;
            sum.latencies.add(&slice.latencies);
            sum.refusals.add(&slice.refusals);
            sum
        })
    }
}

/// A time during which operations were due at one rate.
pub struct Phase {
    /// Its slices.
    pub slices: Range<usize>,
    /// How long it took.
    pub wall: Duration,
    /// What the generator itself used.
    pub cpu: Duration,
    /// What all cores together did in that time, for whomever.
    pub busy: Duration,
}

/// An operation that has been sent.
#[derive(Clone, Copy)]
struct Pending {
    due: Instant,
    slice: usize,
}

/// An open loop over the connections of a session.
pub struct OpenLoop<'a, W: Workload> {
    session: &'a mut Session,
    workload: W,
    keys: Keys,
    slice: Duration,
    /// What each connection waits for.
    pending: Vec<Option<Pending>>,
    idle: VecDeque<usize>,
    slices: Vec<Slice>,
    /// What the first failed operation was answered.
    complaint: Option<String>,
}

impl<'a, W: Workload> OpenLoop<'a, W> {
    /// An open loop that has not begun; `slice` is the length of slices.
    pub fn new(session: &'a mut Session, workload: W, keys: Keys, slice: Duration) -> OpenLoop<'a, W> {
        let count = session.connections.len();
        let (pending, idle) = (vec![None; count], (0..count).collect());
        OpenLoop { session, workload, keys, slice, pending, idle, slices: Vec::new(), complaint: None }
    }

    /// Starts `rate` operations a second for so long. What is outstanding in the end stays so.
    pub fn offer(&mut self, rate: f64, time: Duration) -> Result<Phase> {
        let (cpu, busy, begin) = (thread_cpu()?, proc::busy()?, Instant::now());
        let first = self.slices.len();
        let count = (time.as_secs_f64() / self.slice.as_secs_f64()).ceil() as usize;
        self.slices.extend((0..count).map(|_| Slice::new()));
        let total = (rate * time.as_secs_f64()) as u64;
        let due = |started: u64| Duration::from_secs_f64(started as f64 / rate);
        let mut started = 0;
        while started < total {
            let elapsed = begin.elapsed();
            while started < total && due(started) <= elapsed {
                let at = due(started);
                let slice = first + ((at.as_secs_f64() / self.slice.as_secs_f64()) as usize).min(count - 1);
                self.start(Pending { due: begin + at, slice })?;
                started += 1;
            }
            let until_next = due(started).saturating_sub(elapsed);
            if self.idle.is_empty() {
                sleep(PAUSE);
            }
            self.take_answers(until_next)?;
        }
        let (wall, cpu, busy) = (begin.elapsed(), thread_cpu()? - cpu, proc::busy()? - busy);
        Ok(Phase { slices: first..first + count, wall, cpu, busy })
    }

    /// Awaits what is outstanding. All slices, and what the first failed operation was answered.
    pub fn finish(mut self) -> Result<(Vec<Slice>, Option<String>)> {
        while self.idle.len() < self.pending.len() {
            if self.take_answers(SILENCE_MAX)? == 0 {
                return Err(format!("no answer for {SILENCE_MAX:?}").into());
            }
        }
        Ok((self.slices, self.complaint))
    }

    fn start(&mut self, operation: Pending) -> Result<()> {
        let slice = &mut self.slices[operation.slice];
        slice.due += 1;
        let Some(at) = self.idle.pop_front() else {
            slice.unsent += 1;
            return Ok(());
        };
        self.pending[at] = Some(operation);
        self.session.connections[at].send(&mut self.workload, self.keys.next())
    }

    /// Takes what has been answered, after waiting so long at most; how many sockets had something.
    fn take_answers(&mut self, timeout: Duration) -> Result<usize> {
        let ready = self.session.poll.wait(timeout)?;
        for index in 0..ready {
            let at = self.session.poll.token(index);
            let connection = &mut self.session.connections[at];
            let Some(len) = connection.receive(&self.workload)? else { continue };
            let operation = self.pending[at].take().ok_or("an answer to nothing")?;
            let slice = &mut self.slices[operation.slice];
            judge(slice, connection, &self.workload, len, operation.due, &mut self.complaint);
            connection.filled = 0;
            self.idle.push_back(at);
        }
        Ok(ready)
    }
}

fn judge(
    slice: &mut Slice,
    connection: &Connection,
    workload: &impl Workload,
    len: usize,
    due: Instant,
    complaint: &mut Option<String>,
) {
    let answer = &connection.input[..len];
    if workload.refuses(answer) {
        slice.refused += 1;
        slice.refusals.record(connection.sent.elapsed());
        return;
    }
    match workload.check(answer) {
        Ok(()) => {
            slice.answered += 1;
            slice.latencies.record(due.elapsed());
        }
        Err(failure) => {
            slice.failed += 1;
            complaint.get_or_insert_with(|| failure.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::serve;
    use super::*;
    use crate::workload::{Op, Redis};

    #[test]
    fn every_operation_that_is_due_is_accounted_for() {
        let mut session = Session::connect(&[serve(2, u64::MAX)], 2).unwrap();
        let keys = Keys::Sequence { next: 1 };
        let slice = Duration::from_millis(5);
        let mut open = OpenLoop::new(&mut session, Redis::new(Op::Get), keys, slice);
        let calm = open.offer(1000.0, Duration::from_millis(10)).unwrap();
        // Far more than two connections can do.
        let storm = open.offer(1e6, Duration::from_millis(10)).unwrap();
        assert_eq!((calm.slices, storm.slices.clone()), (0..2, 2..4));
        let (slices, complaint) = open.finish().unwrap();
        assert_eq!((slices.len(), complaint), (4, None));
        let all = Slice::sum(&slices);
        assert_eq!(all.due, 10 + 10_000);
        assert_eq!(all.answered + all.unsent, all.due);
        assert!(Slice::sum(&slices[storm.slices]).unsent > 0);
        assert!(all.latencies.p50_us() > 0.0 && all.refusals.is_empty());
    }
}
