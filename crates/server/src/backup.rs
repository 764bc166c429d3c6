//! Backups of the node while it serves: one at a time, asked for by operators.
//!
//! 1. Each shard's store says, as of a moment of its own, which files make it up, and keeps them meanwhile
//!    ([`engine::Store::begin_backup`]).
//! 2. A thread of its own links or copies them (crate `backup`), in slices. After each it rests for `REST` times as long as the
//!    slice took, so that whatever is busy slows it down, and it stays below a rate: clients hardly wait for it.
//! 3. What it has written so far is told to whoever asks, and how it ended until the next one begins.
//!
//! Backups lie below one folder that the node's configuration names, since whoever reaches the port can ask for them.
//!
//! Left out: a moment that all shards have in common. A key is in one shard, and shards know nothing of each other's
//! order.

use crate::mailbox::{Mail, Mailboxes};
use crate::membership::{Answered, backed_up_files};
pub use crate::membership::{FilesError, has_groups, without_users};
use ::backup::{Control, Create, Created, Error, How, Part, Progress, Watch, check_name, create};
use ::membership::ClusterId;
use base::Clock;
use base::spawn::Outcome;
use bytes::Bytes;
use engine::backup::StoreFiles;
use node::http::BackupPage;
use node::layout::{self, Owner, shard_dir};
use node::{Layout, ShardId};
use os::{OsClock, OsDisk};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use time::UtcDateTime;

/// The nice value of its thread: nobody waits for a backup, so it has a tenth of the share of a busy processor that a
/// shard has.
const NICENESS: i32 = 10;

/// How long it rests after a slice, in slices: it gets a quarter of what it would take alone.
const REST: u32 = 3;

/// The longest rest: a slice that takes longer than a third of it meets a broken disk rather than a busy one.
const REST_MAX: Duration = Duration::from_millis(500);

/// Bytes in a second unless said otherwise: ten gigabytes in three minutes, and a small part of any disk.
const RATE_DEFAULT: u64 = 64 << 20;

/// The least rate that can be asked for: less would take longer than anybody waits for.
const RATE_MIN: u64 = 1 << 20;

/// How long the stores may take to say which files they have: a sync or two, unless the disk has no room.
const FILES_WAIT_MAX: Duration = Duration::from_secs(60);

/// How often it is looked whether they have.
const FILES_LOOK: Duration = Duration::from_millis(5);

/// What is asked for, in a request's body.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Wanted {
    folder: Option<String>,
    name: Option<String>,
    copy: Option<bool>,
    bytes_per_second: Option<u64>,
}

/// The node whose backups they are.
pub struct Backups {
    /// Its data folder.
    data: PathBuf,
    /// The folder below which backups lie.
    root: PathBuf,
    /// Its name.
    node: String,
    /// The cluster that it is a member of, as text.
    cluster: Option<String>,
    shards: u16,
    /// Free bytes that its stores want to find on their disk.
    reserve_bytes: u64,
    mailboxes: Arc<Mailboxes>,
    state: Mutex<State>,
}

/// The backup that is being made, or the last one.
#[derive(Default)]
enum State {
    #[default]
    None,
    Running {
        name: String,
        folder: PathBuf,
        progress: Progress,
        stop: Arc<AtomicBool>,
    },
    Ended {
        name: String,
        folder: PathBuf,
        result: Result<Box<Created>, String>,
    },
}

/// A backup that was asked for.
struct Task {
    dest: PathBuf,
    name: String,
    how: How,
    bytes_per_second: u64,
    stop: Arc<AtomicBool>,
}

impl Backups {
    /// Of a node with its data in `data`; backups lie below `root`.
    pub fn new(
        (data, root): (PathBuf, PathBuf),
        (node, cluster): (String, Option<String>),
        (shards, reserve_bytes): (u16, u64),
        mailboxes: Arc<Mailboxes>,
    ) -> Backups {
        let state = Mutex::default();
        Backups { data, root, node, cluster, shards, reserve_bytes, mailboxes, state }
    }

    /// Answers an operator. Does not block.
    pub fn ask(self: &Arc<Self>, page: BackupPage, body: &Bytes) -> Answered {
        match page {
            BackupPage::Show => Answered { status: 200, body: self.show() },
            BackupPage::Begin => self.begin(body).unwrap_or_else(|wrong| wrong),
            BackupPage::Stop => match &*self.state() {
                State::Running { stop, name, .. } => {
                    stop.store(true, Ordering::Relaxed);
                    Answered { status: 200, body: json!({ "name": name }) }
                }
                _ => Answered::wrong(409, "no backup is running"),
            },
        }
    }

    fn show(&self) -> Value {
        match &*self.state() {
            State::None => json!({ "state": "none" }),
            State::Running { name, folder, progress, .. } => json!({
                "state": "running",
                "name": name,
                "folder": folder,
                "files": progress.files,
                "files_done": progress.files_done,
                "bytes": progress.bytes,
                "bytes_done": progress.bytes_done,
                "copied": progress.copied,
            }),
            State::Ended { name, folder, result: Err(error) } => {
                json!({ "state": "failed", "name": name, "folder": folder, "error": error })
            }
            State::Ended { name, folder, result: Ok(created) } => json!({
                "state": "done",
                "name": name,
                "folder": folder,
                "files": created.index.files.len(),
                "bytes": created.index.bytes(),
                "copied": created.copied,
                "linked": created.linked,
                "kept": created.kept,
                "earlier": created.earlier,
            }),
        }
    }

    fn begin(self: &Arc<Self>, body: &Bytes) -> Result<Answered, Answered> {
        let wanted: Wanted = match body.is_empty() {
            true => Wanted::default(),
            false => serde_json::from_slice(body)
                .map_err(|error| Answered::wrong(400, format!("the body: {error}")))?,
        };
        let name =
            wanted.name.unwrap_or_else(|| default_name(OsClock::new().wall().0 / 1_000_000, &self.node));
        check_name(&name).map_err(|what| Answered::wrong(400, what))?;
        let dest = match &wanted.folder {
            None => self.root.clone(),
            Some(folder) => below(&self.root, Path::new(folder)).ok_or_else(|| {
                let text = format!(
                    "the folder of this node's backups is {} (its option backup_dir): {folder} is outside it",
                    self.root.display()
                );
                Answered::wrong(403, text)
            })?,
        };
        let bytes_per_second = wanted.bytes_per_second.unwrap_or(RATE_DEFAULT);
        if bytes_per_second < RATE_MIN {
            return Err(Answered::wrong(400, format!("bytes_per_second: at least {RATE_MIN}")));
        }
        let how = if wanted.copy == Some(true) { How::Copy } else { How::Link };
        let (folder, stop) = (dest.join(&name), Arc::new(AtomicBool::new(false)));
        let mut state = self.state();
        if let State::Running { name, .. } = &*state {
            return Err(Answered::wrong(409, format!("a backup is running: {name}")));
        }
        let task = Task { dest, name: name.clone(), how, bytes_per_second, stop: Arc::clone(&stop) };
        let backups = Arc::clone(self);
        std::thread::Builder::new()
            .name("annulet-backup".to_owned())
            .spawn(move || {
                os::lower_priority(NICENESS);
                backups.run(&task);
            })
            .map_err(|error| Answered::wrong(503, format!("cannot start a thread: {error}")))?;
        *state = State::Running {
            name: name.clone(),
            folder: folder.clone(),
            progress: Progress::default(),
            stop,
        };
        Ok(Answered { status: 202, body: json!({ "name": name, "folder": folder }) })
    }

    /// Makes a backup, and notes how it ended. Blocks.
    fn run(&self, task: &Task) {
        let folder = task.dest.join(&task.name);
        let result = self.make(task);
        match &result {
            Ok(created) => tracing::info!(
                folder = %folder.display(), copied = created.copied, linked = created.linked, kept = created.kept,
                "backup finished"
            ),
            Err(error) => tracing::warn!(folder = %folder.display(), %error, "backup failed"),
        }
        let result = result.map(Box::new).map_err(|error| error.to_string());
        *self.state() = State::Ended { name: task.name.clone(), folder, result };
    }

    fn make(&self, task: &Task) -> Result<Created, Error> {
        let request = Create {
            dest: task.dest.clone(),
            name: task.name.clone(),
            beside: folders_in(&task.dest),
            how: task.how,
            node: self.node.clone(),
            cluster: self.cluster.clone(),
            program: program(),
            now_ms: OsClock::new().wall().0 / 1000,
            parts: self.parts(&task.stop)?,
            others: backed_up_files(&self.data)?,
            spare_bytes: self.reserve_bytes,
        };
        let mut pace = Pace::new(task.bytes_per_second);
        let mut watch = |progress: &Progress| {
            if let State::Running { progress: shown, .. } = &mut *self.state() {
                *shown = *progress;
            }
            pace.rest(progress.slice);
            if task.stop.load(Ordering::Relaxed) { Control::Stop } else { Control::Continue }
        };
        create_or_remove(&mut OsDisk::blocking(), &request, &mut watch)
    }

    /// Asks all shards for their stores' files, and waits for them.
    fn parts(&self, stop: &AtomicBool) -> Result<Vec<Part>, Error> {
        let asked: Vec<Outcome<Result<StoreFiles, engine::Error>>> =
            (0..self.shards).map(|_| Outcome::new()).collect();
        for (shard, asked) in (0..).zip(&asked) {
            self.mailboxes.of(ShardId(shard)).put(&mut vec![Mail::Backup(asked.clone())]);
        }
        let until = Instant::now() + FILES_WAIT_MAX;
        let mut parts = Vec::new();
        for (shard, asked) in (0..).zip(&asked) {
            let files = loop {
                match asked.take() {
                    Some(files) => break files?,
                    None if stop.load(Ordering::Relaxed) => return Err(Error::Stopped),
                    None if Instant::now() >= until => return Err(Error::NotReady(shard)),
                    None => std::thread::sleep(FILES_LOOK),
                }
            };
            parts.push(Part { shard, files });
        }
        Ok(parts)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Backs up the data folder of a node that is stopped. Blocks.
///
/// # Errors
/// [`Error::NotBackup`] if there is no node's data in `data`, and those of [`create`]; what was begun is removed.
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

/// Makes a backup, or leaves nothing of it.
fn create_or_remove(disk: &mut OsDisk, request: &Create, watch: Watch<'_>) -> Result<Created, Error> {
    let result = create(disk, request, watch);
    if result.as_ref().is_err_and(|error| !matches!(error, Error::Taken(_))) {
        // It is of no use, and its name can be used again.
        std::fs::remove_dir_all(request.dest.join(&request.name)).ok();
    }
    result
}

fn program() -> String {
    format!("annulet {}", env!("CARGO_PKG_VERSION"))
}

/// What keeps a backup from taking more than its part.
struct Pace {
    bytes_per_second: u64,
    since: Instant,
}

impl Pace {
    fn new(bytes_per_second: u64) -> Pace {
        Pace { bytes_per_second, since: Instant::now() }
    }

    /// Rests after a slice of so many bytes.
    fn rest(&mut self, bytes: u64) {
        if bytes > 0 {
            let took = self.since.elapsed();
            let whole = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
            let rest = took.saturating_mul(REST).min(REST_MAX).max(whole.saturating_sub(took));
            std::thread::sleep(rest);
        }
        self.since = Instant::now();
    }
}

/// `folder` below `root`, if it is there: relative to it, or with it at its beginning.
fn below(root: &Path, folder: &Path) -> Option<PathBuf> {
    let rest = folder.strip_prefix(root).unwrap_or(folder);
    let is_plain = rest.components().all(|part| matches!(part, Component::Normal(_)));
    is_plain.then(|| root.join(rest))
}

/// The names of the folders in a folder; none if it is not there.
fn folders_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let folder = |entry: std::fs::DirEntry| {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        entry.file_name().into_string().ok().filter(|_| is_folder)
    };
    entries.filter_map(|entry| folder(entry.ok()?)).collect()
}

/// The name of a backup that was given none: the time, so that names are in the order of the backups, and the node.
fn default_name(unix_seconds: u64, node: &str) -> String {
    let time = UtcDateTime::from_unix_timestamp(unix_seconds.cast_signed()).unwrap_or(UtcDateTime::MAX);
    let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
    let (hour, minute, second) = time.as_hms();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@+:".contains(c);
    let node: String = node.chars().map(|c| if plain(c) { c } else { '_' }).take(96).collect();
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z-{node}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_lie_below_the_configured_folder() {
        let root = Path::new("/b/root");
        let at = |folder: &str| below(root, Path::new(folder));
        assert_eq!(at("daily"), Some(PathBuf::from("/b/root/daily")));
        assert_eq!(at("/b/root/daily/x"), Some(PathBuf::from("/b/root/daily/x")));
        assert_eq!(at("/b/root"), Some(PathBuf::from("/b/root/")));
        for outside in ["/etc", "..", "daily/../..", "/b/root/../x", "/b/rootless"] {
            assert_eq!(at(outside), None, "{outside}");
        }
    }

    #[test]
    fn a_name_is_the_time_and_the_node() {
        assert_eq!(default_name(0, "a@h"), "19700101T000000Z-a@h");
        assert_eq!(default_name(951_827_696, "a/b@h"), "20000229T123456Z-a_b@h");
        assert_eq!(default_name(4_107_542_399, "n"), "21000228T235959Z-n");
        assert!(check_name(&default_name(1, &"x".repeat(300))).is_ok());
    }
}
