//! The needs of a request: the permissions without which it is refused.

use crate::permission::{Permission, Permissions};
use crate::policy::{Explanation, Policy, UserId};
use crate::slot::{Resource, Target};

/// The needs of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs<'a> {
    /// Nothing, not even a login.
    Nothing,
    /// A login alone.
    Login,
    /// All of these permissions on the target.
    All(Permissions, Target<'a>),
}

impl<'a> Needs<'a> {
    /// These permissions on a target.
    pub fn of<const N: usize>(permissions: [Permission; N], target: Target<'a>) -> Needs<'a> {
        Needs::All(permissions.into_iter().collect(), target)
    }

    /// The same, and one more permission if `is_needed`.
    pub fn and_if(self, is_needed: bool, permission: Permission) -> Needs<'a> {
        match self {
            Needs::All(permissions, target) if is_needed => {
                Needs::All(permissions.with(permission.into()), target)
            }
            needs => needs,
        }
    }

    /// Whether these permissions on everything are enough.
    pub(crate) fn are_in<const N: usize>(self, permissions: [Permission; N]) -> bool {
        match self {
            Needs::Nothing | Needs::Login => true,
            Needs::All(needed, _) => needed.without(permissions.into_iter().collect()).is_empty(),
        }
    }
}

/// The needs of a request under way, without a part of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptNeeds {
    /// A login at most.
    Login,
    /// All of these permissions on the resource.
    All(Permissions, Resource),
}

impl From<Needs<'_>> for KeptNeeds {
    fn from(needs: Needs<'_>) -> KeptNeeds {
        match needs {
            Needs::Nothing | Needs::Login => KeptNeeds::Login,
            Needs::All(permissions, target) => KeptNeeds::All(permissions, target.resource()),
        }
    }
}

impl KeptNeeds {
    /// The needs.
    pub fn needs(&self) -> Needs<'_> {
        match self {
            KeptNeeds::Login => Needs::Login,
            KeptNeeds::All(permissions, resource) => Needs::All(*permissions, resource.target()),
        }
    }
}

impl Policy {
    /// The first need that a user of this policy does not meet.
    pub fn missing(&self, user: UserId, needs: Needs<'_>) -> Option<Explanation> {
        let Needs::All(permissions, target) = needs else { return None };
        let missing = self.without_grant(user, permissions, target);
        if missing.is_empty() {
            return None;
        }
        missing.iter().next().map(|first| self.explain(user, first, target))
    }
}
