//! Lines by hand, verdicts on files, and pieces beside the search of the whole.

use super::check::UNSEEN;
use super::pieces::pieces;
use super::read::read_from;
use super::*;
use crate::Error;
use base::Rng;
use base::rng::SplitMix64;
use proptest::prelude::*;
use std::path::Path;
use strong::linearizability::{self, Action, Operation, Outcome, Verdict};

const HEAD: &str = "{\"format\":1,\"name\":\"w\"}\n";

fn read_text(text: &str) -> Result<History, String> {
    read_from(text.as_bytes(), Path::new("f")).map_err(|error| error.to_string())
}

fn judged(lines: &[&str]) -> Report {
    let text = HEAD.to_owned() + &lines.join("\n") + "\n";
    check(&read_text(&text).unwrap(), STATES_MAX)
}

const LINES: [&str; 8] = [
    r#"{"process":0,"op":"put_once","key":"b/k","value":1,"call":10,"return":20,"result":"ok"}"#,
    r#"{"process":1,"op":"get","key":"b/k","value":1,"call":15,"return":30,"result":"ok"}"#,
    r#"{"process":1,"op":"cas","key":"b/k","value":2,"expected":1,"call":31,"return":40,"result":"ok"}"#,
    r#"{"process":0,"op":"cas","key":"b/k","value":3,"expected":1,"call":35,"return":42,"result":"failed"}"#,
    r#"{"process":0,"op":"put","key":"b/k","value":4,"call":50,"return":60,"result":"unavailable"}"#,
    r#"{"process":0,"op":"delete_if","key":"b/k","value":null,"expected":2,"call":61,"return":70,"result":"timeout"}"#,
    r#"{"process":2,"op":"get","key":"b/k","value":null,"call":80,"return":81,"result":"ok"}"#,
    r#"{"process":2,"op":"delete","key":"b/k","value":null,"call":82,"return":83,"result":"ok"}"#,
];

#[test]
fn lines_are_those_of_the_format() {
    let history = read_text(&(HEAD.to_owned() + &LINES.join("\n") + "\n")).unwrap();
    let requests = &history.keys["b/k"];
    assert_eq!(requests.len(), LINES.len());
    for (request, line) in requests.iter().zip(LINES) {
        let mut out = Vec::new();
        request.line("b/k").put(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("{line}\n"));
    }
    let actions = [
        Action::PutOnce(1),
        Action::Get,
        Action::Cas { expected: 1, value: 2 },
        Action::Cas { expected: 1, value: 3 },
        Action::Put(4),
        Action::DeleteIf { expected: 2 },
        Action::Get,
        Action::Delete,
    ];
    assert_eq!(requests.iter().map(|it| it.operation.action).collect::<Vec<_>>(), actions);
    let outcomes = requests.iter().map(|it| it.operation.outcome).collect::<Vec<_>>();
    let (read, done) = (|value| Outcome::Read(value), Outcome::Done);
    let (failed, unavailable) = (Outcome::Failed, Outcome::Unavailable);
    let timeout = Outcome::Timeout;
    assert_eq!(outcomes, [done, read(Some(1)), done, failed, unavailable, timeout, read(None), done]);
}

#[test]
fn a_file_begins_with_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    let mut writer = Writer::create(&path, "w").unwrap();
    writer.append(LINES[0].as_bytes()).unwrap();
    writer.append(b"\n").unwrap();
    assert!(!path.exists(), "it is not whole");
    writer.finish().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{HEAD}{}\n", LINES[0]));
    assert_eq!(read(&path).unwrap().keys.len(), 1);
    let again = Writer::create(&path, "w").err().unwrap();
    assert!(matches!(again, Error::Unusable(_)), "{again}");
    assert!(matches!(read(&folder.path().join("other")), Err(Error::Io { .. })));
}

#[test]
fn a_key_is_escaped_as_in_a_url() {
    let mut out = "before".to_owned();
    put_key(b"b/1", b"k ~\0\xFF%", &mut out);
    assert_eq!(out, "b%2F1/k%20~%00%FF%25");
}

#[test]
fn what_no_run_writes_is_refused() {
    let two = |first: &str, second: &str| format!("{HEAD}{first}\n{second}\n");
    let changed = |from: &str, to: &str| {
        assert!(LINES[2].contains(from), "{from}");
        format!("{HEAD}{}\n", LINES[2].replace(from, to))
    };
    for (text, why) in [
        (String::new(), "line 1: it is not whole"),
        ("{\"format\":1}\n".to_owned(), "line 1: no header"),
        (HEAD.replace('1', "2"), "line 1: format 2 is newer than this program, which reads 1"),
        (format!("{HEAD}{}", LINES[0]), "line 2: it is not whole"),
        (format!("{HEAD}\n"), "line 2: EOF"),
        (changed("\"cas\"", "\"swap\""), "line 2: unknown variant `swap`"),
        (changed("\"value\":2,", "\"value\":null,"), "line 2: a cas without a value"),
        (changed("\"expected\":1,", ""), "line 2: a cas without an expected value"),
        (changed("\"return\":40", "\"return\":30"), "line 2: its answer comes before its call"),
        (changed("\"call\":31,", ""), "line 2: missing field `call`"),
        (two(LINES[0], LINES[0]), "line 3: process 0 has two requests at a time"),
        (
            two(LINES[0], &LINES[0].replace("\"process\":0", "\"process\":1")),
            "line 3: value 1 is written twice",
        ),
        (two(LINES[5], LINES[4]), "line 3: process 0 goes on after a timeout"),
        (
            format!("{HEAD}{}\n", LINES[7].replace("ok", "failed")),
            "line 2: a delete has no condition that fails",
        ),
    ] {
        let refused = read_text(&text).unwrap_err();
        assert!(refused.starts_with(&format!("f: {why}")), "{refused}");
    }
}

#[test]
fn a_right_history_is_linearizable() {
    let report = judged(&LINES);
    assert_eq!((report.operations, report.keys), (8, 1));
    assert!(report.unknown.is_empty() && report.violations.is_empty(), "{report:?}");
}

#[test]
fn a_violation_names_its_requests() {
    let stale = LINES[6].replace("null", "1");
    let mut lines = LINES;
    lines[6] = &stale;
    let other = r#"{"process":9,"op":"get","key":"b/other","value":null,"call":1,"return":2,"result":"ok"}"#;
    let report = judged(&[&lines[..], &[other]].concat());
    assert_eq!((report.keys, report.violations.len()), (2, 1));
    let offence = &report.violations[0];
    assert_eq!((&*offence.key, offence.request.operation.call), ("b/k", 80));
    assert_eq!(offence.earlier.len(), 6);
    // The delete that timed out may come at any time.
    assert_eq!(offence.concurrent.iter().map(|it| it.operation.call).collect::<Vec<_>>(), [61]);
    assert!(offence.states.contains(&Some(2)), "{offence:?}");
}

#[test]
fn a_value_from_before_the_run_was_there_from_its_start() {
    let value = EARLIER_FROM + 7;
    let get = |call: u64, value: &str| {
        format!(
            "{{\"process\":{call},\"op\":\"get\",\"key\":\"b/k\",\"value\":{value},\"call\":{call},\"return\":{},\"result\":\"ok\"}}",
            call + 1
        )
    };
    let put = LINES[0].replace("put_once", "put");
    let of =
        |lines: &[String]| judged(&lines.iter().map(String::as_str).collect::<Vec<_>>()).violations.len();
    assert_eq!(of(&[get(0, &value.to_string()), put.clone(), get(90, "1")]), 0);
    assert_eq!(of(&[put, get(90, &value.to_string())]), 1, "it was written over");
    assert_eq!(of(&[get(0, "null"), get(90, &value.to_string())]), 1, "it was not there");
    assert_eq!(of(&[get(0, &VALUE_WRONG.to_string())]), 1, "nobody wrote it");
    // No request shows the value that was there.
    let failed = put_once_failed();
    assert_eq!(of(&[failed.clone(), get(90, "null")]), 1, "it was there, and nobody deleted it");
    assert_eq!(of(&[failed.clone(), LINES[7].replace("\"process\":2", "\"process\":3"), get(90, "null")]), 0);
    assert_eq!(of(&[get(0, "null"), failed]), 1, "it was not there");
}

fn put_once_failed() -> String {
    LINES[0].replace("ok", "failed")
}

#[test]
fn a_search_that_is_given_up_is_unknown() {
    let puts = (0..20).map(|at| {
        let value = at + 1;
        format!(
            r#"{{"process":{at},"op":"put","key":"b/k","value":{value},"call":1,"return":2,"result":"ok"}}"#
        )
    });
    let read = LINES[6].replace("\"process\":2", "\"process\":99").replace("null", "77");
    let lines: Vec<String> = puts.chain([read]).collect();
    let text = HEAD.to_owned() + &lines.join("\n") + "\n";
    let report = check(&read_text(&text).unwrap(), 1000);
    assert_eq!((report.unknown.len(), report.violations.len()), (1, 0));
}

fn done(call: u64, action: Action) -> Operation {
    Operation { call, end: call + 1, action, outcome: Outcome::Done }
}

fn got(call: u64, value: Option<u64>) -> Operation {
    Operation { call, end: call + 1, action: Action::Get, outcome: Outcome::Read(value) }
}

#[test]
fn nothing_is_cut_that_a_late_write_may_cross() {
    let late = |call, action| Operation { outcome: Outcome::Timeout, ..done(call, action) };
    let histories = [
        // The key is deleted, and the put-once takes effect.
        vec![
            done(1, Action::Put(1)),
            late(3, Action::PutOnce(2)),
            got(5, Some(1)),
            done(7, Action::Delete),
            got(9, Some(2)),
        ],
        // The value that the write waits for is written later.
        vec![
            late(1, Action::Cas { expected: 5, value: 6 }),
            got(3, None),
            done(5, Action::Put(5)),
            got(7, Some(6)),
        ],
        vec![done(1, Action::Put(1)), late(3, Action::Delete), got(5, Some(1)), got(7, None)],
        vec![late(1, Action::Put(1)), got(3, None), got(5, Some(1))],
    ];
    for history in histories {
        let report = check(&of_register(&history), STATES_MAX);
        assert!(report.violations.is_empty(), "{report:?}");
    }
}

#[test]
fn a_late_write_that_is_over_is_cut_off() {
    let late = |call, action| Operation { outcome: Outcome::Timeout, ..done(call, action) };
    let history = [
        done(1, Action::Put(1)),
        late(3, Action::Cas { expected: 1, value: 2 }),
        late(4, Action::PutOnce(3)),
        got(6, Some(1)),
        got(8, Some(2)),
        done(10, Action::Cas { expected: 2, value: 4 }),
    ];
    // From the first read on the compare-and-set may come; behind the second one nothing does.
    let ends: Vec<usize> = pieces(&history).iter().map(|it| *it.operations.last().unwrap()).collect();
    assert_eq!(ends, [0, 4, 5]);
}

/// A history of one register, some of whose answers are lost or wrong.
fn random_history(seed: u64, length: u64, wrong: u64, quiet: u64) -> Vec<Operation> {
    let mut rng = SplitMix64::new(seed);
    let (mut state, mut late, mut history) = (None, Vec::new(), Vec::new());
    for number in 1..=length {
        let instant = 1_000 * number;
        // Half of the operations are alone.
        let reach = if rng.chance(quiet, 10) { 400 } else { 3_000 };
        let (call, end) = (instant - rng.below(reach.min(instant)), instant + rng.below(reach));
        let expected = if rng.chance(3, 4) { state.unwrap_or(0) } else { rng.below(length) };
        let action = match rng.below(10) {
            0 => Action::Put(number),
            1 => Action::PutOnce(number),
            2..=4 => Action::Cas { expected, value: number },
            5 if rng.chance(1, 4) => Action::Delete,
            5 | 6 => Action::DeleteIf { expected },
            _ => Action::Get,
        };
        if let Some(action) = late.pop().filter(|_| rng.chance(1, 3)) {
            state = applied(action, state).unwrap_or(state);
        }
        let after = applied(action, state);
        let mut outcome = match (action, after) {
            (Action::Get, _) => Outcome::Read(state),
            (_, Some(_)) => Outcome::Done,
            (_, None) => Outcome::Failed,
        };
        match rng.below(12) {
            0 => outcome = Outcome::Timeout,
            1 => outcome = Outcome::Unavailable,
            _ => state = after.unwrap_or(state),
        }
        if outcome == Outcome::Timeout {
            late.push(action);
        }
        history.push(Operation { call, end, action, outcome });
    }
    for _ in 0..wrong {
        let at = usize::try_from(rng.below(length)).unwrap();
        history[at].outcome = match history[at].outcome {
            Outcome::Read(_) => Outcome::Read(Some(rng.below(length + 1)).filter(|value| *value > 0)),
            Outcome::Done => Outcome::Failed,
            Outcome::Failed => Outcome::Done,
            Outcome::Timeout => Outcome::Unavailable,
            Outcome::Unavailable => Outcome::Timeout,
        };
    }
    history.sort_by_key(|it| (it.call, it.end));
    history
}

fn applied(action: Action, state: Option<u64>) -> Option<Option<u64>> {
    match action {
        Action::Get => Some(state),
        Action::Put(value) => Some(Some(value)),
        Action::PutOnce(value) => state.is_none().then_some(Some(value)),
        Action::Cas { expected, value } => (state == Some(expected)).then_some(Some(value)),
        Action::Delete => Some(None),
        Action::DeleteIf { expected } => (state == Some(expected)).then_some(None),
    }
}

fn of_register(operations: &[Operation]) -> History {
    let request = |(process, operation): (u64, &Operation)| Request { process, operation: *operation };
    let requests = (0..).zip(operations).map(request).collect();
    History { keys: [("b/k".to_owned(), requests)].into() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn pieces_have_the_verdict_of_the_whole(seed: u64, length in 1_u64..40, wrong in 0_u64..2, quiet in 0_u64..11) {
        let operations = random_history(seed, length, wrong, quiet);
        // An outcome that a get cannot have has no verdict to compare.
        let sound = |it: &Operation| {
            it.action != Action::Get || !matches!(it.outcome, Outcome::Done | Outcome::Failed)
        };
        prop_assume!(operations.iter().all(sound));
        let unseen = Operation { call: 0, end: 0, action: Action::Put(UNSEEN), outcome: Outcome::Done };
        let replaced: Vec<Operation> = [unseen].into_iter().chain(operations.iter().copied()).collect();
        let verdicts = [&operations, &replaced].map(|all| linearizability::check(all, STATES_MAX));
        prop_assume!(!verdicts.contains(&Verdict::Unknown));
        let whole = verdicts.contains(&Verdict::Linearizable);
        let report = check(&of_register(&operations), STATES_MAX);
        prop_assert_eq!(report.violations.is_empty(), whole, "{:?}", operations);
        let taken: Vec<usize> = pieces(&operations).into_iter().flat_map(|it| it.operations).collect();
        prop_assert_eq!(taken, (0..operations.len()).collect::<Vec<_>>());
    }

    #[test]
    fn any_change_of_a_file_is_read_or_refused(at in 0..400_usize, with in any::<char>()) {
        let mut text: Vec<char> = (HEAD.to_owned() + &LINES.join("\n") + "\n").chars().collect();
        text[at] = with;
        if let Ok(history) = read_text(&text.into_iter().collect::<String>()) {
            check(&history, 1_000);
        }
    }
}

#[test]
fn a_long_history_is_cut() {
    let operations: Vec<Operation> = (1..=200_000)
        .map(|value| {
            let action = if value == 1 { Action::Put(1) } else { Action::Cas { expected: value - 1, value } };
            Operation { call: 10 * value, end: 10 * value + 5, action, outcome: Outcome::Done }
        })
        .collect();
    assert_eq!(pieces(&operations).len(), operations.len());
    let report = check(&of_register(&operations), STATES_MAX);
    assert!(report.unknown.is_empty() && report.violations.is_empty());
}
