//! Random clients against a model of causality that knows every write by name.
//!
//! The model's object is the set of writes it has seen and the values of those that nobody replaced. A client
//! remembers what it read last. Whatever the clients do, readers must see exactly the model's siblings: none
//! lost, none that was replaced. In buckets without siblings they must see the last write. Where writes
//! end, each is seen until its time and never after it, also of a store whose clock is behind.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Node, context, delete, get, put, values};
use base::Wall;
use bytes::Bytes;
use kv::{BucketProps, Response, Return};
use proptest::prelude::*;

const KEYS: [&str; 2] = ["x", "y"];
const CLIENTS: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    Get,
    Put {
        blind: bool,
    },
    Delete {
        blind: bool,
    },
    /// Time passes, in seconds.
    DualWrite(u64),
    /// What is written from now on ends after so many.
    Ttl(u32),
}

fn ops() -> impl Strategy<Value = Vec<(usize, usize, Op)>> {
    let op = prop_oneof![
        3 => Just(Op::Get),
        4 => any::<bool>().prop_map(|blind| Op::Put { blind }),
        1 => any::<bool>().prop_map(|blind| Op::Delete { blind }),
    ];
    prop::collection::vec((0..CLIENTS, 0..KEYS.len(), op), 1..40)
}

fn ops_that_end() -> impl Strategy<Value = Vec<(usize, usize, Op)>> {
    let time = prop_oneof![(1_u64..4).prop_map(Op::DualWrite), (0_u32..6).prop_map(Op::Ttl)];
    let of_time = (0..CLIENTS, 0..KEYS.len(), time);
    let all = (ops(), prop::collection::vec((any::<prop::sample::Index>(), of_time), 1..20));
    all.prop_map(|(mut ops, times)| {
        for (at, time) in times {
            ops.insert(at.index(ops.len()), time);
        }
        ops
    })
}

/// A write's name.
type Id = u64;

#[derive(Clone, Debug, Default)]
struct Object {
    seen: BTreeSet<Id>,
    /// Values, and when they end.
    siblings: BTreeMap<Id, (Option<String>, u64)>,
}

impl Object {
    fn write(&mut self, id: Id, value: Option<String>, ends_ms: u64, context: &BTreeSet<Id>) {
        self.siblings.retain(|id, _| !context.contains(id));
        self.siblings.insert(id, (value, ends_ms));
        self.seen.insert(id);
    }

    fn is_absent(&self, now_ms: u64) -> bool {
        self.siblings.values().all(|(value, ends_ms)| value.is_none() || *ends_ms <= now_ms)
    }

    /// Nothing is left of it where all of it has ended.
    fn hide_ended(&mut self, now_ms: u64) {
        if self.siblings.values().all(|(_, ends_ms)| *ends_ms <= now_ms) {
            *self = Object::default();
        }
    }

    /// What a reader sees.
    fn visible(&self, now_ms: u64) -> Vec<Option<String>> {
        if self.is_absent(now_ms) {
            return Vec::new();
        }
        let left = self.siblings.values().filter(|(_, ends_ms)| *ends_ms > now_ms);
        let mut values: Vec<_> = left.map(|(value, _)| value.clone()).collect();
        values.sort();
        values
    }
}

/// What a client remembers of a key.
#[derive(Clone, Debug, Default)]
struct Memory {
    context: Option<Bytes>,
    seen: BTreeSet<Id>,
}

fn run(mut node: Node, ops: Vec<(usize, usize, Op)>, keeps_siblings: bool) -> Result<(), TestCaseError> {
    let mut model: [Object; KEYS.len()] = Default::default();
    let mut memory: [[Memory; KEYS.len()]; CLIENTS] = Default::default();
    for (id, (client, at, op)) in (1..).zip(ops) {
        let (key, object, memory) = (KEYS[at], &mut model[at], &mut memory[client][at]);
        // Requests take a microsecond each, and there are fewer than a thousand.
        let now_ms = Wall(node.wall).millis();
        if node.hides_ended {
            object.hide_ended(now_ms);
        }
        let remembered = |blind: bool| if blind { Memory::default() } else { memory.clone() };
        match op {
            Op::Get => {
                memory.context = node.siblings(key).0;
                memory.seen = object.seen.clone();
            }
            Op::DualWrite(seconds) => {
                node.wall += seconds * 1_000_000;
                continue;
            }
            Op::Ttl(ttl) => {
                node.props.ttl = ttl;
                continue;
            }
            Op::Put { blind } => {
                let base = remembered(blind);
                let (value, is_blind) = (format!("v{id}"), base.context.is_none());
                let mut request = put(key, &value);
                (request.context, request.returned) = (base.context, Return::Body);
                let Ok(Response::Put { object: Some(returned), .. }) = node.put(request) else {
                    panic!("a put that answers no object");
                };
                // A put without a context replaces what no reader is shown.
                let sees_all = !keeps_siblings || (is_blind && object.is_absent(now_ms));
                let context_of_write = if sees_all { object.seen.clone() } else { base.seen };
                let ends_ms = node.props.expires_ms(Wall(node.wall)).unwrap_or(u64::MAX);
                object.write(id, Some(value), ends_ms, &context_of_write);
                prop_assert_eq!(values(&returned), object.visible(now_ms));
                prop_assert_eq!(Some(context(&returned)), node.siblings(key).0);
            }
            Op::Delete { blind } => {
                let base = remembered(blind);
                let mut request = delete(key);
                request.context = base.context.clone();
                prop_assert_eq!(node.delete(request), Ok(Response::Deleted));
                if !object.is_absent(now_ms) {
                    // A delete that names no context deletes whatever is there.
                    let all = base.context.is_none() || !keeps_siblings;
                    let context_of_write = if all { object.seen.clone() } else { base.seen };
                    object.write(id, None, u64::MAX, &context_of_write);
                }
            }
        }
        prop_assert_eq!(node.siblings(key).1, object.visible(now_ms));
        prop_assert!(node.get(get(key)).is_ok());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_sibling_is_lost_and_none_is_false(ops in ops(), inline: bool) {
        let mut node = Node::with_siblings();
        node.inline = inline;
        run(node, ops, true)?;
    }

    #[test]
    fn without_siblings_the_last_write_is_read(ops in ops(), last_write_wins: bool) {
        run(Node::new(BucketProps { last_write_wins, ..BucketProps::default() }), ops, false)?;
    }

    #[test]
    fn what_ends_is_seen_until_then(ops in ops_that_end(), hides_ended: bool, allow_mult: bool) {
        let mut node = Node::new(BucketProps { allow_mult, ..BucketProps::default() });
        node.hides_ended = hides_ended;
        run(node, ops, allow_mult)?;
    }
}
