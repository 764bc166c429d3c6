//! A fold as a job, for a store whose owner must not wait.

use super::request::{Control, FoldEnd, Visited};
use super::walk::FoldWalk;
use crate::error::Error;
use crate::table::Block;
use base::spawn::Outcome;
use base::{Disk, Job, Progress};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Names a fold under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FoldId(pub u64);

/// Sees each item on the job's thread, and says how to go on.
pub type FoldVisitor = Box<dyn FnMut(&Visited<'_>) -> Control + Send>;

/// A fold under way, as its store sees it.
pub(crate) struct Fold {
    pub id: FoldId,
    pub(super) cancelled: Arc<AtomicBool>,
    pub(super) outcome: Outcome<Ended>,
}

/// What has become of a fold, and blocks of tables, each with its number, that are to be kept for lookups.
pub(crate) type Ended = (Result<FoldEnd, Error>, Vec<(u32, Block)>);

impl Fold {
    /// A fold, and the job that makes it.
    pub fn new(id: FoldId, walk: FoldWalk, visitor: FoldVisitor) -> (Fold, Box<dyn Job>) {
        let (cancelled, outcome) = (Arc::new(AtomicBool::new(false)), Outcome::new());
        let fold = Fold { id, cancelled: Arc::clone(&cancelled), outcome: outcome.clone() };
        (fold, Box::new(FoldJob { walk: Some(walk), visitor, cancelled, outcome }))
    }

    /// Ends it before its time; it tells where it can be resumed.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Its end, once.
    pub fn take(&self) -> Option<Ended> {
        self.outcome.take()
    }
}

struct FoldJob {
    walk: Option<FoldWalk>,
    visitor: FoldVisitor,
    cancelled: Arc<AtomicBool>,
    outcome: Outcome<Ended>,
}

impl Job for FoldJob {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        let mut walk = self.walk.take().expect("a job that is done is not called");
        let step = match self.cancelled.load(Ordering::Relaxed) {
            true => None,
            false => Some(walk.step(disk, &mut *self.visitor)),
        };
        let blocks = match &step {
            Some(Ok(Progress::More)) => {
                self.walk = Some(walk);
                return Progress::More;
            }
            _ => walk.take_blocks(),
        };
        let end = match step {
            Some(Ok(_)) => Ok(walk.end()),
            Some(Err(error)) => Err(error),
            None => Ok(walk.give_up()),
        };
        self.outcome.set((end, blocks));
        Progress::Done
    }
}
