//! A storage engine in this process with blocking calls: one store for each worker, or one for all ([`Shared`]).
//!
//! One operation at a time, so service times are the engine's own. Heads are what a server would keep of an object
//! without its value, in size; no object is encoded. A key is its bucket, a zero and its name, so listings are folds;
//! what workers share is not listed.
//!
//! Where keys are packed ([`Packing`]), each is an entry of its bucket's array: a write reads the pack, sets the entry
//! and writes the pack.

use super::{Answer, Command, Driver, ErrorKind, Request, Sink};
use crate::Error;
use crate::workload::{EnginePlan, Packing};
use backends::packed::{Layout, Packed};
use backends::shared::{Handle, Shared};
use backends::{Backend, Jobs, Kind, Machine, Object, What};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// About what a head of an object takes.
const HEAD: [u8; 64] = [7; 64];

enum Ended {
    Found(bytes::Bytes),
    NotFound,
    Done,
    Listed(u64),
    Failed(ErrorKind, String),
}

enum Store {
    Own(Box<dyn Backend>),
    Shared(Handle),
}

/// A worker's store, or its handle of the one that all share.
pub struct EngineDriver {
    kind: Kind,
    store: Store,
    packing: Option<Packing>,
    name: Vec<u8>,
    ended: Option<(u32, Ended)>,
}

impl EngineDriver {
    /// Opens the store in `folder`, or makes one.
    pub fn open(folder: &Path, plan: &EnginePlan) -> Result<EngineDriver, Error> {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        let store = plan.kind.open(folder, &plan.settings, machine());
        let store = store.map_err(|error| Error::Unusable(format!("{}: {error}", folder.display())))?;
        Ok(EngineDriver::of(plan, Store::Own(store)))
    }

    /// The store in `folder` that so many workers share, each with a driver of its own ([`EngineDriver::sharing`]).
    pub fn open_shared(folder: &Path, plan: &EnginePlan, workers: usize) -> Result<Shared, Error> {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        let machine = machine_with_jobs();
        Shared::open(plan.kind, folder, &plan.settings, &machine, plan.sharing(workers))
            .map_err(|error| Error::Unusable(format!("{}: {error}", folder.display())))
    }

    /// A worker's driver of a store that is shared.
    pub fn sharing(shared: &Shared, plan: &EnginePlan) -> EngineDriver {
        EngineDriver::of(plan, Store::Shared(shared.handle()))
    }

    fn of(plan: &EnginePlan, store: Store) -> EngineDriver {
        let packing = plan.packing.clone();
        EngineDriver { kind: plan.kind, store, packing, name: Vec::new(), ended: None }
    }

    /// The folder of a worker's store.
    pub fn folder(parent: &Path, worker: u32) -> PathBuf {
        parent.join(format!("store-{worker}"))
    }

    fn run(&mut self, request: &Request<'_>) -> Result<Ended, backends::Error> {
        if let Some(packing) = self.packing.as_ref().filter(|_| !request.key.is_empty()) {
            return match packing.entry(request.bucket, request.key) {
                Some((array, number)) => run_packed(&mut self.store, array, number, request.command),
                None => Err(backends::Error::Refused("the key is no entry of an array".to_owned())),
            };
        }
        self.name.clear();
        for part in [request.bucket, &[0], request.key] {
            self.name.extend_from_slice(part);
        }
        let (name, store) = (&self.name, &mut self.store);
        Ok(match request.command {
            Command::Get => store.get(name)?.map_or(Ended::NotFound, |found| Ended::Found(found.value)),
            Command::Head => store.head(name)?.map_or(Ended::NotFound, |_| Ended::Done),
            Command::Put { value, .. } => store.put(name, &HEAD, value).map(|()| Ended::Done)?,
            Command::Delete { .. } => store.delete(name).map(|()| Ended::Done)?,
            Command::ListKeys => Ended::Listed(keys(store.listed()?, request.bucket)?),
            Command::ListBuckets => Ended::Listed(buckets(store.listed()?)?),
            Command::Query(_) => {
                let text = "an engine alone has no index queries".to_owned();
                Ended::Failed(ErrorKind::Unsupported, text)
            }
            Command::Ping | Command::Reconnect => Ended::Done,
        })
    }
}

fn run_packed(
    store: &mut Store,
    array: &Layout,
    number: u64,
    command: Command<'_>,
) -> Result<Ended, backends::Error> {
    Ok(match command {
        Command::Get => store.entry(array, number)?.map_or(Ended::NotFound, Ended::Found),
        Command::Head if store.has_entry(array, number)? => Ended::Done,
        Command::Head => Ended::NotFound,
        Command::Put { value, .. } => store.set_entry(array, number, Some(value)).map(|()| Ended::Done)?,
        Command::Delete { .. } => store.set_entry(array, number, None).map(|()| Ended::Done)?,
        // Those name no key.
        _ => Ended::Done,
    })
}

impl Store {
    fn entry(&mut self, array: &Layout, number: u64) -> Result<Option<bytes::Bytes>, backends::Error> {
        match self {
            Store::Own(store) => Packed::new(&mut **store, array.clone()).get(number),
            Store::Shared(handle) => handle.entry(array, number),
        }
    }

    fn has_entry(&mut self, array: &Layout, number: u64) -> Result<bool, backends::Error> {
        match self {
            Store::Own(store) => Packed::new(&mut **store, array.clone()).contains(number),
            Store::Shared(handle) => handle.has_entry(array, number),
        }
    }

    fn set_entry(
        &mut self,
        array: &Layout,
        number: u64,
        entry: Option<&[u8]>,
    ) -> Result<(), backends::Error> {
        match self {
            Store::Own(store) => Packed::new(&mut **store, array.clone()).write(&[(number, entry)]),
            Store::Shared(handle) => handle.set_entry(array, number, entry),
        }
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Object>, backends::Error> {
        match self {
            Store::Own(store) => store.get(key),
            Store::Shared(handle) => handle.get(key),
        }
    }

    fn head(&mut self, key: &[u8]) -> Result<Option<bytes::Bytes>, backends::Error> {
        match self {
            Store::Own(store) => store.head(key),
            Store::Shared(handle) => handle.head(key),
        }
    }

    fn put(&mut self, key: &[u8], head: &[u8], value: &[u8]) -> Result<(), backends::Error> {
        match self {
            Store::Own(store) => store.put(key, head, value),
            Store::Shared(handle) => handle.put(key, head, value),
        }
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), backends::Error> {
        match self {
            Store::Own(store) => store.delete(key),
            Store::Shared(handle) => handle.delete(key),
        }
    }

    fn listed(&mut self) -> Result<&mut dyn Backend, backends::Error> {
        match self {
            Store::Own(store) => Ok(&mut **store),
            Store::Shared(_) => {
                Err(backends::Error::Refused("a store that workers share cannot be listed".to_owned()))
            }
        }
    }
}

/// Keys of a bucket.
fn keys(store: &mut dyn Backend, bucket: &[u8]) -> Result<u64, backends::Error> {
    let mut count = 0;
    store.fold(&[bucket, &[0]].concat(), &[bucket, &[1]].concat(), What::Heads, &mut |_| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

/// Buckets, from the first key of one to the first of the next.
fn buckets(store: &mut dyn Backend) -> Result<u64, backends::Error> {
    let (mut count, mut from) = (0, Some(Vec::new()));
    while let Some(begin) = from.take() {
        store.fold(&begin, &[], What::Heads, &mut |item| {
            let bucket = item.key.split(|&byte| byte == 0).next().unwrap_or_default();
            from = Some([bucket, &[1]].concat());
            ControlFlow::Break(())
        })?;
        count += u64::from(from.is_some());
    }
    Ok(count)
}

/// A thread has its store alone: jobs run within its calls, whose times have all that a call costs.
fn machine() -> Machine {
    let disks = os::OsDisk::blocking().blocking_handles();
    Machine::new(disks, os::OsClock::new(), os::OsRng::new())
}

/// Of a store that many threads share, as of a node's shard, jobs run on a thread of its own; the other engines that
/// are made for many threads have some, too.
fn machine_with_jobs() -> Machine {
    let disks = os::OsDisk::blocking().blocking_handles();
    Machine::new(disks.clone(), os::OsClock::new(), os::OsRng::new()).with_jobs(move || {
        let (spawn, ended) = os::JobThreads::awaited(1, &disks())?;
        Ok(Jobs { spawn: Arc::new(spawn), ended: Box::new(ended) })
    })
}

impl Driver for EngineDriver {
    fn ready(&self) -> usize {
        usize::from(self.ended.is_none())
    }

    fn submit(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let ended = self.run(request).unwrap_or_else(|error| match error {
            backends::Error::TooLarge { .. } | backends::Error::Refused(_) => {
                Ended::Failed(ErrorKind::Unsupported, error.to_string())
            }
            _ => Ended::Failed(ErrorKind::Other, error.to_string()),
        });
        self.ended = Some((request.token, ended));
        Ok(())
    }

    fn poll(&mut self, timeout: Duration, sink: &mut dyn Sink) -> Result<(), Error> {
        let Some((token, ended)) = self.ended.take() else {
            std::thread::sleep(timeout);
            return Ok(());
        };
        let answer = match &ended {
            Ended::Found(value) => {
                let values = [0..value.len()];
                sink.answered(token, Answer::Found { context: &[], values: &values, body: value });
                return Ok(());
            }
            Ended::NotFound => Answer::NotFound,
            Ended::Done => Answer::Done,
            Ended::Listed(count) => Answer::Listed(*count),
            Ended::Failed(kind, text) => Answer::Failed { kind: *kind, text },
        };
        sink.answered(token, answer);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        match self.store {
            Store::Own(store) => store
                .close()
                .map_err(|error| Error::Unusable(format!("{} was not closed: {error}", self.kind.name()))),
            // It is closed when all have ended.
            Store::Shared(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    const PACKED: &str = "driver = \"engine\"\nengine = { name = \"memory\", packed = { slots = 4 } }\n\
                          value = { size = 16 }\nkeys = { kind = \"uniform\", count = 10, digits = 2 }\n\
                          operation = [{ op = \"get\" }]";

    /// Does it, and says how it ended.
    fn does(driver: &mut EngineDriver, key: &[u8], command: Command<'_>) -> String {
        #[derive(Default)]
        struct Told(String);
        impl Sink for Told {
            fn answered(&mut self, _: u32, answer: Answer<'_>) {
                self.0 = match answer {
                    Answer::Found { body, .. } => String::from_utf8_lossy(body).into_owned(),
                    Answer::Failed { kind, text } => format!("{}: {text}", kind.name()),
                    other => format!("{other:?}"),
                };
            }
        }
        let mut told = Told::default();
        driver.submit(&Request { token: 1, bucket: b"bench", key, command }).unwrap();
        driver.poll(Duration::ZERO, &mut told).unwrap();
        told.0
    }

    #[test]
    fn a_packed_key_is_an_entry_that_leaves_its_neighbours_alone() {
        let plan = Workload::parse(PACKED, "w").unwrap().engine;
        let folder = tempfile::tempdir().unwrap();
        let shared = EngineDriver::open_shared(&folder.path().join("shared"), &plan, 2).unwrap();
        let own = EngineDriver::open(&folder.path().join("own"), &plan).unwrap();
        for mut driver in [own, EngineDriver::sharing(&shared, &plan)] {
            let mut it = |key: &[u8], command: Command<'_>| does(&mut driver, key, command);
            let put = |value| Command::Put { value, context: None, indexes: &[] };
            assert_eq!(it(b"05", Command::Get), "NotFound");
            assert_eq!(it(b"05", put(b"the fifth entry.")), "Done");
            assert_eq!(it(b"06", put(b"the sixth entry.")), "Done");
            assert_eq!(it(b"05", Command::Get), "the fifth entry.");
            assert_eq!(it(b"06", Command::Head), "Done");
            assert_eq!(
                (it(b"07", Command::Get), it(b"07", Command::Head)),
                ("NotFound".into(), "NotFound".into())
            );
            assert_eq!(it(b"06", Command::Delete { context: None }), "Done");
            assert_eq!(
                (it(b"06", Command::Get), it(b"05", Command::Head)),
                ("NotFound".into(), "Done".into())
            );
            assert_eq!(it(b"05", put(b"short")), "unsupported: refused: an entry of this array has 16 bytes");
            assert_eq!(it(b"x", Command::Get), "unsupported: refused: the key is no entry of an array");
            assert_eq!(it(b"", Command::Ping), "Done");
        }
        shared.close().unwrap();
    }
}
