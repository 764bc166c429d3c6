//! Threads for computations that hold requests of others up: pieces of handshakes of TLS, texts of figures. They take
//! up to milliseconds, which a shard's thread has not.
//!
//! A shard's thread hands a computation over and serves others until its result is there.
//!
//! Left out: work on disks, which is of job threads (`os::JobThreads`). A disk that hangs delays no computation.

use crate::machine;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// Threads: more would take the processors from the shards in a flood of handshakes.
const THREADS_MAX: usize = 2;

/// Processors for each of these threads.
const CORES_PER_THREAD: usize = 4;

/// The nice value of these threads: strangers begin handshakes, and figures are for operators; neither must slow
/// requests of others down. It is that of job threads, about a third of the share of a shard: a handshake has five
/// seconds (`security/door.rs`), and a scrape of Prometheus ten.
const NICENESS: i32 = 5;

/// Computations that wait: one for each handshake that is under way, and the one text of figures (`node_stats.rs`).
const QUEUE_MAX: usize = crate::security::HANDSHAKES_MAX + 1;

/// The threads. They end when this is dropped.
pub(crate) struct ComputeThreads {
    queue: SyncSender<Work>,
}

/// A computation, which sends its result itself.
type Work = Box<dyn FnOnce() + Send>;

impl ComputeThreads {
    /// Starts the threads.
    pub(crate) fn start() -> io::Result<ComputeThreads> {
        let (queue, waiting) = sync_channel(QUEUE_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..(machine::cores() / CORES_PER_THREAD).clamp(1, THREADS_MAX) {
            let waiting = Arc::clone(&waiting);
            let body = move || {
                os::lower_priority(NICENESS);
                run_all(&waiting);
            };
            std::thread::Builder::new().name("annulet-compute".to_owned()).spawn(body)?;
        }
        Ok(ComputeThreads { queue })
    }

    /// The result of a computation. One whose caller has gone before it begins is not made.
    ///
    /// # Errors
    /// Too many wait, or the computation has panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (tell, told) = oneshot::channel();
        let work = move || {
            if !tell.is_closed() {
                // The caller may have gone meanwhile.
                tell.send(compute()).ok();
            }
        };
        let busy = |_| io::Error::new(io::ErrorKind::ResourceBusy, "too many computations wait");
        self.queue.try_send(Box::new(work)).map_err(busy)?;
        told.await.map_err(|_| io::Error::other("the computation has failed"))
    }
}

fn run_all(queue: &Mutex<Receiver<Work>>) {
    loop {
        // The lock is free while the computation is made.
        let work = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(work) = work else { return };
        // A panic is printed, and ends the request of its caller alone, as in a task of a shard's thread.
        catch_unwind(AssertUnwindSafe(work)).ok();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn a_panic_ends_its_computation_alone() {
        let threads = ComputeThreads::start().unwrap();
        for number in 0..10 {
            let failed = block_on(threads.run(|| assert_eq!(1, 2, "a planted panic"))).unwrap_err();
            assert_eq!(failed.kind(), io::ErrorKind::Other);
            assert_eq!(block_on(threads.run(move || number + 1)).unwrap(), number + 1);
        }
    }

    #[test]
    fn computations_that_wait_are_bounded_and_those_of_nobody_are_not_made() {
        let (queue, waiting) = sync_channel(2);
        let threads = ComputeThreads { queue };
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut gone = pin!(threads.run(|| unreachable!("its caller has gone")));
            assert!(gone.as_mut().poll(&mut context).is_pending());
        }
        let mut made = pin!(threads.run(|| 7));
        assert!(made.as_mut().poll(&mut context).is_pending());
        let full = block_on(threads.run(|| 8)).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::ResourceBusy);

        waiting.try_iter().for_each(|work| work());
        assert_eq!(block_on(made).unwrap(), 7);
    }
}
