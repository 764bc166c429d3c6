//! Plans of a consistent type, against a map that knows what clients may expect; and what replicas do not do beside a
//! group.

use std::collections::BTreeMap;

use base::rng::SplitMix64;
use base::{Rng, Wall};
use bytes::Bytes;
use kv::consistent::{Current, Plan, get_response, join_object, split_object, tombstone};
use kv::reap::{GRAVE_TIME, Part, Round};
use kv::replica::{Answer, Read};
use kv::{
    Action, Bucket, BucketProps, DeleteRequest, Deliver, Error, Event, GetRequest, Graveyard, Limits, Merge,
    Next, NodeId, Placement, PutRequest, ReadStrategy, Reap, Reason, Response, Return, StepContext,
    TransferKey, VersionClock, Want,
};
use object::{Actor, Context, Dot, HeadView, Metadata};
use strong::group::{Condition, Version};

use crate::common::{delete, get, put};

fn props() -> BucketProps {
    BucketProps { consistent: true, ..BucketProps::of_new_type() }
}

/// One replica of a group that applies each write at once.
#[derive(Default)]
struct Replica {
    objects: BTreeMap<Bytes, (Bytes, Bytes)>,
    index: u64,
}

impl Replica {
    fn apply(&mut self, key: &Bytes, plan: &Plan) -> Result<Response, Error> {
        let stored = self.objects.get(key).map(|(head, _)| &head[..]);
        let current = Current::of(stored, 0)?.version;
        let holds = match plan.condition() {
            Condition::None => true,
            Condition::Absent => current.is_none(),
            Condition::Is(version) => current == Some(version),
        };
        if !holds {
            return Err(Error::Failed);
        }
        self.index += 1;
        let version = Version::new(0, self.index);
        let (head, value) = plan.object(version, Wall(self.index));
        let kept = if plan.is_deletion() {
            (tombstone(version), Bytes::new())
        } else {
            split_object(&join_object(&head, &value))?
        };
        assert_eq!(kept, (head.clone(), value.clone()), "replicas store what the leader has made");
        self.objects.insert(key.clone(), kept);
        Ok(plan.response(&head, &value))
    }

    fn get(&self, key: &Bytes) -> Result<Response, Error> {
        get_response(&GetRequest::new(bucket(), key.clone()), self.objects.get(key).cloned(), 0)
    }
}

fn bucket() -> Bucket {
    crate::common::bucket()
}

fn context_of(response: &Response) -> Option<Bytes> {
    match response {
        Response::Found(found) | Response::Put { object: Some(found), .. } => {
            Some(HeadView::parse(&found.head).unwrap().context().to_context().encode().into())
        }
        _ => None,
    }
}

/// Runs random writes of some clients, each of which remembers contexts that it got, of any key. The first difference
/// from what a map says, if there is one.
fn difference(seed: u64) -> Option<String> {
    let mut rng = SplitMix64::new(seed);
    let mut replica = Replica::default();
    // Per key its value and context, if it is there; and the contexts that were ever given out, with their keys.
    let mut model: BTreeMap<Bytes, (Bytes, Bytes)> = BTreeMap::new();
    let foreign: Bytes = [Dot::new(Actor(7), 1)].into_iter().collect::<Context>().encode().into();
    let mut given: Vec<Bytes> = vec![foreign.clone()];
    for step in 0..200 {
        let key = Bytes::from(format!("k{}", rng.below(3)));
        let context = match rng.below(5) {
            0 | 1 => None,
            4 => Some(foreign.clone()),
            2 => model.get(&key).map(|(_, context)| context.clone()),
            _ => Some(given[usize::try_from(rng.below(given.len() as u64)).unwrap()].clone()),
        };
        let is_current = model.get(&key).map(|(_, context)| context) == context.as_ref();
        let is_delete = rng.below(3) == 0;
        let value = Bytes::from(step.to_string());
        let plan = if is_delete {
            Plan::delete(
                DeleteRequest { context: context.clone(), ..DeleteRequest::new(bucket(), key.clone()) },
                &props(),
            )
        } else {
            let put = PutRequest::new(bucket(), Some(key.clone()), Metadata::default(), value.clone());
            let put = PutRequest { context: context.clone(), returned: Return::Body, ..put };
            Plan::put(put, &props(), &Limits::default())
        };
        let result = replica.apply(&key, &plan.unwrap());
        let is_allowed = is_current || (is_delete && context.is_none());
        match &result {
            Ok(response) if is_allowed => {
                model.remove(&key);
                if let Some(context) = context_of(response) {
                    given.push(context.clone());
                    model.insert(key.clone(), (value, context));
                }
            }
            Err(Error::Failed) if !is_allowed => {}
            _ => return Some(format!("{step}: {result:?}, allowed: {is_allowed}")),
        }
        let found = match replica.get(&key).unwrap() {
            Response::Found(found) => {
                let context = context_of(&Response::Found(found.clone())).unwrap();
                Some((found.value.unwrap(), context))
            }
            Response::NotFound { .. } => None,
            other => panic!("{other:?}"),
        };
        if found.as_ref() != model.get(&key) {
            return Some(format!("{step}: {found:?} instead of {:?}", model.get(&key)));
        }
    }
    None
}

#[test]
fn writes_do_what_their_contexts_allow() {
    for seed in 0..200 {
        assert_eq!(difference(seed), None, "seed {seed}");
    }
}

/// The actions of a replica's first step for a key of a consistent type.
fn first_step(mut step: impl FnMut(Event, &mut StepContext<'_>) -> Next) -> (Next, Vec<Action>) {
    let mut out = Vec::new();
    let (key, mut graveyard) = (Bytes::from_static(b"k"), Graveyard::new(GRAVE_TIME));
    let (props, limits, mut clock) = (props(), Limits::default(), VersionClock::default());
    let mut ctx = StepContext {
        here: NodeId(0),
        wall: Wall(1),
        clock: &mut clock,
        asker: None,
        next_dot: &mut |_| Ok(Dot::new(Actor(7), 1)),
        place: &|n, _| Placement::alone(n),
        grave: graveyard.plot(&key),
        may_replace_entries: false,
        form: ReadStrategy::LocalValue,
        props: &props,
        limits: &limits,
        out: &mut out,
    };
    let next = step(Event::Start, &mut ctx);
    (next, out)
}

/// What replicas would do to a consistent key by themselves, if anything.
fn done_beside_the_group() -> Vec<String> {
    let head = tombstone(Version(5));
    let mut done = Vec::new();
    let mut is_refused = |what: &str, (next, actions): (Next, Vec<Action>)| {
        let refusals = actions.iter().all(|action| {
            matches!(
                action,
                Action::Answer(Err(Error::Unavailable) | Ok(Answer::Reaping { agrees: false, .. }))
                    | Action::Forget { object: false, .. }
                    | Action::Reply(Err(Error::Unavailable))
            )
        });
        if !refusals || next != Next::Over {
            done.push(format!("{what}: {actions:?}"));
        }
    };
    let mut merge = Merge::new(head.clone(), Bytes::new(), Vec::new(), Reason::Write);
    is_refused("join", first_step(|event, ctx| merge.step(event, ctx)));
    let mut read = Read::new(Want::Value);
    is_refused("read", first_step(|event, ctx| read.step(event, ctx)));
    let mut reap = Reap::new(head.clone(), true, vec![NodeId(1)]);
    is_refused("reap", first_step(|event, ctx| reap.step(event, ctx)));
    let mut alone = Reap::new(head.clone(), true, Vec::new());
    is_refused("reap alone", first_step(|event, ctx| alone.step(event, ctx)));
    let mut fold = Reap::of_context(true, vec![NodeId(1)]);
    is_refused("fold a context", first_step(|event, ctx| fold.step(event, ctx)));
    for round in [Round::Promise, Round::Confirm, Round::Remove] {
        let mut part = Part::new(round, head.clone(), true, vec![NodeId(1)]);
        is_refused("agree", first_step(|event, ctx| part.step(event, ctx)));
    }
    let mut deliver = Deliver::new(NodeId(1), None);
    is_refused("deliver", first_step(|event, ctx| deliver.step(event, ctx)));
    let mut carry = TransferKey::new(NodeId(1), 1);
    is_refused("carry", first_step(|event, ctx| carry.step(event, ctx)));
    done
}

#[test]
fn replicas_do_nothing_beside_the_group() {
    assert_eq!(done_beside_the_group(), Vec::<String>::new());
}

#[test]
fn without_a_group_requests_are_unavailable() {
    let mut node = crate::common::Node::new(props());
    assert_eq!(node.put(put("k", "v")), Err(Error::Unavailable));
    assert_eq!(node.get(get("k")), Err(Error::Unavailable));
    assert_eq!(node.delete(delete("k")), Err(Error::Unavailable));
    assert!(node.objects.is_empty() && node.steps.is_empty());
}

/// `cargo test -p kv --features planted --test it planted`
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_of_consistent_types_are_caught() {
    use base::planted::{Planted, plant};
    for bug in [Planted::BlindPutReplaces, Planted::ForeignContextIgnored] {
        plant(Some(bug));
        assert!((0..20).all(|seed| difference(seed).is_some()), "{bug:?}");
        plant(None);
    }
    plant(Some(Planted::RepairBesideGroup));
    assert!(!done_beside_the_group().is_empty());
    plant(None);
}
