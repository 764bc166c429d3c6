//! The backup of a node that is stopped, from its data folder.
//!
//! Left out: backups of other backends than the engine.

use super::place::{default_name, folders_in};
use super::{create_or_remove, program};
use crate::membership::backed_up_files;
use ::backup::{Create, Created, Error, How, Part, Watch, check_name};
use ::membership::ClusterId;
use base::Clock;
use engine::backup::StoreFiles;
use node::Layout;
use node::layout::{self, Owner, shard_dir};
use os::{OsClock, OsDisk};
use std::path::Path;

/// Backs up the data folder of a node that is stopped. Blocks.
///
/// # Errors
/// [`Error::NotBackup`] if there is no node's data in `data`, and those of [`create`](::backup::create); what was begun
/// is removed.
pub fn create_stopped(
    data: &Path,
    (dest, name): (&Path, Option<&str>),
    how: How,
    watch: Watch<'_>,
) -> Result<Created, Error> {
    let mut disk = OsDisk::blocking();
    let no_data = || Error::NotBackup(format!("{}: not the data folder of a node", data.display()));
    let layout = Layout::read(&mut disk, data)?.ok_or_else(no_data)?;
    let founding = layout::read_founding(&mut disk, data)?.unwrap_or_default();
    if let Some(backend) = founding.other_backend() {
        let data = data.display();
        return Err(Error::NotBackup(format!("{data}: backups of the backend {backend} are not supported")));
    }
    let cluster = match Layout::read_owner(&mut disk, data)? {
        Some(Owner::Member { cluster, .. }) => Some(ClusterId(cluster).to_string()),
        _ => None,
    };
    let mut parts = Vec::new();
    for shard in 0..layout.shards {
        let files = StoreFiles::of_stopped(&mut disk, &shard_dir(data, shard))?.ok_or_else(no_data)?;
        parts.push(Part { shard, files });
    }
    let node =
        data.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let (node, wall) = (node.unwrap_or_else(|| "node".to_owned()), OsClock::new().wall());
    let name = name.map_or_else(|| default_name(wall.0 / 1_000_000, &node), str::to_owned);
    check_name(&name).map_err(Error::Taken)?;
    let request = Create {
        dest: dest.to_path_buf(),
        beside: folders_in(dest),
        how,
        node,
        cluster,
        program: program(),
        now_ms: wall.0 / 1000,
        parts,
        others: backed_up_files(data)?,
        spare_bytes: 0,
        name,
    };
    create_or_remove(&mut disk, &request, watch)
}
