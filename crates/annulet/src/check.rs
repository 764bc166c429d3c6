//! `annulet check`: verifies a data folder that no node is using, and with `--repair` makes again what can be
//! (`repair.rs`).

use crate::failure::{self, FAILED, Failure, UNUSABLE};
use crate::plural::count;
use crate::repair;
use crate::report::Report;
use base::Clock;
use clap::ValueHint;
use engine::check::{Finding, FindingKind, Summary, check_index, check_store};
use node::layout::{SHARDS_MAX, shard_dir};
use node::store::TypeBackends;
use node::store::founding;
use os::{OsClock, OsDisk};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Arguments of `check`.
#[derive(clap::Args)]
pub struct Args {
    /// Data folder of a node, or folder of one store.
    #[arg(value_hint = ValueHint::DirPath, value_name = "DIR")]
    dir: PathBuf,
    /// Rebuild damaged or lost tables and manifests from the journal.
    #[arg(long)]
    repair: bool,
    /// Accept the loss of keys that a repair could not recover: missing keys then count as never written, and older
    /// versions may appear. This cannot be undone.
    #[arg(long, requires = "repair")]
    accept_loss: bool,
    /// Size of the ring when the folder was created; needed if no shard has a readable manifest.
    #[arg(long, requires = "repair", value_name = "PARTITIONS")]
    ring_size: Option<u32>,
    /// Largest size of the ring [default: 16 times RING_SIZE]; `annulet admin ring-status` shows it.
    #[arg(long, requires = "ring_size", value_name = "PARTITIONS")]
    partitions_max: Option<u32>,
}

/// Checks, prints what is wrong, and what was gone through.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut out = Report::of_stdout();
    let mut total = Summary::default();
    failure::check_links(&args.dir)?;
    let left_out = left_out(&args.dir)?;
    let stores = stores(&args.dir)?;
    for store in &stores {
        let folder = store.strip_prefix(&args.dir).unwrap_or(store);
        if !store.is_dir() {
            total.damaged += 1;
            writeln!(out, "damaged   {}: the shard's folder is missing", folder.display())?;
            continue;
        }
        let (mut summary, ledger_is_damaged) = check(&mut out, store, folder)?;
        if args.repair && ledger_is_damaged {
            let options = repair::options(&args.dir, store, args.ring_size, args.partitions_max)?;
            repair::repair(&mut out, store, folder, &options)?;
            (summary, _) = check(&mut out, store, folder)?;
        }
        // A start may lose more: the damaged records of the journal's end, which no table has.
        if args.accept_loss && summary.lost_ranges + summary.damaged > 0 {
            repair::accept_losses(&mut out, store, folder)?;
            (summary, _) = check(&mut out, store, folder)?;
        }
        total.add(&summary);
    }
    print_total(&mut out, stores.len(), &total)?;
    for (bucket_type, backend) in left_out.iter() {
        writeln!(
            out,
            "not checked: objects of type {bucket_type}, stored by the backend {}",
            backend.name()
        )?;
    }
    if total.damaged > 0 { Err(Failure::new(FAILED, "")) } else { Ok(()) }
}

/// The stores that are not checked, since only those of the engine are: those of bucket types with another backend.
fn left_out(dir: &Path) -> Result<TypeBackends, Failure> {
    match founding::read(&mut OsDisk::blocking(), dir) {
        Ok(None) => Ok(TypeBackends::default()),
        Ok(Some((founding, _))) if founding.backend == Default::default() => Ok(founding.types),
        Ok(Some((founding, _))) => {
            let text = format!(
                "{}: the backend is {}; only stores of the backend annulet can be checked",
                dir.display(),
                founding.backend.name()
            );
            Err(Failure::new(UNUSABLE, text))
        }
        Err(error) => Err(Failure::new(UNUSABLE, format!("{}: {error}", dir.display()))),
    }
}

/// Checks one store, and tells whether its tables or its manifest are damaged.
fn check(out: &mut impl Write, store: &Path, folder: &Path) -> Result<(Summary, bool), Failure> {
    let (mut printed, mut ledger_is_damaged) = (Ok(()), false);
    // A disk for each check: its locks are held until it is dropped.
    let summary = check_store(&mut OsDisk::blocking(), store, &mut |finding| {
        let of_ledger = finding.file.starts_with("tables/") || finding.file.starts_with("MANIFEST");
        ledger_is_damaged |= finding.kind == FindingKind::Damage && of_ledger;
        if printed.is_ok() {
            printed = writeln!(out, "{}", line(folder, &finding));
        }
    })
    .map_err(|error| Failure::new(UNUSABLE, error.to_string()))?;
    printed?;
    let wrong_entries = if summary.damaged == 0 { check_entries(out, store, folder)? } else { 0 };
    let summary = Summary { damaged: summary.damaged + wrong_entries, ..summary };
    Ok((summary, ledger_is_damaged || summary.lost_ranges > 0 || wrong_entries > 0))
}

/// Checks a store's index entries against its objects, and tells how many are wrong.
fn check_entries(out: &mut impl Write, store: &Path, folder: &Path) -> Result<u64, Failure> {
    let Some(indexing) = repair::options_of(store).indexing else { return Ok(0) };
    let now_ms = OsClock::new().wall().0 / 1000;
    let mut findings = Vec::new();
    check_index(&mut OsDisk::blocking(), store, &indexing, now_ms, &mut |finding| findings.push(finding))
        .map_err(|error| Failure::new(UNUSABLE, error.to_string()))?;
    findings.iter().try_for_each(|finding| writeln!(out, "{}", line(folder, finding)))?;
    Ok(findings.len() as u64)
}

/// The stores' folders: those of all shards that there should be, or the folder itself.
fn stores(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unusable = |text: String| Failure::new(UNUSABLE, format!("{}: {text}", dir.display()));
    let listing = dir.read_dir().map_err(|error| unusable(error.to_string()))?;
    drop(listing);
    // A manifest says how many there are; if one is damaged, that is told when it is checked.
    let shards = repair::layout(dir).map_or(0, |layout| layout.shards);
    let is_there = |shard: &u16| *shard < shards || shard_dir(dir, *shard).is_dir();
    let found: Vec<_> = (0..SHARDS_MAX).filter(is_there).map(|shard| shard_dir(dir, shard)).collect();
    match found.is_empty() {
        true if looks_like_a_store(dir) => Ok(vec![dir.to_path_buf()]),
        true => Err(unusable("not the data folder of a node, and not a store".to_owned())),
        false => Ok(found),
    }
}

fn looks_like_a_store(dir: &Path) -> bool {
    ["MANIFEST", "journal", "tables"].iter().any(|name| dir.join(name).exists())
}

fn line(folder: &Path, finding: &Finding) -> String {
    let kind = match finding.kind {
        FindingKind::Damage => "damaged",
        FindingKind::Torn => "torn",
        FindingKind::Leftover => "leftover",
    };
    let file = folder.join(&finding.file);
    format!("{kind:8}  {} at byte {}: {}", file.display(), finding.offset, finding.what)
}

fn print_total(out: &mut impl Write, stores: usize, total: &Summary) -> io::Result<()> {
    let mebibytes = total.bytes as f64 / f64::from(1 << 20);
    let (segments, records) = (count(total.segments, "journal segment"), count(total.records, "record"));
    writeln!(out, "{}, {mebibytes:.1} MiB; {segments} with {records}", count(stores as u64, "store"))?;
    let (tables, blocks) = (count(total.tables, "table"), count(total.blocks, "block"));
    writeln!(out, "{tables} with {blocks} and {}", count(total.entries, "key"))?;
    if total.leftovers > 0 {
        writeln!(out, "{}: the next start removes them", count(total.leftovers, "leftover file"))?;
    }
    if total.torn > 0 {
        let ends = count(total.torn, "torn end");
        writeln!(out, "{ends}: left by a crash, no damage; the next start cuts them off")?;
    }
    match total.damaged {
        0 => writeln!(out, "no damage"),
        places => {
            let lost = count(total.entries_lost, "key");
            writeln!(out, "{}; {lost} without their value", count(places, "damaged place"))
        }
    }
}
