//! One node's part in its cluster: the failure detector and the metadata log, each informed by the other.
//!
//! 1. Bytes of one lane come in; their first byte says whose they are.
//! 2. The log's state says who the members are, which is whom the detector listens to.
//! 3. The detector says who can be reached, which is whom the log's leader lets vote, and whom news are told to.
//! 4. Two findings end the process ([`Stop`]): that it is a copy whose original lives, and that it is no member any
//!    more.
//!
//! Left out: how a node asks to be admitted, which its operator has it do at any member, before it has a number.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::Monotonic;
use bytes::{BufMut, Bytes, BytesMut};
use ring::NodeId;

use crate::detector::{self, Detector};
use crate::log::{self, Epoch, Log, Outcome, Write};
use crate::state::{Command, State};

const DETECTOR: u8 = 1;
const LOG: u8 = 2;

/// What happens to a node's part.
#[derive(Clone, Debug)]
pub enum Input {
    /// Bytes of another node have come.
    Message(Bytes),
    /// Somebody wants a change; [`Output::Answer`] comes with the same token.
    Propose {
        /// Names the proposal in its answer.
        token: u64,
        /// The change.
        command: Command,
    },
    /// This node was admitted, and asks this member for what it has missed.
    Join {
        /// Whom it asks.
        contact: NodeId,
    },
    /// A process of a member is the one that speaks for it from now on, as the shell of this node knows by its
    /// connections.
    Admitted {
        /// The member.
        node: NodeId,
        /// Its process.
        start: u64,
    },
    /// An operator gives up a lost majority, with [`Log::safety_word`].
    Recover {
        /// The word.
        word: String,
    },
    /// Time has passed; due at [`Membership::next_timer`].
    Tick,
}

/// What is to be done or known. What follows a write waits until it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Write to the log's file. If that fails, nothing here may be used any more.
    Write(Write),
    /// Send to a node, as best as one can; [`Membership::address`] says where it is.
    Send {
        /// Whom.
        to: NodeId,
        /// What.
        message: Bytes,
    },
    /// Send to where the message came from.
    Reply(Bytes),
    /// A proposal's end.
    Answer {
        /// The proposal.
        token: u64,
        /// What became of it.
        outcome: Outcome,
    },
    /// The state is another: members, owners or something else that all agree on.
    Changed,
    /// A member can be reached.
    Up(NodeId),
    /// A member cannot be reached.
    Down(NodeId),
    /// The data folder is an older copy, and this process is its start of this number. The folder counts so many starts
    /// once nothing rests any more on what it has lost: [`Log::is_older_copy`], and the births of stores.
    Starts(u32),
    /// Something for the log of this process: who was refused here, or refuses this node, and why.
    Note(String),
    /// Something that an operator has to know of and to act on.
    Alarm(String),
    /// The process must end.
    Stop(Stop),
}

/// Why a process must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// It was started from a copy of a data folder whose original is alive.
    #[error("this data folder is a copy, and its original is alive: start it when the original has ended")]
    Copy,
    /// It is no member any more.
    #[error("this node was removed from the cluster: empty its data folder before it joins again")]
    Removed,
}

/// One node's part in its cluster.
pub struct Membership {
    detector: Detector,
    log: Log,
    /// The state whose members the detector was told last, by epoch and version: the same of all nodes.
    members_of: Option<(Epoch, u64)>,
}

impl Membership {
    /// The part of the node that both are of.
    ///
    /// # Panics
    /// If they are of different nodes or clusters.
    pub fn new(detector: Detector, log: Log) -> Membership {
        let (speaker, identity) = (detector.speaker(), log.identity());
        assert!((speaker.cluster, speaker.node) == (identity.cluster, identity.node), "of one node");
        Membership { detector, log, members_of: None }
    }

    /// What all nodes agree on, as far as it has come here.
    pub fn state(&self) -> Option<&State> {
        self.log.state()
    }

    /// The log, to be looked at.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The failure detector, to be looked at.
    pub fn detector(&self) -> &Detector {
        &self.detector
    }

    /// Where other nodes reach a member.
    pub fn address(&self, node: NodeId) -> Option<Arc<str>> {
        self.state()?.members().get(&node).map(|record| record.address.clone())
    }

    /// When the next [`Input::Tick`] is due.
    pub fn next_timer(&self) -> Monotonic {
        self.detector.next_timer().min(self.log.next_timer())
    }

    /// Takes note of `input` at `now`, and of the time that has passed.
    pub fn step(&mut self, input: Input, now: Monotonic, out: &mut Vec<Output>) {
        let (mut for_detector, mut for_log) = (detector::Input::Tick, log::Input::Tick);
        match input {
            Input::Message(mut bytes) => match bytes.split_to(bytes.len().min(1)).first() {
                Some(&DETECTOR) => for_detector = detector::Input::Datagram(bytes),
                Some(&LOG) => for_log = log::Input::Message(bytes),
                _ => out.push(Output::Note("a message of no known kind".into())),
            },
            Input::Propose { token, command } => for_log = log::Input::Propose { token, command },
            Input::Join { contact } => for_log = log::Input::Join { contact },
            Input::Recover { word } => for_log = log::Input::Recover { word },
            Input::Admitted { node, start } => for_detector = detector::Input::Admitted { node, start },
            Input::Tick => {}
        }
        // The log first: its writes stand before all that is sent.
        self.step_log(for_log, now, out);
        let mut reached = Vec::new();
        if let Some(members) = self.other_members() {
            self.step_detector(detector::Input::Members(members), now, &mut reached, out);
        }
        self.step_detector(for_detector, now, &mut reached, out);
        for (node, is_up) in reached {
            self.step_log(log::Input::Reachable { node, is_up }, now, out);
        }
        self.invariants();
    }

    /// Relations between detector and log, which hold after each step.
    fn invariants(&self) {
        let is_member = |node: NodeId| self.state().is_none_or(|state| state.members().contains_key(&node));
        debug_assert!(
            self.detector.up().iter().all(|&node| self.log.reaches(node) || !is_member(node)),
            "the log knows of each member that the detector reaches"
        );
    }

    /// The members, if they may be others than the detector was told.
    fn other_members(&mut self) -> Option<BTreeSet<NodeId>> {
        let state = self.log.state()?;
        let of = Some((self.log.epoch(), state.version()));
        let is_known = std::mem::replace(&mut self.members_of, of) == of;
        (!is_known).then(|| state.members().keys().copied().collect())
    }

    fn step_log(&mut self, input: log::Input, now: Monotonic, out: &mut Vec<Output>) {
        let mut outputs = Vec::new();
        self.log.step(input, now, &mut outputs);
        for output in outputs {
            let output = match output {
                log::Output::Write(write) => Output::Write(write),
                log::Output::Send { to, message } => Output::Send { to, message: on_lane(LOG, &message) },
                log::Output::Reply(message) => Output::Reply(on_lane(LOG, &message)),
                log::Output::Answer { token, outcome } => Output::Answer { token, outcome },
                log::Output::Changed => Output::Changed,
                log::Output::Starts(starts) => Output::Starts(starts),
                log::Output::Refused { from, refusal } => {
                    Output::Note(format!("node {} is refused: {refusal}", from.from))
                }
                log::Output::Told { by, refusal } => {
                    // Whoever knows less than this node may not have heard of its admission.
                    if let log::Refusal::NotMember { commit, .. } = refusal
                        && by.cluster == self.log.identity().cluster
                        && commit >= self.log.commit()
                    {
                        out.push(Output::Stop(Stop::Removed));
                    }
                    Output::Note(format!("node {} refuses this one: {refusal}", by.from))
                }
                log::Output::Contradicted { by } => Output::Alarm(format!(
                    "node {by} has other committed entries in its metadata log than this node: one of the two is \
                     not of the cluster's history any more"
                )),
                log::Output::Junk(malformed) => {
                    Output::Note(format!("a message of the metadata log: {malformed}"))
                }
            };
            out.push(output);
        }
    }

    /// Appends to `reached` who can be reached that could not, and the other way round.
    fn step_detector(
        &mut self,
        input: detector::Input,
        now: Monotonic,
        reached: &mut Vec<(NodeId, bool)>,
        out: &mut Vec<Output>,
    ) {
        let mut outputs = Vec::new();
        self.detector.step(input, now, &mut outputs);
        for output in outputs {
            let output = match output {
                detector::Output::Send { to, datagram } => {
                    Output::Send { to, message: on_lane(DETECTOR, &datagram) }
                }
                detector::Output::Reply(datagram) => Output::Reply(on_lane(DETECTOR, &datagram)),
                detector::Output::Up(node) => {
                    reached.push((node, true));
                    Output::Up(node)
                }
                detector::Output::Down(node) => {
                    reached.push((node, false));
                    Output::Down(node)
                }
                detector::Output::Refused { from, refusal } => {
                    Output::Note(format!("node {} is refused: {refusal}", from.node))
                }
                detector::Output::Told { by, refusal } => {
                    // An answer goes to where the node is known to be, so the original gets what is said to its copy.
                    if let detector::Refusal::Copy { original } = refusal
                        && original != self.detector.speaker().start
                        && by.cluster == self.log.identity().cluster
                    {
                        out.push(Output::Stop(Stop::Copy));
                    }
                    Output::Note(format!("node {} refuses this one: {refusal}", by.node))
                }
                detector::Output::Junk(error) => Output::Note(error.to_string()),
            };
            out.push(output);
        }
    }
}

fn on_lane(kind: u8, message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(1 + message.len());
    out.put_u8(kind);
    out.put_slice(message);
    out.freeze()
}

#[cfg(test)]
#[path = "member_tests.rs"]
mod tests;
