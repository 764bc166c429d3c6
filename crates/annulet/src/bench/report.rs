//! `annulet bench report`: a run's results as a page, and as pictures.

use crate::failure::{FAILED, Failure};
use clap::ValueHint;
use results::Results;
use results::report::png::{self, Browser};
use std::io::Write;
use std::path::PathBuf;

/// Arguments of `bench report`.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of results.
    #[arg(value_hint = ValueHint::DirPath, value_name = "DIR")]
    dir: PathBuf,
    /// Path of the page [default: report.html in DIR].
    #[arg(long, short, value_hint = ValueHint::FilePath, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Folder of the pictures [default: png in DIR]; without this option there are none. Needs a browser.
    #[arg(long, value_hint = ValueHint::DirPath, value_name = "FOLDER", num_args = 0..=1, require_equals = true)]
    png: Option<Option<PathBuf>>,
    /// Browser for the pictures [default: the first of chromium, chrome, edge, brave on this machine].
    #[arg(long, value_hint = ValueHint::ExecutablePath, value_name = "PROGRAM", requires = "png")]
    browser: Option<PathBuf>,
}

/// Writes the page, then the pictures, and prints where they are.
pub fn run(args: &Args) -> Result<(), Failure> {
    // Before any work: whoever asks for pictures is told at once if they cannot be had.
    let browser = args.png.as_ref().map(|_| Browser::find(args.browser.as_deref())).transpose()?;
    let results = Results::open(&args.dir)?;
    let page = args.out.clone().unwrap_or_else(|| args.dir.join("report.html"));
    std::fs::write(&page, results::report::html(&results))
        .map_err(|error| Failure::new(FAILED, format!("{}: {error}", page.display())))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", page.display())?;
    if let (Some(folder), Some(browser)) = (&args.png, &browser) {
        let folder = folder.clone().unwrap_or_else(|| args.dir.join("png"));
        for file in png::write(&results, &page, &folder, browser)? {
            writeln!(out, "{}", file.display())?;
        }
    }
    Ok(())
}
