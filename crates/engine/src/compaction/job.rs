//! A compaction as a job: it does a slice of work as long as its pace allows, and then gives itself back.

use super::account::Account;
use super::newest::Newest;
use super::output::{Output, Sealing};
use super::pace::Pace;
use super::plan::with_heads;
use super::reader::{Listed, SegmentReader};
use super::sift::{Fate, Ground, OlderKeys, Sieve};
use super::window::Window;
use crate::compression::Compressor;
use crate::entry::{Entry, Jsn, Location, Seq};
use crate::error::{Damage, Error};
use crate::index::Indexing;
use crate::journal::record::{Header, Kind, ParseError, padded_len};
use crate::journal::segment::{self, SegmentId};
use crate::store::{CompressionCounters, Segment, WHOLE_FILE};
use base::disk::{self, DiskErrorKind, DiskOp};
use base::spawn::Outcome;
use base::{Disk, Job, Progress};
use std::path::PathBuf;
use std::sync::Arc;

/// A slice copies about so many bytes.
const SLICE_BYTES: u64 = 1 << 20;

/// A slice looks at so many records at most when it copies: a millisecond.
const SLICE_RECORDS: usize = 4096;

/// Blocks of heads of older segments are read only if they are at most this many times as large as the records that
/// could go: so what finding them costs is bounded by what it frees.
const OLDER_HEADS_FACTOR: u64 = 4;

/// A block of heads is taken to be this part of its segment, for the same purpose.
const HEADS_SHARE: u64 = 8;

/// An output is made only if at least one byte in so many goes: what is read in vain is the inputs' heads.
const GAIN_MIN: u64 = 20;

/// What a compaction works on.
pub(crate) struct CompactionRequest {
    /// The journal's folder.
    pub folder: PathBuf,
    /// The output's id.
    pub id: SegmentId,
    /// The store's incarnation.
    pub incarnation: u64,
    /// Neighbours, oldest first.
    pub inputs: Vec<Arc<Segment>>,
    /// The numbers that the inputs stand for.
    pub stands_for: (Jsn, Jsn),
    /// All segments before the inputs; `None` if older records might be in files that are not known any more, or
    /// are about to be removed.
    pub older: Option<Vec<Arc<Segment>>>,
    /// The bytes of their records.
    pub older_bytes: u64,
    /// The ledger.
    pub newest: Newest,
    /// Versions up to this one are in tables, and nothing is lost there.
    pub in_tables: Seq,
    /// Which of its keys are index entries.
    pub indexing: Option<Indexing>,
    /// How fast it may go.
    pub pace: Arc<Pace>,
    /// Compresses what it moves.
    pub compressor: Option<Compressor>,
    /// Bytes that its output may take.
    pub room: u64,
}

/// What a compaction has done.
#[derive(Debug)]
pub(crate) struct CompactionOutput {
    /// The new segment; none if nothing was kept.
    pub segment: Option<Arc<Segment>>,
    /// Its bytes.
    pub account: Account,
    /// Values that do not pass their checks.
    pub damaged: Vec<Damage>,
    /// Values that were compressed.
    pub compressed: CompressionCounters,
}

/// Why there is no output.
#[derive(Debug)]
pub(crate) enum CompactionError {
    /// Next to nothing could go.
    NotWorth,
    /// The output would not fit. Bytes that each input has to keep.
    NoRoom(Vec<u64>),
    /// It was told to give up.
    Cancelled,
    /// An input has lost a record with its key.
    Unreadable(SegmentId, Error),
    /// The disk failed. Nothing was changed.
    Failed(Error),
}

/// What comes back from a job.
pub(crate) enum CompactionEnd {
    /// Its pace is spent; it is to be taken up again later.
    Paused(Box<Compaction>),
    /// It is over. With it, the bytes that were read and written.
    Done(Result<CompactionOutput, CompactionError>, Traffic),
}

/// What it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub read: u64,
    pub written: u64,
}

/// A compaction under way.
pub(crate) struct Compaction {
    request: CompactionRequest,
    step: Step,
    sieves: Vec<Sieve>,
    reader: Option<SegmentReader>,
    older: OlderKeys,
    chunk: std::vec::IntoIter<Listed>,
    /// The number of the next record in its input.
    at: usize,
    window: Window,
    output: Option<Output>,
    damaged: Vec<Damage>,
    compressed: CompressionCounters,
    traffic: Traffic,
}

enum Step {
    /// Judge the records of an input.
    Sift(usize),
    /// Look for older records in a segment before the inputs.
    Older(usize),
    /// Copy what is kept of an input.
    Copy(usize),
    Seal(Sealing),
    Over,
}

impl Compaction {
    pub fn new(request: CompactionRequest) -> Compaction {
        Compaction {
            request,
            step: Step::Sift(0),
            sieves: Vec::new(),
            reader: None,
            older: OlderKeys::default(),
            chunk: Vec::new().into_iter(),
            at: 0,
            window: Window::default(),
            output: None,
            damaged: Vec::new(),
            compressed: CompressionCounters::default(),
            traffic: Traffic::default(),
        }
    }

    /// Its pace.
    pub fn pace(&self) -> &Arc<Pace> {
        &self.request.pace
    }

    /// Lets go of what it has made.
    pub fn discard(&mut self, disk: &mut dyn Disk) {
        if let Some(reader) = self.reader.take() {
            reader.close(disk);
        }
        if let Some(output) = self.output.take() {
            output.discard(disk);
        }
        if let Step::Seal(sealing) = std::mem::replace(&mut self.step, Step::Over) {
            sealing.discard(disk);
        }
    }

    fn slice(&mut self, disk: &mut dyn Disk) -> Result<Option<CompactionOutput>, CompactionError> {
        let before = self.traffic;
        let result = match self.step {
            Step::Sift(input) => self.sift(disk, input).map(|()| None),
            Step::Older(index) => {
                self.look_for_older(disk, index).map(|()| None).map_err(CompactionError::Failed)
            }
            Step::Copy(input) => self.copy(disk, input),
            Step::Seal(_) => self.seal(disk).map_err(CompactionError::Failed),
            Step::Over => unreachable!("a compaction that is over is not spawned"),
        };
        let spent = self.traffic.read + self.traffic.written - before.read - before.written;
        self.request.pace.spend(spent);
        result
    }

    /// 1. Judges a chunk of an input's records.
    fn sift(&mut self, disk: &mut dyn Disk, input: usize) -> Result<(), CompactionError> {
        let Some(segment) = self.request.inputs.get(input).cloned() else {
            self.settle();
            return Ok(());
        };
        if self.sieves.len() == input {
            let CompactionRequest { indexing, in_tables, ref older, .. } = self.request;
            let is_oldest = older.as_ref().is_some_and(Vec::is_empty);
            self.sieves.push(Sieve::new(Ground { indexing, is_oldest, in_tables }));
        }
        let unreadable = |error| CompactionError::Unreadable(segment.id, error);
        match self.next_chunk(disk, &segment).map_err(|error| told(error, &unreadable))? {
            None => self.step = Step::Sift(input + 1),
            Some(chunk) => self.sieves[input]
                .judge(disk, &mut self.request.newest, &chunk)
                .map_err(|error| told(error, &unreadable))?,
        }
        Ok(())
    }

    /// Decides what becomes of records that were not looked for, and whether older segments are to be asked.
    fn settle(&mut self) {
        let in_doubt = self.sieves.iter().any(|sieve| sieve.in_doubt);
        self.sieves.iter_mut().for_each(|sieve| sieve.settle_unseen(in_doubt));
        let undecided: u64 = self.sieves.iter().map(Sieve::undecided_bytes).sum();
        let heads = self.request.older_bytes / HEADS_SHARE;
        let worth = heads <= undecided.saturating_mul(OLDER_HEADS_FACTOR);
        if undecided > 0 && worth && self.request.older.is_some() {
            self.sieves.iter().for_each(|sieve| self.older.ask_for(sieve));
            self.step = Step::Older(0);
            return;
        }
        self.sieves.iter_mut().for_each(|sieve| sieve.settle(None));
        self.step = Step::Copy(0);
    }

    /// 2. Looks through a chunk of an older segment's records.
    fn look_for_older(&mut self, disk: &mut dyn Disk, index: usize) -> Result<(), Error> {
        let older = self.request.older.as_ref().expect("asked only where they are known");
        let Some(segment) = older.get(index).cloned() else {
            let older = std::mem::take(&mut self.older);
            self.sieves.iter_mut().for_each(|sieve| sieve.settle(Some(&older)));
            self.step = Step::Copy(0);
            return Ok(());
        };
        match self.next_chunk(disk, &segment) {
            Ok(None) => self.step = Step::Older(index + 1),
            Ok(Some(chunk)) => chunk.iter().for_each(|listed| self.older.note(&listed.key)),
            // What cannot be read may have any key.
            Err(Error::Damaged(_) | Error::Malformed(_)) => {
                self.close_reader(disk);
                self.sieves.iter_mut().for_each(|sieve| sieve.settle(None));
                self.step = Step::Copy(0);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Refuses an output that would gain next to nothing, or that does not fit.
    fn check_output(&self) -> Result<(), CompactionError> {
        let seen: u64 = self.sieves.iter().map(|sieve| sieve.bytes_seen).sum();
        let kept_of: Vec<u64> = self.sieves.iter().map(|sieve| sieve.bytes_kept).collect();
        let kept: u64 = kept_of.iter().sum();
        if self.request.inputs.len() == 1 && (seen - kept) * GAIN_MIN < seen {
            return Err(CompactionError::NotWorth);
        }
        let needs: u64 = kept_of.iter().map(|&kept| with_heads(kept)).sum();
        if needs > self.request.room {
            return Err(CompactionError::NoRoom(kept_of));
        }
        Ok(())
    }

    /// 3. Copies what is kept of an input.
    fn copy(
        &mut self,
        disk: &mut dyn Disk,
        input: usize,
    ) -> Result<Option<CompactionOutput>, CompactionError> {
        if input == 0 && self.at == 0 && self.output.is_none() {
            self.check_output()?;
        }
        let Some(segment) = self.request.inputs.get(input).cloned() else { return self.end_copy(disk) };
        let before = self.traffic.read;
        for _ in 0..SLICE_RECORDS {
            let Some(listed) = self.chunk.next() else {
                let unreadable = |error| CompactionError::Unreadable(segment.id, error);
                match self.next_chunk(disk, &segment).map_err(|error| told(error, &unreadable))? {
                    None => {
                        (self.step, self.at) = (Step::Copy(input + 1), 0);
                        self.window = Window::default();
                        break;
                    }
                    Some(chunk) => self.chunk = chunk.into_iter(),
                }
                continue;
            };
            let (fate, applied) = (self.sieves[input].fate(self.at), self.sieves[input].applied(self.at));
            self.at += 1;
            if fate != Fate::Dropped && !self.is_spent(&listed) {
                let listed = Listed { seq: applied.unwrap_or(listed.seq), ..listed };
                let is_applied = applied.is_some();
                self.copy_record(disk, &segment, &listed, fate, is_applied)
                    .map_err(CompactionError::Failed)?;
            }
            let waiting = self.output.as_ref().map_or(0, Output::waiting) as u64;
            if waiting >= SLICE_BYTES || self.traffic.read - before >= SLICE_BYTES {
                break;
            }
        }
        if let Some(output) = &mut self.output {
            self.traffic.written += output.waiting() as u64;
            output.write(disk).map_err(CompactionError::Failed)?;
        }
        Ok(None)
    }

    /// Whether it is a commit mark that speaks of nothing which is left: entries of groups' logs are in segments that
    /// compaction did not write.
    fn is_spent(&self, listed: &Listed) -> bool {
        let is_mark = listed.other.as_ref().is_some_and(|other| other.header().kind == Kind::CommitMark);
        let older = self.request.older.as_ref();
        is_mark && older.is_some_and(|older| older.iter().all(|segment| segment.id.is_compacted()))
    }

    fn copy_record(
        &mut self,
        disk: &mut dyn Disk,
        segment: &Segment,
        listed: &Listed,
        fate: Fate,
        is_applied: bool,
    ) -> Result<(), Error> {
        if self.output.is_none() {
            let CompactionRequest { folder, id, incarnation, stands_for, .. } = &self.request;
            self.output = Some(Output::create(disk, folder, *id, *incarnation, *stands_for)?);
        }
        // An entry of a group's log of which is not known whether it is applied stays what it is.
        if let Some(other) = listed.other.as_ref().filter(|_| !is_applied) {
            self.output().push_other(other.header(), other.bytes());
            return Ok(());
        }
        let entry = match (Entry::decode(&listed.entry)?, fate) {
            (entry, Fate::Deletion) => entry.ended(),
            (entry, _) => entry,
        };
        let Location::Journal { offset, len } = entry.location else {
            self.output().push_log_only(listed.seq, &listed.key, &entry);
            return Ok(());
        };
        let file = self.reader.as_ref().expect("open while its records are copied").file();
        let (bytes, came) = self.window.read(disk, file, u64::from(offset), padded_len(len as usize))?;
        self.traffic.read += came as u64;
        let damage = |what| Damage { file: segment::path_in_store(segment.id), offset: offset.into(), what };
        match Header::parse(&bytes, segment.id, u64::from(offset)) {
            Ok(header) if header.jsn == entry.jsn && header.record_len() == len as usize => {
                match header.parse_body(&bytes) {
                    Ok(_) if is_applied => {
                        self.output().push_applied(&header, &bytes, listed.seq, &listed.key, &entry);
                        return Ok(());
                    }
                    Ok(record) => {
                        return self.move_record(&header, &bytes, record.value, &listed.key, &entry);
                    }
                    Err(ParseError::BadKey { .. }) => {
                        self.damaged.push(damage("key checksum"));
                        let value = &bytes[header.value_range()];
                        self.output().push_damaged(listed.seq, &listed.key, &entry, value);
                        return Ok(());
                    }
                    Err(_) => self.damaged.push(damage("value checksum")),
                }
                if is_applied && bytes.len() >= header.record_len() {
                    self.output().push_applied(&header, &bytes, listed.seq, &listed.key, &entry);
                    return Ok(());
                }
                if bytes.len() >= header.record_len() {
                    self.output().push_moved(&header, &bytes, None, &listed.key, &entry);
                    return Ok(());
                }
                self.output().push_damaged(listed.seq, &listed.key, &entry, &[]);
            }
            _ => {
                self.damaged.push(damage("record header checksum"));
                self.output().push_damaged(listed.seq, &listed.key, &entry, &[]);
            }
        }
        Ok(())
    }

    /// A sound record, compressed if that is wanted and pays.
    fn move_record(
        &mut self,
        header: &Header,
        bytes: &[u8],
        value: &[u8],
        key: &[u8],
        entry: &Entry<'_>,
    ) -> Result<(), Error> {
        let output = self.output.as_mut().expect("made before the first record");
        let compressor = self.request.compressor.as_mut();
        let packed = compressor.and_then(|compressor| compressor.on_compaction(header.flags, value));
        if let Some((_, stored)) = packed {
            self.compressed.count(value.len(), stored.len());
        }
        output.push_moved(header, bytes, packed, key, entry);
        Ok(())
    }

    fn output(&mut self) -> &mut Output {
        self.output.as_mut().expect("made before the first record")
    }

    fn end_copy(&mut self, disk: &mut dyn Disk) -> Result<Option<CompactionOutput>, CompactionError> {
        if self.sieves.iter().any(|sieve| sieve.drops_inlines) {
            self.tell_inlines_dropped(disk).map_err(CompactionError::Failed)?;
        }
        match self.output.take() {
            Some(output) if !output.is_empty() => {
                let sealing = output.seal();
                self.step = Step::Seal(sealing);
                Ok(None)
            }
            output => {
                if let Some(output) = output {
                    output.discard(disk);
                }
                self.step = Step::Over;
                Ok(Some(self.told(None, Account::default())))
            }
        }
    }

    /// Says, before the records go, that some values are in tables alone from now on.
    fn tell_inlines_dropped(&self, disk: &mut dyn Disk) -> Result<(), Error> {
        let store = self.request.folder.parent().expect("the journal is in the store's folder");
        match disk::run(disk, DiskOp::Remove { path: store.join(WHOLE_FILE) }) {
            Ok(_) => {}
            Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        disk::run(disk, DiskOp::SyncDir { path: store.to_path_buf() })?;
        Ok(())
    }

    /// 4. Seals and syncs the output.
    fn seal(&mut self, disk: &mut dyn Disk) -> Result<Option<CompactionOutput>, Error> {
        let Step::Seal(sealing) = &mut self.step else { unreachable!("the caller has looked") };
        if !sealing.step(disk)? {
            return Ok(None);
        }
        let (segment, account, len) = (Some(Arc::clone(&sealing.segment)), sealing.account, sealing.len);
        self.traffic.written += len - account.bytes().min(len);
        self.step = Step::Over;
        Ok(Some(self.told(segment, account)))
    }

    fn told(&mut self, segment: Option<Arc<Segment>>, account: Account) -> CompactionOutput {
        CompactionOutput {
            segment,
            account,
            damaged: std::mem::take(&mut self.damaged),
            compressed: self.compressed,
        }
    }

    fn next_chunk(&mut self, disk: &mut dyn Disk, segment: &Segment) -> Result<Option<Vec<Listed>>, Error> {
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => SegmentReader::open(disk, &self.request.folder, segment)?,
        };
        let chunk = reader.next_chunk(disk);
        match &chunk {
            Ok(Some(listed)) => {
                self.traffic.read += listed.iter().map(Listed::bytes).sum::<u64>();
                self.reader = Some(reader);
            }
            _ => reader.close(disk),
        }
        chunk
    }

    fn close_reader(&mut self, disk: &mut dyn Disk) {
        if let Some(reader) = self.reader.take() {
            reader.close(disk);
        }
    }
}

/// Damage makes an input unreadable; a disk that fails may do better later.
fn told(error: Error, unreadable: &dyn Fn(Error) -> CompactionError) -> CompactionError {
    match error {
        Error::Disk(_) => CompactionError::Failed(error),
        other => unreadable(other),
    }
}

/// A compaction's turn on a job thread.
pub(crate) struct Run {
    compaction: Option<Box<Compaction>>,
    outcome: Outcome<CompactionEnd>,
}

impl Run {
    /// Goes on with `compaction`.
    pub fn new(compaction: Box<Compaction>, outcome: Outcome<CompactionEnd>) -> Run {
        Run { compaction: Some(compaction), outcome }
    }
}

impl Job for Run {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        let mut compaction = self.compaction.take().expect("a job that is done is not called");
        let result = if compaction.pace().is_cancelled() {
            Err(CompactionError::Cancelled)
        } else {
            match compaction.slice(disk) {
                Ok(None) if compaction.pace().is_spent() => {
                    self.outcome.set(CompactionEnd::Paused(compaction));
                    return Progress::Done;
                }
                Ok(None) => {
                    self.compaction = Some(compaction);
                    return Progress::More;
                }
                Ok(Some(output)) => Ok(output),
                Err(error) => Err(error),
            }
        };
        if result.is_err() {
            compaction.discard(disk);
        }
        self.outcome.set(CompactionEnd::Done(result, compaction.traffic));
        Progress::Done
    }
}
