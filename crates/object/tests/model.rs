//! Concurrent clients against a model that knows every history.
//!
//! The model has no version vectors. It keeps, for each write, the explicit set of writes its client had seen
//! (its past), and for each replica the explicit set of writes it has heard of. What a replica must hold follows
//! from the definition: the writes it has heard of that are in the past of no other write it has heard of. If it
//! holds fewer, an acknowledged write is lost; if it holds more, there is a false sibling.
//!
//! Where siblings are not kept, the write of a store counts as having seen what it replaced there.
//!
//! Clients read anywhere, keep what they read for any time, and put or delete with it, or blindly, anywhere.
//! Replicas exchange objects in any order, late and repeatedly. Each has an actor of its own, and its counter
//! also counts writes of other keys.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use object::{Actor, Context, Dot, Head, HeadView, Metadata, Object, Policy, Put, merge, update};
use proptest::collection::vec;
use proptest::prelude::*;

type Dots = BTreeSet<Dot>;

/// An object, and the writes that whoever holds it has heard of.
#[derive(Debug, Clone, Default)]
struct Copy {
    object: Option<Object>,
    heard: Dots,
}

#[derive(Debug, Clone)]
enum Op {
    /// The client reads the replica.
    Read { client: usize, replica: usize },
    /// The client writes, with what it last read unless `blind`; it learns the result if `return_body`.
    Put { client: usize, replica: usize, blind: bool, delete: bool, return_body: bool, skip: u64, time: u64 },
    /// A message leaves the replica, to arrive whenever.
    Send { replica: usize },
    /// A message arrives, and stays in flight to arrive again.
    Receive { replica: usize, message: usize },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (0usize..4, 0usize..3).prop_map(|(client, replica)| Op::Read { client, replica }),
        5 => (0usize..4, 0usize..3, 0u8..4, 0u8..5, any::<bool>(), 0u64..3, 0u64..4).prop_map(
            |(client, replica, blind, delete, return_body, skip, time)| Op::Put {
                client, replica, blind: blind == 0, delete: delete == 0, return_body, skip, time,
            }
        ),
        2 => (0usize..3).prop_map(|replica| Op::Send { replica }),
        3 => (0usize..3, 0usize..64).prop_map(|(replica, message)| Op::Receive { replica, message }),
    ];
    vec(op, 1..40)
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::AllowMult), Just(Policy::Newest), Just(Policy::LastWriteWins)]
}

struct World {
    policy: Policy,
    replicas: Vec<Copy>,
    counters: Vec<u64>,
    clients: Vec<(Option<Context>, Dots)>,
    messages: Vec<Copy>,
    /// What the client of each write had seen.
    past: BTreeMap<Dot, Dots>,
}

impl World {
    fn new(replicas: usize, policy: Policy) -> World {
        World {
            policy,
            replicas: vec![Copy::default(); replicas],
            counters: vec![0; replicas],
            clients: vec![(None, Dots::new()); 4],
            messages: Vec::new(),
            past: BTreeMap::new(),
        }
    }

    fn step(&mut self, op: &Op) {
        let count = self.replicas.len();
        match *op {
            Op::Read { client, replica } => self.read(client, replica % count),
            Op::Put { client, replica, blind, delete, return_body, skip, time } => {
                let replica = replica % count;
                self.counters[replica] += 1 + skip;
                let put = self.put_of(client, replica, blind, delete, time);
                self.put(client, replica, put);
                if return_body {
                    self.read(client, replica);
                }
            }
            Op::Send { replica } => self.messages.push(self.replicas[replica % count].clone()),
            Op::Receive { replica, message } => {
                if let Some(copy) = self.messages.get(message % self.messages.len().max(1)).cloned() {
                    self.receive(replica % count, &copy);
                }
            }
        }
    }

    fn read(&mut self, client: usize, replica: usize) {
        let copy = &self.replicas[replica];
        let context = copy.object.as_ref().map(|object| object.head().context().clone());
        self.clients[client] = (context, copy.heard.clone());
    }

    fn put_of(&self, client: usize, replica: usize, blind: bool, delete: bool, time: u64) -> Put {
        let context = if blind { None } else { self.clients[client].0.clone() };
        if delete {
            return Put::delete(self.replicas[replica].object.as_ref().map(Object::head), context, time);
        }
        let value = Bytes::from(format!("{replica}.{}", self.counters[replica]));
        Put { context, metadata: Metadata { last_modified: time, ..Metadata::default() }, value }
    }

    fn put(&mut self, client: usize, replica: usize, put: Put) {
        let dot = Dot::new(Actor(replica as u64 * 77), self.counters[replica]);
        let is_gone =
            self.replicas[replica].object.as_ref().is_some_and(|object| object.head().is_tombstone());
        let mut past = match &put.context {
            // Over tombstones alone it counts as having seen what is there.
            None if is_gone => self.replicas[replica].heard.clone(),
            None => Dots::new(),
            Some(_) if put.metadata.deleted && self.clients[client].0 != put.context => {
                self.replicas[replica].heard.clone()
            }
            Some(_) => self.clients[client].1.clone(),
        };
        let copy = &mut self.replicas[replica];
        let object = update(copy.object.take(), put, dot, self.policy).expect("a plain write");
        match self.policy {
            Policy::AllowMult => {}
            // A store has seen what it wrote itself; and all it holds, where it lets nothing lie beside.
            Policy::Newest if object.head().siblings().len() > 1 => {
                past.extend(copy.heard.iter().filter(|heard| heard.actor == dot.actor));
            }
            Policy::Newest | Policy::LastWriteWins => past.extend(&copy.heard),
        }
        copy.object = Some(object);
        copy.heard.extend(&past);
        copy.heard.insert(dot);
        self.past.insert(dot, past);
    }

    fn receive(&mut self, replica: usize, message: &Copy) {
        let copy = &mut self.replicas[replica];
        copy.object = match (copy.object.take(), &message.object) {
            (Some(mine), Some(theirs)) => Some(merge(&mine, theirs).expect("few actors")),
            (mine, theirs) => mine.or_else(|| theirs.clone()),
        };
        copy.heard.extend(&message.heard);
    }

    /// The writes in `heard` that no other write in it had seen.
    fn frontier(&self, heard: &Dots) -> Dots {
        let seen: Dots = heard.iter().flat_map(|dot| self.past[dot].iter().copied()).collect();
        heard.difference(&seen).copied().collect()
    }

    fn check(&self, copy: &Copy) {
        let Some(object) = &copy.object else {
            assert!(copy.heard.is_empty());
            return;
        };
        let head = object.head();
        let held: Dots = head.siblings().iter().map(|sibling| sibling.dot).collect();
        for &dot in self.past.keys() {
            assert_eq!(head.context().covers(dot), copy.heard.contains(&dot), "context: {dot:?}");
        }
        assert_eq!(held, self.frontier(&copy.heard));
        check_values(object);
        check_encoding(head);
    }

    /// Every replica hears everything, twice, in different orders.
    fn settle(&mut self) {
        for round in 0..2 {
            for at in 0..self.replicas.len() {
                let mut all = self.replicas.clone();
                all.rotate_left(round + at);
                all.iter().for_each(|copy| self.receive(at, copy));
            }
        }
    }
}

/// Each sibling still has the value it was written with.
fn check_values(object: &Object) {
    for (at, sibling) in object.head().siblings().iter().enumerate() {
        let written = format!("{}.{}", sibling.dot.actor.0 / 77, sibling.dot.counter);
        let expected = if sibling.metadata.deleted { "" } else { &written };
        assert_eq!(object.value(at), expected);
    }
}

fn check_encoding(head: &Head) {
    let mut bytes = Vec::new();
    head.encode(&mut bytes);
    assert_eq!(Head::decode(&bytes).as_ref(), Ok(head));
}

fn run(ops: &[Op], replicas: usize, policy: Policy) -> World {
    let mut world = World::new(replicas, policy);
    for op in ops {
        world.step(op);
        world.replicas.iter().for_each(|copy| world.check(copy));
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn no_write_is_lost_and_no_sibling_is_false(ops in ops(), replicas in 1usize..=3, policy in policy()) {
        let mut world = run(&ops, replicas, policy);
        world.settle();
        for copy in &world.replicas {
            world.check(copy);
            prop_assert_eq!(copy.heard.len(), world.past.len());
            prop_assert_eq!(&copy.object, &world.replicas[0].object);
        }
    }

    #[test]
    fn a_bucket_of_the_newest_shows_what_its_writer_wrote_unless_another_wrote_later(
        ops in ops(),
        replicas in 1usize..=3,
    ) {
        let mut world = World::new(replicas, Policy::Newest);
        for op in &ops {
            world.step(op);
            let Op::Put { replica, .. } = *op else { continue };
            let (replica, written) = (replica % replicas, world.counters[replica % replicas]);
            let written = Dot::new(Actor(replica as u64 * 77), written);
            let head = world.replicas[replica].object.as_ref().unwrap().head();
            let time = |dot| head.siblings().iter().find(|s| s.dot == dot).unwrap().metadata.last_modified;
            let shown = head.siblings()[head.newest()].dot;
            prop_assert!(shown == written || (shown.actor != written.actor && time(shown) >= time(written)));
            prop_assert!(shown != written || head.siblings().len() == 1);
            let mut actors: Vec<Actor> = head.siblings().iter().map(|sibling| sibling.dot.actor).collect();
            actors.dedup();
            prop_assert_eq!(actors.len(), head.siblings().len());
        }
    }

    #[test]
    fn merging_is_commutative_associative_and_idempotent(
        ops in ops(),
        policy in policy(),
        picks in (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<prop::sample::Index>()),
    ) {
        let world = run(&ops, 3, policy);
        let objects: Vec<Object> =
            world.messages.iter().chain(&world.replicas).filter_map(|copy| copy.object.clone()).collect();
        if objects.is_empty() {
            return Ok(());
        }
        let (a, b, c) = (picks.0.get(&objects), picks.1.get(&objects), picks.2.get(&objects));
        let join = |a: &Object, b: &Object| merge(a, b).unwrap();
        prop_assert_eq!(&join(a, a), a);
        prop_assert_eq!(join(a, b), join(b, a));
        prop_assert_eq!(join(&join(a, b), c), join(a, &join(b, c)));
        prop_assert_eq!(join(&join(a, b), b), join(a, b));
        let bytes = |object: &Object| {
            let mut bytes = Vec::new();
            object.head().encode(&mut bytes);
            bytes
        };
        let (head_a, head_b) = (bytes(a), bytes(b));
        let view = |head| HeadView::parse(head).unwrap();
        prop_assert_eq!(view(&head_a).absorbs(&view(&head_b)), join(a, b) == *a);
    }
}
