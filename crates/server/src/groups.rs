//! The groups of consistent bucket types, for operators: the agreement, and the groups of this node's shards.
//!
//! The membership's thread is asked for the agreement. Every shard is asked in its box, and answers in its own turn;
//! the caller waits for all of them. So are the copies of a restored node surveyed. Its hold is ended shard by shard.

use crate::mailbox::{Mail, Mailboxes};
use crate::membership::{self, Answered};
use bytes::Bytes;
use node::{AdoptedGroups, Adoption, CopyReport, GroupReport, GroupRole, Shard, ShardId, VoterId};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a shard may take to answer: it does at the end of its turn, unless its thread hangs.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The time until a shard is asked again whose store has no room for a group: that of a flush on a fast disk.
const ROOM_LOOK: Duration = Duration::from_millis(20);
/// How often it is asked before the command fails: for ten seconds, which a flush on a slow disk may take.
const ROOM_LOOKS_MAX: u32 = 500;

/// The groups of a shard, each with the name of its leader.
pub type GroupsTold = Vec<(GroupReport, Option<String>)>;

/// The copies of groups of a shard.
pub type CopiesTold = Vec<CopyReport>;

/// The groups that a shard has adopted so far, or why none.
pub type AdoptTold = Result<AdoptedGroups, String>;

/// Asks a shard.
pub fn of_shard(shard: &Shard) -> GroupsTold {
    let status = shard.status();
    let named = |report: GroupReport| (report, report.leader.map(|leader| status.name_of(leader)));
    status.groups().into_iter().map(named).collect()
}

/// The groups that a shard has adopted, and the looks for room since the last one.
#[derive(Default)]
struct AdoptionProgress {
    written: usize,
    looks: u32,
}

/// The next step of an adoption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdoptionStep {
    /// All groups are written.
    End,
    /// The next piece is asked for.
    Continue,
    /// The store flushes meanwhile.
    Wait,
    /// The store makes no room.
    GiveUp,
}

impl AdoptionProgress {
    fn next(&mut self, adopted: AdoptedGroups) -> AdoptionStep {
        self.looks = if adopted.written > self.written { 0 } else { self.looks + 1 };
        self.written = adopted.written;
        match self.looks {
            _ if adopted.are_complete() => AdoptionStep::End,
            0 => AdoptionStep::Continue,
            looks if looks > ROOM_LOOKS_MAX => AdoptionStep::GiveUp,
            _ => AdoptionStep::Wait,
        }
    }
}

fn no_room(ShardId(shard): ShardId, AdoptedGroups { written, all }: AdoptedGroups) -> Answered {
    let why = format!("shard {shard}: the store has no room: {written} of {all} groups are written");
    Answered::wrong(503, why)
}

/// The groups of all shards.
pub struct NodeGroups {
    shards: u16,
    mailboxes: Arc<Mailboxes>,
}

impl NodeGroups {
    /// Of a node with so many shards.
    pub fn new(shards: u16, mailboxes: Arc<Mailboxes>) -> NodeGroups {
        NodeGroups { shards, mailboxes }
    }

    /// Answers an operator.
    pub async fn ask(&self, membership: &membership::Handle) -> Answered {
        let agreed = membership.agreed_on_groups().await;
        if agreed.status != 200 {
            return agreed;
        }
        let told = match self.of_all(Mail::Groups).await {
            Ok(told) => told,
            Err(answered) => return answered,
        };
        let of_shard = |(shard, told): (ShardId, GroupsTold)| {
            told.into_iter().map(move |(report, leader)| (shard, report, leader))
        };
        let mut groups: Vec<_> = told.into_iter().flat_map(of_shard).collect();
        groups.sort_by_key(|(_, report, _)| (report.n_val, report.prefix));
        let mut body = agreed.body;
        body["summary"] = summary(groups.iter().map(|(_, report, _)| report));
        body["groups"] =
            groups.iter().map(|(shard, report, leader)| shown(*shard, report, leader.as_deref())).collect();
        Answered { status: 200, body }
    }

    /// Answers an operator's survey of the copies of groups. The shards are asked after the survey has its number.
    pub async fn copies(&self, membership: &membership::Handle) -> Answered {
        let survey = membership.survey().await;
        if survey.status != 200 {
            return survey;
        }
        let told = match self.of_all(Mail::Copies).await {
            Ok(told) => told,
            Err(answered) => return answered,
        };
        let mut body = survey.body;
        body["copies"] = told.iter().flat_map(|(_, copies)| copies).map(shown_copy).collect();
        Answered { status: 200, body }
    }

    /// Has this restored node go on with the groups that were chosen for it.
    pub async fn release(&self, membership: &membership::Handle, body: Bytes) -> Answered {
        let (survey, adoption) = match membership.begin_release(body).await {
            Ok((survey, adoption)) => (survey, Arc::new(adoption)),
            Err(answered) => return answered,
        };
        for shard in (0..self.shards).map(ShardId) {
            if let Err(answered) = self.adopt(shard, &adoption).await {
                return answered;
            }
        }
        membership.end_release(survey, adoption).await
    }

    /// Has a shard adopt its groups, piece by piece.
    async fn adopt(&self, shard: ShardId, adoption: &Arc<Adoption>) -> Result<(), Answered> {
        let mut progress = AdoptionProgress::default();
        loop {
            let written = progress.written;
            let told = self.put(shard, |tell| Mail::Adopt(Arc::clone(adoption), written, tell));
            let adopted = told_by(shard, told).await?.map_err(|why| Answered::wrong(409, why))?;
            match progress.next(adopted) {
                AdoptionStep::End => return Ok(()),
                AdoptionStep::Continue => {}
                AdoptionStep::Wait => tokio::time::sleep(ROOM_LOOK).await,
                AdoptionStep::GiveUp => return Err(no_room(shard, adopted)),
            }
        }
    }

    /// Asks all shards, and waits for all of them.
    async fn of_all<T>(
        &self,
        ask: impl Fn(oneshot::Sender<T>) -> Mail,
    ) -> Result<Vec<(ShardId, T)>, Answered> {
        let asked: Vec<_> =
            (0..self.shards).map(ShardId).map(|shard| (shard, self.put(shard, &ask))).collect();
        let mut all = Vec::new();
        for (shard, told) in asked {
            all.push((shard, told_by(shard, told).await?));
        }
        Ok(all)
    }

    /// Asks a shard.
    fn put<T>(&self, shard: ShardId, ask: impl FnOnce(oneshot::Sender<T>) -> Mail) -> oneshot::Receiver<T> {
        let (tell, told) = oneshot::channel();
        self.mailboxes.of(shard).put(&mut vec![ask(tell)]);
        told
    }
}

/// The answer of a shard.
async fn told_by<T>(shard: ShardId, told: oneshot::Receiver<T>) -> Result<T, Answered> {
    match tokio::time::timeout(ANSWER_MAX, told).await {
        Ok(Ok(told)) => Ok(told),
        Ok(Err(_)) | Err(_) => Err(Answered::wrong(503, format!("shard {} does not answer", shard.0))),
    }
}

fn shown_copy(CopyReport { n_val, prefix, copy }: &CopyReport) -> Value {
    let numbers = |voters: &BTreeSet<VoterId>| -> Vec<String> {
        voters.iter().map(|voter| format!("{:016x}", voter.number())).collect()
    };
    json!({
        "n_val": n_val,
        "prefix": prefix,
        "rank": copy.rank,
        "epoch": copy.epoch,
        "last": copy.last,
        "voters": numbers(&copy.configuration.voters),
        "outgoing": numbers(&copy.configuration.outgoing),
        "fault": copy.fault.map(|fault| fault.to_string()),
    })
}

fn summary<'g>(reports: impl Iterator<Item = &'g GroupReport> + Clone) -> Value {
    let count = |is: fn(&GroupReport) -> bool| reports.clone().filter(|report| is(report)).count();
    json!({
        "groups": count(|_| true),
        "led": count(|it| it.role == GroupRole::Leader),
        "without_leader": count(|it| !it.has_leader),
        "unsettled": count(|it| !it.is_settled),
        "suspect": count(|it| it.is_suspect),
        "forgot": count(|it| it.has_forgotten),
        "incomplete": count(|it| it.is_incomplete),
        "unreadable": count(|it| it.is_unreadable),
        "dormant": count(|it| it.is_dormant),
    })
}

fn shown(shard: ShardId, report: &GroupReport, leader: Option<&str>) -> Value {
    json!({
        "shard": shard.0,
        "n_val": report.n_val,
        "prefix": report.prefix,
        "role": report.role.name(),
        "term": report.term,
        "leader": leader,
        "applied": report.applied,
        "commit": report.commit,
        "last": report.last,
        "settled": report.is_settled,
        "suspect": report.is_suspect,
        "forgot": report.has_forgotten,
        "incomplete": report.is_incomplete,
        "unreadable": report.is_unreadable,
        "leased": report.is_leased,
        "dormant": report.is_dormant,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::NodeId;

    fn report(leader: Option<u16>) -> GroupReport {
        GroupReport {
            n_val: 3,
            prefix: 9,
            role: GroupRole::Follower,
            term: 2,
            leader: leader.map(NodeId),
            has_leader: leader.is_some(),
            applied: 4,
            commit: 5,
            last: 6,
            is_settled: false,
            is_suspect: false,
            has_forgotten: false,
            is_incomplete: false,
            is_unreadable: false,
            is_leased: false,
            is_dormant: false,
        }
    }

    #[test]
    fn an_adoption_waits_for_room_and_gives_up_in_the_end() {
        let adopted = |written| AdoptedGroups { written, all: 5 };
        let mut progress = AdoptionProgress::default();
        assert_eq!(progress.next(adopted(2)), AdoptionStep::Continue);
        for _ in 0..ROOM_LOOKS_MAX {
            assert_eq!(progress.next(adopted(2)), AdoptionStep::Wait);
        }
        assert_eq!(progress.next(adopted(3)), AdoptionStep::Continue, "a flush made room");
        for _ in 0..ROOM_LOOKS_MAX {
            assert_eq!(progress.next(adopted(3)), AdoptionStep::Wait);
        }
        assert_eq!(progress.next(adopted(3)), AdoptionStep::GiveUp);
        assert_eq!(progress.next(adopted(5)), AdoptionStep::End);
        assert_eq!(AdoptionProgress::default().next(AdoptedGroups { written: 0, all: 0 }), AdoptionStep::End);

        let Answered { status, body } = no_room(ShardId(1), adopted(3));
        assert_eq!(status, 503);
        assert!(
            body.to_string().contains("shard 1: the store has no room: 3 of 5 groups are written"),
            "{body}"
        );
    }

    #[test]
    fn groups_are_counted_by_what_an_operator_looks_for() {
        let reports = [
            GroupReport { role: GroupRole::Leader, is_settled: true, is_dormant: true, ..report(Some(0)) },
            GroupReport { is_suspect: true, ..report(None) },
            GroupReport { has_forgotten: true, is_incomplete: true, is_unreadable: true, ..report(Some(1)) },
        ];
        let counts = json!({
            "groups": 3, "led": 1, "without_leader": 1, "unsettled": 2, "suspect": 1, "forgot": 1, "incomplete": 1,
            "unreadable": 1, "dormant": 1,
        });
        assert_eq!(summary(reports.iter()), counts);
        let shown = shown(ShardId(1), &report(Some(1)), Some("b@h"));
        assert_eq!(
            (&shown["leader"], &shown["role"], &shown["shard"]),
            (&json!("b@h"), &json!("follower"), &json!(1))
        );
    }
}
