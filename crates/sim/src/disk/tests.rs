//! The disk as its users meet it: handles, crashes and every fault.

use super::*;
use crate::clock::SimTime;
use crate::fault::Odds;
use crate::seed::Seed;
use crate::trace::Keep;
use base::disk::{DiskAnswer, DiskOp, FileId, OpenMode, Token, list, open, read, replace_file, run, space};
use base::{Disk, DiskErrorKind};
use bytes::Bytes;
use std::collections::BTreeSet;

const DIR: &str = "/data";

fn disk_with(seed: u64, config: DiskConfig) -> (SimDisk, Trace) {
    let trace = Trace::new(SimTime::default(), Keep::Hash);
    (SimDisk::new("disk", config, Seed(seed).stream("disk", 0), trace.clone()), trace)
}

fn with_odds(odds: DiskOdds) -> (SimDisk, Trace) {
    disk_with(1, DiskConfig { odds, ..DiskConfig::sound(DIR) })
}

fn sound(seed: u64) -> SimDisk {
    disk_with(seed, DiskConfig::sound(DIR)).0
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn write(file: FileId, offset: u64, data: &[u8], sync: bool) -> DiskOp {
    DiskOp::Write { file, offset, data: Bytes::copy_from_slice(data).into(), room: 0, sync }
}

/// Makes a file of `data`, durably.
fn make(disk: &mut DiskHandle, name: &str, data: &[u8]) -> FileId {
    let (file, _) = open(disk, &path(name), OpenMode::Create).unwrap();
    run(disk, write(file, 0, data, true)).unwrap();
    run(disk, DiskOp::SyncDir { path: DIR.into() }).unwrap();
    file
}

fn contents(disk: &SimDisk, name: &str) -> Option<Bytes> {
    let mut handle = disk.immediate();
    let (file, len) = open(&mut handle, &path(name), OpenMode::Read).ok()?;
    Some(read(&mut handle, file, 0, len as usize).unwrap())
}

fn poll(handle: &mut DiskHandle) -> Vec<(u64, bool)> {
    let mut completions = Vec::new();
    handle.poll(&mut completions);
    completions.iter().map(|completion| (completion.token.0, completion.result.is_ok())).collect()
}

#[test]
fn handles_share_files_and_ids() {
    let disk = sound(1);
    let (mut one, mut two) = (disk.immediate(), disk.immediate());
    let file = make(&mut one, "a", b"hello");
    drop(one);
    assert_eq!(read(&mut two, file, 1, 100).unwrap(), b"ello"[..]);
    assert_eq!(list(&mut two, Path::new(DIR)).unwrap(), ["a"]);
    assert_eq!(open(&mut two, &path("a"), OpenMode::Create).unwrap_err().kind, DiskErrorKind::Exists);
    assert_eq!(open(&mut two, &path("b"), OpenMode::Write).unwrap_err().kind, DiskErrorKind::NotFound);
    assert_eq!(
        open(&mut two, Path::new("/no/b"), OpenMode::Create).unwrap_err().kind,
        DiskErrorKind::NotFound
    );
    let (reader, len) = open(&mut two, &path("a"), OpenMode::Read).unwrap();
    assert!(reader != file && len == 5);
    assert!(run(&mut two, write(reader, 0, b"x", false)).is_err(), "it is open to read only");
    run(&mut two, DiskOp::Close { file }).unwrap();
    assert!(run(&mut two, DiskOp::Sync { file }).is_err(), "it is closed");
    assert_eq!(two.try_read(file, 0, &mut [0; 4]), None);
}

#[test]
fn a_lock_holds_until_its_process_ends() {
    let disk = sound(1);
    let (mut one, mut two) = (disk.immediate(), disk.immediate());
    let lock = || DiskOp::Lock { path: path("lock") };
    run(&mut one, lock()).unwrap();
    assert_eq!(run(&mut two, lock()).unwrap_err().kind, DiskErrorKind::Locked);
    drop(one);
    assert_eq!(run(&mut two, lock()).unwrap_err().kind, DiskErrorKind::Locked, "one handle of it is left");
    drop(two);
    let mut next = disk.immediate();
    run(&mut next, lock()).unwrap();
    disk.kill();
    run(&mut disk.immediate(), lock()).unwrap();
}

#[test]
fn queued_operations_end_when_the_world_says() {
    let disk = sound(1);
    let file = make(&mut disk.immediate(), "a", b"old.");
    let mut shard = disk.queued();
    shard.submit(DiskOp::Read { file, offset: 0, len: 4 }, Token(1));
    shard.submit(write(file, 0, b"new!", true), Token(2));
    shard.submit(DiskOp::Close { file }, Token(3));
    let started = disk.take_started();
    assert_eq!(started.len(), 3);
    assert!(poll(&mut shard).is_empty());
    // Last first: the close ends, and what was under way on the file still does.
    for started in started.iter().rev() {
        assert_eq!(disk.finish(started.operation), Some(shard.id()));
    }
    assert_eq!(poll(&mut shard), [(3, true), (2, true), (1, true)]);
    assert_eq!(disk.finish(started[0].operation), None, "it has ended");
    assert_eq!(contents(&disk, "a").unwrap(), b"new!"[..]);
}

#[test]
fn a_queued_handle_can_wait() {
    let disk = sound(1);
    let mut shard = disk.queued();
    let file = make(&mut shard, "a", b"x");
    assert_eq!(read(&mut shard, file, 0, 1).unwrap(), b"x"[..]);
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_ends_all_handles() {
    let mut survived = BTreeSet::new();
    for seed in 0..100 {
        let disk = sound(seed);
        let mut shard = disk.queued();
        let file = make(&mut shard, "a", b"synced");
        run(&mut shard, write(file, 6, b" or not", false)).unwrap();
        run(&mut shard, DiskOp::Remove { path: path("a") }).unwrap();
        run(&mut shard, DiskOp::Lock { path: path("lock") }).unwrap();
        shard.submit(write(file, 0, b"SYNCED", true), Token(9));
        disk.power_cut();
        assert_eq!((disk.deaths(), disk.take_started().len()), (1, 0));
        assert!(poll(&mut shard).is_empty(), "nobody hears of what was under way");
        assert!(run(&mut shard, DiskOp::List { path: DIR.into() }).is_err(), "the dead stay dead");
        survived.insert(contents(&disk, "a").map(|data| data.to_vec()));
        run(&mut disk.immediate(), DiskOp::Lock { path: path("lock") }).unwrap();
    }
    let expected = [None, Some(&b"synced"[..]), Some(b"synced or not"), Some(b"SYNCED or not")];
    for outcome in expected {
        assert!(survived.contains(&outcome.map(<[u8]>::to_vec)), "{outcome:?} never came out");
    }
    let whole = |data: &Vec<u8>| data.len() >= 6 && data[..6].eq_ignore_ascii_case(b"synced");
    assert!(survived.iter().flatten().all(whole), "{survived:?}");
}

#[test]
fn a_kill_keeps_what_the_system_has() {
    for seed in 0..20 {
        let disk = sound(seed);
        let (file, _) = open(&mut disk.immediate(), &path("a"), OpenMode::Create).unwrap();
        run(&mut disk.immediate(), write(file, 0, b"data", false)).unwrap();
        disk.kill();
        assert_eq!(contents(&disk, "a").unwrap(), b"data"[..]);
        assert!(run(&mut disk.immediate(), DiskOp::Sync { file }).is_err(), "no file is open any more");
    }
}

#[test]
fn a_replaced_file_is_old_or_new_wherever_the_power_is_cut() {
    let mut seen = BTreeSet::new();
    for seed in 0..400 {
        let disk = sound(seed);
        replace_file(&mut disk.immediate(), &path("a"), Bytes::from_static(b"old")).unwrap();
        disk.arm(1 + seed % 8, Armed::PowerCut);
        let replaced = replace_file(&mut disk.immediate(), &path("a"), Bytes::from_static(b"the new one"));
        assert_eq!(replaced.is_err(), disk.deaths() == 1);
        disk.disarm();
        let found = contents(&disk, "a").unwrap();
        assert!(found == b"old"[..] || found == b"the new one"[..], "{found:?}");
        assert!(replaced.is_err() || found == b"the new one"[..]);
        seen.insert((seed % 8, found == b"old"[..]));
    }
    assert!(
        seen.contains(&(5, true)) && seen.contains(&(5, false)),
        "in the last sync both come out: {seen:?}"
    );
}

#[test]
fn an_armed_error_hits_one_operation() {
    for (armed, kind) in
        [(1, Fault::WriteError), (2, Fault::SyncError), (3, Fault::ReadError), (4, Fault::SyncError)]
    {
        let (disk, trace) = with_odds(DiskOdds::SOUND);
        let mut handle = disk.immediate();
        let file = make(&mut handle, "a", b"data");
        disk.arm(armed, Armed::Error);
        let ops = [
            write(file, 0, b"DATA", false),
            DiskOp::Sync { file },
            DiskOp::Read { file, offset: 0, len: 4 },
            DiskOp::SyncDir { path: DIR.into() },
            DiskOp::Read { file, offset: 0, len: 4 },
        ];
        let failed: Vec<u64> =
            (1..).zip(ops).filter_map(|(at, op)| run(&mut handle, op).is_err().then_some(at)).collect();
        assert_eq!(failed, [armed]);
        assert_eq!(trace.fired().into_iter().collect::<Vec<_>>(), [(kind, 1)]);
    }
}

#[test]
fn errors_by_odds() {
    let cases: [(DiskOdds, Fault, DiskErrorKind); 4] = [
        (DiskOdds { read_error: Odds::one_in(2), ..DiskOdds::SOUND }, Fault::ReadError, DiskErrorKind::Io),
        (DiskOdds { write_error: Odds::one_in(2), ..DiskOdds::SOUND }, Fault::WriteError, DiskErrorKind::Io),
        (DiskOdds { sync_error: Odds::one_in(2), ..DiskOdds::SOUND }, Fault::SyncError, DiskErrorKind::Io),
        (DiskOdds { no_space: Odds::one_in(2), ..DiskOdds::SOUND }, Fault::NoSpace, DiskErrorKind::NoSpace),
    ];
    for (odds, fault, kind) in cases {
        let (disk, trace) = with_odds(DiskOdds::SOUND);
        let mut handle = disk.immediate();
        let file = make(&mut handle, "a", b"data");
        disk.set_odds(odds);
        assert_eq!(trace.unfired(), [fault]);
        let mut failed = 0;
        for _ in 0..100 {
            let ops = [write(file, 0, b"DATA", true), DiskOp::Read { file, offset: 0, len: 4 }];
            let errors = ops.into_iter().filter_map(|op| run(&mut handle, op).err());
            failed +=
                errors.inspect(|error| assert_eq!((error.kind, &error.path[..]), (kind, "/data/a"))).count();
        }
        assert!((25..75).contains(&failed), "{fault}: {failed}");
        assert_eq!(trace.fired().get(&fault), Some(&(failed as u64)));
        assert!(trace.unfired().is_empty());
    }
}

#[test]
fn a_failed_write_is_there_in_part() {
    let (disk, _) = with_odds(DiskOdds::SOUND);
    let mut handle = disk.immediate();
    let mut lens = BTreeSet::new();
    for n in 0..50 {
        let name = n.to_string();
        let (file, _) = open(&mut handle, &path(&name), OpenMode::Create).unwrap();
        disk.arm(1, Armed::Error);
        run(&mut handle, write(file, 0, &[7; 100], true)).unwrap_err();
        let found = contents(&disk, &name).unwrap();
        assert!(found.iter().all(|byte| *byte == 7));
        lens.insert(found.len());
    }
    assert!(lens.len() > 20 && lens.iter().all(|len| *len <= 100));
}

#[test]
fn space_runs_out_and_comes_back() {
    let (disk, trace) = disk_with(1, DiskConfig { space_max: Some(64 << 10), ..DiskConfig::sound(DIR) });
    let mut handle = disk.immediate();
    let file = make(&mut handle, "a", &[1; 40 << 10]);
    let (other, _) = open(&mut handle, &path("b"), OpenMode::Create).unwrap();
    let error = run(&mut handle, write(other, 0, &[2; 40 << 10], true)).unwrap_err();
    assert_eq!(error.kind, DiskErrorKind::NoSpace);
    assert_eq!(trace.fired().get(&Fault::NoSpace), Some(&1));
    run(&mut handle, write(file, 0, &[3; 40 << 10], true)).expect("an overwrite takes no space");
    run(&mut handle, DiskOp::Close { file }).unwrap();
    run(&mut handle, DiskOp::Remove { path: path("a") }).unwrap();
    run(&mut handle, DiskOp::SyncDir { path: DIR.into() }).unwrap();
    run(&mut handle, write(other, 0, &[2; 40 << 10], true)).unwrap();
}

#[test]
fn reads_from_memory_come_short_or_not_at_all() {
    let (disk, trace) =
        with_odds(DiskOdds { short_read: Odds::one_in(4), cold_read: Odds::one_in(4), ..DiskOdds::SOUND });
    let mut handle = disk.immediate();
    let data: Vec<u8> = (0..=255).collect();
    let file = make(&mut handle, "a", &data);
    let mut lens = BTreeSet::new();
    for _ in 0..200 {
        let mut buf = vec![0; 256];
        let len = handle.try_read(file, 0, &mut buf);
        assert_eq!(buf[..len.unwrap_or(0)], data[..len.unwrap_or(0)]);
        lens.insert(len);
    }
    assert!(lens.contains(&None) && lens.contains(&Some(256)) && lens.len() > 10, "{lens:?}");
    assert!(trace.unfired().is_empty());
    let counts = disk.counts().operations;
    assert_eq!(counts["try-read"] + counts["try-read short"] + counts["try-read cold"], 200);
    assert_eq!(handle.try_read(file, 256, &mut [0]), None, "past the end only a read that waits can tell");
    // Only a read that may come short is: one that goes to the disk is whole.
    assert_eq!(read(&mut handle, file, 0, 256).unwrap(), data);
    assert_eq!(disk.counts().operations["read"], 1);
}

#[test]
fn slow_operations_take_longer() {
    let (disk, trace) = with_odds(DiskOdds { slow: Odds::one_in(10), ..DiskOdds::SOUND });
    let mut shard = disk.queued();
    (0..100).for_each(|n| shard.submit(DiskOp::List { path: DIR.into() }, Token(n)));
    let started = disk.take_started();
    let config = DiskConfig::sound(DIR);
    let slow = started.iter().filter(|started| started.takes > config.latency_max).count() as u64;
    assert!((1..30).contains(&slow));
    assert!(trace.fired()[&Fault::SlowDisk] >= slow);
}

type Wrong = Vec<(PathBuf, u64)>;
type Damage = Vec<(Fault, Region)>;

/// Writes 64 blocks under `odds`, and returns what differs, and the damage that the disk owns up to.
fn damaged(odds: DiskOdds, atlas: Atlas) -> (Wrong, Damage) {
    let (disk, _) = disk_with(3, DiskConfig { atlas, ..DiskConfig::sound(DIR) });
    let mut handle = disk.immediate();
    let files: Vec<_> = ["a", "b"].map(|name| (name, make(&mut handle, name, &[1; 64 * 512]))).into();
    disk.set_odds(odds);
    for block in 0..64 {
        for (_, file) in &files {
            run(&mut handle, write(*file, block * 512, &[2; 512], true)).unwrap();
        }
    }
    let mut wrong = Vec::new();
    for (name, _) in files {
        let found = contents(&disk, name).unwrap();
        disk.power_cut();
        assert_eq!(contents(&disk, name).unwrap(), found, "silent damage is durable");
        let offsets = found.iter().enumerate().filter(|(_, byte)| **byte != 2);
        wrong.extend(offsets.map(|(at, _)| (path(name), at as u64)));
    }
    (wrong, disk.damage())
}

#[test]
fn silent_damage_is_owned_up_to_and_only_where_the_atlas_allows_it() {
    let flips = DiskOdds { bit_flip: Odds::one_in(8), ..DiskOdds::SOUND };
    let misdirects = DiskOdds { misdirect: Odds::one_in(8), ..DiskOdds::SOUND };
    for (odds, wrong_min) in [(flips, 5), (misdirects, 512)] {
        let only_b = Atlas::new(|_, region: &Region| region.path.ends_with("b"));
        let (wrong, damage) = damaged(odds, only_b);
        assert!(wrong.len() >= wrong_min, "{} bytes are wrong", wrong.len());
        for (path, at) in wrong {
            let holds = |region: &Region| {
                region.path == path && (region.offset..region.offset + region.len).contains(&at)
            };
            assert!(path.ends_with("b") && damage.iter().any(|(_, region)| holds(region)), "{path:?} {at}");
        }
        assert_eq!(damaged(odds, Atlas::loud()), (vec![], vec![]));
    }
}

#[test]
fn rot_flips_a_bit_where_it_may() {
    let atlas = Atlas::new(|_, region: &Region| region.path.ends_with("b") && region.offset >= 50);
    let (disk, trace) = disk_with(1, DiskConfig { atlas, ..DiskConfig::sound(DIR) });
    assert_eq!(disk.rot(), None, "there is nothing to rot");
    make(&mut disk.immediate(), "a", &[0; 100]);
    make(&mut disk.immediate(), "b", &[0; 100]);
    let region = disk.rot().unwrap();
    assert!(!disk.flip_bit(&path("a"), 0, 0) && !disk.flip_bit(&path("b"), 100, 0));
    let found = contents(&disk, "b").unwrap();
    assert_eq!(found[region.offset as usize].count_ones(), 1);
    assert_eq!(found.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
    assert_eq!(disk.damage(), [(Fault::BitFlip, region)]);
    assert_eq!(trace.fired()[&Fault::BitFlip], 1);
}

#[test]
fn forks_of_one_moment_crash_apart() {
    let disk = sound(1);
    let mut shard = disk.queued();
    let file = make(&mut shard, "a", b"");
    run(&mut shard, write(file, 0, &[1; 2048], false)).unwrap();
    let mut outcomes = BTreeSet::new();
    for seed in 0..50 {
        let trace = Trace::new(SimTime::default(), Keep::Hash);
        let fork = disk.fork(Seed(seed).stream("fork", 0), trace);
        fork.power_cut();
        outcomes.insert(contents(&fork, "a").unwrap());
    }
    assert!(outcomes.len() > 10, "{} outcomes", outcomes.len());
    assert_eq!(read(&mut shard, file, 0, 4096).unwrap(), vec![1; 2048], "the original lives on");
}

#[test]
fn new_directories_need_a_sync_of_the_one_above() {
    let mut gone = 0;
    for seed in 0..40 {
        let disk = sound(seed);
        let mut handle = disk.immediate();
        run(&mut handle, DiskOp::CreateDir { path: path("x/y") }).unwrap();
        run(&mut handle, DiskOp::CreateDir { path: path("x/y") }).unwrap();
        open(&mut handle, &path("x/y/file"), OpenMode::Create).unwrap();
        run(&mut handle, DiskOp::SyncDir { path: path("x/y") }).unwrap();
        run(&mut handle, DiskOp::SyncDir { path: path("x") }).unwrap();
        if seed % 2 == 0 {
            run(&mut handle, DiskOp::SyncDir { path: DIR.into() }).unwrap();
        }
        disk.power_cut();
        let found = list(&mut disk.immediate(), &path("x/y"));
        assert!(found.as_ref().is_ok_and(|names| names == &["file"]) || seed % 2 == 1);
        gone += u32::from(found.is_err());
    }
    assert!(gone > 3, "{gone}");
}

#[test]
fn a_read_answers_data_and_a_write_done() {
    let disk = sound(1);
    let mut handle = disk.immediate();
    let file = make(&mut handle, "a", b"0123456789");
    assert_eq!(run(&mut handle, DiskOp::Truncate { file, len: 4 }).unwrap(), DiskAnswer::Done);
    assert_eq!(read(&mut handle, file, 2, 10).unwrap(), b"23"[..]);
    assert_eq!(read(&mut handle, file, 9, 10).unwrap(), b""[..]);
    assert_eq!(disk.files(), [(path("a"), 4)]);
}

#[test]
fn a_disk_is_replaced_by_an_image_of_itself_or_another_or_by_nothing() {
    let (disk, other) = (sound(1), sound(2));
    let has = |disk: &SimDisk, name: &str| contents(disk, name).map(|bytes| bytes.to_vec());
    make(&mut disk.immediate(), "a", b"old");
    let image = disk.image(Seed(1).stream("image", 0));
    make(&mut disk.immediate(), "b", b"new");
    assert_eq!(has(&disk, "b").unwrap(), b"new");
    for taker in [&disk, &other] {
        taker.kill();
        taker.replace(Some(&image));
        assert_eq!(has(taker, "a").unwrap(), b"old");
        assert_eq!(has(taker, "b"), None);
        // What is made from now on takes the place of nothing.
        make(&mut taker.immediate(), "c", b"more");
        assert_eq!(has(taker, "a").unwrap(), b"old");
        assert_eq!(has(taker, "c").unwrap(), b"more");
    }
    disk.kill();
    disk.replace(None);
    assert!(disk.files().is_empty());
    make(&mut disk.immediate(), "a", b"again");
    assert_eq!(has(&disk, "a").unwrap(), b"again");
}

/// Room is taken ahead, reads as zeros, and is given back by a cut.
#[test]
fn room_ahead_takes_space_and_is_no_promise() {
    let (disk, _) = disk_with(1, DiskConfig { space_max: Some(40 << 10), ..DiskConfig::sound(DIR) });
    let mut handle = disk.immediate();
    let file = make(&mut handle, "a", b"begin");
    let with_room = |offset, room| {
        let data = Bytes::from_static(&[1; 100]);
        DiskOp::Write { file, offset, data: data.into(), room, sync: true }
    };
    run(&mut handle, with_room(5, 30 << 10)).unwrap();
    assert_eq!(disk.files(), [(path("a"), 30 << 10)]);
    assert_eq!(disk.written(), [(path("a"), 105)]);
    let found = contents(&disk, "a").unwrap();
    assert!(found.starts_with(b"begin\x01") && found[105..].iter().all(|byte| *byte == 0));
    assert_eq!(space(&mut handle, Path::new(DIR)).unwrap(), 8 << 10, "in blocks of 4 KiB");
    run(&mut handle, with_room(105, 60 << 10)).unwrap();
    assert_eq!(disk.files(), [(path("a"), 30 << 10)], "there was no room, and the write needs none of it");
    run(&mut handle, DiskOp::Truncate { file, len: 205 }).unwrap();
    run(&mut handle, DiskOp::Sync { file }).unwrap();
    assert_eq!(space(&mut handle, Path::new(DIR)).unwrap(), 36 << 10);
}

/// What a crash leaves of room that was not synced, or of writes into room that was.
#[test]
fn a_crash_takes_room_and_what_was_written_into_it_like_any_write() {
    let (mut lens, mut first_lost, mut second_alone) = (BTreeSet::new(), 0, 0);
    for seed in 0..300 {
        let disk = sound(seed);
        let mut handle = disk.immediate();
        let file = make(&mut handle, "a", &[1; 512]);
        let data = |byte| Bytes::from(vec![byte; 512]);
        let op = DiskOp::Write { file, offset: 512, data: data(2).into(), room: 8192, sync: seed % 2 == 0 };
        run(&mut handle, op).unwrap();
        run(&mut handle, write(file, 1024, &data(3), false)).unwrap();
        disk.power_cut();
        let found = contents(&disk, "a").unwrap();
        assert!(found.starts_with(&[1; 512]) && found.len() <= 8192);
        assert!(found.iter().skip(1536).all(|byte| *byte == 0));
        let is_whole = |block: usize| found.get(block * 512..(block + 1) * 512).is_some_and(|b| b[0] > 0);
        if seed % 2 == 0 {
            assert!(found.len() == 8192 && is_whole(1), "it was synced");
        } else {
            lens.insert(found.len());
            first_lost += u32::from(!is_whole(1));
            second_alone += u32::from(!is_whole(1) && is_whole(2));
        }
    }
    assert!(lens.first() < Some(&1536) && lens.contains(&8192) && lens.len() > 10, "{lens:?}");
    assert!(first_lost > 20 && second_alone > 5, "{first_lost} lost, {second_alone} out of order");
}
