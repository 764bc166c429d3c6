//! The real program under many connections at `sync`, killed at random moments and started again on the same data.
//!
//! Each of [`WRITERS`] connections writes keys of its own, so it knows what each must hold: what was acknowledged
//! last, or, for the one request that was under way at the kill, what that would have made of it. A value tells
//! its key, its version, and a checksum, so half a value, another key's and an older one are all told from the
//! right one. Keys are written once, overwritten (half of them blindly, half with the context of a read), deleted
//! and written again.
//!
//! A kill leaves what the operating system has, so this finds what was acknowledged before it was handed over, and
//! what a start makes of torn files. Lost page caches are the simulator's part.
//!
//! 20 kills; `ANNULET_CRASH_KILLS=200` for the long run. `ANNULET_CRASH_SEED` repeats the choices of a run, though
//! not the operating system's.
use crate::common::{Server, run};
use base::Rng;
use base::checksum::crc32c;
use base::rng::SplitMix64;
use bytes::Bytes;
use client::{Client, Content, Error, ReadOptions, WriteOptions};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Instant, SystemTime};

const KILLS_DEFAULT: u64 = 20;
const WRITERS: u64 = 32;
/// Keys that a writer overwrites and deletes again and again.
const HOT_KEYS: u64 = 24;
/// A kill comes after so many acknowledged writes at least: fewer would not have filled a group commit often.
const ACKED_MIN: u64 = 200;
const ACKED_MAX: u64 = 1500;
/// After a kill a writer reads its hot keys, its newest keys, and so many others; after the last one, all.
const NEWEST_CHECKED: usize = 100;
const SAMPLE_CHECKED: u64 = 30;
/// Every so many kills the folder is checked before it is opened again.
const KILLS_PER_CHECK: u64 = 4;
const VALUE_BYTES_MAX: u64 = 8 << 10;
const BUCKET: &[u8] = b"crash";
const SERVE: [&str; 6] = ["--durability", "sync", "--shards", "2", "--data", "data"];
/// Kills of a node on another backend.
const KILLS_OF_OTHERS: u64 = 4;

/// What a key holds: a version of its value, or nothing.
type State = Option<u64>;

/// What is known of a key.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// What was acknowledged, or seen after a kill.
    acked: State,
    /// What was sent and not answered.
    sent: Option<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    acked: u64,
    deletes: u64,
    in_flight: u64,
    in_flight_kept: u64,
    verified: u64,
}

struct Writer {
    id: u64,
    rng: SplitMix64,
    keys: BTreeMap<String, Known>,
    /// Keys written once, in their order.
    cold: Vec<String>,
    last_version: u64,
    totals: Totals,
}

/// A kill, which comes when enough has been acknowledged.
struct Kill<'a> {
    server: &'a Server,
    acked: AtomicU64,
    target: u64,
    done: AtomicBool,
}

impl Kill<'_> {
    fn count(&self) {
        if self.acked.fetch_add(1, SeqCst) + 1 == self.target {
            self.done.store(true, SeqCst);
            self.server.signal(Signal::KILL);
        }
    }
}

impl Writer {
    /// Writes until the server is gone.
    fn storm(&mut self, kill: &Kill<'_>) {
        let mut client = kill.server.connect();
        loop {
            let (key, next) = self.choose();
            self.keys.entry(key.clone()).or_insert(Known { acked: None, sent: None }).sent = Some(next);
            let follows_read = key.ends_with(['0', '2', '4', '6', '8']);
            match write(&mut client, &key, next, follows_read) {
                Ok(()) => {
                    self.keys.insert(key, Known { acked: next, sent: None });
                    self.totals.acked += 1;
                    self.totals.deletes += u64::from(next.is_none());
                    kill.count();
                }
                Err(error) => {
                    assert!(kill.done.load(SeqCst), "before the kill: {error}");
                    assert!(matches!(error, Error::Io(_)), "{error}");
                    self.totals.in_flight += 1;
                    return;
                }
            }
        }
    }

    /// The next write: a key and what it is to hold.
    fn choose(&mut self) -> (String, State) {
        self.last_version += 1;
        let version = self.last_version;
        let draw = self.rng.below(100);
        if draw < 45 || self.cold.is_empty() {
            let key = format!("writer {} once {version}", self.id);
            self.cold.push(key.clone());
            return (key, Some(version));
        }
        if draw < 48 {
            let index = self.rng.below(self.cold.len() as u64) as usize;
            return (self.cold[index].clone(), None);
        }
        let key = format!("writer {} hot {}", self.id, self.rng.below(HOT_KEYS));
        (key, (draw < 85).then_some(version))
    }

    /// Reads keys back: all, or those that are likely to show a loss.
    fn verify(&mut self, server: &Server, all: bool) {
        let mut client = server.connect();
        let mut wanted: BTreeSet<String> = self.cold.iter().rev().take(NEWEST_CHECKED).cloned().collect();
        wanted.extend((0..HOT_KEYS).map(|n| format!("writer {} hot {n}", self.id)));
        for _ in 0..SAMPLE_CHECKED.min(self.cold.len() as u64) {
            let index = self.rng.below(self.cold.len() as u64) as usize;
            wanted.insert(self.cold[index].clone());
        }
        for (key, known) in &mut self.keys {
            if !all && known.sent.is_none() && !wanted.contains(key) {
                continue;
            }
            let found = read(&mut client, key);
            if known.sent == Some(found) {
                self.totals.in_flight_kept += 1;
            } else {
                assert_eq!(
                    found, known.acked,
                    "{key} holds neither what was acknowledged nor what was sent: {known:?}"
                );
            }
            *known = Known { acked: found, sent: None };
            self.totals.verified += 1;
        }
    }
}

fn write(client: &mut Client, key: &str, next: State, follows_read: bool) -> Result<(), Error> {
    let mut options = WriteOptions::default();
    if follows_read {
        let options_of_read = ReadOptions { deletedvclock: true, ..ReadOptions::default() };
        let object = client.get(None, BUCKET, key.as_bytes(), &options_of_read)?;
        options.vclock = object.map(|object| object.vclock);
    }
    match next {
        Some(version) => {
            let content = Content { value: value_of(key, version), ..Content::default() };
            client.put(None, BUCKET, Some(key.as_bytes()), content, &options).map(|_| ())
        }
        None => client.delete(None, BUCKET, key.as_bytes(), &options),
    }
}

fn read(client: &mut Client, key: &str) -> State {
    let object = client.get(None, BUCKET, key.as_bytes(), &ReadOptions::default()).unwrap()?;
    assert_eq!(object.siblings.len(), 1, "{key} has siblings");
    let value = &object.siblings[0].value;
    let version = value.first_chunk().map(|version| u64::from_le_bytes(*version));
    let version = version.unwrap_or_else(|| panic!("{key} holds {value:?}"));
    assert!(*value == value_of(key, version), "{key} holds {} bytes that are no value of it", value.len());
    Some(version)
}

/// `version u64 | checksum u32 | payload`: 12 bytes to 8 KiB, mostly short.
fn value_of(key: &str, version: u64) -> Bytes {
    let mut rng = SplitMix64::new(u64::from(crc32c(key.as_bytes())) << 32 ^ version);
    let range = 1 << rng.below(14);
    let len = rng.below(range).min(VALUE_BYTES_MAX - 12);
    let mut value = [&version.to_le_bytes()[..], &[0; 4]].concat();
    value.extend((0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()));
    value.truncate(12 + len as usize);
    let sum = crc32c(&[key.as_bytes(), &value].concat());
    value[8..12].copy_from_slice(&sum.to_le_bytes());
    value.into()
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

fn check(dir: &Path) {
    let output = run(dir, &["check", "data"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

fn on_each(writers: &mut [Writer], work: impl Fn(&mut Writer) + Sync) {
    std::thread::scope(|scope| {
        let work = &work;
        for writer in writers {
            scope.spawn(move || work(writer));
        }
    });
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    survives(&["--backend", "annulet"], number("ANNULET_CRASH_KILLS").unwrap_or(KILLS_DEFAULT));
}

#[test]
fn so_it_does_in_a_log_with_its_keys_in_memory() {
    survives(&["--backend", "bitcask"], KILLS_OF_OTHERS);
}

#[test]
fn so_it_does_in_blocks_with_a_hash_index() {
    survives(&["--backend", "hash"], KILLS_OF_OTHERS);
}

#[test]
fn so_it_does_where_its_type_has_a_store_of_its_own() {
    survives(&["--type-backends", "default=bitcask,cache=memory"], KILLS_OF_OTHERS);
}

fn survives(stores: &[&str], kills: u64) {
    let serve = [&SERVE, stores].concat();
    let check = |folder: &Path| {
        if matches!(stores, [_, "annulet"] | ["--type-backends", _]) {
            check(folder)
        }
    };
    let backend = stores[1];
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = number("ANNULET_CRASH_SEED").unwrap_or(now.as_nanos() as u64);
    println!("{backend}, seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let mut rng = SplitMix64::new(seed);
    let writer = |id| Writer {
        id,
        rng: SplitMix64::new(rng.next_u64()),
        keys: BTreeMap::new(),
        cold: Vec::new(),
        last_version: 0,
        totals: Totals::default(),
    };
    let mut writers: Vec<_> = (0..WRITERS).map(writer).collect();
    let begun = Instant::now();
    for round in 1..=kills {
        let server = Server::start(folder.path(), &serve);
        on_each(&mut writers, |writer| writer.verify(&server, false));
        let target = ACKED_MIN + rng.below(ACKED_MAX - ACKED_MIN);
        let kill = Kill { server: &server, acked: AtomicU64::new(0), target, done: AtomicBool::new(false) };
        on_each(&mut writers, |writer| writer.storm(&kill));
        let acked = kill.acked.load(SeqCst);
        assert!(acked >= ACKED_MIN, "round {round} acknowledged {acked} writes");
        server.wait();
        if round % KILLS_PER_CHECK == 0 {
            check(folder.path());
        }
    }
    let server = Server::start(folder.path(), &serve);
    on_each(&mut writers, |writer| writer.verify(&server, true));
    let mut listed = BTreeSet::new();
    server
        .connect()
        .list_keys(None, BUCKET, |key| assert!(listed.insert(key), "a key is listed twice"))
        .unwrap();
    let keys = writers.iter().flat_map(|writer| &writer.keys);
    let expected: BTreeSet<_> =
        keys.filter(|(_, known)| known.acked.is_some()).map(|(key, _)| Bytes::from(key.clone())).collect();
    assert!(listed == expected, "{} keys are listed, {} are there", listed.len(), expected.len());
    server.stop();
    check(folder.path());
    let sum = |of: fn(&Totals) -> u64| writers.iter().map(|writer| of(&writer.totals)).sum::<u64>();
    let (in_flight, kept) = (sum(|t| t.in_flight), sum(|t| t.in_flight_kept));
    println!(
        "{backend}: {kills} kills in {:.1} s: {} writes acknowledged, {} of them deletes; {in_flight} under way when killed, \
         of which {kept} were done; {} reads verified; {} keys at the end",
        begun.elapsed().as_secs_f64(),
        sum(|t| t.acked),
        sum(|t| t.deletes),
        sum(|t| t.verified),
        expected.len(),
    );
    assert!(in_flight >= kills, "kills came while writes were under way");
}
