//! What this shard has and another node is to have: it asks for parts, and is sent them key by key.
//!
//! 1. A scan finds the next keys of the partitions that are asked for, leaping over what is not.
//! 2. Each key is read and sent as a merge ([`kv::Carry`]), a few at a time: fewer while clients keep this shard busy.
//! 3. When all have been confirmed, as durable as the receiver is configured to make them, the part is answered.
//!
//! Invariant: a part is begun only when whatever has been confirmed here without being passed on is seen by its scan.
//!
//! Left out: reading values in the order of the journal.

use super::pages::{Wanted, seek};
use super::work::{Coordinator, Work, placed};
use super::{Origin, Shard, store_error};
use crate::hop::ShardId;
use crate::peer::{AskId, CopyPart, NodeId, PeerMessage};
use ::object::key;
use bytes::Bytes;
use engine::fold::{ScanId, ScanPage, ScanRequest, Visit};
use kv::{Error, Event};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Keys of one part at most: some tens of kilobytes of them.
const PART_KEYS_MAX: usize = 256;
/// Bytes of one part, from which on it takes no further key: what an interruption costs.
const PART_BYTES_MAX: u64 = 8 << 20;
/// Keys on their way for one part: enough to fill a link's batch.
const UNDER_WAY_MAX: usize = 32;
/// The same while clients keep this shard busy.
const UNDER_WAY_BUSY_MAX: usize = 2;
/// How long one key may take: a large object over a slow link.
const KEY_MAX: Duration = Duration::from_secs(10);

/// A part that is being sent.
struct Gift {
    to: NodeId,
    id: AskId,
    /// What comes after the keys of this part.
    rest: Vec<u16>,
    next: Option<Bytes>,
    waiting: VecDeque<Bytes>,
    under_way: usize,
    failed: Option<Error>,
    objects: u64,
    bytes: u64,
}

/// All parts that are being sent.
#[derive(Default)]
pub(super) struct Gifts {
    gifts: BTreeMap<u64, Gift>,
    /// Those whose keys are being looked for: the partitions of this shard, and of others.
    scans: BTreeMap<ScanId, (u64, Vec<u16>, Vec<u16>)>,
}

impl Shard {
    /// Another node asks for a part.
    pub(super) fn on_ask_copy(
        &mut self,
        (to, id): (NodeId, AskId),
        target: u64,
        partitions: Vec<u16>,
        start: Option<Bytes>,
    ) {
        // Whoever asks again has given up the part that it asked for before.
        let gifts = self.moves.gifts.gifts.iter();
        let before = gifts.filter(|(_, gift)| (gift.to, gift.id.shard()) == (to, id.shard()));
        let before: Vec<u64> = before.map(|(&name, _)| name).collect();
        before.into_iter().for_each(|name| self.give_up(name));
        let name = self.next_work();
        if let Err(error) = self.begin_gift(name, (to, id), target, partitions, start) {
            self.send(to, PeerMessage::CopyPart { id, part: Err(error) });
        }
    }

    fn begin_gift(
        &mut self,
        name: u64,
        (to, id): (NodeId, AskId),
        target: u64,
        partitions: Vec<u16>,
        start: Option<Bytes>,
    ) -> Result<(), Error> {
        let topology = &self.moves.topology;
        let known = topology.target.as_ref().is_some_and(|ring| ring.version().0 == target);
        if !known || self.store.acknowledged() < self.moves.unpassed {
            // It will be, in a moment.
            return Err(Error::Unreachable);
        }
        if self.moves.gifts.gifts.len() >= usize::try_from(topology.budget.sent_max).unwrap_or(usize::MAX) {
            return Err(Error::Overload);
        }
        let shards = self.config.layout.shards;
        let first = *partitions.first().ok_or(Error::NotCovered)?;
        let is_own = |it: &u16| *it >= first && ShardId(ring::shard_of(*it, shards)) == self.config.id;
        let (mut own, others): (Vec<u16>, Vec<u16>) = partitions.iter().partition(|it| is_own(it));
        own.sort_unstable();
        own.dedup();
        if own.first() != Some(&first) {
            return Err(Error::NotCovered);
        }
        let range = key::objects_at(first);
        let start = start.filter(|start| range.contains(start));
        let mut wanted = Wanted::new(own.clone());
        let visitor = Box::new(move |key: &[u8], _: &[u8]| {
            let prefix = key::prefix_of(key);
            match wanted.reach(prefix) {
                Some(next) if next == prefix => Visit::Take,
                next => seek(next.map(|next| key::objects_at(next).start)),
            }
        });
        let last = own[own.len() - 1];
        let request = ScanRequest {
            start: start.unwrap_or_else(|| range.start.into()),
            end: key::objects_at(last).end.into(),
            items_max: PART_KEYS_MAX,
            visitor,
            past_losses: false,
        };
        let scan = self.store.scan(request).map_err(store_error)?;
        let gifts = &mut self.moves.gifts;
        gifts.scans.insert(scan, (name, own, others));
        let gift = Gift {
            to,
            id,
            rest: Vec::new(),
            next: None,
            waiting: VecDeque::new(),
            under_way: 0,
            failed: None,
            objects: 0,
            bytes: 0,
        };
        gifts.gifts.insert(name, gift);
        Ok(())
    }

    /// What is being sent is for no target any more.
    pub(super) fn end_gifts(&mut self) {
        if self.moves.topology.target.is_none() {
            let all: Vec<u64> = self.moves.gifts.gifts.keys().copied().collect();
            all.into_iter().for_each(|name| self.give_up(name));
        }
    }

    /// Nobody waits for a part any more, nor for its keys.
    fn give_up(&mut self, name: u64) {
        self.moves.gifts.gifts.remove(&name);
        let is_its_own =
            |work: &Work| matches!(&work.coordinator, Coordinator::Carry(carry) if carry.copy() == name);
        for key in self.objects.names(is_its_own) {
            self.resume(key, Event::Expired);
        }
    }

    /// Takes the keys of a part, if the scan was for one.
    pub(super) fn on_gift_page(
        &mut self,
        scan: ScanId,
        page: Result<ScanPage, engine::Error>,
    ) -> Result<(), Result<ScanPage, engine::Error>> {
        let Some((name, own, others)) = self.moves.gifts.scans.remove(&scan) else { return Err(page) };
        let Some(gift) = self.moves.gifts.gifts.get_mut(&name) else { return Ok(()) };
        gift.rest = own;
        match page {
            Ok(page) => {
                gift.waiting = page.items.into_iter().map(|(key, _)| key).collect();
                gift.stop_at(page.next);
                gift.rest.extend(others);
            }
            Err(error) => gift.failed = Some(store_error(error)),
        }
        self.go_on_giving(name);
        Ok(())
    }

    fn go_on_giving(&mut self, name: u64) {
        let most = if self.load().0 as usize > super::OVERLOAD_WORK_MIN {
            UNDER_WAY_BUSY_MAX
        } else {
            UNDER_WAY_MAX
        };
        loop {
            let Some(gift) = self.moves.gifts.gifts.get_mut(&name) else { return };
            if gift.bytes >= PART_BYTES_MAX
                && let Some(key) = gift.waiting.front().cloned()
            {
                gift.waiting.clear();
                gift.cut_at(key);
            }
            if gift.failed.is_some() {
                gift.waiting.clear();
            }
            if gift.under_way >= most {
                return;
            }
            let Some(key) = gift.waiting.pop_front() else { break };
            gift.under_way += 1;
            let to = gift.to;
            self.carry(name, to, key);
        }
        if self.moves.gifts.gifts.get(&name).is_none_or(|gift| gift.under_way > 0) {
            return;
        }
        let Some(gift) = self.moves.gifts.gifts.remove(&name) else { return };
        let Gift { to, id, rest, next, objects, bytes, .. } = gift;
        let part = gift.failed.map_or(Ok(CopyPart { rest, next, objects, bytes }), Err);
        self.send(to, PeerMessage::CopyPart { id, part });
    }

    fn carry(&mut self, name: u64, to: NodeId, key: Bytes) {
        let deadline = self.config.clock.now() + KEY_MAX;
        let made = self.is_wanted_by(to, &key).and_then(|wanted| {
            let (_, bucket) = placed(&key).map_err(|error| Error::Damaged(error.to_string()))?;
            Ok((wanted, Arc::clone(self.table.get_as_replica(&bucket)?)))
        });
        match made {
            Ok((true, props)) => {
                let carry = Coordinator::Carry(kv::Carry::new(to, name));
                self.drive(None, Work::new(Origin::Nobody, carry, key, props, deadline), Event::Start);
            }
            // In a bucket with another number of replicas.
            Ok((false, _)) => self.on_carried(name, Ok(0)),
            Err(error) => self.on_carried(name, Err(error)),
        }
    }

    /// A key is at the receiver, or is not.
    pub(super) fn on_carried(&mut self, name: u64, carried: Result<u64, Error>) {
        let Some(gift) = self.moves.gifts.gifts.get_mut(&name) else { return };
        gift.under_way -= 1;
        match carried {
            Ok(bytes) => {
                gift.objects += u64::from(bytes > 0);
                gift.bytes += bytes;
            }
            Err(error) => gift.failed = Some(error),
        }
        self.go_on_giving(name);
    }
}

impl Gift {
    /// The scan has ended here.
    fn stop_at(&mut self, next: Option<Bytes>) {
        match &next {
            Some(next) => self.rest.retain(|&partition| partition >= key::prefix_of(next)),
            None => self.rest.clear(),
        }
        // It may have ended between two partitions that are wanted.
        self.next = next.filter(|next| self.rest.first() == Some(&key::prefix_of(next)));
    }

    /// The part ends before this key, of those that were found.
    fn cut_at(&mut self, at: Bytes) {
        let prefix = key::prefix_of(&at);
        if self.rest.first() != Some(&prefix) {
            self.rest.insert(0, prefix);
        }
        self.next = Some(at);
    }
}
