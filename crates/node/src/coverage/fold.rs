//! Folds over a cluster ([`kv::fold`]): gathered as listings are (`mod.rs`), and read here, a page at a time.
//!
//! A page ends when it tells of enough, or when [`VISITED_MAX`] heads were looked at: so one that finds little comes as
//! soon, and a slow disk holds up no page for longer than its asker waits.

use crate::anti_entropy::trees::NVals;
use crate::coverage::walk::{Stretch, Walk, Wanted, seek};
use crate::shard::env::Env;
use bytes::Bytes;
use engine::fold::{Visit, Visitor};
use kv::Error;
use kv::fold::{Finds, Fold, FoldCollector, Scope, Sum, Taken};
use object::key;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Heads that are looked at for one page: some ten milliseconds of work, and the most hashes that a message tells.
const VISITED_MAX: usize = 65_536;

/// What the scan of a page has found so far.
#[derive(Clone)]
pub(crate) struct Folding(Arc<Mutex<State>>);

struct State {
    taker: FoldCollector,
    visited: usize,
    /// Where the page has ended before the scan did.
    next: Option<Bytes>,
    error: Option<Error>,
}

impl Folding {
    fn new(fold: &Fold, now_ms: u64) -> Folding {
        let taker = FoldCollector::new(fold.clone(), now_ms);
        Folding(Arc::new(Mutex::new(State { taker, visited: 0, next: None, error: None })))
    }

    /// What the page has come to, and where it ended if there is more.
    pub fn end(&self) -> Result<(Sum, Option<Bytes>), Error> {
        let mut state = self.lock();
        match state.error.take() {
            None => Ok((state.taker.end(), state.next.take())),
            Some(error) => Err(error),
        }
    }

    /// Takes a key that is in scope; where to go on, if not with the next one.
    fn take(&self, ledger_key: &[u8], head: &[u8]) -> ControlFlow<Visit, Taken> {
        let mut state = self.lock();
        state.visited += 1;
        match state.taker.take(ledger_key, head) {
            Ok(taken) if taken != Taken::Full && state.visited < VISITED_MAX => ControlFlow::Continue(taken),
            Ok(_) => {
                state.next = Some([ledger_key, &[0]].concat().into());
                ControlFlow::Break(seek(None))
            }
            Err(error) => {
                state.error = Some(error);
                ControlFlow::Break(seek(None))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of replicas of the objects of a fold: so many nodes could be asked for each prefix.
pub(crate) fn n_val_of(env: &Env, fold: &Fold) -> Result<u32, Error> {
    match &fold.scope {
        Scope::Bucket(bucket) => {
            env.knobs.limits.check_bucket(bucket)?;
            Ok(env.props.get_as_replica(bucket)?.n_val)
        }
        // Of a number of replicas that no bucket has nothing is found, wherever it is looked for.
        Scope::NVal(n_val) => Ok((*n_val).min(env.topology.n_val_max())),
    }
}

/// The visitor of a fold over these prefixes, ascending, and the collector of its findings.
pub(crate) fn visitor_of(env: &Env, fold: &Fold, own: Vec<u16>) -> (Visitor, Folding) {
    let folding = Folding::new(fold, env.clock.wall().millis());
    let visitor = match &fold.scope {
        Scope::Bucket(bucket) => {
            let (first, last) = match &fold.keys {
                Some(span) => (span.first.clone(), Some(span.last.clone())),
                None => (Bytes::new(), None),
            };
            let own = own.into_iter().collect();
            of_bucket(Stretch { bucket: bucket.clone(), first, last, own }, folding.clone())
        }
        Scope::NVal(n_val) => {
            let finds_buckets = fold.finds == Finds::Buckets;
            let is_wanted = move |of: u32, n_val: u32| of == n_val || (finds_buckets && of > n_val);
            let n_val = *n_val;
            let n_vals = NVals::new(env.props.clone());
            of_all(own, n_vals, move |of| is_wanted(of, n_val), folding.clone())
        }
    };
    (visitor, folding)
}

fn of_bucket(stretch: Stretch, folding: Folding) -> Visitor {
    let mut walk = Walk::default();
    Box::new(move |ledger_key, head| match walk.key(&stretch, ledger_key) {
        Ok(_) => match folding.take(ledger_key, head) {
            ControlFlow::Continue(_) => Visit::Skip,
            ControlFlow::Break(visit) => visit,
        },
        Err(visit) => visit,
    })
}

/// All keys of these prefixes whose number of replicas is wanted.
fn of_all(
    prefixes: Vec<u16>,
    mut n_vals: NVals,
    is_wanted: impl Fn(u32) -> bool + Send + 'static,
    folding: Folding,
) -> Visitor {
    let mut wanted = Wanted::new(prefixes);
    Box::new(move |ledger_key, head| {
        let prefix = key::prefix_of(ledger_key);
        let reached = wanted.reach(prefix);
        if reached != Some(prefix) {
            return seek(reached.map(|next| key::objects_at(next).start));
        }
        if !n_vals.of(ledger_key).is_some_and(&is_wanted) {
            return Visit::Skip;
        }
        match folding.take(ledger_key, head) {
            ControlFlow::Continue(Taken::SkipBucket) => seek(end_of_bucket(ledger_key)),
            ControlFlow::Continue(_) => Visit::Skip,
            ControlFlow::Break(visit) => visit,
        }
    })
}

/// Where a key's bucket ends among those of its prefix.
fn end_of_bucket(ledger_key: &[u8]) -> Option<Vec<u8>> {
    let parts = key::decode_object_key(ledger_key).ok()?;
    Some(key::objects_of_bucket(parts.prefix, &parts.bucket_type, &parts.bucket).end)
}
