//! Requests of connections and their answers.
//!
//! 1. A request gets the next number. If it is answered at once, that is all.
//! 2. Else it has a place, where answers wait for its connection.
//! 3. A request with more than one answer goes on when its connection has sent one ([`Pending::proceed`]).
//!
//! Invariant: a request has a place as long as somebody waits for its answers. Answers without a place are dropped.

use super::Local;
use base::FastMap;
use kv::{Error, Response};
use node::RequestId;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// One answer, and whether more follow.
pub type Answer = (Result<Response, Error>, bool);

/// Where a connection waits for its answer.
#[derive(Default)]
pub(super) struct Slot {
    answers: RefCell<VecDeque<Answer>>,
    waker: RefCell<Option<Waker>>,
}

impl Slot {
    /// The next answer.
    async fn next(&self) -> Answer {
        poll_fn(|context| match self.answers.borrow_mut().pop_front() {
            Some(answer) => Poll::Ready(answer),
            None => {
                *self.waker.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    fn has_answers(&self) -> bool {
        !self.answers.borrow().is_empty()
    }
}

/// The requests of a shard's connections whose answers will come.
#[derive(Default)]
pub(super) struct WaitingRequests {
    places: RefCell<FastMap<RequestId, Rc<Slot>>>,
    last: Cell<u64>,
}

impl WaitingRequests {
    /// The number of a new request.
    pub(super) fn next_id(&self) -> RequestId {
        let id = RequestId(self.last.get() + 1);
        self.last.set(id.0);
        id
    }

    /// Makes a place for a request's answers.
    pub(super) fn wait_for(&self, id: RequestId) -> Rc<Slot> {
        let slot = Rc::new(Slot::default());
        self.places.borrow_mut().insert(id, Rc::clone(&slot));
        slot
    }

    /// Removes a request's place.
    pub(super) fn remove(&self, id: RequestId) {
        self.places.borrow_mut().remove(&id);
    }

    /// Brings an answer.
    pub(super) fn deliver(&self, to: RequestId, answer: Answer) {
        // A connection that is gone waits for nothing.
        let Some(slot) = self.places.borrow().get(&to).cloned() else { return };
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

impl<'a> Pending<'a> {
    /// Of a request that was answered at once, for the first time at least.
    pub(super) fn answered(local: &'a Local, id: RequestId, answer: Answer) -> Pending<'a> {
        let over = !answer.1;
        Pending { local, id, first: Some(answer), slot: None, over }
    }

    /// Of a request whose answers will come.
    pub(super) fn waiting(local: &'a Local, id: RequestId) -> Pending<'a> {
        Pending { local, id, first: None, slot: Some(local.wait_for(id)), over: false }
    }

    /// The next answer.
    pub async fn next(&mut self) -> Answer {
        let answer = match self.first.take() {
            Some(answer) => answer,
            None => {
                let slot =
                    Rc::clone(self.slot.as_ref().expect("an answer that is not here yet is waited for"));
                slot.next().await
            }
        };
        self.over = !answer.1;
        answer
    }

    /// Whether the last answer was brought by a turn, and so came together with those of other connections.
    pub fn came_by_turn(&self) -> bool {
        self.slot.is_some()
    }

    /// Lets a listing go on; to be called when an answer that was not the last has been sent.
    pub fn proceed(&mut self) {
        if self.slot.is_none() {
            self.slot = Some(self.local.wait_for(self.id));
        }
        let waits = self.slot.as_ref().is_some_and(|slot| slot.has_answers());
        if !waits {
            self.local.proceed(self.id);
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.slot.is_some() {
            self.local.stop_waiting(self.id);
        }
        if !self.over {
            self.local.forget(self.id);
        }
    }
}
