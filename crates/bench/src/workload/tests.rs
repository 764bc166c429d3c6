use super::*;
use proptest::prelude::*;

const LEAST: &str = "[keys]\nkind = \"uniform\"\ncount = 10\n[[operation]]\nop = \"get\"\n";

fn refused(text: &str) -> String {
    Workload::parse(text, "w.toml").unwrap_err().to_string()
}

#[test]
fn the_least_workload_has_defaults() {
    let workload = Workload::parse(LEAST, "dir/w.toml").unwrap();
    assert_eq!((&*workload.name, workload.driver, workload.concurrency), ("w", DriverKind::Pb, 16));
    assert_eq!(workload.duration, Some(Duration::from_secs(60)));
    assert_eq!(workload.operations[0].label, "get");
    assert!(workload.check.reads);
}

#[test]
fn servers_are_named_or_numbered() {
    let text = format!("addresses = [\"localhost:1\", \"[::1]:2\"]\nstats = [\"n1.example:3\"]\n{LEAST}");
    let workload = Workload::parse(&text, "w.toml").unwrap();
    assert_eq!(workload.targets(), workload.addresses);
    let named = [&workload.addresses[0], &workload.addresses[1], &workload.stats[0]].map(ToString::to_string);
    assert_eq!(named, ["localhost:1", "[::1]:2", "n1.example:3"]);
    for (key, address, why) in [
        ("addresses", "localhost", "it has no port"),
        ("stats", "a b:1", "the name of its host has ' '"),
        ("addresses", "127.0.0.1:x", "its port is no number up to 65535"),
    ] {
        let text = refused(&format!("{key} = [{address:?}]\n{LEAST}"));
        assert!(text.contains(&format!("{address:?} is not a host and a port, such as ")), "{text}");
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn peers_have_defaults() {
    for (name, address) in [("redis-cluster", "127.0.0.1:6379"), ("etcd", "127.0.0.1:2379")] {
        let workload = Workload::parse(&format!("driver = {name:?}\n{LEAST}"), "w.toml").unwrap();
        assert_eq!((workload.driver.name(), &*workload.addresses[0].to_string()), (name, address));
    }
    let read = |text: &str| Workload::parse(&format!("{text}{LEAST}"), "w.toml").unwrap();
    let cassandra = read("driver = \"cassandra\"\n").peer.cassandra;
    assert_eq!((&*cassandra.keyspace, &*cassandra.table, cassandra.replication), ("bench", "objects", 3));
    assert_eq!(cassandra.consistency, Consistency::Quorum);
    let told = read("driver = \"cassandra\"\ncassandra = { replication = 1, consistency = \"local-one\" }\n");
    let options = told.peer.options(told.driver);
    assert_eq!((&*options["replication"], &*options["consistency"]), ("1", "local-one"));
    assert_eq!(read("driver = \"redis\"\nredis = { database = 3 }\n").peer.database, 3);
}

#[test]
fn mistakes_are_refused_with_their_line() {
    assert_eq!(refused(&format!("{LEAST}wieght = 3\n")), "w.toml, line 6: unknown key \"wieght\"");
    assert_eq!(refused("name = 3\n"), "w.toml, line 1: there is no [[operation]]");
    assert!(refused("x = = 3").starts_with("w.toml, line 1: "));
    let refusals = [
        ("concurrency = 0\n", "line 1: concurrency is not a whole number from 1 to 100000"),
        ("engine = { memory_mib = 0 }\n", "memory_mib is not a whole number from 1 to 16777216"),
        ("duration = \"5\"\n", "line 1: duration: \"5\" is not a time"),
        (
            "driver = \"dynamo\"\n",
            "line 1: driver is not one of pb, http, engine, null, redis, redis-cluster",
        ),
        ("redis = { database = 1 }\n", "line 1: [redis] is for driver = \"redis\""),
        (
            "driver = \"redis-cluster\"\nredis = { database = 1 }\n",
            "line 2: [redis] is for driver = \"redis\"",
        ),
        ("driver = \"etcd\"\ncassandra = { table = \"t\" }\n", "line 2: [cassandra] is for driver"),
        ("driver = \"cassandra\"\ncassandra = { table = \"T\" }\n", "line 2: table: \"T\" is not 1 to 48"),
        (
            "driver = \"cassandra\"\ncassandra = { consistency = \"any\" }\n",
            "consistency is not one of one, two",
        ),
        ("driver = \"redis\"\nquorums = { r = 2 }\n", "line 1: redis has no quorums: that is Riak's"),
        ("driver = \"etcd\"\nbucket_type = \"t\"\n", "line 1: etcd has no bucket_type"),
        ("driver = \"cassandra\"\nstats = [\"127.0.0.1:1\"]\n", "line 1: cassandra has no stats"),
        ("addresses = [\"nowhere\"]\n", "line 1: addresses: \"nowhere\" is not a host and a port"),
        ("load = { kind = \"fixed\" }\n", "line 1: an open loop has a rate"),
        ("threads = 20\n", "more threads than operations"),
        ("value = { size = 10 }\n[[operation]]\nop = \"put\"\nlabel = \"p\"\n", "no room to be checked"),
        ("[[operation]]\nop = \"get\"\nlabel = \"get\"\n", "two operations are called \"get\""),
        ("[[operation]]\nop = \"query\"\n", "a query has a [query]"),
        (
            "consistent = true\n",
            "line 1: consistent = true is for a bucket_type, and the drivers pb and http",
        ),
        ("driver = \"null\"\nbucket_type = \"t\"\nconsistent = true\n", "consistent = true is for"),
        ("[[operation]]\nop = \"cas\"\n", "cas: only a workload with consistent = true has such operations"),
        ("history = \"h\"\n", "line 1: a history of a bucket type needs consistent = true"),
        ("driver = \"null\"\nhistory = \"h\"\ncheck = { sample = 2 }\n", "a history needs every value"),
        ("driver = \"null\"\nhistory = \"h\"\ncheck = { reads = false }\n", "a history needs every value"),
        ("check = { tolerate = [\"late\"] }\n", "is not one of lost, stale, resurrected, corrupt, wrong-row"),
        ("index = [{ field = \"f\" }]\n", "ends in _bin or _int"),
        ("index = [{ field = \"F_bin\" }]\n", "small letters"),
        ("index = [{ field = \"f_int\", entries = 2 }]\n", "the number of its key"),
        (
            "index = [{ field = \"f_int\", terms = { kind = \"unique\" } }]\n",
            "independently of the written keys",
        ),
        ("index = [{ field = \"f_int\" }, { field = \"f_int\" }]\n", "two indexes have the field f_int"),
    ];
    for (line, expected) in refusals {
        let (head, tail) = if line.starts_with('[') { (LEAST, line) } else { (line, LEAST) };
        let what = match line.split_once("\n[[") {
            Some((first, rest)) => refused(&format!("{first}\n{LEAST}[[{rest}")),
            None => refused(&format!("{head}{tail}")),
        };
        assert!(what.contains(expected), "{what}");
    }
}

const INDEXED: &str = r#"
driver = "null"
[keys]
kind = "uniform"
count = 1000
[[index]]
field = "number_int"
[[index]]
field = "group_bin"
entries = 2
terms = { kind = "zipf", count = 100 }
[[operation]]
op = "put"
[[operation]]
op = "query"
query = QUERY
"#;

fn indexed(query: &str) -> Result<Workload, String> {
    Workload::parse(&INDEXED.replace("QUERY", query), "w.toml").map_err(|error| error.to_string())
}

#[test]
fn a_query_of_terms_knows_how_many_to_ask_for() {
    let wanted = |query: &str| indexed(query).unwrap().operations[1].query.clone().unwrap();
    let of = |index, count, span, whole| Wanted::Terms { index, count, span, whole };
    let query = wanted(
        "{ kind = \"terms\", index = \"number_int\", results = 50, whole = true, max_results = 20, pages = 2 }",
    );
    assert_eq!((query.of.clone(), query.rows_max()), (of(0, 1000, 50, true), 40));
    // 2,000 entries under 100 terms: 20 each.
    assert_eq!(wanted("{ kind = \"terms\", index = \"group_bin\", results = 50 }").of, of(1, 100, 3, false));
    assert_eq!(wanted("{ kind = \"terms\", index = \"group_bin\", span = 1 }").rows_max(), u64::MAX);
    let parsed = indexed("{ index = \"x_bin\", from = \"a\", to = \"b\" }").unwrap();
    assert_eq!(parsed.operations[0].indexes, Indexes::Listed);
    assert!(parsed.indexes[1].changes && !parsed.indexes[0].changes);
    for (query, part) in [
        ("{ kind = \"terms\", index = \"other_int\", span = 1 }", "no [[index]] with the field other_int"),
        ("{ kind = \"terms\", index = \"group_bin\" }", "either span or results"),
        ("{ kind = \"terms\", index = \"group_bin\", span = 101 }", "from 1 to 100"),
        (
            "{ kind = \"terms\", index = \"group_bin\", span = 1, whole = true }",
            "only an index without terms",
        ),
        ("{ kind = \"postcode\", pages = 2 }", "max_results"),
        (
            "{ kind = \"terms\", index = \"number_int\", span = 2, whole = true, term_regex = \"x\" }",
            "an incomplete result",
        ),
        ("{ kind = \"postcode\", span = 2 }", "unknown key \"span\""),
    ] {
        let refused = indexed(query).unwrap_err();
        assert!(refused.contains(part), "{query}: {refused}");
    }
    let http = INDEXED.replace("\"null\"", "\"http\"").replace("[keys]", "[keys]\nformat = \"binary\"");
    let http = http.replace("QUERY", "{ kind = \"postcode\" }");
    assert!(refused(&http).contains("HTTP tells keys as text"));
}

const PACKED: &str = r#"
driver = "engine"
engine = { packed = { slots = 64 } }
value = { size = 16 }
[keys]
kind = "uniform"
count = 1000
[[operation]]
op = "get"
[[operation]]
op = "update"
bucket = "other"
"#;

#[test]
fn keys_are_entries_of_packs() {
    let engine = Workload::parse(PACKED, "w.toml").unwrap().engine;
    assert_eq!(engine.options(1)["packed"], "64 entries of 16 bytes");
    let packing = engine.packing.unwrap();
    let (bench, number) = packing.entry(b"bench", b"000000000070").unwrap();
    let (other, _) = packing.entry(b"other", b"000000000070").unwrap();
    assert!(number == 70 && bench != other);
    for (bucket, key) in [("none", "000000000070"), ("bench", "70"), ("bench", "")] {
        assert_eq!(packing.entry(bucket.as_bytes(), key.as_bytes()), None, "{bucket} {key}");
    }
    assert!(Workload::parse(LEAST, "w.toml").unwrap().engine.packing.is_none());
}

#[test]
fn what_cannot_be_packed_is_refused() {
    let lines = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(lines.path(), "a\nb\n").unwrap();
    let file = format!("kind = \"file\"\npath = {:?}", lines.path());
    for (from, to, part) in [
        ("\"engine\"\n", "\"null\"\n", "line 3: packed is for driver = \"engine\""),
        ("{ slots = 64 }", "{ }", "line 3: packed says how many"),
        ("{ slots = 64 }", "{ slots = 0 }", "slots is not a whole number from 1 to 65535"),
        (
            "{ slots = 64 }",
            "{ slots = 5000 }",
            "line 3: packed: a pack of 80000 bytes is over the limit of 65536",
        ),
        ("{ slots = 64 }", "{ slots = 64, bytes = 16 }", "unknown key \"bytes\""),
        ("size = 16 ", "size = 15 ", "less than 16 bytes have no room to be checked"),
        ("size = 16 ", "kind = \"uniform\", min = 16 ", "packed: all entries have one size"),
        ("size = 16 ", "size = 70000 ", "packed: all entries have one size"),
        ("bucket = \"other\"", "value = { size = 17 }", "packed: all entries have one size"),
        ("bucket = \"other\"", "keys = { kind = \"unique\" }", "update: unique keys have no numbers"),
        ("bucket = \"other\"", "indexes = \"person\"", "update: entries have no index entries"),
        ("op = \"get\"", "op = \"list-keys\"", "list-keys: entries are in no index, and are not listed"),
        ("[keys]", "[[index]]\nfield = \"n_int\"\n[keys]", "get: entries have no index entries"),
        ("kind = \"uniform\"\ncount = 1000", &file, "the number of a key is told by its name"),
        ("count = 1000", "count = 1000\ndigits = 17", "the number of a key is told by its name"),
    ] {
        assert!(PACKED.contains(from), "{from}");
        let what = refused(&PACKED.replacen(from, to, 1));
        assert!(what.contains(part), "{to}: {what}");
    }
}

#[test]
fn examples_of_the_documentation_are_read() {
    let page = include_str!("../../../../docs/bench.md");
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect();
    assert!(examples.len() >= 5);
    for example in examples {
        // Those are read by the crate `experiments`.
        if example.contains("[[row]]") || example.contains("workload = ") {
            continue;
        }
        // A fragment stands for a place in a workload.
        let whole = if example.contains("[[operation]]") {
            example.to_owned()
        } else {
            format!("{example}\n{LEAST}")
        };
        let whole = if example.contains("[keys]") {
            whole.replace(&LEAST[..LEAST.find("[[").unwrap()], "")
        } else {
            whole
        };
        if let Err(error) = Workload::parse(&whole, "docs/bench.md") {
            panic!("{error} in\n{whole}");
        }
    }
}

#[test]
fn workloads_of_the_readme_are_read() {
    let put = include_str!("../../../../docs/benchmarks/workloads/put.toml");
    let get = include_str!("../../../../docs/benchmarks/workloads/get.toml");
    let consistent = include_str!("../../../../docs/benchmarks/workloads/consistent.toml");
    assert!(Workload::parse(consistent, "docs/benchmarks/workloads").unwrap().keeps_contexts());
    let [put, get] = [put, get].map(|text| Workload::parse(text, "docs/benchmarks/workloads").unwrap());
    // The second reads the keys that the first has written.
    let place = |it: &Workload| (it.driver, it.operations[0].bucket.clone(), it.operations[0].keys.clone());
    assert_eq!(place(&put), place(&get));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn any_text_is_read_or_refused(text in "(\\[keys\\]|\\[\\[operation\\]\\]|kind|count|op|weight|value|load|rate|=|\"|get|uniform|[0-9]{1,20}|-|\\.|\\{|\\}|,|\n| ){0,40}") {
        drop(Workload::parse(&text, "random"));
    }

    #[test]
    fn any_change_of_a_workload_is_read_or_refused(at in 0..LEAST.len(), with in any::<char>()) {
        let mut text: Vec<char> = LEAST.chars().collect();
        text[at] = with;
        drop(Workload::parse(&text.into_iter().collect::<String>(), "random"));
    }
}

#[test]
fn what_fills_a_store_writes_each_key_of_each_bucket_once() {
    let text = r#"
driver = "null"
[load]
kind = "poisson"
rate = 10
[keys]
kind = "uniform"
count = 1000
[value]
size = 100
[[operation]]
op = "get"
[[operation]]
op = "put"
value = { size = 70 }
[[operation]]
op = "head"
bucket = "other"
[[operation]]
op = "list-keys"
bucket = "third"
[[operation]]
label = "new"
op = "put"
bucket = "fourth"
keys = { kind = "unique" }
"#;
    let workload = Workload::parse(text, "text").unwrap();
    let fills = workload.fills(300);
    let buckets: Vec<(&str, Op)> =
        fills.iter().map(|fill| (&fill.operations[0].bucket[..], fill.operations[0].op)).collect();
    assert_eq!(buckets, [("bench", Op::Put), ("other", Op::Put)]);
    assert_eq!(fills[0].operations[0].size, workload.operations[1].size, "that of the operation that writes");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let identity = crate::run::Identity::default();
    let summary =
        crate::run::run(&fills[0], &out, &identity, &crate::run::Control::default(), &mut ()).unwrap();
    assert!(summary.verdict.passed, "{:?}", summary.verdict);
    assert_eq!((summary.total.done, summary.total.failed), (300, 0));
}
