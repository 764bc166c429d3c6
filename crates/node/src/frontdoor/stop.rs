//! The clean stop: other nodes are told before, so that nobody waits for an answer of one that is gone.
//!
//! 1. [`Shard::begin_stop`] tells all peers, and from then on whoever asks or answers is told with each word about who is there
//!    ([`Load::STOPPING`](crate::Load::STOPPING)). They choose this node no more, neither to coordinate a write nor as a replica.
//! 2. What comes meanwhile, from its own clients and from nodes that have not heard yet, is done as ever.
//! 3. The shard is *drained* when each peer that can be reached has answered what it was asked since, so it has heard, and no client's request was begun or under way
//!    here for [`QUIET`] after that. Then the shell closes links and has the store stop ([`Shard::begin_close`]).
//!
//! Left out: how long a stop may take, which is the shell's to say; what is asked of this node as a replica, for whoever asks has other
//! replicas and keeps hints.

use crate::peer::{AskId, NodeId};
use crate::shard::Shard;
use base::Monotonic;
use std::time::Duration;

/// Without a client's request for so long a node that stops is forgotten by all that have heard of it: what they had sent before arrives within
/// that, though it came behind their answer. What was answered last is read by then, too.
const QUIET: Duration = Duration::from_millis(500);

/// How far a stop is.
#[derive(Clone, Debug)]
pub(crate) struct Stopping {
    /// When a client's request was seen last, or somebody had not heard, or the stop began.
    busy: Monotonic,
    /// How many requests had been begun then.
    begun: u64,
    /// Peers that have not answered since the stop began: one that waits for a processor may pass a request on before it reads what it was told. Of
    /// all, as long as it is not known who can be reached.
    unheard: Vec<NodeId>,
}

impl Shard {
    /// Tells other nodes that this one is about to stop. It goes on serving until it is closed.
    pub fn begin_stop(&mut self) {
        let busy = self.env.now();
        let unheard = match self.knows_peers() {
            true => self.env.peers.up().collect(),
            false => self.env.peers.all().collect(),
        };
        self.env.gauges.is_stopping = true;
        self.stopping = Some(Stopping { busy, begun: self.requests_begun(), unheard });
        self.env.peers.note_used();
        self.ping_all();
    }

    /// Whether nobody waits for a shard that was told to stop, or will ask it anything. Where nobody can be reached, nobody has to hear; but whoever
    /// was started a moment ago does not know who can, and may be used by others all the same.
    pub fn is_drained(&self) -> bool {
        let now = self.env.now();
        let is_quiet = |stopping: &Stopping| {
            self.knows_peers() && !self.env.peers.any_up()
                || stopping.unheard.is_empty() && now.since(stopping.busy) >= QUIET
        };
        self.stopping.as_ref().is_some_and(is_quiet) && !self.has_clients()
    }

    /// Looks whether clients still ask for something, and whether all have heard. Whoever cannot be reached any more need not.
    pub(crate) fn tick_stop(&mut self, now: Monotonic) {
        let (begun, has_clients) = (self.requests_begun(), self.has_clients());
        let knows_peers = self.knows_peers();
        let Some(stopping) = &mut self.stopping else { return };
        stopping.unheard.retain(|&node| !knows_peers || self.env.peers.is_up(node));
        if has_clients || stopping.begun != begun || !stopping.unheard.is_empty() {
            (stopping.busy, stopping.begun) = (now, begun);
        }
    }

    /// The number of a question about who is there: another from when a stop began on, as its answer shows that whoever gives it has heard.
    pub(crate) fn ping_id(&self) -> AskId {
        self.env.ask_id(u64::from(self.stopping.is_some()))
    }

    /// A peer has answered a question about who is there. What was asked before the stop began did not tell of it.
    pub(crate) fn has_heard(&mut self, node: NodeId, asked: AskId) {
        let is_told = asked == self.ping_id();
        if let Some(stopping) = self.stopping.as_mut().filter(|_| is_told) {
            stopping.unheard.retain(|&unheard| unheard != node);
        }
    }

    /// Whether some client, of this node or another, waits for something here, or has left work behind that a hint may come of.
    fn has_clients(&self) -> bool {
        self.env.gauges.queued() + self.env.gauges.forwards > 0 || self.objects.have_clients()
    }

    fn requests_begun(&self) -> u64 {
        self.env.counters.gets + self.env.counters.puts + self.env.counters.deletes
    }
}
