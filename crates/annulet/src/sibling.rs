//! The other program of this package, which lies in the folder of this one.

use crate::failure::{Failure, UNUSABLE};
use std::path::PathBuf;

/// The path of a program beside this one.
///
/// # Errors
/// If it is not there.
pub fn program(name: &str) -> Result<PathBuf, Failure> {
    let path = std::env::current_exe()?.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    let text = format!(
        "{} is missing: `annulet` and `annulet-bench` lie side by side, and `cargo build --release` builds both",
        path.display()
    );
    Err(Failure::new(UNUSABLE, text))
}
