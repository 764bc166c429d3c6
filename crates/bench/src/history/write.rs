//! The file of a history while its run goes on.

use super::{FORMAT, Header};
use crate::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file that gets its name when it is whole.
pub struct Writer {
    path: PathBuf,
    partial: PathBuf,
    file: File,
}

impl Writer {
    /// Begins a file for a workload of this name.
    ///
    /// # Errors
    /// [`Error::Unusable`] if there is a file of this name, [`Error::Io`] if it cannot be made.
    pub fn create(path: &Path, name: &str) -> Result<Writer, Error> {
        if path.exists() {
            let what = format!("{} exists: a history is never written over", path.display());
            return Err(Error::Unusable(what));
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let mut file = File::create(&partial).map_err(Error::file(&partial))?;
        let header = Header { format: FORMAT, name: name.to_owned() };
        let mut line = serde_json::to_vec(&header).expect("numbers and text always have a form in JSON");
        line.push(b'\n');
        file.write_all(&line).map_err(Error::file(&partial))?;
        Ok(Writer { path: path.to_owned(), partial, file })
    }

    /// Appends whole lines.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses them.
    pub fn append(&mut self, lines: &[u8]) -> Result<(), Error> {
        self.file.write_all(lines).map_err(Error::file(&self.partial))
    }

    /// Ends the file: all requests of the run are in it.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be renamed.
    pub fn finish(self) -> Result<(), Error> {
        fs::rename(&self.partial, &self.path).map_err(Error::file(&self.path))
    }
}
