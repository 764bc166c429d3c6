//! What this shard is to have by the target, and gets from those who have it.
//!
//! 1. When a target is published, the checkpoints of what was copied for it before are read.
//! 2. From each node that has something for this one, parts are asked for, one after the other; the sender sends keys
//!    as merges, and answers when all of them are durable here.
//! 3. How far that is becomes the checkpoint, durable before the next part is asked for: an interruption costs one
//!    part.
//! 4. When nothing is left, the control plane is told ([`Output::Copied`]).
//!
//! What a sender has lost is asked of others (`losses.rs`).
//!
//! Empty partitions cost nothing: a question names all partitions that are left, and the sender's scan leaps over them.

use super::losses::{CopyLoss, Losses};
use crate::peer::{CopyPart, NodeId, PeerMessage};
use crate::shard::awaiting::Waiter;
use crate::shard::env::Env;
use crate::shard::output::Output;
use crate::shard::owners::ScanOwner;
use crate::topology::nodes;
use ::object::key;
use base::Monotonic;
use bytes::{BufMut, Bytes, BytesMut};
use engine::fold::{ScanId, ScanPage, ScanRequest, Visit};
use engine::{Seq, Write};
use kv::Error;
use protocol::peer::{Malformed, Reader, put_bytes, put_varint};
use ring::{MemberState, RingVersion};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a part may take: some eight megabytes, on a slow link, at the end of its lanes.
const PART_MAX: Duration = Duration::from_secs(15);
/// How long a sender that has refused or failed is left alone; twice as long each further time.
const RETRY_FIRST: Duration = Duration::from_millis(250);
/// The longest of it.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Checkpoints: one for each node there may be.
const CHECKPOINTS_MAX: usize = 65_536;
/// The version of a checkpoint's format.
const CHECKPOINT_VERSION: u8 = 1;

/// What is copied from one node.
pub(crate) struct InboundTransfer {
    /// Prefixes that are left; the one to go on in comes first.
    left: Vec<u16>,
    start: Option<Bytes>,
    /// Prefixes to be asked for after them, since others have lost something of them.
    more: BTreeSet<u16>,
    /// The question that has no answer, and since when.
    question: Option<(u64, Monotonic)>,
    /// The checkpoint on its way to the disk.
    saving: Option<Seq>,
    again: Monotonic,
    failures: u32,
    reason: Option<Error>,
    since: Monotonic,
    /// When it went on last.
    moved: Monotonic,
    objects: u64,
    bytes: u64,
}

/// What is copied from all.
#[derive(Default)]
pub(crate) struct InboundTransfers {
    target: Option<RingVersion>,
    loading: Option<ScanId>,
    loaded: bool,
    pulls: BTreeMap<NodeId, InboundTransfer>,
    told: bool,
    losses: Losses,
}

/// How far the copy of what one node has for this shard is, for operators.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferStatus {
    /// The ring that asks for it.
    pub target: RingVersion,
    /// Who sends.
    pub from: NodeId,
    /// Partitions that are left; none when it is done.
    pub partitions_left: usize,
    /// Whether a part is under way.
    pub running: bool,
    /// Since when it is known here.
    pub since: Monotonic,
    /// When a part of it came last; at first, since when it is known.
    pub moved: Monotonic,
    /// When the next part may be asked for.
    pub next: Monotonic,
    /// How often it has failed since it last went on.
    pub failures: u32,
    /// Why it failed last, or that the sender cannot be reached.
    pub reason: Option<Error>,
    /// Keys that have come since the start of this process.
    pub objects: u64,
    /// Bytes of their heads and values.
    pub bytes: u64,
    /// Partitions of which the sender has lost something, as far as this process has heard.
    pub lossy: usize,
}

impl InboundTransfers {
    /// How far copies to this shard are.
    pub fn transfers(&self, env: &Env) -> Vec<TransferStatus> {
        let Some(target) = self.target else { return Vec::new() };
        let status = |(&from, pull): (&NodeId, &InboundTransfer)| TransferStatus {
            target,
            from,
            partitions_left: self.partitions_of(env, pull.left.iter().chain(&pull.more)),
            running: pull.question.is_some(),
            since: pull.since,
            moved: pull.moved,
            next: pull.again,
            failures: pull.failures,
            reason: self.held_up(env, from, pull),
            objects: pull.objects,
            bytes: pull.bytes,
            lossy: self.partitions_of(env, self.losses.of(from)),
        };
        self.pulls.iter().map(status).collect()
    }

    /// Why nothing comes of what is left: nobody asks whoever cannot be reached, so no question of its fails.
    fn held_up(&self, env: &Env, from: NodeId, pull: &InboundTransfer) -> Option<Error> {
        match pull.has_more() && !env.peers.is_up(from) {
            true => Some(Error::Unreachable),
            false => pull.reason.clone(),
        }
    }

    /// How many partitions these prefixes are in, by the finest ring that is in force or comes.
    fn partitions_of<'a>(&self, env: &Env, prefixes: impl Iterator<Item = &'a u16>) -> usize {
        let finest = env.topology.finest();
        let partitions = prefixes.map(|&prefix| finest.partition(env.ownership().position(prefix)));
        partitions.collect::<BTreeSet<_>>().len()
    }

    /// Takes losses of senders that were not told to people yet.
    pub fn take_losses(&mut self) -> Vec<CopyLoss> {
        self.losses.take_told()
    }

    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        assert!(!self.told || self.loaded, "nothing is complete before its checkpoints are known");
        assert!(self.loading.is_none() || !self.loaded, "checkpoints are read once");
        let owner = self.loading.map(|scan| env.scan_owners.of(scan));
        let is_owner = owner.is_none_or(|owner| owner == Some(&ScanOwner::InboundCheckpoints));
        assert!(is_owner, "the scan for checkpoints is under way");
        assert!(self.target.is_some() || self.pulls.is_empty(), "transfers are for a target");
        assert!(self.loaded || self.pulls.is_empty(), "transfers begin where their checkpoints say");
        for (from, pull) in &self.pulls {
            assert!(
                pull.question.is_none() || pull.saving.is_none(),
                "a checkpoint comes before the next question"
            );
            assert!(pull.question.is_none() || !pull.left.is_empty(), "a question is about what is left");
            let is_awaited = |seq| env.awaiting.has(seq, Waiter::Transfer(*from));
            assert!(pull.saving.is_none_or(is_awaited), "a checkpoint is waited for");
            assert!(pull.since <= pull.moved, "a transfer goes on after it has begun");
            assert!(pull.failures > 0 || pull.reason.is_none(), "the reason is of the last failure");
        }
    }

    /// Begins what the target asks for, if that is another one than before.
    pub(crate) fn begin(&mut self, env: &mut Env) {
        let topology = &env.topology;
        let target = topology.target.as_ref().filter(|_| topology.before.is_none());
        let target = target.map(|ring| ring.version());
        if target != self.target {
            *self = InboundTransfers { target, ..InboundTransfers::default() };
        }
    }

    pub(crate) fn tick(&mut self, env: &mut Env, now: Monotonic) {
        let Some(target) = self.target else { return };
        if !self.loaded {
            if self.loading.is_none() {
                self.load_checkpoints(env);
            }
            return;
        }
        for pull in self.pulls.values_mut() {
            if pull.question.is_some_and(|(_, asked)| now.since(asked) >= PART_MAX) {
                pull.fail(Error::Timeout, now);
            }
        }
        let is_done = self.pulls.values().all(|pull| !pull.has_more() && pull.saving.is_none());
        if (is_done || base::planted!(CopyToldEarly)) && !self.told {
            self.told = true;
            env.out.push(Output::Copied(target));
        }
        let busy =
            self.pulls.values().filter(|pull| pull.question.is_some() || pull.saving.is_some()).count();
        let received_max = env.topology.budget.received_max;
        // While clients are served, one node's slices at a time.
        let most = if env.activity.yields(now) { received_max.min(1) } else { received_max };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let waits = |pull: &InboundTransfer| {
            pull.has_more() && pull.question.is_none() && pull.saving.is_none() && pull.again <= now
        };
        let due = self.pulls.iter().filter(|(from, pull)| waits(pull) && env.peers.is_up(**from));
        let due: Vec<NodeId> = due.map(|(&from, _)| from).take(most.saturating_sub(busy)).collect();
        due.into_iter().for_each(|from| self.ask_copy(env, from, target, now));
    }

    fn load_checkpoints(&mut self, env: &mut Env) {
        let range = key::copies();
        let visitor = Box::new(|_: &[u8], _: &[u8]| Visit::Take);
        let request = ScanRequest {
            start: range.start.into(),
            end: range.end.into(),
            items_max: CHECKPOINTS_MAX,
            visitor,
            // A checkpoint that is lost costs what it stood for.
            past_losses: true,
        };
        // One that cannot begin does with the next tick.
        self.loading = env.store.scan(request).ok();
        if let Some(scan) = self.loading {
            env.scan_owners.note(scan, ScanOwner::InboundCheckpoints);
        }
    }

    /// Takes the checkpoints, unless others are loaded since.
    pub(crate) fn on_checkpoints(
        &mut self,
        env: &mut Env,
        scan: ScanId,
        page: Result<ScanPage, engine::Error>,
    ) {
        if self.loading != Some(scan) {
            return;
        }
        self.loading = None;
        // Tried again with the next tick.
        let (Ok(page), Some(target)) = (page, self.target) else { return };
        let now = env.now();
        let mut pulls: BTreeMap<NodeId, InboundTransfer> = self
            .wanted(env)
            .into_iter()
            .map(|(from, left)| (from, InboundTransfer::new(left, now)))
            .collect();
        for (key, head) in page.items {
            let from = key::copied_from(&key).map(NodeId);
            let saved = Checkpoint::decode(head).ok();
            let saved = saved.filter(|it| it.target == target.0 && it.receiver == env.peers.here());
            let saved = saved.filter(|_| !base::planted!(CopyBegunAnew));
            match (from, saved) {
                (Ok(from), Some(saved)) if env.topology.members.has(from) => {
                    // One that has nothing for this node by the target makes up for what another has lost.
                    let pull =
                        pulls.entry(from).or_insert_with(|| InboundTransfer::new(BTreeSet::new(), now));
                    (pull.left, pull.start) = (saved.left, saved.start);
                }
                // Of another target. If it stays, it says so.
                _ => drop(env.store.write(&[Write::Delete { key: &key }])),
            }
        }
        self.pulls = pulls;
        self.loaded = true;
    }

    /// The prefixes of this shard that this node is to have and has not, by those who give them.
    fn wanted(&self, env: &Env) -> BTreeMap<NodeId, BTreeSet<u16>> {
        let topology = &env.topology;
        let (here, layout, finest) = (env.peers.here(), &env.knobs.layout, topology.finest());
        let mut wanted: BTreeMap<NodeId, BTreeSet<u16>> = BTreeMap::new();
        for partition in finest.all() {
            let prefixes = layout.prefixes_of(partition, finest);
            // A ring does not become smaller, so a partition is in one shard.
            if layout.shard_of(*prefixes.start()) != env.knobs.id.0 {
                continue;
            }
            let at = finest.first(partition);
            for &n_val in &*topology.n_vals {
                if topology.joins(here, at, n_val) {
                    for from in topology.givers(at, n_val) {
                        wanted.entry(from).or_default().extend(prefixes.clone());
                    }
                }
            }
        }
        // With fewer nodes than replicas one may be asked to give what it is to get.
        wanted.remove(&here);
        wanted
    }

    fn ask_copy(&mut self, env: &mut Env, from: NodeId, target: RingVersion, now: Monotonic) {
        let question = env.next_id();
        let id = env.ask_id(question);
        let Some(pull) = self.pulls.get_mut(&from) else { return };
        pull.question = Some((question, now));
        let more = std::mem::take(&mut pull.more);
        pull.left.extend(more);
        let (partitions, start) = (pull.left.clone(), pull.start.clone());
        env.send(from, PeerMessage::AskCopy { id, target: target.0, partitions, start });
    }

    /// A part has come, or will not.
    pub(crate) fn on_copy_part(
        &mut self,
        env: &mut Env,
        from: NodeId,
        question: u64,
        part: Result<CopyPart, Error>,
    ) {
        let now = env.now();
        let target = self.target;
        let Some(pull) = self.pulls.get_mut(&from) else { return };
        let Some(target) = target.filter(|_| pull.question.is_some_and(|(asked, _)| asked == question))
        else {
            return;
        };
        let part = match part {
            Ok(part) if pull.goes_on_with(&part) => part,
            Ok(_) => return pull.fail(Error::NotCovered, now),
            Err(error) => return pull.fail(error, now),
        };
        let known: BTreeSet<u16> = pull.left.iter().copied().collect();
        let lost: Vec<u16> = part.lost.into_iter().filter(|prefix| known.contains(prefix)).collect();
        let rate = env.topology.budget.bytes_per_second.max(1);
        pull.question = None;
        (pull.failures, pull.reason, pull.moved) = (0, None, now);
        pull.objects += part.objects;
        pull.bytes += part.bytes;
        (pull.left, pull.start) = (part.rest, part.next);
        pull.again = now + Duration::from_nanos(part.bytes.saturating_mul(1_000_000_000) / rate);
        let mut changed = self.make_up_for(env, from, &lost, now);
        changed.insert(from);
        match self.save_checkpoints(env, target, &changed) {
            Ok(seq) => self.await_checkpoint(env, from, seq),
            // A store that takes no writes has had no keys either: the next part will tell.
            Err(error) => {
                if let Some(pull) = self.pulls.get_mut(&from) {
                    pull.fail(crate::shard::store_error::store_error(error), now);
                }
            }
        }
    }

    /// Has all others that hold these prefixes asked for them, and returns those of whom that is new.
    fn make_up_for(&mut self, env: &mut Env, from: NodeId, lost: &[u16], now: Monotonic) -> BTreeSet<NodeId> {
        let mut asked = BTreeSet::new();
        for &prefix in lost {
            if !self.losses.note(from, prefix) {
                continue;
            }
            let (mut holders, givers) = self.holders(env, prefix);
            let is_first = self.losses.count(prefix) == 1;
            for &holder in holders.iter().filter(|holder| is_first && !givers.contains(holder)) {
                let pull =
                    self.pulls.entry(holder).or_insert_with(|| InboundTransfer::new(BTreeSet::new(), now));
                if !pull.has_left(prefix) {
                    pull.more.insert(prefix);
                    asked.insert(holder);
                }
            }
            holders.retain(|holder| !self.losses.has(*holder, prefix));
            let others = holders.into_iter().collect();
            let at = env.knobs.layout.position(prefix);
            let partition = env.topology.ring.size().partition(at);
            let loss = CopyLoss { from, partition, others };
            self.losses.tell(loss);
        }
        asked
    }

    /// The nodes that hold a prefix by the ring in force and can be asked for it, and those of them that are asked
    /// anyway.
    fn holders(&self, env: &Env, prefix: u16) -> (BTreeSet<NodeId>, BTreeSet<NodeId>) {
        let (topology, here) = (&env.topology, env.peers.here());
        let (mut holders, mut givers) = (BTreeSet::new(), BTreeSet::new());
        let at = env.ownership().position(prefix);
        let lives = |node: &NodeId| {
            let member = topology.ring.members().get(*node);
            *node != here && member.is_some_and(|it| it.state != MemberState::Down)
        };
        for &n_val in topology.n_vals.iter() {
            if topology.joins(here, at, n_val) {
                holders.extend(nodes(&topology.ring, at, n_val).into_iter().filter(lives));
                givers.extend(topology.givers(at, n_val));
            }
        }
        (holders, givers)
    }

    /// Writes how far the copies from these nodes are, in one batch.
    fn save_checkpoints(
        &mut self,
        env: &mut Env,
        target: RingVersion,
        changed: &BTreeSet<NodeId>,
    ) -> Result<Seq, engine::Error> {
        let receiver = env.peers.here();
        let pulls = self.pulls.iter().filter(|(from, _)| changed.contains(from));
        let entries: Vec<(Vec<u8>, Bytes)> = pulls
            .map(|(from, pull)| {
                let left = pull.left.iter().chain(&pull.more).copied().collect();
                let saved = Checkpoint { target: target.0, receiver, start: pull.start.clone(), left };
                (key::copy(from.0), saved.encode())
            })
            .collect();
        let writes: Vec<Write<'_>> =
            entries.iter().map(|(key, head)| Write::Put { key, head, value: &[] }).collect();
        env.store.write(&writes)
    }

    fn await_checkpoint(&mut self, env: &mut Env, from: NodeId, seq: Seq) {
        if seq > env.store.acknowledged() {
            if let Some(pull) = self.pulls.get_mut(&from) {
                pull.saving = Some(seq);
            }
            env.awaiting.insert(seq, Waiter::Transfer(from));
        }
    }

    pub(crate) fn on_checkpoint(&mut self, env: &Env, from: NodeId, seq: Seq, result: Result<(), Error>) {
        if let Some(pull) = self.pulls.get_mut(&from) {
            pull.end_saving(seq, result, env.now());
        }
    }
}

impl InboundTransfer {
    pub fn new(left: BTreeSet<u16>, now: Monotonic) -> InboundTransfer {
        InboundTransfer {
            left: left.into_iter().collect(),
            start: None,
            more: BTreeSet::new(),
            question: None,
            saving: None,
            again: now,
            failures: 0,
            reason: None,
            since: now,
            moved: now,
            objects: 0,
            bytes: 0,
        }
    }

    /// Whether something is left to be asked for.
    fn has_more(&self) -> bool {
        !self.left.is_empty() || !self.more.is_empty()
    }

    /// Whether this partition is not copied yet.
    pub fn has_left(&self, prefix: u16) -> bool {
        self.left.contains(&prefix) || self.more.contains(&prefix)
    }

    fn fail(&mut self, error: Error, now: Monotonic) {
        self.question = None;
        self.reason = Some(error);
        self.again = now + RETRY_FIRST.saturating_mul(1 << self.failures.min(16)).min(RETRY_MAX);
        self.failures = self.failures.saturating_add(1);
    }

    /// Notes the end of a checkpoint's write. The write of a transfer for an earlier target says nothing of this one.
    fn end_saving(&mut self, seq: Seq, result: Result<(), Error>, now: Monotonic) {
        let is_own = self.saving.take_if(|saving| *saving == seq).is_some();
        if let Err(error) = result
            && is_own
        {
            self.fail(error, now);
        }
    }

    /// Whether less is left than before, so that the copy comes to its end whatever the sender says.
    fn goes_on_with(&self, part: &CopyPart) -> bool {
        let known: BTreeSet<u16> = self.left.iter().copied().collect();
        let rest: BTreeSet<u16> = part.rest.iter().copied().collect();
        let is_part = rest.len() == part.rest.len() && rest.is_subset(&known);
        let place = match (&part.next, part.rest.first()) {
            (Some(next), Some(&first)) => {
                key::objects_at(first).contains(next)
                    && (rest.len() < known.len() || self.start.as_ref().is_none_or(|start| next > start))
            }
            (Some(_), None) => false,
            (None, _) => rest.len() < known.len(),
        };
        is_part && place
    }
}

/// How far a copy is, as it is stored: in the head of an entry of its own. `docs/formats/object.md` lists the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Checkpoint {
    target: u64,
    /// Whose checkpoint it is: another node's is found on a disk that was copied.
    receiver: NodeId,
    start: Option<Bytes>,
    left: Vec<u16>,
}

impl Checkpoint {
    fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(CHECKPOINT_VERSION);
        out.put_u64_le(self.target);
        out.put_u16_le(self.receiver.0);
        put_bytes(&mut out, self.start.as_deref().unwrap_or_default());
        put_varint(&mut out, self.left.len() as u64);
        self.left.iter().for_each(|partition| out.put_u16_le(*partition));
        out.freeze()
    }

    fn decode(bytes: Bytes) -> Result<Checkpoint, Malformed> {
        let from = &mut Reader::new(bytes);
        if from.u8()? != CHECKPOINT_VERSION {
            return Err(Malformed("a checkpoint of another version"));
        }
        let (target, receiver, start) = (from.u64()?, NodeId(from.u16()?), from.bytes()?);
        let count = from.count()?;
        let left: Result<Vec<u16>, Malformed> = (0..count).map(|_| from.u16()).collect();
        let checkpoint =
            Checkpoint { target, receiver, start: Some(start).filter(|it| !it.is_empty()), left: left? };
        from.end()?;
        Ok(checkpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_a_checkpoint() {
        let start = Some(Bytes::from_static(b"\x01\x00\x07t"));
        let saved = Checkpoint { target: 0x0102, receiver: NodeId(3), start, left: vec![7, 0x0901] };
        let bytes = b"\x01\x02\x01\0\0\0\0\0\0\x03\0\x04\x01\0\x07t\x02\x07\0\x01\x09";
        assert_eq!(&saved.encode()[..], bytes);
        assert_eq!(Checkpoint::decode(Bytes::from_static(bytes)), Ok(saved));
        for cut in 0..bytes.len() {
            assert!(Checkpoint::decode(Bytes::copy_from_slice(&bytes[..cut])).is_err());
        }
    }

    #[test]
    fn a_checkpoint_of_an_earlier_target_says_nothing() {
        let now = Monotonic(1);
        let saving = || InboundTransfer { saving: Some(Seq(8)), ..InboundTransfer::new([3].into(), now) };
        let mut pull = saving();
        pull.end_saving(Seq(7), Ok(()), now);
        pull.end_saving(Seq(7), Err(Error::Timeout), now);
        assert_eq!((pull.saving, pull.failures), (Some(Seq(8)), 0));
        pull.end_saving(Seq(8), Ok(()), now);
        assert_eq!((pull.saving, pull.failures), (None, 0));
        let mut failed = saving();
        failed.end_saving(Seq(8), Err(Error::Timeout), now);
        assert_eq!((failed.saving, failed.failures), (None, 1));
    }

    #[test]
    fn a_copy_comes_to_its_end_whatever_is_said() {
        let pull = InboundTransfer::new(BTreeSet::from([3, 5]), Monotonic(0));
        let part = |rest: &[u16], next: Option<&'static [u8]>| CopyPart {
            rest: rest.to_vec(),
            next: next.map(Bytes::from_static),
            ..CopyPart::default()
        };
        assert!(pull.goes_on_with(&part(&[], None)) && pull.goes_on_with(&part(&[5], None)));
        assert!(pull.goes_on_with(&part(&[3, 5], Some(b"\x01\x00\x03a"))));
        assert!(!pull.goes_on_with(&part(&[3, 5], None)) && !pull.goes_on_with(&part(&[3, 4], None)));
        assert!(!pull.goes_on_with(&part(&[3, 5], Some(b"\x01\x00\x05a"))));
        let further = InboundTransfer { start: Some(Bytes::from_static(b"\x01\x00\x03b")), ..pull };
        assert!(!further.goes_on_with(&part(&[3, 5], Some(b"\x01\x00\x03a"))));
    }
}
