//! State shared by the connections and the loop of one shard's thread.
//!
//! A request whose answer is ready at once goes from the socket through the shard and back within one call
//! ([`Local::ask`]): no queue, no wake-up. Any other is filed under its id until the loop brings the answer.

use crate::compact;
use crate::groups;
use crate::mailbox::{MESSAGES_MAX, Mail, Mailboxes};
use crate::membership;
use crate::peer::{LINKS_MAX, Links, PeerFigures};
use crate::slow;
use base::{FastMap, Monotonic};
use kv::{Error, Request, Response, TypeChange};
use node::peer::route;
use node::{
    LatencyRead, Layout, Output, PeerMessage, RefusedMessage, RequestId, Shard, ShardId, ShardStats, Topology,
};
use ring::NodeId;
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
    mail: RefCell<Vec<Vec<Mail>>>,
    incoming: RefCell<Vec<Mail>>,
    closed: RefCell<Option<Result<(), engine::Error>>>,
    layout: Layout,
    /// `None` for a node alone.
    links: Option<Links>,
    membership: membership::Handle,
    /// Messages to other nodes that could not be sent, until the shard takes them back.
    bounced: RefCell<Vec<(NodeId, PeerMessage)>>,
    /// The shard takes nothing more.
    closing: Cell<bool>,
}

impl Local {
    /// Around `shard`.
    pub fn new(
        id: ShardId,
        layout: Layout,
        shard: Shard,
        mailboxes: Arc<Mailboxes>,
        links: Option<Links>,
        membership: membership::Handle,
    ) -> Local {
        Local {
            id,
            shard: RefCell::new(shard),
            mailboxes,
            waiting: RefCell::default(),
            last_request: Cell::new(0),
            outputs: RefCell::default(),
            mail: RefCell::new((0..layout.shards).map(|_| Vec::new()).collect()),
            incoming: RefCell::default(),
            closed: RefCell::default(),
            layout,
            links,
            membership,
            bounced: RefCell::default(),
            closing: Cell::new(false),
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
        for mail in incoming.drain(..) {
            self.take(mail, &mut shard);
        }
        shard.turn();
        let mut outputs = self.outputs.borrow_mut();
        shard.take_outputs(&mut outputs);
        drop(shard);
        self.dispatch(&mut outputs);
        if self.has_more() {
            self.wake();
        }
        for (to, messages) in self.mail.borrow_mut().iter_mut().enumerate() {
            if !messages.is_empty() {
                let to = ShardId(u16::try_from(to).expect("a node has fewer shards than that"));
                self.mailboxes.of(to).put(messages);
            }
        }
    }

    /// Whether the shard may be ticked less often.
    pub fn is_quiet(&self) -> bool {
        self.shard.borrow().is_quiet()
    }

    /// When the shard has something to do next for a deadline or a delay, unless it is woken before.
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.shard.borrow().next_deadline()
    }

    /// Whether requests wait to be begun.
    pub fn has_waiting(&self) -> bool {
        self.shard.borrow().has_waiting()
    }

    /// Whether the next turn has something to do at once.
    pub fn has_more(&self) -> bool {
        self.shard.borrow().has_more()
    }

    fn take(&self, mail: Mail, shard: &mut Shard) {
        match mail {
            Mail::Hop(message) => shard.hop(message),
            // What comes while the store closes is lost, as if the process had ended.
            Mail::Peer { .. }
            | Mail::Bounce { .. }
            | Mail::Progress { .. }
            | Mail::Link { .. }
            | Mail::Doubt(_)
            | Mail::Topology(_)
            | Mail::Budget(_)
            | Mail::Agreement(_)
            | Mail::KeepBirth(_)
            | Mail::Adopt(..)
                if self.closing.get() => {}
            Mail::Backup(asked) => shard.control().begin_backup(asked),
            Mail::Compact(page, tell) => drop(tell.send(compact::put_to(page, shard))),
            // Whoever asked may have given up.
            Mail::Groups(tell) => drop(tell.send(groups::of_shard(shard))),
            Mail::Copies(tell) => drop(tell.send(shard.status().copies())),
            Mail::Adopt(adoption, tell) => {
                drop(tell.send(shard.adopt(&adoption).map_err(|it| it.to_string())))
            }
            Mail::Trees(ask, tell) => drop(tell.send(ask.put_to(shard))),
            Mail::Topology(topology) => shard.topology(Topology::clone(&topology)),
            Mail::Budget(budget) => shard.budget(budget),
            Mail::Agreement(agreement) => shard.agree(agreement),
            Mail::KeepBirth(birth) => shard.keep_birth(birth),
            Mail::Progress { from } => shard.progress(from),
            Mail::Peer { from, message } => shard.peer(from, message),
            Mail::Bounce { to, message } => shard.bounce(to, message),
            Mail::Link { node, is_up } => shard.link(node, is_up),
            Mail::Doubt(node) => shard.doubt(node),
            Mail::Send { from, to, message } => {
                if let Some(message) = self.links().send(from, to, message) {
                    self.put(from, Mail::Bounce { to, message });
                }
            }
        }
    }

    /// Hands over messages of another node, which came together.
    pub fn receive(&self, from: NodeId, messages: &mut Vec<PeerMessage>) {
        if self.closing.get() {
            return messages.clear();
        }
        let mut shard = self.shard.borrow_mut();
        for message in messages.drain(..) {
            if let PeerMessage::Membership { bytes } = message {
                self.membership.word(from, bytes);
                continue;
            }
            match route(&message, &self.layout) {
                to if to == self.id => shard.peer(from, message),
                to => self.put(to, Mail::Peer { from, message }),
            }
        }
        self.wake();
    }

    /// Tells whoever waits for a message of another node that there is no memory for it.
    pub fn refuse(&self, from: NodeId, refused: RefusedMessage) {
        match refused {
            RefusedMessage::Answer(message) => self.send(from, message),
            RefusedMessage::Instead(message) => self.receive(from, &mut vec![message]),
            RefusedMessage::Nothing => {}
        }
        self.give_back();
        self.wake();
    }

    /// Tells all shards that a large message of another node is arriving, which keeps its other messages waiting.
    pub fn progress(&self, from: NodeId) {
        self.shard.borrow_mut().progress(from);
        for shard in (0..self.layout.shards).map(ShardId).filter(|&shard| shard != self.id) {
            self.put(shard, Mail::Progress { from });
        }
        if self.layout.shards > 1 {
            self.wake();
        }
    }

    /// Whether another shard cannot take what other nodes send to it as fast as it comes.
    pub fn is_congested(&self) -> bool {
        let is_full = |shard| self.mailboxes.of(ShardId(shard)).len() >= MESSAGES_MAX;
        self.layout.shards > 1 && (0..self.layout.shards).any(is_full)
    }

    /// A link of this shard has come up, or gone down. Other shards may use it too.
    pub fn link(&self, node: NodeId, is_up: bool) {
        if !self.closing.get() {
            self.shard.borrow_mut().link(node, is_up);
        }
        for shard in (self.id.0..self.layout.shards).step_by(usize::from(LINKS_MAX)).skip(1) {
            self.put(ShardId(shard), Mail::Link { node, is_up });
        }
        self.wake();
    }

    /// Gives a message back to the shard that wanted to send it.
    pub fn bounce(&self, from: ShardId, to: NodeId, message: PeerMessage) {
        if from != self.id {
            self.put(from, Mail::Bounce { to, message });
        } else if !self.closing.get() {
            self.shard.borrow_mut().bounce(to, message);
        }
        self.wake();
    }

    /// Notes the largest number of replicas of any bucket or type, before the membership is asked about the ring.
    pub fn note_n_val_max(&self) {
        let n_val = self.shard.borrow().status().n_vals().into_iter().max();
        self.membership.note_n_val_max(n_val.unwrap_or_default());
    }

    /// The number of replicas of a consistent bucket type that a request activates; `None` of any other request.
    pub fn activates_consistent(&self, request: &Request) -> Option<u32> {
        let Request::ChangeType(name, TypeChange::Activate) = request else { return None };
        self.shard.borrow().status().inactive_consistent(name)
    }

    /// The links to other nodes.
    ///
    /// # Panics
    /// If the node is alone.
    pub fn links(&self) -> &Links {
        self.links.as_ref().expect("only a node of a cluster has to do with links")
    }

    /// What went to and came from other nodes, by node; nothing for a node alone.
    pub fn peer_figures(&self) -> Vec<PeerFigures> {
        self.links.as_ref().map_or(Vec::new(), Links::figures)
    }

    /// Answers what is past its deadline.
    pub fn tick(&self, now: Monotonic) {
        let mut shard = self.shard.borrow_mut();
        shard.tick();
        self.membership.look(self.id, &shard);
        for damage in shard.control().take_damage() {
            tracing::warn!(%damage, "damage found");
        }
        for loss in shard.control().take_copy_losses() {
            let from = shard.status().name_of(loss.from);
            let others: Vec<String> = loss.others.iter().map(|&node| shard.status().name_of(node)).collect();
            match others[..] {
                [] => tracing::error!(
                    from,
                    partition = %loss.partition,
                    "the sender of a partition has lost objects, and no other replica is complete: these objects are lost"
                ),
                _ => tracing::warn!(
                    from,
                    partition = %loss.partition,
                    others = others.join(", "),
                    "the sender of a partition has lost objects: they are copied from other replicas, too"
                ),
            }
        }
        if let Some(ahead) = shard.control().take_time_ahead() {
            let writer = ahead.writer.map_or("unknown".to_owned(), |node| shard.status().name_of(node));
            tracing::warn!(
                writer,
                seconds = ahead.seconds,
                "a version's time is far ahead of this node's clock: check the clocks of all nodes"
            );
        }
        drop(shard);
        if let Some(links) = &self.links {
            links.sweep(now);
        }
        self.wake();
    }

    /// Begins the clean stop: other nodes are told.
    pub fn begin_stop(&self) {
        self.shard.borrow_mut().begin_stop();
        self.wake();
    }

    /// Whether nobody waits for this shard any more, or will ask it anything.
    pub fn is_drained(&self) -> bool {
        self.shard.borrow().is_drained()
    }

    /// Ends the clean stop. Other nodes see at once that this one is no more.
    pub fn begin_close(&self) {
        self.closing.set(true);
        if let Some(links) = &self.links {
            links.close();
        }
        self.shard.borrow_mut().begin_close();
        self.wake();
    }

    /// How the clean stop ended, once it has.
    pub fn take_closed(&self) -> Option<Result<(), engine::Error>> {
        self.closed.borrow_mut().take()
    }

    /// Whether clients may be answered.
    pub fn knows_peers(&self) -> bool {
        self.shard.borrow().knows_peers()
    }

    /// How long the shard's clients wait.
    pub fn times(&self) -> LatencyRead {
        self.shard.borrow_mut().control().times()
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
                Output::Hop { to, message } => self.put(to, Mail::Hop(message)),
                Output::Peer { to, message } => self.send(to, message),
                Output::Slow(line) => slow::tell(&line),
                Output::Adopted(epoch) => {
                    let n_vals = self.shard.borrow().status().n_vals();
                    self.membership.adopted(self.id, epoch, n_vals);
                }
                Output::Copied(target) => self.membership.copied(self.id, target),
                Output::BirthKept(birth) => self.membership.birth_kept(self.id, birth),
                Output::Forgot => {
                    let birth = self.shard.borrow().birth();
                    self.membership.forgot(self.id, birth);
                }
                Output::Closed(result) => *self.closed.borrow_mut() = Some(result),
            }
        }
        self.give_back();
    }

    /// Puts mail down for another shard when this turn ends.
    fn put(&self, to: ShardId, mail: Mail) {
        self.mail.borrow_mut()[usize::from(to.0)].push(mail);
    }

    fn send(&self, to: NodeId, message: PeerMessage) {
        let links = self.links();
        match links.keeper() {
            keeper if keeper == self.id => {
                if let Some(message) = links.send(self.id, to, message) {
                    self.bounced.borrow_mut().push((to, message));
                }
            }
            keeper => self.put(keeper, Mail::Send { from: self.id, to, message }),
        }
    }

    fn give_back(&self) {
        let mut bounced = self.bounced.borrow_mut();
        if bounced.is_empty() {
            return;
        }
        let mut shard = self.shard.borrow_mut();
        for (to, message) in bounced.drain(..).filter(|_| !self.closing.get()) {
            shard.bounce(to, message);
        }
        self.wake();
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

    /// Whether the last answer was brought by a turn, and so came together with those of other connections.
    pub fn came_by_turn(&self) -> bool {
        self.slot.is_some()
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
