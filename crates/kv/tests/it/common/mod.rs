//! A store in memory that coordinators are driven against, and what they asked of it.
#![allow(clippy::unwrap_used, reason = "these are tests; clippy knows only functions marked as such")]

use std::collections::BTreeMap;

use base::Wall;
use bytes::Bytes;
use kv::reap::GRAVE_TIME;
use kv::{
    Action, Bucket, BucketProps, Delete, DeleteRequest, Error, Event, Found, Get, GetRequest, Graveyard,
    Limits, Next, Placement, Put, PutRequest, ReadStrategy, Response, StepContext, Stored, VersionClock,
    Want,
};
use object::{Actor, Dot, HeadView, Metadata};

/// This store's actor.
pub const ACTOR: Actor = Actor(7);

/// A step a coordinator asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    ReadHead,
    ReadValue,
    Write,
}

/// One node's store, with knobs.
pub struct Node {
    pub objects: BTreeMap<Bytes, (Bytes, Bytes)>,
    pub props: BucketProps,
    pub limits: Limits,
    /// Every read brings the value along, as for values stored in line.
    pub inline: bool,
    /// Whether it shows nothing of what has ended, as stores do; one whose clock is behind still does.
    pub hides_ended: bool,
    /// What the next read says instead.
    pub fail_read: Option<Error>,
    /// What the next write says instead.
    pub fail_write: Option<Error>,
    pub counter: u64,
    /// The wall clock: a microsecond later at each request.
    pub wall: u64,
    /// The clock of new versions.
    pub clock: VersionClock,
    /// What the last request asked for.
    pub steps: Vec<Step>,
}

impl Node {
    pub fn new(props: BucketProps) -> Node {
        Node {
            objects: BTreeMap::new(),
            props,
            limits: Limits::default(),
            inline: false,
            hides_ended: true,
            fail_read: None,
            fail_write: None,
            counter: 0,
            wall: 1_000_000,
            clock: VersionClock::default(),
            steps: Vec::new(),
        }
    }

    /// A bucket that keeps siblings.
    pub fn with_siblings() -> Node {
        Node::new(BucketProps { allow_mult: true, ..BucketProps::default() })
    }

    pub fn get(&mut self, request: GetRequest) -> Result<Response, Error> {
        let key = request.key.clone();
        let mut coordinator = Get::new(request);
        self.drive(&key, |event, ctx| coordinator.step(event, ctx))
    }

    pub fn put(&mut self, request: PutRequest) -> Result<Response, Error> {
        let key = request.key.clone().unwrap();
        let mut coordinator = Put::new(Box::new(request));
        self.drive(&key, |event, ctx| coordinator.step(event, ctx))
    }

    pub fn delete(&mut self, request: DeleteRequest) -> Result<Response, Error> {
        let key = request.key.clone();
        let mut coordinator = Delete::new(request);
        self.drive(&key, |event, ctx| coordinator.step(event, ctx))
    }

    fn drive(
        &mut self,
        key: &Bytes,
        mut step: impl FnMut(Event, &mut StepContext<'_>) -> Next,
    ) -> Result<Response, Error> {
        self.steps.clear();
        self.wall += 1;
        let (mut event, mut out) = (Event::Start, Vec::new());
        let mut graveyard = Graveyard::new(GRAVE_TIME);
        loop {
            let mut next_dot = |_| {
                self.counter += 1;
                Ok(Dot::new(ACTOR, self.counter))
            };
            let (props, limits) = (&self.props, &self.limits);
            let (place, form) = (|n, _| Placement::alone(n), ReadStrategy::LocalValue);
            let wall = Wall(self.wall);
            let grave = graveyard.plot(key);
            let mut ctx = StepContext {
                here: kv::NodeId(0),
                wall,
                clock: &mut self.clock,
                asker: None,
                next_dot: &mut next_dot,
                place: &place,
                grave,
                may_replace_entries: false,
                form,
                props,
                limits,
                out: &mut out,
            };
            let next = step(event, &mut ctx);
            out.retain(|action| !matches!(action, Action::Propose { .. }));
            assert_eq!(out.len(), 1, "a node alone does one thing after the other: {out:?}");
            event = match out.remove(0) {
                Action::Read { want, .. } => Event::Read(self.read(key, want)),
                Action::Write { head, value, hints } => {
                    assert!(hints.is_empty());
                    self.steps.push(Step::Write);
                    let failure = self.fail_write.take();
                    self.objects.insert(key.clone(), (head, value));
                    Event::Written(failure.map_or(Ok(()), Err))
                }
                Action::Reply(reply) => {
                    assert_eq!(next, Next::Over, "there is nobody else to wait for");
                    return reply;
                }
                other => panic!("a node alone was told to {other:?}"),
            };
        }
    }

    fn read(&mut self, key: &Bytes, want: Want) -> Result<Option<Stored>, Error> {
        self.steps.push(if want == Want::Head { Step::ReadHead } else { Step::ReadValue });
        if let Some(error) = self.fail_read.take() {
            return Err(error);
        }
        let with_value = self.inline || want == Want::Value;
        let stored = |(head, value): &(Bytes, Bytes)| Stored {
            head: head.clone(),
            value: with_value.then(|| value.clone()),
        };
        let has_ended = |head: &[u8]| {
            let ends_ms = HeadView::expiry_of(head).filter(|_| self.hides_ended);
            ends_ms.is_some_and(|ends_ms| ends_ms <= Wall(self.wall).millis())
        };
        Ok(self.objects.get(key).filter(|(head, _)| !has_ended(head)).map(stored))
    }

    /// A plain get's answer: the context, and the siblings by value, `None` for a tombstone.
    pub fn siblings(&mut self, key: &'static str) -> (Option<Bytes>, Vec<Option<String>>) {
        let mut request = get(key);
        request.deleted_context = true;
        match self.get(request).unwrap() {
            Response::NotFound { deleted_context } => (deleted_context, Vec::new()),
            Response::Found(found) => (Some(context(&found)), values(&found)),
            other => panic!("{other:?} to a get"),
        }
    }
}

pub fn bucket() -> Bucket {
    Bucket::untyped(Bytes::from_static(b"b"))
}

pub fn get(key: &'static str) -> GetRequest {
    GetRequest::new(bucket(), Bytes::from(key))
}

pub fn put(key: &'static str, value: &str) -> PutRequest {
    let value = Bytes::copy_from_slice(value.as_bytes());
    PutRequest::new(bucket(), Some(Bytes::from(key)), Metadata::default(), value)
}

pub fn delete(key: &'static str) -> DeleteRequest {
    DeleteRequest::new(bucket(), Bytes::from(key))
}

/// The context a client would be given.
pub fn context(found: &Found) -> Bytes {
    let mut bytes = Vec::new();
    HeadView::parse(&found.head).unwrap().context().write_client_bytes(&mut bytes);
    bytes.into()
}

/// The values a client would be given, sorted; `None` for a tombstone.
pub fn values(found: &Found) -> Vec<Option<String>> {
    let head = HeadView::parse(&found.head).unwrap();
    let all = found.value.clone().unwrap_or_default();
    let value = |sibling: object::SiblingView<'_>| {
        let start = usize::try_from(sibling.value_offset).unwrap();
        let value = &all[start..start + sibling.value_len as usize];
        (!sibling.deleted).then(|| String::from_utf8(value.to_vec()).unwrap())
    };
    if found.newest_only {
        return vec![value(head.newest())];
    }
    let mut values: Vec<_> = head.siblings().map(value).collect();
    values.sort();
    values
}
