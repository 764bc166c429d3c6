//! One node of a large cluster: its file, its model of a store, and its process.

use super::copies::Copies;
use super::known::Known;
use super::store::Store;
use super::{ASK_EVERY, CLUSTER, Event, Life, World};
use crate::check::{Verdict, Violation};
use crate::scheduler::EventId;
use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use bytes::Bytes;
use membership::detector::Detector;
use membership::log::{Identity, Log, Write};
use membership::reporter::{Progress, Reporter};
use membership::state::{Command, State};
use membership::{Membership, NodeId};
use ring::RingVersion;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What a node has sent, and how often its part was called.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) steps: u64,
}

/// A node.
pub(super) struct Host {
    node: NodeId,
    /// The state that it was founded with, if it was.
    founded: Option<State>,
    /// Members as of when it was admitted: whom it asks for what all agree on.
    contacts: Vec<NodeId>,
    /// Of the log.
    file: Vec<u8>,
    /// How often its data folder was started.
    pub(super) starts: u32,
    /// How often a process was started.
    lives: u32,
    pub(super) store: Store,
    pub(super) process: Option<Process>,
    /// It will never start again.
    pub(super) gone: bool,
    /// It is no member any more.
    pub(super) left: bool,
    pub(super) cost: Cost,
}

/// A node's process.
pub(super) struct Process {
    pub(super) membership: Membership,
    pub(super) reporter: Reporter,
    /// What its shards go by.
    pub(super) known: Option<Rc<Known>>,
    /// The last that they were told, or are about to be.
    pub(super) heard: RingVersion,
    /// Requests that it coordinates, by what they go by.
    pub(super) open: BTreeMap<RingVersion, u32>,
    pub(super) copies: Copies,
    /// Parts that it is sending.
    pub(super) sending: u32,
    contacts: Vec<NodeId>,
    pub(super) ask_at: Monotonic,
    pub(super) timer: Option<(Monotonic, EventId)>,
}

impl Process {
    /// Whom it asks next for what all agree on.
    pub(super) fn next_contact(&mut self) -> NodeId {
        self.contacts.rotate_left(1);
        self.contacts[0]
    }
}

/// What a node's shards have made of what is published.
struct Shards {
    adopted: Option<RingVersion>,
    copied: Option<RingVersion>,
    given: bool,
}

impl Progress for Shards {
    fn all_adopted(&self, version: RingVersion) -> bool {
        self.adopted == Some(version)
    }

    fn all_copied(&self, target: RingVersion) -> bool {
        self.copied == Some(target)
    }

    fn all_given(&self) -> bool {
        self.given
    }
}

impl Host {
    fn new(node: NodeId, founded: Option<State>, contacts: Vec<NodeId>) -> Host {
        Host {
            node,
            founded,
            contacts,
            file: Vec::new(),
            starts: 0,
            lives: 0,
            store: Store::default(),
            process: None,
            gone: false,
            left: false,
            cost: Cost::default(),
        }
    }

    pub(super) fn founder(node: NodeId, founded: &State) -> Host {
        Host::new(node, Some(founded.clone()), Vec::new())
    }

    pub(super) fn newcomer(node: NodeId, members: &State) -> Host {
        let contacts = members.members().keys().copied().filter(|other| *other != node).collect();
        Host::new(node, None, contacts)
    }

    pub(super) fn life(&self) -> Life {
        Life(self.node, self.lives)
    }

    /// Writes to the log's file; with `torn_at` not all of it.
    pub(super) fn write(&mut self, write: Write, torn_at: Option<u64>) {
        match (write, torn_at) {
            (Write::Append(bytes), None) => self.file.extend_from_slice(&bytes),
            (Write::Append(bytes), Some(draw)) => {
                let len = usize::try_from(draw % (bytes.len() as u64 + 1)).expect("below a length");
                self.file.extend_from_slice(&bytes[..len]);
            }
            (Write::Replace(bytes), None) => self.file = bytes.to_vec(),
            // It is renamed when it is whole.
            (Write::Replace(_), Some(_)) => {}
        }
    }

    /// Opens the log. A founder whose file was never written founds it again.
    fn open_log(&mut self, identity: Identity, rng: Box<dyn Rng>, now: Monotonic) -> Result<Log, Violation> {
        if self.file.is_empty() {
            return Ok(match &self.founded {
                Some(state) => Log::found(identity, state.clone(), rng, now),
                None => Log::join(identity, rng, now),
            });
        }
        let bytes = Bytes::copy_from_slice(&self.file);
        let opened = Log::open(identity, &bytes, rng, now);
        let (log, sound) = opened.map_err(|error| {
            Violation::new("a crash is never damage", format!("{}: its log: {error}", self.node))
        })?;
        self.file.truncate(sound);
        Ok(log)
    }
}

impl World {
    pub(super) fn forget_costs(&mut self) {
        self.hosts.values_mut().for_each(|host| host.cost = Cost::default());
    }

    /// What nodes have spent of something since it was forgotten: the mean of all, and the most of any.
    pub(super) fn spent(&self, of: fn(&Cost) -> u64) -> (f64, f64) {
        let costs = || self.hosts.values().map(|host| of(&host.cost));
        (costs().sum::<u64>() as f64 / self.hosts.len() as f64, costs().max().unwrap_or(0) as f64)
    }

    pub(super) fn membership(&self, node: NodeId) -> Option<&Membership> {
        Some(&self.hosts.get(&node)?.process.as_ref()?.membership)
    }

    /// The process of this life, if it still runs.
    pub(super) fn process(&mut self, life: Life) -> Option<&mut Process> {
        let host = self.hosts.get_mut(&life.0).filter(|host| host.life() == life)?;
        host.process.as_mut()
    }

    /// Starts a node's process.
    pub(super) fn start(&mut self, node: NodeId) -> Verdict {
        let now = self.events.now();
        let (start, seeds) = (self.rng.next_u64(), [self.rng.next_u64(), self.rng.next_u64()]);
        let host = self.hosts.get_mut(&node).expect("it is there before it starts");
        if host.gone || host.left || host.process.is_some() {
            return Ok(());
        }
        host.starts += 1;
        host.lives += 1;
        let identity = Identity {
            cluster: CLUSTER,
            node,
            starts: host.starts,
            start,
            address: super::ADDRESS.to_owned(),
        };
        let [of_log, of_detector] = seeds.map(|seed| Box::new(SplitMix64::new(seed)) as Box<dyn Rng>);
        let log = host.open_log(identity, of_log, now)?;
        let detector = Detector::new(CLUSTER, node, host.starts, start, of_detector, now);
        host.process = Some(Process {
            membership: Membership::new(detector, log),
            reporter: Reporter::new(node),
            known: None,
            heard: RingVersion(0),
            open: BTreeMap::new(),
            copies: Copies::default(),
            sending: 0,
            contacts: host.contacts.clone(),
            ask_at: now + ASK_EVERY,
            timer: None,
        });
        let life = host.life();
        self.trace.line(format_args!("{node} starts for the {}. time", life.1));
        if let Some(state) = self.membership(node).and_then(Membership::state) {
            let version = state.ring_version();
            self.remember(node)?;
            self.process(life).expect("it has just been made").heard = version;
            self.hear(life, version);
        }
        self.step(node, membership::Input::Tick, None)
    }

    /// A node's process dies, and starts again after a while.
    pub(super) fn crash(&mut self, node: NodeId) {
        self.deaths += 1;
        self.end_process(node);
        let longest =
            if self.phase == super::Phase::Life { self.plan.down_max } else { self.plan.down_max / 10 };
        let down = self.draw(longest);
        self.events.after(down, Event::Start(node));
    }

    pub(super) fn end_process(&mut self, node: NodeId) {
        let Some(host) = self.hosts.get_mut(&node) else { return };
        let Some(process) = host.process.take() else { return };
        if let Some((_, timer)) = process.timer {
            drop(self.events.cancel(timer));
        }
        self.trace.line(format_args!("{node} has ended"));
        self.clients.on_death(node);
    }

    /// What a node proposes by itself now.
    pub(super) fn report(&mut self, node: NodeId) -> Option<Command> {
        let now = self.events.now();
        let host = self.hosts.get_mut(&node)?;
        let process = host.process.as_mut()?;
        let known = process.known.as_ref()?;
        let oldest = process.open.keys().next().copied();
        let shards = Shards {
            adopted: Some(known.version()).filter(|version| oldest.is_none_or(|oldest| oldest >= *version)),
            copied: process.copies.done(),
            given: known.topology.is_at_rest() && host.store.len() == 0,
        };
        process.reporter.advance(&process.membership, &shards, now)
    }
}
