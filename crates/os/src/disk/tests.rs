//! The real disk keeps the contracts of `base::disk`, whichever way its operations are run.
//!
//! A thread is held up at will, without sleeping, by a FIFO: opening one to read or to sync waits until somebody
//! opens its other end.

use super::*;
use base::DiskErrorKind;
use base::disk::{self, DiskAnswer, OpenMode, run};
use bytes::Bytes;
use rustix::fs::{CWD, FileType, Mode as FileMode, mknodat};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn no_wake() -> Wake {
    Arc::new(|| {})
}

fn waker() -> (Wake, Receiver<()>) {
    let (sender, woken) = channel();
    (Arc::new(move || sender.send(()).expect("the test listens")), woken)
}

/// Both kinds of handle, each with a folder of its own.
fn both(test: impl Fn(&mut OsDisk, &Path)) {
    for mut disk in [OsDisk::blocking(), OsDisk::threaded(2, no_wake()).unwrap()] {
        let folder = folder();
        test(&mut disk, folder.path());
    }
}

fn create(disk: &mut OsDisk, path: &Path, data: &'static [u8]) -> FileId {
    let (file, len) = disk::open(disk, path, OpenMode::Create).unwrap();
    assert_eq!(len, 0);
    run(disk, write(file, 0, data)).unwrap();
    file
}

fn write(file: FileId, offset: u64, data: &'static [u8]) -> DiskOp {
    DiskOp::Write { file, offset, data: data.into(), room: 0, sync: true }
}

fn failure(disk: &mut OsDisk, op: DiskOp) -> DiskErrorKind {
    run(disk, op).expect_err("the operation was to fail").kind
}

fn fifo(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    mknodat(CWD, &path, FileType::Fifo, FileMode::RUSR | FileMode::WUSR, 0).unwrap();
    path
}

fn poll(disk: &mut OsDisk, count: usize) -> Vec<Completion> {
    let mut completions = Vec::new();
    while completions.len() < count {
        disk.wait();
        disk.poll(&mut completions);
    }
    completions
}

#[test]
fn what_is_written_is_read_up_to_the_end_of_the_file() {
    both(|disk, folder| {
        let path = folder.join("f");
        let file = create(disk, &path, b"hello world");
        run(disk, write(file, 6, b"there, world")).unwrap();
        assert_eq!(disk::read(disk, file, 0, 1000).unwrap(), "hello there, world");
        assert_eq!(disk::read(disk, file, 6, 5).unwrap(), "there");
        assert_eq!(disk::read(disk, file, 100, 5).unwrap(), "");
        assert_eq!(disk::read(disk, file, 0, 0).unwrap(), "");
        run(disk, DiskOp::Truncate { file, len: 5 }).unwrap();
        run(disk, DiskOp::Sync { file }).unwrap();
        assert_eq!(disk::read(disk, file, 0, 1000).unwrap(), "hello");
        run(disk, DiskOp::Close { file }).unwrap();
        let (again, len) = disk::open(disk, &path, OpenMode::Read).unwrap();
        assert_ne!(again, file, "ids are not used again");
        assert_eq!(len, 5);
        assert_eq!(failure(disk, write(again, 0, b"x")), DiskErrorKind::Io, "it was opened to read");
    });
}

/// Where the file system cannot do it the file is as long as what was written; the one of the tests can.
#[test]
fn room_is_made_ahead_and_reads_as_zeros() {
    both(|disk, folder| {
        let path = folder.join("f");
        let file = create(disk, &path, b"hello");
        let with_room = |offset, room| {
            let data = Bytes::from_static(b" world");
            DiskOp::Write { file, offset, data: data.into(), room, sync: true }
        };
        run(disk, with_room(5, 1 << 20)).unwrap();
        let found = disk::read(disk, file, 0, 2 << 20).unwrap();
        assert_eq!((&found[..11], found.len()), (&b"hello world"[..], 1 << 20));
        assert!(found[11..].iter().all(|byte| *byte == 0));
        run(disk, with_room(11, 1 << 19)).unwrap();
        run(disk, with_room(17, 3)).unwrap();
        let found = disk::read(disk, file, 0, 2 << 20).unwrap();
        assert_eq!((&found[..23], found.len()), (&b"hello world world world"[..], 1 << 20), "it has as much");
        assert!(found[23..].iter().all(|byte| *byte == 0));
        run(disk, with_room(23, 1 << 60)).unwrap();
        assert_eq!(&disk::read(disk, file, 23, 6).unwrap()[..], b" world", "there is not so much room");
        run(disk, DiskOp::Truncate { file, len: 29 }).unwrap();
        assert_eq!(disk::read(disk, file, 0, 2 << 20).unwrap().len(), 29);
    });
}

#[test]
fn names_are_listed_renamed_and_removed() {
    both(|disk, folder| {
        let deep = folder.join("a/b");
        run(disk, DiskOp::CreateDir { path: deep.clone() }).unwrap();
        run(disk, DiskOp::CreateDir { path: deep.clone() }).unwrap();
        for name in ["2", "10", "1", "z"] {
            create(disk, &deep.join(name), b"");
        }
        run(disk, DiskOp::CreateDir { path: deep.join("no-file") }).unwrap();
        assert_eq!(disk::list(disk, &deep).unwrap(), ["1", "10", "2", "z"]);
        run(disk, DiskOp::Rename { from: deep.join("z"), to: deep.join("1") }).unwrap();
        run(disk, DiskOp::Remove { path: deep.join("10") }).unwrap();
        run(disk, DiskOp::SyncDir { path: deep.clone() }).unwrap();
        assert_eq!(disk::list(disk, &deep).unwrap(), ["1", "2"]);
        disk::replace_file(disk, &deep.join("2"), Bytes::from_static(b"new")).unwrap();
        assert_eq!(std::fs::read(deep.join("2")).unwrap(), b"new");
        assert_eq!(disk::list(disk, &deep).unwrap(), ["1", "2"]);
    });
}

#[test]
fn failures_have_their_kind_and_name_their_file() {
    both(|disk, folder| {
        let (here, gone) = (folder.join("here"), folder.join("gone"));
        let file = create(disk, &here, b"x");
        let kinds = [
            (DiskOp::Open { path: gone.clone(), mode: OpenMode::Read }, DiskErrorKind::NotFound),
            (DiskOp::Open { path: gone.clone(), mode: OpenMode::Write }, DiskErrorKind::NotFound),
            (DiskOp::Open { path: here.clone(), mode: OpenMode::Create }, DiskErrorKind::Exists),
            (DiskOp::Remove { path: gone.clone() }, DiskErrorKind::NotFound),
            (DiskOp::Rename { from: gone.clone(), to: here.clone() }, DiskErrorKind::NotFound),
            (DiskOp::List { path: gone.clone() }, DiskErrorKind::NotFound),
            (DiskOp::SyncDir { path: gone.clone() }, DiskErrorKind::NotFound),
            (DiskOp::CreateDir { path: here.join("below-a-file") }, DiskErrorKind::Io),
            (DiskOp::Read { file: FileId(99), offset: 0, len: 1 }, DiskErrorKind::Io),
            (DiskOp::Read { file, offset: u64::MAX, len: 1 }, DiskErrorKind::Io),
            (DiskOp::Read { file, offset: 0, len: usize::MAX }, DiskErrorKind::Io),
        ];
        for (op, kind) in kinds {
            assert_eq!(failure(disk, op.clone()), kind, "{op:?}");
        }
        let error = disk::open(disk, &gone, OpenMode::Read).unwrap_err();
        assert_eq!(error.path, gone.display().to_string());
        run(disk, DiskOp::Close { file }).unwrap();
        assert_eq!(failure(disk, DiskOp::Close { file }), DiskErrorKind::Io);
        assert_eq!(disk.try_read(file, 0, &mut [0]), None);
    });
}

#[test]
fn a_full_device_is_told_apart() {
    let mut disk = OsDisk::blocking();
    let (full, _) = disk::open(&mut disk, Path::new("/dev/full"), OpenMode::Write).unwrap();
    assert_eq!(failure(&mut disk, write(full, 0, b"x")), DiskErrorKind::NoSpace);
    assert_eq!(disk.counters().snapshot().writes, 0);
}

#[test]
fn a_lock_keeps_other_disks_out_until_its_disk_is_dropped() {
    let folder = folder();
    let lock = DiskOp::Lock { path: folder.path().join("LOCK") };
    let mut mine = OsDisk::blocking();
    let mut theirs = OsDisk::threaded(1, no_wake()).unwrap();
    run(&mut mine, lock.clone()).unwrap();
    assert_eq!(failure(&mut theirs, lock.clone()), DiskErrorKind::Locked);
    let other_handle = mine.blocking_handle();
    drop(mine);
    assert_eq!(failure(&mut theirs, lock.clone()), DiskErrorKind::Locked, "one handle is left");
    drop(other_handle);
    run(&mut theirs, lock).unwrap();
}

#[test]
fn handles_share_files_and_a_closed_file_is_closed_for_all() {
    let folder = folder();
    let mut one = OsDisk::threaded(1, no_wake()).unwrap();
    let mut other = one.blocking_handle();
    let file = create(&mut one, &folder.path().join("f"), b"shared");
    assert_eq!(disk::read(&mut other, file, 0, 9).unwrap(), "shared");
    let watched = Arc::downgrade(&one.files.get(file).unwrap());
    run(&mut one, DiskOp::Close { file }).unwrap();
    // The thread that ran the close may hold the file an instant longer than its completion; dropping joins it.
    drop(one);
    assert_eq!(watched.strong_count(), 0, "handles that have seen it do not keep it open");
    assert_eq!(failure(&mut other, DiskOp::Sync { file }), DiskErrorKind::Io);
}

#[test]
fn a_handle_forgets_closed_files() {
    let folder = folder();
    let mut disk = OsDisk::blocking();
    for number in 0..4 * SEEN_MIN {
        let file = create(&mut disk, &folder.path().join(number.to_string()), b"");
        run(&mut disk, DiskOp::Close { file }).unwrap();
    }
    assert!(disk.seen.len() <= SEEN_MIN);
}

#[test]
fn a_try_to_read_gives_what_is_there_or_nothing() {
    let folder = folder();
    let mut disk = OsDisk::blocking();
    let file = create(&mut disk, &folder.path().join("f"), &[7; 10_000]);
    assert_eq!(disk::read(&mut disk, file, 0, 10_000).unwrap().len(), 10_000);
    let before = disk.counters().snapshot();
    let mut buf = [0; 8192];
    for (offset, there) in [(0, 8192), (5000, 5000), (9_999, 1), (10_000, 0), (1 << 40, 0)] {
        buf.fill(0);
        let came = disk.try_read(file, offset, &mut buf).unwrap_or(0);
        assert!(came <= there, "{came} bytes at {offset}");
        assert!(buf[..came].iter().all(|&byte| byte == 7) && buf[came..].iter().all(|&byte| byte == 0));
    }
    let after = disk.counters().snapshot();
    assert_eq!(after.tries_full + after.tries_short + after.tries_empty, 5);
    assert!(after.tries_full <= 1 && after.tries_short <= 3 && after.tries_empty >= 2);
    assert_eq!(after.reads, before.reads, "tries are counted apart");
}

#[test]
fn a_file_system_that_cannot_try_is_not_asked_again() {
    let folder = folder();
    let mut disk = OsDisk::blocking();
    let file = create(&mut disk, &folder.path().join("f"), b"data");
    disk.files.forbid_tries();
    assert_eq!(disk.try_read(file, 0, &mut [0; 4]), None);
    assert_eq!(disk::read(&mut disk, file, 0, 4).unwrap(), "data");
    let figures = disk.counters().snapshot();
    assert_eq!((figures.tries_empty, figures.reads, figures.reads_with_data()), (1, 1, 1));
}

#[test]
fn what_is_announced_is_read_as_ever() {
    both(|disk, folder| {
        let file = create(disk, &folder.join("f"), &[7; 300_000]);
        // Of a file that is shorter, of one that is closed, and of no bytes at all.
        for (offset, len) in [(0, 300_000), (299_999, 1 << 20), (1 << 40, 10), (u64::MAX, usize::MAX), (5, 0)]
        {
            disk.will_read(file, offset, len);
        }
        assert_eq!(disk::read(disk, file, 100, 300_000).unwrap(), vec![7; 299_900]);
        run(disk, DiskOp::Close { file }).unwrap();
        disk.will_read(file, 0, 10);
    });
}

#[test]
fn operations_are_counted() {
    both(|disk, folder| {
        let file = create(disk, &folder.join("f"), b"12345");
        let data = Bytes::from_static(b"67");
        run(disk, DiskOp::Write { file, offset: 5, data: data.into(), room: 0, sync: false }).unwrap();
        run(disk, DiskOp::Sync { file }).unwrap();
        disk::read(disk, file, 0, 100).unwrap();
        disk::read(disk, file, 7, 1).unwrap();
        let expected = DiskFigures {
            reads: 1,
            reads_empty: 1,
            read_bytes: 7,
            writes: 2,
            write_bytes: 7,
            syncs: 2,
            ..DiskFigures::default()
        };
        assert_eq!(disk.counters().snapshot(), expected);
    });
}

#[test]
fn reads_do_not_wait_for_the_writer() {
    let folder = folder();
    let mut disk = OsDisk::threaded(1, no_wake()).unwrap();
    let file = create(&mut disk, &folder.path().join("f"), b"data");
    let gate = fifo(folder.path(), "gate");
    disk.submit(DiskOp::SyncDir { path: gate.clone() }, Token(1));
    disk.submit(write(file, 0, b"atad"), Token(2));
    disk.submit(DiskOp::Read { file, offset: 0, len: 4 }, Token(3));
    let first = poll(&mut disk, 1);
    assert_eq!(first[0].token, Token(3), "the writer is still held up");
    assert_eq!(first[0].result, Ok(DiskAnswer::Data(Bytes::from_static(b"data"))));
    File::options().write(true).open(gate).unwrap();
    let rest = poll(&mut disk, 2);
    assert_eq!((rest[0].token, rest[1].token), (Token(1), Token(2)), "the writer keeps its order");
    assert_eq!(rest[1].result, Ok(DiskAnswer::Done));
}

#[test]
fn a_read_under_way_survives_the_close_of_its_file() {
    let folder = folder();
    let mut disk = OsDisk::threaded(1, no_wake()).unwrap();
    let file = create(&mut disk, &folder.path().join("f"), b"data");
    let gate = fifo(folder.path(), "gate");
    disk.submit(DiskOp::Open { path: gate.clone(), mode: OpenMode::Read }, Token(1));
    disk.submit(DiskOp::Read { file, offset: 0, len: 4 }, Token(2));
    disk.submit(DiskOp::Close { file }, Token(3));
    assert_eq!(poll(&mut disk, 1)[0].token, Token(3), "the reader is still held up");
    File::options().write(true).open(gate).unwrap();
    let rest = poll(&mut disk, 2);
    assert_eq!(rest[1].result, Ok(DiskAnswer::Data(Bytes::from_static(b"data"))));
}

#[test]
fn the_owner_is_woken_whenever_there_is_something_to_poll() {
    let folder = folder();
    let (wake, woken) = waker();
    let mut disk = OsDisk::threaded(1, wake).unwrap();
    for round in 0..100 {
        disk.submit(DiskOp::List { path: folder.path().to_path_buf() }, Token(round));
        disk.submit(DiskOp::SyncDir { path: folder.path().to_path_buf() }, Token(round));
        let mut completions = Vec::new();
        while completions.len() < 2 {
            woken.recv().unwrap();
            disk.poll(&mut completions);
        }
    }
}

#[test]
fn the_owner_is_woken_once_for_all_that_it_has_not_polled() {
    let folder = folder();
    let (wake, woken) = waker();
    let mut disk = OsDisk::threaded(1, wake).unwrap();
    for token in 0..10 {
        disk.submit(DiskOp::List { path: folder.path().to_path_buf() }, Token(token));
    }
    drop(disk);
    assert_eq!(woken.try_iter().count(), 1);
}

#[test]
fn a_full_queue_refuses_by_name_and_a_dropped_handle_finishes_what_it_took() {
    let folder = folder();
    let mut disk = OsDisk::threaded(1, no_wake()).unwrap();
    let file = create(&mut disk, &folder.path().join("f"), b"");
    let gate = fifo(folder.path(), "gate");
    disk.submit(DiskOp::SyncDir { path: gate.clone() }, Token(0));
    let data = Bytes::from_static(b"x");
    let before = disk.counters().snapshot().writes;
    for offset in 0..OPS_MAX as u64 + 10 {
        disk.submit(
            DiskOp::Write { file, offset, data: data.clone().into(), room: 0, sync: false },
            Token(offset + 1),
        );
    }
    let first = poll(&mut disk, 1);
    let error = first[0].result.clone().expect_err("the queue was full");
    assert_eq!(error.kind, DiskErrorKind::Io);
    assert!(error.message.contains("OPS_MAX"), "{error}");
    let counters = disk.counters();
    let opener = std::thread::spawn(|| File::options().write(true).open(gate).map(drop));
    drop(disk);
    opener.join().unwrap().unwrap();
    // The writer took the first operation from the queue either before it was full or after.
    let written = counters.snapshot().writes - before;
    assert!(written == OPS_MAX as u64 || written == OPS_MAX as u64 - 1, "{written} writes");
}

/// A few handles serve many files, and whoever uses one again gets what it was.
#[test]
fn few_handles_serve_many_files() {
    both(|disk, folder| {
        disk.keep_open(4);
        let files: Vec<_> = (0..40u8)
            .map(|n| {
                let (file, _) = disk::open(disk, &folder.join(format!("{n}")), OpenMode::Create).unwrap();
                run(disk, DiskOp::Write { file, offset: 0, data: vec![n; 100].into(), room: 0, sync: true })
                    .unwrap();
                file
            })
            .collect();
        assert!(disk.open_files() <= 5, "{}", disk.open_files());
        for (n, &file) in (0..).zip(&files) {
            assert_eq!(disk::read(disk, file, 0, 200).unwrap(), [n; 100][..]);
            assert!(disk.open_files() <= 5);
        }
        assert!(disk.counters().snapshot().reopened >= 30);
        // One without a handle is not opened by a try, which must not wait; what is read is at hand for the next.
        let mut bytes = [0; 100];
        assert_eq!(disk.try_read(files[0], 0, &mut bytes), None);
        // It is written through its new handle, closed without one, and not there then.
        run(disk, write(files[0], 0, b"new")).unwrap();
        assert_eq!(disk::read(disk, files[0], 0, 4).unwrap(), b"new\0"[..]);
        for file in files {
            run(disk, DiskOp::Close { file }).unwrap();
            assert_eq!(failure(disk, DiskOp::Close { file }), DiskErrorKind::Io);
        }
        assert_eq!(disk.open_files(), 0);
    });
}

#[test]
fn what_is_not_durable_keeps_its_handle() {
    both(|disk, folder| {
        disk.keep_open(2);
        let files: Vec<_> = (0..20)
            .map(|n| {
                let (file, _) = disk::open(disk, &folder.join(format!("{n}")), OpenMode::Create).unwrap();
                let data = Bytes::from_static(b"not synced");
                run(disk, DiskOp::Write { file, offset: 0, data: data.into(), room: 0, sync: false })
                    .unwrap();
                file
            })
            .collect();
        assert_eq!(disk.open_files(), 20);
        for &file in &files {
            run(disk, DiskOp::Sync { file }).unwrap();
        }
        create(disk, &folder.join("one more"), b"");
        assert!(disk.open_files() <= 3, "{}", disk.open_files());
    });
}

/// A file is the one that was opened, whatever becomes of its name.
#[test]
fn a_file_without_a_handle_stays_itself() {
    both(|disk, folder| {
        disk.keep_open(1);
        let names = ["removed", "renamed", "taken over", "replaced behind our back", "another"];
        let files = names.map(|name| create(disk, &folder.join(name), b"itself"));
        run(disk, DiskOp::Remove { path: folder.join("removed") }).unwrap();
        run(disk, DiskOp::Rename { from: folder.join("renamed"), to: folder.join("taken over") }).unwrap();
        std::fs::write(folder.join("new"), "other").unwrap();
        std::fs::rename(folder.join("new"), folder.join("replaced behind our back")).unwrap();
        for n in [0, 1, 2] {
            create(disk, &folder.join(format!("crowd {n}")), b"");
            assert_eq!(disk::read(disk, files[n], 0, 6).unwrap(), b"itself"[..], "{}", names[n]);
        }
        assert_eq!(failure(disk, DiskOp::Read { file: files[3], offset: 0, len: 6 }), DiskErrorKind::Io);
    });
}
