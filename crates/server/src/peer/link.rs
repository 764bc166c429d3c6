//! Connections that a shard opens to other nodes, and sends on.
//!
//! There is one link to each member; it begins when the node becomes one, and ends when it is one no more. A link on
//! which nothing was sent for [`REST_AFTER`] *rests*: its connection is closed, and opened again for the next message.
//! To the shard that is the same link; if it cannot be opened, it is down. In small clusters questions keep all links
//! awake.
//!
//! A message that is sent is put in the link's queue, and the link's task is woken. It runs when the connections
//! that have input have had their turn, so what these ask of the node leaves together.

use super::channel::{Channel, HANDSHAKE_READ_BYTES};
use super::figures::PeerFigures;
use super::queue::{Queue, Room, Waiting};
use super::{HANDSHAKE_MAX, LINKS_MAX, Peers, Roster, prepare};
use crate::local::Local;
use crate::membership::{AsOf, CopyRefusal};
use base::{Monotonic, Rng};
use bytes::{Bytes, BytesMut};
use kv::reap::FRAME_WAIT_MAX;
use node::{PeerMessage, ShardId};
use os::{Address, OsRng};
use protocol::peer::Reply;
use ring::NodeId;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// The most that is encrypted and written at once: what more could be saved by a larger write is little, and what
/// comes meanwhile in a more urgent lane waits for it.
const WRITE_BYTES_MAX: usize = 256 << 10;

/// A write that waits so long for room has a peer that reads nothing: paused, or wedged. Others serve meanwhile, and
/// what waits here is given back.
const STALLED_MAX: Duration = Duration::from_secs(5);

/// The first and the longest time between two tries to connect. The longest is also how long a node that is back
/// stays unused.
const AGAIN_MIN: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// A link rests after so long without a message: before the other end would not read on (`SILENCE_MAX` of `kv::reap`),
/// with two ticks of a quiet shard between, by which time is told on both sides.
const REST_AFTER: Duration = Duration::from_secs(7);
const _: () = assert!(REST_AFTER.as_secs() + 2 < kv::reap::SILENCE_MAX.as_secs());

/// A link that held for so long begins anew with the shortest time when it ends.
const STEADY: Duration = Duration::from_secs(1);

/// The links of a shard.
pub(crate) struct Links {
    shard: ShardId,
    /// By the node's number; none to this node, and none at all if the shard uses those of another.
    links: RefCell<Vec<Option<Rc<Link>>>>,
    /// By the node's number. Those of nodes that have left stay.
    figures: RefCell<Vec<PeerFigures>>,
    /// For what waits for all of them.
    room: Rc<Room>,
    now: Cell<Monotonic>,
    /// Tasks that end when the shard closes.
    tasks: RefCell<Vec<AbortHandle>>,
}

/// Connections to one node, one after the other.
struct Link {
    node: NodeId,
    queue: RefCell<Queue>,
    /// Whether it takes messages: it is connected, or rests.
    is_up: Cell<bool>,
    /// When something was written last, or it was connected.
    used: Cell<Monotonic>,
    rest: Notify,
    waker: RefCell<Option<Waker>>,
    writing_since: Cell<Option<Monotonic>>,
    stalled: Notify,
    /// The node was heard of: try to connect at once.
    hurry: Notify,
    /// The node is no member any more.
    left: Notify,
}

impl Links {
    /// Links of `shard`, which are opened by [`Links::open`]. For all of them so many bytes of small messages wait at
    /// most.
    pub(crate) fn new(shard: ShardId, queued_max: usize) -> Links {
        Links {
            shard,
            links: RefCell::default(),
            figures: RefCell::default(),
            room: Room::new(queued_max),
            now: Cell::new(Monotonic::default()),
            tasks: RefCell::default(),
        }
    }

    /// The shard whose links this one uses.
    pub(crate) fn keeper(&self) -> ShardId {
        ShardId(self.shard.0 % LINKS_MAX)
    }

    /// Puts a message in the queue for a node; gives it back if the link is down or the queue full.
    #[must_use]
    pub(crate) fn send(&self, from: ShardId, to: NodeId, message: PeerMessage) -> Option<PeerMessage> {
        let bounced = match self.links.borrow().get(usize::from(to.0)) {
            Some(Some(link)) => link.send(from, message, self.now.get()),
            // It has left, or this node's links do not know of it yet.
            _ => Some(message),
        };
        if bounced.is_some() {
            self.count(to, |figures| figures.peer_bounced += 1);
        }
        bounced
    }

    /// Has links follow the members, from now on.
    pub(crate) fn open(&self, local: &Rc<Local>, peers: &Arc<Peers>) {
        if self.shard.0 >= LINKS_MAX {
            return;
        }
        let mut rosters = peers.subscribe();
        let roster = Arc::clone(&rosters.borrow_and_update());
        self.follow(&roster, local, peers);
        let (local, peers) = (Rc::clone(local), Arc::clone(peers));
        let task = tokio::task::spawn_local(async move {
            while rosters.changed().await.is_ok() {
                let roster = Arc::clone(&rosters.borrow_and_update());
                local.links().follow(&roster, &local, &peers);
            }
        });
        self.add_task(task.abort_handle());
    }

    /// Begins links to those who have come, and ends those to members that have left.
    fn follow(&self, roster: &Roster, local: &Rc<Local>, peers: &Arc<Peers>) {
        let mut links = self.links.borrow_mut();
        for link in links.iter_mut() {
            if let Some(left) = link.take_if(|link| !roster.members().has(link.node)) {
                left.left.notify_one();
            }
        }
        for node in roster.members().others() {
            let at = usize::from(node.0);
            if links.len() <= at {
                links.resize(at + 1, None);
            }
            if links[at].is_none() {
                let link = Rc::new(Link::new(node, Rc::clone(&self.room)));
                links[at] = Some(Rc::clone(&link));
                let name = Arc::clone(roster.members().name(node));
                let task = run(link, name, Rc::clone(local), Arc::clone(peers));
                self.add_task(tokio::task::spawn_local(task).abort_handle());
            }
        }
    }

    /// A task that ends with the links.
    pub(crate) fn add_task(&self, task: AbortHandle) {
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    /// Ends all connections.
    pub(crate) fn close(&self) {
        self.tasks.borrow_mut().drain(..).for_each(|task| task.abort());
        self.links.borrow().iter().flatten().for_each(|link| link.is_up.set(false));
    }

    /// Connects at once to a node that is known to be there, unless that is done.
    pub(crate) fn hurry(&self, node: NodeId) {
        if let Some(Some(link)) = self.links.borrow().get(usize::from(node.0))
            && !link.is_up.get()
        {
            link.hurry.notify_waiters();
        }
    }

    /// The time of the last sweep.
    pub(crate) fn now(&self) -> Monotonic {
        self.now.get()
    }

    /// Ends connections whose writes do not get on, and has links rest that nobody uses.
    pub(crate) fn sweep(&self, now: Monotonic) {
        self.now.set(now);
        for link in self.links.borrow().iter().flatten() {
            if link.writing_since.get().is_some_and(|since| now.since(since) >= STALLED_MAX) {
                link.stalled.notify_waiters();
            }
            if now.since(link.used.get()) >= REST_AFTER {
                // Nobody listens unless it is connected and has nothing to send.
                link.rest.notify_waiters();
            }
        }
    }

    /// Counters by the node's number.
    pub(crate) fn figures(&self) -> Vec<PeerFigures> {
        self.figures.borrow().clone()
    }

    /// Changes a node's counters.
    pub(crate) fn count(&self, node: NodeId, change: impl FnOnce(&mut PeerFigures)) {
        let (mut figures, at) = (self.figures.borrow_mut(), usize::from(node.0));
        if figures.len() <= at {
            figures.resize(at + 1, PeerFigures::default());
        }
        change(&mut figures[at]);
    }
}

impl Link {
    fn new(node: NodeId, room: Rc<Room>) -> Link {
        Link {
            node,
            queue: RefCell::new(Queue::new(room)),
            is_up: Cell::new(false),
            used: Cell::default(),
            rest: Notify::new(),
            waker: RefCell::default(),
            writing_since: Cell::new(None),
            stalled: Notify::new(),
            hurry: Notify::new(),
            left: Notify::new(),
        }
    }

    fn send(&self, from: ShardId, message: PeerMessage, since: Monotonic) -> Option<PeerMessage> {
        if !self.is_up.get() {
            return Some(message);
        }
        let bounced = self.queue.borrow_mut().push(Waiting { from, message, since });
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
        bounced
    }

    /// Waits until there is something to send.
    async fn filled(&self) {
        poll_fn(|context| {
            if !self.queue.borrow().is_empty() {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A link's task: connects, sends until the connection ends, and so on, until the node has left.
async fn run(link: Rc<Link>, name: Arc<str>, local: Rc<Local>, peers: Arc<Peers>) {
    let mut rng = OsRng::new();
    let mut pause = AGAIN_MIN;
    let mut last_failure = String::new();
    tokio::select! {
        () = peers.gate.first_asked() => {}
        () = link.left.notified() => return,
    }
    loop {
        let connected = tokio::select! {
            connected = dial(link.node, &name, &peers, HANDSHAKE_MAX) => connected,
            () = link.left.notified() => return,
        };
        let connected = connected.map_err(|failure| {
            if !failure.is_copy {
                peers.gate.decided(link.node);
            }
            failure.text
        });
        match connected {
            Ok((mut channel, version)) => {
                last_failure.clear();
                let began = local.links().now.get();
                link.used.set(began);
                // One that rested was never down.
                if !link.is_up.replace(true) {
                    tracing::info!(peer = %name, "link up");
                    local.links().count(link.node, |figures| figures.peer_links_up += 1);
                    local.link(link.node, true);
                }
                let ended = tokio::select! {
                    ended = send_all(&link, &local, &mut channel, version) => ended,
                    () = link.left.notified() => Ended::Left,
                };
                let ended = match ended {
                    Ended::Rests => {
                        drop(channel);
                        tokio::select! {
                            () = link.filled() => continue,
                            () = link.left.notified() => Ended::Left,
                        }
                    }
                    ended => ended,
                };
                go_down(&link, &local, &name, &ended);
                if matches!(ended, Ended::Left) {
                    return;
                }
                if local.links().now.get().since(began) >= STEADY {
                    pause = AGAIN_MIN;
                }
            }
            Err(failure) if link.is_up.get() => go_down(&link, &local, &name, &Ended::Broken(failure)),
            // Once for each reason: a node may be away for days.
            Err(failure) if failure != last_failure => {
                tracing::warn!(peer = %name, "no link: {failure}");
                last_failure = failure;
            }
            Err(_) => {}
        }
        let wait = pause / 2 + pause.mul_f64(rng.below(1000) as f64 / 2000.0);
        pause = (pause * 2).min(AGAIN_MAX);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = link.hurry.notified() => {}
            () = link.left.notified() => return,
        }
    }
}

/// Why a connection is no more.
enum Ended {
    /// Nobody needs it for now.
    Rests,
    /// The node is no member any more.
    Left,
    /// What the other end, or the network, did.
    Broken(String),
}

/// The link takes no messages any more, and gives back what it has.
fn go_down(link: &Link, local: &Local, name: &str, ended: &Ended) {
    link.is_up.set(false);
    local.links().count(link.node, |figures| figures.peer_links_up -= 1);
    link.writing_since.set(None);
    give_back(link, local);
    local.link(link.node, false);
    match ended {
        Ended::Broken(why) => tracing::info!(peer = %name, "link down: {why}"),
        Ended::Left | Ended::Rests => tracing::info!(peer = %name, "link down: it is no member any more"),
    }
}

/// Why a member was not reached, or did not welcome this node.
pub(super) struct Failure {
    /// For the log.
    pub(super) text: String,
    /// Whether it says that this node's data folder is a copy.
    pub(super) is_copy: bool,
}

impl Failure {
    fn new(text: impl ToString) -> Failure {
        Failure { text: text.to_string(), is_copy: false }
    }
}

/// A connection that a member has welcomed, and the version in which frames are written to it. To be reached at all it
/// has `reach_max`.
pub(super) async fn dial(
    node: NodeId,
    name: &str,
    peers: &Peers,
    reach_max: Duration,
) -> Result<(Channel, u16), Failure> {
    let (mut texts, mut is_copy) = (Vec::new(), false);
    for address in peers.addresses(node) {
        let numbers = match look_up(&address, node, peers, reach_max).await {
            Ok(numbers) => numbers,
            Err(why) => {
                texts.push(format!("{address}: the name is not resolved{why}"));
                continue;
            }
        };
        let mut of_address = Vec::with_capacity(numbers.len());
        for number in numbers {
            let introduced = introduce(number, (node, name), peers, reach_max);
            let failure = match timeout(HANDSHAKE_MAX, introduced).await {
                Ok(Ok(connected)) => {
                    peers.gate.decided(node);
                    return Ok(connected);
                }
                Ok(Err(failure)) => failure,
                Err(_) => Failure::new(format_args!("no answer in {} s", HANDSHAKE_MAX.as_secs())),
            };
            is_copy |= failure.is_copy;
            of_address.push(match address.name() {
                Some(_) => format!("{address} ({}): {}", number.ip(), failure.text),
                None => format!("{address}: {}", failure.text),
            });
        }
        // The resolver may give the numbers of a name in another order each time, and the log says a thing once.
        of_address.sort();
        texts.extend(of_address);
    }
    if is_copy {
        peers.gate.refused(node);
    }
    if texts.is_empty() {
        return Err(Failure::new("it has not sent its address"));
    }
    Err(Failure { text: texts.join("; "), is_copy })
}

/// The numbers of a member's address. A name is resolved again each time: the machine behind it may have changed.
async fn look_up(
    address: &Address,
    node: NodeId,
    peers: &Peers,
    reach_max: Duration,
) -> Result<Vec<SocketAddr>, String> {
    let late = |_| format!(" in {} ms", reach_max.as_millis());
    let resolved = timeout(reach_max, peers.resolver.resolve(address)).await.map_err(late)?;
    let numbers = resolved.map_err(|why| format!(": {why}"))?;
    if address.name().is_some() {
        peers.note_numbers(node, &numbers);
    }
    Ok(numbers)
}

async fn introduce(
    number: SocketAddr,
    (node, name): (NodeId, &str),
    peers: &Peers,
    reach_max: Duration,
) -> Result<(Channel, u16), Failure> {
    let failed = |error: io::Error| Failure::new(error);
    let late = |_| Failure::new(format_args!("not reached in {} ms", reach_max.as_millis()));
    let tcp = timeout(reach_max, TcpStream::connect(number)).await.map_err(late)?.map_err(failed)?;
    peers.gate.connected(node);
    prepare(&tcp).map_err(failed)?;
    let tls = peers.tls.open(name).map_err(Failure::new)?;
    let mut channel = Channel::new(tcp, tls);
    let mut input = BytesMut::new();
    channel.handshake(&mut input).await.map_err(failed)?;
    let mut out = BytesMut::new();
    peers.hello.encode(&mut out);
    channel.write(&[IoSlice::new(&out)]).await.map_err(failed)?;
    let mut scratch = [0; HANDSHAKE_READ_BYTES];
    loop {
        match Reply::read(&mut input).map_err(Failure::new)? {
            Some(Reply::Welcome { version }) => {
                peers.note_version(node, version);
                return Ok((channel, version));
            }
            Some(Reply::Refused { text }) => return Err(Failure::new(format_args!("refused: {text}"))),
            Some(Reply::NotMember { epoch, commit }) => {
                peers.membership.not_member(AsOf { epoch, commit });
                let text = format!("refused: this node is no member (as of entry {commit})");
                return Err(Failure::new(text));
            }
            Some(Reply::Copy { original, epoch, commit, is_registered }) => {
                let as_of = AsOf { epoch, commit };
                peers.membership.refused_as_copy(CopyRefusal { as_of, is_other_registered: is_registered });
                let text = format!(
                    "refused: this data folder is a copy, and its original is alive (process {original:016x})"
                );
                return Err(Failure { text, is_copy: true });
            }
            None if channel.read(&mut input, &mut scratch).await.map_err(failed)? => {}
            None => return Err(Failure::new("the connection was closed before an answer")),
        }
    }
}

/// Sends what is queued until the connection ends, or is not needed; says which.
async fn send_all(link: &Link, local: &Local, channel: &mut Channel, version: u16) -> Ended {
    let mut batch = Batch { version, ..Batch::default() };
    let mut unexpected = BytesMut::new();
    let mut scratch = [0; HANDSHAKE_READ_BYTES];
    loop {
        tokio::select! {
            biased;
            () = link.filled() => {}
            read = channel.read(&mut unexpected, &mut scratch) => return Ended::Broken(match read {
                Ok(true) => "it sent an unexpected message".to_owned(),
                Ok(false) => "closed by the other node".to_owned(),
                Err(error) => error.to_string(),
            }),
            () = link.rest.notified() => return Ended::Rests,
        }
        batch.fill(link, local);
        let now = local.links().now.get();
        link.used.set(now);
        link.writing_since.set(Some(now));
        let writes = channel.writes;
        tokio::select! {
            biased;
            written = batch.write(channel) => if let Err(error) = written {
                return Ended::Broken(error.to_string());
            },
            () = link.stalled.notified() => {
                return Ended::Broken(format!("no data taken for {} s", STALLED_MAX.as_secs()));
            }
        }
        link.writing_since.set(None);
        local.links().count(link.node, |figures| {
            figures.peer_frames_sent += batch.frames;
            figures.peer_bytes_sent += batch.bytes as u64;
            figures.peer_writes += channel.writes - writes;
        });
        if batch.bytes >= WRITE_BYTES_MAX {
            // More may wait; connections go first.
            tokio::task::yield_now().await;
        }
        batch.clear();
    }
}

fn give_back(link: &Link, local: &Local) {
    let waiting: Vec<_> = std::iter::from_fn(|| link.queue.borrow_mut().pop()).collect();
    local.links().count(link.node, |figures| figures.peer_bounced += waiting.len() as u64);
    for Waiting { from, message, .. } in waiting {
        local.bounce(from, link.node, message);
    }
}

/// Frames that are written together.
#[derive(Default)]
struct Batch {
    version: u16,
    out: BytesMut,
    /// Values that follow so many bytes of `out`.
    values: Vec<(usize, Bytes)>,
    bytes: usize,
    frames: u64,
}

impl Batch {
    /// Takes frames from the queue.
    fn fill(&mut self, link: &Link, local: &Local) {
        while self.bytes < WRITE_BYTES_MAX {
            let now = local.links().now.get();
            let Some(Waiting { from, message, since }) = link.queue.borrow_mut().pop() else { return };
            if now.since(since) > FRAME_WAIT_MAX {
                // What is so old may be older than what has been reaped meanwhile.
                local.bounce(from, link.node, message);
                continue;
            }
            let before = self.out.len();
            match message.encode(self.version, &mut self.out) {
                Ok(value) => {
                    self.frames += 1;
                    self.bytes += self.out.len() - before + value.as_ref().map_or(0, Bytes::len);
                    self.values.extend(value.map(|value| (self.out.len(), value)));
                }
                Err(error) => {
                    tracing::warn!(%error, "a message cannot be sent");
                    local.bounce(from, link.node, message);
                }
            }
        }
    }

    async fn write(&self, channel: &mut Channel) -> io::Result<()> {
        if self.values.is_empty() {
            // Every small batch; the limit is passed by one frame at most, whose value is small.
            return channel.write(&[IoSlice::new(&self.out)]).await;
        }
        let mut pieces = Vec::with_capacity(2 * self.values.len() + 1);
        let mut bytes = 0;
        for piece in self.segments().flat_map(|segment| segment.chunks(WRITE_BYTES_MAX)) {
            if bytes + piece.len() > WRITE_BYTES_MAX {
                channel.write(&pieces).await?;
                pieces.clear();
                bytes = 0;
            }
            bytes += piece.len();
            pieces.push(IoSlice::new(piece));
        }
        channel.write(&pieces).await
    }

    /// What is to be written, in order.
    fn segments(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.values.iter().map(|(end, _)| *end));
        let heads = starts.zip(self.values.iter().map(|(end, value)| (*end, &value[..])));
        let last = self.values.last().map_or(0, |(end, _)| *end);
        heads.flat_map(|(start, (end, value))| [&self.out[start..end], value]).chain([&self.out[last..]])
    }

    fn clear(&mut self) {
        self.out.clear();
        self.values.clear();
        (self.bytes, self.frames) = (0, 0);
    }
}
