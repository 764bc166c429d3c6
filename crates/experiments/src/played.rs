//! The outcome of one run of an experiment: of a variant, or of an engine's stage.

use crate::variants::HISTORY;
use bench::history::{self, Report, STATES_MAX};
use bench::{Error, history::History};
use results::Results;
use std::path::Path;

/// The folder of results beside the scenario of a variant.
pub const RESULTS: &str = "results";

/// A run.
#[derive(Clone, Debug)]
pub struct Played {
    /// The variant, or the engine.
    pub name: String,
    /// The engine's stage; empty for a variant.
    pub stage: String,
    /// Its results.
    pub results: Results,
    /// Bytes of the engine's files after it.
    pub space_bytes: Option<u64>,
    /// The verdict on its history, if it has one.
    pub history: Option<Report>,
}

impl Played {
    /// Reads the results of a variant from its folder, and judges its history.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn open(name: &str, folder: &Path) -> Result<Played, Error> {
        let path = folder.join(HISTORY);
        let history = path.exists().then(|| history::read(&path)).transpose()?;
        let judge = |history: History| history::check(&history, STATES_MAX);
        Ok(Played {
            name: name.to_owned(),
            stage: String::new(),
            results: Results::open(&folder.join(RESULTS))?,
            space_bytes: None,
            history: history.map(judge),
        })
    }

    /// The faults of the store.
    pub fn failures(&self) -> Vec<String> {
        let mut failures = self.results.summary.verdict.failures.clone();
        let wrong = self.history.as_ref().filter(|it| !it.violations.is_empty());
        failures.extend(wrong.map(|it| {
            format!("the history is not linearizable: {} of {} keys", it.violations.len(), it.keys)
        }));
        failures
    }
}
