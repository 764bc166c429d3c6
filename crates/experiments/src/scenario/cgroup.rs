//! Limits of memory and of disk operations, by control groups of version 1 (one tree for each kind of limit) or 2.

use super::Limits;
use bench::Error;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";

/// The groups of one node. They go when they are dropped, once no process is in them.
#[derive(Debug)]
pub struct Group {
    /// Version 1: the folders of memory and blkio. Version 2: one folder.
    folders: Vec<PathBuf>,
    is_v2: bool,
    /// The device under the data, as `major:minor`.
    device: String,
}

impl Group {
    /// Makes the groups of a node whose data lies in `data`, which must exist.
    pub fn make(name: &str, data: &Path) -> Result<Group, Error> {
        let root = Path::new(ROOT);
        let is_v2 = root.join("cgroup.controllers").exists();
        let parents =
            if is_v2 { vec![root.to_owned()] } else { vec![root.join("memory"), root.join("blkio")] };
        if is_v2 {
            let file = root.join("cgroup.subtree_control");
            fs::write(&file, "+memory +io").map_err(refused(&file))?;
        }
        let mut group = Group { folders: Vec::new(), is_v2, device: device_of(data)? };
        for parent in parents {
            let folder = parent.join(format!("annulet-{}-{name}", std::process::id()));
            fs::create_dir(&folder).map_err(refused(&folder))?;
            group.folders.push(folder);
        }
        Ok(group)
    }

    /// The files that take a process's number.
    pub fn entrances(&self) -> Vec<PathBuf> {
        self.folders.iter().map(|folder| folder.join("cgroup.procs")).collect()
    }

    /// Sets the limits that are given; others stay as they are.
    pub fn limit(&self, limits: &Limits) -> Result<(), Error> {
        let set = |folder: &Path, name: &str, value: String| {
            let file = folder.join(name);
            fs::write(&file, value).map_err(refused(&file))
        };
        let (memory, io) = (&self.folders[0], &self.folders[self.folders.len() - 1]);
        if let Some(mib) = limits.memory_mib {
            let name = if self.is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
            set(memory, name, mib.saturating_mul(1 << 20).to_string())?;
        }
        for (iops, v1, v2) in [
            (limits.read_iops, "blkio.throttle.read_iops_device", "riops"),
            (limits.write_iops, "blkio.throttle.write_iops_device", "wiops"),
        ] {
            match (iops, self.is_v2) {
                (None, _) => {}
                (Some(iops), true) => set(io, "io.max", format!("{} {v2}={iops}", self.device))?,
                (Some(iops), false) => set(io, v1, format!("{} {iops}", self.device))?,
            }
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in &self.folders {
            // A process that is still there keeps its group; the system shows it by its name.
            fs::remove_dir(folder).ok();
        }
    }
}

fn refused(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |error| {
        Error::Unusable(format!(
            "limits need control groups that can be written, as root has them: {}: {error}",
            path.display()
        ))
    }
}

/// The whole disk under a folder: throttles know no partitions.
fn device_of(folder: &Path) -> Result<String, Error> {
    use std::os::unix::fs::MetadataExt;
    let number = fs::metadata(folder).map_err(Error::file(folder))?.dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let entry = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let disk = fs::canonicalize(&entry).ok().and_then(|path| {
        path.join("partition").exists().then(|| path.parent().map(|disk| disk.join("dev")))?
    });
    Ok(match disk.and_then(|file| fs::read_to_string(file).ok()) {
        Some(disk) => disk.trim().to_owned(),
        None => format!("{major}:{minor}"),
    })
}
