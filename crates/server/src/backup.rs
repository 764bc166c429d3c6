//! Backups of the node while it serves: one at a time, asked for by operators.
//!
//! 1. Each shard's store says, as of a moment of its own, which files make it up, and keeps them meanwhile
//!    ([`engine::Store::begin_backup`]).
//! 2. A thread of its own links or copies them (crate `backup`), in slices. After each it rests (`pace.rs`): clients
//!    hardly wait for it.
//! 3. What it has written so far is told to whoever asks, and how it ended until the next one begins.
//!
//! Backups lie below one folder that the node's configuration names, since whoever reaches the port can ask for them.
//!
//! * `place.rs`: the folders and names of backups. `pace.rs`: the rests of their thread. `stopped.rs`: backups of a
//!   node that does not run.
//!
//! Left out: a moment that all shards have in common. A key is in one shard, and shards know nothing of each other's
//! order.

mod pace;
mod place;
mod stopped;

pub use stopped::create_stopped;

use crate::mailbox::{Mail, Mailboxes};
use crate::membership::{Answered, backed_up_files};
pub use crate::membership::{FilesError, has_groups, mark_restored, without_users};
use ::backup::{Control, Create, Created, Error, How, Part, Progress, Watch, check_name, create};
use base::Clock;
use base::spawn::Outcome;
use bytes::Bytes;
use engine::backup::StoreFiles;
use node::ShardId;
use node::http::BackupPage;
use os::{OsClock, OsDisk};
use pace::BackupPace;
use place::{below, default_name, folders_in};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The nice value of its thread: nobody waits for a backup, so it has a tenth of the share of a busy processor that a
/// shard has.
const NICENESS: i32 = 10;

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
        let mut pace = BackupPace::new(task.bytes_per_second);
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
