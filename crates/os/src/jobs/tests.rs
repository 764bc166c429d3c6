//! Jobs take turns, use the disk's files, and wake the shard at their end.

use super::*;
use base::Disk;
use base::disk::{self, DiskOp, OpenMode};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Reports each of its slices by name; the first waits for `gate`, if there is one.
struct Reporter {
    name: &'static str,
    slices: u32,
    gate: Option<Receiver<()>>,
    reports: Sender<&'static str>,
}

/// A job of one slice that goes first.
struct Urgent(Reporter);

impl Job for Urgent {
    fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
        self.0.slice(disk)
    }

    fn is_urgent(&self) -> bool {
        true
    }
}

impl Job for Reporter {
    fn slice(&mut self, _disk: &mut dyn Disk) -> Progress {
        if let Some(gate) = self.gate.take() {
            gate.recv().expect("the test opens the gate");
        }
        self.reports.send(self.name).expect("the test listens");
        self.slices -= 1;
        if self.slices == 0 { Progress::Done } else { Progress::More }
    }
}

fn waker() -> (Wake, Receiver<()>) {
    let (sender, woken) = channel();
    (Arc::new(move || sender.send(()).expect("the test listens")), woken)
}

#[test]
fn jobs_take_turns_slice_by_slice_and_wake_at_their_end() {
    let (wake, woken) = waker();
    let threads = JobThreads::new(1, &OsDisk::blocking(), wake).unwrap();
    let (reports, heard) = channel();
    let (open_gate, gate) = channel();
    for (name, slices, gate) in [("merge", 4, Some(gate)), ("flush", 2, None), ("fold", 1, None)] {
        threads.spawn(Box::new(Reporter { name, slices, gate, reports: reports.clone() }));
    }
    open_gate.send(()).unwrap();
    let order: Vec<&str> = (0..7).map(|_| heard.recv().unwrap()).collect();
    assert_eq!(order, ["merge", "flush", "fold", "merge", "flush", "merge", "merge"]);
    for _ in 0..3 {
        woken.recv().unwrap();
    }
    drop(threads);
    assert!(woken.try_recv().is_err(), "one wake-up a job");
}

#[test]
fn what_writes_wait_for_goes_before_the_others() {
    let threads = JobThreads::new(1, &OsDisk::blocking(), Arc::new(|| {})).unwrap();
    let (reports, heard) = channel();
    let (open_gate, gate) = channel();
    let job = |name, slices, gate| Reporter { name, slices, gate, reports: reports.clone() };
    threads.spawn(Box::new(job("fold", 1, Some(gate))));
    threads.spawn(Box::new(job("merge", 2, None)));
    threads.spawn(Box::new(Urgent(job("segment", 1, None))));
    threads.spawn(Box::new(job("flush", 1, None)));
    threads.spawn(Box::new(Urgent(job("sync", 1, None))));
    open_gate.send(()).unwrap();
    let mut order: Vec<&str> = (0..6).map(|_| heard.recv().unwrap()).collect();
    // The thread has begun it before these came or has not.
    order.retain(|name| *name != "fold");
    assert_eq!(order, ["segment", "sync", "merge", "flush", "merge"], "as they came among themselves");
}

#[test]
fn a_job_shares_the_files_of_its_disk() {
    struct Reader(disk::FileId, Sender<bytes::Bytes>);
    impl Job for Reader {
        fn slice(&mut self, disk: &mut dyn Disk) -> Progress {
            self.1
                .send(disk::read(disk, self.0, 0, 64).expect("the file is open"))
                .expect("the test listens");
            Progress::Done
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut disk = OsDisk::blocking();
    let (file, _) = disk::open(&mut disk, &folder.path().join("f"), OpenMode::Create).unwrap();
    let data = bytes::Bytes::from_static(b"shared");
    disk::run(&mut disk, DiskOp::Write { file, offset: 0, data: data.clone().into(), room: 0, sync: false })
        .unwrap();
    let (sender, read) = channel();
    let threads = JobThreads::new(2, &disk, Arc::new(|| {})).unwrap();
    threads.spawn(Box::new(Reader(file, sender)));
    assert_eq!(read.recv().unwrap(), data);
}

#[test]
fn dropping_ends_after_the_slice_under_way_and_drops_the_other_jobs() {
    let (wake, woken) = waker();
    let threads = JobThreads::new(1, &OsDisk::blocking(), wake).unwrap();
    let (reports, heard) = channel();
    let endless = Reporter { name: "endless", slices: u32::MAX, gate: None, reports };
    threads.spawn(Box::new(endless));
    heard.recv().unwrap();
    drop(threads);
    while heard.try_recv().is_ok() {}
    assert_eq!(heard.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected), "the job is gone");
    assert!(woken.try_recv().is_err(), "it did not come to its end");
}

#[test]
fn what_ends_while_nobody_waits_is_remembered() {
    let (threads, ended) = JobThreads::awaited(1, &OsDisk::blocking()).unwrap();
    let (reports, heard) = channel();
    threads.spawn(Box::new(Reporter { name: "flush", slices: 1, gate: None, reports: reports.clone() }));
    heard.recv().unwrap();
    // Longer than a test may take: it returns because a job has ended.
    ended.wait(Duration::from_secs(3600));
    let (open_gate, gate) = channel();
    threads.spawn(Box::new(Reporter { name: "merge", slices: 1, gate: Some(gate), reports }));
    // Nothing ends, and nothing is remembered any more: it returns by itself.
    ended.wait(Duration::ZERO);
    assert!(heard.try_recv().is_err());
    open_gate.send(()).unwrap();
    ended.wait(Duration::from_secs(3600));
    assert_eq!(heard.try_recv(), Ok("merge"));
}
