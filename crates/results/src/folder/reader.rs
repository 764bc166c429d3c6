//! Reads a folder of results.
//!
//! A run that was killed left a folder without a summary, and perhaps half a line at the end of a file: it can be read,
//! and its figures are made from what is there.

use super::{
    COUNTERS, CheckSummary, Counters, ERRORS, EVENTS, ErrorRecord, Event, FORMAT, HISTOGRAMS, Kind,
    Latencies, MANIFEST, Manifest, Phase, SUMMARY, Second, Summary, TIMESERIES, file,
};
use crate::Error;
use histogram::Histogram;
use serde::de::DeserializeOwned;
use std::fs;
use std::io;
use std::path::Path;

/// A run's results.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// What was run.
    pub manifest: Manifest,
    /// Its seconds, ascending.
    pub seconds: Vec<Second>,
    /// Latencies by second, label and kind.
    pub latencies: Vec<Latencies>,
    /// What the servers counted.
    pub counters: Vec<Counters>,
    /// What went wrong.
    pub errors: Vec<ErrorRecord>,
    /// What was done.
    pub events: Vec<Event>,
    /// The figures of the whole run; made from the rest if the run did not end by itself.
    pub summary: Summary,
    /// Whether the run ended by itself.
    pub complete: bool,
}

impl Results {
    /// Reads a folder.
    pub fn open(dir: &Path) -> Result<Results, Error> {
        let manifest: Manifest = json(&dir.join(MANIFEST))?;
        if manifest.format > FORMAT {
            return Err(Error::damaged(dir, "written by a newer program"));
        }
        let seconds: Vec<Second> = lines(&dir.join(TIMESERIES))?;
        let path = dir.join(HISTOGRAMS);
        let (labels, latencies) = file::read(&path, &fs::read(&path).map_err(Error::file(&path))?)?;
        if labels != manifest.labels {
            return Err(Error::damaged(&path, "its labels are not those of the manifest"));
        }
        let path = dir.join(SUMMARY);
        let complete = path.exists();
        let summary = match complete {
            true => json(&path)?,
            false => Summary::of(&manifest, &seconds, &latencies, CheckSummary::default()),
        };
        Ok(Results {
            counters: lines(&dir.join(COUNTERS))?,
            errors: lines(&dir.join(ERRORS))?,
            events: lines(&dir.join(EVENTS))?,
            manifest,
            seconds,
            latencies,
            summary,
            complete,
        })
    }

    /// The merged histogram of those that `wanted` says; `wanted` gets second, label and kind.
    pub fn merged(&self, wanted: impl Fn(u64, &str, Kind) -> bool) -> Histogram {
        let mut sum = Histogram::default();
        for it in &self.latencies {
            if wanted(it.second, &self.manifest.labels[it.label], it.kind) {
                sum.merge(&it.histogram);
            }
        }
        sum
    }

    /// The seconds that count.
    pub fn measured(&self) -> impl Iterator<Item = &Second> {
        self.seconds.iter().filter(|second| second.phase == Phase::Measured)
    }
}

fn json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let text = fs::read(path).map_err(Error::file(path))?;
    serde_json::from_slice(&text).map_err(|error| Error::damaged(path, error.to_string()))
}

/// All whole lines. A file that is missing has none.
fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Error> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::file(path)(error)),
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let read = |(at, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| Error::damaged(path, format!("line {}: {error}", at + 1)))
    };
    whole.lines().enumerate().map(read).collect()
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
