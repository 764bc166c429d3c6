//! `annulet backup verify`.

use super::bar::Bar;
use super::size;
use crate::failure::{FAILED, Failure};
use backup::{Verified, verify};
use clap::ValueHint;
use os::OsDisk;
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;

/// Arguments of `verify`.
#[derive(clap::Args)]
pub struct Args {
    /// The backup's own folder.
    #[arg(value_hint = ValueHint::DirPath, value_name = "BACKUP")]
    folder: PathBuf,
    /// Tell what was found as JSON.
    #[arg(long)]
    json: bool,
}

/// Verifies it, and prints what is wrong.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut bar = Bar::new("verify");
    let verified = verify(&mut OsDisk::blocking(), &args.folder, &mut |progress| bar.show(progress));
    bar.end();
    let Verified { index, problems, stores } = verified?;
    let mut out = io::stdout().lock();
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
            "{}: {files} files, {bytes}; {} stores with {} keys in tables and {} records",
            index.node,
            index.stores.len(),
            stores.entries,
            stores.records
        )?;
        let end = match problems.len() {
            0 => "no damage".to_owned(),
            1 => "1 damaged place".to_owned(),
            places => format!("{places} damaged places"),
        };
        writeln!(out, "{end}")?;
    }
    if problems.is_empty() { Ok(()) } else { Err(Failure::new(FAILED, "")) }
}
