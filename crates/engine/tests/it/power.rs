//! Power cuts of a real file system, and one that is mounted for reading only: ext4 on a loop device.
//!
//! A cut is ext4's own shutdown (`EXT4_IOC_SHUTDOWN`, its journal not flushed): what was not synced is gone, and every
//! later call fails, as when a disk dies under a program that goes on. It comes at any moment of a write, while the
//! store flushes, merges and compacts. After it the image is mounted again, and everything that was acknowledged before
//! it must be there. The program outlives such a cut, as it would not a real one, and a sync that was under way may
//! then say that all went well (its transaction is neither running nor being committed any more): what was acknowledged
//! after the cut had begun may be there or not, one batch after the other. So may all where nobody waits for syncs.
//!
//! That this can find something is shown by the same loop on a disk that syncs nothing and says that it has: it must
//! lose acknowledged writes. The simulator's disk does the same and more, many thousand times; this is the real thing.
//!
//! Needs root, loop devices, e2fsprogs and python3 (for the one call that std does not have), so it is run by command:
//!
//! ```text
//! cargo test -p engine --test it power:: -- --ignored --test-threads 1
//! ```
//!
//! `ANNULET_POWER_CUTS=200` for the long run, `ANNULET_POWER_SEED` repeats the choices of one.
#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "it is about a real file system")]

use base::Rng;
use base::disk::{Completion, Disk, DiskAnswer, DiskErrorKind, DiskOp, FileId, Token};
use base::rng::SplitMix64;
use engine::check::check_store;
use engine::{CompactionSchedule, Durability, Embedded, Error, Jobs, Machine, Options, Write};
use os::{JobThreads, OsClock, OsDisk, OsRng};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const CUTS_DEFAULT: u64 = 20;

/// Cuts of a disk that lies, at most: one of the first few loses something.
const LYING_CUTS_MAX: u64 = 20;

const IMAGE_BYTES: u64 = 128 << 20;

/// Few keys, so that overwrites and deletions are many.
const KEYS: u64 = 400;

/// A cut is set off after so many writes of its round, at most; it then takes the time that it takes.
const WRITES_MAX: u64 = 150;

/// By then it has come: a round ends.
const WRITES_LIMIT: u64 = 1_000_000;

/// Shuts the file system of its argument down when a line comes, and tells when it began; the number is that of
/// `EXT4_IOC_SHUTDOWN`, and 2 says that the journal is not to be flushed.
const SHUT_DOWN: &str = "import fcntl, os, struct, sys, time
folder = os.open(sys.argv[1], os.O_RDONLY)
print('ready', flush=True)
sys.stdin.readline()
begun = time.time_ns()
fcntl.ioctl(folder, 0x8004587D, struct.pack('I', 2))
print(begun, flush=True)";

/// A file with an ext4 in it, and where it is mounted.
struct Image {
    folder: tempfile::TempDir,
    mounted: bool,
}

impl Image {
    fn new() -> Image {
        let folder = tempfile::tempdir().unwrap();
        let image = Image { folder, mounted: false };
        std::fs::File::create(image.file()).unwrap().set_len(IMAGE_BYTES).unwrap();
        std::fs::create_dir(image.mount_point()).unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image.file()));
        image
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn mount_point(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    fn store(&self) -> PathBuf {
        self.mount_point().join("store")
    }

    fn mount(&mut self, options: &str) {
        let options = format!("loop,{options}");
        run(Command::new("mount").args(["-o", &options]).arg(self.file()).arg(self.mount_point()));
        self.mounted = true;
    }

    fn unmount(&mut self) {
        run(Command::new("umount").arg(self.mount_point()));
        self.mounted = false;
    }

    /// A power cut that waits for its moment.
    fn cut(&self) -> Cut {
        let mut command = Command::new("python3");
        command.args(["-c", SHUT_DOWN]).arg(self.mount_point());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut cut = Cut { process, output };
        assert_eq!(cut.line(), "ready\n");
        cut
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.mounted {
            // A failed test may have files open: the rest goes with the process.
            Command::new("umount").arg("-l").arg(self.mount_point()).status().ok();
        }
    }
}

struct Cut {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Cut {
    /// Now, or a little later: what goes on meanwhile goes on.
    fn set_off(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Until it is done; tells when it began.
    fn wait(mut self) -> SystemTime {
        let begun = self.line();
        assert!(self.process.wait().unwrap().success());
        SystemTime::UNIX_EPOCH + Duration::from_nanos(begun.trim().parse().unwrap())
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A disk that says that it has synced, and has not.
struct Lying {
    disk: OsDisk,
    said: Vec<Completion>,
}

impl Disk for Lying {
    fn submit(&mut self, op: DiskOp, token: Token) {
        match op {
            DiskOp::Sync { .. } | DiskOp::SyncDir { .. } => {
                self.said.push(Completion { token, result: Ok(DiskAnswer::Done) });
            }
            DiskOp::Write { file, offset, data, room, sync: _ } => {
                self.disk.submit(DiskOp::Write { file, offset, data, room, sync: false }, token);
            }
            other => self.disk.submit(other, token),
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.said);
        self.disk.poll(completions);
    }

    fn wait(&mut self) {
        if self.said.is_empty() {
            self.disk.wait();
        }
    }

    fn try_read(&mut self, file: FileId, offset: u64, buf: &mut [u8]) -> Option<usize> {
        self.disk.try_read(file, offset, buf)
    }
}

fn options(durability: Durability) -> Options {
    Options {
        durability,
        memtable_bytes_max: 16 << 10,
        segment_bytes_target: 64 << 10,
        table_bytes_target: 16 << 10,
        level0_tables_max: 2,
        runs_max: 2,
        leveled_bytes_target: 64 << 10,
        compaction: CompactionSchedule::Continuous,
        reserve_bytes: 0,
        ..Options::default()
    }
}

fn open(dir: &Path, lying: bool) -> Result<Embedded, Error> {
    let disks = OsDisk::blocking().blocking_handles();
    let machine = if lying {
        Machine::new(move || Lying { disk: disks(), said: Vec::new() }, OsClock::new(), OsRng::new())
    } else {
        Machine::new(disks, OsClock::new(), OsRng::new())
    };
    Embedded::open(dir, options(Durability::Sync), machine)
}

/// A store that nobody waits for, with a thread for its jobs.
fn open_unsynced(dir: &Path, durability: Durability) -> Embedded {
    let disks = Arc::new(OsDisk::blocking().blocking_handles());
    let of_jobs = Arc::clone(&disks);
    let machine = Machine::new(move || disks(), OsClock::new(), OsRng::new()).with_jobs(move || {
        let (threads, ended) = JobThreads::awaited(1, &of_jobs())?;
        Ok(Jobs { spawn: Arc::new(threads), ended: Box::new(ended) })
    });
    Embedded::open(dir, options(durability), machine).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:04}").into_bytes()
}

/// Of 20 to 4,000 bytes, in the ledger or in the journal; it tells key and version.
fn value(number: u64, version: u64) -> Vec<u8> {
    let mut rng = SplitMix64::new(number << 32 ^ version);
    let len = 20 << rng.below(8);
    let text = format!("{number} {version} ").into_bytes();
    text.iter().copied().cycle().take(len as usize).collect()
}

/// What a key holds: a version, or nothing.
type State = Option<u64>;

type Batch = Vec<(u64, State)>;

/// What must be there, by key; and what came after, batch by batch.
#[derive(Default)]
struct Known {
    durable: BTreeMap<u64, State>,
    /// Batches since the start, with the time of their acknowledgement; the last one had none.
    recent: Vec<(Option<SystemTime>, Batch)>,
    versions: u64,
}

impl Known {
    /// Writes until the cut has come. The error that tells of it is the disk's, or what a store says after one.
    fn write_until_cut(&mut self, store: &mut Embedded, cut: &mut Cut, rng: &mut SplitMix64) {
        let set_off_at = rng.below(WRITES_MAX);
        for count in 0..WRITES_LIMIT {
            if count == set_off_at {
                cut.set_off();
            }
            let batch: Batch = (0..=rng.below(4)).map(|_| self.draw(rng)).collect();
            let written = apply(store, &batch);
            self.recent.push((written.is_ok().then(SystemTime::now), batch));
            match written {
                Ok(()) => {}
                Err(Error::Disk(_) | Error::Fenced(_)) if count >= set_off_at => return,
                Err(error) => panic!("write {count}, the cut after {set_off_at}: {error}"),
            }
        }
        panic!("the cut did not come");
    }

    fn draw(&mut self, rng: &mut SplitMix64) -> (u64, State) {
        self.versions += 1;
        (rng.below(KEYS), (!rng.chance(1, 5)).then_some(self.versions))
    }

    /// What was acknowledged before the cut began must be there; tells how many batches were.
    fn cut_at(&mut self, begun: SystemTime) -> usize {
        let sure = self.recent.iter().take_while(|(at, _)| at.is_some_and(|at| at < begun)).count();
        self.recent.drain(..sure).for_each(|(_, batch)| self.durable.extend(batch));
        sure
    }

    /// How many keys have not what they must. What they have is what is known now. Of what is not certain to be there,
    /// each batch is whole or not there, and none without those before it.
    fn lost(&mut self, store: &mut Embedded) -> usize {
        let found: BTreeMap<u64, State> = (0..KEYS).map(|number| (number, read(store, number))).collect();
        let differing = |expected: &BTreeMap<u64, State>| {
            let of = |number: &u64| expected.get(number).copied().flatten();
            found.iter().filter(|(number, state)| of(number) != **state).count()
        };
        let mut expected = std::mem::take(&mut self.durable);
        let mut lost = differing(&expected);
        for (_, batch) in self.recent.drain(..) {
            expected.extend(batch);
            lost = lost.min(differing(&expected));
        }
        self.durable = found;
        lost
    }
}

fn apply(store: &mut Embedded, batch: &Batch) -> Result<(), Error> {
    let parts: Vec<(Vec<u8>, Option<Vec<u8>>)> = batch
        .iter()
        .map(|(number, state)| (key(*number), state.map(|version| value(*number, version))))
        .collect();
    let values: Vec<[&[u8]; 1]> =
        parts.iter().map(|(_, value)| [value.as_deref().unwrap_or_default()]).collect();
    let writes: Vec<Write<'_>> = parts
        .iter()
        .zip(&values)
        .map(|((key, is_put), value)| match is_put {
            Some(_) => Write::Put { key, head: b"head", value },
            None => Write::Delete { key },
        })
        .collect();
    store.write(&writes).map(|_| ())
}

fn read(store: &mut Embedded, number: u64) -> State {
    let found = store.get(&key(number)).unwrap()?.value.unwrap();
    let text = String::from_utf8_lossy(&found).into_owned();
    let version = text.split(' ').nth(1).and_then(|version| version.parse().ok()).unwrap();
    assert_eq!(*found, value(number, version), "key {number} has half a value, or another's");
    Some(version)
}

fn check(dir: &Path) {
    let mut findings = Vec::new();
    check_store(&mut OsDisk::blocking(), dir, &mut |finding| findings.push(format!("{finding:?}"))).unwrap();
    assert_eq!(findings, Vec::<String>::new());
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

fn seed() -> u64 {
    let seed = number("ANNULET_POWER_SEED", OsRng::new().next_u64());
    println!("seed {seed}");
    seed
}

#[test]
#[ignore = "needs root and a loop device"]
fn what_was_acknowledged_survives_a_power_cut() {
    let (mut image, mut known, mut rng) = (Image::new(), Known::default(), SplitMix64::new(seed()));
    let cuts = number("ANNULET_POWER_CUTS", CUTS_DEFAULT);
    let (mut torn, mut flushes, mut sure) = (0, 0, 0);
    for round in 0..cuts {
        image.mount("rw");
        let mut store = open(&image.store(), false).unwrap();
        torn += store.report().torn.len();
        assert_eq!(known.lost(&mut store), 0, "after cut {round}");
        let mut cut = image.cut();
        known.write_until_cut(&mut store, &mut cut, &mut rng);
        sure += known.cut_at(cut.wait());
        flushes += store.store().stats().counters.flushes;
        drop(store);
        image.unmount();
    }
    image.mount("rw");
    let mut store = open(&image.store(), false).unwrap();
    assert_eq!(known.lost(&mut store), 0, "after the last cut");
    store.close().unwrap();
    check(&image.store());
    image.unmount();
    println!("{cuts} cuts, {sure} batches acknowledged before them, {torn} torn tails, {flushes} flushes");
    assert!(flushes > 0 && sure > 0, "the store had work to do beside writes");
}

/// Where nobody waits for syncs, a cut takes all writes from some write on, and none before it.
#[test]
#[ignore = "needs root and a loop device"]
fn what_nobody_waited_for_is_lost_from_its_end_on() {
    let (mut image, mut known, mut rng) = (Image::new(), Known::default(), SplitMix64::new(seed()));
    let cuts = number("ANNULET_POWER_CUTS", CUTS_DEFAULT);
    let mut torn = 0;
    for round in 0..cuts {
        let durability = [Durability::None, Durability::Interval][round as usize % 2];
        image.mount("rw");
        let mut store = open_unsynced(&image.store(), durability);
        torn += store.report().torn.len();
        assert_eq!(store.report().damage, [], "after cut {round}");
        assert_eq!(known.lost(&mut store), 0, "after cut {round}");
        let mut cut = image.cut();
        known.write_until_cut(&mut store, &mut cut, &mut rng);
        cut.wait();
        drop(store);
        image.unmount();
    }
    image.mount("rw");
    let mut store = open_unsynced(&image.store(), Durability::None);
    assert_eq!(known.lost(&mut store), 0, "after the last cut");
    let there = known.durable.values().flatten().max().copied().unwrap_or(0);
    store.close().unwrap();
    check(&image.store());
    image.unmount();
    println!("{cuts} cuts, the newest of {} versions left is {there}, {torn} torn tails", known.versions);
    assert!(there > 0, "nothing was ever left");
}

/// The same on a disk that syncs nothing: a test that finds no loss there would find none anywhere.
#[test]
#[ignore = "needs root and a loop device"]
fn a_disk_that_syncs_nothing_loses_what_was_acknowledged() {
    let mut rng = SplitMix64::new(seed());
    for _ in 0..LYING_CUTS_MAX {
        let (mut image, mut known) = (Image::new(), Known::default());
        image.mount("rw");
        // Made on an honest disk: a folder that is not there any more would be too easy.
        open(&image.store(), false).unwrap().close().unwrap();
        let mut store = open(&image.store(), true).unwrap();
        let mut cut = image.cut();
        known.write_until_cut(&mut store, &mut cut, &mut rng);
        let sure = known.cut_at(cut.wait());
        drop(store);
        image.unmount();
        image.mount("rw");
        let lost = open(&image.store(), false).map(|mut store| known.lost(&mut store));
        image.unmount();
        match lost {
            Ok(0) => {}
            lost => {
                println!("of the keys of {sure} batches: {lost:?}");
                return;
            }
        }
    }
    panic!("nothing was lost in {LYING_CUTS_MAX} cuts, though nothing was synced");
}

/// A store that may not be written is not opened, which an error says; its folder stays as it is, and can be checked.
#[test]
#[ignore = "needs root and a loop device"]
fn a_mount_for_reading_only_is_a_typed_error_and_no_damage() {
    let mut image = Image::new();
    image.mount("rw");
    let mut store = open(&image.store(), false).unwrap();
    let batch: Batch = (0..KEYS).map(|number| (number, Some(1))).collect();
    apply(&mut store, &batch).unwrap();
    store.close().unwrap();
    image.unmount();

    image.mount("ro");
    match open(&image.store(), false).map(|_| ()) {
        Err(Error::Disk(error)) => assert_eq!(error.kind, DiskErrorKind::ReadOnly, "{error}"),
        other => panic!("{other:?}"),
    }
    check(&image.store());
    image.unmount();

    image.mount("rw");
    let mut store = open(&image.store(), false).unwrap();
    assert!((0..KEYS).all(|number| read(&mut store, number) == Some(1)));
    store.close().unwrap();
    image.unmount();
}
