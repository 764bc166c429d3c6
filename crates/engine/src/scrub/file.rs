//! One file of a pass, read a step at a time.

use crate::error::{Damage, Error};
use crate::journal::fault::Fault;
use crate::journal::record::FLAG_INLINE;
use crate::journal::scan::{Scanned, Scanner};
use crate::journal::segment::{self, SEGMENT_HEADER_BYTES};
use crate::lost::LostRange;
use crate::store::Segment;
use crate::table::Table;
use base::Disk;
use base::disk::{self, DiskOp, FileId, OpenMode};
use base::spawn::{Job, Outcome, Progress};
use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A step reads so much, or one block or record if that is more: what [`Job::slice`] asks for.
pub(crate) const STEP_BYTES: u64 = 1 << 20;

/// Damage told of one file: one with more of it is lost.
const DAMAGE_MAX: usize = 64;

/// What the disk gives up is damage like any other.
const UNREADABLE: &str = "the disk cannot read it";

/// A file that is to be gone through. Whoever holds it keeps it from being removed.
#[derive(Clone)]
pub(crate) enum Unit {
    Segment(Arc<Segment>),
    Table(Arc<Table>),
}

/// How far it has come.
enum At {
    Begin,
    Segment(FileId, Box<Scanner>),
    /// A table that was opened anew, and the next block.
    Table(Box<Table>, u32),
}

/// A file under way.
pub(crate) struct FileScrub {
    unit: Unit,
    folder: PathBuf,
    at: At,
    /// Bytes read by the last step.
    pub(crate) read: u64,
    /// What the last step found.
    pub(crate) damage: Vec<Damage>,
    /// The keys of records whose values are damaged.
    pub(crate) keys: Vec<Bytes>,
    /// The ranges of keys that damaged blocks had.
    pub(crate) lost: Vec<LostRange>,
}

impl FileScrub {
    /// At the beginning of a file in `folder`.
    pub(crate) fn new(unit: Unit, folder: &Path) -> FileScrub {
        FileScrub {
            unit,
            folder: folder.to_path_buf(),
            at: At::Begin,
            read: 0,
            damage: Vec::new(),
            keys: Vec::new(),
            lost: Vec::new(),
        }
    }

    /// The file.
    pub(crate) fn unit(&self) -> &Unit {
        &self.unit
    }

    /// Reads on; `true` at the end. [`Error::Exhausted`] if there was no file handle for it; whatever else went wrong
    /// is damage.
    fn step(&mut self, disk: &mut dyn Disk) -> Result<bool, Error> {
        (self.read, self.damage, self.keys, self.lost) = (0, Vec::new(), Vec::new(), Vec::new());
        let stepped = match std::mem::replace(&mut self.at, At::Begin) {
            At::Begin => self.begin(disk),
            At::Segment(file, scanner) => self.records(disk, file, scanner),
            At::Table(table, next) => self.blocks(disk, table, next),
        };
        match stepped {
            Ok(done) => Ok(done),
            Err(error @ Error::Exhausted(_)) => Err(error),
            Err(error) => {
                self.note(error);
                Ok(true)
            }
        }
    }

    fn begin(&mut self, disk: &mut dyn Disk) -> Result<bool, Error> {
        match &self.unit {
            Unit::Table(table) => {
                let table = Box::new(Table::open(disk, &self.folder, table.id())?);
                self.read =
                    table.len() - (0..).map_while(|n| table.block(n)).map(|b| u64::from(b.len)).sum::<u64>();
                // They are a few hundredths of the table, and read at once.
                if let Err(error) = table.check_segments(disk) {
                    self.note(error);
                }
                self.at = At::Table(table, 0);
            }
            Unit::Segment(segment) => {
                let path = self.folder.join(segment::file_name(segment.id));
                let (file, len) = disk::open(disk, &path, OpenMode::Read)?;
                let header = disk::read(disk, file, 0, SEGMENT_HEADER_BYTES);
                if header.is_ok_and(|header| segment::parse_header(&header, segment.id).is_err()) {
                    let file = segment::path_in_store(segment.id);
                    self.damage.push(Damage { file, offset: 0, what: "segment header" });
                }
                let start = SEGMENT_HEADER_BYTES as u64;
                self.at = At::Segment(file, Box::new(Scanner::new(file, len, segment.id, start)));
            }
        }
        Ok(false)
    }

    fn records(
        &mut self,
        disk: &mut dyn Disk,
        file: FileId,
        mut scanner: Box<Scanner>,
    ) -> Result<bool, Error> {
        let scanned = loop {
            match scanner.next(disk) {
                Ok(Some(Scanned::Record(record))) => self.read += record.bytes().len() as u64,
                Ok(Some(Scanned::Gap(fault))) => self.fault(&fault),
                // What no crash has cut off behind the last record, and no seal stands behind, is a seal that failed.
                Ok(Some(Scanned::Tail { fault, blank })) if !blank && fault.may_have_lost_a_key() => {
                    self.fault(&fault);
                }
                Ok(Some(Scanned::Tail { .. })) => {}
                Ok(None) => break Ok(true),
                Err(error) => break Err(error),
            }
            if self.read >= STEP_BYTES {
                self.at = At::Segment(file, scanner);
                return Ok(false);
            }
        };
        // It was only read.
        disk::run(disk, DiskOp::Close { file }).ok();
        scanned
    }

    fn blocks(&mut self, disk: &mut dyn Disk, table: Box<Table>, next: u32) -> Result<bool, Error> {
        for number in next.. {
            if self.read >= STEP_BYTES {
                self.at = At::Table(table, number);
                return Ok(false);
            }
            let Some(block) = table.block(number) else { break };
            self.read += u64::from(block.len);
            if let Err(error) = table.read_block(disk, block) {
                self.note(error);
                let damage = self.damage.last().filter(|_| self.lost.len() < DAMAGE_MAX);
                self.lost.extend(damage.map(|damage| table.lost_block(number, damage.clone())));
            }
        }
        // It was only read.
        disk::run(disk, table.close_op()).ok();
        Ok(true)
    }

    fn fault(&mut self, fault: &Fault) {
        self.read += fault.to.saturating_sub(fault.from);
        // A record of an inline value is log only: tables have it.
        if let Some(remains) = &fault.remains
            && remains.header.kind.has_value()
            && remains.header.flags & FLAG_INLINE == 0
            && self.keys.len() < DAMAGE_MAX
        {
            // A copy: a share would keep a window of the file.
            self.keys.push(Bytes::copy_from_slice(&remains.key));
        }
        self.push(fault.damage());
    }

    fn note(&mut self, error: Error) {
        let file = match &self.unit {
            Unit::Segment(segment) => segment::path_in_store(segment.id),
            Unit::Table(table) => table.id().file_name(),
        };
        self.push(match error {
            Error::Damaged(damage) => damage,
            _ => Damage { file, offset: 0, what: UNREADABLE },
        });
    }

    fn push(&mut self, damage: Damage) {
        if self.damage.len() < DAMAGE_MAX {
            self.damage.push(damage);
        }
    }
}

/// What comes back from a step: the file, and whether it is done.
pub(crate) type StepEnd = (Box<FileScrub>, Result<bool, Error>);

/// A step as a job.
pub(crate) struct ScrubStep {
    file: Option<Box<FileScrub>>,
    outcome: Outcome<StepEnd>,
}

impl ScrubStep {
    /// The next step of `file`.
    pub(crate) fn new(file: Box<FileScrub>, outcome: Outcome<StepEnd>) -> ScrubStep {
        ScrubStep { file: Some(file), outcome }
    }
}

impl Job for ScrubStep {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        if let Some(mut file) = self.file.take() {
            let end = file.step(disk);
            self.outcome.set((file, end));
        }
        Progress::Done
    }
}
