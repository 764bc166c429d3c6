//! State shared by the connections and the loop of one shard's thread.
//!
//! A request whose answer is ready at once goes from the socket through the shard and back within one call
//! ([`Local::ask`]): no queue, no wake-up. Any other is filed under its id until the loop brings the answer.
//!
//! * `pending.rs`: requests and their answers. `peer_outlet.rs`: the way of messages to other nodes. `notices.rs`:
//!   lines of the log about the shard.

mod notices;
mod peer_outlet;
mod pending;

pub use pending::Pending;

use crate::compact;
use crate::groups;
use crate::mailbox::{MESSAGES_MAX, Mail, Mailboxes, Outbox};
use crate::membership;
use crate::peer::{LINKS_MAX, Links, PeerFigures};
use crate::slow;
use base::Monotonic;
use kv::{Request, TypeChange};
use node::peer::route;
use node::{
    LatencyRead, Layout, Output, PeerMessage, RefusedMessage, RequestId, Shard, ShardId, ShardStats, Topology,
};
use peer_outlet::PeerOutlet;
use pending::{Slot, WaitingRequests};
use ring::NodeId;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// A shard and its surroundings, on its thread.
pub struct Local {
    id: ShardId,
    shard: RefCell<Shard>,
    mailboxes: Arc<Mailboxes>,
    waiting: WaitingRequests,
    outputs: RefCell<Vec<Output>>,
    /// Mail for other shards, until this turn ends.
    outbox: RefCell<Outbox>,
    incoming: RefCell<Vec<Mail>>,
    closed: RefCell<Option<Result<(), engine::Error>>>,
    layout: Layout,
    outlet: PeerOutlet,
    membership: membership::Handle,
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
            waiting: WaitingRequests::default(),
            outputs: RefCell::default(),
            outbox: RefCell::new(Outbox::new(layout.shards)),
            incoming: RefCell::default(),
            closed: RefCell::default(),
            layout,
            outlet: PeerOutlet::new(id, links),
            membership,
            closing: Cell::new(false),
        }
    }

    /// Gives a request to the shard. If it is not answered at once the loop is woken, which runs when the other
    /// connections that have input have had their turn: that is what makes a batch.
    pub fn ask(&self, request: Request) -> Pending<'_> {
        let id = self.waiting.next_id();
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
                Pending::answered(self, id, (result, more))
            }
            _ => {
                let pending = Pending::waiting(self, id);
                self.dispatch(&mut outputs);
                self.wake();
                pending
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
        self.outbox.borrow_mut().flush(&self.mailboxes);
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
            Mail::Adopt(adoption, written, tell) => {
                drop(tell.send(shard.adopt(&adoption, written).map_err(|it| it.to_string())))
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
        self.outlet.links()
    }

    /// What went to and came from other nodes, by node; nothing for a node alone.
    pub fn peer_figures(&self) -> Vec<PeerFigures> {
        self.outlet.figures()
    }

    /// Answers what is past its deadline.
    pub fn tick(&self, now: Monotonic) {
        let mut shard = self.shard.borrow_mut();
        shard.tick();
        self.membership.look(self.id, &shard);
        notices::tell(&mut shard);
        drop(shard);
        self.outlet.sweep(now);
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
        self.outlet.close();
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
                Output::Reply { to, result, more } => self.waiting.deliver(to, (result, more)),
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

    /// The place where a request's answers wait from now on.
    fn wait_for(&self, id: RequestId) -> Rc<Slot> {
        self.waiting.wait_for(id)
    }

    /// Nobody waits for a request's answers in its place any more.
    fn stop_waiting(&self, id: RequestId) {
        self.waiting.remove(id);
    }

    /// Lets a listing go on.
    fn proceed(&self, id: RequestId) {
        self.shard.borrow_mut().proceed(id);
        self.wake();
    }

    /// Nobody wants a request's answer any more.
    fn forget(&self, id: RequestId) {
        self.shard.borrow_mut().forget(id);
    }

    /// Puts mail down for another shard when this turn ends.
    fn put(&self, to: ShardId, mail: Mail) {
        self.outbox.borrow_mut().put(to, mail);
    }

    fn send(&self, to: NodeId, message: PeerMessage) {
        if let Some((keeper, mail)) = self.outlet.send(to, message) {
            self.put(keeper, mail);
        }
    }

    fn give_back(&self) {
        let bounced = self.outlet.take_bounced();
        if bounced.is_empty() {
            return;
        }
        let mut shard = self.shard.borrow_mut();
        for (to, message) in bounced.into_iter().filter(|_| !self.closing.get()) {
            shard.bounce(to, message);
        }
        self.wake();
    }
}
