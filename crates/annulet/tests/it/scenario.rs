//! `annulet bench scenario` on real processes: what it does to them, what it leaves behind, what it refuses.

use crate::common::run;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const WORKLOAD: &str = r#"
concurrency = 4
warm_up = "1s"
duration = "4s"
[keys]
kind = "uniform"
count = 500
[value]
kind = "fixed"
size = 200
[[operation]]
op = "get"
weight = 2
[[operation]]
op = "update"
weight = 1
"#;

fn play(folder: &Path, scenario: &str) -> Output {
    std::fs::write(folder.join("w.toml"), WORKLOAD).unwrap();
    std::fs::write(folder.join("s.toml"), scenario).unwrap();
    Command::new(env!("CARGO_BIN_EXE_annulet"))
        .args(["bench", "scenario"])
        .arg(folder.join("s.toml"))
        .arg("--out")
        .arg(folder.join("results"))
        .output()
        .unwrap()
}

/// A port from which ten are free: the listener's own is given up again.
fn base_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // Below the ports that connections are given.
    10_240 + listener.local_addr().unwrap().port() % 2_000 * 10
}

/// What was done, as it was marked: kinds and texts.
fn marks(results: &Path) -> Vec<(String, String)> {
    let events = std::fs::read_to_string(results.join("events.jsonl")).unwrap();
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |event: &Value, name: &str| event[name].as_str().unwrap().to_owned();
    let marks = events.map(|event| (text(&event, "kind"), text(&event, "text")));
    marks.filter(|(kind, _)| kind != "phase").collect()
}

#[test]
fn a_node_is_administered_and_stopped_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let exe = env!("CARGO_BIN_EXE_annulet");
    let step = |second: f32, args: &str| {
        format!(
            "[[at]]\nsecond = {second}\ndo = \"run\"\ncommand = [{exe:?}, {args}, \"--node\", \"{{n1.http}}\"]\n"
        )
    };
    let scenario = format!(
        "workload = \"w.toml\"\nnodes = 1\nbase_port = {}\n{}{}\
         [[at]]\nsecond = 2\ndo = \"stop\"\nnode = 1\nfor = 0.5\n",
        base_port(),
        step(1.2, "\"admin\", \"bucket-type\", \"create\", \"carts\""),
        // Stopped and started again, the node still knows of the type.
        step(4.0, "\"admin\", \"bucket-type\", \"activate\", \"carts\""),
    );
    let output = play(folder.path(), &scenario);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let marks = marks(&folder.path().join("results"));
    let done: Vec<&str> = marks.iter().map(|(_, text)| &**text).collect();
    assert!(done[0].contains("create carts") && done[4].contains("activate carts"), "{marks:?}");
    assert_eq!(done[1..4], [&*format!("done: {}", done[0]), "stop n1", "start n1"]);
    // A command that fails ends the run, and says why.
    let fails = scenario.replace("create", "update");
    std::fs::remove_dir_all(folder.path().join("results")).unwrap();
    let output = play(folder.path(), &fails);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("carts"), "{said}");
}

#[test]
fn a_node_is_killed_and_paused_under_load_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = format!(
        "name = \"killed\"\nworkload = \"w.toml\"\nnodes = 1\nbase_port = {}\n\
         [[at]]\nsecond = 1.5\ndo = \"pause\"\nnode = 1\nfor = 0.3\n\
         [[at]]\nsecond = 2.5\ndo = \"kill\"\nnode = 1\nfor = 0.5\n",
        base_port()
    );
    let output = play(folder.path(), &scenario);
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let results = folder.path().join("results");
    let marks = marks(&results);
    let expected =
        [("fault", "pause n1"), ("repair", "continue n1"), ("fault", "kill n1"), ("repair", "start n1")];
    assert_eq!(marks, expected.map(|(kind, text)| (kind.to_owned(), text.to_owned())), "{said}");
    let manifest: Value =
        serde_json::from_str(&std::fs::read_to_string(results.join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["name"], "killed");
    let data = manifest["servers"][0]["data"].as_str().unwrap();
    assert!(!Path::new(data).exists(), "its folder was temporary");
    let port = manifest["servers"][0]["address"].as_str().unwrap();
    assert!(std::net::TcpStream::connect(port).is_err(), "its node was stopped");
    let report = Command::new(env!("CARGO_BIN_EXE_annulet")).args(["bench", "report"]).arg(&results).output();
    assert!(report.unwrap().status.success());
    let page = std::fs::read_to_string(results.join("report.html")).unwrap();
    assert!(page.contains("kill n1") && page.contains("mark fault"));
}

/// A scenario of one node with a certificate for its clients, a user `load`, and security on before the load.
fn secured_scenario(folder: &Path) -> String {
    let place = |name: &str| folder.join(name).display().to_string();
    let certificates = ["admin", "cert", "--dir", "certs", "--host", "127.0.0.1"];
    assert!(run(folder, &certificates).status.success());
    std::fs::write(folder.join("load.password"), "secret\n").unwrap();
    let (cert, key) = (place("certs/127.0.0.1.pem"), place("certs/127.0.0.1.key"));
    let (ca, password) = (place("certs/ca.pem"), place("load.password"));
    let commands = [
        format!("\"add-user\", \"load\", \"--new-password-file\", {password:?}"),
        "\"add-source\", \"load\", \"127.0.0.1/32\", \"password\"".to_owned(),
        "\"grant\", \"riak_kv.get,riak_kv.put,annulet.admin\", \"on\", \"any\", \"to\", \"load\"".to_owned(),
        "\"enable\"".to_owned(),
    ];
    let security = |words: &String| {
        format!("[\"{{annulet}}\", \"admin\", \"--data\", \"{{n1.data}}\", \"security\", {words}],")
    };
    format!(
        "workload = \"w.toml\"\nfill = 100\nbase_port = {}\nprepare = [{}]\n\
         [options]\ntls_cert = {cert:?}\ntls_key = {key:?}\n\
         [login]\nca = {ca:?}\nuser = \"load\"\npassword_file = {password:?}\n",
        base_port(),
        commands.iter().map(security).collect::<String>(),
    )
}

#[test]
fn secured_node_is_loaded_by_a_login() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = secured_scenario(folder.path());
    // A fill in plaintext or without a user would fail.
    let output = play(folder.path(), &scenario);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("workload = \"w.toml\"\nnods = 3\n", "line 2"),
        ("workload = \"missing.toml\"\n", "missing.toml"),
        ("workload = \"w.toml\"\n[[at]]\nsecond = 1\ndo = \"cut\"\nnode = 1\n", "a node is cut from others"),
    ];
    for (scenario, what) in cases {
        let output = play(folder.path(), scenario);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(what), "{scenario}: {said}");
        assert!(!folder.path().join("results").exists());
    }
}
