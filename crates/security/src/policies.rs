//! The policy in force: one immutable value for all threads, replaced as a whole.
//!
//! A reader compares the version before each request ([`Policies::renew`]), which costs one load. Only when it differs
//! the reader takes the new policy, under a lock that is held for the copy of a pointer.
//!
//! Invariant: versions only grow, but for that of closed doors, which is older than all others. A publisher that comes
//! late with an older policy changes nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::access::{Access, Denied};
use crate::policy::Policy;
use crate::slots::Slots;

/// The version of closed doors. It differs from 0, by which a new connection goes.
const CLOSED: u64 = u64::MAX;

/// The policy in force.
pub struct Policies {
    version: AtomicU64,
    policy: RwLock<Arc<Policy>>,
}

impl Default for Policies {
    fn default() -> Policies {
        Policies::new()
    }
}

impl Policies {
    /// No users, security off: version 0.
    pub fn new() -> Policies {
        let policy = RwLock::new(Arc::new(Policy::compile(&Slots::default(), 0)));
        Policies { version: AtomicU64::new(0), policy }
    }

    /// The version of the policy in force.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The policy in force.
    pub fn current(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts records in force until the first policy is published.
    pub fn close(&self, slots: &Slots) {
        let mut current = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        if current.version() == 0 {
            self.version.store(CLOSED, Ordering::Release);
            *current = Arc::new(Policy::compile(slots, CLOSED));
        }
    }

    /// Has a connection go by the policy in force.
    ///
    /// # Errors
    /// The request under way is not allowed any more.
    #[inline]
    pub fn renew(&self, access: &mut Access) -> Result<(), Denied> {
        if self.version() == access.version() { Ok(()) } else { access.renew(self.current()) }
    }

    /// Puts a policy in force, unless a later one is.
    pub fn publish(&self, policy: Policy) {
        let mut current = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        if policy.version() > current.version() || current.version() == CLOSED {
            self.version.store(policy.version(), Ordering::Release);
            *current = Arc::new(policy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Mode, Settings, Slot};

    fn policy(mode: Mode, version: u64) -> Policy {
        let mut slots = Slots::default();
        let settings = Settings { mode, ..Settings::default() };
        slots.apply(&[Change::Put(Slot::Settings(settings))]).expect("one record fits");
        Policy::compile(&slots, version)
    }

    #[test]
    fn a_connection_takes_the_policy_in_force() {
        let (policies, mut access) = (Policies::new(), Access::default());
        assert_eq!((policies.renew(&mut access), access.mode()), (Ok(()), Mode::Off));
        policies.publish(policy(Mode::On, 3));
        assert_eq!((policies.renew(&mut access), access.mode(), access.version()), (Ok(()), Mode::On, 3));
    }

    #[test]
    fn later_policy_stays_in_force() {
        let policies = Policies::new();
        assert_eq!((policies.version(), policies.current().settings().mode), (0, Mode::Off));
        policies.publish(policy(Mode::On, 7));
        policies.publish(policy(Mode::Off, 6));
        assert_eq!((policies.version(), policies.current().settings().mode), (7, Mode::On));
    }
}
