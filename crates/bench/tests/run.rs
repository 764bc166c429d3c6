//! Whole runs against the null driver and the engine: what is asked for is done, counted and checked.

#![allow(clippy::unwrap_used, reason = "a test")]

use bench::{Control, Identity, Workload, run};
use results::{Phase, Results, Summary};
use std::io::Read;
use std::path::Path;

fn run_in(dir: &Path, text: &str) -> Summary {
    let workload = Workload::parse(text, "test.toml").unwrap();
    run(&workload, dir, &Identity::default(), &Control::default(), &mut ()).unwrap()
}

fn run_it(text: &str) -> (Summary, Results) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("results");
    let summary = run_in(&dir, text);
    (summary, Results::open(&dir).unwrap())
}

const MIX: &str = r#"
driver = "null"
concurrency = 32
threads = 2
warm_up = "0s"
operations_max = 200000
[keys]
kind = "pareto"
count = 10000
[value]
size = 100
[[operation]]
op = "get"
weight = 5
[[operation]]
op = "update"
weight = 2
[[operation]]
op = "put"
weight = 2
[[operation]]
op = "delete"
weight = 1
"#;

#[test]
fn every_operation_is_done_counted_and_checked() {
    let (summary, results) = run_it(MIX);
    assert!(summary.verdict.passed, "{:?}", summary.verdict);
    let done: u64 = results.seconds.iter().map(|second| second.done(None)).sum();
    assert_eq!(done, 200_000);
    let counted: u64 = results.latencies.iter().map(|it| it.histogram.count()).sum();
    // Response and service of each.
    assert_eq!(counted, 400_000);
    assert!(summary.check.compared > 100_000 && summary.check.audited > 1000, "{:?}", summary.check);
    assert_eq!(summary.check.not_compared, 0);
    assert!(results.complete);
}

#[test]
fn planted_faults_are_caught_and_named() {
    let plant = |line: &str| {
        // Of 300 losses a few at least are found before they are written over: each key is written some times a second,
        // and a loss is told from a stale read after 200 ms.
        MIX.replace("kind = \"pareto\"\ncount = 10000", "kind = \"uniform\"\ncount = 2000")
            .replace("weight = 5", "weight = 50")
            .replace("[[operation]]\nop = \"delete\"\nweight = 1\n", "")
            .replace("[value]", &format!("[plant]\n{line}\n[value]"))
    };
    let (dropped, results) = run_it(&plant("drop_writes = 50"));
    assert!(!dropped.verdict.passed);
    assert!(dropped.check.lost > 0 && dropped.check.corrupt == 0, "{:?}", dropped.check);
    assert!(results.errors.iter().any(|error| error.wrong && error.kind == "lost"));
    let (stale, _) = run_it(&plant("stale_reads = 10000"));
    assert!(stale.check.stale > 0 && stale.check.lost == 0, "{:?}", stale.check);
}

/// The mix on entries of 16 bytes, 64 of a key.
fn packed(kind: backends::Kind, is_shared: bool) -> String {
    let engine = format!(
        "[engine]\nname = {:?}\ndurability = \"none\"\nshared = {is_shared}\npacked = {{ slots = 64 }}\n",
        kind.name()
    );
    let text =
        MIX.replace("\"null\"", "\"engine\"").replace("200000", "20000").replace("size = 100", "size = 16");
    text + &engine
}

#[test]
fn entries_of_packs_are_checked_in_every_engine() {
    for kind in backends::Kind::ALL.into_iter().filter(|kind| kind.is_built()) {
        for is_shared in [false, true] {
            let (summary, results) = run_it(&packed(kind, is_shared));
            assert!(summary.verdict.passed, "{}: {:?}", kind.name(), summary.verdict);
            assert!(summary.check.compared > 5000, "{}: {:?}", kind.name(), summary.check);
            assert_eq!(summary.total.failed, 0, "{}", kind.name());
            assert_eq!(results.manifest.servers[0].options["packed"], "64 entries of 16 bytes");
        }
    }
}

#[test]
fn an_entry_that_is_lost_is_missed() {
    let text = packed(backends::Kind::Hash, true)
        .replace("kind = \"pareto\"\ncount = 10000", "kind = \"uniform\"\ncount = 2000")
        .replace("[[operation]]\nop = \"delete\"\nweight = 1\n", "")
        .replace("[value]", "[plant]\ndrop_writes = 50\n[value]");
    let (summary, results) = run_it(&text);
    assert!(!summary.verdict.passed);
    assert!(summary.check.lost > 0 && summary.check.corrupt == 0, "{:?}", summary.check);
    assert!(results.errors.iter().any(|error| error.wrong && error.kind == "lost"));
}

#[test]
fn every_engine_is_driven_in_process() {
    for kind in backends::Kind::ALL.into_iter().filter(|kind| kind.is_built()) {
        let text = MIX.replace("\"null\"", "\"engine\"").replace("200000", "20000");
        let lists = "[[operation]]\nop = \"list-buckets\"\n";
        let engine = format!("[engine]\nname = {:?}\ndurability = \"none\"\n", kind.name());
        let (summary, results) = run_it(&format!("{text}{lists}{engine}"));
        assert!(summary.verdict.passed, "{}: {:?}", kind.name(), summary.verdict);
        assert!(summary.check.compared > 5000, "{}: {:?}", kind.name(), summary.check);
        assert_eq!(summary.total.failed, 0, "{}", kind.name());
        let server = &results.manifest.servers[0];
        assert_eq!((&*server.name, &*server.options["durability"]), (kind.name(), "none"));
    }
}

#[test]
fn threads_share_a_store_of_every_engine() {
    for kind in backends::Kind::ALL.into_iter().filter(|kind| kind.is_built()) {
        let text = MIX.replace("\"null\"", "\"engine\"").replace("200000", "20000");
        let engine = format!("[engine]\nname = {:?}\ndurability = \"none\"\nshared = true\n", kind.name());
        let (summary, results) = run_it(&format!("{text}{engine}"));
        assert!(summary.verdict.passed, "{}: {:?}", kind.name(), summary.verdict);
        assert!(summary.check.compared > 5000, "{}: {:?}", kind.name(), summary.check);
        assert_eq!(summary.total.failed, 0, "{}", kind.name());
        assert!(results.manifest.servers[0].options["shared"].contains("store"));
    }
}

#[test]
fn what_an_engine_keeps_is_there_for_the_next_run() {
    for kind in backends::Kind::ALL.into_iter().filter(|kind| kind.is_built() && kind.is_kept()) {
        let folder = tempfile::tempdir().unwrap();
        let text = |count: u32, op: &str| {
            format!(
                "driver = \"engine\"\nconcurrency = 1\nwarm_up = \"0s\"\noperations_max = {count}\n\
                 [engine]\nname = {:?}\nfolder = {:?}\ndurability = \"none\"\n[keys]\nkind = \"sequential\"\n\
                 count = 1000\n[check]\naudit = 0\n[[operation]]\nop = {op:?}\n",
                kind.name(),
                folder.path().join("stores"),
            )
        };
        run_in(&folder.path().join("puts"), &text(1000, "put"));
        run_in(&folder.path().join("gets"), &text(1000, "get"));
        let gets = Results::open(&folder.path().join("gets")).unwrap();
        let found =
            |second: &results::Second| second.operations["get"].done - second.operations["get"].not_found;
        let found: u64 = gets.seconds.iter().filter(|it| it.operations.contains_key("get")).map(found).sum();
        assert_eq!(found, 1000, "{}", kind.name());
    }
}

#[test]
fn an_open_loop_keeps_its_rate_and_its_phases() {
    let text = MIX
        .replace("operations_max = 200000", "duration = \"2s\"\n[load]\nkind = \"poisson\"\nrate = 2000")
        .replace("warm_up = \"0s\"", "warm_up = \"1s\"");
    let (_, results) = run_it(&text);
    let measured = results.measured().count();
    assert_eq!(measured, 2);
    assert_eq!(results.seconds[0].phase, Phase::WarmUp);
    let due: u64 = results.seconds.iter().map(|second| second.generator.due).sum();
    let done: u64 = results.seconds.iter().map(|second| second.done(None)).sum();
    assert_eq!(due, done);
    // Three seconds at 2,000: a Poisson number whose deviation is 77.
    assert!((5500..6500).contains(&done), "{done}");
}

#[test]
fn unique_keys_are_put_read_and_deleted_at_the_trailing_end() {
    let (summary, results) = run_it(
        r#"
driver = "null"
warm_up = "0s"
operations_max = 30000
[[operation]]
label = "put unique"
op = "put"
weight = 2
keys = { kind = "unique" }
[[operation]]
label = "get own"
op = "get"
weight = 4
keys = { kind = "own" }
[[operation]]
label = "delete oldest"
op = "delete"
keys = { kind = "own-oldest" }
[[operation]]
op = "reconnect"
weight = 1
[[job]]
op = "list-keys"
every = "10ms"
"#,
    );
    assert!(summary.verdict.passed, "{:?}", summary.verdict);
    let sum = |label: &str| results.seconds.iter().map(|second| second.done(Some(label))).sum::<u64>();
    assert!(sum("put unique") > 5000 && sum("get own") > 10_000 && sum("delete oldest") > 2000);
    assert_eq!(results.manifest.labels.last().unwrap(), "list-keys");
}

#[test]
fn a_sequence_ends_by_itself_and_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let text = |count: u32| {
        format!(
            "driver = \"engine\"\nthreads = 2\nconcurrency = 2\nwarm_up = \"0s\"\nstate = {:?}\n\
             operations_max = {count}\n[engine]\nfolder = {:?}\ndurability = \"none\"\n\
             [[operation]]\nop = \"put\"\nkeys = {{ kind = \"sequential\", count = 1000 }}\n",
            folder.path().join("state"),
            folder.path().join("stores"),
        )
    };
    let dir = |name: &str| folder.path().join(name);
    run_in(&dir("first"), &text(400));
    run_in(&dir("second"), &text(100_000));
    let puts = |name: &str| -> u64 {
        Results::open(&dir(name)).unwrap().seconds.iter().map(|second| second.done(None)).sum()
    };
    assert_eq!((puts("first"), puts("second")), (400, 600));
}

#[test]
fn a_run_ends_when_no_server_is_left() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        // It takes both connections, hears a request on each, and is gone.
        let mut taken = [(); 2].map(|()| listener.accept().unwrap().0);
        taken.iter_mut().for_each(|stream| stream.read_exact(&mut [0; 5]).unwrap());
    });
    let (summary, results) = run_it(&format!(
        "driver = \"pb\"\naddresses = [{address:?}]\nconcurrency = 2\nwarm_up = \"0s\"\nduration = \"1s\"\n\
         timeout = \"100ms\"\nretry = {{ attempts = 3 }}\nkeys = {{ kind = \"uniform\", count = 10 }}\n\
         [[operation]]\nop = \"update\"\n",
    ));
    server.join().unwrap();
    // Both would have been tried again, until the time was up; what became of them is told.
    assert_eq!(summary.total.done, 0);
    let kinds: Vec<&str> = results.errors.iter().map(|error| &*error.kind).collect();
    assert_eq!(kinds, ["refused", "refused"], "{:?}", results.errors);
}

#[test]
fn generators_merge_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let workload = Workload::parse(MIX, "test.toml").unwrap();
    let dirs = [folder.path().join("a"), folder.path().join("b")];
    for (index, dir) in dirs.iter().enumerate() {
        let identity = Identity { index: index as u32, of: 2, ..Identity::default() };
        run(&workload, dir, &identity, &Control::default(), &mut ()).unwrap();
    }
    let out = folder.path().join("merged");
    results::merge::merge(&[&dirs[0], &dirs[1]], &out).unwrap();
    let merged = Results::open(&out).unwrap();
    let all = merged.merged(|_, _, _| true);
    let mut sum = histogram::Histogram::default();
    dirs.iter().for_each(|dir| sum.merge(&Results::open(dir).unwrap().merged(|_, _, _| true)));
    assert_eq!(all, sum);
    assert_eq!(merged.manifest.generators.len(), 2);
    assert!(results::merge::merge(&[&dirs[0], &dirs[0]], &folder.path().join("twice")).is_err());
}

const INDEXED: &str = r#"
driver = "null"
concurrency = 16
threads = 2
warm_up = "0s"
operations_max = 20000
[keys]
kind = "uniform"
count = 2000
[value]
size = 100
[[index]]
field = "number_int"
[[index]]
field = "group_bin"
entries = 2
terms = { kind = "uniform", count = 50 }
changes = false
[[index]]
field = "moving_int"
terms = { kind = "zipf", count = 500 }
[[operation]]
op = "update"
weight = 10
[[operation]]
op = "delete"
weight = 1
bucket = "another"
[[operation]]
label = "whole"
op = "query"
query = { kind = "terms", index = "number_int", results = 40, whole = true, return_terms = true, max_results = 15, pages = 3 }
[[operation]]
label = "exact"
op = "query"
query = { kind = "terms", index = "group_bin", span = 1 }
[[operation]]
label = "range"
op = "query"
query = { kind = "terms", index = "group_bin", span = 3, return_terms = true }
[[operation]]
label = "moving"
op = "query"
query = { kind = "terms", index = "moving_int", results = 30, return_terms = true, max_results = 10 }
[[operation]]
label = "people"
op = "query"
query = { kind = "postcode", return_terms = true }
"#;

fn run_filled(text: &str) -> (Summary, Results) {
    // A store of its own for each run, which the fill is a part of: a sequence, and then the mix.
    let (head, mix) = text.split_once("[[operation]]").unwrap();
    let fill = "[[operation]]\nlabel = \"fill\"\nop = \"put\"\nweight = 1000000\n\
                keys = { kind = \"sequential\", count = 2000 }\n";
    run_it(&format!("{head}{fill}[[operation]]{mix}"))
}

#[test]
fn queries_find_what_was_written_and_are_judged() {
    let (summary, results) = run_filled(INDEXED);
    let sum = |label: &str| {
        let seconds = results.seconds.iter().filter_map(|second| second.operations.get(label));
        seconds.fold((0, 0), |(done, rows), it| (done + it.done, rows + it.results))
    };
    assert!(summary.verdict.passed, "{:?}", summary.verdict);
    assert!(summary.check.rows > 10_000, "{:?}", summary.check);
    let (done, rows) = sum("whole");
    assert!(done > 100 && rows > 38 * done, "{done} {rows}");
    // 2,000 objects with two of 50 terms: 80, less those whose two are the same one.
    let (done, rows) = sum("exact");
    assert!(done > 100 && (70..85).contains(&(rows / done)), "{done} {rows}");
    let (done, rows) = sum("moving");
    assert!(done > 100 && rows <= 10 * done && rows > 5 * done, "{done} {rows}");
    let (done, rows) = sum("people");
    assert!(done > 100 && rows == 0, "{done} {rows}");
}

#[test]
fn entries_that_are_not_written_are_missed() {
    // A query that finds too little is asked again for a second, and an update mends what was dropped: so many that
    // some stay.
    let text = INDEXED.replace("[value]", "[plant]\ndrop_entries = 300\n[value]").replace("20000", "6000");
    let (summary, results) = run_filled(&text);
    assert!(!summary.verdict.passed);
    assert!(summary.check.incomplete > 0 && summary.check.wrong_rows == 0, "{:?}", summary.check);
    let told = results.errors.iter().find(|error| error.kind == "incomplete").unwrap();
    assert!(told.wrong && told.text.contains("instead of 40"), "{told:?}");
}
