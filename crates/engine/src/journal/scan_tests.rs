//! The scan and the replay: what is found again behind damage, what is torn, what is damage.

use super::fault::*;
use super::record::{self, FLAG_MORE, HEADER_BYTES, Kind, padded_len};
use super::replay::*;
use super::scan::*;
use super::segment::*;
use crate::entry::{Jsn, Seq};
use crate::error::Error;
use base::Rng;
use base::disk::{Completion, Disk, DiskAnswer, DiskOp, FileId, Token};
use base::rng::SplitMix64;
use bytes::Bytes;

/// Files that can only be read.
struct Files {
    files: Vec<Vec<u8>>,
    done: Vec<Completion>,
}

impl Disk for Files {
    fn submit(&mut self, op: DiskOp, token: Token) {
        let DiskOp::Read { file, offset, len } = op else { panic!("a scan does not {op:?}") };
        let bytes = &self.files[file.0 as usize];
        let from = usize::try_from(offset).unwrap().min(bytes.len());
        let to = from.saturating_add(len).min(bytes.len());
        let data = Bytes::copy_from_slice(&bytes[from..to]);
        self.done.push(Completion { token, result: Ok(DiskAnswer::Data(data)) });
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.done);
    }
    fn wait(&mut self) {}
    fn try_read(&mut self, _: FileId, _: u64, _: &mut [u8]) -> Option<usize> {
        None
    }
}

/// A small writer of segments: groups that are synced one after another.
#[derive(Clone)]
struct Log {
    segments: Vec<(SegmentId, Vec<u8>)>,
    /// The end of the last synced group.
    durable: Position,
    next: u64,
    /// Where each record stands: jsn, segment, first byte, first byte after it.
    spans: Vec<(u64, SegmentId, u64, u64)>,
    /// The newest segment's, to be sealed with.
    heads: Vec<(u64, Vec<u8>)>,
}

impl Log {
    fn new() -> Log {
        let mut log =
            Log { segments: vec![], durable: Position::default(), next: 1, spans: vec![], heads: vec![] };
        log.segment();
        log
    }

    fn segment(&mut self) {
        let id = SegmentId(self.segments.len() as u64 + 1);
        self.segments.push((id, encode_header(id, 77).to_vec()));
        self.heads.clear();
    }

    fn end(&self) -> Position {
        let (segment, bytes) = self.segments.last().unwrap();
        Position { segment: *segment, offset: bytes.len() as u64 }
    }

    fn append(&mut self, kind: Kind, flags: u8, key: &[u8], head: &[u8], value: &[u8]) {
        let (segment, bytes) = self.segments.last_mut().unwrap();
        let (offset, jsn) = (bytes.len() as u64, self.next);
        let seq = Seq(jsn + 100);
        record::encode_record(bytes, *segment, offset, kind, flags, Jsn(jsn), seq, key, head, &[value]);
        if kind.is_numbered() {
            self.spans.push((jsn, *segment, offset, bytes.len() as u64));
            self.heads.push((jsn, key.to_vec()));
            self.next += 1;
        }
    }

    fn mark(&mut self) {
        let head = durable_mark(self.durable);
        self.append(Kind::GroupMark, 0, b"", &head, b"");
    }

    /// A synced group of single records with values of these lengths.
    fn group(&mut self, value_lens: &[usize]) {
        self.mark();
        for &len in value_lens {
            let key = format!("key {}", self.next);
            self.append(Kind::Data, 0, key.as_bytes(), b"head", &vec![self.next as u8; len]);
        }
        self.durable = self.end();
    }

    /// A synced group of one batch.
    fn batch(&mut self, count: usize) {
        self.mark();
        for index in 0..count {
            let flags = if index + 1 < count { FLAG_MORE } else { 0 };
            self.append(Kind::Data, flags, b"batched", b"", b"value");
        }
        self.durable = self.end();
    }

    fn seal(&mut self) -> u64 {
        let mut builder = SealBuilder::new();
        for (jsn, key) in &self.heads {
            builder.push(Jsn(*jsn), Seq(jsn + 100), key, &[b"entry"]);
        }
        let (segment, bytes) = self.segments.last_mut().unwrap();
        let heads_at = bytes.len() as u64;
        let end = builder.finish(*segment, heads_at);
        end.parts.iter().for_each(|part| bytes.extend_from_slice(part));
        assert_eq!(bytes.len() as u64, end.end);
        heads_at
    }

    fn bytes(&mut self, index: usize) -> &mut Vec<u8> {
        &mut self.segments[index].1
    }

    fn span(&self, jsn: u64) -> (usize, usize) {
        let span = self.spans.iter().find(|span| span.0 == jsn).unwrap();
        (span.2 as usize, span.3 as usize)
    }

    fn sources(&self) -> Vec<Source> {
        let source = |(index, (segment, bytes)): (usize, &(SegmentId, Vec<u8>))| Source {
            segment: *segment,
            file: FileId(index as u32),
            len: bytes.len() as u64,
            start: SEGMENT_HEADER_BYTES as u64,
            sealed: false,
        };
        self.segments.iter().enumerate().map(source).collect()
    }

    fn disk(&self) -> Files {
        Files { files: self.segments.iter().map(|(_, bytes)| bytes.clone()).collect(), done: vec![] }
    }

    fn replay(&self) -> Outcome {
        self.replay_from(&self.sources(), Position::default()).unwrap()
    }

    fn replay_from(&self, sources: &[Source], floor: Position) -> Result<Outcome, Error> {
        self.replay_on(sources, floor, None)
    }

    fn replay_on(
        &self,
        sources: &[Source],
        floor: Position,
        next_jsn: Option<Jsn>,
    ) -> Result<Outcome, Error> {
        let mut disk = self.disk();
        let mut replay = Replay::open(&mut disk, sources, floor, next_jsn)?;
        let mut outcome = Outcome::default();
        while let Some(replayed) = replay.next(&mut disk)? {
            match replayed {
                Replayed::Record(record) => {
                    let parts = record.record();
                    assert_eq!(parts.value, record.value());
                    assert_eq!(Seq(parts.jsn.0 + 100), parts.seq);
                    outcome.jsns.push(parts.jsn.0);
                }
                Replayed::Damage(fault) => outcome.damage.push(fault),
                Replayed::End(end) => outcome.ends.push(end),
            }
        }
        assert_eq!(outcome.ends.len(), sources.len(), "every segment ends once");
        outcome.durable = replay.durable();
        outcome.next_jsn = replay.next_jsn().map_or(0, |jsn| jsn.0);
        Ok(outcome)
    }

    /// Does what the ends ask for.
    fn cut(&mut self, outcome: &Outcome) {
        for (index, end) in outcome.ends.iter().enumerate().filter(|(_, end)| end.cut.is_some()) {
            let bytes = self.bytes(index);
            bytes.truncate(end.end as usize);
            if bytes.is_empty() {
                *bytes = encode_header(end.segment, 77).to_vec();
            }
        }
    }
}

/// What a replay came to.
#[derive(Debug, Default)]
struct Outcome {
    jsns: Vec<u64>,
    damage: Vec<Fault>,
    ends: Vec<End>,
    durable: Position,
    next_jsn: u64,
}

impl Outcome {
    fn cuts(&self) -> Vec<Option<u64>> {
        self.ends.iter().map(|end| end.cut.as_ref().map(|_| end.end)).collect()
    }

    fn damaged_at(&self) -> Vec<(u64, &'static str)> {
        self.damage.iter().map(|fault| (fault.from, fault.what)).collect()
    }
}

fn jsns(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

#[test]
fn a_whole_log_comes_back() {
    let mut log = Log::new();
    log.group(&[10, 0, 300]);
    log.batch(3);
    log.seal();
    log.segment();
    log.group(&[5]);
    let outcome = log.replay();
    assert_eq!((outcome.jsns.clone(), outcome.cuts()), (jsns(1..8), vec![None, None]));
    assert!(outcome.damage.is_empty());
    assert_eq!((outcome.ends[0].sealed, outcome.ends[1].sealed, outcome.next_jsn), (true, false, 8));
    assert_eq!(outcome.ends[1].end, log.end().offset);
    assert_eq!(outcome.durable.segment, SegmentId(1), "the newest mark speaks of the older segment");
    let (len, mut disk) = (log.bytes(0).len() as u64, log.disk());
    let seal = find_seal(&mut disk, FileId(0), len, SegmentId(1)).unwrap().unwrap();
    assert_eq!((seal.first_jsn, seal.end_jsn, seal.records, seal.heads), (Jsn(1), Jsn(7), 6, 6));
    assert_eq!(find_seal(&mut disk, FileId(0), len - 1, SegmentId(1)).unwrap(), None);
}

#[test]
fn zeros_after_the_end_are_a_clean_end() {
    let mut log = Log::new();
    log.group(&[10]);
    let end = log.end().offset;
    log.bytes(0).resize(5000, 0);
    let outcome = log.replay();
    assert_eq!((outcome.jsns.clone(), outcome.cuts(), outcome.ends[0].end), (jsns(1..2), vec![None], end));
}

#[test]
fn records_across_windows_and_larger_than_one() {
    let mut log = Log::new();
    log.group(&[100_000; 25]);
    log.group(&[3 * WINDOW_BYTES + 5, 17]);
    log.group(&[WINDOW_BYTES; 3]);
    assert_eq!(log.replay().jsns, jsns(1..31));
    // The header of the large one is damaged: the scan must find the record behind it.
    let (from, _) = log.span(26);
    log.bytes(0)[from + 20] ^= 1;
    let outcome = log.replay();
    assert_eq!(outcome.jsns, [jsns(1..26), jsns(27..31)].concat());
    let lost = outcome.damage[0].lost;
    assert_eq!((lost.from_jsn, lost.to_jsn), (Some(Jsn(26)), Some(Jsn(27))));
    assert_eq!((lost.from_seq, lost.to_seq), (Some(Seq(126)), Some(Seq(127))));
}

#[test]
fn a_scan_may_start_at_any_record() {
    let mut log = Log::new();
    log.group(&[10, 20, 30]);
    let mut source = log.sources()[0];
    source.start = log.span(2).0 as u64;
    let outcome = log.replay_from(&[source], Position::default()).unwrap();
    assert_eq!(outcome.jsns, [2, 3]);
    assert_eq!(outcome.durable.offset, source.start);
}

#[test]
fn damage_before_the_mark_and_a_torn_tail_in_one_file() {
    let mut log = Log::new();
    log.group(&[50, 50]);
    log.group(&[50, 50]);
    log.group(&[50, 50]);
    let value = log.span(1).1 - 8;
    let key = log.span(3).0 + record::HEADER_BYTES;
    let torn = log.span(5).0;
    for at in [value, key, torn] {
        log.bytes(0)[at] ^= 0x10;
    }
    let outcome = log.replay();
    assert_eq!(outcome.jsns, [2, 4], "what follows damage is reachable; what follows a torn record is gone");
    let damage = &outcome.damage;
    assert_eq!(
        damage[0].damage().to_string(),
        "journal/0000000000000001.seg is damaged at byte 128: value checksum"
    );
    let remains = damage[0].remains.as_ref().unwrap();
    assert_eq!(
        (&remains.key[..], &remains.head[..], remains.header.jsn),
        (&b"key 1"[..], &b"head"[..], Jsn(1))
    );
    assert_eq!(
        (damage[1].what, damage[1].lost.from_jsn, damage[1].lost.to_jsn),
        ("key checksum", Some(Jsn(3)), Some(Jsn(4)))
    );
    assert_eq!((damage.len(), outcome.cuts()), (2, vec![Some(torn as u64)]));
    // Cut as told, the log is read to the same end again, and goes on from there.
    log.cut(&outcome);
    log.next = outcome.next_jsn;
    log.durable = outcome.durable;
    log.group(&[1]);
    let again = log.replay();
    assert_eq!(
        (again.jsns.clone(), again.damage.clone(), again.cuts()),
        (vec![2, 4, 5], outcome.damage, vec![None])
    );
}

#[test]
fn damage_to_the_last_synced_group_looks_like_a_torn_tail_until_a_mark_vouches_for_it() {
    let mut log = Log::new();
    log.group(&[50]);
    log.group(&[50]);
    let (from, _) = log.span(2);
    let mut damaged = log.clone();
    damaged.bytes(0)[from + 60] ^= 1;
    assert_eq!((damaged.replay().damage.len(), damaged.replay().cuts()), (0, vec![Some(from as u64)]));
    // The caller knows better ...
    let known = damaged.replay_from(&damaged.sources(), damaged.durable).unwrap();
    assert_eq!((known.damage.len(), known.cuts()), (1, vec![None]));
    // ... or one more mark does.
    log.mark();
    log.bytes(0)[from + 60] ^= 1;
    assert_eq!((log.replay().damage.len(), log.replay().cuts()), (1, vec![None]));
}

#[test]
fn a_mark_in_a_newer_segment_vouches_for_an_older_one() {
    let mut log = Log::new();
    log.group(&[50]);
    log.group(&[50, 50]);
    log.segment();
    log.group(&[50]);
    let (from, to) = log.span(2);
    let whole = log.clone();
    log.bytes(0)[from] ^= 1;
    let outcome = log.replay();
    assert_eq!((outcome.jsns.clone(), outcome.cuts()), (vec![1, 3, 4], vec![None, None]));
    assert_eq!(outcome.damaged_at(), [(from as u64, "record header checksum")]);
    // Synced bytes that are gone without a trace are missed, too, at a record's border and inside one.
    for (len, at, what) in [(to, to, "synced bytes are missing"), (to + 5, to, "no record")] {
        let mut log = whole.clone();
        log.bytes(0).truncate(len);
        let outcome = log.replay();
        assert_eq!((outcome.jsns.clone(), outcome.damaged_at()), (vec![1, 2, 4], vec![(at as u64, what)]));
        assert_eq!(
            (outcome.damage[0].lost.from_jsn, outcome.damage[0].lost.to_jsn),
            (Some(Jsn(3)), Some(Jsn(4)))
        );
    }
}

#[test]
fn a_torn_older_segment_ends_the_journal() {
    let mut log = Log::new();
    log.group(&[50]);
    let durable = log.durable;
    log.group(&[50, 50]);
    log.segment();
    // The newer segment was written before the older one's last group was synced.
    log.durable = durable;
    log.group(&[50]);
    for len in [log.span(2).1, log.span(2).1 + 60, log.span(2).0] {
        let mut log = log.clone();
        log.bytes(0).truncate(len);
        let outcome = log.replay();
        assert!(outcome.damage.is_empty());
        assert_eq!(*outcome.jsns.last().unwrap() + 1, outcome.next_jsn);
        assert_eq!(outcome.cuts()[1], Some(SEGMENT_HEADER_BYTES as u64));
        assert!(!outcome.jsns.contains(&4) && outcome.jsns.len() < 3);
        log.cut(&outcome);
        let again = log.replay();
        assert_eq!((again.jsns.clone(), again.cuts()), (outcome.jsns, vec![None, None]));
    }
}

/// A seal is made when its segment is synced: what is missing before it was promised, whatever the marks say.
#[test]
fn a_seal_vouches_for_the_records_before_it() {
    let mut log = Log::new();
    log.group(&[50]);
    let durable = log.durable;
    log.group(&[50, 50]);
    let mut sealed = log.clone();
    sealed.seal();
    for log in [&mut log, &mut sealed] {
        // Its mark was written before the older segment's end was synced.
        log.segment();
        log.durable = durable;
        log.group(&[50]);
        let (from, _) = log.span(3);
        log.bytes(0)[from + 60] ^= 1;
    }
    let outcome = log.replay();
    assert_eq!((outcome.jsns.clone(), outcome.damage.len()), (vec![1, 2], 0));
    let outcome = sealed.replay();
    assert_eq!((outcome.jsns.clone(), outcome.damage.len()), (vec![1, 2, 4], 1));
    assert_eq!(outcome.cuts(), [None, None]);
}

#[test]
fn a_torn_seal_costs_the_seal_and_not_the_next_segment() {
    let mut log = Log::new();
    log.group(&[50, 50]);
    let heads_at = log.seal() as usize;
    log.segment();
    log.group(&[50]);
    log.group(&[50]);
    let len = log.bytes(0).len();
    let check = |log: &Log, place: usize| {
        let outcome = log.replay();
        assert_eq!((outcome.jsns.clone(), outcome.damage.len()), (jsns(1..5), 0), "{place}");
        assert!(outcome.ends[0].end == heads_at as u64 && !outcome.ends[0].sealed, "{place}: {outcome:?}");
        let mut log = log.clone();
        log.cut(&outcome);
        let again = log.replay();
        assert_eq!((again.jsns.clone(), again.cuts()), (jsns(1..5), vec![None, None]));
    };
    for cut in heads_at..len {
        let mut log = log.clone();
        log.bytes(0).truncate(cut);
        check(&log, cut);
    }
    for flip in heads_at..len {
        let mut log = log.clone();
        log.bytes(0)[flip] ^= 1;
        check(&log, flip);
        // Where the seal is known to have been synced, the same is damage.
        let mut sources = log.sources();
        sources[0].sealed = true;
        let outcome = log.replay_from(&sources, Position::default()).unwrap();
        assert_eq!((outcome.jsns.clone(), outcome.cuts()), (jsns(1..5), vec![None, None]));
        assert!(!outcome.damage.is_empty());
    }
}

#[test]
fn a_torn_seal_right_behind_the_replay_position_costs_nothing_else() {
    let mut log = Log::new();
    log.group(&[50, 50]);
    let heads_at = log.seal();
    log.segment();
    // Nothing was synced since, so no mark vouches for the new segment.
    let synced = log.durable;
    log.group(&[50]);
    log.durable = synced;
    log.group(&[50]);
    for cut in heads_at + 1..log.bytes(0).len() as u64 {
        let mut log = log.clone();
        log.bytes(0).truncate(cut as usize);
        let mut sources = log.sources();
        sources[0].start = heads_at;
        let outcome = log.replay_on(&sources, Position::default(), Some(Jsn(3))).unwrap();
        assert_eq!((outcome.jsns.clone(), outcome.damage.len()), (jsns(3..5), 0), "{cut}");
        assert_eq!(outcome.cuts(), [Some(heads_at), None], "{cut}");
        // What does not go on with the number that was to come is cut.
        let outcome = log.replay_on(&sources, Position::default(), Some(Jsn(2))).unwrap();
        assert_eq!((outcome.jsns.clone(), outcome.damage.len()), (vec![], 0), "{cut}");
    }
}

#[test]
fn heads_that_are_cut_off_cost_no_record_where_numbers_are_not_known() {
    let mut log = Log::new();
    log.group(&[50, 50]);
    let heads_at = log.seal();
    log.segment();
    log.group(&[50]);
    log.group(&[50]);
    for cut in heads_at as usize + HEADER_BYTES..log.bytes(0).len() - TRAILER_BYTES {
        let mut log = log.clone();
        log.bytes(0).truncate(cut);
        let mut sources = log.sources();
        sources[0].start = heads_at;
        let outcome = log.replay_from(&sources, Position::default()).unwrap();
        assert_eq!((outcome.jsns.clone(), outcome.damage.len()), (jsns(3..5), 0), "{cut}");
        assert_eq!(outcome.cuts(), [Some(heads_at), None], "{cut}");
    }
}

#[test]
fn a_store_that_was_opened_anew_may_leave_numbers_out() {
    let mut log = Log::new();
    log.group(&[50, 50]);
    let heads_at = log.seal();
    log.segment();
    log.next = 100;
    log.durable = log.end();
    log.group(&[50]);
    let outcome = log.replay();
    assert_eq!((outcome.jsns.clone(), outcome.damage.len()), (vec![1, 2, 100], 0));
    assert_eq!((outcome.cuts(), outcome.next_jsn), (vec![None, None], 101));
    // What was decided then stays decided: heads that are damaged later cost nothing but themselves.
    log.bytes(0)[heads_at as usize] ^= 1;
    let outcome = log.replay();
    assert_eq!(outcome.jsns, [1, 2, 100]);
    // Records that are damaged later are damage.
    let (from, _) = log.span(2);
    log.bytes(0)[from] ^= 1;
    let outcome = log.replay();
    assert_eq!((outcome.jsns.clone(), outcome.damage[0].from), (vec![1, 100], from as u64));
}

#[test]
fn a_torn_start_of_an_unsynced_segment_is_no_damage_to_the_older_one() {
    let mut log = Log::new();
    log.group(&[50]);
    log.segment();
    // The store was opened with this segment, and wrote two groups that were not synced.
    let start = log.end();
    log.durable = start;
    log.group(&[50]);
    let second = log.end();
    log.durable = start;
    log.group(&[50]);
    // The crash took the first of them.
    let torn = start.offset as usize..second.offset as usize;
    log.bytes(1)[torn].fill(0);
    let outcome = log.replay();
    assert_eq!((outcome.jsns.clone(), outcome.damage.len()), (vec![1], 0));
    assert_eq!(outcome.cuts(), [None, Some(start.offset)]);
}

#[test]
fn empty_and_torn_new_segments() {
    let mut log = Log::new();
    log.group(&[50]);
    log.seal();
    log.segment();
    let outcome = log.replay();
    assert_eq!((outcome.jsns.clone(), outcome.cuts(), outcome.ends[1].end), (vec![1], vec![None, None], 64));
    for len in 0..SEGMENT_HEADER_BYTES {
        let mut log = log.clone();
        log.bytes(1).truncate(len);
        let outcome = log.replay();
        assert_eq!((outcome.jsns.clone(), outcome.cuts()), (vec![1], vec![None, Some(0)]));
        assert!(outcome.damage.is_empty());
    }
    log.bytes(1)[20] ^= 1;
    assert_eq!(log.replay().cuts(), [None, Some(0)]);
}

#[test]
fn a_damaged_segment_header_costs_no_record() {
    let mut log = Log::new();
    log.group(&[50, 50]);
    log.bytes(0)[30] ^= 1;
    let outcome = log.replay();
    assert_eq!((outcome.jsns.clone(), outcome.cuts()), (vec![1, 2], vec![None]));
    assert_eq!(outcome.damaged_at(), [(0, "segment header")]);
}

#[test]
fn newer_formats_are_refused_and_not_cut() {
    let mut log = Log::new();
    log.group(&[50]);
    let header = log.bytes(0);
    header[8] = 9;
    let crc = base::checksum::crc32c(&header[..60]);
    header[60..64].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(log.replay_from(&log.sources(), Position::default()), Err(Error::Format { .. })));
}

#[test]
fn half_a_batch_is_dropped_when_torn_and_what_is_left_of_it_kept_when_damaged() {
    let mut log = Log::new();
    log.group(&[50]);
    let before = log.end().offset;
    log.batch(4);
    let first = log.span(2).0 as u64;
    let last = log.span(5);
    let whole = log.clone();
    for cut in first as usize..last.1 {
        let mut log = whole.clone();
        log.bytes(0).truncate(cut);
        let outcome = log.replay();
        assert_eq!(
            (outcome.jsns.clone(), outcome.damage.len(), outcome.ends[0].end),
            (vec![1], 0, first),
            "{cut}"
        );
        assert!(before < first);
    }
    // Vouched for by a later mark, the other three are kept.
    log.group(&[10]);
    for jsn in 2..=5 {
        let mut log = log.clone();
        let (from, _) = log.span(jsn);
        log.bytes(0)[from + 50] ^= 1;
        let outcome = log.replay();
        let left: Vec<u64> = (1..7).filter(|&other| other != jsn).collect();
        assert_eq!((outcome.jsns.clone(), outcome.damage.len(), outcome.cuts()), (left, 1, vec![None]));
    }
}

#[test]
fn bytes_of_an_earlier_use_do_not_come_back() {
    let mut log = Log::new();
    log.group(&[50]);
    let stale = {
        let mut log = log.clone();
        log.group(&[50, 50, 50]);
        log.bytes(0).clone()
    };
    // Cut, and written anew with a longer record: old records stand behind it, good but for their numbers.
    log.next = 20;
    log.group(&[50]);
    let end = log.bytes(0).len();
    log.bytes(0).extend_from_slice(&stale[end..]);
    let outcome = log.replay();
    assert_eq!((outcome.jsns.clone(), outcome.cuts()), (vec![1, 20], vec![Some(end as u64)]));
}

#[test]
fn values_that_look_like_records_are_none() {
    let mut inner = Log::new();
    inner.group(&[40; 40]);
    let mut hostile = inner.bytes(0).clone();
    for at in (0..hostile.len() - 8).step_by(16) {
        hostile[at..at + 4].copy_from_slice(&record::MAGIC.to_le_bytes());
    }
    let mut log = Log::new();
    log.group(&[10]);
    log.mark();
    let copy = inner.bytes(0).clone();
    log.append(Kind::Data, 0, b"copy", b"", &copy);
    log.append(Kind::Data, 0, b"between", b"", b"value");
    log.append(Kind::Data, 0, b"hostile", b"", &hostile);
    log.durable = log.end();
    log.group(&[10]);
    assert_eq!(log.replay().jsns, jsns(1..6));
    for jsn in [2, 4] {
        let (from, _) = log.span(jsn);
        log.bytes(0)[from + 4] ^= 1;
    }
    let outcome = log.replay();
    assert_eq!((outcome.jsns.clone(), outcome.damage.len(), outcome.cuts()), (vec![1, 3, 5], 2, vec![None]));
}

/// A log with everything in it, small enough to be broken everywhere.
fn small_log() -> Log {
    let mut log = Log::new();
    log.group(&[20, 3]);
    log.batch(2);
    log.group(&[0, 31]);
    log
}

/// What must hold of a replay of `log` after bytes from `first` to `last` of its only segment were changed.
fn check_broken(log: &Log, broken: &Log, first: usize, last: usize) {
    let outcome = broken.replay();
    let durable = outcome.durable.offset;
    let all: Vec<u64> = log.spans.iter().map(|span| span.0).collect();
    assert!(outcome.jsns.is_sorted() && outcome.jsns.iter().all(|jsn| all.contains(jsn)));
    for &(jsn, _, from, to) in &log.spans {
        let broken_itself = first < to as usize && last > from as usize;
        let yielded = outcome.jsns.contains(&jsn);
        assert!(!(broken_itself && yielded), "{jsn} passed though broken at {first}..{last}");
        if to <= durable && !broken_itself {
            assert!(yielded, "{jsn} was synced and not broken at {first}..{last}: {outcome:?}");
        }
    }
    // A change is noticed: as damage before the mark, and otherwise as a cut no later than the change.
    let cut = outcome.ends[0].cut.as_ref().map(|_| outcome.ends[0].end as usize);
    let damaged =
        outcome.damage.iter().any(|fault| fault.from as usize <= first && first < fault.to as usize);
    assert!(damaged || cut.is_some_and(|cut| cut <= first), "{first}..{last} was not noticed: {outcome:?}");
    assert!(cut.is_none_or(|cut| cut as u64 >= durable || cut == 0), "synced bytes were cut: {outcome:?}");
    let mut mended = broken.clone();
    mended.cut(&outcome);
    let again = mended.replay();
    assert_eq!((&again.jsns, &again.damage), (&outcome.jsns, &outcome.damage));
    assert_eq!(again.cuts(), [None], "a cut is cut once");
}

#[test]
fn every_flipped_bit_is_noticed_and_costs_one_record_or_the_torn_tail() {
    let log = small_log();
    for bit in 0..log.segments[0].1.len() * 8 {
        let mut broken = log.clone();
        broken.bytes(0)[bit / 8] ^= 1 << (bit % 8);
        check_broken(&log, &broken, bit / 8, bit / 8 + 1);
    }
}

#[test]
fn every_truncation_leaves_a_prefix() {
    let log = small_log();
    let full = log.segments[0].1.len();
    let mut longest = 0;
    for len in 0..=full {
        let mut cut = log.clone();
        cut.bytes(0).truncate(len);
        let outcome = cut.replay();
        assert_eq!(outcome.jsns, jsns(1..outcome.jsns.len() as u64 + 1));
        assert!(outcome.damage.is_empty() && outcome.jsns.len() >= longest);
        assert!(!outcome.jsns.ends_with(&[3]), "half a batch");
        longest = outcome.jsns.len();
        // The same with zeros behind, as of blocks that were never written: only zeros that had been cut off
        // can come back.
        cut.bytes(0).resize(full, 0);
        let zeros = cut.replay();
        assert_eq!(zeros.jsns, jsns(1..zeros.jsns.len() as u64 + 1));
        let whole = log
            .spans
            .iter()
            .filter(|span| cut.segments[0].1[..span.3 as usize] == log.segments[0].1[..span.3 as usize]);
        assert!(zeros.damage.is_empty() && zeros.jsns.len() <= whole.count());
    }
    assert_eq!(longest, 6);
}

#[test]
fn swapped_blocks_are_noticed() {
    const BLOCK: usize = 64;
    let mut log = Log::new();
    for _ in 0..6 {
        log.group(&[16, 16, 80]);
    }
    let blocks = log.segments[0].1.len() / BLOCK;
    for a in 1..blocks {
        for b in a + 1..blocks {
            let mut broken = log.clone();
            let bytes = broken.bytes(0);
            let (left, right) = bytes.split_at_mut(b * BLOCK);
            left[a * BLOCK..(a + 1) * BLOCK].swap_with_slice(&mut right[..BLOCK]);
            let first = bytes.iter().zip(&log.segments[0].1).position(|(is, was)| is != was);
            let Some(first) = first else { continue };
            let outcome = broken.replay();
            let noticed = outcome.damage.iter().any(|fault| fault.from as usize <= first)
                || outcome.ends[0].cut.is_some() && outcome.ends[0].end as usize <= first;
            assert!(noticed, "blocks {a} and {b}");
            for &(jsn, _, from, to) in &log.spans {
                let (from, to) = (from as usize, to as usize);
                let same = broken.segments[0].1[from..to] == log.segments[0].1[from..to];
                assert!(same || !outcome.jsns.contains(&jsn));
                assert!(!same || outcome.jsns.contains(&jsn) || to as u64 > outcome.durable.offset);
            }
        }
    }
}

#[test]
fn random_changes_never_pass() {
    let log = small_log();
    let len = log.segments[0].1.len() as u64;
    let mut rng = SplitMix64::new(3);
    for _ in 0..5000 {
        let mut broken = log.clone();
        let first = rng.below(len) as usize;
        let last = (first + 1 + rng.below(90) as usize).min(len as usize);
        let zero = rng.chance(1, 2);
        for byte in &mut broken.bytes(0)[first..last] {
            *byte = if zero { 0 } else { rng.next_u64() as u8 };
        }
        let is = &broken.segments[0].1;
        let mut changed = (0..is.len()).filter(|&at| is[at] != log.segments[0].1[at]);
        let Some(first) = changed.next() else { continue };
        let last = changed.next_back().unwrap_or(first) + 1;
        check_broken_range(&log, &broken, first, last);
    }
}

/// As [`check_broken`], for changes that may leave bytes between as they were.
fn check_broken_range(log: &Log, broken: &Log, first: usize, last: usize) {
    let outcome = broken.replay();
    for &(jsn, _, from, to) in &log.spans {
        let (from, to) = (from as usize, to as usize);
        let same = broken.segments[0].1[from..to] == log.segments[0].1[from..to];
        assert!(same || !outcome.jsns.contains(&jsn), "{jsn} passed though broken in {first}..{last}");
        let synced = to as u64 <= outcome.durable.offset;
        assert!(
            !same || !synced || outcome.jsns.contains(&jsn),
            "{jsn} was lost to {first}..{last}: {outcome:?}"
        );
    }
    assert!(!outcome.damage.is_empty() || outcome.ends[0].cut.is_some(), "{first}..{last} was not noticed");
}

#[test]
fn random_bytes_are_scanned_to_their_end() {
    let mut rng = SplitMix64::new(4);
    for _ in 0..2000 {
        let len = rng.below(600) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        for at in (0..len.saturating_sub(4)).step_by(8) {
            if rng.chance(1, 3) {
                bytes[at..at + 4].copy_from_slice(&record::MAGIC.to_le_bytes());
            }
        }
        let mut log = Log::new();
        log.segments[0].1 = bytes;
        let outcome = log.replay();
        assert_eq!((outcome.jsns.len(), outcome.cuts()), (0, vec![Some(0)]));
    }
}

#[test]
fn a_rule_of_one_line() {
    let at = |segment, offset| Position { segment: SegmentId(segment), offset };
    assert_eq!(classify(at(1, 500), at(1, 501)), Verdict::Damage);
    assert_eq!(classify(at(1, 500), at(1, 500)), Verdict::Torn);
    assert_eq!(classify(at(1, 500), at(2, 64)), Verdict::Damage);
    assert_eq!(classify(at(2, 64), at(1, 500)), Verdict::Torn);
    assert_eq!(padded_len(49), 56);
}
