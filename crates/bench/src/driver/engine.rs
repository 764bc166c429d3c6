//! The storage engine in this process: one store for each worker, whose calls wait.
//!
//! One operation at a time, so service times are the engine's own. Heads are what a server would keep of an object
//! without its value, in size; no object is encoded.

use super::{Answer, Command, Driver, ErrorKind, Request, Sink};
use crate::Error;
use engine::{Durability, Embedded, Machine, Options};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// About what a head of an object takes.
const HEAD: [u8; 64] = [7; 64];

enum Ended {
    Found(bytes::Bytes),
    NotFound,
    Done,
    Listed,
    Failed(String),
}

/// A worker's store.
pub struct EngineDriver {
    store: Embedded,
    name: Vec<u8>,
    ended: Option<(u32, Ended)>,
}

impl EngineDriver {
    /// Opens the store in `folder`, or makes one.
    pub fn open(folder: &Path, durability: Durability) -> Result<EngineDriver, Error> {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        let disks = os::OsDisk::blocking().blocking_handles();
        let machine = Machine::new(disks, os::OsClock::new(), os::OsRng::new());
        let options = Options { durability, ..Options::default() };
        let store = Embedded::open(folder, options, machine)
            .map_err(|error| Error::Unusable(format!("{}: {error}", folder.display())))?;
        Ok(EngineDriver { store, name: Vec::new(), ended: None })
    }

    /// The folder of a worker's store.
    pub fn folder(parent: &Path, worker: u32) -> PathBuf {
        parent.join(format!("store-{worker}"))
    }

    fn run(&mut self, request: &Request<'_>) -> Result<Ended, engine::Error> {
        self.name.clear();
        for part in [request.bucket, &[0], request.key] {
            self.name.extend_from_slice(part);
        }
        Ok(match request.command {
            Command::Get => match self.store.get(&self.name)? {
                Some(found) => Ended::Found(found.value.unwrap_or_default()),
                None => Ended::NotFound,
            },
            Command::Head => self.store.head(&self.name)?.map_or(Ended::NotFound, |_| Ended::Done),
            Command::Put { value, .. } => self.store.put(&self.name, &HEAD, value).map(|_| Ended::Done)?,
            Command::Delete => self.store.delete(&self.name).map(|_| Ended::Done)?,
            Command::Query(_) | Command::ListKeys | Command::ListBuckets => Ended::Listed,
            Command::Ping | Command::Reconnect => Ended::Done,
        })
    }
}

impl Driver for EngineDriver {
    fn ready(&self) -> usize {
        usize::from(self.ended.is_none())
    }

    fn submit(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let ended = self.run(request).unwrap_or_else(|error| Ended::Failed(error.to_string()));
        self.ended = Some((request.token, ended));
        Ok(())
    }

    fn poll(&mut self, timeout: Duration, sink: &mut dyn Sink) -> Result<(), Error> {
        let Some((token, ended)) = self.ended.take() else {
            std::thread::sleep(timeout);
            return Ok(());
        };
        match &ended {
            Ended::Found(value) => {
                sink.answered(token, Answer::Found { context: &[], values: &[0..value.len()], body: value });
            }
            Ended::NotFound => sink.answered(token, Answer::NotFound),
            Ended::Done => sink.answered(token, Answer::Done),
            Ended::Listed => {
                let text = "the engine alone has neither listings nor queries";
                sink.answered(token, Answer::Failed { kind: ErrorKind::Unsupported, text });
            }
            Ended::Failed(text) => sink.answered(token, Answer::Failed { kind: ErrorKind::Other, text }),
        }
        Ok(())
    }
}
