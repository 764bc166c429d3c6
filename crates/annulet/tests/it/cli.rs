//! What a person at a terminal sees of the real program: answers, messages, exit codes.
use crate::common::nodes::until;
use crate::common::{Server, annulet, run, run_with};
use client::BucketProps;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Output, Stdio};

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a `kv` command against `server`.
fn kv(server: &Server, args: &[&str]) -> Output {
    kv_with(server, args, b"")
}

fn kv_with(server: &Server, args: &[&str], input: &[u8]) -> Output {
    let args = [&["kv", args[0], "--address", &server.pb], &args[1..]].concat();
    run_with(Path::new("."), &args, input)
}

/// The end of a command that was to succeed.
#[track_caller]
fn done(output: Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, stderr(&output));
    stdout(&output)
}

/// The end of a command that was to fail: its exit code is `code`, and one line says why.
#[track_caller]
fn refused(output: &Output, code: i32) -> String {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.starts_with("annulet: ") && text.lines().count() == 1, "{text}");
    text
}

#[test]
fn the_version_names_the_commit() {
    let text = done(run(Path::new("."), &["--version"]));
    let commit = text.strip_prefix("annulet 0.1.0 (").and_then(|rest| rest.strip_suffix(")\n")).unwrap();
    assert!(commit == "unknown" || commit.chars().all(|c| c.is_ascii_hexdigit()), "{commit}");
    assert_eq!(run(Path::new("."), &[]).status.code(), Some(2));
    assert_eq!(run(Path::new("."), &["kv", "get", "bucket"]).status.code(), Some(2));
    let quorum = run(Path::new("."), &["kv", "get", "--r", "most", "bucket", "key"]);
    assert_eq!(quorum.status.code(), Some(2));
}

#[test]
fn objects_go_in_and_come_out() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    done(kv(
        &server,
        &["put", "books", "dune", "spice", "--meta", "author=Herbert", "--index", "year_int=1965"],
    ));
    assert_eq!(done(kv(&server, &["get", "books", "dune"])), "spice");
    let head = done(kv(&server, &["head", "books", "dune"]));
    for row in [
        "content type   text/plain",
        "meta           author=Herbert",
        "index          year_int=1965",
        "context ",
    ] {
        assert!(head.contains(row), "{head}");
    }
    let with_meta = kv(&server, &["get", "--meta", "books", "dune"]);
    assert!(stderr(&with_meta).contains("author=Herbert"), "{}", stderr(&with_meta));
    assert_eq!(done(with_meta), "spice");

    let binary: Vec<u8> = (0..100_000u32).flat_map(u32::to_be_bytes).collect();
    done(kv_with(&server, &["put", "books", "raw"], &binary));
    let raw = kv(&server, &["get", "books", "raw"]);
    assert!(raw.stdout == binary, "{} bytes", raw.stdout.len());
    assert!(done(kv(&server, &["head", "books", "raw"])).contains("application/octet-stream"));
    done(kv_with(&server, &["put", "books", "dash", "-", "--content-type", "text/csv"], b"a,b\n"));
    assert_eq!(done(kv(&server, &["get", "books", "dash"])), "a,b\n");
    let echoed = kv(&server, &["put", "books", "dash", "--return-body", "c,d"]);
    assert_eq!(done(echoed), "c,d");

    let mut keys: Vec<_> = done(kv(&server, &["ls", "books"])).lines().map(str::to_owned).collect();
    keys.sort();
    assert_eq!(keys, ["dash", "dune", "raw"]);
    assert_eq!(done(kv(&server, &["ls"])), "books\n");
    done(kv(&server, &["del", "books", "dune"]));
    let absent = "annulet: no such object (notfound)\n";
    assert_eq!(refused(&kv(&server, &["get", "books", "dune"]), 1), absent);
    assert_eq!(refused(&kv(&server, &["head", "books", "never"]), 1), absent);
    done(kv(&server, &["del", "books", "never"]));
    let present = refused(&kv(&server, &["put", "--if-none-match", "books", "raw", "x"]), 1);
    assert_eq!(present, "annulet: the object exists already (match_found)\n");
    let untyped = refused(&kv(&server, &["get", "--type", "nosuch", "books", "dune"]), 1);
    assert!(untyped.contains("no active bucket type") && untyped.ends_with(" (no_type)\n"), "{untyped}");
    let above = refused(&kv(&server, &["put", "--w", "4", "books", "dune", "x"]), 1);
    assert!(above.contains("n_val is 3") && above.ends_with(" ({n_val_violation,3})\n"), "{above}");
    assert!(server.http_get("/ping").ends_with("\r\n\r\nOK"));
    server.stop();
    for args in [
        &["kv", "get", "--address", "127.0.0.1:1", "books", "dune"][..],
        &["kv", "get", "--node", "127.0.0.1:1", "books", "dune"],
        &["kv", "props", "get", "--node", "127.0.0.1:1", "books"],
        &["admin", "member-status", "--node", "127.0.0.1:1"],
        &["backup", "create", "--node", "127.0.0.1:1"],
    ] {
        let text = refused(&run(folder.path(), args), 1);
        assert!(text.contains("cannot connect to 127.0.0.1:1"), "{text}");
        assert!(text.contains("`annulet serve` starts one"), "{text}");
    }
}

#[test]
fn names_of_nodes_are_checked_and_those_that_are_unknown_are_told() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        &["kv", "get", "--address", "nohost", "books", "dune"][..],
        &["kv", "get", "--node", "nohost", "books", "dune"],
        &["admin", "member-status", "--node", "nohost"],
        &["backup", "create", "--node", "localhost:8098,nohost"],
    ] {
        let output = run(folder.path(), args);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("\"nohost\" is not a host and a port, such as 127.0.0.1:8087 "), "{text}");
        assert!(text.contains("it has no port"), "{text}");
    }
    for args in [
        &["kv", "get", "--address", "no-such-host.invalid:1", "books", "dune"][..],
        &["admin", "member-status", "--node", "no-such-host.invalid:1"],
    ] {
        let text = refused(&run(folder.path(), args), 1);
        assert!(text.contains("cannot connect to no-such-host.invalid:1: "), "{text}");
        assert!(text.contains("; --node and ANNULET_NODE name a node by its host and port, "), "{text}");
    }
    let serve = |flag: &str, value: &str| refused(&run(folder.path(), &["serve", flag, value]), 2);
    for (flag, value) in [
        ("--pb-listen", "nohost"),
        ("--http-listen", "a b:1"),
        ("--peer-listen", "localhost:x"),
        ("--peer-address", "a-:1"),
        ("--join", "localhost:1,nohost"),
        ("--cluster", "n1@h=a/b:1"),
    ] {
        let text = serve(flag, value);
        assert!(text.starts_with(&format!("annulet: {flag}: ")), "{text}");
        assert!(text.contains(" is not a host and a port, such as "), "{text}");
    }
}

#[test]
fn siblings_are_shown_chosen_and_resolved() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let props = BucketProps { allow_mult: Some(true), ..BucketProps::default() };
    server.connect().set_props(None, b"carts", props).unwrap();
    for value in ["apples", "pears"] {
        done(kv(&server, &["put", "carts", "ann", value]));
    }
    let both = kv(&server, &["get", "carts", "ann"]);
    assert_eq!((both.status.code(), stdout(&both)), (Some(3), String::new()));
    let table = stderr(&both);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        (rows[1][0], rows[2][0], rows[1][3], rows[1][5]),
        ("1", "2", "text/plain", rows[1][5]),
        "{table}"
    );
    let one = done(kv(&server, &["get", "--sibling", "1", "carts", "ann"]));
    let two = done(kv(&server, &["get", "--vtag", rows[2][1], "carts", "ann"]));
    let mut values = [one, two];
    values.sort();
    assert_eq!(values, ["apples", "pears"]);
    for choice in [["--sibling", "3"], ["--sibling", "0"], ["--vtag", "none"]] {
        let output = kv(&server, &["get", choice[0], choice[1], "carts", "ann"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).ends_with("annulet: there is no such sibling\n"));
    }
    let head = done(kv(&server, &["head", "carts", "ann"]));
    assert!(head.contains("sibling 1\n") && head.contains("sibling 2\n"), "{head}");
    let context = head.lines().find_map(|line| line.strip_prefix("context")).unwrap().trim();
    done(kv(&server, &["put", "carts", "ann", "apples, pears", "--vclock", context]));
    assert_eq!(done(kv(&server, &["get", "carts", "ann"])), "apples, pears");
    let bad = kv(&server, &["put", "carts", "ann", "x", "--vclock", "!"]);
    assert_eq!(bad.status.code(), Some(2), "{}", stderr(&bad));
}

#[test]
fn properties_and_types_are_shown_and_changed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let by_http = |args: &[&str]| run(folder.path(), &[args, &["--node", &server.http]].concat());
    let get = |bucket: &str| done(by_http(&["kv", "props", "get", bucket]));
    assert!(get("carts").contains("\nallow_mult: false\n") && get("carts").contains("\nn_val: 3\n"));
    let changes = ["allow_mult=true", "n_val=2", "r=one", r#"precommit=[{"mod":"m","fun":"f"}]"#];
    done(by_http(&[&["kv", "props", "set", "carts"], &changes[..]].concat()));
    let json: serde_json::Value =
        serde_json::from_str(&done(by_http(&["kv", "props", "get", "--json", "carts"]))).unwrap();
    let props = &json["props"];
    assert_eq!(
        (&props["allow_mult"], &props["n_val"], &props["r"]),
        (&true.into(), &2.into(), &"one".into())
    );
    assert_eq!(props["precommit"], serde_json::json!([{ "mod": "m", "fun": "f" }]));
    // What the command sets holds for protocol buffers, and the other way round.
    assert_eq!(server.connect().get_props(None, b"carts").unwrap().n_val, Some(2));
    let text = refused(&by_http(&["kv", "props", "set", "carts", "n_val=0", "w=some"]), 1);
    assert_eq!(text, "annulet: w must be one, quorum, all, or a number from 1 to n_val (not_valid_quorum)\n");
    let text = refused(&by_http(&["kv", "props", "set", "carts", "n_val=0"]), 1);
    assert_eq!(text, "annulet: n_val must be at least 1, a whole number (not_integer)\n");
    let text = refused(&by_http(&["kv", "props", "set", "carts", "n_val=3", "w=4"]), 1);
    assert!(text.contains("w is 4: it must be at most n_val"), "{text}");
    let text = refused(&by_http(&["kv", "props", "set", "carts", "alow_mult=true"]), 1);
    assert!(text.contains("did you mean allow_mult?"), "{text}");
    assert_eq!(by_http(&["kv", "props", "set", "carts", "n_val"]).status.code(), Some(2));
    assert_eq!(by_http(&["kv", "props", "set", "carts"]).status.code(), Some(2));
    done(by_http(&["kv", "props", "reset", "carts"]));
    assert!(get("carts").contains("\nn_val: 3\n"));
    assert!(get("a/b %c").contains("\nname: \"a/b %c\"\n"));

    done(by_http(&["admin", "bucket-type", "create", "once", r#"{"props":{"write_once":true}}"#]));
    assert_eq!(done(by_http(&["kv", "types"])), "active   default\nready    once\n");
    let inactive = refused(&by_http(&["kv", "types", "once"]), 1);
    assert_eq!(inactive, "annulet: Unknown bucket type: once\n");
    done(by_http(&["admin", "bucket-type", "activate", "once"]));
    assert!(done(by_http(&["kv", "types", "once"])).contains("\nwrite_once: true\n"));
    assert!(done(by_http(&["kv", "types", "--json"])).contains(r#""name":"once""#));
    let typed = done(by_http(&["kv", "props", "get", "--type", "once", "carts"]));
    assert!(typed.contains("\nbucket_type: \"once\"\n") && typed.contains("\nwrite_once: true\n"), "{typed}");
    let fixed = refused(&by_http(&["kv", "props", "set", "--type", "once", "carts", "write_once=false"]), 1);
    assert!(fixed.contains("write_once: Cannot modify write_once property once set to true"), "{fixed}");
    server.stop();
}

#[test]
fn objects_are_erased_and_tombstones_reaped() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--delete-mode", "keep"]);
    let admin = |server: &Server, args: &[&str]| {
        run(folder.path(), &[&["admin"], args, &["--node", &server.http]].concat())
    };
    let count =
        |server: &Server, what| done(admin(server, &[what, "count", "b"])).trim().parse::<u32>().unwrap();
    let is_over = |server: &Server| {
        let seen = done(admin(server, &["erase", "status", "--json"]));
        let seen: serde_json::Value = serde_json::from_str(&seen).unwrap();
        (seen["state"] == "done").then_some((seen["done"].clone(), seen["failed"].clone()))
    };
    for at in 0..12 {
        done(kv(&server, &["put", "b", &format!("k{at:02}"), "v"]));
    }
    assert_eq!(done(admin(&server, &["erase", "status"])), "no reap or erase since the node's start\n");
    let node_first = run(folder.path(), &["admin", "--node", &server.http, "erase", "status"]);
    assert_eq!(done(node_first), "no reap or erase since the node's start\n");
    assert_eq!((count(&server, "erase"), count(&server, "reap")), (12, 0));
    let some = ["erase", "start", "b", "--first", "k00", "--last", "k04", "--per-second", "1000"];
    assert!(done(admin(&server, &some)).starts_with("purge  type     bucket  state"));
    until("some are erased", || is_over(&server).is_some());
    assert_eq!(is_over(&server), Some((5.into(), 0.into())));
    assert_eq!((count(&server, "erase"), count(&server, "reap")), (7, 5));
    assert_eq!(done(kv(&server, &["ls", "b"])).lines().count(), 7);
    let idle = refused(&admin(&server, &["erase", "stop"]), 1);
    assert_eq!(idle, "annulet: no reap or erase is running\n");
    let rate = refused(&admin(&server, &["reap", "start", "b", "--per-second", "0"]), 1);
    assert!(rate.contains("per_second"), "{rate}");
    server.stop();

    // What was kept is found, and goes.
    let server = Server::start(folder.path(), &["--delete-mode", "immediate"]);
    assert_eq!(count(&server, "reap"), 5);
    done(admin(&server, &["reap", "start", "b", "--per-second", "1000"]));
    until("all are reaped", || count(&server, "reap") == 0);
    assert_eq!(count(&server, "erase"), 7);
    server.stop();
}

#[test]
fn a_reader_that_leaves_is_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--durability", "none"]);
    let mut client = server.connect();
    let options = client::WriteOptions::default();
    for n in 0..3000 {
        let key = format!("a key that is rather long, so that the pipe is soon full: {n}");
        client.put(None, b"many", Some(key.as_bytes()), client::Content::default(), &options).unwrap();
    }
    for args in [["ls", "many"], ["ls", ""]] {
        let args = ["kv", args[0], "--address", &server.pb, args[1]];
        let args = if args[4].is_empty() { &args[..4] } else { &args[..] };
        let mut command = annulet(folder.path(), args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    }
}

#[test]
fn what_was_stored_is_there_after_a_stop_and_a_kill_and_passes_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("annulet-data");
    let check = |code| {
        let output = run(folder.path(), &["check", "annulet-data"]);
        assert_eq!(output.status.code(), Some(code), "{}{}", stdout(&output), stderr(&output));
        stdout(&output)
    };
    // What is printed finds no reader: the exit code tells damage all the same.
    let unread = |code| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = annulet(folder.path(), &["check", "annulet-data"]);
        let output =
            command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr(&output)), (Some(code), String::new()));
    };
    let server = Server::start(folder.path(), &["--shards", "2", "--ring-size", "16"]);
    assert!(server.banner.contains("(new)"), "{}", server.banner);
    for n in 0..50 {
        done(kv(&server, &["put", "books", &format!("book {n}"), &"x".repeat(n * 40)]));
    }
    let running = run(folder.path(), &["check", "annulet-data"]);
    assert!(refused(&running, 2).contains("another process uses this data folder"), "{}", stderr(&running));
    server.stop();
    assert!(check(0).ends_with("no damage\n"));
    unread(0);

    let server = Server::start(folder.path(), &[]);
    assert!(server.banner.contains("(stopped cleanly before)"), "{}", server.banner);
    let made_with =
        |line: &str| line.contains("ring_size") && line.contains("16") && line.ends_with("data folder");
    assert!(server.banner.lines().any(made_with), "{}", server.banner);
    assert_eq!(done(kv(&server, &["get", "books", "book 49"])).len(), 49 * 40);
    done(kv(&server, &["put", "books", "book 1", "changed"]));
    server.kill();
    assert!(check(0).ends_with("no damage\n"));
    let server = Server::start(folder.path(), &[]);
    assert!(server.banner.contains("(recovered after an unclean stop: "), "{}", server.banner);
    assert_eq!(done(kv(&server, &["get", "books", "book 1"])), "changed");
    server.signal(Signal::INT);
    assert!(server.wait().success());

    // A shard loses its ledger, and finds it again in its journal.
    let shard = data.join("shard-001");
    for name in ["MANIFEST", "MANIFEST.copy"] {
        std::fs::remove_file(shard.join(name)).unwrap();
    }
    for table in shard.join("tables").read_dir().unwrap() {
        std::fs::remove_file(table.unwrap().path()).unwrap();
    }
    assert!(check(1).starts_with("damaged   shard-001/MANIFEST at byte 0: the manifest is missing"));
    let text = done(run(folder.path(), &["check", "--repair", "annulet-data"]));
    assert!(text.contains("\nrepaired  shard-001: ") && text.contains("; nothing is lost\n"), "{text}");
    assert!(text.ends_with("no damage\n"), "{text}");
    let server = Server::start(folder.path(), &[]);
    for n in 2..50 {
        assert_eq!(done(kv(&server, &["get", "books", &format!("book {n}")])).len(), n * 40);
    }
    server.stop();

    let segment = data.join("shard-001/journal/0000000000000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&segment, bytes).unwrap();
    let text = check(1);
    assert!(text.starts_with("damaged   shard-001/journal/0000000000000001.seg at byte "), "{text}");
    assert!(text.contains("\n1 damaged place; "), "{text}");
    unread(1);
    let one = run(folder.path(), &["check", "annulet-data/shard-000"]);
    assert!(done(one).contains("1 store, "));
    std::fs::remove_dir_all(data.join("shard-001")).unwrap();
    assert!(check(1).contains("damaged   shard-001: the shard's folder is missing"));
    let empty = tempfile::tempdir().unwrap();
    assert!(refused(&run(empty.path(), &["check", "."]), 2).contains("not the data folder of a node"));
    assert!(refused(&run(empty.path(), &["check", "nowhere"]), 2).contains("nowhere: No such file"));
}

/// A record that is in no table yet loses its header, so it may be of any key, and of bucket properties.
#[test]
fn a_node_whose_journal_is_damaged_starts_when_the_loss_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--shards", "1"]);
    for n in 0..20 {
        done(kv(&server, &["put", "books", &format!("book {n}"), &format!("text {n}.")]));
    }
    server.kill();
    let segment = folder.path().join("annulet-data/shard-000/journal/0000000000000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    let find = |what: &[u8]| bytes.windows(what.len()).position(|bytes| bytes == what).unwrap();
    // A header stands right before its key.
    let header = find(b"text 9.") + b"text 9.".len()..find(b"text 10.") - 64;
    assert!(header.len() > 8, "{header:?}");
    bytes[header].iter_mut().for_each(|byte| *byte ^= 0x5a);
    std::fs::write(&segment, bytes).unwrap();

    let starts_not = || {
        let text = refused(&run(folder.path(), &["serve"]), 1);
        assert!(text.contains("record header checksum: `annulet check --repair` rebuilds"), "{text}");
    };
    starts_not();
    let repair = |more: &[&str]| run(folder.path(), &[&["check", "--repair", "annulet-data"], more].concat());
    assert_eq!(repair(&[]).status.code(), Some(1));
    starts_not();
    let output = repair(&["--accept-loss"]);
    let text = stdout(&output);
    assert!(text.contains("accepted  shard-000: keys from \"\" up to \"\": journal/"), "{text}");
    assert_eq!(output.status.code(), Some(1), "the damaged place is still there");

    let server = Server::start(folder.path(), &[]);
    assert_eq!(done(kv(&server, &["get", "books", "book 3"])), "text 3.");
    refused(&kv(&server, &["get", "books", "book 10"]), 1);
    done(kv(&server, &["put", "books", "book 10", "again"]));
    server.stop();
}

#[test]
fn a_folder_or_a_port_that_is_taken_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--shards", "2"]);
    let any = "127.0.0.1:0";
    let again = |args: &[&str]| run(folder.path(), &[&["serve"], args].concat());
    let text = refused(&again(&["--pb-listen", any, "--http-listen", any]), 1);
    assert!(text.contains("another process is using the data in ./annulet-data"), "{text}");
    for flags in [
        ["--pb-listen", &server.pb, "--http-listen", any],
        ["--pb-listen", any, "--http-listen", &server.http],
    ] {
        let text = refused(&again(&[&["--data", "other"], &flags[..]].concat()), 1);
        assert!(text.contains("cannot listen on 127.0.0.1:") && text.contains("in use"), "{text}");
        assert!(!folder.path().join("other").exists(), "nothing was made");
    }
    server.stop();
    for (flags, what) in [
        (["--shards", "3"], "shards = 2, not 3"),
        (["--ring-size", "8"], "ring-size = 64, not 8"),
        (["--backend", "memory"], "backend = annulet, not memory"),
    ] {
        let text = refused(&again(&[&flags[..], &["--pb-listen", any, "--http-listen", any]].concat()), 1);
        assert!(text.contains(what), "{text}");
    }
}

#[test]
fn a_backend_is_kept_and_what_it_cannot_do_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let serve = |args: &[&str]| {
        run(
            folder.path(),
            &[&["serve", "--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"], args].concat(),
        )
    };
    let text = refused(&serve(&["--backend", "leveldb"]), 2);
    assert!(text.contains("none of annulet, memory, bitcask, hash"), "{text}");
    let text = refused(&serve(&["--backend", "bitcask", "--durability", "interval"]), 1);
    assert!(text.contains("durability: the backend bitcask supports durability none and sync"), "{text}");
    assert!(!folder.path().join("annulet-data").exists(), "nothing was made");
    let server = Server::start(folder.path(), &["--backend", "bitcask", "--shards", "2"]);
    for n in 0..50 {
        done(kv(&server, &["put", "books", &format!("book {n}"), &"x".repeat(n * 40)]));
    }
    let answer = server.http_get("/buckets/books/index/n_int/7");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("{\"keys\":[]}"), "{answer}");
    let backup = |args: &[&str]| run(folder.path(), &[&["backup", "create"], args].concat());
    let text = refused(&backup(&["--node", &server.http]), 1);
    assert!(text.contains("a backup of a node with another backend than annulet"), "{text}");
    assert!(server.http_get("/stats").contains("\"storage_backend\":\"bitcask\""));
    server.kill();

    let server = Server::start(folder.path(), &[]);
    let is_kept =
        |line: &str| line.contains("backend") && line.contains("bitcask") && line.ends_with("data folder");
    assert!(server.banner.lines().any(is_kept), "{}", server.banner);
    assert_eq!(done(kv(&server, &["get", "books", "book 49"])).len(), 49 * 40);
    assert_eq!(done(kv(&server, &["ls", "books"])).lines().count(), 50);
    server.stop();
    let text = refused(&serve(&["--backend", "hash"]), 1);
    assert!(text.contains("backend = bitcask, not hash"), "{text}");
    let text = refused(&run(folder.path(), &["check", "annulet-data"]), 2);
    assert!(text.contains("the backend is bitcask"), "{text}");
    let text = refused(&backup(&["--data", "annulet-data", "backups"]), 2);
    assert!(text.contains("backups of the backend bitcask are not supported"), "{text}");

    let server = Server::start(folder.path(), &["--backend", "hash", "--data", "unordered"]);
    let answer = server.http_get("/buckets/books/index/n_int/7");
    assert!(
        answer.starts_with("HTTP/1.1 500 ") && answer.contains("{indexes_not_supported,hash}"),
        "{answer}"
    );
    server.stop();

    let server = Server::start(folder.path(), &["--backend", "memory", "--data", "forgotten"]);
    done(kv(&server, &["put", "books", "dune", "spice"]));
    assert_eq!(done(kv(&server, &["get", "books", "dune"])), "spice");
    server.stop();
    let server = Server::start(folder.path(), &["--data", "forgotten"]);
    assert!(!kv(&server, &["get", "books", "dune"]).status.success(), "it is in memory only");
    server.stop();
}

#[test]
fn a_type_has_a_store_of_its_own_and_what_that_cannot_do_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let any = ["serve", "--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    let serve = |args: &[&str]| run(folder.path(), &[&any[..], args].concat());
    let text = refused(&serve(&["--type-backends", "cache=memory,cache=hash"]), 2);
    assert!(text.contains("--type-backends: the type cache comes twice"), "{text}");
    let text = refused(&serve(&["--type-backends", "cache=memory", "--durability", "interval"]), 1);
    assert!(
        text.contains("the backend memory for buckets of type cache supports durability none and sync"),
        "{text}"
    );
    assert!(!folder.path().join("annulet-data").exists(), "nothing was made");

    let types = "cache=memory,archive=bitcask";
    let server = Server::start(folder.path(), &["--type-backends", types, "--shards", "2"]);
    for name in ["cache", "archive", "plain"] {
        for change in ["create", "activate"] {
            done(run(folder.path(), &["admin", "bucket-type", change, name, "--node", &server.http]));
        }
        for n in 0..20 {
            done(kv(&server, &["put", "--type", name, "books", &format!("{name} {n:02}"), name]));
        }
    }
    done(kv(&server, &["put", "books", "dune", "spice"]));
    let listed = |server: &Server, name: &str| {
        done(kv(server, &["ls", "--type", name, "books"])).lines().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let expected = |name: &str| (0..20).map(|n| format!("{name} {n:02}")).collect::<BTreeSet<_>>();
    for name in ["cache", "archive", "plain"] {
        assert_eq!(listed(&server, name), expected(name));
    }
    let stats = server.http_get("/stats");
    assert!(stats.contains("\"storage_backend\":\"annulet\""), "{stats}");
    assert!(stats.contains("\"storage_type_backends\":\"archive=bitcask,cache=memory\""), "{stats}");
    let backup = |args: &[&str]| run(folder.path(), &[&["backup", "create"], args].concat());
    let text = refused(&backup(&["--node", &server.http]), 1);
    assert!(text.contains("a backup of a node with another backend than annulet"), "{text}");
    server.kill();

    let server = Server::start(folder.path(), &[]);
    let is_kept = |line: &str| line.contains("type_backends") && line.ends_with("data folder");
    assert!(server.banner.lines().any(is_kept), "{}", server.banner);
    for name in ["archive", "plain"] {
        assert_eq!(listed(&server, name), expected(name));
        assert_eq!(done(kv(&server, &["get", "--type", name, "books", &format!("{name} 19")])), name);
    }
    assert!(listed(&server, "cache").is_empty(), "it was in memory only");
    assert_eq!(done(kv(&server, &["get", "books", "dune"])), "spice");
    server.stop();

    let text = refused(&serve(&["--type-backends", "archive=hash"]), 1);
    let differ = "type-backends = archive=bitcask,cache=memory, not archive=hash";
    assert!(text.contains(differ), "{text}");
    let text = refused(&serve(&["--type-backends", ""]), 1);
    assert!(text.contains("type-backends = archive=bitcask,cache=memory, not none"), "{text}");
    let text = done(run(folder.path(), &["check", "annulet-data"]));
    assert!(
        text.contains("\nnot checked: objects of type archive, stored by the backend bitcask\n"),
        "{text}"
    );
    let text = refused(&backup(&["--data", "annulet-data", "backups"]), 2);
    assert!(text.contains("the backend bitcask for buckets of type archive"), "{text}");
    let made = Server::start(folder.path(), &["--data", "plain"]);
    made.stop();
    let text = refused(&serve(&["--data", "plain", "--type-backends", "cache=memory"]), 1);
    assert!(text.contains("type-backends = none, not cache=memory"), "{text}");
}

#[test]
fn options_come_from_four_places_and_mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("annulet.toml");
    std::fs::write(&file, "pb_listen = '127.0.0.1:0'\nhttp_listen = '127.0.0.1:0'\nring_size = 8\n").unwrap();
    let mut command = annulet(folder.path(), &["serve", "--name", "a@b", "--show-options"]);
    command.env("ANNULET_DURABILITY", "interval").env("ANNULET_NAME", "c@d").env("ANNULET_SHARTS", "3");
    command.stderr(Stdio::piped());
    let server = Server::started(&mut command);
    for (name, value, origin) in [
        ("name", "a@b", "--name"),
        ("durability", "interval", "ANNULET_DURABILITY"),
        ("ring_size", "8", "annulet.toml:3"),
        ("sync_interval", "1s", "default"),
    ] {
        let row = [name, value, origin];
        let is_row = |line: &str| line.split_whitespace().eq(row);
        assert!(server.banner.lines().any(is_row), "{row:?} in {}", server.banner);
    }
    server.stop();
    let changed = Server::start(folder.path(), &["--durability", "sync", "--name", "a@b"]);
    let options: Vec<&str> = changed.banner.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    let names: Vec<&str> = options.iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["pb_listen", "http_listen", "name", "ring_size", "(the"], "only what is changed");
    // What is printed works as it is printed.
    let tried: String =
        changed.banner.lines().skip_while(|line| *line != "try it:").skip(1).collect::<Vec<_>>().join("\n");
    let shell =
        std::process::Command::new("sh").args(["-c", &tried]).current_dir(folder.path()).output().unwrap();
    assert_eq!(stdout(&shell), "A beginning is a very delicate time.", "{tried}: {}", stderr(&shell));
    changed.stop();

    std::fs::write(&file, "# mine\nring-size = 8\n").unwrap();
    let text = refused(&run(folder.path(), &["serve"]), 1);
    assert!(
        text.starts_with("annulet: annulet.toml:2: unknown key \"ring-size\"; did you mean ring_size?; "),
        "{text}"
    );
    std::fs::remove_file(&file).unwrap();
    let text = refused(&run(folder.path(), &["serve", "--config", "no.toml"]), 1);
    assert!(text.starts_with("annulet: no.toml: No such file"), "{text}");
    let text = refused(&run(folder.path(), &["serve", "--ring-size", "63"]), 2);
    assert!(text.starts_with("annulet: --ring-size: "), "{text}");
    let text = refused(&annulet(folder.path(), &["serve"]).env("ANNULET_SHARDS", "0").output().unwrap(), 1);
    assert_eq!(text, "annulet: ANNULET_SHARDS: \"0\" is not a number from 1 to 256\n");
    let text = refused(&annulet(folder.path(), &["serve"]).env("ANNULET_LOG", "loud").output().unwrap(), 1);
    assert!(text.starts_with("annulet: ANNULET_LOG: \"loud\" is none of "), "{text}");
    std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
    for args in
        [["serve", "--data", "link"], ["serve", "--data", "link/below"], ["serve", "--config", "link"]]
    {
        let text = refused(&run(folder.path(), &args), 1);
        assert!(text.contains("link is a symbolic link to nowhere, which does not exist"), "{text}");
    }
    let text = refused(&run(folder.path(), &["check", "link"]), 2);
    assert!(text.contains("link is a symbolic link to nowhere, which does not exist"), "{text}");
    std::fs::write(folder.path().join("a file"), "").unwrap();
    let any = ["--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    let text = refused(&run(folder.path(), &[&["serve", "--data", "a file"], &any[..]].concat()), 1);
    assert!(text.contains("a file"), "{text}");
}
