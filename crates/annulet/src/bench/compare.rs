//! `annulet bench compare`: two sides, run in turns.

use crate::failure::{FAILED, Failure, UNUSABLE};
use clap::ValueHint;
use results::Results;
use results::compare::{Comparison, Verdict, html};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Arguments of `bench compare`.
#[derive(clap::Args)]
pub struct Args {
    /// Folders of results, in turns: A B, or better A B A B A B, as they were run.
    #[arg(value_hint = ValueHint::DirPath, value_name = "DIR", num_args = 2.., required = true)]
    dirs: Vec<PathBuf>,
    /// Path of the page.
    #[arg(long, short, value_hint = ValueHint::FilePath, value_name = "FILE", default_value = "compare.html")]
    out: PathBuf,
}

/// Writes the page, and prints each metric with its band.
pub fn run(args: &Args) -> Result<(), Failure> {
    if !args.dirs.len().is_multiple_of(2) {
        return Err(Failure::new(UNUSABLE, "folders come in pairs: A B, or A B A B"));
    }
    let open = |dir: &Path| Results::open(dir);
    let pairs: Result<Vec<_>, bench::Error> =
        args.dirs.chunks(2).map(|pair| Ok((open(&pair[0])?, open(&pair[1])?))).collect();
    let pairs = pairs?;
    let comparison = Comparison::of(&pairs)?;
    std::fs::write(&args.out, html(&comparison))
        .map_err(|error| Failure::new(FAILED, format!("{}: {error}", args.out.display())))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{:<28} {:>10} {:>10} {:>7}  95 % band", "", "A", "B", "B / A")?;
    for it in &comparison.found {
        let (unit, band) = (it.metric.unit, it.ratio);
        let verdict = match it.verdict() {
            Verdict::Better => "B is better",
            Verdict::Worse => "B is worse",
            Verdict::Same => "no difference seen",
        };
        writeln!(
            out,
            "{:<28} {:>10} {:>10} {:>7.3}  {:.3} to {:.3}  {verdict}",
            it.metric.name,
            unit.format(it.a),
            unit.format(it.b),
            band.ratio,
            band.low,
            band.high
        )?;
    }
    writeln!(out, "{}", args.out.display())?;
    Ok(())
}
