//! The control of a run from outside, and its progress.

use results::{Event, Latencies, Manifest, Second, Summary};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Whoever watches a run while it goes on, on the thread that called [`super::run`].
pub trait Observer {
    /// It begins.
    fn started(&mut self, _manifest: &Manifest) {}
    /// A second is over.
    fn second(&mut self, _second: &Second, _latencies: &[Latencies]) {}
    /// Something was done to the servers.
    fn event(&mut self, _event: &Event) {}
    /// It has ended.
    fn finished(&mut self, _summary: &Summary) {}
}

/// Nobody watches.
impl Observer for () {}

/// The way to a run that goes on, from any thread. Each run has one of its own.
#[derive(Debug, Default)]
pub struct Control {
    /// Shared by runs that are ended together.
    stop: Arc<AtomicBool>,
    begin: OnceLock<Instant>,
    events: Mutex<Vec<Event>>,
    /// The nanosecond of the run at which the last operation begins; 0 while that is not known.
    pub(super) end_ns: AtomicU64,
}

impl Control {
    /// For another run, which ends when this one is ended.
    pub fn for_another(&self) -> Control {
        Control { stop: Arc::clone(&self.stop), ..Control::default() }
    }

    /// Ends the run early: what is outstanding is awaited, and the results are written.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has ended it.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Marks the charts: what kind (`fault`, `repair`, `note`), in a few words, and to which server. Before the run has
    /// begun it marks its beginning.
    pub fn mark(&self, kind: &str, text: &str, server: Option<u32>) {
        let at_s = self.elapsed_s().unwrap_or(0.0);
        let event = Event { at_s, kind: kind.to_owned(), text: text.to_owned(), server };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// Seconds since the run began; none if it has not.
    pub fn elapsed_s(&self) -> Option<f64> {
        self.begin.get().map(|begin| begin.elapsed().as_secs_f64())
    }

    pub(super) fn begin(&self) -> Instant {
        *self.begin.get_or_init(Instant::now)
    }

    pub(super) fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_begin_each_for_itself_and_are_ended_together() {
        let all = Control::default();
        let first = all.for_another();
        first.begin();
        first.mark("note", "in the first", None);
        let second = all.for_another();
        assert!(second.elapsed_s().is_none(), "it has not begun");
        assert!(second.take_events().is_empty());
        assert!(!second.is_stopped());
        all.stop();
        assert!(first.is_stopped() && second.is_stopped());
    }
}
