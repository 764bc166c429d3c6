//! Replays written exchanges (`golden.txt`) through sessions, coordinators and a store in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kv::props::StampedProps;
use kv::{Bucket, Prop, TypeChange};

use super::{HostName, HostNames, Incoming, Session};
use crate::riak::transcript::Node;

const EXCHANGES: &str = include_str!("golden.txt");

/// 21 November 2026, 12:16:11: what `Date` says.
const NOW: u64 = 1_795_263_371;

/// What a node has chosen, by the names that stand for it.
type Chosen = BTreeMap<String, String>;

/// A line with what is known put in. A name that is not known yet stays.
fn filled(line: &str, chosen: &Chosen) -> String {
    let mut parts = line.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, after) = split_name(part);
        match chosen.get(name) {
            Some(value) => text.extend([value, after]),
            None => text.extend(["$", name, after]),
        }
    }
    text
}

/// The name that a text begins with, and what is after it.
fn split_name(text: &str) -> (&str, &str) {
    text.split_at(text.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(text.len()))
}

/// Whether a line is what was expected; learns what the name in it stands for.
fn fits(expected: &str, line: &str, chosen: &mut Chosen) -> bool {
    let expected = filled(expected, chosen);
    let Some((before, rest)) = expected.split_once('$') else { return expected == line };
    let (name, after) = split_name(rest);
    let value = line.strip_prefix(before).and_then(|line| line.strip_suffix(after));
    let Some(value) = value.filter(|value| !value.is_empty()) else { return false };
    chosen.insert(name.to_owned(), value.to_owned());
    true
}

/// A connection to a node that is known as `h`.
fn connect() -> Session {
    let names = [HostName::Name("h".to_owned())];
    let listening = ["0.0.0.0:8098".parse().unwrap()];
    Session::guarded(Arc::new(HostNames::new(&listening, &names)), None)
}

/// Runs one request, and gives back the answer's lines without those that all have.
fn run(node: &mut Node, session: &mut Session, request: &[u8]) -> Vec<String> {
    let mut input = BytesMut::from(request);
    let mut out = Vec::new();
    match session.receive(NOW, &mut input, &mut out) {
        Incoming::Request(mut request) => loop {
            // Only of listings there are several answers, and they ask for nothing more.
            let answers = node.serve(request).into_iter();
            match answers.fold(None, |_, answer| session.respond(answer, &mut out)) {
                Some(next) => request = next,
                None => break,
            }
        },
        Incoming::Answered => {}
        // What is left of the request goes with the connection, and its client connects again.
        Incoming::Close => {
            input.clear();
            *session = connect();
        }
        other => panic!("{other:?}"),
    }
    assert!(input.is_empty(), "all of the request is read");
    let text = String::from_utf8(out).unwrap();
    let mut lines: Vec<String> =
        text.split('\n').map(|line| line.trim_end_matches('\r').to_owned()).collect();
    assert_eq!(lines[1], "Server: Annulet");
    assert_eq!(lines[2], format!("Date: {}", String::from_utf8_lossy(&protocol::http::date::format(NOW))));
    lines.drain(1..3);
    lines[0] = lines[0].strip_prefix("HTTP/1.1 ").unwrap().to_owned();
    // The last line end ends nothing.
    if lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

#[test]
fn answers_are_those_that_are_written() {
    let mut node = Node::new();
    let ab = Bucket::untyped(Bytes::from("ab"));
    let props = node.table.changed(&ab, &[Prop::AllowMult(true)]).unwrap();
    node.table.set(&ab, StampedProps { stamp: 1, props });
    for change in [TypeChange::Create(vec![Prop::NVal(2)]), TypeChange::Activate] {
        node.serve(kv::Request::ChangeType("t".into(), change));
    }
    for change in [TypeChange::Create(vec![Prop::Consistent(true)]), TypeChange::Activate] {
        node.serve(kv::Request::ChangeType("c".into(), change));
    }
    let mut session = connect();
    let mut chosen = Chosen::new();
    let blocks: Vec<&str> = EXCHANGES.split("\n## ").skip(1).collect();
    assert!(blocks.len() >= 75, "{}", blocks.len());
    for block in blocks {
        let mut lines = block.lines();
        let name = lines.next().unwrap();
        let (sent, expected): (Vec<&str>, Vec<&str>) =
            lines.filter(|line| !line.is_empty()).partition(|line| line.starts_with('>'));
        let text = |line: &&str| line[1..].strip_prefix(' ').unwrap_or_default().to_owned();
        let sent: Vec<String> = sent.iter().map(|line| filled(&text(line), &chosen)).collect();
        let expected: Vec<String> = expected.iter().map(text).collect();
        let (head, body) = match sent.iter().position(String::is_empty) {
            Some(at) => (&sent[..at], sent[at + 1..].join("\n")),
            None => (&sent[..], String::new()),
        };
        let request = format!(
            "{} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n{}\r\n{body}",
            head[0],
            body.len(),
            head[1..].iter().map(|line| format!("{line}\r\n")).collect::<String>(),
        );
        let lines = run(&mut node, &mut session, request.as_bytes());
        assert_eq!(lines.len(), expected.len(), "{name}: {lines:#?}");
        for (line, expected) in lines.iter().zip(&expected) {
            assert!(fits(expected, line, &mut chosen), "{name}: {line:?} is not {expected:?}: {lines:#?}");
        }
    }
}
