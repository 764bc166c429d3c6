//! A map in memory that answers at once: it shows the limit of the generator itself.
//!
//! It keeps the newest value of each key, and its index entries, so that all checks run as against a server. All
//! workers of a run share it.

use super::{Answer, Command, Driver, ErrorKind, IndexRange, Request, Row, Rows, Sink};
use crate::Error;
use crate::check::rows::integer;
use crate::rng::mix;
use base::FastMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks: far more than threads.
const STRIPES: usize = 256;

/// Operations of a worker that wait for the next poll, at most: it answers at once, so no more are ever needed.
const BATCH_MAX: usize = 1024;

type Objects = FastMap<u64, Arc<[u8]>>;

/// The objects.
#[derive(Clone)]
pub struct Store {
    objects: Arc<[Mutex<Objects>]>,
    entries: Arc<Mutex<Entries>>,
    /// Whether there ever was an entry: runs without any are spared the lock.
    has_entries: Arc<AtomicBool>,
}

impl Default for Store {
    fn default() -> Store {
        let objects = (0..STRIPES).map(|_| Mutex::default()).collect();
        Store { objects, entries: Arc::default(), has_entries: Arc::default() }
    }
}

/// A term, in the order of its field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Term {
    Integer(i64),
    Bytes(Vec<u8>),
}

impl Term {
    fn of(field: &str, text: &[u8]) -> Option<Term> {
        if field.ends_with("_int") {
            return integer(text).map(Term::Integer);
        }
        Some(Term::Bytes(text.to_vec()))
    }

    fn text(&self) -> Vec<u8> {
        match self {
            Term::Integer(number) => number.to_string().into_bytes(),
            Term::Bytes(bytes) => bytes.clone(),
        }
    }
}

/// A bucket and a field.
type Field = (Vec<u8>, String);

/// A term and the key that is under it.
type Entry = (Term, Vec<u8>);

/// Index entries.
#[derive(Default)]
struct Entries {
    fields: BTreeMap<Field, BTreeSet<Entry>>,
    /// What each object has.
    of_objects: FastMap<u64, Vec<(Field, Entry)>>,
}

impl Entries {
    fn set(&mut self, id: u64, request: &Request<'_>, entries: &[(&str, Vec<u8>)]) {
        for (field, entry) in self.of_objects.remove(&id).unwrap_or_default() {
            if let Some(all) = self.fields.get_mut(&field) {
                all.remove(&entry);
            }
        }
        let mut own = Vec::with_capacity(entries.len());
        for (field, text) in entries {
            let Some(term) = Term::of(field, text) else { continue };
            let (field, entry) =
                ((request.bucket.to_vec(), (*field).to_owned()), (term, request.key.to_vec()));
            self.fields.entry(field.clone()).or_default().insert(entry.clone());
            own.push((field, entry));
        }
        if !own.is_empty() {
            self.of_objects.insert(id, own);
        }
    }

    fn query(&self, bucket: &[u8], range: &IndexRange<'_>) -> Option<Found> {
        let (first, last) = (Term::of(range.index, range.from)?, Term::of(range.index, range.to)?);
        let after = match range.continuation {
            Some(place) => {
                let at = place.iter().position(|&byte| byte == 0)?;
                Some((Term::of(range.index, &place[..at])?, place[at + 1..].to_vec()))
            }
            None => None,
        };
        let tells_terms = range.return_terms && !range.is_exact();
        let mut found = Found::default();
        let field = (bucket.to_vec(), range.index.to_owned());
        let from = after.clone().unwrap_or((first, Vec::new()));
        let rows = self.fields.get(&field).map(|all| all.range(from..)).into_iter().flatten();
        let rows = rows.filter(|row| after.as_ref() != Some(row)).take_while(|(term, _)| *term <= last);
        for (term, key) in rows.take(range.max_results.map_or(usize::MAX, |max| max as usize)) {
            let text = term.text();
            found.continuation = Some([&text, &[0][..], key].concat());
            let term = tells_terms.then(|| found.put(&text));
            let key = found.put(key);
            found.rows.push(Row { term, key });
        }
        let is_full = range.max_results.is_some_and(|max| found.rows.len() == max as usize);
        found.continuation = found.continuation.filter(|_| is_full);
        Some(found)
    }
}

/// The answer to a query.
#[derive(Default)]
struct Found {
    rows: Vec<Row>,
    body: Vec<u8>,
    continuation: Option<Vec<u8>>,
}

impl Found {
    fn put(&mut self, text: &[u8]) -> std::ops::Range<usize> {
        let begin = self.body.len();
        self.body.extend_from_slice(text);
        begin..self.body.len()
    }
}

enum Ended {
    Found(Arc<[u8]>),
    NotFound,
    Done,
    Listed,
    Rows(Option<Found>),
}

impl Store {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entries of an object are these from now on.
    fn set_entries(&self, id: u64, request: &Request<'_>, entries: &[(&str, Vec<u8>)]) {
        if !entries.is_empty() {
            self.has_entries.store(true, Ordering::Relaxed);
        }
        if self.has_entries.load(Ordering::Relaxed) {
            self.entries().set(id, request, entries);
        }
    }
}

/// A worker's way to them.
pub struct NullDriver {
    store: Store,
    ended: VecDeque<(u32, Ended)>,
}

impl NullDriver {
    /// Of a store that others may share.
    pub fn new(store: Store) -> NullDriver {
        NullDriver { store, ended: VecDeque::with_capacity(BATCH_MAX) }
    }
}

impl Driver for NullDriver {
    fn ready(&self) -> usize {
        BATCH_MAX - self.ended.len()
    }

    fn submit(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let id = hash(request.bucket, request.key);
        let stripe = &self.store.objects[(mix(id) >> 32) as usize % STRIPES];
        let mut objects = stripe.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = match request.command {
            Command::Get => objects.get(&id).map_or(Ended::NotFound, |value| Ended::Found(Arc::clone(value))),
            Command::Head => objects.get(&id).map_or(Ended::NotFound, |_| Ended::Done),
            Command::Put { value, indexes, .. } => {
                self.store.set_entries(id, request, indexes);
                // In place where it fits and nobody reads it, so that a write costs no allocation.
                match objects.get_mut(&id).and_then(Arc::get_mut).filter(|old| old.len() == value.len()) {
                    Some(old) => old.copy_from_slice(value),
                    None => drop(objects.insert(id, value.into())),
                }
                Ended::Done
            }
            Command::Delete { .. } => {
                self.store.set_entries(id, request, &[]);
                objects.remove(&id);
                Ended::Done
            }
            Command::Query(range) => Ended::Rows(self.store.entries().query(request.bucket, &range)),
            Command::ListKeys | Command::ListBuckets => Ended::Listed,
            Command::Ping | Command::Reconnect => Ended::Done,
        };
        self.ended.push_back((request.token, ended));
        Ok(())
    }

    fn poll(&mut self, timeout: Duration, sink: &mut dyn Sink) -> Result<(), Error> {
        if self.ended.is_empty() && !timeout.is_zero() {
            std::thread::sleep(timeout);
        }
        while let Some((token, ended)) = self.ended.pop_front() {
            let answer = match &ended {
                Ended::Found(value) => {
                    let values = [0..value.len()];
                    sink.answered(token, Answer::Found { context: b"null", values: &values, body: value });
                    continue;
                }
                Ended::NotFound => Answer::NotFound,
                Ended::Done => Answer::Done,
                Ended::Listed => Answer::Listed(0),
                Ended::Rows(None) => {
                    Answer::Failed { kind: ErrorKind::Other, text: "a term that does not fit its field" }
                }
                Ended::Rows(Some(Found { rows, body, continuation })) => {
                    Answer::Rows(Rows { places: rows, body, continuation: continuation.as_deref() })
                }
            };
            sink.answered(token, answer);
        }
        Ok(())
    }
}

/// A number for a bucket and a key.
fn hash(bucket: &[u8], key: &[u8]) -> u64 {
    [bucket, key].iter().fold(0, |hash, part| {
        part.chunks(8).fold(mix(hash ^ part.len() as u64), |hash, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            mix(hash ^ u64::from_le_bytes(word))
        })
    })
}
