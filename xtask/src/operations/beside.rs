//! A measurement beside work of another thread.

use crate::Result;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Measures while `work` runs on a thread of its own. Work ends when the other end of its channel is dropped.
pub(super) fn beside<T>(
    work: impl FnOnce(&Receiver<()>) -> Result<()> + Send,
    measure: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let (end, ended) = channel();
    thread::scope(|scope| {
        let worker = scope.spawn(move || work(&ended));
        let measured = measure();
        drop(end);
        worker.join().map_err(|_| "the thread beside a measurement panicked")??;
        measured
    })
}
