//! The answers for balancers and supervisors: `GET /health/ready` and `GET /health/live`.
//!
//! * A balancer sends clients to a node that is ready. A node that is not serves its clients all the same, and `/ping`
//!   says that it is there; the findings of [`verdict`] say why another node is the better choice.
//! * A supervisor restarts a process that is not alive. One that answers is: a restart mends none of the findings.

use crate::drain::Drain;
use crate::membership::{Answered, Handle};
use crate::peer::CertificateExpiry;
use crate::verdict::{Level, NodeState, level, verdict};
use serde_json::json;
use std::time::{Duration, SystemTime};

/// The facts about a node that serves.
pub(crate) fn state(membership: &Handle, drain: &Drain, certificates: CertificateExpiry) -> NodeState {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    NodeState {
        is_stopping: drain.has_begun(),
        certificate_left: certificates.left(now),
        ..membership.state()
    }
}

/// The answer on readiness: 200 if no finding is bad, 503 otherwise, with the findings.
pub(crate) fn ready(state: &NodeState) -> Answered {
    let findings = verdict(state);
    let bad = findings.iter().filter(|finding| finding.level == Level::Bad);
    let reasons: Vec<&str> = bad.map(|finding| &*finding.sentence).collect();
    let (is_ready, level) = (reasons.is_empty(), level(&findings));
    let body = json!({ "ready": is_ready, "level": level, "reasons": reasons, "findings": findings });
    Answered { status: if is_ready { 200 } else { 503 }, body }
}

/// Whether a node is ready.
pub(crate) fn is_ready(state: &NodeState) -> bool {
    level(&verdict(state)) != Level::Bad
}

/// The answer on liveness.
pub(crate) fn live() -> Answered {
    Answered { status: 200, body: json!({ "live": true }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Reach, Reached};
    use std::time::Duration;

    fn well() -> NodeState {
        let members = Reached { all: 3, reached: 3 };
        let reach = Reach { members, voters: members, lost: Vec::new(), has_heard: true, ..Reach::default() };
        NodeState { reach: Some(reach), ..NodeState::default() }
    }

    fn of_full_disk() -> NodeState {
        NodeState { refused_writes: vec!["the disk is full".to_owned()], ..well() }
    }

    #[test]
    fn only_bad_findings_turn_balancers_away() {
        let answered = ready(&well());
        let body = json!({ "ready": true, "level": "well", "reasons": [], "findings": [] });
        assert_eq!((answered.status, answered.body), (200, body));
        let soon = NodeState { certificate_left: Some(Duration::ZERO), ..well() };
        let answered = ready(&soon);
        assert_eq!((answered.status, &answered.body["level"]), (200, &json!("degraded")));
        assert_eq!(answered.body["findings"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn a_store_without_writes_is_not_ready() {
        let answered = ready(&of_full_disk());
        assert_eq!((answered.status, &answered.body["ready"]), (503, &json!(false)));
        assert_eq!(answered.body["reasons"], json!(["the store takes no writes: the disk is full"]));
        assert!(!is_ready(&of_full_disk()));
    }

    #[cfg(feature = "planted")]
    #[test]
    fn planted_ready_without_writes_is_seen() {
        base::planted::plant(Some(base::planted::Planted::ReadyWithoutWrites));
        let caught = std::panic::catch_unwind(a_store_without_writes_is_not_ready);
        base::planted::plant(None);
        assert!(caught.is_err(), "a node that is ready without writes passes the test");
    }
}
