//! Pages of figures: the answers of `/stats`, `/admin/status` and `/metrics`. None is made on a shard's thread.
//!
//! 1. A page waits for its turn: one is made at a time on a node, however many are asked for.
//! 2. The shards' threads bring their parts ([`Ask`]).
//! 3. A thread for computations sums them up, reads the figures of the process and the machine, and makes the text.
//!
//! Invariant: a page has the figures of a moment after it was asked for.
//!
//! Left out: the figures (`node_stats.rs`, `stats.rs`), and the text of Prometheus (`figures`).

use crate::compute_threads::ComputeThreads;
use crate::membership::Answered;
use crate::stats::Stats;
use figures::{Exposition, Format};
use serde::Serialize;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Pages that are made or wait for it. A page takes less than a millisecond of a processor, so the last one of these is
/// answered long before a scraper's timeout of ten seconds; a node has few scrapers and operators.
const PAGES_MAX: usize = 64;

/// Asks the shards' threads for their parts. The sum of these is left to the thread that makes the page.
pub type Ask = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Sum> + Send>> + Send + Sync>;

/// The figures of the node, of parts that are there.
pub type Sum = Box<dyn FnOnce() -> Stats + Send>;

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigurePage {
    /// All figures as JSON.
    Stats,
    /// Those that tell operators where the node stands.
    Status,
    /// The text for Prometheus.
    Metrics(Format),
}

impl FigurePage {
    /// The value of the header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            FigurePage::Stats | FigurePage::Status => "application/json",
            FigurePage::Metrics(format) => format.content_type(),
        }
    }
}

/// The maker of a node's pages.
pub(crate) struct FigurePages {
    ask: Ask,
    compute: Arc<ComputeThreads>,
    turn: Arc<Semaphore>,
    places: Semaphore,
    exposition: Mutex<Exposition>,
}

impl FigurePages {
    /// Of figures that `ask` brings.
    pub(crate) fn new(ask: Ask, compute: Arc<ComputeThreads>) -> Arc<FigurePages> {
        Arc::new(FigurePages {
            ask,
            compute,
            turn: Arc::new(Semaphore::new(1)),
            places: Semaphore::new(PAGES_MAX),
            exposition: Mutex::default(),
        })
    }

    /// The text of a page.
    ///
    /// # Errors
    /// Too many pages are asked for, or the page cannot be made.
    pub(crate) async fn text(self: &Arc<Self>, page: FigurePage) -> Result<String, Answered> {
        let busy = |_| Answered::wrong(503, "too many pages of figures are asked for");
        let _place = self.places.try_acquire().map_err(busy)?;
        let turn = Arc::clone(&self.turn).acquire_owned().await.expect("nobody closes it");
        let sum = (self.ask)().await;
        let pages = Arc::clone(self);
        let make = move || {
            let text = pages.make(page, sum);
            // The turn ends with the text, whether or not the client still waits for it.
            drop(turn);
            text
        };
        let text = self.compute.run(make).await.map_err(|error| Answered::wrong(503, error))?;
        text.map_err(|error| Answered::wrong(500, error))
    }

    fn make(&self, page: FigurePage, sum: Sum) -> Result<String, String> {
        let stats = sum();
        match page {
            FigurePage::Stats => json(&stats),
            FigurePage::Status => json(&stats.status()),
            FigurePage::Metrics(format) => {
                let reading = stats.reading().map_err(|error| error.to_string())?;
                let mut exposition = self.exposition.lock().unwrap_or_else(PoisonError::into_inner);
                exposition.text(reading, format).map_err(|error| error.to_string())
            }
        }
    }
}

fn json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::task::{Context, Waker};
    use tokio::runtime::{Builder, Runtime};
    use tokio::task::JoinSet;

    const METRICS: FigurePage = FigurePage::Metrics(Format::Text);

    fn runtime() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    /// Pages of a node without shards, whose sums call `on_sum`.
    fn pages(on_sum: impl Fn() + Clone + Send + Sync + 'static) -> Arc<FigurePages> {
        let ask: Ask = Arc::new(move || {
            let on_sum = on_sum.clone();
            let sum: Sum = Box::new(move || {
                on_sum();
                Stats::of("n@h", "1", 64, 3, &[])
            });
            Box::pin(std::future::ready(sum))
        });
        FigurePages::new(ask, Arc::new(ComputeThreads::start().unwrap()))
    }

    #[test]
    fn pages_that_are_asked_for_at_once_are_made_one_by_one_on_another_thread() {
        let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (asking, seen) = (std::thread::current().id(), Arc::clone(&most));
        let pages = pages(move || {
            assert_ne!(std::thread::current().id(), asking);
            seen.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::yield_now();
            under_way.fetch_sub(1, Ordering::SeqCst);
        });
        runtime().block_on(async {
            let mut asked = JoinSet::new();
            for page in [METRICS, FigurePage::Stats, FigurePage::Status].repeat(PAGES_MAX / 3) {
                let pages = Arc::clone(&pages);
                asked.spawn(async move { (page, pages.text(page).await.unwrap()) });
            }
            for (page, text) in asked.join_all().await {
                let holds = if page == METRICS { "\nannulet_connections 3\n" } else { "\"connections\":3" };
                assert!(text.contains(holds), "{page:?}: {text}");
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn pages_that_wait_are_bounded() {
        let (go_on, held) = mpsc::sync_channel::<()>(0);
        let held = Arc::new(Mutex::new(held));
        // It takes two words: one when it has begun, and one to go on.
        let pages = pages(move || (0..2).for_each(|_| held.lock().unwrap().recv().unwrap()));
        runtime().block_on(async {
            let mut waiting: Vec<_> = (0..PAGES_MAX).map(|_| Box::pin(pages.text(METRICS))).collect();
            let mut context = Context::from_waker(Waker::noop());
            assert!(waiting.iter_mut().all(|page| page.as_mut().poll(&mut context).is_pending()));
            assert_eq!(pages.text(METRICS).await.unwrap_err().status, 503);

            // The first one has begun: it is made although its client goes, and its turn is free afterwards.
            go_on.send(()).unwrap();
            drop(waiting.drain(..PAGES_MAX - 1));
            let releasing = std::thread::spawn(move || (0..3).for_each(|_| go_on.send(()).unwrap()));
            assert!(waiting.remove(0).await.unwrap().starts_with("# HELP "));
            releasing.join().unwrap();
        });
    }

    #[test]
    fn a_page_that_cannot_be_made_frees_its_turn() {
        let pages = pages(|| panic!("a planted panic"));
        runtime().block_on(async {
            for _ in 0..2 * PAGES_MAX {
                let mut page = pin!(pages.text(METRICS));
                assert_eq!(page.as_mut().await.unwrap_err().status, 503);
            }
        });
    }
}
