//! The logins of late, and the decisions that they lead to without a hash. No threads and no clocks.
//!
//! 1. A success of the last [`REMEMBERED`] with the same address, user, password and credential is taken as it is. What
//!    is remembered is a keyed digest, whose key is new at each start.
//! 2. An origin with too many failures ([`Failures`]) is refused. Failures of the user count for nothing at an address
//!    where the user has proved a password within [`FAMILIAR`].
//! 3. Hashes of wrong passwords have a budget of time ([`HashBudget`]), which a familiar address does not wait for.
//!    Once it is used up, logins are put off.
//!
//! Left out: a hash that is under way counts once it has ended. So the caller makes one at a time, and asks before it.

use super::super::failures::{Failures, Origin};
use super::super::hash_budget::HashBudget;
use super::super::login_times::LoginTimes;
use super::Verdict;
use base::{FastMap, Monotonic};
use std::net::IpAddr;
use std::time::Duration;

/// Time for which a success is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Time for which an address of a user is familiar: wrong passwords from elsewhere do not slow the user down there. A
/// restart forgets it.
const FAMILIAR: Duration = Duration::from_secs(24 * 3600);

/// Successes that are remembered: a few hundred kilobytes.
const REMEMBERED_MAX: usize = 8192;

/// Bytes of a digest, and of its key.
pub(super) const DIGEST_BYTES: usize = 32;

/// The keyed digest of a login: of its address, user, password and credential.
pub(super) type Digest = [u8; DIGEST_BYTES];

/// A login that is to be decided on.
pub(super) struct Attempt {
    pub(super) digest: Digest,
    user: Box<[u8]>,
    address: IpAddr,
}

impl Attempt {
    pub(super) fn new(digest: Digest, user: &[u8], address: IpAddr) -> Attempt {
        Attempt { digest, user: user.into(), address }
    }

    /// The origins whose failures count.
    fn origins(&self) -> [Origin; 2] {
        Origin::of(self.address, &self.user)
    }
}

/// Earlier logins.
#[derive(Default)]
pub(super) struct KnownLogins {
    /// Successes, and the time until which each is remembered.
    pub(super) accepted: FastMap<Digest, Monotonic>,
    pub(super) failures: Failures,
    budget: HashBudget,
    /// Passwords that were proved.
    proved: LoginTimes,
}

impl KnownLogins {
    /// Expects hashes to take as long as one that was no login's.
    pub(super) fn expect_hashes_like(&mut self, took: Duration) {
        self.budget.expect_like(took);
    }

    /// Whether a login was right of late.
    pub(super) fn has_accepted(&self, digest: &Digest, now: Monotonic) -> bool {
        self.accepted.get(digest).is_some_and(|&until| until > now)
    }

    /// Whether the user has logged in from this address of late.
    pub(super) fn is_familiar(&self, attempt: &Attempt, now: Monotonic) -> bool {
        self.proved.last(&attempt.user, attempt.address).is_some_and(|last| last + FAMILIAR > now)
    }

    /// The verdict on a login; `None` if its password is to be hashed.
    pub(super) fn decide(&mut self, attempt: &Attempt, now: Monotonic) -> Option<Verdict> {
        if self.has_accepted(&attempt.digest, now) {
            return Some(Verdict::Accepted);
        }
        let is_familiar = self.is_familiar(attempt, now);
        let [address, user] = attempt.origins();
        if self.failures.is_over(&address, now) || !is_familiar && self.failures.is_over(&user, now) {
            return Some(Verdict::Refused);
        }
        let has_failed = self.failures.has_failed(&address, now);
        // Strangers cannot use up the time of a familiar address.
        let has_time = is_familiar || self.budget.has_room(has_failed, now);
        (!has_time).then_some(Verdict::Busy)
    }

    /// Takes the end of a hash: whether the password was right, and the time of the processor that it took.
    pub(super) fn note_hash(&mut self, attempt: &Attempt, is_right: bool, took: Duration, now: Monotonic) {
        if is_right {
            self.budget.note_right(took);
            self.proved.note(&attempt.user, attempt.address, now);
            self.accept(attempt.digest, now);
        } else {
            self.budget.note_wrong(took, now);
            attempt.origins().into_iter().for_each(|origin| self.failures.note(origin, now));
        }
    }

    fn accept(&mut self, digest: Digest, now: Monotonic) {
        if self.accepted.len() >= REMEMBERED_MAX {
            self.accepted.retain(|_, until| *until > now);
        }
        // Beyond the bound a login costs a hash each time, as the first one did.
        if self.accepted.len() < REMEMBERED_MAX {
            self.accepted.insert(digest, now + REMEMBERED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// The time of a hash.
    const HASH: Duration = Duration::from_millis(15);

    fn at(seconds: u64) -> Monotonic {
        Monotonic(0) + Duration::from_secs(seconds)
    }

    /// A login with a password of this number, from the address of this host.
    fn attempt(user: &str, password: u8, host: u8) -> Attempt {
        Attempt::new([password; DIGEST_BYTES], user.as_bytes(), Ipv4Addr::new(127, 0, 0, host).into())
    }

    /// Decides on a login, and makes its hash if it needs one.
    fn verify(known: &mut KnownLogins, attempt: &Attempt, is_right: bool, now: Monotonic) -> Verdict {
        known.decide(attempt, now).unwrap_or_else(|| {
            known.note_hash(attempt, is_right, HASH, now);
            if is_right { Verdict::Accepted } else { Verdict::Refused }
        })
    }

    #[test]
    fn failures_are_refused_without_a_hash_and_a_known_login_is_not() {
        let mut known = KnownLogins::default();
        let alice = attempt("alice", 0, 1);
        assert_eq!(verify(&mut known, &alice, true, at(0)), Verdict::Accepted);
        for password in 1..=5 {
            let wrong = attempt("alice", password, 1);
            assert_eq!(known.decide(&wrong, at(0)), None);
            known.note_hash(&wrong, false, HASH, at(0));
        }
        for user in ["nobody", "alice", ""] {
            assert_eq!(known.decide(&attempt(user, 9, 1), at(0)), Some(Verdict::Refused));
        }
        assert_eq!(known.decide(&alice, at(0)), Some(Verdict::Accepted), "it is remembered");
        assert_eq!(known.decide(&alice, at(61)), None);
    }

    #[test]
    fn guesses_from_elsewhere_do_not_slow_a_user_down() {
        let mut known = KnownLogins::default();
        assert_eq!(verify(&mut known, &attempt("alice", 0, 1), true, at(0)), Verdict::Accepted);
        for password in 1..=5 {
            let (wrong, now) = (attempt("alice", password, 10 + password), at(1));
            assert_eq!(verify(&mut known, &wrong, false, now), Verdict::Refused);
        }
        assert_eq!(known.decide(&attempt("alice", 6, 2), at(1)), Some(Verdict::Refused));
        assert_eq!(known.decide(&attempt("alice", 6, 1), at(1)), None);
        for password in 6..=10 {
            assert_eq!(verify(&mut known, &attempt("alice", password, 1), false, at(1)), Verdict::Refused);
        }
        assert_eq!(known.decide(&attempt("alice", 11, 1), at(1)), Some(Verdict::Refused), "it failed itself");
    }

    #[test]
    fn guesses_of_many_addresses_put_strangers_off_and_no_familiar_address() {
        let mut known = KnownLogins::default();
        assert_eq!(verify(&mut known, &attempt("alice", 0, 1), true, at(0)), Verdict::Accepted);
        let guesses: Vec<_> = (10..50).map(|host| attempt(&format!("guess-{host}"), host, host)).collect();
        assert!(guesses.iter().all(|guess| known.decide(guess, at(0)).is_none()), "none has failed yet");
        let verdicts: Vec<_> = guesses.iter().map(|guess| verify(&mut known, guess, false, at(0))).collect();
        assert_eq!(verdicts[..12], [Verdict::Refused; 12]);
        assert_eq!(verdicts[12..], [Verdict::Busy; 28]);
        assert_eq!(known.decide(&attempt("alice", 1, 2), at(0)), Some(Verdict::Busy));
        assert_eq!(known.decide(&attempt("bob", 2, 2), at(0)), Some(Verdict::Busy), "no user");
        assert_eq!(known.decide(&attempt("alice", 0, 1), at(0)), Some(Verdict::Accepted), "remembered");
        assert_eq!(known.decide(&attempt("alice", 1, 1), at(0)), None, "familiar");
    }

    #[test]
    fn guesses_of_one_address_at_once_cost_five_hashes() {
        let mut known = KnownLogins::default();
        let guesses: Vec<_> = (0..40).map(|number| attempt(&format!("guess-{number}"), number, 1)).collect();
        assert!(guesses.iter().all(|guess| known.decide(guess, at(0)).is_none()), "none has failed yet");
        let hashed = guesses.iter().filter(|guess| {
            let is_hashed = known.decide(guess, at(0)).is_none();
            verify(&mut known, guess, false, at(0));
            is_hashed
        });
        assert_eq!(hashed.count(), 5);
    }
}
