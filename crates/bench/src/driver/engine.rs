//! A storage engine in this process: one store for each worker, whose calls wait.
//!
//! One operation at a time, so service times are the engine's own. Heads are what a server would keep of an object
//! without its value, in size; no object is encoded. A key is its bucket, a zero and its name, so listings are folds.

use super::{Answer, Command, Driver, ErrorKind, Request, Sink};
use crate::Error;
use crate::workload::EnginePlan;
use backends::{Backend, Kind, Machine, What};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
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

/// A worker's store.
pub struct EngineDriver {
    kind: Kind,
    store: Box<dyn Backend>,
    name: Vec<u8>,
    ended: Option<(u32, Ended)>,
}

impl EngineDriver {
    /// Opens the store in `folder`, or makes one.
    pub fn open(folder: &Path, plan: &EnginePlan) -> Result<EngineDriver, Error> {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        let disks = os::OsDisk::blocking().blocking_handles();
        let machine = Machine::new(disks, os::OsClock::new(), os::OsRng::new());
        let store = plan
            .kind
            .open(folder, &plan.settings, machine)
            .map_err(|error| Error::Unusable(format!("{}: {error}", folder.display())))?;
        Ok(EngineDriver { kind: plan.kind, store, name: Vec::new(), ended: None })
    }

    /// The folder of a worker's store.
    pub fn folder(parent: &Path, worker: u32) -> PathBuf {
        parent.join(format!("store-{worker}"))
    }

    fn run(&mut self, request: &Request<'_>) -> Result<Ended, backends::Error> {
        self.name.clear();
        for part in [request.bucket, &[0], request.key] {
            self.name.extend_from_slice(part);
        }
        Ok(match request.command {
            Command::Get => {
                self.store.get(&self.name)?.map_or(Ended::NotFound, |found| Ended::Found(found.value))
            }
            Command::Head => self.store.head(&self.name)?.map_or(Ended::NotFound, |_| Ended::Done),
            Command::Put { value, .. } => self.store.put(&self.name, &HEAD, value).map(|()| Ended::Done)?,
            Command::Delete => self.store.delete(&self.name).map(|()| Ended::Done)?,
            Command::ListKeys => Ended::Listed(self.keys(request.bucket)?),
            Command::ListBuckets => Ended::Listed(self.buckets()?),
            Command::Query(_) => {
                let text = "an engine alone has no index queries".to_owned();
                Ended::Failed(ErrorKind::Unsupported, text)
            }
            Command::Ping | Command::Reconnect => Ended::Done,
        })
    }

    /// Keys of a bucket.
    fn keys(&mut self, bucket: &[u8]) -> Result<u64, backends::Error> {
        let mut count = 0;
        self.store.fold(&[bucket, &[0]].concat(), &[bucket, &[1]].concat(), What::Heads, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    /// Buckets, from the first key of one to the first of the next.
    fn buckets(&mut self) -> Result<u64, backends::Error> {
        let (mut count, mut from) = (0, Some(Vec::new()));
        while let Some(begin) = from.take() {
            self.store.fold(&begin, &[], What::Heads, &mut |item| {
                let bucket = item.key.split(|&byte| byte == 0).next().unwrap_or_default();
                from = Some([bucket, &[1]].concat());
                ControlFlow::Break(())
            })?;
            count += u64::from(from.is_some());
        }
        Ok(count)
    }
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
        let name = self.kind.name();
        self.store.close().map_err(|error| Error::Unusable(format!("{name} was not closed: {error}")))
    }
}
