//! `annulet backup verify`.

use super::bar::Bar;
use super::size;
use crate::failure::{FAILED, Failure};
use crate::plural::{count, len};
use crate::report::Report;
use backup::{Verified, verify};
use clap::ValueHint;
use os::OsDisk;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

/// Arguments of `verify`.
#[derive(clap::Args)]
pub struct Args {
    /// The backup's own folder.
    #[arg(value_hint = ValueHint::DirPath, value_name = "BACKUP")]
    folder: PathBuf,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Verifies it, and prints what is wrong.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut bar = Bar::new("verify");
    let verified = verify(&mut OsDisk::blocking(), &args.folder, &mut |progress| bar.show(progress));
    bar.end();
    let Verified { index, problems, stores } = verified?;
    let mut out = Report::of_stdout();
    if args.json {
        let problems: Vec<_> =
            problems.iter().map(|it| json!({ "file": it.file, "what": it.what })).collect();
        let found = json!({
            "node": index.node, "cluster": index.cluster, "created_ms": index.created_ms, "files": index.files.len(),
            "bytes": index.bytes(), "records": stores.records, "keys": stores.entries, "problems": problems,
        });
        writeln!(out, "{found}")?;
    } else {
        for problem in &problems {
            writeln!(out, "damaged   {}: {}", problem.file, problem.what)?;
        }
        let (files, bytes) = (index.files.len(), size(index.bytes()));
        writeln!(
            out,
            "{}: {}, {bytes}; {} with {} in tables and {}",
            index.node,
            len(files, "file"),
            len(index.stores.len(), "store"),
            count(stores.entries, "key"),
            count(stores.records, "record")
        )?;
        let end = match problems.len() {
            0 => "no damage".to_owned(),
            places => len(places, "damaged place"),
        };
        writeln!(out, "{end}")?;
    }
    if problems.is_empty() { Ok(()) } else { Err(Failure::new(FAILED, "")) }
}
