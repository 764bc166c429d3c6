//! The mark of a data folder that security is on, beside metadata logs that are lost, older or of other nodes.

use super::alone::{alone, config, propose};
use super::policy::{ask_policy, command, mode_change, node_alone, opened, with_security};
use super::*;
use ::security::Mode;
use std::fs;

/// The part of a node alone whose process has ended before; it leads when it has noted this start.
fn opened_again(data: &Path, life: u64, policies: &Arc<Policies>) -> Part {
    let mut part = opened(alone(&config(data), Some(&Owner::Alone)).unwrap(), data, life, policies);
    while part.state().members()[&part.node()].starts < part.identity().starts {
        part.step(Input::Tick, None, &Mailboxes::new(1), None).unwrap();
    }
    part
}

/// Changes the mode, as another node does.
fn set_mode(part: &mut Part, mode: Mode) {
    let change = mode_change(part, mode);
    propose(part, change).unwrap();
}

fn marked_version(data: &Path) -> Option<u64> {
    SecurityMark::find(data).enabled_at().map(|point| point.version)
}

/// A data folder whose mark has version 5 of the policy, and whose log has version 2 with the mode `older`.
fn with_older_log(data: &Path, older: Mode) {
    let mut part = node_alone(data, &policies());
    let first = if older == Mode::On { Mode::Off } else { Mode::On };
    for mode in [first, older] {
        set_mode(&mut part, mode);
    }
    let log = data.join("membership/log");
    let before = fs::read(&log).unwrap();
    for mode in [Mode::Permissive, Mode::Off, Mode::On] {
        set_mode(&mut part, mode);
    }
    drop(part);
    assert_eq!(marked_version(data), Some(5));
    fs::write(&log, before).unwrap();
}

/// The text of a refusal, which is also that of a conflict.
fn refusal(answered: &Answered) -> &str {
    assert_eq!(answered.status, 409, "{:?}", answered.body);
    answered.body["error"].as_str().unwrap()
}

#[test]
fn a_lost_log_leaves_the_doors_closed_until_security_is_turned_off() {
    let data = tempfile::tempdir().unwrap();
    with_security(data.path());
    let mark = data.path().join("security-on");
    assert!(mark.exists(), "it is there before the change is acknowledged");
    let files = backed_up_files(data.path()).unwrap();
    assert!(files.iter().any(|(name, _)| name == "security-on"));
    fs::remove_dir_all(data.path().join("membership")).unwrap();

    let policies = policies();
    let open = |life| {
        opened(alone(&config(data.path()), Some(&Owner::Alone)).unwrap(), data.path(), life, &policies)
    };
    let mut part = open(2);
    assert_eq!(part.state().policy_version(), 0, "the log is lost");
    assert_eq!(policies.current().settings().mode, Mode::On);
    assert_ne!(policies.version(), ::security::Access::default().version(), "new connections go by it");
    register(&mut part, &Mailboxes::new(1));
    assert_eq!(command(&mut part, "status").body["text"], "Enabled");
    assert_eq!(command(&mut part, "add-user ann").status, 200);
    assert!(mark.exists() && policies.current().settings().mode == Mode::On, "the log has no mode yet");
    assert_eq!(command(&mut part, "disable").status, 200);
    assert!(!mark.exists() && policies.current().settings().mode == Mode::Off);
    drop(part);
    drop(open(3));
    assert_eq!(policies.current().settings().mode, Mode::Off);
}

#[test]
fn an_older_log_beside_the_mark_leaves_the_doors_closed() {
    let data = tempfile::tempdir().unwrap();
    let (log, mark) = (data.path().join("membership/log"), data.path().join("security-on"));
    let mut part = opened(alone(&config(data.path()), None).unwrap(), data.path(), 1, &policies());
    register(&mut part, &Mailboxes::new(1));
    let mut older = Vec::new();
    for mode in [Mode::On, Mode::Off, Mode::On] {
        let change = mode_change(&part, mode);
        propose(&mut part, change).unwrap();
        assert_eq!(mark.exists(), mode == Mode::On);
        if mode == Mode::Off {
            older = fs::read(&log).unwrap();
        }
    }
    drop(part);
    fs::write(&log, older).unwrap();

    let policies = policies();
    let part = opened_again(data.path(), 2, &policies);
    assert_eq!(part.state().policy_version(), 2, "the log is from before");
    assert_eq!(policies.current().settings().mode, Mode::On);
    assert!(mark.exists());
}

#[test]
fn mark_moves_along_with_the_versions_that_have_security_on() {
    let data = tempfile::tempdir().unwrap();
    let mut part = node_alone(data.path(), &policies());
    for line in ["add-user ann", "add-source ann 127.0.0.1/32 trust", "grant annulet.admin on any to ann"] {
        assert_eq!(command(&mut part, line).status, 200, "{line}");
    }
    assert_eq!(marked_version(data.path()), None);
    assert_eq!(command(&mut part, "enable").status, 200);
    assert_eq!(marked_version(data.path()), Some(4));
    assert_eq!(command(&mut part, "enable").status, 200, "it changes nothing");
    assert_eq!(command(&mut part, "add-user bob").status, 200);
    assert_eq!(marked_version(data.path()), Some(5));
    assert_eq!(command(&mut part, "permissive").status, 200);
    assert_eq!(command(&mut part, "enable").status, 200);
    assert_eq!(marked_version(data.path()), Some(7));
    assert_eq!(command(&mut part, "disable").status, 200);
    assert!(!data.path().join("security-on").exists());
}

#[test]
fn older_log_refuses_to_disable_and_names_the_way_out() {
    let data = tempfile::tempdir().unwrap();
    with_older_log(data.path(), Mode::Off);
    let policies = policies();
    let mut part = opened_again(data.path(), 2, &policies);
    assert_eq!(command(&mut part, "status").body["text"], "Enabled");
    for line in ["disable", "permissive", "add-user bob"] {
        let answered = command(&mut part, line);
        let text = refusal(&answered);
        assert!(text.contains("has version 2") && text.contains("security-on has version 5"), "{text}");
        assert!(text.contains("`accept-older-log` at the local socket"), "{text}");
    }
    assert_eq!(part.state().policy_version(), 2, "no number of changes reaches the version of the mark");
    assert_eq!((policies.current().settings().mode, marked_version(data.path())), (Mode::On, Some(5)));

    assert_eq!(command(&mut part, "accept-older-log").status, 200);
    assert_eq!(policies.current().settings().mode, Mode::Off);
    assert!(!data.path().join("security-on").exists());
    assert_eq!(command(&mut part, "disable").status, 200);
    assert!(refusal(&command(&mut part, "accept-older-log")).contains("is not newer"));
    drop(part);
    drop(opened_again(data.path(), 3, &policies));
    assert_eq!(policies.current().settings().mode, Mode::Off);
}

#[test]
fn older_log_may_turn_security_on_again() {
    let data = tempfile::tempdir().unwrap();
    with_older_log(data.path(), Mode::Off);
    let policies = policies();
    let mut part = opened_again(data.path(), 2, &policies);
    assert_eq!(command(&mut part, "enable").status, 200, "nobody can be locked out by it");
    assert_eq!((policies.version(), policies.current().settings().mode), (3, Mode::On));
    assert_eq!(command(&mut part, "add-user ann").status, 200);
    refusal(&command(&mut part, "disable"));
    assert_eq!(marked_version(data.path()), Some(5), "an older log does not lower the mark by itself");

    assert_eq!(command(&mut part, "accept-older-log").status, 200);
    assert_eq!((marked_version(data.path()), policies.current().settings().mode), (Some(4), Mode::On));
    assert_eq!(command(&mut part, "disable").status, 200);
    assert_eq!(policies.current().settings().mode, Mode::Off);
    assert!(!data.path().join("security-on").exists());
}

#[test]
fn older_log_with_security_on_is_one_until_it_is_accepted() {
    let data = tempfile::tempdir().unwrap();
    with_older_log(data.path(), Mode::On);
    let policies = policies();
    let mut part = opened_again(data.path(), 2, &policies);
    assert_eq!((policies.version(), marked_version(data.path())), (2, Some(5)));
    refusal(&command(&mut part, "disable"));
    set_mode(&mut part, Mode::Off);
    assert_eq!(policies.current().settings().mode, Mode::On, "another node's change opens no door here");
    assert_eq!(command(&mut part, "accept-older-log").status, 200);
    assert_eq!((policies.version(), policies.current().settings().mode), (3, Mode::Off));
}

#[test]
fn log_is_not_accepted_before_its_end_is_known() {
    let data = tempfile::tempdir().unwrap();
    with_older_log(data.path(), Mode::Off);
    let policies = policies();
    let mut part = opened_again(data.path(), 2, &policies);
    let (answer, mut answered) = oneshot::channel();
    let now = part.clock.now();
    let asked = PolicyCommand { command: ::security::Command::AcceptOlderLog, credential: None };
    ask_policy(&mut part, asked, answer, now);
    let mut failed = ::membership::log::Failed::NoLeader;
    for seconds in 0..3 {
        let now = now + Duration::from_secs(seconds);
        let inputs = proposals(&mut part, &|_| None, now);
        let [Input::Propose { token, .. }] = inputs[..] else { panic!("one proposal: {inputs:?}") };
        assert!(part.requests.end(token, Err(failed), &part.membership, now));
        part.follow_policy().unwrap();
        assert_eq!((policies.current().settings().mode, marked_version(data.path())), (Mode::On, Some(5)));
        failed = ::membership::log::Failed::Unknown;
    }
    proposals(&mut part, &|_| None, now + Duration::from_secs(31));
    assert_eq!(answered.try_recv().unwrap().status, 503);
}
