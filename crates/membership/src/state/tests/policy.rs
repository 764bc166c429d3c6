//! Records of the security policy.

use super::consistent::with_sections;
use super::*;

type Records = BTreeMap<Bytes, Bytes>;

fn change(state: &mut State, changes: &[(&'static str, Option<&'static str>)]) -> Result<(), Rejected> {
    let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
    let changes = changes.iter().map(|(key, value)| (bytes(key), value.map(bytes))).collect();
    state.apply(&Command::ChangePolicy { expected: state.policy_version(), changes })
}

fn records(state: &State) -> Records {
    let records = state.policy().into_iter().flat_map(|it| it.iter());
    records.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// One or two changes of few keys, sometimes for an older version or of a record that cannot be.
pub(super) fn random_change(rng: &mut SplitMix64, state: &State) -> Command {
    let expected = state.policy_version().saturating_sub(u64::from(rng.chance(1, 5)));
    let mut one = || {
        let key = Bytes::from(rng.below(5).to_string());
        let len = usize::try_from(rng.below(4)).unwrap();
        let value = rng.chance(2, 3).then(|| Bytes::from(vec![b'v'; len]));
        (key, value)
    };
    let first = one();
    let changes = if first.1.is_none() { vec![first] } else { vec![first, one()] };
    Command::ChangePolicy { expected, changes }
}

/// Follows a command with a model: a map, and the rule that each change has a version of its own.
pub(super) fn follow_model(
    model: &mut Records,
    command: &Command,
    applied: bool,
    (before, after): (&State, &State),
) {
    let was = model.clone();
    if let Command::ChangePolicy { expected, changes } = command {
        let can_be = changes.iter().all(|(key, it)| it.as_ref().is_none_or(|it| key.len() <= it.len()));
        assert_eq!(applied, *expected == before.policy_version() && can_be, "{command:?}");
        if applied {
            for (key, value) in changes {
                match value {
                    Some(value) => model.insert(key.clone(), value.clone()),
                    None => model.remove(key),
                };
            }
        }
    }
    assert_eq!(*model, records(after));
    assert_eq!(after.policy().map_or(0, |it| it.bytes()), model.values().map(Bytes::len).sum::<usize>());
    let versions = after.policy_version() - before.policy_version();
    assert_eq!(versions, u64::from(was != *model), "each change has a version, and nothing else");
    assert_eq!(after.policy().is_some(), before.policy().is_some() || was != *model);
}

#[test]
fn changes_are_made_together_for_the_version_that_they_name() {
    let mut state = founded();
    let (version, ring) = (state.version(), state.ring_version());
    assert_eq!((state.policy_version(), state.policy().is_some()), (0, false));
    change(&mut state, &[("a", Some("a1")), ("b", Some("b1"))]).unwrap();
    assert_eq!((state.policy_version(), records(&state).len()), (1, 2));
    assert_eq!((state.version(), state.ring_version()), (version, ring), "no plan is made from it");

    let late = Command::ChangePolicy { expected: 0, changes: vec![(Bytes::from_static(b"a"), None)] };
    assert_eq!(state.apply(&late), Err(Rejected::Stale));
    let before = state.clone();
    assert_eq!(change(&mut state, &[("a", None), ("key", Some("no"))]), Err(Rejected::Policy));
    assert_eq!(state, before, "all or none");
    change(&mut state, &[("a", Some("a1"))]).unwrap();
    change(&mut state, &[]).unwrap();
    assert_eq!(state, before, "what changes nothing has no version");

    change(&mut state, &[("a", Some("a2")), ("a", None), ("b", None)]).unwrap();
    assert_eq!((state.policy_version(), records(&state)), (2, Records::new()));
    assert_eq!(state.encode()[0], 4, "an older program does not come back");
}

#[test]
fn policies_are_bounded_and_can_always_shrink() {
    let value = Bytes::from(vec![0; POLICY_RECORD_BYTES_MAX]);
    let put = |state: &mut State, key: u64, value: &Bytes| {
        let changes = vec![(Bytes::from(key.to_be_bytes().to_vec()), Some(value.clone()))];
        state.apply(&Command::ChangePolicy { expected: state.policy_version(), changes })
    };
    let mut state = founded();
    let fit = (POLICY_BYTES_MAX / POLICY_RECORD_BYTES_MAX) as u64;
    (0..fit).for_each(|key| put(&mut state, key, &value).unwrap());
    assert_eq!(state.policy().map(|it| it.bytes()), Some(POLICY_BYTES_MAX));
    assert_eq!(put(&mut state, fit, &Bytes::from(vec![0; 8])), Err(Rejected::Policy));
    assert_eq!(State::decode(state.encode()), Ok(state.clone()));
    put(&mut state, 0, &value.slice(..8)).unwrap();
    put(&mut state, fit, &Bytes::from(vec![0; 8])).unwrap();
    assert_eq!(put(&mut state, 1, &Bytes::from(vec![0; value.len() + 1])), Err(Rejected::Policy));

    let two = [1, 2].map(|key: u64| (Bytes::from(key.to_be_bytes().to_vec()), Some(value.clone())));
    let many = two.iter().cycle().take(5).cloned().collect();
    let command = Command::ChangePolicy { expected: state.policy_version(), changes: many };
    assert!(!command.is_readable(), "it would be too large for the log");
    assert_eq!(state.apply(&command), Err(Rejected::Policy));
}

#[test]
fn versions_after_a_recovery_are_above_those_of_the_lost() {
    let mut lost = founded();
    let mut left = founded();
    (0..3).for_each(|_| {
        change(&mut lost, &[("a", Some("a"))]).unwrap();
        change(&mut lost, &[("a", None)]).unwrap();
    });
    left.recover(2);
    assert!(left.policy_version() > lost.policy_version() && left.policy().is_none());
    assert_eq!(left.encode()[0], 3, "a program without the section reads it");
    let before = left.policy_version();
    change(&mut left, &[("a", Some("b"))]).unwrap();
    assert_eq!(left.policy_version(), before + 1);
    let at = left.policy_version();
    left.recover(3);
    assert!(left.policy_version() > at);
    assert_eq!(State::decode(left.encode()), Ok(left));
}

#[test]
fn golden_bytes_of_the_policy() {
    let mut state = founded();
    let of_version_3 = state.encode();
    change(&mut state, &[("b", Some("b2")), ("a", Some("a"))]).unwrap();
    let section = b"\x02\x12\x01\0\0\0\0\0\0\0\x02\x01a\x01a\x01b\x02b2";
    assert_eq!(state.encode(), [b"\x04", &of_version_3[1..], b"\x01", section].concat());
    let alone = state.encode();
    state.apply(&Command::PrepareStores).unwrap();
    assert!(state.encode().ends_with(&[b"\x02\x01\x02\0\0", &section[..]].concat()));
    assert!(State::decode(alone).is_ok());

    let changes = vec![(Bytes::from_static(b"a"), None), (Bytes::from_static(b"b"), Some("b2".into()))];
    let mut out = BytesMut::new();
    Command::ChangePolicy { expected: 3, changes }.encode(&mut out);
    assert_eq!(&out[..], b"\x12\x03\0\0\0\0\0\0\0\x02\x01a\0\x01b\x01\x02b2");
}

#[test]
fn policies_that_no_program_writes_are_refused() {
    let section = |bytes: &[u8]| {
        let len = u8::try_from(bytes.len()).unwrap();
        with_sections(&[b"\x01\x02", &[len][..], bytes].concat()).map_err(|malformed| malformed.0)
    };
    assert!(section(b"\x01\0\0\0\0\0\0\0\x01\x01a\x01a").is_ok());
    assert_eq!(section(b"\0\0\0\0\0\0\0\0\0"), Err("a policy that cannot be"));
    assert_eq!(section(b"\x01\0\0\0\0\0\0\0\x02\x01b\x01b\x01a\x01a"), Err("records out of order"));
    assert_eq!(section(b"\x01\0\0\0\0\0\0\0\x01\0\x01a"), Err("a record of a policy that cannot be"));
    assert!(section(b"\x01\0\0\0\0\0\0\0\x01\x01a\x01ab").is_err(), "bytes behind the fields");
    let read = |bytes: &'static [u8]| Command::read(&mut Reader::new(Bytes::from_static(bytes)));
    let cannot_be = Err(Malformed("changes of a policy that cannot be"));
    assert_eq!(read(b"\x12\0\0\0\0\0\0\0\0\x01\0\0"), cannot_be, "an empty key");
}
