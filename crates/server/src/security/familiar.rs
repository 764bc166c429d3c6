//! Addresses from which users have logged in within the last day.
//!
//! Wrong passwords from elsewhere do not slow a user down there: [`super::failures`] counts those of the address alone.
//!
//! Entries are in two halves. New ones go to the younger half. Once that is full it becomes the older one, and the
//! older one is forgotten: so room is made without a search.
//!
//! Left out: a restart forgets all. A user is then slowed down until the first login from each address.

use base::{FastMap, Monotonic};
use std::net::IpAddr;
use std::time::Duration;

/// Time for which an address is familiar.
const FAMILIAR: Duration = Duration::from_secs(24 * 3600);

/// Entries of a half: a few hundred kilobytes in all, and more users than log in by passwords at most nodes.
const HALF_MAX: usize = 4096;

type Entries = FastMap<(Box<[u8]>, IpAddr), Monotonic>;

/// Addresses of users.
#[derive(Default)]
pub(super) struct FamiliarAddresses {
    /// The time until which each is familiar.
    younger: Entries,
    older: Entries,
}

impl FamiliarAddresses {
    /// Notes a login of a user, which has proved a password.
    pub(super) fn note(&mut self, user: &[u8], address: IpAddr, now: Monotonic) {
        let key = (Box::from(user), address);
        if self.younger.len() >= HALF_MAX && !self.younger.contains_key(&key) {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(key, now + FAMILIAR);
    }

    /// Whether the user has logged in from this address within the last day.
    pub(super) fn has(&self, user: &[u8], address: IpAddr, now: Monotonic) -> bool {
        let key = (Box::from(user), address);
        [&self.younger, &self.older].iter().any(|half| half.get(&key).is_some_and(|&until| until > now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;
    use std::net::Ipv4Addr;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(0) + Duration::from_secs(seconds)
    }

    fn address(number: u64) -> IpAddr {
        Ipv4Addr::from(number as u32).into()
    }

    #[test]
    fn random_logins_agree_with_a_list() {
        let mut rng = SplitMix64::new(7);
        let (mut familiar, mut list) = (FamiliarAddresses::default(), Vec::new());
        let mut seconds = 0;
        for _ in 0..2_000 {
            seconds += rng.below(600);
            let (user, address) = ([rng.below(5) as u8], address(rng.below(20)));
            let has = list
                .iter()
                .any(|&(of, from, then)| (of, from) == (user, address) && at(then) + FAMILIAR > at(seconds));
            assert_eq!(familiar.has(&user, address, at(seconds)), has);
            if rng.below(4) == 0 {
                familiar.note(&user, address, at(seconds));
                list.push((user, address, seconds));
            }
        }
        assert!(list.len() > 100);
    }

    #[test]
    fn entries_are_bounded_and_the_latest_are_kept() {
        let mut familiar = FamiliarAddresses::default();
        let all = 5 * HALF_MAX as u64;
        for number in 0..all {
            familiar.note(b"alice", address(number), at(0));
            assert!(familiar.younger.len() <= HALF_MAX && familiar.older.len() <= HALF_MAX);
        }
        assert!((all - HALF_MAX as u64..all).all(|number| familiar.has(b"alice", address(number), at(1))));
        assert!(!familiar.has(b"alice", address(0), at(1)));
    }
}
