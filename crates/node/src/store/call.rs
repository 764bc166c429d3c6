//! A call of a backend, as a job: its calls wait, and a shard must not. The job has the backend until it is done.

use super::entries::{self, Part};
use super::page::Page;
use super::unwritten::{Batch, Change};
use crate::indexing::INDEXING;
use backends::{Backend, Object, What, Write};
use base::spawn::Outcome;
use base::{Disk, Job, Progress};
use bytes::Bytes;
use engine::store::LookupId;
use engine::{Error, Want};
use std::ops::ControlFlow;

/// Keys of a dropped range that are deleted at a time, at most, but for the entries of the last one.
const DROPPED_MAX: usize = 1024;

/// Lookups that one slice answers: as many reads of a disk.
const SLICE_LOOKUPS: usize = 64;

/// Somebody waits for what a key has.
#[derive(Debug)]
pub struct Wanted {
    pub id: LookupId,
    pub key: Bytes,
    pub want: Want,
}

/// What a backend has of a key; the value is empty where only the head was wanted.
pub type Answer = Result<Option<Object>, Error>;

/// What is asked of a backend, and what it has answered.
pub enum Call {
    /// Keys that are looked up.
    Look(Vec<Wanted>, Vec<Answer>),
    /// Batches that are written, together.
    Write(Vec<Batch>, Result<(), Error>),
    /// A page that is read, and whether it is done.
    Scan(Box<Page>, Result<Progress, Error>),
    /// Entries that are made anew.
    Make(Part),
    /// The stop.
    Close(Result<(), Error>),
}

impl Call {
    /// Asks for a bounded part of it.
    pub fn step(&mut self, backend: &mut Option<Box<dyn Backend>>) -> Progress {
        let it = backend.as_deref_mut().expect("a backend that was closed is not called");
        match self {
            Call::Look(wanted, answers) => {
                let next = wanted[answers.len()..].iter().take(SLICE_LOOKUPS);
                let answered: Vec<Answer> = next.map(|wanted| look(it, wanted)).collect();
                answers.extend(answered);
                if answers.len() < wanted.len() { Progress::More } else { Progress::Done }
            }
            Call::Write(batches, written) => {
                let wrote = match &batches[..] {
                    [one] if one.drops() => drop_some(it, one),
                    batches => write(it, batches).map(|()| Progress::Done),
                };
                wrote.unwrap_or_else(|error| {
                    *written = Err(error.into());
                    Progress::Done
                })
            }
            Call::Scan(page, stepped) => {
                *stepped = page.step(it);
                Progress::Done
            }
            Call::Make(part) => {
                part.step(it);
                Progress::Done
            }
            Call::Close(closed) => {
                let it = backend.take().expect("just looked");
                *closed = it.close().map_err(Error::from);
                Progress::Done
            }
        }
    }
}

fn look(backend: &mut dyn Backend, wanted: &Wanted) -> Answer {
    let found = match wanted.want {
        Want::Value => backend.get(&wanted.key),
        Want::Head => {
            backend.head(&wanted.key).map(|head| head.map(|head| Object { head, value: Bytes::new() }))
        }
    };
    found.map_err(Error::from)
}

fn write(backend: &mut dyn Backend, batches: &[Batch]) -> Result<(), backends::Error> {
    let changes = batches.iter().flat_map(|batch| &batch.changes);
    backend.write(&changes.filter_map(Change::as_write).collect::<Vec<_>>())
}

/// Deletes some of what is left in the ranges that a batch drops: entries before their objects, which say what they
/// are.
fn drop_some(backend: &mut dyn Backend, batch: &Batch) -> Result<Progress, backends::Error> {
    for change in &batch.changes {
        let Change::Drop(start, end) = change else { unreachable!("it does nothing else") };
        let mut keys = Vec::new();
        backend.fold(start, end, What::Heads, &mut |item| {
            if keys.len() >= DROPPED_MAX {
                return ControlFlow::Break(());
            }
            if batch.drops_entries && (INDEXING.may_have)(item.head) {
                (INDEXING.entries_of)(item.key, item.head, &mut |entry| keys.push(entry.to_vec()));
            }
            keys.push(item.key.to_vec());
            ControlFlow::Continue(())
        })?;
        if !keys.is_empty() {
            let deletes: Vec<Write<'_>> = keys.iter().map(|key| Write::Delete { key }).collect();
            entries::write_in_order(backend, &deletes)?;
            return Ok(Progress::More);
        }
    }
    Ok(Progress::Done)
}

/// What a call brings back.
pub type Called = (Option<Box<dyn Backend>>, Call);

/// A call under way.
pub struct CallJob {
    /// Until it is done.
    under_way: Option<Called>,
    outcome: Outcome<Called>,
}

impl CallJob {
    /// Of this backend; it comes back with the answer.
    pub fn new(backend: Box<dyn Backend>, call: Call, outcome: Outcome<Called>) -> CallJob {
        CallJob { under_way: Some((Some(backend), call)), outcome }
    }
}

impl Job for CallJob {
    /// A backend has a disk of its own.
    fn slice(&mut self, _disk: &mut dyn Disk) -> Progress {
        let (mut backend, mut call) = self.under_way.take().expect("a job that is done is not called");
        let progress = call.step(&mut backend);
        match progress {
            Progress::More => self.under_way = Some((backend, call)),
            Progress::Done => self.outcome.set((backend, call)),
        }
        progress
    }
}
