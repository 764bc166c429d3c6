//! Logins of clients: the policy decides, a thread of its own verifies passwords, and successes are remembered.
//!
//! 1. The policy accepts a login, refuses it, or names the credential that the password must fit.
//! 2. [`KnownLogins`] decides without a hash if it can: the login was right of late, or there were too many wrong ones.
//! 3. Otherwise the login waits for the thread. All that are one text wait for one hash: a client opens its
//!    connections at once.
//! 4. At its turn the known logins decide once more, by the hashes that were made meanwhile. Only then the thread
//!    verifies the password. A login that the policy has refused costs the same hash, of a verifier that nobody has.
//!
//! Invariants: a changed password or source is in force for the next login, since the digest is over the credential
//! that the policy in hand has named. No shard's thread makes a hash. A right password is never told to be wrong
//! because others wait or the node ends: such a login is put off.
//!
//! The copy of a password that waits for the thread is overwritten after its use.
//!
//! After a login that an imported hash proves, the thread replaces that hash (`rehash`).
//!
//! Left out: a refusal tells no reason to the client; the log has it at level debug.

mod known;
#[cfg(test)]
pub(super) mod tests;

use self::known::{Attempt, DIGEST_BYTES, Digest, KnownLogins};
use super::password::{SALT_BYTES, fits, hash, secret_bytes};
use super::rehash::{PolicySink, Rehashes};
use base::{Clock, FastMap};
use os::{OsClock, thread_cpu_time};
use ring_crypto::hmac;
use security::{Credential, Login, Name, Offer, Policy};
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

/// The nice value of the thread that verifies: wrong passwords must not slow requests down. It is that of job threads,
/// about a third of the share of a shard. With 10, a login on an overloaded machine took seconds.
const NICENESS: i32 = 5;

/// Passwords that wait for the thread: a second of work.
const QUEUE_MAX: usize = 64;

/// Those of strangers among them: the other places are for users at familiar addresses.
const STRANGERS_MAX: usize = 48;

/// A login that a client offers.
#[derive(Clone, Copy)]
pub(crate) struct Claim<'a> {
    /// The user's name.
    pub(crate) user: &'a [u8],
    /// The proof.
    pub(crate) offer: Offer<'a>,
    /// The client's address.
    pub(crate) address: IpAddr,
}

/// The decision on a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The client is the user.
    Accepted,
    /// The client is not.
    Refused,
    /// Too many passwords wait to be verified, or too many were wrong of late.
    Busy,
}

/// The logins of a node.
pub(crate) struct Logins {
    key: hmac::Key,
    desk: Arc<Mutex<Desk>>,
    jobs: SyncSender<Job>,
    /// Takes the verifiers that replace imported hashes.
    sink: Arc<OnceLock<PolicySink>>,
    clock: OsClock,
}

/// The known logins, and the connections that wait.
#[derive(Default)]
struct Desk {
    known: KnownLogins,
    /// The connections that wait for the verdict on each login that is in the queue or under way. A node bounds its
    /// connections.
    waiting: FastMap<Digest, Vec<oneshot::Sender<Verdict>>>,
    /// The strangers among these logins.
    strangers: usize,
}

/// The begin of a decision.
enum Entry {
    /// It is made.
    Decided(Verdict),
    /// It is made at the login's turn.
    Waiting(oneshot::Receiver<Verdict>),
}

/// A password to be verified.
struct Job {
    attempt: Attempt,
    is_stranger: bool,
    /// Its memory is overwritten when it is dropped.
    password: Zeroizing<Vec<u8>>,
    /// The credential; `None` of a login that is refused in any case.
    credential: Option<Credential>,
    /// The user of an imported hash.
    imported: Option<Name>,
}

impl Logins {
    /// Starts the thread that verifies passwords. It ends when this is dropped.
    pub(crate) fn start() -> io::Result<Logins> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &secret_bytes::<DIGEST_BYTES>());
        let desk = Arc::new(Mutex::new(Desk::default()));
        let (jobs, queue) = sync_channel(QUEUE_MAX);
        let (shared, salt) = (Arc::clone(&desk), secret_bytes::<SALT_BYTES>());
        let sink = Arc::default();
        let rehashes = Rehashes::new(Arc::clone(&sink));
        let body = move || {
            let begin = thread_cpu_time();
            let nobody = hash(&salt, &salt);
            lock(&shared).known.expect_hashes_like(thread_cpu_time().saturating_sub(begin));
            os::lower_priority(NICENESS);
            verify_all(&queue, &shared, &nobody, rehashes);
        };
        std::thread::Builder::new().name("annulet-logins".to_owned()).spawn(body)?;
        Ok(Logins { key, desk, jobs, sink, clock: OsClock::new() })
    }

    /// From now on imported hashes are replaced at their first login.
    pub(crate) fn rehash_by(&self, sink: PolicySink) {
        assert!(self.sink.set(sink).is_ok(), "a node has one log");
    }

    /// Decides on a login by a policy. Waits for the thread if a password is to be verified.
    pub(crate) async fn verify(&self, policy: &Policy, claim: Claim<'_>) -> Verdict {
        let (credential, imported) = match policy.login(claim.user, claim.address, claim.offer) {
            Login::Accepted(_) => return Verdict::Accepted,
            Login::Verify(user, credential) => {
                let is_imported = matches!(credential, Credential::RiakPbkdf2 { .. });
                (Some(credential.clone()), is_imported.then(|| policy.name(user).clone()))
            }
            Login::Refused(why) => {
                let user = String::from_utf8_lossy(claim.user);
                tracing::debug!(%user, address = %claim.address, %why, "a login is refused");
                (None, None)
            }
        };
        let digest = self.digest(claim, credential.as_ref(), policy.version());
        match self.enter(claim, digest, (credential, imported)) {
            Entry::Decided(verdict) => verdict,
            // Without a verdict the thread has ended, as the node does.
            Entry::Waiting(told) => told.await.unwrap_or(Verdict::Busy),
        }
    }

    /// Takes a login in: it needs no hash, waits behind the same one, or has a place in the queue if there is one.
    fn enter(
        &self,
        claim: Claim<'_>,
        digest: Digest,
        (credential, imported): (Option<Credential>, Option<Name>),
    ) -> Entry {
        let (mut desk, now) = (lock(&self.desk), self.clock.now());
        if desk.known.has_accepted(&digest, now) {
            return Entry::Decided(Verdict::Accepted);
        }
        let (tell, told) = oneshot::channel();
        if let Some(others) = desk.waiting.get_mut(&digest) {
            others.push(tell);
            return Entry::Waiting(told);
        }
        let attempt = Attempt::new(digest, claim.user, claim.address);
        if let Some(verdict) = desk.known.decide(&attempt, now) {
            return Entry::Decided(verdict);
        }

        let is_stranger = !desk.known.is_familiar(&attempt, now);
        if is_stranger && desk.strangers >= STRANGERS_MAX {
            return Entry::Decided(Verdict::Busy);
        }
        let password = claim.offer.password.unwrap_or_default().to_vec().into();
        let job = Job { attempt, is_stranger, password, credential, imported };
        if self.jobs.try_send(job).is_err() {
            return Entry::Decided(Verdict::Busy);
        }
        desk.waiting.insert(digest, vec![tell]);
        desk.strangers += usize::from(is_stranger);
        Entry::Waiting(told)
    }

    /// The digest of a login. Each part has its length in front, so that no two logins are one text.
    fn digest(&self, claim: Claim<'_>, credential: Option<&Credential>, version: u64) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        let mut part = |bytes: &[u8]| {
            context.update(&(bytes.len() as u64).to_be_bytes());
            context.update(bytes);
        };
        match claim.address {
            IpAddr::V4(address) => part(&address.octets()),
            IpAddr::V6(address) => part(&address.octets()),
        }
        part(claim.user);
        part(claim.offer.password.unwrap_or_default());
        if base::planted!(HerdOnPolicyChange) {
            part(&version.to_be_bytes());
        }
        if !base::planted!(CacheSurvivesPasswordChange) {
            match credential {
                None => {}
                Some(Credential::Argon2id(verifier)) => part(verifier),
                Some(Credential::RiakPbkdf2 { rounds, salt, hash }) => {
                    part(&rounds.to_be_bytes());
                    part(salt);
                    part(hash);
                }
            }
        }
        context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

/// Verifies passwords until nobody can ask any more.
fn verify_all(queue: &Receiver<Job>, desk: &Mutex<Desk>, nobody: &Credential, mut rehashes: Rehashes) {
    let clock = OsClock::new();
    while let Ok(Job { attempt, is_stranger, password, credential, imported }) = queue.recv() {
        let decided = lock(desk).known.decide(&attempt, clock.now());
        let hashed = decided.is_none().then(|| {
            let begin = thread_cpu_time();
            // Without a credential the hash is for its time alone.
            let is_right = fits(&password, credential.as_ref().unwrap_or(nobody)) && credential.is_some();
            (is_right, thread_cpu_time().saturating_sub(begin))
        });

        let mut desk = lock(desk);
        if let Some((is_right, took)) = hashed {
            desk.known.note_hash(&attempt, is_right, took, clock.now());
        }
        let of_hash = |(is_right, _)| if is_right { Verdict::Accepted } else { Verdict::Refused };
        let verdict = decided.or(hashed.map(of_hash)).expect("what is not decided is hashed");
        let told = desk.waiting.remove(&attempt.digest).expect("a login in the queue is waited for");
        desk.strangers -= usize::from(is_stranger);
        drop(desk);
        for tell in told {
            // The connection may have ended.
            tell.send(verdict).ok();
        }

        if let (Some((true, _)), Some(before), Some(user)) = (hashed, credential, imported) {
            rehashes.replace(user, before, &password);
        }
    }
}

fn lock(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}
