use super::*;
use crate::scenario::Program;
use crate::{Experiment, Form, Played, RESULTS, Subject};
use bench::history;
use bench::workload::Load;
use bench::{Control, Identity};
use std::time::Duration;

const TEXT: &str = r#"
title = "a title"
source = "a page"
[scenario]
nodes = 3
[workload]
duration = "60s"
concurrency = 16
keys = { kind = "uniform", count = 1000 }
operation = [{ op = "get" }, { op = "update" }]
[[variant]]
name = "strong"
scenario = { consistent_type = "s" }
workload = { bucket_type = "s", consistent = true, history = "h.jsonl", concurrency = 8 }
[[variant]]
name = "etcd"
scenario = { program = "etcd" }
workload = { driver = "etcd" }
[small]
workload = { duration = "5s", concurrency = 4 }
[[small.variant]]
name = "etcd"
workload = { concurrency = 2 }
[[row]]
name = "rate"
figure = "throughput"
over = "etcd"
at_least = 2.0
[[row]]
name = "rate of etcd"
figure = "throughput"
variant = "etcd"
[[row]]
name = "wrong answers"
figure = "violations"
at_most = 0.0
"#;

fn parse(text: &str, form: Form) -> Result<Experiment, String> {
    Experiment::parse("X", text, form)
}

fn variants(experiment: &Experiment) -> &Variants {
    match &experiment.subject {
        Ok(Subject::Nodes(variants)) => variants,
        other => panic!("it is of nodes: {other:?}"),
    }
}

#[test]
fn a_form_replaces_parts_of_all_variants_and_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let read = |form: Form, name: &str| {
        let experiment = parse(TEXT, form).unwrap();
        let path = variants(&experiment).write(name, &folder.path().join(name), &[]).unwrap();
        let scenario = Scenario::read(&path).unwrap();
        let workload = Workload::read(&scenario.workload).unwrap();
        (scenario, workload)
    };
    for (form, name, concurrency, seconds) in [
        (Form::Full, "strong", 8, 60),
        (Form::Full, "etcd", 16, 60),
        // A variant's own part is stronger than a form's, unless the form's is for this variant.
        (Form::Small, "strong", 8, 5),
        (Form::Small, "etcd", 2, 5),
    ] {
        let (scenario, workload) = read(form, name);
        assert_eq!(workload.concurrency, concurrency, "{form:?} {name}");
        assert_eq!(workload.duration, Some(Duration::from_secs(seconds)), "{form:?} {name}");
        let is_etcd = name == "etcd";
        assert_eq!(scenario.program == Program::Etcd, is_etcd);
        assert_eq!(scenario.consistent_type.is_none(), is_etcd);
        let history = (!is_etcd).then(|| folder.path().join(name).join(HISTORY));
        assert_eq!(workload.history, history, "it lies in the variant's folder");
    }
}

#[test]
fn variants_that_make_no_sense_are_refused() {
    for (from, to, part) in [
        ("name = \"etcd\"\nscenario", "name = \"strong\"\nscenario", "two of this name"),
        ("name = \"etcd\"\nscenario", "name = \"../up\"\nscenario", "letters, digits and hyphens"),
        ("driver = \"etcd\"", "driver = \"pb\"", "no server for the driver pb"),
        ("program = \"etcd\"", "program = \"etcd\", consistent_type = \"s\"", "it has no options"),
        ("program = \"etcd\"", "program = \"etcd\", options = { shards = 2 }", "it has no options"),
        ("program = \"etcd\"", "program = \"riak\"", "riak"),
        ("over = \"etcd\"", "over = \"redis\"", "no variant \"redis\""),
        ("over = \"etcd\"", "label = \"cas\"", "\"cas\""),
        ("over = \"etcd\"", "engine = \"rocksdb\"", "no engines"),
        ("variant = \"etcd\"", "variant = \"redis\"", "no variant \"redis\""),
        ("figure = \"violations\"", "figure = \"violations\"\nvariant = \"etcd\"", "no `history`"),
        (
            "name = \"strong\"\n",
            "name = \"strong\"\nrate = { share = 0.7, of = \"etcd\" }\n",
            "played before",
        ),
        (
            "name = \"etcd\"\n",
            "name = \"etcd\"\nrate = { share = 0.0, of = \"strong\" }\n",
            "a share up to 10",
        ),
        ("nodes = 3", "engines = [\"annulet\"]", "[[variant]] goes with nodes"),
    ] {
        let wrong = parse(&TEXT.replacen(from, to, 1), Form::Full).unwrap_err();
        assert!(wrong.contains(part), "{to}: {wrong}");
    }
    let text = TEXT
        .replace("name = \"etcd\"\nworkload = { concurrency", "name = \"redis\"\nworkload = { concurrency");
    let wrong = parse(&text, Form::Small).unwrap_err();
    assert!(wrong.contains("no variant \"redis\""), "{wrong}");
}

/// A run of a few operations, whose history says this.
fn played(name: &str, folder: &Path, lines: &str) -> Played {
    let text = "driver = \"null\"\nwarm_up = \"0s\"\noperations_max = 50\noperation = [{ op = \"ping\" }]";
    let workload = Workload::parse(text, "w").unwrap();
    let folder = folder.join(name);
    fs::create_dir_all(&folder).unwrap();
    bench::run(&workload, &folder.join(RESULTS), &Identity::default(), &Control::default(), &mut ()).unwrap();
    if !lines.is_empty() {
        let path = folder.join(HISTORY);
        let mut writer = history::Writer::create(&path, "w").unwrap();
        writer.append(lines.as_bytes()).unwrap();
        writer.finish().unwrap();
    }
    Played::open(name, &folder).unwrap()
}

#[test]
fn a_row_is_of_its_variant_and_a_variant_that_was_not_played_has_none() {
    let line = |op: &str, value: &str, call: u32| {
        let end = call + 5;
        format!(
            "{{\"process\":0,\"op\":\"{op}\",\"key\":\"b/k\",\"value\":{value},\"call\":{call},\"return\":{end},\
             \"result\":\"ok\"}}\n"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let right = [line("put_once", "1", 0), line("get", "1", 10)].concat();
    let wrong = [line("put_once", "1", 0), line("get", "null", 10)].concat();
    let etcd = played("etcd", folder.path(), "");
    let experiment = parse(TEXT, Form::Full).unwrap();
    let reached = |round: Vec<Played>| {
        let found = experiment.judge(&[round]);
        found.iter().map(|it| it.as_ref().map(|it| it.reached)).collect::<Vec<_>>()
    };

    let strong = played("strong", &folder.path().join("right"), &right);
    assert_eq!(strong.failures(), Vec::<String>::new());
    assert_eq!(reached(vec![strong.clone()])[1..], [None, Some(Some(true))]);
    assert_eq!(reached(vec![strong])[0], None, "a ratio needs both");

    let strong = played("strong", &folder.path().join("wrong"), &wrong);
    assert!(strong.failures()[0].contains("1 of 1 keys"), "{:?}", strong.failures());
    let both = reached(vec![strong, etcd]);
    assert_eq!((both[1], both[2]), (Some(None), Some(Some(false))));
}

#[test]
fn a_rate_is_a_share_of_the_throughput_of_a_variant_before() {
    let text =
        TEXT.replacen("name = \"etcd\"\n", "name = \"etcd\"\nrate = { share = 0.5, of = \"strong\" }\n", 1);
    let experiment = parse(&text, Form::Full).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut strong = played("strong", folder.path(), "");
    strong.results.summary.total.throughput.median = 3000.0;
    let path = variants(&experiment).write("etcd", folder.path(), &[strong]).unwrap();
    let workload = Workload::read(&Scenario::read(&path).unwrap().workload).unwrap();
    assert_eq!(workload.load, Load::Poisson(1500.0));
    let missing = variants(&experiment).write("etcd", folder.path(), &[]).unwrap_err().to_string();
    assert!(missing.contains("\"strong\"") && missing.contains("was not measured"), "{missing}");
}
