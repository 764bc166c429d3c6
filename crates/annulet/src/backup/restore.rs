//! `annulet backup restore`.

use super::bar::Bar;
use super::size;
use crate::failure::{self, FAILED, Failure, UNUSABLE};
use crate::plural::len;
use backup::{Restored, restore};
use bytes::Bytes;
use clap::ValueHint;
use node::layout::shard_dir;
use os::{OsDisk, OsRng};
use server::backup::{has_groups, mark_restored, without_users};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Arguments of `restore`.
#[derive(clap::Args)]
pub struct Args {
    /// The backup's own folder.
    #[arg(value_hint = ValueHint::DirPath, value_name = "BACKUP")]
    folder: PathBuf,
    /// The new data folder, empty or missing.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    data: PathBuf,
    /// Leave out all users, groups, sources and grants. Afterwards security is on, and nobody can log in: the node is
    /// administered by its local socket. Of a cluster, all nodes are restored so.
    #[arg(long)]
    without_users: bool,
}

/// The hint for a backup with consistent bucket types. Each restored store is another voter than the one that was
/// backed up, so the node takes part in no group until an operator has chosen among the copies of all nodes.
const HELD: &str = "objects of consistent bucket types are held back: when all nodes run, \
                    `annulet admin strong recover --all` brings them back";

/// The hint for a member of a cluster. Its metadata log is held until the other members were heard.
const COMPARED: &str = "members, bucket types and users can be changed when all members of the cluster run";

/// Makes a data folder of it, or leaves nothing.
pub fn run(args: &Args) -> Result<(), Failure> {
    let was_there = is_empty(&args.data)?;
    let has_groups = has_groups(&args.folder).map_err(|error| Failure::new(FAILED, error.to_string()))?;
    let mut bar = Bar::new("restore");
    let (disk, rng) = (&mut OsDisk::blocking(), &mut OsRng::new());
    let restored = restore(
        disk,
        &args.folder,
        (&args.data, &|shard| shard_dir(&args.data, shard)),
        rng,
        &|name: &str, data: Bytes| {
            let data = if args.without_users { without_users(name, data)? } else { data };
            mark_restored(name, data)
        },
        &mut |progress| bar.show(progress),
    );
    bar.end();
    if restored.is_err() {
        // A part of a node's data is worse than none.
        fs::remove_dir_all(&args.data).ok();
        if was_there {
            fs::create_dir(&args.data).ok();
        }
    }
    let Restored { index, bytes } = restored?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}: {}, {}", args.data.display(), len(index.stores.len(), "store"), size(bytes))?;
    match &index.cluster {
        None => writeln!(out, "the data of {}, a node alone", index.node)?,
        Some(cluster) => writeln!(
            out,
            "the data of {}, a member of the cluster {cluster}: start it with its name and its certificate, as before\n\
             {COMPARED}",
            index.node
        )?,
    }
    if args.without_users {
        writeln!(
            out,
            "without users: security is on, and nobody can log in. Once the node runs, make users or turn security off \
             with: annulet admin --data {} security …",
            args.data.display()
        )?;
    }
    if has_groups {
        writeln!(out, "{HELD}")?;
    }
    Ok(())
}

/// Whether the folder is there. It must be empty then.
fn is_empty(data: &Path) -> Result<bool, Failure> {
    failure::check_links(data)?;
    let failed = |error: io::Error| Failure::new(FAILED, format!("{}: {error}", data.display()));
    match fs::read_dir(data) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(error)),
        Ok(mut entries) => match entries.next() {
            None => Ok(true),
            Some(Err(error)) => Err(failed(error)),
            Some(Ok(_)) => Err(Failure::new(
                UNUSABLE,
                format!("{} is not empty: a backup is restored into a new data folder", data.display()),
            )),
        },
    }
}
