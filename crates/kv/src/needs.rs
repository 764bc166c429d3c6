//! Needs of a request, and the count of the replies that meet them.
//!
//! A node keeps a key once, however many of the key's n vnodes are its own, and its one reply answers for each
//! of them: [`Reply`] says for how many. So on one node every r, w, pr, pw and dw up to n is met and
//! node_confirms of 2 is not; with several nodes the same sum runs over their replies.
//!
//! [`Needs`] is resolved once per request: words to numbers, `Default` to the bucket's properties, and whatever
//! exceeds n is refused before anything is read or written. [`Needs::met_by`] is asked of the replies that are
//! possible, to refuse early, and of those that came.

use crate::error::Error;
use crate::need::Need;
use crate::props::BucketProps;

use crate::quorum::Quorum;

/// One node's reply, which is one copy of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// How many of the request's n vnodes that node is.
    pub vnodes: u32,
    /// How many of these are primaries.
    pub primaries: u32,
    /// Whether a write is as durable there as that node is configured to make it.
    pub durable: bool,
}

impl Reply {
    /// The reply of a node that is every one of the n vnodes.
    pub fn of_all(n: u32) -> Reply {
        Reply { vnodes: n, primaries: n, durable: true }
    }
}

/// What a request needs, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Replicas asked or written.
    pub n: u32,
    kind: Kind,
    replies: u32,
    primaries: u32,
    durable: u32,
    nodes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

impl Needs {
    /// The needs of a read. `n_val` may lower the bucket's, not raise it.
    pub fn read(
        props: &BucketProps,
        n_val: Option<u32>,
        (r, pr): (Quorum, Quorum),
        node_confirms: Quorum,
    ) -> Result<Needs, Error> {
        let n = n_val.unwrap_or(props.n_val);
        if n > props.n_val || n == 0 {
            return Err(Error::NValViolation(n));
        }
        Needs {
            n,
            kind: Kind::Read,
            replies: r.or(props.r).count(n),
            primaries: pr.or(props.pr).count(n),
            durable: 0,
            nodes: node_confirms.or(Quorum::Exactly(props.node_confirms)).count(n),
        }
        .within_n()
    }

    /// The needs of a write. As in Riak, an `n_val` above the bucket's is not refused here but means the
    /// bucket's; and dw is at least one, for the coordinator itself.
    pub fn write(
        props: &BucketProps,
        n_val: Option<u32>,
        (w, pw, dw): (Quorum, Quorum, Quorum),
        node_confirms: Quorum,
    ) -> Result<Needs, Error> {
        let n = n_val.unwrap_or(props.n_val).min(props.n_val);
        if n == 0 {
            return Err(Error::NValViolation(n));
        }
        Needs {
            n,
            kind: Kind::Write,
            replies: w.or(props.w).count(n),
            primaries: pw.or(props.pw).count(n),
            durable: dw.or(props.dw).count(n).max(1),
            nodes: node_confirms.or(Quorum::Exactly(props.node_confirms)).count(n),
        }
        .within_n()
    }

    fn within_n(self) -> Result<Needs, Error> {
        let most = self.replies.max(self.primaries).max(self.durable).max(self.nodes);
        if most > self.n { Err(Error::NValViolation(self.n)) } else { Ok(self) }
    }

    /// Asserts that the numbers fit each other.
    pub fn invariants(&self) {
        assert!(self.replies_max() <= self.n, "no need counts more vnodes than there are replicas");
        assert_eq!(self.durable == 0, self.kind == Kind::Read, "a write needs a durable reply, a read none");
    }

    /// The larger of the replies and the primaries that are needed.
    pub fn replies_max(&self) -> u32 {
        self.replies.max(self.primaries)
    }

    /// Counts `replies`, one per node, against each need.
    pub fn met_by(&self, replies: impl IntoIterator<Item = Reply>) -> Result<(), Error> {
        let (mut vnodes, mut primaries, mut durable, mut nodes) = (0, 0, 0, 0);
        for reply in replies {
            vnodes += reply.vnodes;
            primaries += reply.primaries;
            durable += if reply.durable { reply.vnodes } else { 0 };
            nodes += if base::planted!(QuorumFromOneNode) { reply.vnodes } else { 1 };
        }
        assert!(vnodes <= self.n, "a vnode replied twice");
        let (total, primary) = match self.kind {
            Kind::Read => (Need::R, Need::Pr),
            Kind::Write => (Need::W, Need::Pw),
        };
        let counts = [
            (primary, self.primaries, primaries),
            (total, self.replies, vnodes),
            (Need::Dw, self.durable, durable),
            (Need::NodeConfirms, self.nodes, nodes),
        ];
        match counts.into_iter().find(|&(_, want, got)| got < want) {
            Some((need, want, got)) => Err(Error::Unsatisfied { need, want, got }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Quorum::{All, Default as Unsaid, Exactly, One};

    fn read(r: Quorum, pr: Quorum, node_confirms: Quorum) -> Result<(), Error> {
        let props = BucketProps::default();
        let needs = Needs::read(&props, None, (r, pr), node_confirms)?;
        needs.met_by([Reply::of_all(needs.n)])
    }

    #[test]
    fn one_node_meets_what_one_copy_answers_for() {
        for quorum in [Unsaid, One, Quorum::Quorum, All, Exactly(0), Exactly(3)] {
            assert_eq!(read(quorum, quorum, Unsaid), Ok(()), "{quorum:?}");
        }
        assert_eq!(read(Exactly(4), Unsaid, Unsaid), Err(Error::NValViolation(3)));
        assert_eq!(read(Unsaid, Exactly(9), Unsaid), Err(Error::NValViolation(3)));
        assert_eq!(read(Unsaid, Unsaid, Exactly(4)), Err(Error::NValViolation(3)));
        assert_eq!(
            read(Unsaid, Unsaid, Exactly(2)),
            Err(Error::Unsatisfied { need: Need::NodeConfirms, want: 2, got: 1 })
        );
    }

    #[test]
    fn a_request_may_lower_n() {
        let props = BucketProps::default();
        let read = |n, r| Needs::read(&props, Some(n), (r, Unsaid), Unsaid).map(|needs| needs.n);
        assert_eq!(read(2, Unsaid), Ok(2));
        assert_eq!(read(2, Exactly(3)), Err(Error::NValViolation(2)));
        assert_eq!(read(9, Unsaid), Err(Error::NValViolation(9)));
        assert_eq!(read(0, Unsaid), Err(Error::NValViolation(0)));
        let write = |n| Needs::write(&props, Some(n), (Unsaid, Unsaid, Unsaid), Unsaid).map(|needs| needs.n);
        assert_eq!(write(1), Ok(1));
        assert_eq!(write(9), Ok(3));
    }

    #[test]
    fn replies_of_several_nodes_are_summed() {
        let props = BucketProps::default();
        let needs = Needs::write(&props, None, (Exactly(3), Exactly(2), Exactly(2)), Exactly(2)).unwrap();
        let two = Reply { vnodes: 2, primaries: 1, durable: true };
        let one = Reply { vnodes: 1, primaries: 1, durable: false };
        let unmet = |replies: &[Reply]| match needs.met_by(replies.iter().copied()) {
            Err(Error::Unsatisfied { need, want, got }) => Some((need, want, got)),
            other => {
                assert_eq!(other, Ok(()));
                None
            }
        };
        assert_eq!(unmet(&[two, one]), None);
        assert_eq!(unmet(&[two]), Some((Need::Pw, 2, 1)));
        assert_eq!(unmet(&[Reply { primaries: 2, ..two }]), Some((Need::W, 3, 2)));
        assert_eq!(unmet(&[Reply { durable: false, ..two }, one]), Some((Need::Dw, 2, 0)));
        assert_eq!(unmet(&[Reply::of_all(3)]), Some((Need::NodeConfirms, 2, 1)));
    }
}
