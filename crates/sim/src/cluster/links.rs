//! The way from node to node: every message is encoded, carried as bytes, decoded, and given to the shard that it
//! is for, as between real nodes.
//!
//! In half of all seeds nodes are told of links that go down and come up, as a real connection tells them, a little
//! late; and what they send meanwhile comes back to them. In the other half only silence tells.

use super::script::Script;
use super::{Event, World, node_id, node_of};
use crate::check::Verdict;
use crate::fault::Fault;
use crate::frame::{decode, encode};
use crate::network::Packet;
use crate::seed::duration_between;
use crate::show;
use bytes::Bytes;
use kv::replica::NodeId;
use node::{PeerMessage, peer};
use std::time::Duration;

/// How late a node is told at most that a link is up or down.
const TOLD_WITHIN: Duration = Duration::from_millis(200);
/// How long a message that cannot be sent takes to come back at most.
const BOUNCE_WITHIN: Duration = Duration::from_micros(100);

/// A message as bytes.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    bytes: Bytes,
    /// Which process of the receiver's it was sent to.
    start: u64,
}

impl World {
    /// Sends a message of a node's shard.
    pub(super) fn send(&mut self, at: usize, shard: usize, to: usize, message: PeerMessage) -> Verdict {
        self.trace.line(format_args!("n{at} -> n{to} {}", show::message(&message)));
        self.checks.on_message(at, to, &message)?;
        if let PeerMessage::Answer { id, result, .. } = &message
            && let Some(audit) = self.auditor.audits.remove(&(at, id.0))
        {
            return self.on_examined(at, audit, result.clone());
        }
        match &mut self.script {
            Some(Script::Transfer(transfer)) => transfer.on_message(at, to, &message),
            Some(Script::Gossip(gossip)) => gossip.on_message(&message),
            _ => {}
        }
        // Two programs speak the older one's version, which may not know of this.
        let encoded = encode(&message, self.hosts[at].speaks.min(self.hosts[to].speaks))?;
        if self.hosts[at].told_down.contains(&to) || encoded.is_none() {
            self.trace.fault(Fault::Bounce, format_args!("n{at} -> n{to}"));
            let delay = duration_between(&mut self.rng, Duration::ZERO, BOUNCE_WITHIN);
            self.events.after(delay, Event::Bounce { at, shard, to, message: Box::new(message) });
            return Ok(());
        }
        let bytes = encoded.expect("what cannot be encoded comes back");
        self.hosts[at].sent_bytes += bytes.len() as u64;
        let frame = Frame { bytes, start: self.hosts[to].starts };
        let packet = Packet { from: node_id(at), to: node_id(to), message: frame };
        let late =
            matches!(message, PeerMessage::AskRows { .. }).then(|| self.draw_late_question()).flatten();
        match late {
            Some(delay) => self.inside.send_late(&mut self.events, packet, delay),
            None => self.inside.send(&mut self.events, packet),
        }
        Ok(())
    }

    pub(super) fn on_inside(&mut self, packet: Packet<Frame>) -> Verdict {
        if !self.inside.arrives(&packet) {
            return Ok(());
        }
        let (from, at) = (member(packet.from), node_of(packet.to).expect("nodes speak to nodes"));
        if self.hosts[at].machine.process.is_none() {
            return Ok(());
        }
        let message = decode(packet.message.bytes)?;
        // A write that is passed on is lost with the stream that it is on, so that it is never done twice. All else
        // does no harm at a later process, and so may come to one.
        if matches!(message, PeerMessage::Forward { .. }) && packet.message.start != self.hosts[at].starts {
            return Ok(());
        }
        self.deliver(at, from, message)
    }

    /// Gives a node a message.
    pub(super) fn deliver(&mut self, at: usize, from: NodeId, message: PeerMessage) -> Verdict {
        let shard = usize::from(peer::route(&message, &self.hosts[at].machine.layout).0);
        let Some(running) = self.hosts[at].machine.shard(shard) else { return Ok(()) };
        running.peer(from, message);
        self.charge(at, super::processor::MESSAGE);
        self.schedule_turn(at, shard);
        self.after_shard(at, shard)
    }

    pub(super) fn on_bounce(&mut self, at: usize, shard: usize, to: usize, message: PeerMessage) -> Verdict {
        let Some(running) = self.hosts[at].machine.shard(shard) else { return Ok(()) };
        running.bounce(member(node_id(to)), message);
        self.schedule_turn(at, shard);
        self.after_shard(at, shard)
    }

    /// Something has happened to links of `at`: it is told soon, and so are those at their other ends.
    pub(super) fn links_changed(&mut self, at: usize) {
        if !self.plan.troubles.links_tell {
            return;
        }
        for other in (0..self.hosts.len()).filter(|other| *other != at) {
            for (one, two) in [(at, other), (other, at)] {
                let delay = duration_between(&mut self.rng, Duration::ZERO, TOLD_WITHIN);
                self.events.after(delay, Event::Link(one, two));
            }
        }
    }

    /// Tells a node what its link to another is, if that is news.
    pub(super) fn on_link(&mut self, at: usize, to: usize) -> Verdict {
        let (one, two) = (node_id(at), node_id(to));
        // A connection needs both ways.
        let cut = self.inside.is_cut(one, two) || self.inside.is_cut(two, one);
        let up = !cut && self.hosts[to].machine.process.is_some();
        let host = &mut self.hosts[at];
        let told_down = &mut host.told_down;
        let news = if up { told_down.remove(&to) } else { told_down.insert(to) };
        if !news || host.machine.process.is_none() {
            return Ok(());
        }
        self.trace
            .line(format_args!("n{at} is told that its link to n{to} is {}", if up { "up" } else { "down" }));
        for shard in 0..usize::from(self.hosts[at].machine.layout.shards) {
            if let Some(running) = self.hosts[at].machine.shard(shard) {
                running.link(member(two), up);
                self.schedule_turn(at, shard);
                self.after_shard(at, shard)?;
            }
        }
        Ok(())
    }
}

/// A node as the nodes themselves number it.
pub(super) fn member(id: crate::NodeId) -> NodeId {
    NodeId(u16::try_from(id.0).expect("a small number"))
}
