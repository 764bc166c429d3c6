//! Whether a node is ready, for `GET /health/ready`: a balancer sends clients to a node that is.
//!
//! A node that is not ready serves its clients all the same, and `/ping` says that it is there; the reasons say why
//! another node is the better choice. Each reason is a line of [`Readiness::reasons`]; another one is added there, with
//! its fact in [`Readiness`].

use crate::membership::{Answered, Reach};
use serde_json::json;

/// The facts about a node that decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// Whether the clean stop has begun.
    pub(crate) is_stopping: bool,
    /// Whether the node is about to leave its cluster.
    pub(crate) is_leaving: bool,
    /// Whom it reaches; `None` until that was looked at for the first time.
    pub(crate) reach: Option<Reach>,
    /// Why stores take no writes.
    pub(crate) refused_writes: Vec<String>,
}

impl Readiness {
    /// Why the node is not ready; empty if it is.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.is_stopping {
            reasons.push("the node is stopping".to_owned());
        }
        if self.is_leaving {
            reasons.push("the node is leaving its cluster".to_owned());
        }
        match &self.reach {
            None => reasons.push("the node is starting".to_owned()),
            Some(reach) if !reach.has_heard => {
                reasons.push(
                    "the node is starting: it does not know the cluster's current state yet".to_owned(),
                );
            }
            Some(reach) => reasons.extend(reach.missing()),
        }
        reasons.extend(self.refused_writes.iter().map(|why| format!("the store takes no writes: {why}")));
        reasons
    }

    /// The answer: 200 if the node is ready, 503 with the reasons if not.
    pub(crate) fn answer(&self) -> Answered {
        let reasons = self.reasons();
        let status = if reasons.is_empty() { 200 } else { 503 };
        Answered { status, body: json!({ "ready": reasons.is_empty(), "reasons": reasons }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Reached;

    fn reach(reached: usize) -> Reach {
        let members = Reached { all: 3, reached };
        Reach { members, voters: members, lost: Vec::new(), has_heard: true }
    }

    #[test]
    fn each_reason_makes_a_node_not_ready() {
        let ready = Readiness { reach: Some(reach(2)), ..Readiness::default() };
        let answered = ready.answer();
        assert_eq!((answered.status, answered.body), (200, json!({ "ready": true, "reasons": [] })));
        let unheard = Reach { has_heard: false, ..reach(1) };
        let refused_writes = vec!["the disk is full".to_owned()];
        for (not_ready, reason) in [
            (Readiness { is_stopping: true, ..ready.clone() }, "the node is stopping"),
            (Readiness { is_leaving: true, ..ready.clone() }, "the node is leaving its cluster"),
            (Readiness { reach: None, ..ready.clone() }, "the node is starting"),
            (Readiness { reach: Some(unheard), ..ready.clone() }, "the node is starting: it does not know"),
            (
                Readiness { reach: Some(reach(1)), ..ready.clone() },
                "this node reaches 1 of 3 members: no majority",
            ),
            (Readiness { refused_writes, ..ready }, "the store takes no writes: the disk is full"),
        ] {
            let Answered { status, body } = not_ready.answer();
            assert_eq!((status, &body["ready"]), (503, &json!(false)));
            let first = body["reasons"][0].as_str().unwrap_or_default();
            assert!(first.starts_with(reason), "{first}");
        }
    }
}
