//! Runs on a consistent bucket type: a server of this test answers Riak's two protocols, right or with a planted fault.

#![allow(clippy::unwrap_used, reason = "a test")]

use base::Rng;
use base::rng::SplitMix64;
use bench::history::{self, Report, STATES_MAX};
use bench::{Control, Error, Identity, Observer, Workload, run};
use bytes::BytesMut;
use protocol::messages::Content;
use protocol::response::{self, Body};
use protocol::{Limits, next_frame};
use results::{Latencies, Results, Second, Summary};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The mistake of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A read answers the version before.
    StaleRead,
    /// A write replaces another version than that of its context.
    LostUpdate,
    /// A put-once replaces an object.
    PutTwice,
    /// A write is acknowledged and not done.
    DroppedWrite,
    /// A write is done and answered `unavailable`.
    UnavailableDone,
    /// A write is done and answered `failed`.
    FailedDone,
}

#[derive(Clone, Debug)]
enum Ask {
    Get,
    Put { context: Option<u64>, value: Vec<u8> },
    Delete { context: Option<u64> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    Found(u64, Vec<u8>),
    Absent,
    Stored(u64, Vec<u8>),
    Deleted,
    Failed,
    Unavailable,
    Timeout,
    /// The connection closes.
    Nothing,
}

/// Objects with a version each, and the versions before them.
struct Registers {
    objects: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    older: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    version: u64,
    rng: SplitMix64,
    fault: Fault,
}

impl Registers {
    fn answer(&mut self, key: &[u8], ask: Ask) -> Reply {
        let is_turn = self.rng.chance(1, 20);
        let is_wrong = |fault: Fault, registers: &Registers| is_turn && registers.fault == fault;
        if ask_is_read(&ask) {
            let stale = self.older.get(key).filter(|_| is_wrong(Fault::StaleRead, self));
            let found = stale.or_else(|| self.objects.get(key)).cloned();
            return found.map_or(Reply::Absent, |(version, value)| Reply::Found(version, value));
        }
        let (is_lost, is_done) = (self.rng.chance(1, 60), self.rng.chance(1, 2));
        if self.rng.chance(1, 60) {
            return Reply::Unavailable;
        }
        let (has_condition, holds) = self.condition(key, &ask);
        let is_ignored = is_wrong(Fault::LostUpdate, self) && has_condition && self.objects.contains_key(key)
            || is_wrong(Fault::PutTwice, self) && !has_condition;
        if !holds && !is_ignored {
            return Reply::Failed;
        }
        if is_lost && !is_done {
            return if self.rng.chance(1, 2) { Reply::Timeout } else { Reply::Nothing };
        }
        let reply =
            if is_wrong(Fault::DroppedWrite, self) { self.acknowledged(ask) } else { self.apply(key, ask) };
        match reply {
            _ if is_lost => Reply::Timeout,
            _ if is_wrong(Fault::UnavailableDone, self) => Reply::Unavailable,
            _ if is_wrong(Fault::FailedDone, self) => Reply::Failed,
            reply => reply,
        }
    }

    /// Whether the request carries a context, and whether its condition holds.
    fn condition(&self, key: &[u8], ask: &Ask) -> (bool, bool) {
        let version = self.objects.get(key).map(|(version, _)| *version);
        match ask {
            Ask::Put { context: None, .. } => (false, version.is_none()),
            Ask::Put { context, .. } | Ask::Delete { context: context @ Some(_) } => {
                (true, *context == version)
            }
            Ask::Delete { context: None } | Ask::Get => (false, true),
        }
    }

    fn acknowledged(&mut self, ask: Ask) -> Reply {
        self.version += 1;
        match ask {
            Ask::Put { value, .. } => Reply::Stored(self.version, value),
            _ => Reply::Deleted,
        }
    }

    fn apply(&mut self, key: &[u8], ask: Ask) -> Reply {
        let reply = self.acknowledged(ask);
        let before = match &reply {
            Reply::Stored(version, value) => self.objects.insert(key.to_vec(), (*version, value.clone())),
            _ => self.objects.remove(key),
        };
        if let Some(before) = before {
            self.older.insert(key.to_vec(), before);
        }
        reply
    }
}

fn ask_is_read(ask: &Ask) -> bool {
    matches!(ask, Ask::Get)
}

/// A server of both protocols, each on an address of its own.
struct Server {
    pb: SocketAddr,
    http: SocketAddr,
    is_over: Arc<AtomicBool>,
    listeners: Vec<JoinHandle<()>>,
}

impl Server {
    fn start(fault: Fault) -> Server {
        let registers = Arc::new(Mutex::new(Registers {
            objects: BTreeMap::new(),
            older: BTreeMap::new(),
            version: 0,
            rng: SplitMix64::new(7),
            fault,
        }));
        let is_over = Arc::new(AtomicBool::new(false));
        let mut listeners = Vec::new();
        let mut listen = |serve: fn(TcpStream, &Mutex<Registers>)| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let (registers, is_over) = (Arc::clone(&registers), Arc::clone(&is_over));
            listeners.push(std::thread::spawn(move || {
                for stream in listener.incoming() {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let (stream, registers) = (stream.unwrap(), Arc::clone(&registers));
                    std::thread::spawn(move || serve(stream, &registers));
                }
            }));
            address
        };
        let (pb, http) = (listen(serve_pb), listen(serve_http));
        Server { pb, http, is_over, listeners }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for address in [self.pb, self.http] {
            drop(TcpStream::connect(address));
        }
        self.listeners.drain(..).for_each(|listener| listener.join().unwrap());
    }
}

fn context_of(bytes: &[u8]) -> u64 {
    std::str::from_utf8(bytes).unwrap().parse().unwrap()
}

fn serve_pb(mut stream: TcpStream, registers: &Mutex<Registers>) {
    let (mut input, mut piece) = (BytesMut::new(), [0; 4096]);
    loop {
        while let Some(frame) = next_frame(&mut input, Limits::ESTABLISHED).unwrap() {
            let mut returns_head = false;
            let (key, ask) = match protocol::Request::decode(frame.code, frame.body).unwrap() {
                protocol::Request::Get(get) => (get.key, Ask::Get),
                protocol::Request::Put(put) => {
                    returns_head = put.return_head == Some(true);
                    let context = put.vclock.as_deref().map(context_of);
                    (put.key.unwrap(), Ask::Put { context, value: put.content.value.to_vec() })
                }
                protocol::Request::Del(delete) => {
                    (delete.key, Ask::Delete { context: delete.vclock.as_deref().map(context_of) })
                }
                _ => panic!("no request on a value"),
            };
            let mut out = Vec::new();
            let content = |value: Vec<u8>| [Content { value: value.into(), ..Content::default() }];
            let clock = |version: u64| version.to_string().into_bytes();
            match registers.lock().unwrap().answer(&key, ask) {
                Reply::Found(version, value) => {
                    response::get(&mut out, content(value), &clock(version), Body::Full);
                }
                Reply::Absent => response::get_notfound(&mut out, None),
                Reply::Stored(version, value) if returns_head => {
                    response::put(&mut out, content(value), &clock(version), None, Body::Head);
                }
                Reply::Stored(..) => response::put_done(&mut out, None),
                Reply::Deleted => response::empty(&mut out, protocol::codes::DEL_RESP),
                Reply::Failed => response::error(&mut out, "failed"),
                Reply::Unavailable => response::error(&mut out, "unavailable"),
                Reply::Timeout => response::error(&mut out, "timeout"),
                Reply::Nothing => return,
            }
            if stream.write_all(&out).is_err() {
                return;
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(len) => input.extend_from_slice(&piece[..len]),
        }
    }
}

fn serve_http(mut stream: TcpStream, registers: &Mutex<Registers>) {
    let (mut input, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        while let Some((len, method, key, context, value)) = http_request(&input) {
            input.drain(..len);
            let ask = match &*method {
                "GET" => Ask::Get,
                "PUT" => Ask::Put { context, value },
                _ => Ask::Delete { context },
            };
            let (status, clock, body) = match registers.lock().unwrap().answer(&key, ask) {
                Reply::Found(version, value) | Reply::Stored(version, value) => (200, Some(version), value),
                Reply::Absent => (404, None, b"not found".to_vec()),
                Reply::Deleted => (204, None, Vec::new()),
                Reply::Failed => (412, None, Vec::new()),
                Reply::Unavailable => (503, None, b"unavailable".to_vec()),
                Reply::Timeout => (503, None, b"request timed out".to_vec()),
                Reply::Nothing => return,
            };
            let clock = clock.map_or(String::new(), |clock| format!("X-Riak-Vclock: {clock}\r\n"));
            let head = format!("HTTP/1.1 {status} x\r\n{clock}Content-Length: {}\r\n\r\n", body.len());
            if stream.write_all(&[head.into_bytes(), body].concat()).is_err() {
                return;
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(len) => input.extend_from_slice(&piece[..len]),
        }
    }
}

type HttpRequest = (usize, String, Vec<u8>, Option<u64>, Vec<u8>);

/// Length, method, key, context and value of a whole request.
fn http_request(input: &[u8]) -> Option<HttpRequest> {
    let end = input.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&input[..end]).unwrap();
    let header = |name: &str| {
        head.lines()
            .find_map(|line| line.split_once(": ").filter(|(it, _)| *it == name))
            .map(|(_, text)| text)
    };
    let value_len: usize = header("Content-Length").map_or(0, |text| text.parse().unwrap());
    let (begin, len) = (end + 4, end + 4 + value_len);
    let value = input.get(begin..len)?.to_vec();
    let (method, rest) = head.split_once(' ').unwrap();
    let path = rest.split([' ', '?']).next().unwrap();
    let key = path.rsplit('/').next().unwrap().as_bytes().to_vec();
    Some((len, method.to_owned(), key, header("X-Riak-Vclock").map(|it| context_of(it.as_bytes())), value))
}

fn workload(driver: &str, address: SocketAddr, history: &Path, rest: &str) -> String {
    let op = |op: &str| format!("[[operation]]\nop = {op:?}\n");
    let ops = ["get", "put", "update", "put_once", "cas", "delete", "delete_if"].map(op).concat();
    format!(
        "driver = {driver:?}\naddresses = [\"{address}\"]\nbucket_type = \"strong\"\nconsistent = true\n\
         concurrency = {CONCURRENCY}\nthreads = 2\nwarm_up = \"0s\"\nhistory = {history:?}\n{rest}\n\
         [keys]\nkind = \"uniform\"\ncount = 30\n[value]\nsize = 100\n{ops}[[operation]]\nop = \"head\"\nweight = 0\n"
    )
}

fn run_in(dir: &Path, text: &str, control: &Control, observer: &mut dyn Observer) -> (Summary, Results) {
    let workload = Workload::parse(text, "test.toml").unwrap();
    let summary = run(&workload, dir, &Identity::default(), control, observer).unwrap();
    (summary, Results::open(dir).unwrap())
}

/// Requests under way at once.
const CONCURRENCY: u64 = 16;

struct Played {
    summary: Summary,
    lines: Vec<String>,
    report: Report,
}

fn play(driver: &str, fault: Fault, rest: &str) -> Played {
    let (server, folder) = (Server::start(fault), tempfile::tempdir().unwrap());
    let (dir, path) = (folder.path().join("results"), folder.path().join("history"));
    let address = if driver == "pb" { server.pb } else { server.http };
    let (summary, _) = run_in(&dir, &workload(driver, address, &path, rest), &Control::default(), &mut ());
    let lines = std::fs::read_to_string(&path).unwrap().lines().skip(1).map(str::to_owned).collect();
    Played { summary, lines, report: history::check(&history::read(&path).unwrap(), STATES_MAX) }
}

const MANY: &str = "operations_max = 20000\n";

/// Checks a number of the summary against the lines of a history, which also has the requests of the last second: it is
/// not whole, so no figure counts it.
#[track_caller]
fn assert_counted(counted: u64, (lines, of_last_second): (u64, u64)) {
    assert!(
        (counted..=counted + of_last_second + CONCURRENCY).contains(&lines),
        "{counted} counted, {lines} lines"
    );
}

/// When the request of a line ended, in nanoseconds.
fn end_of(line: &str) -> u64 {
    let number = line.split("\"return\":").nth(1).unwrap();
    number.split(',').next().unwrap().parse().unwrap()
}

/// Lines with all parts, and those of them whose requests ended in the last second.
fn count(lines: &[String], parts: &[&str]) -> (u64, u64) {
    let last = lines.iter().map(|line| end_of(line)).max().unwrap();
    let of_parts = || lines.iter().filter(|line| parts.iter().all(|part| line.contains(part)));
    let of_last_second = of_parts().filter(|line| end_of(line) + 1_000_000_000 >= last);
    (of_parts().count() as u64, of_last_second.count() as u64)
}

#[test]
fn a_right_server_has_a_linearizable_history() {
    for driver in ["pb", "http"] {
        let Played { summary, lines, report } = play(driver, Fault::None, MANY);
        assert!(report.violations.is_empty() && report.unknown.is_empty(), "{driver}: {report:?}");
        assert_eq!((report.keys, report.operations), (30, lines.len()), "{driver}");
        // Its own check of every read agrees.
        assert!(summary.verdict.passed, "{driver}: {:?}", summary.verdict);
        assert!(summary.check.compared > 5000 && summary.check.not_compared == 0, "{:?}", summary.check);
        let count = |parts: &[&str]| count(&lines, parts);
        let sum = |one: (u64, u64), other: (u64, u64)| (one.0 + other.0, one.1 + other.1);
        // An operation of these is one request.
        for (label, op) in [("put_once", "\"put_once\""), ("delete", "\"delete\"")] {
            let of = &summary.operations[label];
            let done = |result| count(&[op, result]);
            assert!(of.done > 1000, "{driver}: {of:?}");
            if label == "delete" {
                assert_eq!(of.condition_failed, 0, "{driver}");
                assert_counted(of.done, done("\"ok\""));
                assert_counted(of.failed, sum(done("\"unavailable\""), done("\"timeout\"")));
            } else {
                assert!(of.condition_failed > 500, "{driver}: {of:?}");
            }
        }
        let total = &summary.total;
        assert_counted(total.condition_failed, count(&["\"failed\""]));
        assert_counted(total.errors["unavailable"], count(&["\"unavailable\""]));
        let unknown: u64 = ["timeout", "disconnected"].map(|kind| total.errors[kind]).iter().sum();
        assert_counted(unknown, count(&["\"timeout\""]));
        assert!(!total.errors.contains_key("precondition"), "{driver}: {:?}", total.errors);
        // Conditions meet both outcomes, and most contexts are known without a read.
        for op in ["\"put_once\"", "\"cas\"", "\"delete_if\""] {
            assert!(count(&[op, "\"ok\""]).0 > 200 && count(&[op, "\"failed\""]).0 > 100, "{driver}: {op}");
        }
    }
}

#[test]
fn every_fault_of_a_server_is_a_violation() {
    for fault in [
        Fault::StaleRead,
        Fault::LostUpdate,
        Fault::PutTwice,
        Fault::DroppedWrite,
        Fault::UnavailableDone,
        Fault::FailedDone,
    ] {
        let Played { report, .. } = play("pb", fault, "operations_max = 6000\n");
        assert!(!report.violations.is_empty(), "{fault:?}: {} unknown", report.unknown.len());
    }
}

#[test]
fn attempts_are_requests_of_their_own() {
    let retry = format!("{MANY}retry = {{ attempts = 3, backoff = \"1ms\" }}\n");
    let Played { summary, report, .. } = play("pb", Fault::None, &retry);
    assert!(report.violations.is_empty() && report.unknown.is_empty(), "{report:?}");
    assert!(summary.verdict.passed && summary.total.retries > 100, "{:?}", summary.total);
}

/// Ends the run after its first second.
struct Stopper<'a>(&'a Control);

impl Observer for Stopper<'_> {
    fn second(&mut self, _second: &Second, _latencies: &[Latencies]) {
        self.0.stop();
    }
}

#[test]
fn a_run_that_is_stopped_has_a_whole_history() {
    let (server, folder) = (Server::start(Fault::None), tempfile::tempdir().unwrap());
    let path = folder.path().join("history");
    let text = workload("pb", server.pb, &path, "duration = \"10m\"\n");
    let control = Control::default();
    let (summary, _) = run_in(&folder.path().join("results"), &text, &control, &mut Stopper(&control));
    let report = history::check(&history::read(&path).unwrap(), STATES_MAX);
    assert!(report.violations.is_empty() && report.unknown.is_empty(), "{report:?}");
    assert!(report.operations as u64 >= summary.total.done);
    // The next run finds the objects of this one.
    let path = folder.path().join("next");
    let text = workload("pb", server.pb, &path, "operations_max = 5000\n");
    let (summary, _) = run_in(&folder.path().join("next results"), &text, &Control::default(), &mut ());
    assert!(summary.verdict.passed, "{:?}", summary.verdict);
    let report = history::check(&history::read(&path).unwrap(), STATES_MAX);
    assert!(report.violations.is_empty() && report.unknown.is_empty(), "{report:?}");
}

#[test]
fn another_store_has_a_history_of_unconditional_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    let text = |plant: &str| {
        format!(
            "driver = \"null\"\nconcurrency = 8\nthreads = 2\nwarm_up = \"0s\"\noperations_max = 20000\n\
             history = {path:?}\n{plant}[keys]\nkind = \"uniform\"\ncount = 50\n[value]\nsize = 100\n\
             [[operation]]\nop = \"get\"\n[[operation]]\nop = \"put\"\n[[operation]]\nop = \"update\"\n\
             [[operation]]\nop = \"delete\"\n"
        )
    };
    let run_with = |dir: &str, plant: &str| {
        run_in(&folder.path().join(dir), &text(plant), &Control::default(), &mut ());
        let report = history::check(&history::read(&path).unwrap(), STATES_MAX);
        std::fs::remove_file(&path).unwrap();
        report
    };
    let report = run_with("right", "");
    assert!(report.violations.is_empty() && report.unknown.is_empty(), "{report:?}");
    let report = run_with("wrong", "plant = { stale_reads = 100 }\n");
    assert!(!report.violations.is_empty());
}

#[test]
fn a_history_is_never_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    std::fs::write(&path, "mine").unwrap();
    let text = format!(
        "driver = \"null\"\nhistory = {path:?}\nkeys = {{ kind = \"uniform\", count = 1 }}\n[[operation]]\nop = \"get\"\n"
    );
    let workload = Workload::parse(&text, "test.toml").unwrap();
    let dir = folder.path().join("results");
    let refused = run(&workload, &dir, &Identity::default(), &Control::default(), &mut ());
    assert!(matches!(refused, Err(Error::Unusable(_))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}
