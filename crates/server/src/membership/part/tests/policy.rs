//! The security policy in the metadata log, and its way to the doors.

use super::alone::{alone, config, propose};
use super::*;
use ::membership::log::Failed;
use ::security::{Mode, Settings, Slot, Slots};
use std::fs;

pub(super) fn opened(entered: Entered, data: &Path, life: u64, policies: &Arc<Policies>) -> Part {
    Part::open(entered, data, life, &queue(1).0, policies).unwrap()
}

fn secured(part: &Part) -> Command {
    mode_change(part, Mode::On)
}

pub(super) fn mode_change(part: &Part, mode: Mode) -> Command {
    let slot = Slot::Settings(Settings { mode, ..Settings::default() });
    let changes = vec![(slot.key().encode(), Some(slot.encode()))];
    Command::ChangePolicy { expected: part.state().policy_version(), changes }
}

/// A node alone with security on, after its process has ended.
pub(super) fn with_security(data: &Path) {
    let policies = policies();
    let mut part = opened(alone(&config(data), None).unwrap(), data, 1, &policies);
    register(&mut part, &Mailboxes::new(1));
    assert_eq!(policies.version(), 0);
    let command = secured(&part);
    propose(&mut part, command).unwrap();
    assert_eq!((policies.version(), policies.current().settings().mode), (1, Mode::On));
}

#[test]
fn security_is_on_before_a_node_opens_its_doors_again() {
    let data = tempfile::tempdir().unwrap();
    with_security(data.path());
    let policies = policies();
    let part = opened(alone(&config(data.path()), Some(&Owner::Alone)).unwrap(), data.path(), 2, &policies);
    assert_eq!((policies.version(), policies.current().settings().mode), (1, Mode::On));
    assert_eq!(part.state().policy_version(), 1);
}

#[cfg(feature = "planted")]
#[test]
fn planted_security_off_after_restart_is_seen() {
    base::planted::plant(Some(base::planted::Planted::SecurityOffAfterRestart));
    let caught = std::panic::catch_unwind(security_is_on_before_a_node_opens_its_doors_again);
    base::planted::plant(None);
    assert!(caught.is_err(), "a node that opens its doors without its policy passes the test");
}

#[test]
fn a_node_alone_keeps_its_policy_under_another_name() {
    let data = tempfile::tempdir().unwrap();
    with_security(data.path());
    let policies = policies();
    let other = Config { name: "b@h".to_owned(), ..config(data.path()) };
    drop(opened(alone(&other, Some(&Owner::Alone)).unwrap(), data.path(), 2, &policies));
    assert_eq!(policies.current().settings().mode, Mode::On);
    let list = members(&["a@h"]);
    let text = refused(entered(&config(data.path()), Some(&Owner::Alone), list, Vec::new()));
    assert!(text.contains("a security policy: a cluster does not take them over"), "{text}");
}

#[test]
fn a_node_alone_does_not_go_on_without_its_policy() {
    let data = tempfile::tempdir().unwrap();
    let mut part = opened(alone(&config(data.path()), None).unwrap(), data.path(), 1, &policies());
    register(&mut part, &Mailboxes::new(1));
    let command = secured(&part);
    propose(&mut part, command).unwrap();
    fs::remove_dir_all(data.path().join("membership")).unwrap();
    let lost = part.set_starts(7).unwrap_err();
    assert!(lost.contains("membership"), "{lost}");
}

#[test]
fn a_member_has_the_policy_of_its_standing_until_it_has_the_log() {
    let data = tempfile::tempdir().unwrap();
    let slot = Slot::Settings(Settings { mode: Mode::On, ..Settings::default() });
    let (names, policies) = (["a@h", "b@h"], policies());
    let config = Config { name: "b@h".to_owned(), ..config(data.path()) };
    let mut founded = entered(&config, None, members(&names), Vec::new()).unwrap();
    let changes = vec![(slot.key().encode(), Some(slot.encode()))];
    founded.standing.state.apply(&Command::ChangePolicy { expected: 0, changes }).unwrap();
    founded.standing.as_of = AsOf { epoch: 1, commit: 9 };
    let part = opened(founded, data.path(), 1, &policies);
    assert!(part.membership.state().is_none());
    assert_eq!(policies.current().settings().mode, Mode::On);
}

#[test]
fn others_cannot_read_the_log() {
    use std::os::unix::fs::PermissionsExt;
    let data = tempfile::tempdir().unwrap();
    with_security(data.path());
    let log = fs::metadata(data.path().join("membership/log")).unwrap();
    assert_eq!(log.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_restored_standing_has_no_users() {
    let user =
        ::security::Command::parse(&["add-user", "zoe"]).unwrap().plan(&Slots::default(), None).unwrap();
    let [::security::Change::Put(user)] = &user[..] else { panic!("one record") };
    let data = tempfile::tempdir().unwrap();
    let mut standing = entered(&config(data.path()), None, members(&["a@h"]), Vec::new()).unwrap().standing;
    let changes = vec![(user.key().encode(), Some(user.encode()))];
    standing.state.apply(&Command::ChangePolicy { expected: 0, changes }).unwrap();
    let has_user = |bytes: &[u8]| bytes.windows(3).any(|text| text == b"zoe");
    let bytes = Bytes::from(standing.encode());
    assert!(has_user(&bytes));
    let restored = without_users("membership/standing", bytes).unwrap();
    assert!(!has_user(&restored) && Standing::decode(&restored).unwrap().node == standing.node);
    assert!(without_users("membership/standing", Bytes::new()).is_err());
}

/// What an operator's command is answered by a node alone.
pub(super) fn command(part: &mut Part, line: &str) -> Answered {
    let (answer, mut answered) = oneshot::channel();
    let now = part.clock.now();
    ask_policy(part, asked(line), answer, now);
    part.advance(&Mailboxes::new(1), None).unwrap();
    answered.try_recv().unwrap()
}

/// Puts a command about security to a node.
pub(super) fn ask_policy(
    part: &mut Part,
    asked: PolicyCommand,
    answer: oneshot::Sender<Answered>,
    now: Monotonic,
) {
    assert!(request(part, Request::Policy { asked: Box::new(asked), answer }, now).is_none());
}

fn asked(line: &str) -> PolicyCommand {
    let words: Vec<&str> = line.split(' ').collect();
    let command = ::security::Command::parse(&words).unwrap();
    let credential = command.password().map(|_| ::security::Credential::Argon2id("$verifier".into()));
    PolicyCommand { command, credential }
}

pub(super) fn node_alone(data: &Path, policies: &Arc<Policies>) -> Part {
    let mut part = opened(alone(&config(data), None).unwrap(), data, 1, policies);
    register(&mut part, &Mailboxes::new(1));
    part
}

#[test]
fn commands_change_the_policy_before_they_are_answered() {
    let data = tempfile::tempdir().unwrap();
    let policies = policies();
    let mut part = node_alone(data.path(), &policies);
    let answered = command(&mut part, "add-user ann password=secret");
    assert_eq!((answered.status, &answered.body["text"]), (200, &json!("")));
    assert!(policies.current().user(b"ann").is_some());
    let answered = command(&mut part, "grant riak_kv.get on t to ann");
    assert_eq!(
        (&answered.body["text"], &answered.body["version"]),
        (&json!("Successfully granted"), &json!(2))
    );
    let again = command(&mut part, "grant riak_kv.get on t to ann");
    assert_eq!((again.status, &again.body["version"]), (200, &json!(2)), "it changes nothing");

    let shown = command(&mut part, "print-users").body;
    let row = json!({ "username": "ann", "member_of": [], "password": "set", "options": [] });
    assert_eq!(shown["tables"][0]["rows"], json!([row]));
    assert!(!shown.to_string().contains("verifier"), "{shown}");
    for (line, status, text) in [
        ("add-user Ann", 409, "This name is already in use"),
        ("del-user bob", 404, "User not recognized: bob"),
        ("grant riak_kv.get on any to bob", 404, "Name(s) not recognized: bob"),
        ("add-user all", 400, "This name is reserved for system use"),
    ] {
        let answered = command(&mut part, line);
        assert_eq!((answered.status, &answered.body["error"]), (status, &json!(text)), "{line}");
    }

    let refused = command(&mut part, "enable");
    let text = refused.body["error"].as_str().unwrap();
    assert!(refused.status == 409 && text.starts_with("Security is not enabled: nobody could"), "{text}");
    for line in ["add-source ann 127.0.0.1/32 trust", "grant annulet.admin on any to ann"] {
        assert_eq!(command(&mut part, line).status, 200, "{line}");
    }
    assert_eq!(command(&mut part, "enable").body["text"], "Enabled");
    assert_eq!(policies.current().settings().mode, Mode::On);
    assert_eq!(command(&mut part, "del-user ann").body["text"], "Successfully deleted ann");
    assert!(policies.current().user(b"ann").is_none());
    assert_eq!(command(&mut part, "print-grants all").body["tables"][2]["rows"], json!([]));
}

#[test]
fn a_command_that_changes_nothing_is_answered() {
    let data = tempfile::tempdir().unwrap();
    let mut part = node_alone(data.path(), &policies());
    for line in ["add-user root", "grant riak_kv.get on any to root", "disable"] {
        assert_eq!(command(&mut part, line).status, 200, "{line}");
    }
    let version = part.membership.state().unwrap().policy_version();
    for line in ["disable", "grant riak_kv.get on any to root"] {
        assert_eq!(command(&mut part, line).status, 200, "{line} again");
    }
    assert_eq!(part.membership.state().unwrap().policy_version(), version);
}

#[test]
fn the_first_change_waits_for_all_members() {
    let data = tempfile::tempdir().unwrap();
    let mut part = part(data.path(), &["a@h", "b@h", "c@h"], 1);
    let (answer, mut answered) = oneshot::channel();
    let now = part.clock.now();
    ask_policy(&mut part, asked("add-user ann"), answer, now);
    let mut advance = |now| proposals(&mut part, &|_| None, now);
    assert!(advance(now).is_empty() && answered.try_recv().is_err());
    assert!(advance(now + Duration::from_secs(6)).is_empty());
    let answered = answered.try_recv().unwrap();
    let text = answered.body["error"].as_str().unwrap();
    assert!(answered.status == 409 && text.starts_with("b@h is not reached"), "{text}");
}

/// The next proposal of a caller: its token, and its command.
fn proposed(part: &mut Part, now: Monotonic) -> Option<(u64, Command)> {
    let inputs = proposals(part, &|_| None, now);
    inputs.into_iter().find_map(|input| match input {
        Input::Propose { token, command } => Some((token, command)),
        _ => None,
    })
}

/// A caller that wants a user, and its first proposal.
fn add_user(part: &mut Part, name: &str) -> (oneshot::Receiver<Answered>, Monotonic, (u64, Command)) {
    let (answer, answered) = oneshot::channel();
    let (now, version) = (part.clock.now(), part.state().policy_version());
    ask_policy(part, asked(&format!("add-user {name}")), answer, now);
    let first = proposed(part, now).unwrap();
    assert_eq!((expected(&first.1), proposed(part, now)), (version, None), "one proposal at a time");
    (answered, now, first)
}

fn expected(command: &Command) -> u64 {
    let Command::ChangePolicy { expected, .. } = command else { panic!("{command:?}") };
    *expected
}

/// The change of another node, which was faster.
fn change_of_another(part: &mut Part, mode: Mode) {
    let slot = Slot::Settings(Settings { mode, ..Settings::default() });
    let changes = vec![(slot.key().encode(), Some(slot.encode()))];
    let expected = part.state().policy_version();
    propose(part, Command::ChangePolicy { expected, changes }).unwrap();
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn changes_are_planned_again_after_another() {
    use ::membership::state::Rejected;
    let data = tempfile::tempdir().unwrap();
    let mut part = node_alone(data.path(), &policies());
    let (mut answered, now, (token, _)) = add_user(&mut part, "ann");
    change_of_another(&mut part, Mode::Permissive);
    assert!(part.requests.end(token, Err(Failed::Rejected(Rejected::Stale)), &part.membership, now));
    let (token, command) = proposed(&mut part, now + SECOND).unwrap();
    assert_eq!(expected(&command), 1);
    propose(&mut part, command).unwrap();
    assert!(part.requests.end(token, Ok(()), &part.membership, now + SECOND));
    assert_eq!(proposed(&mut part, now + SECOND), None);
    assert_eq!(answered.try_recv().unwrap().status, 200);
}

#[test]
fn a_change_whose_end_is_unknown_is_proposed_again_for_its_version() {
    let data = tempfile::tempdir().unwrap();
    let mut part = node_alone(data.path(), &policies());
    let (mut answered, now, (token, lost)) = add_user(&mut part, "ann");
    assert!(part.requests.end(token, Err(Failed::Unknown), &part.membership, now));
    assert_eq!(proposed(&mut part, now), None, "the log has a little time");
    let (token, again) = proposed(&mut part, now + SECOND).unwrap();
    assert_eq!(again, lost);
    assert!(part.requests.end(token, Err(Failed::NoLeader), &part.membership, now + SECOND));
    assert!(answered.try_recv().is_err());

    // The first one was carried out after all.
    propose(&mut part, lost).unwrap();
    assert_eq!(proposed(&mut part, now + 2 * SECOND), None);
    assert_eq!(answered.try_recv().unwrap().status, 200);
}

#[test]
fn an_unknown_change_in_whose_place_another_came_is_planned_again() {
    let data = tempfile::tempdir().unwrap();
    let mut part = node_alone(data.path(), &policies());
    let (mut answered, now, (token, _)) = add_user(&mut part, "ann");
    assert!(part.requests.end(token, Err(Failed::Unknown), &part.membership, now));
    change_of_another(&mut part, Mode::Permissive);
    let (token, command) = proposed(&mut part, now + SECOND).unwrap();
    assert_eq!(expected(&command), 1, "the first one can never be carried out");
    propose(&mut part, command).unwrap();
    assert!(part.requests.end(token, Ok(()), &part.membership, now + SECOND));
    assert_eq!(proposed(&mut part, now + SECOND), None);
    assert_eq!(answered.try_recv().unwrap().status, 200);
}

#[test]
fn a_change_that_nobody_can_find_out_about_is_told_so() {
    let data = tempfile::tempdir().unwrap();
    let mut part = node_alone(data.path(), &policies());
    let (mut answered, now, (token, _)) = add_user(&mut part, "ann");
    assert!(part.requests.end(token, Err(Failed::Unknown), &part.membership, now));
    change_of_another(&mut part, Mode::Permissive);
    change_of_another(&mut part, Mode::Off);
    assert_eq!(proposed(&mut part, now + SECOND), None);
    let told = answered.try_recv().unwrap();
    assert_eq!((told.status, &told.body["error"]), (503, &json!(Failed::Unknown.to_string())));

    let (mut answered, now, (token, _)) = add_user(&mut part, "bob");
    assert!(part.requests.end(token, Err(Failed::Unknown), &part.membership, now));
    assert_eq!(proposed(&mut part, now + 31 * SECOND), None);
    let told = answered.try_recv().unwrap();
    assert_eq!((told.status, &told.body["error"]), (503, &json!(Failed::Unknown.to_string())));
}

#[test]
fn security_is_not_put_in_force_beside_an_older_program() {
    let data = tempfile::tempdir().unwrap();
    let names = ["a@h", "b@h", "c@h"];
    let mut founded = entered(&config(data.path()), None, members(&names), Vec::new()).unwrap();
    let mut slots = Slots::default();
    for line in ["add-user ann", "add-source ann 127.0.0.1/32 trust", "grant annulet.admin on any to ann"] {
        let words: Vec<&str> = line.split(' ').collect();
        let changes = ::security::Command::parse(&words).unwrap().plan(&slots, None).unwrap();
        slots.apply(&changes).unwrap();
    }
    let changes = slots.iter().map(|slot| (slot.key().encode(), Some(slot.encode()))).collect();
    founded.standing.state.apply(&Command::ChangePolicy { expected: 0, changes }).unwrap();
    let mut part = opened(founded, data.path(), 1, &policies());
    let now = part.clock.now();
    let older = |node: NodeId| (node == NodeId(2)).then_some(node::peer::VERSION_POLICY - 1);
    for line in ["enable", "permissive"] {
        let (answer, mut answered) = oneshot::channel();
        ask_policy(&mut part, asked(line), answer, now);
        assert!(proposals(&mut part, &older, now + Duration::from_secs(6)).is_empty());
        let answered = answered.try_recv().unwrap();
        let text = answered.body["error"].as_str().unwrap();
        assert!(text.starts_with("c@h runs a program without the security policy"), "{text}");
    }
    // Who is away cannot read the log with an older program, so nobody waits for it.
    let (answer, _answered) = oneshot::channel();
    ask_policy(&mut part, asked("enable"), answer, now);
    assert_eq!(proposals(&mut part, &|_| None, now).len(), 1);
}
