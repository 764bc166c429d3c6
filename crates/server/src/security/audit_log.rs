//! The audit log of logins and denials: lines of the target `audit`, within the bounds of [`AuditLimits`].
//!
//! A line has the client's address, the user's name as it was sent, and the outcome; that of a denial has the sentence
//! of the refusal, which names the permission and the bucket. No line has a password, a key or a value.
//!
//! Left out: requests on connections without a login, and those that the permissive mode lets in; figures count these.

use super::audit_limits::{AuditLimits, Suppressed};
use super::handshakes::network;
use base::Clock;
use os::OsClock;
use security::{Denied, NAME_BYTES_MAX};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Time until the counts of refusals without a line are told: those of a period that is over.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// Bytes of a refusal's sentence: names of users, permissions and buckets fit.
const SENTENCE_BYTES_MAX: usize = 1 << 10;

/// The audit log of logins and denials.
pub(crate) struct AuditLog {
    limits: Mutex<AuditLimits>,
    clock: OsClock,
    refused: Notify,
    suppressed: AtomicU64,
}

impl AuditLog {
    pub(super) fn new() -> AuditLog {
        let (limits, refused, suppressed) = Default::default();
        AuditLog { limits, clock: OsClock::new(), refused, suppressed }
    }

    /// Notes a login that was verified.
    pub(super) fn note_login(&self, user: &[u8], address: IpAddr) {
        if self.limits().notes_success(user, address, self.clock.now()) {
            let user = shown(user, NAME_BYTES_MAX);
            tracing::info!(target: "audit", from = %address, user, login = "accepted", "audit");
        }
    }

    /// Notes a login that was refused.
    pub(super) fn note_refusal(&self, user: &[u8], address: IpAddr) {
        if self.has_line(address) {
            let user = shown(user, NAME_BYTES_MAX);
            tracing::info!(target: "audit", from = %address, user, login = "refused", "audit");
        }
    }

    /// Notes a request that a user's grants do not cover.
    pub(super) fn note_denial(&self, denied: &Denied, address: IpAddr) {
        if self.has_line(address) {
            let denied = shown(denied.to_string().as_bytes(), SENTENCE_BYTES_MAX);
            tracing::info!(target: "audit", from = %address, denied, "audit");
        }
    }

    /// Lines that refusals and denials did not get.
    pub(super) fn suppressed(&self) -> u64 {
        self.suppressed.load(Ordering::Relaxed)
    }

    /// Tells how many refusals and denials had no line, for ever.
    pub(crate) async fn tell_suppressed(&self) {
        loop {
            self.refused.notified().await;
            tokio::time::sleep(TELL_AFTER).await;
            let told = self.limits().take_suppressed(self.clock.now());
            for Suppressed { network, count } in told {
                let from = network.map_or_else(|| "several".to_owned(), |network| network.to_string());
                tracing::info!(target: "audit", from, suppressed = count, "audit");
            }
            if self.limits().has_refusals() {
                self.refused.notify_one();
            }
        }
    }

    fn has_line(&self, address: IpAddr) -> bool {
        let has_line = self.limits().notes_refusal(network(address), self.clock.now());
        self.suppressed.fetch_add(u64::from(!has_line), Ordering::Relaxed);
        self.refused.notify_one();
        has_line
    }

    fn limits(&self) -> MutexGuard<'_, AuditLimits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of a client in a line: cut, and without anything that could end the line or colour a terminal.
fn shown(bytes: &[u8], max: usize) -> String {
    let cut = &bytes[..bytes.len().min(max)];
    String::from_utf8_lossy(cut)
        .chars()
        .map(|char| if char.is_control() { '\u{fffd}' } else { char })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_ends_a_line() {
        assert_eq!(shown(b"a\nb\x1b[31m", 255), "a\u{fffd}b\u{fffd}[31m");
        assert_eq!(shown(&[b'a'; 300], NAME_BYTES_MAX).len(), NAME_BYTES_MAX);
    }
}
