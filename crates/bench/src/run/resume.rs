//! How far sequences have come, so that a later run goes on where this one ended.
//!
//! A file in the folder of the workload's `state`, one for each generator: lines of worker, next key and label. What
//! stands there is acknowledged with all before it.

use crate::Error;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

type Positions = BTreeMap<(String, u32), u64>;

/// The state of a run, or nothing where none is kept.
pub struct State {
    path: Option<PathBuf>,
    before: Positions,
    after: Mutex<Positions>,
}

impl State {
    /// Reads what an earlier run has left in `folder`.
    pub fn open(folder: Option<&Path>, generator: u32) -> Result<State, Error> {
        let path = folder.map(|folder| folder.join(format!("sequences-{generator}")));
        let mut before = Positions::new();
        if let Some(path) = path.as_deref().filter(|path| path.exists()) {
            let text = fs::read_to_string(path).map_err(Error::file(path))?;
            for line in text.lines() {
                let mut words = line.splitn(3, ' ');
                let (worker, next, label) = (words.next(), words.next(), words.next());
                let number = |word: Option<&str>| word.and_then(|word| word.parse().ok());
                let read = (|| Some(((label?.to_owned(), number(worker)? as u32), number(next)?)))();
                let (key, next) =
                    read.ok_or_else(|| Error::damaged(path, format!("{line:?} is no position")))?;
                before.insert(key, next);
            }
        }
        Ok(State { path, after: Mutex::new(before.clone()), before })
    }

    /// Where a worker goes on.
    pub fn next(&self, label: &str, worker: u32) -> Option<u64> {
        self.before.get(&(label.to_owned(), worker)).copied()
    }

    /// Where a worker has come to.
    pub fn set(&self, label: &str, worker: u32, next: u64) {
        self.after.lock().unwrap_or_else(PoisonError::into_inner).insert((label.to_owned(), worker), next);
    }

    /// Writes it.
    pub fn save(&self) -> Result<(), Error> {
        let Some(path) = &self.path else { return Ok(()) };
        let after = self.after.lock().unwrap_or_else(PoisonError::into_inner);
        let text: String =
            after.iter().map(|((label, worker), next)| format!("{worker} {next} {label}\n")).collect();
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(Error::file(folder))?;
        }
        let partial = path.with_extension("partial");
        fs::write(&partial, text).and_then(|()| fs::rename(&partial, path)).map_err(Error::file(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_survive() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(Some(folder.path()), 1).unwrap();
        assert_eq!(state.next("load it", 3), None);
        state.set("load it", 3, 77);
        state.save().unwrap();
        let again = State::open(Some(folder.path()), 1).unwrap();
        assert_eq!((again.next("load it", 3), again.next("load it", 2)), (Some(77), None));
        fs::write(folder.path().join("sequences-1"), "x y z\n").unwrap();
        assert!(State::open(Some(folder.path()), 1).is_err());
        State::open(None, 0).unwrap().save().unwrap();
    }
}
