//! Logins of clients: the policy decides, a thread of its own verifies passwords, and successes are remembered.
//!
//! 1. The policy accepts a login, refuses it, or names the credential that the password must fit.
//! 2. A success of the last [`REMEMBERED`] with the same address, user, password and credential is taken as it is. What
//!    is remembered is a keyed digest, whose key is new at each start.
//! 3. An origin with too many failures ([`Failures`]) is refused. Failures of the user count for nothing at an address
//!    where the user has proved a password within [`FAMILIAR`].
//! 4. Hashes of wrong passwords have a budget of time ([`HashBudget`]), which a familiar address does not wait for.
//!    Once it is used up, logins are put off.
//! 5. The thread verifies the password. A login that the policy has refused costs the same hash, of a verifier that
//!    nobody has.
//!
//! Invariants: a changed password or source is in force for the next login, since the digest is over the credential
//! that the policy in hand has named. No shard's thread makes a hash.
//!
//! The copy of a password that waits for the thread is overwritten after its use.
//!
//! After a login that an imported hash proves, the thread replaces that hash (`rehash`).
//!
//! Left out: a refusal tells no reason to the client; the log has it at level debug.

use super::failures::{Failures, Origin};
use super::hash_budget::{HashBudget, HashEnd, Reserved};
use super::login_times::LoginTimes;
use super::password::{SALT_BYTES, fits, hash, secret_bytes};
use super::rehash::{PolicySink, Rehashes};
use base::{Clock, FastMap, Monotonic};
use os::OsClock;
use ring_crypto::hmac;
use security::{Credential, Login, Name, Offer, Policy};
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use zeroize::Zeroizing;

/// Time for which a success is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Time for which an address of a user is familiar: wrong passwords from elsewhere do not slow the user down there. A
/// restart forgets it.
const FAMILIAR: Duration = Duration::from_secs(24 * 3600);

/// Successes that are remembered: a few hundred kilobytes.
const REMEMBERED_MAX: usize = 8192;

/// The nice value of the thread that verifies: wrong passwords must not slow requests down. It is that of job threads,
/// about a third of the share of a shard. With 10, a login on an overloaded machine took seconds.
const NICENESS: i32 = 5;

/// Passwords that wait for the thread: a second of work.
const QUEUE_MAX: usize = 64;

/// Bytes of a digest, and of its key.
const DIGEST_BYTES: usize = 32;

type Digest = [u8; DIGEST_BYTES];

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
    known: Arc<Mutex<Known>>,
    jobs: SyncSender<Job>,
    /// Takes the verifiers that replace imported hashes.
    sink: Arc<OnceLock<PolicySink>>,
    clock: OsClock,
}

/// What earlier logins came to.
#[derive(Default)]
struct Known {
    /// Successes, and the time until which each is remembered.
    accepted: FastMap<Digest, Monotonic>,
    failures: Failures,
    budget: HashBudget,
    /// Passwords that were proved.
    proved: LoginTimes,
}

/// A password to be verified.
struct Job {
    /// Its memory is overwritten when it is dropped.
    password: Zeroizing<Vec<u8>>,
    /// The credential and the digest of the login; `None` for one that is refused in any case.
    credential: Option<(Credential, Digest)>,
    /// The user of an imported hash.
    imported: Option<Name>,
    /// The time that is set aside for the hash.
    reserved: Reserved,
    tell: oneshot::Sender<bool>,
}

impl Logins {
    /// Starts the thread that verifies passwords. It ends when this is dropped.
    pub(crate) fn start() -> io::Result<Logins> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &secret_bytes::<DIGEST_BYTES>());
        let known = Arc::new(Mutex::new(Known::default()));
        let (jobs, queue) = sync_channel(QUEUE_MAX);
        let (shared, salt) = (Arc::clone(&known), secret_bytes::<SALT_BYTES>());
        let sink = Arc::default();
        let rehashes = Rehashes::new(Arc::clone(&sink));
        let body = move || {
            let clock = OsClock::new();
            let begin = clock.now();
            let nobody = hash(&salt, &salt);
            os::lower_priority(NICENESS);
            lock(&shared).budget.expect_like(clock.now().since(begin));
            verify_all(&queue, (&shared, &clock), &nobody, rehashes);
        };
        std::thread::Builder::new().name("annulet-logins".to_owned()).spawn(body)?;
        Ok(Logins { key, known, jobs, sink, clock: OsClock::new() })
    }

    /// From now on imported hashes are replaced at their first login.
    pub(crate) fn rehash_by(&self, sink: PolicySink) {
        assert!(self.sink.set(sink).is_ok(), "a node has one log");
    }

    /// Decides on a login by a policy. Waits for the thread if a password is to be verified.
    pub(crate) async fn verify(&self, policy: &Policy, claim: Claim<'_>) -> Verdict {
        let password = claim.offer.password.unwrap_or_default();
        let mut imported = None;
        let credential = match policy.login(claim.user, claim.address, claim.offer) {
            Login::Accepted(_) => return Verdict::Accepted,
            Login::Verify(user, credential) => {
                if matches!(credential, Credential::RiakPbkdf2 { .. }) {
                    imported = Some(policy.name(user).clone());
                }
                Some((credential.clone(), self.digest(claim, password, credential, policy.version())))
            }
            Login::Refused(why) => {
                let user = String::from_utf8_lossy(claim.user);
                tracing::debug!(%user, address = %claim.address, %why, "a login is refused");
                None
            }
        };
        let origins = Origin::of(claim.address, claim.user);
        if let Some(verdict) =
            self.known_verdict(claim, &origins, credential.as_ref().map(|(_, digest)| digest))
        {
            return verdict;
        }

        let Some(is_right) = self.verify_by_hash(claim, password, credential, imported).await else {
            return Verdict::Busy;
        };
        let (mut known, now) = (lock(&self.known), self.clock.now());
        if is_right {
            known.proved.note(claim.user, claim.address, now);
            return Verdict::Accepted;
        }
        origins.into_iter().for_each(|origin| known.failures.note(origin, now));
        Verdict::Refused
    }

    /// Whether a password is right, by the thread; `None` if there is no time for another hash.
    async fn verify_by_hash(
        &self,
        claim: Claim<'_>,
        password: &[u8],
        credential: Option<(Credential, Digest)>,
        imported: Option<Name>,
    ) -> Option<bool> {
        let reserved = lock(&self.known).reserve_hash(claim, self.clock.now())?;
        let (tell, told) = oneshot::channel();
        let job = Job { password: password.to_vec().into(), credential, imported, reserved, tell };
        if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) = self.jobs.try_send(job) {
            lock(&self.known).budget.settle(job.reserved, HashEnd::NotMade, self.clock.now());
            return None;
        }
        Some(told.await.unwrap_or(false))
    }

    /// The verdict that needs no hash.
    fn known_verdict(
        &self,
        claim: Claim<'_>,
        origins: &[Origin],
        digest: Option<&Digest>,
    ) -> Option<Verdict> {
        let (known, now) = (lock(&self.known), self.clock.now());
        if digest.is_some_and(|digest| known.has_accepted(digest, now)) {
            return Some(Verdict::Accepted);
        }
        let is_over = origins.iter().any(|origin| match origin {
            _ if !known.failures.is_over(origin, now) => false,
            Origin::Address(_) => true,
            Origin::User(_) => !known.is_familiar(claim.user, claim.address, now),
        });
        is_over.then_some(Verdict::Refused)
    }

    /// The digest of a login with a password. Each part has its length in front, so that no two logins are one text.
    fn digest(&self, claim: Claim<'_>, password: &[u8], credential: &Credential, version: u64) -> Digest {
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
        part(password);
        if base::planted!(HerdOnPolicyChange) {
            part(&version.to_be_bytes());
        }
        if !base::planted!(CacheSurvivesPasswordChange) {
            match credential {
                Credential::Argon2id(verifier) => part(verifier),
                Credential::RiakPbkdf2 { rounds, salt, hash } => {
                    part(&rounds.to_be_bytes());
                    part(salt);
                    part(hash);
                }
            }
        }
        context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

impl Known {
    fn has_accepted(&self, digest: &Digest, now: Monotonic) -> bool {
        self.accepted.get(digest).is_some_and(|&until| until > now)
    }

    /// Sets time aside for a hash. Strangers cannot use up that of a familiar address.
    fn reserve_hash(&mut self, claim: Claim<'_>, now: Monotonic) -> Option<Reserved> {
        if self.is_familiar(claim.user, claim.address, now) {
            return Some(self.budget.admit_always(now));
        }
        let has_failed = self.failures.has_failed(&Origin::Address(claim.address), now);
        self.budget.admit(has_failed, now)
    }

    /// Whether a user has logged in from an address of late.
    fn is_familiar(&self, user: &[u8], address: IpAddr, now: Monotonic) -> bool {
        self.proved.last(user, address).is_some_and(|last| last + FAMILIAR > now)
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

/// Verifies passwords until nobody can ask any more. Logins that waited behind the same one need no hash of their own.
fn verify_all(
    queue: &Receiver<Job>,
    (known, clock): (&Mutex<Known>, &OsClock),
    nobody: &Credential,
    mut rehashes: Rehashes,
) {
    while let Ok(Job { password, credential, imported, reserved, tell }) = queue.recv() {
        let begin = clock.now();
        let is_known = credential.as_ref().is_some_and(|(_, digest)| lock(known).has_accepted(digest, begin));
        let is_right = is_known
            || match &credential {
                Some((credential, _)) => fits(&password, credential),
                None => {
                    // The hash is for its time alone.
                    fits(&password, nobody);
                    false
                }
            };

        let end = clock.now();
        let took = end.since(begin);
        let hash_end = match (is_known, is_right) {
            (true, _) => HashEnd::NotMade,
            (false, true) => HashEnd::Right(took),
            (false, false) => HashEnd::Wrong(took),
        };
        let mut known = lock(known);
        known.budget.settle(reserved, hash_end, end);
        if let Some((_, digest)) = credential.as_ref().filter(|_| is_right && !is_known) {
            known.accept(*digest, end);
        }
        drop(known);
        // The connection may have ended.
        tell.send(is_right).ok();
        if let (true, Some((before, _)), Some(user)) = (is_right, credential, imported) {
            rehashes.replace(user, before, &password);
        }
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::door_tests::{policy, records};
    use super::*;
    use std::net::Ipv4Addr;

    fn ask(logins: &Logins, policy: &Policy, user: &str, password: &str) -> Verdict {
        ask_from(logins, policy, Ipv4Addr::LOCALHOST, (user, password))
    }

    fn ask_from(
        logins: &Logins,
        policy: &Policy,
        address: Ipv4Addr,
        (user, password): (&str, &str),
    ) -> Verdict {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let offer = Offer { password: Some(password.as_bytes()), certificate: None };
        let claim = Claim { user: user.as_bytes(), offer, address: address.into() };
        runtime.block_on(logins.verify(policy, claim))
    }

    const ALICE: [&str; 3] =
        ["add-user alice password=secret", "add-source all 127.0.0.1/32 password", "enable"];

    #[test]
    pub(crate) fn a_changed_password_is_in_force_at_once() {
        let logins = Logins::start().unwrap();
        let first = policy(1, &ALICE);
        assert_eq!(ask(&logins, &first, "alice", "secret"), Verdict::Accepted);
        assert_eq!(lock(&logins.known).accepted.len(), 1);
        assert_eq!(ask(&logins, &first, "alice", "secret"), Verdict::Accepted);
        assert_eq!(ask(&logins, &first, "alice", "Secret"), Verdict::Refused);
        let other = policy(2, &["add-user alice password=other", ALICE[1], "enable"]);
        assert_eq!(ask(&logins, &other, "alice", "secret"), Verdict::Refused);
        assert_eq!(ask(&logins, &other, "alice", "other"), Verdict::Accepted);
    }

    #[test]
    fn failures_are_refused_without_a_hash_and_a_known_login_is_not() {
        let logins = Logins::start().unwrap();
        let policy = policy(1, &ALICE);
        assert_eq!(ask(&logins, &policy, "alice", "secret"), Verdict::Accepted);
        let address = Origin::Address(Ipv4Addr::LOCALHOST.into());
        let later = logins.clock.now() + Duration::from_secs(60);
        lock(&logins.known).failures.note(address, later);
        for user in ["nobody", "alice", ""] {
            assert_eq!(ask(&logins, &policy, user, "wrong"), Verdict::Refused);
        }
        assert_eq!(ask(&logins, &policy, "alice", "secret"), Verdict::Accepted, "it was remembered");
    }

    #[test]
    fn guesses_from_elsewhere_do_not_slow_a_user_down() {
        let logins = Logins::start().unwrap();
        let lines = ["add-user alice password=secret", "add-source all 127.0.0.0/8 password", "enable"];
        let first = policy(1, &lines);
        let (home, strange) = (Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2));
        assert_eq!(ask_from(&logins, &first, home, ("alice", "secret")), Verdict::Accepted);
        let later = logins.clock.now() + Duration::from_secs(60);
        lock(&logins.known).failures.note(Origin::User(b"alice"[..].into()), later);
        // Another credential: no success is remembered for it.
        let other = policy(2, &["add-user alice password=other", lines[1], "enable"]);
        assert_eq!(ask_from(&logins, &other, strange, ("alice", "other")), Verdict::Refused);
        assert_eq!(ask_from(&logins, &other, home, ("alice", "other")), Verdict::Accepted);
        lock(&logins.known).failures.note(Origin::Address(home.into()), later);
        let again = policy(3, &["add-user alice password=other", lines[1], "enable"]);
        assert_eq!(ask_from(&logins, &again, home, ("alice", "other")), Verdict::Refused, "it failed itself");
    }

    #[test]
    fn an_imported_hash_is_replaced_once_at_a_time() {
        // "password" with the salt "salt": RFC 6070.
        const IMPORTED: &str = concat!(
            "add-user alice password_hash=pbkdf2-hmac-sha1:4096:73616c74:",
            "4b007901b765489abead49d926f721d065a429c1"
        );
        let logins = Logins::start().unwrap();
        let slots = records(1, &[IMPORTED, ALICE[1], "enable"]);
        let policy = Policy::compile(&slots, 1);
        assert_eq!(ask(&logins, &policy, "alice", "password"), Verdict::Accepted, "without a log");
        let (changes, changed) = sync_channel(8);
        let answers = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&answers);
        logins.rehash_by(Box::new(move |command| {
            let (answer, answered) = oneshot::channel();
            kept.lock().unwrap().push(answer);
            changes.send(command).unwrap();
            answered
        }));
        let forget = || lock(&logins.known).accepted.clear();
        forget();
        assert_eq!(ask(&logins, &policy, "alice", "wrong"), Verdict::Refused);
        assert_eq!(ask(&logins, &policy, "alice", "password"), Verdict::Accepted);
        let change = changed.recv().unwrap();
        let mut after = slots.clone();
        after.apply(&change.plan(&slots, None).unwrap()).unwrap();
        let replaced = Policy::compile(&after, 2);
        assert_eq!(ask(&logins, &replaced, "alice", "password"), Verdict::Accepted);
        let Login::Verify(_, Credential::Argon2id(_)) = replaced.login(
            b"alice",
            Ipv4Addr::LOCALHOST.into(),
            Offer { password: Some(b"password"), certificate: None },
        ) else {
            panic!("another verifier")
        };

        // The change comes to nothing while the log is away: a later login tries again, when it is over.
        forget();
        assert_eq!(ask(&logins, &policy, "alice", "password"), Verdict::Accepted);
        forget();
        assert_eq!(ask(&logins, &policy, "alice", "password"), Verdict::Accepted);
        assert!(changed.try_recv().is_err(), "one is under way");
        answers.lock().unwrap().clear();
        forget();
        assert_eq!(ask(&logins, &policy, "alice", "password"), Verdict::Accepted);
        assert!(matches!(changed.recv().unwrap(), security::Command::Rehash { .. }));
    }

    #[test]
    fn guesses_of_many_addresses_put_strangers_off_and_no_familiar_address() {
        let logins = Logins::start().unwrap();
        let lines = ["add-user alice password=secret", "add-source all 127.0.0.0/8 password", "enable"];
        let first = policy(1, &lines);
        let address = |number| Ipv4Addr::new(127, 0, 0, number);
        assert_eq!(ask_from(&logins, &first, address(1), ("alice", "secret")), Verdict::Accepted);
        let later = logins.clock.now() + Duration::from_secs(60);
        {
            let budget = &mut lock(&logins.known).budget;
            while let Some(reserved) = budget.admit(false, later) {
                budget.settle(reserved, HashEnd::Wrong(Duration::from_millis(15)), later);
            }
        }
        assert_eq!(ask_from(&logins, &first, address(2), ("alice", "secret")), Verdict::Busy);
        assert_eq!(ask_from(&logins, &first, address(2), ("bob", "secret")), Verdict::Busy, "no user");
        assert_eq!(
            ask_from(&logins, &first, address(1), ("alice", "secret")),
            Verdict::Accepted,
            "remembered"
        );
        let other = policy(2, &["add-user alice password=other", lines[1], "enable"]);
        assert_eq!(ask_from(&logins, &other, address(1), ("alice", "other")), Verdict::Accepted);
        assert_eq!(ask_from(&logins, &other, address(1), ("alice", "secret")), Verdict::Refused);
    }

    #[test]
    fn no_proof_is_taken_for_another() {
        let logins = Logins::start().unwrap();
        let policy =
            policy(1, &["add-user alice", "add-user bob", "add-source alice 127.0.0.1/32 trust", "enable"]);
        assert_eq!(ask(&logins, &policy, "alice", ""), Verdict::Accepted);
        assert_eq!(ask(&logins, &policy, "bob", "secret"), Verdict::Refused, "bob has no source");
        assert_eq!(ask(&logins, &policy, "Alice", ""), Verdict::Refused);
    }

    #[test]
    pub(crate) fn a_new_policy_costs_no_hash() {
        let logins = Logins::start().unwrap();
        let slots = records(1, &ALICE);
        let of = |version| Policy::compile(&slots, version);
        assert_eq!(ask(&logins, &of(1), "alice", "secret"), Verdict::Accepted);
        // Beyond its failures, the address is refused each hash.
        let later = logins.clock.now() + Duration::from_secs(60);
        lock(&logins.known).failures.note(Origin::Address(Ipv4Addr::LOCALHOST.into()), later);
        assert_eq!(ask(&logins, &of(2), "alice", "secret"), Verdict::Accepted, "it was remembered");
    }
}
