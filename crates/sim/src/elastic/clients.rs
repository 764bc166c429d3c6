//! Clients: they write and read partitions through any node, with two of three confirmations or answers.
//!
//! A request goes by the ring that its coordinator goes by when it begins. A replica that is not to have the partition,
//! by any ring that it knows, refuses it. While partitions move, a write is confirmed when those have it too to whom it
//! is passed on.
//!
//! What is checked: any two answers to a read have together what was confirmed before it began.

use super::store::{FIRST, Number};
use super::{Event, Life, World};
use crate::check::{Verdict, Violation};
use crate::seed::index_below;
use base::Rng;
use base::rng::SplitMix64;
use membership::NodeId;
use ring::{Partition, RingVersion};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a message of a request takes at most.
const DELAY_MAX: Duration = Duration::from_millis(20);
/// How long a request takes at most: its coordinator goes by its ring for so long.
const REQUEST_MAX: Duration = Duration::from_millis(100);
/// Confirmations of a write, and answers of a read.
const QUORUM: usize = 2;
/// The partitions that requests are for: few enough that some have many.
const PARTITIONS_MAX: usize = 256;

/// A request under way.
struct Request {
    partition: Partition,
    coordinator: Life,
    goes_by: RingVersion,
    list: Vec<NodeId>,
    /// Whether it was asked before, and not answered.
    is_retry: bool,
    what: What,
}

enum What {
    /// By replica: whose confirmation it waits for, and in which life it has it; who has confirmed.
    Write { waits: BTreeMap<usize, (Life, BTreeSet<NodeId>)>, confirmed: BTreeSet<NodeId> },
    /// What was confirmed when it began, and who has answered what.
    Read { confirmed: BTreeSet<Number>, answers: Vec<(NodeId, BTreeSet<Number>)> },
}

/// All clients.
pub(super) struct Clients {
    rng: SplitMix64,
    /// Those that requests are for.
    partitions: Vec<Partition>,
    requests: BTreeMap<Number, Request>,
    last: Number,
    /// The writes of each partition that were confirmed.
    pub(super) confirmed: BTreeMap<Partition, BTreeSet<Number>>,
    reads: u64,
    writes: u64,
    /// Requests of a script, and those of them that were not answered when they were asked once more.
    pub(super) asked: u64,
    pub(super) unserved: u64,
}

impl Clients {
    pub(super) fn new(mut rng: SplitMix64, partitions: u32) -> Clients {
        let mut chosen: Vec<Partition> = (0..partitions).map(Partition).collect();
        while chosen.len() > PARTITIONS_MAX {
            let at = index_below(&mut rng, chosen.len());
            chosen.swap_remove(at);
        }
        Clients {
            rng,
            partitions: chosen,
            requests: BTreeMap::new(),
            last: FIRST,
            confirmed: BTreeMap::new(),
            reads: 0,
            writes: 0,
            asked: 0,
            unserved: 0,
        }
    }

    /// Writes and reads that were acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.reads + self.writes
    }

    /// A coordinator has died: nobody is answered.
    pub(super) fn on_death(&mut self, node: NodeId) {
        for request in self.requests.values_mut().filter(|request| request.coordinator.0 == node) {
            // Its messages go on; no life has this number.
            request.coordinator = Life(node, 0);
        }
    }
}

impl World {
    /// Some client asks something.
    pub(super) fn on_client(&mut self) {
        if self.phase != super::Phase::Life {
            return;
        }
        let think = self.draw(self.plan.think_max);
        self.events.after(think, Event::Client);
        let Some(node) = self.draw_living() else { return };
        let clients = &mut self.clients;
        let partition = clients.partitions[index_below(&mut clients.rng, clients.partitions.len())];
        let is_write = clients.rng.chance(1, 2);
        self.ask(node, partition, is_write, false);
    }

    fn draw_living(&mut self) -> Option<NodeId> {
        let living: Vec<NodeId> =
            self.hosts.iter().filter(|(_, host)| host.process.is_some()).map(|(node, _)| *node).collect();
        (!living.is_empty()).then(|| living[index_below(&mut self.clients.rng, living.len())])
    }

    /// A client asks a node that lives.
    fn ask(&mut self, node: NodeId, partition: Partition, is_write: bool, is_retry: bool) {
        let host = self.hosts.get_mut(&node).expect("it lives");
        let life = host.life();
        let process = host.process.as_mut().expect("it lives");
        let Some(known) = &process.known else { return };
        let (goes_by, list) = (known.version(), known.list(partition));
        *process.open.entry(goes_by).or_default() += 1;
        let clients = &mut self.clients;
        clients.last += 1;
        let what = match is_write {
            true => What::Write { waits: BTreeMap::new(), confirmed: BTreeSet::new() },
            false => What::Read {
                confirmed: clients.confirmed.get(&partition).cloned().unwrap_or_default(),
                answers: Vec::new(),
            },
        };
        let (number, replicas) = (clients.last, list.len());
        let request = Request { partition, coordinator: life, goes_by, list, is_retry, what };
        clients.requests.insert(number, request);
        for at in 0..replicas {
            let delay = self.draw(DELAY_MAX);
            self.events.after(delay, Event::Arrive(number, at));
        }
        self.events.after(REQUEST_MAX, Event::End(number));
    }

    /// A request reaches a replica.
    pub(super) fn on_arrive(&mut self, number: Number, at: usize) {
        let Some(request) = self.clients.requests.get(&number) else { return };
        let (partition, replica) = (request.partition, request.list[at]);
        if request.coordinator.0 != replica && !self.reaches(request.coordinator.0, replica) {
            return;
        }
        let Some(host) = self.hosts.get_mut(&replica) else { return };
        let life = host.life();
        let Some(known) = host.process.as_ref().and_then(|process| process.known.clone()) else { return };
        if !known.keeps(replica, partition) {
            return;
        }
        match &mut self.clients.requests.get_mut(&number).expect("it was just there").what {
            What::Read { answers, .. } => answers.push((replica, host.store.of(partition))),
            What::Write { waits, confirmed } => {
                host.store.write(partition, number);
                let mates = known.mates(replica, partition);
                if mates.is_empty() {
                    confirmed.insert(replica);
                    return;
                }
                waits.insert(at, (life, mates.iter().copied().collect()));
                for mate in mates {
                    let delay = self.draw(DELAY_MAX);
                    self.events.after(delay, Event::Pass(number, at, mate));
                }
            }
        }
    }

    /// What a replica has written reaches whom it passes it on to.
    pub(super) fn on_pass(&mut self, number: Number, at: usize, mate: NodeId) {
        let Some(request) = self.clients.requests.get(&number) else { return };
        let (partition, replica) = (request.partition, request.list[at]);
        if !self.reaches(replica, mate) {
            return;
        }
        let host = self.hosts.get_mut(&mate).expect("it is reached");
        let known = host.process.as_ref().and_then(|process| process.known.clone());
        if !known.is_some_and(|known| known.keeps(mate, partition)) {
            return;
        }
        host.store.write(partition, number);
        let lives: Option<Life> =
            self.hosts.get(&replica).filter(|it| it.process.is_some()).map(|it| it.life());
        let request = self.clients.requests.get_mut(&number).expect("it was just there");
        if let What::Write { waits, confirmed } = &mut request.what
            && let Some((life, mates)) = waits.get_mut(&at)
        {
            mates.remove(&mate);
            if mates.is_empty() && lives == Some(*life) {
                confirmed.insert(replica);
            }
        }
    }

    /// A request is over.
    pub(super) fn on_end(&mut self, number: Number) -> Verdict {
        let Some(request) = self.clients.requests.remove(&number) else { return Ok(()) };
        if self.script.is_some() {
            self.ask_again(&request);
        }
        let Request { partition, coordinator, goes_by, what, .. } = request;
        let Some(process) = self.process(coordinator) else { return Ok(()) };
        let open = process.open.get_mut(&goes_by).expect("it was counted");
        *open -= 1;
        if *open == 0 {
            process.open.remove(&goes_by);
        }
        match what {
            What::Write { confirmed, .. } if confirmed.len() >= QUORUM => {
                self.clients.writes += 1;
                self.clients.confirmed.entry(partition).or_default().insert(number);
            }
            What::Write { .. } => {}
            What::Read { confirmed, answers } => {
                self.clients.reads += u64::from(answers.len() >= QUORUM);
                check_read(partition, goes_by, &confirmed, &answers)?;
            }
        }
        self.follow(coordinator.0)
    }
}

impl World {
    /// A client that was not answered asks another node, once.
    fn ask_again(&mut self, request: &Request) {
        let has_quorum = match &request.what {
            What::Write { confirmed, .. } => confirmed.len() >= QUORUM,
            What::Read { answers, .. } => answers.len() >= QUORUM,
        };
        let is_served = has_quorum && self.process(request.coordinator).is_some();
        self.clients.asked += u64::from(!request.is_retry);
        if is_served {
            return;
        }
        match self.draw_living().filter(|_| !request.is_retry) {
            Some(node) => {
                let is_write = matches!(request.what, What::Write { .. });
                self.ask(node, request.partition, is_write, true);
            }
            None => self.clients.unserved += 1,
        }
    }
}

/// Checks that any two answers have what was confirmed.
fn check_read(
    partition: Partition,
    goes_by: RingVersion,
    confirmed: &BTreeSet<Number>,
    answers: &[(NodeId, BTreeSet<Number>)],
) -> Verdict {
    for (at, (one, has)) in answers.iter().enumerate() {
        for (other, had) in &answers[at + 1..] {
            let is_seen = |number: &&Number| has.contains(number) || had.contains(number);
            if let Some(lost) = confirmed.iter().find(|number| !is_seen(number)) {
                let what = format!(
                    "partition {}, ring {}: {one} and {other} answered without write {lost}",
                    partition.0, goes_by.0
                );
                return Err(Violation::new("two of three replicas have each confirmed write", what));
            }
        }
    }
    Ok(())
}
