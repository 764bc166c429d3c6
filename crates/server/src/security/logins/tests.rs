//! Logins against the thread that verifies.

use super::super::door_tests::{policy, records};
use super::super::failures::Origin;
use super::*;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::LocalSet;

fn ask(logins: &Logins, policy: &Policy, user: &str, password: &str) -> Verdict {
    ask_from(logins, policy, Ipv4Addr::LOCALHOST, (user, password))
}

fn ask_from(logins: &Logins, policy: &Policy, address: Ipv4Addr, (user, password): (&str, &str)) -> Verdict {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let offer = Offer { password: Some(password.as_bytes()), certificate: None };
    let claim = Claim { user: user.as_bytes(), offer, address: address.into() };
    runtime.block_on(logins.verify(policy, claim))
}

/// Logins with a password that are offered at the same moment, each by its user from the host of this number.
fn ask_together(policy: Policy, users: Vec<(String, u8)>, password: &'static str) -> Vec<Verdict> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let shared = Rc::new((Logins::start().unwrap(), policy));
    LocalSet::new().block_on(&runtime, async {
        let ask = |(user, host): (String, u8)| {
            let shared = Rc::clone(&shared);
            tokio::task::spawn_local(async move {
                let offer = Offer { password: Some(password.as_bytes()), certificate: None };
                let address = Ipv4Addr::new(127, 0, 0, host).into();
                shared.0.verify(&shared.1, Claim { user: user.as_bytes(), offer, address }).await
            })
        };
        let asked: Vec<_> = users.into_iter().map(ask).collect();
        let mut verdicts = Vec::new();
        for asked in asked {
            verdicts.push(asked.await.unwrap());
        }
        verdicts
    })
}

const ALICE: [&str; 3] = ["add-user alice password=secret", "add-source all 127.0.0.1/32 password", "enable"];

#[test]
pub(crate) fn a_changed_password_is_in_force_at_once() {
    let logins = Logins::start().unwrap();
    let first = policy(1, &ALICE);
    assert_eq!(ask(&logins, &first, "alice", "secret"), Verdict::Accepted);
    assert_eq!(lock(&logins.desk).known.accepted.len(), 1);
    assert_eq!(ask(&logins, &first, "alice", "secret"), Verdict::Accepted);
    assert_eq!(ask(&logins, &first, "alice", "Secret"), Verdict::Refused);
    let other = policy(2, &["add-user alice password=other", ALICE[1], "enable"]);
    assert_eq!(ask(&logins, &other, "alice", "secret"), Verdict::Refused);
    assert_eq!(ask(&logins, &other, "alice", "other"), Verdict::Accepted);
}

/// An imported hash of "password": RFC 6070.
const IMPORTED: &str =
    "password_hash=pbkdf2-hmac-sha1:4096:73616c74:4b007901b765489abead49d926f721d065a429c1";

#[test]
fn a_pool_of_connections_logs_in_at_once() {
    // All of them are there before the first hash has ended. More than may wait for a hash each.
    let pool = vec![("alice".to_owned(), 1); 10 * QUEUE_MAX];
    let verdicts = ask_together(policy(1, &ALICE), pool.clone(), "secret");
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted), "{verdicts:?}");
    let verdicts = ask_together(policy(1, &ALICE), pool, "wrong");
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Refused), "{verdicts:?}");
}

#[test]
fn users_of_many_addresses_log_in_at_once() {
    let users: Vec<_> = (1..=STRANGERS_MAX as u8).map(|number| (format!("user-{number}"), number)).collect();
    let mut lines: Vec<String> =
        users.iter().map(|(user, _)| format!("add-user {user} {IMPORTED}")).collect();
    lines.extend(["add-source all 127.0.0.0/8 password", "enable"].map(str::to_owned));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let verdicts = ask_together(policy(1, &lines), users, "password");
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted), "{verdicts:?}");
}

#[test]
fn an_imported_hash_is_replaced_once_at_a_time() {
    let logins = Logins::start().unwrap();
    let alice = format!("add-user alice {IMPORTED}");
    let slots = records(1, &[&alice, ALICE[1], "enable"]);
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
    let forget = || lock(&logins.desk).known.accepted.clear();
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
    lock(&logins.desk).known.failures.note(Origin::Address(Ipv4Addr::LOCALHOST.into()), later);
    assert_eq!(ask(&logins, &of(2), "alice", "secret"), Verdict::Accepted, "it was remembered");
}
