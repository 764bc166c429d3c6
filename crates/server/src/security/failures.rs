//! Failed logins: how many an address or a user may have.
//!
//! [`BURST`] failures are taken at once, and one more each [`EACH`]. Beyond that a login is refused without a hash, so
//! that guesses cost the node little. The time at which a key is free of its failures is all that is kept of it.

use base::{FastMap, Monotonic};
use std::net::IpAddr;
use std::time::Duration;

/// Failures at once: mistakes of a person, or a program with an old password.
pub(super) const BURST: u32 = 5;

/// Time until another one is taken.
pub(super) const EACH: Duration = Duration::from_secs(1);

/// Addresses and users whose failures are known: some hundred kilobytes.
const KNOWN_MAX: usize = 4096;

/// Bytes of a name that tell users apart; names of users are not longer.
const NAME_BYTES: usize = security::NAME_BYTES_MAX;

/// The origin of a failure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// A client's address.
    Address(IpAddr),
    /// A user's name, whether or not there is such a user.
    User(Box<[u8]>),
}

impl Origin {
    /// The two origins of a login.
    pub(super) fn of(address: IpAddr, user: &[u8]) -> [Origin; 2] {
        let name = &user[..user.len().min(NAME_BYTES)];
        [Origin::Address(address), Origin::User(name.into())]
    }
}

/// Failures by origin.
#[derive(Default)]
pub(super) struct Failures {
    /// The time at which the last failure of an origin is forgotten.
    free_at: FastMap<Origin, Monotonic>,
}

impl Failures {
    /// Whether an origin has failed too often to be verified now.
    pub(super) fn is_over(&self, origin: &Origin, now: Monotonic) -> bool {
        self.free_at.get(origin).is_some_and(|&free_at| free_at > now + EACH * (BURST - 1))
    }

    /// Whether an origin has a failure that is not forgotten.
    pub(super) fn has_failed(&self, origin: &Origin, now: Monotonic) -> bool {
        self.free_at.get(origin).is_some_and(|&free_at| free_at > now)
    }

    /// Notes a failure.
    pub(super) fn note(&mut self, origin: Origin, now: Monotonic) {
        if self.free_at.len() >= KNOWN_MAX && !self.free_at.contains_key(&origin) {
            self.make_room(now);
        }
        let free_at = self.free_at.entry(origin).or_insert(now);
        *free_at = (*free_at).max(now) + EACH;
    }

    /// Forgets origins that are free, or else the one that is free first.
    fn make_room(&mut self, now: Monotonic) {
        self.free_at.retain(|_, free_at| *free_at > now);
        if self.free_at.len() >= KNOWN_MAX {
            let first = self.free_at.iter().min_by_key(|(_, free_at)| **free_at);
            let first = first.map(|(origin, _)| origin.clone()).expect("the map is full");
            self.free_at.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(0) + Duration::from_secs(seconds)
    }

    fn address(number: u32) -> Origin {
        Origin::Address(Ipv4Addr::from(number).into())
    }

    #[test]
    fn five_failures_at_once_and_then_one_a_second() {
        let mut failures = Failures::default();
        for _ in 0..BURST {
            assert!(!failures.is_over(&address(1), at(10)));
            failures.note(address(1), at(10));
        }
        assert!(failures.has_failed(&address(1), at(14)) && !failures.has_failed(&address(1), at(15)));
        assert!(failures.is_over(&address(1), at(10)) && !failures.is_over(&address(2), at(10)));
        assert!(!failures.is_over(&address(1), at(11)));
        failures.note(address(1), at(11));
        assert!(failures.is_over(&address(1), at(11)));
        assert!(!failures.is_over(&address(1), at(12)));
    }

    #[test]
    fn origins_are_bounded_and_the_worst_are_kept() {
        let mut failures = Failures::default();
        (0..BURST).for_each(|_| failures.note(address(0), at(0)));
        for number in 1..2 * KNOWN_MAX as u32 {
            failures.note(address(number), at(0));
        }
        assert_eq!(failures.free_at.len(), KNOWN_MAX);
        assert!(failures.is_over(&address(0), at(0)));
        failures.note(address(u32::MAX), at(100));
        assert_eq!(failures.free_at.len(), 1, "the others are free");
    }

    #[test]
    fn a_long_name_is_cut() {
        let [_, long] = Origin::of(Ipv4Addr::LOCALHOST.into(), &[b'a'; 60_000]);
        assert_eq!(long, Origin::User([b'a'; NAME_BYTES].into()));
    }
}
