//! The state of a simulated disk, and the life of an operation on it: begun, under way, ended or cut off.

use super::config::{DiskConfig, Region};
use super::file::{ChangeNumber, CrashRule, SimFile};
use super::tree::{Inode, Tree};
use crate::fault::Fault;
use crate::seed::{duration_between, index_below};
use crate::trace::Trace;
use base::checksum::crc32c;
use base::disk::{Completion, DiskOp, FileId, Token};
use base::rng::SplitMix64;
use base::{DiskError, DiskErrorKind, Rng};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A handle of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HandleId(pub u64);

/// An operation of a disk, for events to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationId(pub u64);

/// A queued operation that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// Which.
    pub operation: OperationId,
    /// How long it takes.
    pub takes: Duration,
}

/// What happens at an operation chosen beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// The power is cut while it is under way.
    PowerCut,
    /// The process is killed while it is under way.
    Kill,
    /// It fails, as far as such an operation can.
    Error,
}

/// What a disk has been asked to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations by kind; reads from memory by how they came out.
    pub operations: BTreeMap<&'static str, u64>,
    /// Bytes that writes were asked to write.
    pub bytes_written: u64,
    /// Bytes that reads gave.
    pub bytes_read: u64,
}

impl Counts {
    pub(super) fn count(&mut self, kind: &'static str) {
        *self.operations.entry(kind).or_default() += 1;
    }
}

/// A file that is open.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenFile {
    pub(super) inode: Inode,
    pub(super) writable: bool,
}

/// An operation that has begun and not ended.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    pub(super) id: OperationId,
    pub(super) handle: HandleId,
    pub(super) token: Token,
    pub(super) op: DiskOp,
    /// The file that `op` names, found when it began: a close may overtake it.
    pub(super) file: Option<OpenFile>,
    /// The last change before it began: a sync promises nothing of later ones.
    pub(super) after: ChangeNumber,
    /// Whether it was armed to fail.
    pub(super) fails: bool,
}

/// How often rot looks for a place that it may damage. More would make an atlas that allows little slow.
const ROT_TRIES_MAX: usize = 32;

#[derive(Debug, Default)]
struct HandleState {
    /// Its process has died, and all it gets are errors.
    dead: bool,
    /// What it has yet to poll.
    completions: Vec<Completion>,
}

/// A disk.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) config: DiskConfig,
    pub(super) rng: SplitMix64,
    pub(super) trace: Trace,
    pub(super) tree: Tree,
    pub(super) files: BTreeMap<Inode, SimFile>,
    pub(super) open: BTreeMap<FileId, OpenFile>,
    /// The lock files that the process holds; they go with its last handle.
    pub(super) locks: BTreeSet<PathBuf>,
    /// The last number given to a file, file id, handle or operation. One count for all: none is ever reused.
    numbered: u64,
    pub(super) changed: ChangeNumber,
    under_way: BTreeMap<OperationId, (Duration, Begun)>,
    handles: BTreeMap<HandleId, HandleState>,
    pub(super) started: Vec<Started>,
    pub(super) armed: Option<(u64, Armed)>,
    pub(super) deaths: u64,
    pub(super) damage: Vec<(Fault, Region)>,
    pub(super) counts: Counts,
}

impl Device {
    pub(super) fn new(name: &str, config: DiskConfig, rng: SplitMix64, trace: Trace) -> Device {
        assert!(config.block_len.is_power_of_two(), "blocks of an odd size");
        config.odds.enable(&trace);
        Device {
            name: name.to_owned(),
            tree: Tree::new(&config.root),
            config,
            rng,
            trace,
            files: BTreeMap::new(),
            open: BTreeMap::new(),
            locks: BTreeSet::new(),
            numbered: 0,
            changed: ChangeNumber::default(),
            under_way: BTreeMap::new(),
            handles: BTreeMap::new(),
            started: Vec::new(),
            armed: None,
            deaths: 0,
            damage: Vec::new(),
            counts: Counts::default(),
        }
    }

    pub(super) fn fork(&self, rng: SplitMix64, trace: Trace) -> Device {
        let mut fork = Device::new(&self.name, self.config.clone(), rng, trace);
        fork.tree = self.tree.clone();
        fork.files = self.files.clone();
        fork.numbered = self.numbered;
        fork.changed = self.changed;
        fork.under_way = self.under_way.clone();
        fork.damage = self.damage.clone();
        fork
    }

    /// Puts other contents in the place of its own; with `None`, none.
    pub(super) fn replace(&mut self, contents: Option<(&Tree, &BTreeMap<Inode, SimFile>)>) {
        assert!(self.under_way.is_empty() && self.open.is_empty(), "{} is in use", self.name);
        let (tree, files) = contents.map_or_else(
            || (Tree::new(&self.config.root), BTreeMap::new()),
            |(tree, files)| (tree.clone(), files.clone()),
        );
        // Files to come must have numbers that those of the image do not have.
        let highest = files.keys().next_back().map_or(0, |inode| inode.0);
        self.numbered = self.numbered.max(highest);
        (self.tree, self.files) = (tree, files);
    }

    /// A number that this disk has not given to anything yet.
    pub(super) fn number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    /// The number of the change that is about to be made.
    pub(super) fn change(&mut self) -> ChangeNumber {
        self.changed.0 += 1;
        self.changed
    }

    pub(super) fn crash_rule(&self) -> CrashRule {
        CrashRule { block_len: self.config.block_len, torn: self.config.odds.torn }
    }

    pub(super) fn open_handle(&mut self) -> HandleId {
        let id = HandleId(self.number());
        self.handles.insert(id, HandleState::default());
        id
    }

    pub(super) fn close_handle(&mut self, id: HandleId) {
        self.handles.remove(&id);
        if self.handles.values().all(|handle| handle.dead) {
            self.locks.clear();
        }
    }

    pub(super) fn take_completions(&mut self, id: HandleId) -> Vec<Completion> {
        std::mem::take(&mut self.handle(id).completions)
    }

    pub(super) fn is_dead(&mut self, id: HandleId) -> bool {
        self.handle(id).dead
    }

    fn handle(&mut self, id: HandleId) -> &mut HandleState {
        self.handles.get_mut(&id).expect("a handle is known until it is dropped")
    }

    /// Begins an operation that ends when the world says.
    pub(super) fn submit(&mut self, handle: HandleId, op: DiskOp, token: Token) {
        let Some(begun) = self.begin(handle, op, token) else { return };
        let mut takes = duration_between(&mut self.rng, self.config.latency_min, self.config.latency_max);
        if self.config.odds.slow.fires(&mut self.rng) {
            takes += duration_between(&mut self.rng, Duration::ZERO, self.config.slow_max);
            self.trace.fault(Fault::SlowDisk, format_args!("{} #{}", self.name, begun.id.0));
        }
        self.started.push(Started { operation: begun.id, takes });
        self.under_way.insert(begun.id, (takes, begun));
    }

    /// Runs an operation to its end.
    pub(super) fn run(&mut self, handle: HandleId, op: DiskOp, token: Token) {
        if let Some(begun) = self.begin(handle, op, token) {
            self.end(begun);
        }
    }

    /// Ends an operation that is under way.
    pub(super) fn finish(&mut self, id: OperationId) -> Option<HandleId> {
        let (_, begun) = self.under_way.remove(&id)?;
        let handle = begun.handle;
        self.end(begun);
        self.handles.contains_key(&handle).then_some(handle)
    }

    /// Ends the first operation of `handle`, unless it has something to poll already.
    pub(super) fn finish_first(&mut self, handle: HandleId) {
        if self.handle(handle).completions.is_empty() {
            let own = self.under_way.values().filter(|(_, begun)| begun.handle == handle);
            let first = own.map(|(takes, begun)| (*takes, begun.id)).min();
            self.finish(first.expect("somebody waited for nothing").1);
        }
    }

    fn begin(&mut self, handle: HandleId, op: DiskOp, token: Token) -> Option<Begun> {
        if self.is_dead(handle) {
            self.refuse(handle, token);
            return None;
        }
        let id = OperationId(self.number());
        self.trace.line(format_args!("{} #{} {}", self.name, id.0, Shown(&op)));
        self.counts.count(kind(&op));
        let file = file_of(&op).and_then(|file| self.open.get(&file)).copied();
        let mut begun = Begun { id, handle, token, op, file, after: self.changed, fails: false };
        match self.armed_now() {
            None => return Some(begun),
            Some(Armed::Error) => {
                begun.fails = true;
                return Some(begun);
            }
            Some(crash) => {
                self.under_way.insert(id, (Duration::ZERO, begun));
                match crash {
                    Armed::PowerCut => self.power_cut(),
                    _ => self.kill(),
                }
                self.refuse(handle, token);
            }
        }
        None
    }

    /// Counts down to what is armed, and gives it when it is due.
    fn armed_now(&mut self) -> Option<Armed> {
        let (left, what) = self.armed?;
        self.armed = (left > 1).then(|| (left - 1, what));
        (left == 1).then_some(what)
    }

    fn end(&mut self, begun: Begun) {
        let (id, handle, token) = (begun.id, begun.handle, begun.token);
        let result = self.execute(begun);
        match &result {
            Ok(_) => self.trace.line(format_args!("{} #{} done", self.name, id.0)),
            Err(error) => self.trace.line(format_args!("{} #{} failed: {error}", self.name, id.0)),
        }
        if let Some(state) = self.handles.get_mut(&handle) {
            state.completions.push(Completion { token, result });
        }
    }

    fn refuse(&mut self, handle: HandleId, token: Token) {
        let result = Err(error(DiskErrorKind::Io, Path::new(&self.name), "this process is dead"));
        let completion = Completion { token, result };
        self.handle(handle).completions.push(completion);
    }

    pub(super) fn power_cut(&mut self) {
        self.trace.fault(Fault::PowerCut, format_args!("{}", self.name));
        self.die();
        let rule = self.crash_rule();
        for (inode, file) in &mut self.files {
            let harm = file.crash(rule, &mut self.rng);
            let counts = [(harm.lost, Fault::LostBlock), (harm.torn, Fault::TornBlock)];
            for (count, fault) in counts.into_iter().filter(|(count, _)| *count > 0) {
                self.trace.fault(fault, format_args!("{} file {} x{count}", self.name, inode.0));
            }
        }
        let lost = self.tree.crash(&mut self.rng);
        if lost > 0 {
            self.trace.fault(Fault::LostEntry, format_args!("{} x{lost}", self.name));
        }
        self.sweep();
    }

    pub(super) fn kill(&mut self) {
        self.trace.fault(Fault::ProcessKill, format_args!("{}", self.name));
        self.die();
        self.sweep();
    }

    /// Ends all processes: each operation under way has happened or not, and nobody will hear which.
    fn die(&mut self) {
        self.armed = None;
        for (id, (_, begun)) in std::mem::take(&mut self.under_way) {
            if matches!(begun.op, DiskOp::Write { .. }) {
                self.trace.fault(Fault::CrashInWrite, format_args!("{} #{}", self.name, id.0));
            }
            if self.rng.chance(1, 2) {
                self.happen_unheard(begun);
            }
        }
        self.deaths += 1;
        self.open.clear();
        self.locks.clear();
        self.started.clear();
        for state in self.handles.values_mut() {
            state.dead = true;
            state.completions.clear();
        }
    }

    /// Forgets files that nothing can reach any more.
    pub(super) fn sweep(&mut self) {
        let mut reachable = self.tree.reachable();
        reachable.extend(self.open.values().map(|file| file.inode));
        reachable.extend(self.under_way.values().filter_map(|(_, begun)| begun.file).map(|file| file.inode));
        self.files.retain(|inode, _| reachable.contains(inode));
    }

    pub(super) fn list_files(&self) -> Vec<(PathBuf, u64)> {
        let len = |inode| self.files.get(&inode).map_or(0, SimFile::len);
        self.tree.files().map(|(path, inode)| (path.to_path_buf(), len(inode))).collect()
    }

    pub(super) fn list_written(&self) -> Vec<(PathBuf, u64)> {
        let end = |inode| self.files.get(&inode).map_or(0, SimFile::written);
        self.tree.files().map(|(path, inode)| (path.to_path_buf(), end(inode))).collect()
    }

    pub(super) fn flip_bit(&mut self, path: &Path, offset: u64, bit: u8) -> bool {
        let region = Region { path: path.to_path_buf(), offset, len: 1 };
        let found = self.tree.files().find(|(name, _)| *name == path).map(|(_, inode)| inode);
        let Some(file) = found.and_then(|inode| self.files.get_mut(&inode)) else { return false };
        let mut byte = [0];
        if file.read(offset, &mut byte) == 0 || !self.config.atlas.allows(Fault::BitFlip, &region) {
            return false;
        }
        file.damage(offset, &[byte[0] ^ (1 << (bit % 8))]);
        self.note_damage(Fault::BitFlip, region);
        true
    }

    pub(super) fn copy_block(&mut self, from: (&Path, u64), to: (&Path, u64), len: u64) -> bool {
        let find = |name: &Path| self.tree.files().find(|(path, _)| *path == name).map(|(_, inode)| inode);
        let (Some(source), Some(target)) = (find(from.0), find(to.0)) else { return false };
        let mut block = vec![0; usize::try_from(len).expect("a block fits memory")];
        let mut there = block.clone();
        let whole = |file: &SimFile, at, buf: &mut [u8]| file.read(at, buf) == buf.len();
        let region = Region { path: to.0.to_path_buf(), offset: to.1, len };
        let differs = whole(&self.files[&source], from.1, &mut block)
            && whole(&self.files[&target], to.1, &mut there)
            && block != there;
        if !differs || !self.config.atlas.allows(Fault::Misdirect, &region) {
            return false;
        }
        self.files.get_mut(&target).expect("just found").damage(to.1, &block);
        self.note_damage(Fault::Misdirect, region);
        true
    }

    pub(super) fn rot(&mut self) -> Option<Region> {
        let files: Vec<_> = self.list_files().into_iter().filter(|(_, len)| *len > 0).collect();
        for _ in 0..ROT_TRIES_MAX.min(files.len() * ROT_TRIES_MAX) {
            let (path, len) = &files[index_below(&mut self.rng, files.len())];
            let (offset, bit) = (self.rng.below(*len), self.rng.below(8) as u8);
            if self.flip_bit(path, offset, bit) {
                return Some(Region { path: path.clone(), offset, len: 1 });
            }
        }
        None
    }

    /// Counts silent damage and keeps it for the checker.
    pub(super) fn note_damage(&mut self, fault: Fault, region: Region) {
        self.trace.fault(fault, format_args!("{} {region}", self.name));
        self.damage.push((fault, region));
    }
}

/// An error of the disk.
pub(super) fn error(kind: DiskErrorKind, path: &Path, message: &str) -> DiskError {
    DiskError { kind, path: path.display().to_string(), message: message.to_owned() }
}

/// The file id that an operation names.
pub(super) fn file_of(op: &DiskOp) -> Option<FileId> {
    match op {
        DiskOp::Close { file }
        | DiskOp::Write { file, .. }
        | DiskOp::Sync { file }
        | DiskOp::Read { file, .. }
        | DiskOp::Truncate { file, .. } => Some(*file),
        DiskOp::Open { .. }
        | DiskOp::Rename { .. }
        | DiskOp::Link { .. }
        | DiskOp::Remove { .. }
        | DiskOp::CreateDir { .. }
        | DiskOp::SyncDir { .. }
        | DiskOp::List { .. }
        | DiskOp::Space { .. }
        | DiskOp::Lock { .. } => None,
    }
}

fn kind(op: &DiskOp) -> &'static str {
    match op {
        DiskOp::Open { .. } => "open",
        DiskOp::Close { .. } => "close",
        DiskOp::Write { sync: false, .. } => "write",
        DiskOp::Write { sync: true, .. } => "write+sync",
        DiskOp::Sync { .. } => "sync",
        DiskOp::Read { .. } => "read",
        DiskOp::Truncate { .. } => "truncate",
        DiskOp::Rename { .. } => "rename",
        DiskOp::Link { .. } => "link",
        DiskOp::Remove { .. } => "remove",
        DiskOp::CreateDir { .. } => "create-dir",
        DiskOp::SyncDir { .. } => "sync-dir",
        DiskOp::List { .. } => "list",
        DiskOp::Space { .. } => "space",
        DiskOp::Lock { .. } => "lock",
    }
}

/// An operation as the trace shows it: of what is written, the checksum.
struct Shown<'a>(&'a DiskOp);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(kind(self.0))?;
        if let Some(file) = file_of(self.0) {
            write!(f, " f{}", file.0)?;
        }
        match self.0 {
            DiskOp::Write { offset, data, room, .. } => {
                write!(f, " @{offset}+{} crc {:08x}", data.len(), crc32c(&data.joined()))?;
                if *room > 0 { write!(f, " room {room}") } else { Ok(()) }
            }
            DiskOp::Read { offset, len, .. } => write!(f, " @{offset}+{len}"),
            DiskOp::Truncate { len, .. } => write!(f, " to {len}"),
            DiskOp::Open { path, mode } => write!(f, " {} {mode:?}", path.display()),
            DiskOp::Rename { from, to } | DiskOp::Link { from, to } => {
                write!(f, " {} {}", from.display(), to.display())
            }
            DiskOp::Remove { path }
            | DiskOp::CreateDir { path }
            | DiskOp::SyncDir { path }
            | DiskOp::List { path }
            | DiskOp::Space { path }
            | DiskOp::Lock { path } => write!(f, " {}", path.display()),
            DiskOp::Close { .. } | DiskOp::Sync { .. } => Ok(()),
        }
    }
}
