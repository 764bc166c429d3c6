//! What the connections and the loop of one shard's thread share.
//!
//! A request whose answer is ready at once goes from the socket through the shard and back within one call
//! ([`Local::ask`]): no queue, no wake-up. Any other is filed under its id until the loop brings the answer.

use crate::mailbox::Mailboxes;
use base::FastMap;
use kv::{Error, Request, Response};
use node::{Hop, Output, RequestId, Shard, ShardId, ShardStats};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// One answer, and whether more follow.
pub type Answer = (Result<Response, Error>, bool);

/// Where a connection waits for its answer.
#[derive(Default)]
struct Slot {
    answers: RefCell<VecDeque<Answer>>,
    waker: RefCell<Option<Waker>>,
}

/// A shard and its surroundings, on its thread.
pub struct Local {
    id: ShardId,
    shard: RefCell<Shard>,
    mailboxes: Arc<Mailboxes>,
    waiting: RefCell<FastMap<RequestId, Rc<Slot>>>,
    last_request: Cell<u64>,
    outputs: RefCell<Vec<Output>>,
    hops: RefCell<Vec<Vec<Hop>>>,
    incoming: RefCell<Vec<Hop>>,
    closed: RefCell<Option<Result<(), engine::Error>>>,
}

impl Local {
    /// Around `shard`.
    pub fn new(id: ShardId, shards: u16, shard: Shard, mailboxes: Arc<Mailboxes>) -> Local {
        Local {
            id,
            shard: RefCell::new(shard),
            mailboxes,
            waiting: RefCell::default(),
            last_request: Cell::new(0),
            outputs: RefCell::default(),
            hops: RefCell::new((0..shards).map(|_| Vec::new()).collect()),
            incoming: RefCell::default(),
            closed: RefCell::default(),
        }
    }

    /// Gives a request to the shard. If it is not answered at once the loop is woken, which runs when the other
    /// connections that have input have had their turn: that is what makes a batch.
    pub fn ask(&self, request: Request) -> Pending<'_> {
        let id = RequestId(self.last_request.get() + 1);
        self.last_request.set(id.0);
        let mut shard = self.shard.borrow_mut();
        shard.request(id, request);
        let mut outputs = self.outputs.borrow_mut();
        shard.take_outputs(&mut outputs);
        drop(shard);
        let at_once = match &outputs[..] {
            [Output::Reply { to, .. }] if *to == id => outputs.pop(),
            _ => None,
        };
        match at_once {
            // A write of durability `none` is answered before it is handed to the disk.
            Some(Output::Reply { result, more, .. }) => {
                self.wake_for_writes();
                Pending { local: self, id, first: Some((result, more)), slot: None, over: !more }
            }
            _ => {
                let slot = Rc::new(Slot::default());
                self.waiting.borrow_mut().insert(id, Rc::clone(&slot));
                self.dispatch(&mut outputs);
                self.wake();
                Pending { local: self, id, first: None, slot: Some(slot), over: false }
            }
        }
    }

    /// One turn of the shard: takes the mail, ends the turn, and sends what came of it.
    pub fn turn(&self) {
        let mut incoming = self.incoming.borrow_mut();
        self.mailboxes.of(self.id).take(&mut incoming);
        let mut shard = self.shard.borrow_mut();
        for message in incoming.drain(..) {
            shard.hop(message);
        }
        shard.turn();
        let mut outputs = self.outputs.borrow_mut();
        shard.take_outputs(&mut outputs);
        drop(shard);
        self.dispatch(&mut outputs);
        for (to, messages) in self.hops.borrow_mut().iter_mut().enumerate() {
            if !messages.is_empty() {
                let to = ShardId(u16::try_from(to).expect("a node has fewer shards than that"));
                self.mailboxes.of(to).put(messages);
            }
        }
    }

    /// Answers what is past its deadline.
    pub fn tick(&self) {
        self.shard.borrow_mut().tick();
        self.wake();
    }

    /// Begins the clean stop.
    pub fn begin_close(&self) {
        self.shard.borrow_mut().begin_close();
        self.wake();
    }

    /// How the clean stop ended, once it has.
    pub fn take_closed(&self) -> Option<Result<(), engine::Error>> {
        self.closed.borrow_mut().take()
    }

    /// What the shard is doing.
    pub fn stats(&self) -> ShardStats {
        self.shard.borrow().stats()
    }

    /// Waits until somebody has woken the loop.
    pub async fn woken(&self) {
        self.mailboxes.of(self.id).wake.notified().await;
    }

    fn wake(&self) {
        self.mailboxes.of(self.id).wake.notify_one();
    }

    fn wake_for_writes(&self) {
        if self.shard.borrow().wants_turn() {
            self.wake();
        }
    }

    fn dispatch(&self, outputs: &mut Vec<Output>) {
        for output in outputs.drain(..) {
            match output {
                Output::Reply { to, result, more } => self.deliver(to, (result, more)),
                Output::Hop { to, message } => self.hops.borrow_mut()[usize::from(to.0)].push(message),
                Output::Closed(result) => *self.closed.borrow_mut() = Some(result),
            }
        }
    }

    fn deliver(&self, to: RequestId, answer: Answer) {
        // A connection that is gone waits for nothing.
        let Some(slot) = self.waiting.borrow().get(&to).cloned() else { return };
        slot.answers.borrow_mut().push_back(answer);
        if let Some(waker) = slot.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// A request's answers, as they come. Dropping it forgets the request.
pub struct Pending<'a> {
    local: &'a Local,
    id: RequestId,
    first: Option<Answer>,
    slot: Option<Rc<Slot>>,
    over: bool,
}

impl Pending<'_> {
    /// The next answer.
    pub async fn next(&mut self) -> Answer {
        let answer = match self.first.take() {
            Some(answer) => answer,
            None => {
                let slot =
                    Rc::clone(self.slot.as_ref().expect("an answer that is not here yet is waited for"));
                poll_fn(|context| match slot.answers.borrow_mut().pop_front() {
                    Some(answer) => Poll::Ready(answer),
                    None => {
                        *slot.waker.borrow_mut() = Some(context.waker().clone());
                        Poll::Pending
                    }
                })
                .await
            }
        };
        self.over = !answer.1;
        answer
    }

    /// Lets a listing go on; to be called when an answer that was not the last has been sent.
    pub fn proceed(&mut self) {
        if self.slot.is_none() {
            let slot = Rc::new(Slot::default());
            self.local.waiting.borrow_mut().insert(self.id, Rc::clone(&slot));
            self.slot = Some(slot);
        }
        let waits = self.slot.as_ref().is_some_and(|slot| !slot.answers.borrow().is_empty());
        if !waits {
            self.local.shard.borrow_mut().proceed(self.id);
            self.local.wake();
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.slot.is_some() {
            self.local.waiting.borrow_mut().remove(&self.id);
        }
        if !self.over {
            self.local.shard.borrow_mut().forget(self.id);
        }
    }
}
