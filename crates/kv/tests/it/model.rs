//! Random clients against a model of causality that knows every write by name.
//!
//! The model's object is the set of writes it has seen and the values of those that nobody replaced. A client
//! remembers what it read last. Whatever the clients do, readers must see exactly the model's siblings: none
//! lost, none that was replaced. In buckets without siblings they must see the last write.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Node, context, delete, get, put, values};
use bytes::Bytes;
use kv::{BucketProps, Response, Return};
use proptest::prelude::*;

const KEYS: [&str; 2] = ["x", "y"];
const CLIENTS: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    Get,
    Put { blind: bool },
    Delete { blind: bool },
}

fn ops() -> impl Strategy<Value = Vec<(usize, usize, Op)>> {
    let op = prop_oneof![
        3 => Just(Op::Get),
        4 => any::<bool>().prop_map(|blind| Op::Put { blind }),
        1 => any::<bool>().prop_map(|blind| Op::Delete { blind }),
    ];
    prop::collection::vec((0..CLIENTS, 0..KEYS.len(), op), 1..40)
}

/// A write's name.
type Id = u64;

#[derive(Clone, Debug, Default)]
struct Object {
    seen: BTreeSet<Id>,
    siblings: BTreeMap<Id, Option<String>>,
}

impl Object {
    fn write(&mut self, id: Id, value: Option<String>, context: &BTreeSet<Id>) {
        self.siblings.retain(|id, _| !context.contains(id));
        self.siblings.insert(id, value);
        self.seen.insert(id);
    }

    fn is_absent(&self) -> bool {
        self.siblings.values().all(Option::is_none)
    }

    /// What a reader sees.
    fn visible(&self) -> Vec<Option<String>> {
        if self.is_absent() {
            return Vec::new();
        }
        let mut values: Vec<_> = self.siblings.values().cloned().collect();
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
        let remembered = |blind: bool| if blind { Memory::default() } else { memory.clone() };
        match op {
            Op::Get => {
                memory.context = node.siblings(key).0;
                memory.seen = object.seen.clone();
            }
            Op::Put { blind } => {
                let base = remembered(blind);
                let value = format!("v{id}");
                let mut request = put(key, &value);
                (request.context, request.returned) = (base.context, Return::Body);
                let Ok(Response::Put { object: Some(returned), .. }) = node.put(request) else {
                    panic!("a put that answers no object");
                };
                let context_of_write = if keeps_siblings { base.seen } else { object.seen.clone() };
                object.write(id, Some(value), &context_of_write);
                prop_assert_eq!(values(&returned), object.visible());
                prop_assert_eq!(Some(context(&returned)), node.siblings(key).0);
            }
            Op::Delete { blind } => {
                let base = remembered(blind);
                let mut request = delete(key);
                request.context = base.context.clone();
                prop_assert_eq!(node.delete(request), Ok(Response::Deleted));
                if !object.is_absent() {
                    // A delete that names no context deletes whatever is there.
                    let all = base.context.is_none() || !keeps_siblings;
                    let context_of_write = if all { object.seen.clone() } else { base.seen };
                    object.write(id, None, &context_of_write);
                }
            }
        }
        prop_assert_eq!(node.siblings(key).1, object.visible());
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
}
