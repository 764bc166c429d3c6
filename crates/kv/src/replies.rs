//! The replies to one request, by replica.

use ring::NodeId;

use crate::error::Error;
use crate::needs::Needs;
use crate::placement::{Placement, Roles};

/// What has become of a question.
#[derive(Clone, Debug)]
pub(crate) enum State<T> {
    Waiting,
    Ok(T),
    Failed(Error),
}

/// One that was asked.
#[derive(Clone, Debug)]
pub(crate) struct Replica<T> {
    /// `None` for this node.
    pub node: Option<NodeId>,
    pub roles: Roles,
    /// The primaries it keeps hints for.
    pub hints: Vec<NodeId>,
    pub state: State<T>,
}

impl<T> Replica<T> {
    pub fn new(node: Option<NodeId>, roles: Roles, hints: Vec<NodeId>) -> Replica<T> {
        Replica { node, roles, hints, state: State::Waiting }
    }

    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting)
    }

    pub fn ok(&self) -> Option<&T> {
        match &self.state {
            State::Ok(reply) => Some(reply),
            State::Waiting | State::Failed(_) => None,
        }
    }
}

/// All that were asked. A node alone is one replica, and then nothing is allocated.
#[derive(Clone, Debug)]
pub(crate) struct Replies<T> {
    here: Option<Replica<T>>,
    others: Vec<Replica<T>>,
}

impl<T> Replies<T> {
    pub fn new(placement: &Placement) -> Replies<T> {
        let replica = |node, roles| Replica::new(node, roles, placement.hints_of(node).collect());
        let here = placement.here.map(|roles| replica(None, roles));
        let others = placement.others.iter().map(|&(node, roles)| replica(Some(node), roles)).collect();
        Replies { here, others }
    }

    /// Asserts that the replicas fit each other.
    pub fn invariants(&self) {
        for (at, replica) in self.others.iter().enumerate() {
            let is_again = self.others[..at].iter().any(|before| before.node == replica.node);
            assert!(!is_again, "each node is asked once");
        }
        for Replica { node, roles, hints, .. } in self.iter() {
            roles.invariants();
            let is_own = node.is_some_and(|node| hints.contains(&node));
            assert!(!is_own, "a replica keeps hints for other nodes only");
        }
    }

    /// Whether this node was asked and nobody else.
    pub fn is_here_alone(&self) -> bool {
        self.here.is_some() && self.others.is_empty()
    }

    /// The primaries for which this node keeps a hint.
    pub fn hints_here(&self) -> Vec<NodeId> {
        self.here.as_ref().map(|here| here.hints.clone()).unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Replica<T>> + Clone {
        self.here.iter().chain(&self.others)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Replica<T>> {
        self.here.iter_mut().chain(&mut self.others)
    }

    pub fn of(&mut self, node: Option<NodeId>) -> Option<&mut Replica<T>> {
        self.iter_mut().find(|replica| replica.node == node)
    }

    pub fn push(&mut self, replica: Replica<T>) {
        self.others.push(replica);
    }

    /// Whether there is nothing to wait for.
    pub fn complete(&self) -> bool {
        !self.iter().any(Replica::is_waiting)
    }

    /// Whether the replies that are there, as far as they are `good`, meet the needs; `Err` when they cannot any
    /// more, with the need that they fail.
    pub fn meet(&self, needs: &Needs, good: impl Fn(&T) -> bool) -> Result<bool, Error> {
        let is_good = |replica: &&Replica<T>| replica.ok().is_some_and(&good);
        let good_ones = self.iter().filter(is_good).map(|replica| replica.roles.reply());
        let unmet = match needs.met_by(good_ones) {
            Ok(()) => return Ok(true),
            Err(unmet) => unmet,
        };
        let hopeful = |replica: &&Replica<T>| replica.is_waiting() || is_good(replica);
        let possible = self.iter().filter(hopeful).map(|replica| replica.roles.reply());
        match needs.met_by(possible) {
            Ok(()) => Ok(false),
            Err(_) => Err(self.cause(unmet)),
        }
    }

    /// The need that the replies that are there fail, as far as they are `good`.
    ///
    /// # Panics
    /// If they meet all of them.
    pub fn shortfall(&self, needs: &Needs, good: impl Fn(&T) -> bool) -> Error {
        let is_good = |replica: &&Replica<T>| replica.ok().is_some_and(&good);
        let met = needs.met_by(self.iter().filter(is_good).map(|replica| replica.roles.reply()));
        self.cause(met.expect_err("the caller has seen that they do not"))
    }

    /// What the client is told when too few replies came: why the only replica failed, or that somebody was
    /// overloaded, so that it tries again; otherwise the need, and whether disks are full.
    fn cause(&self, unmet: Error) -> Error {
        let failures = || {
            self.iter().filter_map(|replica| match &replica.state {
                State::Failed(error) => Some(error),
                State::Waiting | State::Ok(_) => None,
            })
        };
        if let (true, Some(error)) = (self.others.is_empty(), failures().next()) {
            return error.clone();
        }
        if failures().any(|error| *error == Error::Overload) {
            return Error::Overload;
        }
        let full = failures().filter(|error| matches!(error, Error::Exhausted(_))).count() as u32;
        match unmet {
            Error::Unsatisfied { need, want, got } if full > 0 => Error::NoRoom { need, want, got, full },
            unmet => unmet,
        }
    }
}

/// Whether a request can be met by those who can be reached: told before anything is asked.
pub(crate) fn check_reachable(needs: &Needs, placement: &Placement) -> Result<(), Error> {
    match needs.met_by(placement.replies()) {
        Err(Error::Unsatisfied { need, want, got }) if need.counts_vnodes() => {
            Err(Error::InsufficientVnodes { have: got, need: want })
        }
        other => other,
    }
}
