//! What this shard has and another node is to have: it asks for parts, and is sent them key by key.
//!
//! 1. A scan finds the next keys of the partitions that are asked for, leaping over what is not.
//! 2. Each key is read and sent as a merge ([`kv::TransferKey`]), a few at a time: in slices with pauses while clients
//!    are served (`throttle.rs`).
//! 3. When all have been confirmed, as durable as the receiver is configured to make them, the part is answered.
//!
//! Where something was lost here, the rest is sent, and the answer names the partition: the receiver gets the lost part
//! from others (`losses.rs`). No older version goes in the place of one that was lost: its key cannot be read.
//!
//! Invariant: a part is begun only when its scan sees all that has been confirmed here without being passed on.
//!
//! Left out: reading values in the order of the journal.

use crate::coverage::walk::{Wanted, seek};
use crate::handoff::throttle::HandoffThrottle;
use crate::hop::ShardId;
use crate::peer::{AskId, CopyPart, NodeId, PeerMessage};
use crate::request::task::{Coordinator, Task, placed};
use crate::shard::effect::Effect;
use crate::shard::env::Env;
use crate::shard::owners::ScanOwner;
use crate::shard::reply_to::ReplyTo;
use crate::shard::store_error::store_error;
use ::object::key;
use base::Monotonic;
use bytes::Bytes;
use engine::Seq;
use engine::fold::{ScanId, ScanPage, ScanRequest, Visit};
use kv::Error;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Keys of one part at most: some tens of kilobytes of them.
const PART_KEYS_MAX: usize = 256;
/// Bytes of one part, from which on it takes no further key: what an interruption costs.
const PART_BYTES_MAX: u64 = 8 << 20;
/// How long after it was asked for a part takes no further key: whoever waits for it gives it up some time later.
const PART_TIME_MAX: Duration = Duration::from_secs(5);
/// Keys on their way for one part while no client is served: enough to fill a link's batch.
const UNDER_WAY_MAX: usize = 32;
/// How long one key may take: a large object over a slow link.
const KEY_MAX: Duration = Duration::from_secs(10);

/// A part that is being sent.
struct OutboundTransfer {
    to: NodeId,
    id: AskId,
    asked: Monotonic,
    /// Where to go on in the first partition.
    start: Option<Bytes>,
    /// The partitions of this shard that are asked for, and then those of others.
    own: Vec<u16>,
    others: Vec<u16>,
    /// Those of which something was lost here.
    lost: BTreeSet<u16>,
    /// The key before which the part ends; none if it has all of this shard's partitions.
    end: Option<Bytes>,
    waiting: VecDeque<Bytes>,
    under_way: usize,
    failed: Option<Error>,
    /// Keys that have been dealt with, those too that were not to be sent.
    done: u64,
    objects: u64,
    bytes: u64,
}

/// All parts that are being sent.
#[derive(Default)]
pub(crate) struct OutboundTransfers {
    transfers: BTreeMap<u64, OutboundTransfer>,
    /// Those whose keys are being looked for.
    scans: BTreeMap<ScanId, u64>,
    throttle: HandoffThrottle,
    /// Writes up to here may have been confirmed to others without being passed on.
    unpassed: Seq,
}

impl OutboundTransfers {
    /// Checks relations that hold after each input.
    pub fn invariants(&self, env: &Env) {
        let is_used = self.transfers.is_empty() || env.topology.target.is_some();
        assert!(is_used, "transfers are for a target");
        for (&scan, name) in &self.scans {
            assert_eq!(
                env.scan_owners.of(scan),
                Some(&ScanOwner::OutboundTransfer),
                "scans for keys are under way"
            );
            let transfer = self.transfers.get(name);
            assert!(transfer.is_none_or(|it| it.under_way == 0), "keys are sent when they are known");
            assert!(transfer.is_none_or(|it| it.waiting.is_empty()), "keys are looked for when none is left");
        }
        for transfer in self.transfers.values() {
            assert!(
                transfer.objects <= transfer.done,
                "each object that was sent is a key that was dealt with"
            );
            assert!(transfer.objects > 0 || transfer.bytes == 0, "bytes are of objects that were sent");
            assert!(!transfer.own.is_empty(), "a part is of partitions of this shard");
            let mut lost = transfer.lost.iter();
            let are_own = lost.all(|prefix| transfer.own.binary_search(prefix).is_ok());
            assert!(are_own, "a part tells of losses in its own partitions");
        }
        let is_slice_of_one = self.throttle.under_way().is_none_or(|name| self.transfers.contains_key(&name));
        assert!(is_slice_of_one, "a slice ends with its transfer");
        self.throttle.invariants();
    }

    /// Writes up to here may have been confirmed to others without being passed on.
    pub fn note_unpassed(&mut self, written: Seq) {
        self.unpassed = written;
    }

    /// Whether keys wait for their turn, which nothing but time brings.
    pub fn are_waiting(&self) -> bool {
        self.transfers.values().any(OutboundTransfer::is_waiting)
    }
}

impl OutboundTransfers {
    /// Another node asks for a part.
    pub(crate) fn on_ask_copy(
        &mut self,
        env: &mut Env,
        (to, id): (NodeId, AskId),
        target: u64,
        partitions: Vec<u16>,
        start: Option<Bytes>,
    ) {
        // Whoever asks again has given up the part that it asked for before.
        let gifts = self.transfers.iter();
        let before = gifts.filter(|(_, gift)| (gift.to, gift.id.shard()) == (to, id.shard()));
        let before: Vec<u64> = before.map(|(&name, _)| name).collect();
        before.into_iter().for_each(|name| self.give_up(env, name));
        let name = env.next_id();
        if let Err(error) = self.begin_transfer(env, name, (to, id), target, partitions, start) {
            env.send(to, PeerMessage::CopyPart { id, part: Err(error) });
        }
    }

    fn begin_transfer(
        &mut self,
        env: &mut Env,
        name: u64,
        (to, id): (NodeId, AskId),
        target: u64,
        partitions: Vec<u16>,
        start: Option<Bytes>,
    ) -> Result<(), Error> {
        let topology = &env.topology;
        let known = topology.target.as_ref().is_some_and(|ring| ring.version().0 == target);
        if !known || env.store.acknowledged() < self.unpassed {
            // It will be, in a moment.
            return Err(Error::Unreachable);
        }
        if self.transfers.len() >= usize::try_from(topology.budget.sent_max).unwrap_or(usize::MAX) {
            return Err(Error::Overload);
        }
        let layout = env.knobs.layout;
        let first = *partitions.first().ok_or(Error::NotCovered)?;
        let is_own = |it: &u16| *it >= first && ShardId(layout.shard_of(*it)) == env.knobs.id;
        let (mut own, others): (Vec<u16>, Vec<u16>) = partitions.iter().partition(|it| is_own(it));
        own.sort_unstable();
        own.dedup();
        if own.first() != Some(&first) {
            return Err(Error::NotCovered);
        }
        let gift = OutboundTransfer { start, own, others, ..OutboundTransfer::new((to, id), env.now()) };
        self.look_for_keys(env, name, &gift)?;
        self.transfers.insert(name, gift);
        Ok(())
    }

    /// Looks for the keys of a part.
    fn look_for_keys(&mut self, env: &mut Env, name: u64, gift: &OutboundTransfer) -> Result<(), Error> {
        let range = key::objects_at(gift.own[0]);
        let start = gift.start.clone().filter(|start| range.contains(start));
        let mut wanted = Wanted::new(gift.own.clone());
        let visitor = Box::new(move |key: &[u8], _: &[u8]| {
            let prefix = key::prefix_of(key);
            match wanted.reach(prefix) {
                Some(next) if next == prefix => Visit::Take,
                next => seek(next.map(|next| key::objects_at(next).start)),
            }
        });
        let last = gift.own[gift.own.len() - 1];
        let request = ScanRequest {
            start: start.unwrap_or_else(|| range.start.into()),
            end: key::objects_at(last).end.into(),
            items_max: PART_KEYS_MAX,
            visitor,
            past_losses: true,
        };
        let scan = env.store.scan(request).map_err(store_error)?;
        env.scan_owners.note(scan, ScanOwner::OutboundTransfer);
        self.scans.insert(scan, name);
        Ok(())
    }

    /// What is being sent is for no target any more.
    pub(crate) fn end_transfers(&mut self, env: &mut Env) {
        if env.topology.target.is_none() {
            let all: Vec<u64> = self.transfers.keys().copied().collect();
            all.into_iter().for_each(|name| self.give_up(env, name));
        }
    }

    /// Nobody waits for a part any more, nor for its keys.
    fn give_up(&mut self, env: &mut Env, name: u64) {
        self.transfers.remove(&name);
        self.throttle.end(name, env.now());
        env.raise(Effect::CancelTransfer(name));
    }

    /// Takes the keys of a part. It may be of a transfer that has ended since.
    pub(crate) fn on_scan(&mut self, env: &mut Env, scan: ScanId, page: Result<ScanPage, engine::Error>) {
        let Some(name) = self.scans.remove(&scan) else { return };
        let Some(mut gift) = self.transfers.remove(&name) else { return };
        match page {
            Ok(ScanPage { has_left_out: true, .. }) | Err(engine::Error::Damaged(_))
                if gift.own.len() > 1 =>
            {
                // Somewhere there is a block that cannot be read. It is found, one partition after the other.
                let behind = gift.own.split_off(1);
                gift.others.splice(0..0, behind);
                gift.failed = self.look_for_keys(env, name, &gift).err();
                if gift.failed.is_none() {
                    self.transfers.insert(name, gift);
                    return;
                }
            }
            Ok(page) => {
                gift.waiting = page.items.into_iter().map(|(key, _)| key).collect();
                gift.end = page.next;
                gift.lost = self.lossy(env, &gift);
                if page.has_left_out {
                    gift.lost.extend(&gift.own);
                }
            }
            Err(engine::Error::Damaged(_)) => gift.lost.extend(&gift.own),
            Err(error) => gift.failed = Some(store_error(error)),
        }
        self.transfers.insert(name, gift);
        self.go_on_sending(env, name);
    }

    /// The partitions that the scan has come to of which something was lost here.
    fn lossy(&self, env: &Env, gift: &OutboundTransfer) -> BTreeSet<u16> {
        let is_lossy = |first: u16, last: u16| {
            let (start, end) = (key::objects_at(first).start, key::objects_at(last).end);
            env.store.check_range(&start, &end).is_err()
        };
        let own = gift.own.iter().copied().filter(|&prefix| gift.tells_of(prefix));
        match (gift.own.first(), gift.own.last()) {
            // That is nearly always so.
            (Some(&first), Some(&last)) if !is_lossy(first, last) => BTreeSet::new(),
            _ => own.filter(|&prefix| is_lossy(prefix, prefix)).collect(),
        }
    }

    /// Once in a turn: has that part go on whose turn has come.
    pub(crate) fn take_turn_sending(&mut self, env: &mut Env) {
        if self.transfers.is_empty() {
            return;
        }
        let now = env.now();
        let OutboundTransfers { transfers: gifts, throttle: share, .. } = &*self;
        let waiting = gifts.iter().filter(|(_, gift)| gift.is_waiting()).map(|(&name, _)| name);
        if let Some(name) = share.turn(waiting, now) {
            self.go_on_sending(env, name);
        }
    }

    /// Sends what may be sent of a part, and answers for it when all of it is confirmed.
    fn go_on_sending(&mut self, env: &mut Env, name: u64) {
        let now = env.now();
        let yields = env.activity.yields(now);
        loop {
            let OutboundTransfers { transfers: gifts, throttle: share, .. } = &mut *self;
            let Some(gift) = gifts.get_mut(&name) else { return };
            if gift.under_way == 0 {
                share.end(name, now);
            }
            gift.end_in_time(now);
            if gift.waiting.is_empty() || !gift.may_send(name, share, yields, now) {
                break;
            }
            let Some(key) = gift.waiting.pop_front() else { break };
            gift.under_way += 1;
            let to = gift.to;
            self.carry(env, name, to, key);
        }
        let is_over = |gift: &OutboundTransfer| gift.under_way == 0 && gift.waiting.is_empty();
        if !self.transfers.get(&name).is_some_and(is_over) {
            return;
        }
        let Some(gift) = self.transfers.remove(&name) else { return };
        let (to, id) = (gift.to, gift.id);
        env.send(to, PeerMessage::CopyPart { id, part: gift.into_part() });
    }

    fn carry(&mut self, env: &mut Env, name: u64, to: NodeId, key: Bytes) {
        let deadline = env.now() + KEY_MAX;
        let made = placed(&key).map_err(|error| Error::Damaged(error.to_string()));
        let made = made.and_then(|(prefix, bucket)| {
            let wanted = env.is_wanted_by(to, prefix, &bucket)?;
            Ok((wanted, Arc::clone(env.props.get_as_replica(&bucket)?)))
        });
        match made {
            Ok((true, props)) => {
                let carry = Coordinator::TransferKey(kv::TransferKey::new(to, name));
                env.start(Task::new(ReplyTo::Nobody, carry, key, props, deadline));
            }
            // In a bucket with another number of replicas.
            Ok((false, _)) => env.raise(Effect::KeyTransferred { transfer: name, key, result: Ok(0) }),
            Err(error) => {
                env.raise(Effect::KeyTransferred { transfer: name, key, result: Err(error) });
            }
        }
    }

    /// A key is at the receiver, or is not.
    pub(crate) fn on_carried(&mut self, env: &mut Env, name: u64, key: &Bytes, carried: Result<u64, Error>) {
        let Some(gift) = self.transfers.get_mut(&name) else { return };
        gift.under_way -= 1;
        gift.done += 1;
        match carried {
            Ok(bytes) => {
                gift.objects += u64::from(bytes > 0);
                gift.bytes += bytes;
            }
            Err(Error::Damaged(_)) => drop(gift.lost.insert(key::prefix_of(key))),
            Err(error) => gift.failed = Some(error),
        }
        self.go_on_sending(env, name);
    }
}

impl OutboundTransfer {
    /// A part of nothing, that is asked for now.
    fn new((to, id): (NodeId, AskId), asked: Monotonic) -> OutboundTransfer {
        OutboundTransfer {
            to,
            id,
            asked,
            start: None,
            own: Vec::new(),
            others: Vec::new(),
            lost: BTreeSet::new(),
            end: None,
            waiting: VecDeque::new(),
            under_way: 0,
            failed: None,
            done: 0,
            objects: 0,
            bytes: 0,
        }
    }

    /// Whether the scan has come to this partition.
    fn tells_of(&self, prefix: u16) -> bool {
        self.end.as_ref().is_none_or(|end| prefix <= key::prefix_of(end))
    }

    /// Whether its keys wait for its turn.
    fn is_waiting(&self) -> bool {
        self.under_way == 0 && !self.waiting.is_empty()
    }

    /// Whether one more key may be sent.
    fn may_send(&self, name: u64, share: &mut HandoffThrottle, yields: bool, now: Monotonic) -> bool {
        if !yields {
            return self.under_way < UNDER_WAY_MAX;
        }
        if self.under_way == 0 {
            share.begin(name, (self.objects, self.bytes), now);
        }
        share.take(name)
    }

    /// Takes no further key if it is large or old enough, or has failed. Something is sent, so that the copy goes on.
    fn end_in_time(&mut self, now: Monotonic) {
        if self.failed.is_some() {
            self.waiting.clear();
        }
        let is_old = self.done > 0 && now.since(self.asked) >= PART_TIME_MAX;
        if (is_old || self.bytes >= PART_BYTES_MAX)
            && let Some(key) = self.waiting.pop_front()
        {
            self.waiting.clear();
            self.end = Some(key);
        }
    }

    /// The answer: what is left begins where this part ends.
    fn into_part(self) -> Result<CopyPart, Error> {
        let OutboundTransfer { own, others, end, objects, bytes, lost, .. } = self;
        if let Some(error) = self.failed {
            return Err(error);
        }
        let at = end.as_ref().map(|end| key::prefix_of(end));
        let mut rest: Vec<u16> = own.into_iter().filter(|it| at.is_some_and(|at| *it >= at)).collect();
        // The scan may have ended between two partitions that are wanted.
        let next = end.filter(|_| at.is_some() && rest.first().copied() == at);
        rest.extend(others);
        Ok(CopyPart { rest, next, objects, bytes, lost: lost.into_iter().collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gift(end: Option<Bytes>) -> OutboundTransfer {
        let nothing = OutboundTransfer::new((NodeId(1), AskId(0)), Monotonic(0));
        OutboundTransfer { own: vec![3, 5, 7], others: vec![1], end, ..nothing }
    }

    fn key_in(prefix: u16) -> Bytes {
        key::objects_at(prefix).start.into()
    }

    #[test]
    fn what_is_left_begins_where_a_part_ends() {
        let left = |end: Option<Bytes>| gift(end).into_part().map(|part| (part.rest, part.next)).unwrap();
        assert_eq!(left(None), (vec![1], None));
        assert_eq!(left(Some(key_in(4))), (vec![5, 7, 1], None));
        assert_eq!(left(Some(key_in(7))), (vec![7, 1], Some(key_in(7))));
    }

    #[test]
    fn a_part_that_is_cut_leaves_all_partitions_behind_the_cut() {
        // The scan has found keys of three partitions, and ended in the last.
        let mut gift = OutboundTransfer { bytes: PART_BYTES_MAX, ..gift(Some(key_in(7))) };
        gift.waiting = [3, 5, 7].map(key_in).into();
        gift.end_in_time(Monotonic(0));
        let part = gift.into_part().unwrap();
        assert_eq!((part.rest, part.next), (vec![3, 5, 7, 1], Some(key_in(3))));
    }

    #[test]
    fn an_old_part_ends_when_something_is_sent() {
        let late = Monotonic(0) + PART_TIME_MAX;
        let mut gift = OutboundTransfer { waiting: [3, 5].map(key_in).into(), ..gift(None) };
        gift.end_in_time(late);
        assert_eq!(gift.waiting.len(), 2);
        gift.done = 1;
        gift.end_in_time(late);
        assert_eq!((gift.waiting.len(), gift.into_part().unwrap().rest), (0, vec![3, 5, 7, 1]));
    }
}
