//! The current and the staged number of partitions, and the moves between them.
//!
//! A ring grows, and never becomes smaller. Its lists of three nodes and more stay ([`ring::grown`]); what moves beside
//! is what the plan has decided. Bounds: what the cluster was founded with, and the prefixes by which keys are ordered.

use ring::{NodeId, Partition, RingSize};

use super::State;
use super::command::Rejected;
use super::step::Step;

impl State {
    /// How many partitions there are.
    pub fn size(&self) -> RingSize {
        size_of(&self.owners)
    }

    /// How many there are when all that was decided is carried out.
    pub fn heading_size(&self) -> RingSize {
        size_of(self.heading())
    }

    /// How many there are to be, if that waits for a commit.
    pub fn staged_size(&self) -> Option<RingSize> {
        self.staged_size
    }

    /// By how many prefixes all nodes order their keys: the most partitions that there can be.
    pub fn prefixes(&self) -> RingSize {
        self.prefixes
    }

    /// Whether the ring has grown, or is to.
    pub(crate) fn is_grown(&self) -> bool {
        self.heading_size() > self.founded
    }

    /// One change of the ring's size at a time, and none beside a change of owners that is under way: who looks at a
    /// plan then sees all that it does.
    pub(super) fn stage_ring(&mut self, size: RingSize) -> Result<(), Rejected> {
        if self.is_pinned() {
            return Err(Rejected::Pinned);
        }
        if self.step != Step::AtRest || self.next.is_some() {
            return Err(Rejected::Moving);
        }
        if size <= self.size() || size > self.prefixes {
            return Err(Rejected::Size { has: self.size().partitions(), most: self.prefixes.partitions() });
        }
        self.staged_size = Some(size);
        Ok(())
    }

    /// What gets another owner than it has: the partition, whose it is, and whose it is to be. Of a ring that grows,
    /// what the lists that there are would not give it.
    pub fn to_move(&self) -> impl Iterator<Item = (Partition, NodeId, NodeId)> {
        let size = self.heading_size();
        let owners = ring::grown(&self.owners, size).expect("a ring only grows");
        let pairs = owners.into_iter().zip(self.heading()).zip(size.all());
        pairs.filter(|((owner, next), _)| owner != *next).map(|((owner, next), it)| (it, owner, *next))
    }

    /// Whether a node is to own any position that it does not own.
    pub(super) fn gains(&self, node: NodeId, target: &[NodeId]) -> bool {
        let (size, finest) = (self.size(), size_of(target));
        let owner = |it: Partition| self.owners[size.convert(it, finest).0 as usize];
        finest.all().zip(target).any(|(it, next)| *next == node && owner(it) != node)
    }
}

/// How many partitions they own.
pub(super) fn size_of(owners: &[NodeId]) -> RingSize {
    RingSize::of_owners(owners).expect("State::check holds owners to be those of a ring")
}
