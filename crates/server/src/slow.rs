//! The log of slow requests: its lines, and `GET` and `POST /admin/slow`.
//!
//! The shards decide on lines ([`node::SlowRequests`]). A line goes to the log under the target `slow`, and is shown
//! here among the last ones.

use crate::config::{read_slow, show_slow};
use crate::membership::Answered;
use node::{SlowKeys, SlowLine, SlowRequests, SlowStage};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Writes a line of the log.
pub(crate) fn tell(line: &SlowLine) {
    let stage = |stage: SlowStage| millis(line.stages[stage as usize]);
    let message = if line.waits { "slow request still waits" } else { "slow request" };
    tracing::info!(
        target: "slow",
        op = line.op.name(),
        r#type = line.bucket_type,
        bucket = line.bucket,
        key = line.key,
        ms = millis(line.time),
        queued_ms = stage(SlowStage::Queued),
        begin_ms = stage(SlowStage::Begin),
        key_ms = stage(SlowStage::Key),
        head_ms = stage(SlowStage::Head),
        disk_ms = stage(SlowStage::Disk),
        sync_ms = stage(SlowStage::Sync),
        replicas_ms = stage(SlowStage::Replicas),
        leader_ms = stage(SlowStage::Leader),
        majority_ms = stage(SlowStage::Majority),
        apply_ms = stage(SlowStage::Apply),
        pages_ms = stage(SlowStage::Pages),
        client_ms = stage(SlowStage::Client),
        nodes = nodes(line),
        siblings = line.siblings,
        bytes = line.bytes,
        error = line.error,
        left_out = (line.left_out > 0).then_some(line.left_out),
        "{message}"
    );
}

/// The waits for other nodes as one text; none if no other node was asked.
fn nodes(line: &SlowLine) -> Option<String> {
    let each = line.replicas.iter().map(|replica| {
        let waits = if replica.waits { ", waits" } else { "" };
        format!("{} {} ms{waits}", replica.node, millis(replica.time))
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| each.join("; "))
}

/// Answers an operator; a body is a change.
pub(crate) fn ask(slow: &SlowRequests, body: Option<&[u8]>) -> Answered {
    if let Some(body) = body {
        match read(body) {
            Ok(threshold) => slow.set_threshold(threshold),
            Err(fault) => return Answered::wrong(400, fault),
        }
    }
    let (lines, left_out) = slow.read();
    let keys = match slow.keys() {
        SlowKeys::Plain => "plain",
        SlowKeys::Hash => "hash",
        SlowKeys::None => "none",
    };
    let body = json!({
        "threshold": show_slow(slow.threshold()),
        "keys": keys,
        "left_out": left_out,
        "lines": lines.iter().map(|line| shown(line)).collect::<Vec<_>>(),
    });
    Answered { status: 200, body }
}

/// The threshold of a body.
fn read(body: &[u8]) -> Result<Option<Duration>, String> {
    let body: Map<String, Value> = serde_json::from_slice(body).map_err(|_| "invalid json")?;
    if body.keys().any(|name| name != "threshold") {
        return Err("the field is threshold".to_owned());
    }
    let text = body.get("threshold").and_then(Value::as_str).ok_or("threshold is to be a text")?;
    read_slow(text).map_err(|what| format!("threshold: {what}"))
}

fn shown(line: &SlowLine) -> Value {
    let stages = SlowStage::ALL.iter().zip(line.stages);
    let stages: Map<String, Value> =
        stages.map(|(stage, time)| (stage.name().to_owned(), json!(millis(time)))).collect();
    let replicas = line
        .replicas
        .iter()
        .map(|replica| json!({ "node": &*replica.node, "ms": millis(replica.time), "waits": replica.waits }));
    json!({
        "at_ms": line.at.millis(),
        "op": line.op.name(),
        "bucket_type": line.bucket_type,
        "bucket": line.bucket,
        "key": line.key,
        "waits": line.waits,
        "ms": millis(line.time),
        "stages_ms": stages,
        "replicas": replicas.collect::<Vec<_>>(),
        "siblings": line.siblings,
        "bytes": line.bytes,
        "error": line.error,
        "left_out": line.left_out,
    })
}

/// Milliseconds, to the microsecond.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_threshold_is_shown_and_set() {
        let slow = SlowRequests::new(Some(Duration::from_millis(100)), SlowKeys::Hash);
        let body = json!({ "threshold": "100ms", "keys": "hash", "left_out": 0, "lines": [] });
        assert_eq!(ask(&slow, None).body, body);
        let set = |body: &str| ask(&slow, Some(body.as_bytes()));
        for (text, shown) in [("1s", "1s"), ("off", "off"), ("250ms", "250ms"), ("0", "off")] {
            assert_eq!(set(&format!(r#"{{"threshold":"{text}"}}"#)).body["threshold"], shown);
        }
        for wrong in ["", "[]", "{}", r#"{"threshold":1}"#, r#"{"threshold":"soon"}"#, r#"{"time":"1s"}"#] {
            assert_eq!(set(wrong).status, 400, "{wrong}");
        }
        assert_eq!(slow.threshold(), None);
    }

    #[test]
    fn lines_have_all_stages_and_nodes() {
        let wait = |node: &str, ms, waits| node::shard::ReplicaWait {
            node: Arc::from(node),
            time: Duration::from_millis(ms),
            waits,
        };
        let mut line = SlowLine {
            time: Duration::from_micros(101_500),
            replicas: vec![wait("b@h", 2, false), wait("c@h", 101, true)],
            waits: true,
            ..SlowLine::default()
        };
        line.stages[SlowStage::Replicas as usize] = Duration::from_millis(101);
        line.stages[SlowStage::Queued as usize] = Duration::from_micros(500);
        let told = shown(&line);
        assert_eq!((&told["ms"], &told["waits"], &told["key"]), (&json!(101.5), &json!(true), &Value::Null));
        assert_eq!(
            told["stages_ms"],
            json!({
                "queued": 0.5, "begin": 0.0, "key": 0.0, "head": 0.0, "disk": 0.0, "sync": 0.0, "replicas": 101.0,
                "leader": 0.0, "majority": 0.0, "apply": 0.0, "pages": 0.0, "client": 0.0
            })
        );
        assert_eq!(told["replicas"][1], json!({ "node": "c@h", "ms": 101.0, "waits": true }));
        assert_eq!(nodes(&line).as_deref(), Some("b@h 2 ms; c@h 101 ms, waits"));
        assert_eq!(nodes(&SlowLine::default()), None);
    }
}
