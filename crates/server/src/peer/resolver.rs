//! Names of other nodes and their addresses now, looked up on threads of its own.
//!
//! The system's resolver blocks, half a minute where no name server answers. A shard's thread must not wait for it, and
//! neither must the end of a runtime, which waits for blocking tasks.
//!
//! 1. A name that is being looked up is not looked up twice: all that ask wait for the one answer.
//! 2. A thread takes the names that wait, one after the other, and ends when there are none.
//! 3. An answer goes to those that wait, and is not kept: the next question is a new look-up.
//!
//! Invariants: at most [`THREADS_MAX`] threads, at most [`NAMES_MAX`] names. A process ends without its look-ups.

use os::Address;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Look-ups at a time: a few names that nobody answers for do not hold up the others.
const THREADS_MAX: usize = 8;

/// Names that wait at a time: each member of the largest cluster has a few at most.
const NAMES_MAX: usize = 1024;

/// The addresses, or why there are none.
type Answer = Result<Vec<SocketAddr>, String>;

type Lookup = dyn Fn(&Address) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Resolves names. Clones share their look-ups.
#[derive(Clone)]
pub(crate) struct Resolver(Arc<Shared>);

struct Shared {
    lookup: Box<Lookup>,
    lookups: Mutex<Lookups>,
}

#[derive(Default)]
struct Lookups {
    /// Names that no thread has taken.
    waiting: VecDeque<Address>,
    /// Where the answer for each name goes, until it is there.
    answers: BTreeMap<Address, watch::Sender<Option<Answer>>>,
    threads: usize,
}

impl Resolver {
    /// The system's.
    pub(crate) fn of_system() -> Resolver {
        Resolver::new(Address::resolve)
    }

    /// One that finds addresses by `lookup`, which may block.
    pub(crate) fn new(
        lookup: impl Fn(&Address) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Resolver {
        Resolver(Arc::new(Shared { lookup: Box::new(lookup), lookups: Mutex::default() }))
    }

    /// The addresses of a host now.
    ///
    /// # Errors
    /// Why there are none.
    pub(crate) async fn resolve(&self, address: &Address) -> Answer {
        if let Some(number) = address.number() {
            return Ok(vec![number]);
        }
        let mut answer = self.begin(address)?;
        let found = answer.wait_for(Option::is_some).await;
        let found = found.ok().and_then(|found| found.clone());
        found.unwrap_or_else(|| Err("the look-up has ended without an answer".to_owned()))
    }

    /// Begins a look-up, or takes part in the one that is under way.
    fn begin(&self, address: &Address) -> Result<watch::Receiver<Option<Answer>>, String> {
        let mut lookups = self.0.lookups();
        if let Some(under_way) = lookups.answers.get(address) {
            return Ok(under_way.subscribe());
        }
        if lookups.answers.len() >= NAMES_MAX {
            return Err(format!("{NAMES_MAX} other names are being looked up"));
        }
        if lookups.threads < THREADS_MAX {
            let shared = Arc::clone(&self.0);
            let begun = std::thread::Builder::new().name("resolver".to_owned()).spawn(move || shared.work());
            match begun {
                Ok(_detached) => lookups.threads += 1,
                Err(error) if lookups.threads == 0 => {
                    return Err(format!("no thread to look it up: {error}"));
                }
                Err(_) => {}
            }
        }
        let (answer, receiver) = watch::channel(None);
        lookups.answers.insert(address.clone(), answer);
        lookups.waiting.push_back(address.clone());
        lookups.invariants();
        Ok(receiver)
    }
}

impl Shared {
    fn lookups(&self) -> MutexGuard<'_, Lookups> {
        self.lookups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread: looks up the names that wait.
    fn work(&self) {
        while let Some(address) = self.take() {
            let answer = (self.lookup)(&address).map_err(|error| error.to_string());
            // Nobody asks any more if the member has left.
            if let Some(sender) = self.lookups().answers.remove(&address) {
                sender.send_replace(Some(answer));
            }
        }
    }

    /// A name that waits; without one the thread ends, and is counted no more.
    fn take(&self) -> Option<Address> {
        let mut lookups = self.lookups();
        let taken = lookups.waiting.pop_front();
        if taken.is_none() {
            lookups.threads -= 1;
        }
        lookups.invariants();
        taken
    }
}

impl Lookups {
    fn invariants(&self) {
        assert!(self.threads <= THREADS_MAX && self.answers.len() <= NAMES_MAX);
        assert!(self.waiting.len() <= self.answers.len(), "every name that waits has somebody to be told");
        assert!(self.waiting.is_empty() || self.threads > 0, "names wait for a thread");
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Resolver").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    fn numbers(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_name_is_looked_up_once_at_a_time_and_anew_later() {
        let asked = Arc::new(AtomicUsize::new(0));
        let (answer, answers) = mpsc::channel::<Vec<SocketAddr>>();
        let (count, answers) = (Arc::clone(&asked), Mutex::new(answers));
        let resolver = Resolver::new(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            let found = answers.lock().unwrap().recv().unwrap();
            if found.is_empty() { Err(io::Error::other("unknown")) } else { Ok(found) }
        });
        let name: Address = "n1:1".parse().unwrap();
        let number: Address = "10.0.0.9:1".parse().unwrap();

        // A number needs no look-up, also while one is under way; this thread never waits for one.
        let others = async {
            tokio::task::yield_now().await;
            assert_eq!(resolver.resolve(&number).await, Ok(numbers(&["10.0.0.9:1"])));
            answer.send(numbers(&["10.0.0.1:1", "[::1]:1"])).unwrap();
        };
        let (first, second, ()) = tokio::join!(resolver.resolve(&name), resolver.resolve(&name), others);
        assert_eq!(first, Ok(numbers(&["10.0.0.1:1", "[::1]:1"])));
        assert_eq!((&second, asked.load(Ordering::SeqCst)), (&first, 1));

        answer.send(numbers(&["10.0.0.2:1"])).unwrap();
        assert_eq!(resolver.resolve(&name).await, Ok(numbers(&["10.0.0.2:1"])));
        answer.send(Vec::new()).unwrap();
        assert_eq!(resolver.resolve(&name).await, Err("unknown".to_owned()));
        assert_eq!(asked.load(Ordering::SeqCst), 3);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn names_that_nobody_answers_for_are_bounded() {
        let (held, holds) = mpsc::channel::<()>();
        let holds = Mutex::new(holds);
        let resolver = Resolver::new(move |_| {
            holds.lock().unwrap().recv().ok();
            Err(io::Error::other("ended"))
        });
        let name = |at: usize| format!("n{at}:1").parse::<Address>().unwrap();
        let waiting: Vec<_> = (0..NAMES_MAX).map(|at| resolver.begin(&name(at)).unwrap()).collect();
        assert_eq!(resolver.0.lookups().threads, THREADS_MAX);
        assert!(resolver.begin(&name(0)).is_ok(), "it is under way");
        let refused = resolver.resolve(&name(NAMES_MAX)).await.unwrap_err();
        assert_eq!(refused, "1024 other names are being looked up");
        drop(held);
        for mut answer in waiting {
            let found = answer.wait_for(Option::is_some).await.unwrap().clone();
            assert_eq!(found, Some(Err("ended".to_owned())));
        }
    }
}
