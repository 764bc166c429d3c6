//! The backup of a node, by the product's own code: its stores' files while they serve, and a data folder made of them.
//!
//! 1. [`Asked::of`] asks each shard's store for the files that make it up. Each answers as of a moment of its own.
//! 2. When all have answered, [`Asked::take`] copies the files, and writes the index.
//! 3. [`NodeBackup::folder`] makes a data folder of the backup, whose stores have new incarnations.
//!
//! Left out: the time that copies take, since no file of a backup changes meanwhile; hard links; the node's part in the
//! metadata log, in whose place the registry is.

use super::host::{Folder, Host};
use super::registry::Records;
use crate::disk::{DiskOdds, SimDisk};
use crate::machine::DATA;
use crate::trace::{Keep, Trace};
use crate::{SimTime, seed::Seed};
use ::backup::{Control, Create, How, Part, create, restore};
use base::disk::{self, DiskOp};
use base::rng::SplitMix64;
use base::spawn::Outcome;
use engine::backup::StoreFiles;
use std::path::Path;

/// The folder of backups, on a copy of the node's disk.
const BACKUPS: &str = "/backups";

/// The backup's own folder there.
const NAME: &str = "node";

/// A node whose stores were asked for their files.
pub(super) struct Asked {
    life: u64,
    had_births: bool,
    files: Vec<Outcome<Result<StoreFiles, engine::Error>>>,
    taken: Vec<StoreFiles>,
}

/// A backup of a node.
pub(super) struct NodeBackup {
    /// A disk with nothing but the backup.
    disk: SimDisk,
    /// The starts that the data folder counts.
    starts: u32,
    /// Whether its stores had births when they were asked. A copy of one without a birth counts as an empty disk.
    pub(super) had_births: bool,
    /// The node's part in the agreement.
    pub(super) records: Records,
}

impl Asked {
    /// Asks the stores of a node; none if its process does not run.
    pub(super) fn of(host: &mut Host) -> Option<Asked> {
        let life = host.life()?;
        let had_births = !host.kept.is_empty() && host.kept.iter().all(Option::is_some);
        let mut files = Vec::new();
        for shard in 0..host.shards() {
            let asked = Outcome::new();
            host.machine.shard(shard)?.control().begin_backup(asked.clone());
            files.push(asked);
        }
        Some(Asked { life, had_births, files, taken: Vec::new() })
    }

    /// Makes the backup once all stores have answered: `Ok(None)` before, and an error if it is to be begun anew.
    pub(super) fn take(
        &mut self,
        host: &Host,
        seed: Seed,
        records: Records,
    ) -> Result<Option<NodeBackup>, String> {
        if host.life() != Some(self.life) {
            return Err("its process has ended".to_owned());
        }
        while let Some(answer) = self.files.get(self.taken.len()).and_then(Outcome::take) {
            self.taken.push(answer.map_err(|error| error.to_string())?);
        }
        if self.taken.len() < self.files.len() {
            return Ok(None);
        }

        let nobody = Trace::new(SimTime::default(), Keep::Hash);
        let disk = host.machine.disk.fork(seed.stream("backup", 0), nobody);
        disk.kill();
        disk.set_odds(DiskOdds::SOUND);
        let parts = (0..).zip(std::mem::take(&mut self.taken)).map(|(shard, files)| Part { shard, files });
        let request = Create {
            dest: BACKUPS.into(),
            name: NAME.to_owned(),
            beside: Vec::new(),
            how: How::Copy,
            node: NAME.to_owned(),
            cluster: None,
            program: "sim".to_owned(),
            now_ms: 0,
            parts: parts.collect(),
            others: Vec::new(),
            spare_bytes: 0,
        };
        create(&mut disk.immediate(), &request, &mut |_| Control::Continue).map_err(|it| it.to_string())?;
        drop(request);
        remove_data(&disk).map_err(|error| error.to_string())?;
        Ok(Some(NodeBackup { disk, starts: host.starts, had_births: self.had_births, records }))
    }
}

impl NodeBackup {
    /// A data folder that is made of the backup.
    pub(super) fn folder(&self, rng: &mut SplitMix64) -> Result<Folder, String> {
        let nobody = Trace::new(SimTime::default(), Keep::Hash);
        let disk = self.disk.fork(rng.clone(), nobody);
        let shard_dir = |shard| node::layout::shard_dir(Path::new(DATA), shard);
        let from = Path::new(BACKUPS).join(NAME);
        let same = |_: &str, bytes| Ok(bytes);
        let to = (Path::new(DATA), &shard_dir as ::backup::ShardDir<'_>);
        restore(&mut disk.immediate(), &from, to, rng, &same, &mut |_| Control::Continue)
            .map_err(|error| error.to_string())?;
        Ok(Folder { image: disk.image(rng.clone()), starts: self.starts })
    }
}

/// Removes all files but those of the backup.
fn remove_data(copy: &SimDisk) -> Result<(), disk::DiskError> {
    let files = copy.files().into_iter().map(|(path, _)| path);
    for path in files.filter(|path| path.starts_with(DATA)) {
        disk::run(&mut copy.immediate(), DiskOp::Remove { path })?;
    }
    Ok(())
}
