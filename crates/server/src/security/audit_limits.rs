//! Bounds of the audit log of logins and denials: which event has a line, and how many had none.
//!
//! * The first success of a user at an address has a line each minute. More of them tell nothing new.
//! * Refused logins and denied requests have [`REFUSALS_EACH`] lines a second for each network of clients. The others
//!   are counted, and the count has a line of its own once the second is over.
//!
//! Invariants: a refusal has a line or is in a count. Tables are bounded: networks beyond [`NETWORKS_MAX`] at a time
//! share one count.

use super::login_times::LoginTimes;
use base::{FastMap, Monotonic};
use std::net::IpAddr;
use std::time::Duration;

/// Time in which a further success of a user at an address has no line.
const SUCCESS_EACH: Duration = Duration::from_secs(60);

/// Lines of refusals and denials of a network in each [`REFUSALS_PERIOD`].
pub(super) const REFUSALS_EACH: u32 = 20;

/// The period of [`REFUSALS_EACH`].
const REFUSALS_PERIOD: Duration = Duration::from_secs(1);

/// Networks whose refusals are counted apart: a hundred kilobytes.
const NETWORKS_MAX: usize = 1024;

/// The networks that share a count are told as no network.
type Network = Option<IpAddr>;

/// Refusals of a network that had no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suppressed {
    /// The network; `None` for several together.
    pub(super) network: Network,
    /// Their number.
    pub(super) count: u64,
}

/// The lines of late, as far as they bound further ones.
#[derive(Default)]
pub(super) struct AuditLimits {
    /// Successes that had a line.
    successes: LoginTimes,
    refusals: FastMap<Network, Refusals>,
}

#[derive(Clone, Copy)]
struct Refusals {
    /// The begin of the period.
    since: Monotonic,
    lines: u32,
    suppressed: u64,
}

impl AuditLimits {
    /// Whether a success of a user has a line.
    pub(super) fn notes_success(&mut self, user: &[u8], address: IpAddr, now: Monotonic) -> bool {
        let is_due = self.successes.last(user, address).is_none_or(|last| last + SUCCESS_EACH <= now);
        if is_due {
            self.successes.note(user, address, now);
        }
        is_due
    }

    /// Whether a refusal of a network has a line.
    pub(super) fn notes_refusal(&mut self, network: IpAddr, now: Monotonic) -> bool {
        let is_known = self.refusals.contains_key(&Some(network));
        let network = (is_known || self.refusals.len() < NETWORKS_MAX).then_some(network);
        let begin = Refusals { since: now, lines: 0, suppressed: 0 };
        let refusals = self.refusals.entry(network).or_insert(begin);
        if refusals.suppressed == 0 && refusals.since + REFUSALS_PERIOD <= now {
            *refusals = begin;
        }
        let has_line = refusals.lines < REFUSALS_EACH;
        refusals.lines += u32::from(has_line);
        refusals.suppressed += u64::from(!has_line);
        has_line
    }

    /// Takes the counts of periods that are over, and forgets these.
    pub(super) fn take_suppressed(&mut self, now: Monotonic) -> Vec<Suppressed> {
        let mut told = Vec::new();
        self.refusals.retain(|&network, refusals| {
            let goes_on = refusals.since + REFUSALS_PERIOD > now;
            if !goes_on && refusals.suppressed > 0 {
                told.push(Suppressed { network, count: refusals.suppressed });
            }
            goes_on
        });
        told.sort_by_key(|told| told.network);
        told
    }

    /// Whether periods of refusals are under way, which end.
    pub(super) fn has_refusals(&self) -> bool {
        !self.refusals.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;
    use base::rng::SplitMix64;
    use std::net::Ipv4Addr;

    fn at(millis: u64) -> Monotonic {
        Monotonic(0) + Duration::from_millis(millis)
    }

    fn address(number: u64) -> IpAddr {
        Ipv4Addr::from(number as u32).into()
    }

    #[test]
    fn a_success_has_a_line_each_minute() {
        let mut limits = AuditLimits::default();
        assert!(limits.notes_success(b"alice", address(1), at(0)));
        assert!(!limits.notes_success(b"alice", address(1), at(59_999)));
        assert!(
            limits.notes_success(b"bob", address(1), at(1))
                && limits.notes_success(b"alice", address(2), at(1))
        );
        assert!(limits.notes_success(b"alice", address(1), at(60_000)));
    }

    #[test]
    fn each_refusal_has_a_line_or_is_counted() {
        for networks in [1, 3, 2 * NETWORKS_MAX as u64] {
            let mut rng = SplitMix64::new(networks);
            let mut limits = AuditLimits::default();
            let (mut now, mut lines, mut counted, mut refused) = (0, 0, 0, 0);
            let mut times: FastMap<IpAddr, Vec<u64>> = FastMap::default();
            for _ in 0..20_000 {
                now += rng.below(5);
                let from = address(rng.below(networks));
                refused += 1;
                if limits.notes_refusal(from, at(now)) {
                    lines += 1;
                    let times = times.entry(from).or_default();
                    times.push(now);
                    let recent = times.iter().rev().take_while(|&&time| time + 1_000 > now);
                    assert!(recent.count() <= 2 * REFUSALS_EACH as usize, "two periods touch a second");
                }
                if rng.below(50) == 0 {
                    counted += limits.take_suppressed(at(now)).iter().map(|told| told.count).sum::<u64>();
                }
                assert!(limits.refusals.len() <= NETWORKS_MAX + 1);
            }
            counted += limits.take_suppressed(at(now + 1_000)).iter().map(|told| told.count).sum::<u64>();
            assert_eq!(lines + counted, refused, "{networks} networks");
            assert!(!limits.has_refusals());
        }
    }

    #[test]
    fn a_flood_has_twenty_lines_a_second_and_its_count() {
        let mut limits = AuditLimits::default();
        let lines = (0..1_000).filter(|&millis| limits.notes_refusal(address(1), at(millis))).count();
        assert_eq!(lines, REFUSALS_EACH as usize);
        assert_eq!(limits.take_suppressed(at(999)), []);
        let count = 1_000 - u64::from(REFUSALS_EACH);
        assert_eq!(limits.take_suppressed(at(1_000)), [Suppressed { network: Some(address(1)), count }]);
        assert!(limits.notes_refusal(address(1), at(1_000)));
    }
}
