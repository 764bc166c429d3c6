//! Writes a folder of results while the run goes on.
//!
//! Invariant: a folder is written once. One that exists with anything in it is refused, and nothing in it is changed
//! after [`Writer::finish`].

use super::{
    COUNTERS, CheckSummary, Counters, ERRORS, EVENTS, ErrorRecord, Event, HISTOGRAMS, Latencies, MANIFEST,
    Manifest, SUMMARY, Second, Summary, TIMESERIES, file,
};
use crate::Error;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Errors of one label and kind that are kept in full; the time series counts them all.
const ERRORS_KEPT: u64 = 20;

/// An open folder of results.
pub struct Writer {
    dir: PathBuf,
    manifest: Manifest,
    histograms: BufWriter<File>,
    timeseries: BufWriter<File>,
    counters: BufWriter<File>,
    errors: BufWriter<File>,
    events: BufWriter<File>,
    seconds: Vec<Second>,
    latencies: Vec<Latencies>,
    kept: BTreeMap<(String, String), u64>,
}

impl Writer {
    /// Makes the folder and writes the manifest. A folder that is there must be empty.
    pub fn create(dir: &Path, manifest: Manifest) -> Result<Writer, Error> {
        fs::create_dir_all(dir).map_err(Error::file(dir))?;
        if dir.read_dir().map_err(Error::file(dir))?.next().is_some() {
            return Err(Error::Unusable(format!(
                "{} is not empty: results are never written over",
                dir.display()
            )));
        }
        write_json(&dir.join(MANIFEST), &manifest)?;
        let open = |name: &str| {
            let path = dir.join(name);
            File::create_new(&path).map(BufWriter::new).map_err(Error::file(&path))
        };
        let mut histograms = open(HISTOGRAMS)?;
        histograms.write_all(&file::begin(&manifest.labels)).map_err(Error::file(&dir.join(HISTOGRAMS)))?;
        Ok(Writer {
            histograms,
            timeseries: open(TIMESERIES)?,
            counters: open(COUNTERS)?,
            errors: open(ERRORS)?,
            events: open(EVENTS)?,
            dir: dir.to_owned(),
            manifest,
            seconds: Vec::new(),
            latencies: Vec::new(),
            kept: BTreeMap::new(),
        })
    }

    /// Adds a second with its histograms. Seconds ascend.
    pub fn second(&mut self, second: Second, latencies: Vec<Latencies>) -> Result<(), Error> {
        let ascends = self.seconds.last().is_none_or(|last| last.second < second.second);
        assert!(ascends, "second {} came out of order", second.second);
        let mut bytes = Vec::new();
        latencies.iter().for_each(|it| file::append(&mut bytes, it));
        let path = self.dir.join(HISTOGRAMS);
        self.histograms
            .write_all(&bytes)
            .and_then(|()| self.histograms.flush())
            .map_err(Error::file(&path))?;
        write_line(&mut self.timeseries, &self.dir.join(TIMESERIES), &second)?;
        self.latencies.extend(latencies);
        self.seconds.push(second);
        Ok(())
    }

    /// Adds what a server counts.
    pub fn counters(&mut self, counters: &Counters) -> Result<(), Error> {
        write_line(&mut self.counters, &self.dir.join(COUNTERS), counters)
    }

    /// Adds an error, unless enough of its kind are there.
    pub fn error(&mut self, error: &ErrorRecord) -> Result<(), Error> {
        let kept = self.kept.entry((error.label.clone(), error.kind.clone())).or_insert(0);
        *kept += 1;
        if *kept > ERRORS_KEPT {
            return Ok(());
        }
        write_line(&mut self.errors, &self.dir.join(ERRORS), error)
    }

    /// Adds an event.
    pub fn event(&mut self, event: &Event) -> Result<(), Error> {
        write_line(&mut self.events, &self.dir.join(EVENTS), event)
    }

    /// Writes the figures of the whole run, which say that it has ended.
    pub fn finish(self, check: CheckSummary) -> Result<Summary, Error> {
        let summary = Summary::of(&self.manifest, &self.seconds, &self.latencies, check);
        write_json(&self.dir.join(SUMMARY), &summary)?;
        Ok(summary)
    }
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let mut text =
        serde_json::to_string_pretty(value).map_err(|error| Error::damaged(path, error.to_string()))?;
    text.push('\n');
    // Renamed into place: whoever looks finds it whole or not at all.
    let partial = path.with_extension("partial");
    fs::write(&partial, text).and_then(|()| fs::rename(&partial, path)).map_err(Error::file(path))
}

/// One line, flushed: a run that is killed leaves what it had.
fn write_line(file: &mut BufWriter<File>, path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let mut line = serde_json::to_vec(value).map_err(|error| Error::damaged(path, error.to_string()))?;
    line.push(b'\n');
    file.write_all(&line).and_then(|()| file.flush()).map_err(Error::file(path))
}
