//! The recovery of the metadata log whose majority of voters is lost.
//!
//! 1. A request without a body shows the loss to come, and the word for that.
//! 2. A request with the word goes on without the voters that are not reached. So does a voter whose restored log waits
//!    for members that never come.
//!
//! Invariant: the log is recovered only while a majority is not reached, or while it is held, and only with the word
//! for the present loss.

use super::cluster_page::name;
use super::held_log;
use super::operator::Answered;
use ::membership::{Input, Membership};
use bytes::Bytes;
use ring::NodeId;
use serde::Deserialize;
use serde_json::json;

/// That a lost majority is given up, in a request's body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Word {
    word: String,
}

/// Shows the loss that goes with the voters that are not reached, or goes on without them, if the body has the word
/// for that.
pub(super) fn recover(membership: &Membership, body: &Bytes) -> (Answered, Option<Input>) {
    let (Some(state), log) = (membership.state(), membership.log()) else {
        return (Answered::wrong(503, "this node does not know the cluster's current state"), None);
    };
    let here = log.identity().node;
    let is_reached = |node: NodeId| node == here || membership.detector().up().contains(&node);
    let reached = log.voters().iter().filter(|&&voter| is_reached(voter)).count();
    let is_lost = 2 * reached <= log.voters().len();
    let awaited = held_log::awaited(membership);
    let (term, index) = log.last();
    if body.is_empty() {
        let voters = log.voters().iter();
        let voters = voters.map(|&it| json!({ "name": name(state, it), "reachable": is_reached(it) }));
        return (
            Answered::ok(json!({
                "here": name(state, here),
                "lost": is_lost,
                "voters": voters.collect::<Vec<_>>(),
                "awaited": awaited,
                "last": { "term": term, "index": index },
                "epoch": log.epoch().number,
                "word": log.safety_word(),
            })),
            None,
        );
    }
    let word = match serde_json::from_slice::<Word>(body) {
        Ok(Word { word }) => word,
        Err(error) => return (Answered::wrong(400, format!("the body: {error}")), None),
    };
    if !is_lost && awaited.is_empty() {
        return (Answered::wrong(409, "a majority of the voters is reached: nothing is lost"), None);
    }
    if word != log.safety_word() {
        return (
            Answered::wrong(
                409,
                "the word does not match the current loss: run `annulet admin cluster recover` again to get the word",
            ),
            None,
        );
    }
    (Answered::ok(json!({ "epoch": log.epoch().number + 1 })), Some(Input::Recover { word }))
}
