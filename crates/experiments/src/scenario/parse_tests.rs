use super::*;
use proptest::prelude::*;

const KILLED: &str = r#"
name = "one killed"
workload = "pareto.toml"
fill = 500
nodes = 3
[options]
durability = "sync"
ring_size = 64
[[at]]
second = 60
do = "kill"
node = 2
for = 30
[[at]]
second = 10.5
do = "run"
command = ["annulet", "kv", "ls"]
"#;

#[test]
fn steps_are_in_order_and_what_lasts_has_an_end() {
    let scenario = Scenario::parse(KILLED).unwrap();
    assert_eq!(scenario.options["ring_size"], "64");
    let steps: Vec<(f64, String)> =
        scenario.steps.iter().map(|step| (step.at.as_secs_f64(), step.action.text())).collect();
    let expected = [(10.5, "run annulet kv ls"), (60.0, "kill n2"), (90.0, "start n2")];
    assert_eq!(steps, expected.map(|(at, text)| (at, text.to_owned())));
    assert_eq!(scenario.steps[1].action.kind(), "fault");
    assert!(!scenario.has_limits() && scenario.fill == 500);
}

#[test]
fn login_has_files_and_nodes_of_its_own_program() {
    let text = "workload = \"w\"\nprepare = [[\"a\", \"b\"], [\"c\"]]\n";
    let login = "[login]\nca = \"ca.pem\"\nuser = \"load\"\npassword_file = \"p\"\n";
    let scenario = Scenario::parse(&format!("{text}{login}")).unwrap();
    assert_eq!(scenario.prepare, [vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()]]);
    let files = scenario.login.unwrap();
    assert_eq!((files.user.as_deref(), files.cert), (Some("load"), None));
    assert!(Scenario::parse("workload = \"w\"\nprepare = [[]]\n").unwrap_err().starts_with("prepare: "));
    let etcd = Scenario::parse(&format!("program = \"etcd\"\nworkload = \"w\"\n{login}"));
    assert!(etcd.unwrap_err().contains("login"));
    assert!(
        Scenario::parse(&format!("workload = \"w\"\n{login}pass = \"p\"\n")).unwrap_err().contains("line 6")
    );
}

#[test]
fn some_nodes_may_come_later_and_not_all_have_clients() {
    let scenario = |lines: &str| Scenario::parse(&format!("workload = \"w\"\nnodes = 5\n{lines}"));
    let all = scenario("").unwrap();
    assert_eq!((all.founders, all.clients), (5, vec![0, 1, 2, 3, 4]));
    let growing = scenario("founders = 3\n[[at]]\nsecond = 1\ndo = \"start\"\nnode = 4\n").unwrap();
    assert_eq!((growing.founders, growing.clients), (3, vec![0, 1, 2]));
    assert_eq!(growing.steps[0].action, Action::Start(3));
    assert_eq!(scenario("clients = [1, 3]").unwrap().clients, [0, 2]);
    for (wrong, what) in
        [("founders = 0", "founders"), ("founders = 6", "founders"), ("clients = []", "clients")]
    {
        assert!(scenario(wrong).unwrap_err().starts_with(what), "{wrong}");
    }
    assert!(scenario("founders = 3\nclients = [4]").unwrap_err().contains("1 to 3"), "it is not there yet");
}

#[test]
fn a_cut_without_others_is_from_all() {
    let text = "workload = \"w\"\nnodes = 3\nnamespaces = true\n[[at]]\nsecond = 1\ndo = \"cut\"\nnode = 2\nfor = 5\n";
    let scenario = Scenario::parse(text).unwrap();
    assert_eq!(scenario.steps[0].action, Action::Cut(1, vec![0, 2]));
    assert_eq!(scenario.steps[1].action, Action::Heal);
    assert_eq!(scenario.host(1).to_string(), "10.77.0.2");
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_place() {
    let step = |step: &str| format!("workload = \"w\"\nnodes = 3\n[[at]]\nsecond = 5\n{step}\n");
    let cases = [
        ("workload = \"w\"\nnode = 3\n".to_owned(), "line 2"),
        ("nodes = 3\n".to_owned(), "workload"),
        ("workload = \"w\"\nnodes = 0\n".to_owned(), "nodes: from 1 to 16"),
        ("workload = \"w\"\nnodes = 3\nbase_port = 65530\n".to_owned(), "base_port"),
        (step("do = \"explode\""), "explode"),
        (step("do = \"kill\""), "`node` is missing"),
        (step("do = \"kill\"\nnode = 4"), "no node 4"),
        (step("do = \"kill\"\nnode = 1\nread_iops = 5"), "`read_iops` means nothing here"),
        (step("do = \"cut\"\nnode = 1"), "namespaces = true"),
        (step("do = \"run\""), "`command` is missing"),
        (step("do = \"limit\"\nnode = 1"), "`memory_mib`"),
        (step("do = \"heal\"\nfor = 1"), "`for` goes with"),
        ("workload = \"w\"\n[[at]]\nsecond = -1\ndo = \"kill\"\nnode = 1\n".to_owned(), "a time is"),
    ];
    for (text, what) in cases {
        let error = Scenario::parse(&text).unwrap_err();
        assert!(error.contains(what), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,200}", cut in 0..400usize, second in prop::num::f64::ANY) {
        // Whatever it says, it comes back, and a refusal says why.
        let cut: String = KILLED.chars().take(cut).collect();
        let other = KILLED.replace("60", &second.to_string());
        for text in [text, cut, other] {
            if let Err(why) = Scenario::parse(&text) {
                prop_assert!(!why.is_empty(), "{text}");
            }
        }
    }
}
