//! The last login of each user at each address, as far as there is room.
//!
//! Entries are in two halves. New ones go to the younger half. Once that is full it becomes the older one, and the
//! older one is forgotten: so room is made without a search.
//!
//! Left out: the meaning of a time, which the owner of a table gives it.

use base::{FastMap, Monotonic};
use std::net::IpAddr;

/// Entries of a half: a few hundred kilobytes in all, and more users than log in by passwords at most nodes.
const HALF_MAX: usize = 4096;

type Half = FastMap<(Box<[u8]>, IpAddr), Monotonic>;

/// Times of logins.
#[derive(Default)]
pub(super) struct LoginTimes {
    younger: Half,
    older: Half,
}

impl LoginTimes {
    /// Notes a login of a user at an address.
    pub(super) fn note(&mut self, user: &[u8], address: IpAddr, now: Monotonic) {
        let key = (Box::from(user), address);
        if self.younger.len() >= HALF_MAX && !self.younger.contains_key(&key) {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(key, now);
    }

    /// The last login of a user at an address; none if it was forgotten.
    pub(super) fn last(&self, user: &[u8], address: IpAddr) -> Option<Monotonic> {
        let key = (Box::from(user), address);
        [&self.younger, &self.older].iter().find_map(|half| half.get(&key).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;
    use std::net::Ipv4Addr;

    fn address(number: u64) -> IpAddr {
        Ipv4Addr::from(number as u32).into()
    }

    #[test]
    fn random_logins_agree_with_a_list() {
        let mut rng = SplitMix64::new(7);
        let (mut times, mut list) = (LoginTimes::default(), Vec::new());
        for now in 0..2_000 {
            let (user, address) = ([rng.below(5) as u8], address(rng.below(20)));
            let last = list.iter().rev().find(|&&(of, from, _)| (of, from) == (user, address));
            assert_eq!(times.last(&user, address), last.map(|&(_, _, then)| Monotonic(then)));
            if rng.below(4) == 0 {
                times.note(&user, address, Monotonic(now));
                list.push((user, address, now));
            }
        }
        assert!(list.len() > 100);
    }

    #[test]
    fn entries_are_bounded_and_the_latest_are_kept() {
        let mut times = LoginTimes::default();
        let all = 5 * HALF_MAX as u64;
        for number in 0..all {
            times.note(b"alice", address(number), Monotonic(number));
            assert!(times.younger.len() <= HALF_MAX && times.older.len() <= HALF_MAX);
        }
        assert!((all - HALF_MAX as u64..all).all(|number| times.last(b"alice", address(number)).is_some()));
        assert_eq!(times.last(b"alice", address(0)), None);
    }
}
