use super::*;
use crate::{OperationSecond, Writer};
use histogram::Recorder;
use std::collections::BTreeMap;

fn write(dir: &Path) -> Writer {
    let manifest = Manifest { format: FORMAT, labels: vec!["get".to_owned()], ..Manifest::default() };
    let mut writer = Writer::create(dir, manifest).unwrap();
    for second in 0..3 {
        let mut recorder = Recorder::default();
        (1..=10).for_each(|value| recorder.record(value * 1000 + second));
        let get = OperationSecond { done: 10, ..OperationSecond::default() };
        let operations = BTreeMap::from([("get".to_owned(), get)]);
        let histogram = recorder.take();
        writer
            .second(
                Second { second, phase: Phase::Measured, operations, ..Second::default() },
                vec![Latencies { second, label: 0, kind: Kind::Response, histogram }],
            )
            .unwrap();
    }
    let error = ErrorRecord { label: "get".to_owned(), kind: "timeout".to_owned(), ..ErrorRecord::default() };
    (0..100).for_each(|_| writer.error(&error).unwrap());
    writer.event(&Event { at_s: 1.5, kind: "fault".to_owned(), ..Event::default() }).unwrap();
    writer.counters(&Counters::default()).unwrap();
    writer
}

#[test]
fn what_was_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let summary = write(&dir).finish(CheckSummary { verified: 7, ..CheckSummary::default() }).unwrap();
    let results = Results::open(&dir).unwrap();
    assert!(results.complete);
    assert_eq!(results.summary, summary);
    assert_eq!((results.summary.total.done, results.summary.check.verified), (30, 7));
    assert_eq!((results.seconds.len(), results.errors.len(), results.events.len()), (3, 20, 1));
    let merged = results.merged(|second, label, kind| second > 0 && label == "get" && kind == Kind::Response);
    assert_eq!((merged.count(), merged.max()), (20, 10_002));
    assert!(Writer::create(&dir, Manifest::default()).is_err());
}

#[test]
fn a_run_that_was_killed_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    drop(write(&dir));
    let path = dir.join(TIMESERIES);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, &text[..text.len() - 5]).unwrap();
    let results = Results::open(&dir).unwrap();
    assert!(!results.complete);
    assert_eq!((results.seconds.len(), results.summary.total.done), (2, 20));
    fs::write(&path, format!("{}\n{{\n", &text[..text.len() - 5])).unwrap();
    assert!(Results::open(&dir).unwrap_err().to_string().contains("line 3"));
}
