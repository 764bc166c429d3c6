//! The guard of a node's doors: the policy in force, TLS, logins, limits, and their figures. All threads share it.

use super::audit_log::AuditLog;
use super::certificates::ClientCertificates;
use super::handshake_turns::HandshakeTurns;
use super::limit_usage::LimitUsage;
use super::logins::{Claim, Logins, Verdict};
use super::rehash::PolicySink;
use super::tls::{ClientTlsExpiry, certified_name};
use crate::compute_threads::ComputeThreads;
use crate::connections::Patience;
use crate::stream::Stream;
use bytes::BytesMut;
use security::{Access, Denied, Mode, Offer, Policies};
use serde::Serialize;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// How long a handshake may take, its wait for others included: many round trips on any network.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// The time from a login to its refusal, for each reason: longer than a hash takes. A login that is put off waits as
/// long, since another attempt would come at once.
const REFUSED_AFTER: Duration = Duration::from_secs(1);

/// The guard of a node's doors.
pub(crate) struct DoorGuard {
    policies: Arc<Policies>,
    certificates: Option<ClientCertificates>,
    /// One reload at a time.
    reload: Mutex<()>,
    handshakes: HandshakeTurns,
    compute: Arc<ComputeThreads>,
    logins: Logins,
    audit: AuditLog,
    usage: LimitUsage,
    accepted: AtomicU64,
    refused: AtomicU64,
    put_off: AtomicU64,
    denied: AtomicU64,
    would_refuse: AtomicU64,
}

/// Figures of the doors since the node's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct DoorFigures {
    /// Logins that were verified, and those that were refused.
    security_logins: u64,
    security_logins_refused: u64,
    /// Logins that were not verified, as too many passwords waited or were wrong of late.
    security_logins_put_off: u64,
    /// Requests that the grants of their users do not cover.
    security_denied: u64,
    /// Requests that their users' limits refused.
    security_rate_limited: u64,
    /// Lines of the audit log that logins and requests did not get, as too many were refused.
    security_audit_suppressed: u64,
    /// Requests in the permissive mode that would be refused if security were on.
    security_would_refuse: u64,
    /// Handshakes of TLS that were given up for others.
    security_handshakes_dropped: u64,
    /// Of the certificates for clients that are in force.
    #[serde(flatten)]
    expiry: ClientTlsExpiry,
}

impl DoorGuard {
    /// Goes by the policy and the certificates in force. Without certificates no client can log in.
    pub(crate) fn new(
        policies: Arc<Policies>,
        certificates: Option<ClientCertificates>,
        compute: Arc<ComputeThreads>,
    ) -> io::Result<DoorGuard> {
        Ok(DoorGuard {
            policies,
            certificates,
            reload: Mutex::default(),
            handshakes: HandshakeTurns::default(),
            compute,
            logins: Logins::start()?,
            audit: AuditLog::new(),
            usage: LimitUsage::new(),
            accepted: AtomicU64::default(),
            refused: AtomicU64::default(),
            put_off: AtomicU64::default(),
            denied: AtomicU64::default(),
            would_refuse: AtomicU64::default(),
        })
    }

    /// From now on imported hashes are replaced at their first login.
    pub(crate) fn rehash_by(&self, sink: PolicySink) {
        self.logins.rehash_by(sink);
    }

    /// The audit log of logins and denials.
    pub(crate) fn audit(&self) -> &AuditLog {
        &self.audit
    }

    /// The use of users' limits.
    #[inline]
    pub(crate) fn usage(&self) -> &LimitUsage {
        &self.usage
    }

    /// Whether the node has a certificate for clients.
    pub(crate) fn has_tls(&self) -> bool {
        self.certificates.is_some()
    }

    /// The certificates for clients.
    pub(crate) fn certificates(&self) -> Option<&ClientCertificates> {
        self.certificates.as_ref()
    }

    /// The turn of a reload of certificates.
    pub(super) fn reload_turn(&self) -> MutexGuard<'_, ()> {
        self.reload.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a connection under TLS go by the certificates in force.
    ///
    /// # Errors
    /// The client's certificate is not valid any more, so that nothing of the connection may count.
    #[inline]
    pub(crate) fn verify_again(&self, stream: &mut Stream) -> io::Result<()> {
        let Some((tls, certificates)) = stream.tls().zip(self.certificates()) else { return Ok(()) };
        if stream.generation() == certificates.generation() {
            return Ok(());
        }
        let generation = certificates.verify_again(tls).map_err(|error| {
            io::Error::new(io::ErrorKind::PermissionDenied, format!("the client's certificate: {error}"))
        })?;
        stream.set_generation(generation);
        Ok(())
    }

    /// Has a connection go by the policy in force.
    ///
    /// # Errors
    /// The request under way is not allowed any more.
    #[inline]
    pub(crate) fn renew(&self, access: &mut Access) -> Result<(), Denied> {
        self.policies.renew(access)
    }

    /// Takes a connection under TLS. What the client sends behind its handshake is appended to `input`.
    ///
    /// # Errors
    /// A handshake that fails, or the connection's end.
    ///
    /// # Panics
    /// If bytes are in `input`, which came in plaintext; or without TLS.
    pub(crate) async fn secure(
        &self,
        stream: &mut Stream,
        input: &mut BytesMut,
        patience: &Patience,
    ) -> io::Result<()> {
        assert!(input.is_empty(), "plaintext is no part of the encrypted stream");
        let certificates = self.certificates.as_ref().expect("a door under TLS has a certificate");
        patience.begin_until(patience.now() + HANDSHAKE_MAX);
        // A client that says nothing has no part in the places of the others.
        stream.first_byte().await?;
        let (turn, mut decisions) = self.handshakes.arrive(stream.peer_addr()?.ip());
        decisions.begin().await?;
        let (tls, generation) = certificates.accept().map_err(io::Error::other)?;
        stream.secure(tls);
        stream.set_generation(generation);
        tokio::select! {
            done = stream.handshake(input, &self.compute, || turn.note_hello()) => done?,
            error = decisions.given_up() => return Err(error),
        }
        patience.end();
        Ok(())
    }

    /// Decides on a login of a connection from an address. With security on, all refusals take the same time. The
    /// address is that of the connection: a header can name any.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) async fn log_in(
        &self,
        access: &Access,
        (user, password): (&[u8], Option<&[u8]>),
        (stream, address): (&Stream, IpAddr),
    ) -> io::Result<Verdict> {
        let refused_after = sleep(REFUSED_AFTER);
        let Some(policy) = access.policy() else { return Ok(Verdict::Refused) };
        let certificate = stream.tls().and_then(certified_name);
        let offer = Offer { password, certificate: certificate.as_deref() };
        let verdict = self.logins.verify(policy, Claim { user, offer, address }).await;
        match verdict {
            Verdict::Accepted => {
                self.audit.note_login(user, address);
                self.accepted.fetch_add(1, Ordering::Relaxed)
            }
            Verdict::Busy => self.put_off.fetch_add(1, Ordering::Relaxed),
            Verdict::Refused => {
                self.audit.note_refusal(user, address);
                self.refused.fetch_add(1, Ordering::Relaxed)
            }
        };
        if verdict != Verdict::Accepted && policy.settings().mode == Mode::On {
            refused_after.await;
        }
        Ok(verdict)
    }

    /// Notes the denials of a connection, and counts the requests that security would refuse if it were on.
    #[inline]
    pub(crate) fn note_refusals(&self, access: &mut Access, stream: &Stream) {
        if let Some(denied) = access.take_denied()
            && let Ok(address) = stream.peer_addr()
        {
            self.denied.fetch_add(1, Ordering::Relaxed);
            self.audit.note_denial(&denied, address.ip());
        }
        let count = access.take_would_refuse();
        if count > 0 {
            self.would_refuse.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// The figures.
    pub(crate) fn figures(&self) -> DoorFigures {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        DoorFigures {
            security_logins: read(&self.accepted),
            security_logins_refused: read(&self.refused),
            security_logins_put_off: read(&self.put_off),
            security_denied: read(&self.denied),
            security_rate_limited: self.usage.refused(),
            security_audit_suppressed: self.audit.suppressed(),
            security_would_refuse: read(&self.would_refuse),
            security_handshakes_dropped: self.handshakes.dropped(),
            expiry: self.certificates().map(ClientCertificates::expiry).unwrap_or_default(),
        }
    }
}
