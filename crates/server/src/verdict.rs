//! The state of a node in words: findings, their evidence, and the commands that show more or mend them.
//!
//! [`verdict`] is pure. `/health/ready` has its findings, and is 503 for a bad one. A new finding is added there, with
//! its fact in [`NodeState`].
//!
//! Left out: the state of the whole cluster, which no node alone knows.

use crate::membership::{GroupProgress, Reach};
use serde::Serialize;
use std::time::Duration;

/// How long before the end of a certificate there is a finding: a month to make another one.
pub(crate) const CERTIFICATE_SOON: Duration = Duration::from_secs(30 * 24 * 3600);

/// The command that shows groups.
const STRONG: &str = "annulet admin strong status";

/// The facts about a node that decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeState {
    /// Whether the clean stop has begun, or is about to.
    pub(crate) is_stopping: bool,
    /// Whether the node is about to leave its cluster.
    pub(crate) is_leaving: bool,
    /// The members and voters that it reaches; `None` before the first look.
    pub(crate) reach: Option<Reach>,
    /// The progress of its groups of consistent types since its start.
    pub(crate) groups: GroupProgress,
    /// Why stores take no writes.
    pub(crate) refused_writes: Vec<String>,
    /// How long the certificates are valid; `None` of a node without.
    pub(crate) certificate_left: Option<Duration>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Nothing is wrong.
    Well,
    /// All is served, with less than all that was planned.
    Degraded,
    /// Clients are better served elsewhere.
    Bad,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// How bad it is. A bad one keeps balancers from sending clients.
    pub(crate) level: Level,
    /// It, as a sentence without its end.
    pub(crate) sentence: String,
    /// Its signs: figures by their names in `/stats`, or the message of an error.
    pub(crate) evidence: String,
    /// The command that shows more, or mends it.
    pub(crate) next: &'static str,
}

/// The findings, the worst first; none of a node that is well.
pub(crate) fn verdict(state: &NodeState) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut bad = |sentence: String, evidence: String, next| {
        findings.push(Finding { level: Level::Bad, sentence, evidence, next });
    };
    if state.is_stopping {
        bad("the node is stopping".to_owned(), String::new(), "annulet admin wait-for-service");
    }
    if state.is_leaving {
        bad("the node is leaving its cluster".to_owned(), String::new(), "annulet admin transfers");
    }
    match &state.reach {
        None => bad("the node is starting".to_owned(), String::new(), "annulet admin wait-for-service"),
        Some(reach) if !reach.has_heard => {
            let sentence = "the node is starting: it does not know the cluster's current state yet";
            bad(sentence.to_owned(), String::new(), "annulet admin cluster status");
        }
        Some(reach) => {
            for sentence in reach.missing() {
                bad(sentence, not_reached(reach), "annulet admin member-status");
            }
        }
    }
    if !base::planted!(ReadyWithoutWrites) {
        for why in &state.refused_writes {
            let sentence = format!("the store takes no writes: {why}");
            bad(sentence, "stores_refusing_writes is not 0".to_owned(), "annulet admin stat 'disk_*_bytes'");
        }
    }
    findings.extend(state.reach.iter().filter_map(odd_log));
    findings.extend(late_groups(state.groups));
    findings.extend(few_members(state));
    findings.extend(old_certificate(state));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    findings
}

/// The level of all findings together.
pub(crate) fn level(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Well)
}

/// The finding on groups of consistent bucket types. A restored node serves all other objects as well as any.
fn late_groups(groups: GroupProgress) -> Option<Finding> {
    let (level, sentence, next) = match groups {
        GroupProgress::CaughtUp => return None,
        GroupProgress::Unregistered => (
            Level::Bad,
            "the node is starting: its consistent groups do not count on it yet".to_owned(),
            STRONG,
        ),
        GroupProgress::Waking => {
            (Level::Bad, "the node is starting: its consistent groups may lack writes yet".to_owned(), STRONG)
        }
        GroupProgress::Behind(groups) => (
            Level::Bad,
            format!("the node is starting: consistent groups that lack writes: {groups}"),
            STRONG,
        ),
        GroupProgress::Held => (
            Level::Degraded,
            "this node was restored: its consistent groups are held back".to_owned(),
            "annulet admin strong recover --all",
        ),
    };
    Some(Finding { level, sentence, evidence: String::new(), next })
}

/// The finding on a metadata log that takes no part.
fn odd_log(reach: &Reach) -> Option<Finding> {
    let finding = |level, sentence: &str, evidence, next| {
        Some(Finding { level, sentence: sentence.to_owned(), evidence, next })
    };
    if reach.is_contradicted {
        let sentence = "the metadata log of this node contradicts that of its cluster";
        return finding(Level::Bad, sentence, String::new(), "annulet admin cluster force-replace");
    }
    if !reach.awaited.is_empty() {
        let sentence = "this node was restored: its metadata log waits for other members";
        let evidence = format!("waits for: {}", reach.awaited.join(", "));
        return finding(Level::Degraded, sentence, evidence, "annulet admin cluster recover");
    }
    None
}

fn few_members(state: &NodeState) -> Option<Finding> {
    let reach = state.reach.as_ref().filter(|reach| reach.has_heard && reach.missing().is_empty())?;
    (!reach.lost.is_empty()).then(|| Finding {
        level: Level::Degraded,
        sentence: format!("this node reaches {} of {} members", reach.members.reached, reach.members.all),
        evidence: not_reached(reach),
        next: "annulet admin member-status",
    })
}

fn not_reached(reach: &Reach) -> String {
    format!("not reached: {}", reach.lost.join(", "))
}

fn old_certificate(state: &NodeState) -> Option<Finding> {
    let left = state.certificate_left.filter(|left| *left < CERTIFICATE_SOON)?;
    let days = left.as_secs() / (24 * 3600);
    Some(Finding {
        level: Level::Degraded,
        sentence: format!("a certificate of this node ends in {days} days: no link can be opened after that"),
        evidence: "certificate_expiry_seconds, authority_expiry_seconds".to_owned(),
        next: "annulet admin cert --help",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Reached;

    fn reach(reached: usize) -> Reach {
        let members = Reached { all: 3, reached };
        let lost = (reached..3).map(|node| format!("n{node}@h")).collect();
        Reach { members, voters: Reached { all: 1, reached: 1 }, lost, has_heard: true, ..Reach::default() }
    }

    fn well() -> NodeState {
        NodeState { reach: Some(reach(3)), ..NodeState::default() }
    }

    #[test]
    fn each_fact_has_its_finding() {
        assert_eq!((verdict(&well()), level(&[])), (Vec::new(), Level::Well));
        let unheard = Reach { has_heard: false, ..reach(1) };
        let day = Duration::from_secs(24 * 3600);
        let refused_writes = vec!["the disk is full".to_owned()];
        for (state, is, sentence) in [
            (NodeState { is_stopping: true, ..well() }, Level::Bad, "the node is stopping"),
            (NodeState { is_leaving: true, ..well() }, Level::Bad, "the node is leaving its cluster"),
            (NodeState { reach: None, ..well() }, Level::Bad, "the node is starting"),
            (
                NodeState { reach: Some(unheard), ..well() },
                Level::Bad,
                "the node is starting: it does not know",
            ),
            (
                NodeState { groups: GroupProgress::Behind(7), ..well() },
                Level::Bad,
                "the node is starting: consistent groups that lack writes: 7",
            ),
            (NodeState { groups: GroupProgress::Waking, ..well() }, Level::Bad, "the node is starting: its"),
            (
                NodeState { groups: GroupProgress::Unregistered, ..well() },
                Level::Bad,
                "the node is starting: its",
            ),
            (NodeState { groups: GroupProgress::Held, ..well() }, Level::Degraded, "this node was restored"),
            (
                NodeState { reach: Some(reach(1)), ..well() },
                Level::Bad,
                "this node reaches 1 of 3 members: no",
            ),
            (
                NodeState { reach: Some(reach(2)), ..well() },
                Level::Degraded,
                "this node reaches 2 of 3 members",
            ),
            (
                NodeState { reach: Some(Reach { is_contradicted: true, ..reach(3) }), ..well() },
                Level::Bad,
                "the metadata log of this node contradicts that of its cluster",
            ),
            (
                NodeState { reach: Some(Reach { awaited: vec!["n2@h".to_owned()], ..reach(3) }), ..well() },
                Level::Degraded,
                "this node was restored: its metadata log waits",
            ),
            (
                NodeState { refused_writes, ..well() },
                Level::Bad,
                "the store takes no writes: the disk is full",
            ),
            (
                NodeState { certificate_left: Some(3 * day), ..well() },
                Level::Degraded,
                "a certificate of this node ends in 3 days",
            ),
        ] {
            let findings = verdict(&state);
            assert_eq!((findings.len(), level(&findings)), (1, is), "{findings:?}");
            assert!(findings[0].sentence.starts_with(sentence), "{findings:?}");
            assert!(findings[0].next.starts_with("annulet admin "), "{findings:?}");
        }
        let fresh = NodeState { certificate_left: Some(60 * day), ..well() };
        assert_eq!(verdict(&fresh), Vec::new());
    }

    #[test]
    fn the_worst_comes_first() {
        let state = NodeState {
            reach: Some(reach(2)),
            refused_writes: vec!["the disk is full".to_owned()],
            ..NodeState::default()
        };
        let levels: Vec<Level> = verdict(&state).iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Bad, Level::Degraded]);
    }
}
