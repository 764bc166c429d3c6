//! `annulet bench run` against a started node.

use crate::common::{Server, annulet, run};
use results::Results;
use std::path::Path;

fn workload(driver: &str, address: &str, http: &str, rest: &str) -> String {
    format!(
        "driver = {driver:?}\naddresses = [{address:?}]\nstats = [{http:?}]\nconcurrency = 8\nwarm_up = \"0s\"\n\
         operations_max = 4000\n[keys]\nkind = \"uniform\"\ncount = 300\n[value]\nsize = 200\n{rest}\n\
         [[operation]]\nop = \"get\"\nweight = 4\n[[operation]]\nop = \"update\"\nweight = 4\n\
         [[operation]]\nop = \"head\"\n[[operation]]\nop = \"delete\"\n[[operation]]\nop = \"reconnect\"\n"
    )
}

fn bench(dir: &Path, text: &str, name: &str) -> (std::process::Output, Results) {
    std::fs::write(dir.join("w.toml"), text).unwrap();
    let output = run(dir, &["bench", "run", "w.toml", "--out", name]);
    let results = Results::open(&dir.join(name)).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output, results)
}

#[test]
fn a_node_is_loaded_checked_and_described() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--durability", "none"]);
    for driver in ["pb", "http"] {
        let address = if driver == "pb" { &server.pb } else { &server.http };
        let (output, results) = bench(dir.path(), &workload(driver, address, &server.http, ""), driver);
        assert!(output.status.success(), "{driver}: {output:?}");
        let check = &results.summary.check;
        // However fast the machine is: every read was compared, and some of what was written was read again.
        assert!(check.compared > 0 && check.not_compared == 0 && check.audited > 0, "{driver}: {check:?}");
        let done: u64 = results.seconds.iter().map(|second| second.done(None)).sum();
        assert_eq!(done, 4000, "{driver}");
        let told = &results.manifest.servers[0];
        assert!(told.pid.is_some() && told.version.starts_with("0."), "{told:?}");
        let option = |name: &str| told.options.get(name).map(String::as_str);
        assert_eq!((option("durability"), option("ring_size")), (Some("none"), Some("64")), "{told:?}");
        assert!(option("engine").is_some_and(|text| text.contains("runs_max: 4")), "{told:?}");
    }
    server.stop();
}

#[test]
fn index_queries_are_answered_and_judged() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--durability", "none"]);
    for driver in ["pb", "http"] {
        let address = if driver == "pb" { &server.pb } else { &server.http };
        let text = |operations: &str| {
            format!(
                "driver = {driver:?}\naddresses = [{address:?}]\nconcurrency = 8\nwarm_up = \"0s\"\n\
                 operations_max = 2000\nbucket = {driver:?}\n[keys]\nkind = \"uniform\"\ncount = 500\n\
                 [value]\nsize = 100\n[[index]]\nfield = \"number_int\"\n[[index]]\nfield = \"group_bin\"\n\
                 entries = 3\nterms = {{ kind = \"uniform\", count = 40 }}\nchanges = false\n\
                 [[index]]\nfield = \"moving_bin\"\nterms = {{ kind = \"zipf\", count = 90 }}\n{operations}"
            )
        };
        let fill = "[[operation]]\nop = \"put\"\nkeys = { kind = \"sequential\", count = 500 }\n";
        let query = |label: &str, query: &str| {
            format!("[[operation]]\nlabel = {label:?}\nop = \"query\"\nquery = {{ {query} }}\n")
        };
        let operations = [
            "[[operation]]\nop = \"update\"\nweight = 4\n".to_owned(),
            query(
                "pages",
                "kind = \"terms\", index = \"number_int\", results = 40, whole = true, return_terms = true, \
                 max_results = 13, pages = 5",
            ),
            query("all", "kind = \"terms\", index = \"number_int\", span = 60, whole = true"),
            query("one", "kind = \"terms\", index = \"group_bin\", span = 1"),
            query("some", "kind = \"terms\", index = \"group_bin\", span = 2, return_terms = true"),
            query("moving", "kind = \"terms\", index = \"moving_bin\", results = 20, return_terms = true"),
            query("a key", "index = \"$key\", from = \"000000000007\", to = \"000000000007\""),
        ]
        .concat();
        let (output, _) = bench(dir.path(), &text(fill), &format!("{driver}-fill"));
        assert!(output.status.success(), "{driver}: {output:?}");
        let (output, results) = bench(dir.path(), &text(&operations), driver);
        assert!(output.status.success(), "{driver}: {output:?}");
        let rows = |label: &str| {
            let seconds = results.seconds.iter().filter_map(|second| second.operations.get(label));
            let (done, rows) = seconds.fold((0, 0), |(done, rows), it| (done + it.done, rows + it.results));
            rows as f64 / done as f64
        };
        assert_eq!((rows("pages"), rows("all"), rows("a key")), (40.0, 60.0, 1.0), "{driver}");
        // 1,500 entries under 40 terms, some of them twice the same object's.
        assert!((30.0..40.0).contains(&rows("one")) && (60.0..80.0).contains(&rows("some")), "{driver}");
        assert!(rows("moving") > 0.0 && results.summary.check.rows > 10_000, "{driver}");
    }
    server.stop();
}

#[test]
fn a_planted_loss_fails_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--durability", "none"]);
    let text = workload("pb", &server.pb, &server.http, "[plant]\ndrop_writes = 100");
    let (output, results) = bench(dir.path(), &text, "planted");
    assert_eq!(output.status.code(), Some(1));
    let check = &results.summary.check;
    assert!(check.lost + check.resurrected + check.stale > 0 && check.corrupt == 0, "{check:?}");
}

#[test]
fn servers_are_named_and_one_that_is_not_there_is_told_with_what_to_start() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--durability", "none"]);
    let named = |address: &str| address.replace("127.0.0.1:", "localhost:");
    let text = workload("pb", &named(&server.pb), &named(&server.http), "");
    let (output, results) = bench(dir.path(), &text, "named");
    assert!(output.status.success(), "{output:?}");
    let told = &results.manifest.servers[0];
    assert!(told.pid.is_some() && told.version.starts_with("0."), "{told:?}");
    assert_eq!(told.address, named(&server.pb));
    server.stop();

    for (address, advice) in [
        (
            "127.0.0.1:1",
            "Connection refused (os error 111); no node listens there: `annulet serve` starts one, and `addresses` of \
             the workload names another",
        ),
        ("no-such-host.invalid:1", ": give a name that is known here, or a number"),
    ] {
        std::fs::write(dir.path().join("w.toml"), workload("pb", address, address, "")).unwrap();
        let output = run(dir.path(), &["bench", "run", "w.toml"]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(address) && text.trim_end().ends_with(advice), "{text}");
    }
}

#[test]
fn what_cannot_be_run_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("w.toml"), "concurrency = 0\n").unwrap();
    let output = annulet(dir.path(), &["bench", "run", "w.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 1"), "{output:?}");
    assert_eq!(run(dir.path(), &["bench", "run", "missing.toml"]).status.code(), Some(2));
}

#[test]
fn a_history_is_written_and_judged() {
    let dir = tempfile::tempdir().unwrap();
    let text = "driver = \"null\"\nwarm_up = \"0s\"\noperations_max = 2000\n[keys]\nkind = \"uniform\"\ncount = 20\n\
                [[operation]]\nop = \"get\"\n[[operation]]\nop = \"put\"\n[[operation]]\nop = \"delete\"\n";
    std::fs::write(dir.path().join("w.toml"), text).unwrap();
    let judge = |file: &str, more: &[&str]| run(dir.path(), &[&["bench", "check", file][..], more].concat());
    let text_of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ran = run(dir.path(), &["bench", "run", "w.toml", "--out", "results", "--history", "h.jsonl"]);
    assert!(ran.status.success() && text_of(&ran.stdout).contains("\nhistory: h.jsonl\n"), "{ran:?}");
    let right = judge("h.jsonl", &[]);
    assert!(right.status.success(), "{right:?}");
    // The audit at the end reads some keys once more.
    let lines = std::fs::read_to_string(dir.path().join("h.jsonl")).unwrap().lines().count() - 1;
    assert!(lines > 2000, "{lines}");
    assert_eq!(text_of(&right.stdout), format!("operations: {lines}\nkeys: 20\nverdict: linearizable\n"));
    let again = run(dir.path(), &["bench", "run", "w.toml", "--out", "other", "--history", "h.jsonl"]);
    assert_eq!(again.status.code(), Some(2), "{again:?}");

    let put = "{\"process\":0,\"op\":\"put\",\"key\":\"b/k\",\"value\":1,\"call\":1,\"return\":2,\"result\":\"ok\"}\n";
    let get = "{\"process\":0,\"op\":\"get\",\"key\":\"b/k\",\"value\":null,\"call\":3,\"return\":4,\"result\":\"ok\"}\n";
    let head = "{\"format\":1,\"name\":\"w\"}\n";
    std::fs::write(dir.path().join("wrong"), format!("{head}{put}{get}")).unwrap();
    let wrong = judge("wrong", &[]);
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    let told = format!(
        "operations: 2\nkeys: 1\nverdict: violation\n\nviolation on key b/k\nno order has a place for:\n{get}\
         before it, the last 1 of 1 requests:\n{put}the key could be: value 1\n"
    );
    assert_eq!(text_of(&wrong.stdout), told);
    assert_eq!(text_of(&wrong.stderr), "annulet: not linearizable: 1 of 1 keys\n");
    let long = put.replace("return\":2", "return\":9");
    let other = long.replace("process\":0", "process\":1").replace("value\":1", "value\":2");
    let read = get.replace("null", "1").replace("\"call\":3,\"return\":4", "\"call\":10,\"return\":11");
    std::fs::write(dir.path().join("late"), format!("{head}{long}{other}{read}")).unwrap();
    let unknown = judge("late", &["--states", "1"]);
    assert_eq!(unknown.status.code(), Some(3), "{unknown:?}");
    assert!(text_of(&unknown.stdout).ends_with("verdict: unknown\n\nunknown key: b/k\n"), "{unknown:?}");
    for file in ["w.toml", "none"] {
        let refused = judge(file, &[]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
}
