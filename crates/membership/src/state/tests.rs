//! Random commands on random states, and the steps of each change.

use super::*;
use base::Rng;
use base::rng::SplitMix64;
use bytes::BytesMut;
use protocol::peer::Reader;

fn founded() -> State {
    State::found(ClusterId(7), RingSize::new(8).unwrap(), "a@h", "h:1", "z").unwrap()
}

fn admit(state: &mut State, name: &str) -> NodeId {
    let admitted = Command::Admit {
        expected: state.version(),
        name: name.into(),
        address: "h:2".into(),
        zone: String::new(),
        weight: 100,
    };
    state.apply(&admitted).unwrap();
    *state.members().last_key_value().unwrap().0
}

fn stage(state: &mut State, node: NodeId, change: Change) -> Result<(), Rejected> {
    state.apply(&Command::Stage { expected: state.version(), node, change })
}

/// Commits with a claim that gives partitions in turn to those who claim.
fn commit(state: &mut State) -> Result<(), Rejected> {
    let members = state.after_commit();
    let claiming: Vec<NodeId> = members.iter().filter(|it| it.state.claims()).map(|it| it.id).collect();
    let owners = claiming.iter().copied().cycle().take(8).collect();
    state.apply(&Command::Commit { expected: state.version(), owners })
}

fn finish_moves(state: &mut State) {
    for (partition, to) in state.moves().clone() {
        state.apply(&Command::Moved { to, partitions: vec![partition] }).unwrap();
    }
}

fn member_state(state: &State, node: NodeId) -> MemberState {
    state.members()[&node].member.state
}

#[test]
fn an_owner_is_one_when_it_has_the_data() {
    let mut state = founded();
    let ring = state.ring_version();
    let b = admit(&mut state, "b@h");
    assert_eq!(member_state(&state, b), MemberState::Joining);
    assert!(state.ring_version() > ring, "its members are part of a ring");
    commit(&mut state).unwrap();
    assert_eq!(member_state(&state, b), MemberState::Valid);
    assert_eq!(state.owners(), [NodeId(0); 8]);
    assert_eq!(state.moves().keys().copied().collect::<Vec<_>>(), [1, 3, 5, 7]);
    let moved = Command::Moved { to: b, partitions: vec![1, 3] };
    state.apply(&moved).unwrap();
    assert_eq!(state.owners()[..4], [NodeId(0), b, NodeId(0), b]);
    let ring = state.ring_version();
    assert_eq!(state.apply(&moved), Err(Rejected::NotMoving), "a transfer counts once");
    assert_eq!(state.ring_version(), ring);
    assert_eq!(state.ring().owners(), state.owners());
}

#[test]
fn a_leaving_member_owns_until_all_has_moved() {
    let mut state = founded();
    let b = admit(&mut state, "b@h");
    commit(&mut state).unwrap();
    finish_moves(&mut state);
    stage(&mut state, b, Change::Leave).unwrap();
    assert_eq!(state.apply(&Command::Gone { node: b }), Err(Rejected::State(MemberState::Valid)));
    commit(&mut state).unwrap();
    assert_eq!(member_state(&state, b), MemberState::Leaving);
    finish_moves(&mut state);
    assert_eq!(member_state(&state, b), MemberState::Exiting);
    state.apply(&Command::Gone { node: b }).unwrap();
    assert!(!state.members().contains_key(&b));
    assert_eq!(admit(&mut state, "b@h"), NodeId(2), "a number is given once");
}

#[test]
fn forced_changes_move_nothing() {
    let mut state = founded();
    let b = admit(&mut state, "b@h");
    commit(&mut state).unwrap();
    finish_moves(&mut state);
    let c = admit(&mut state, "c@h");
    stage(&mut state, b, Change::ForceReplace(c)).unwrap();
    commit(&mut state).unwrap();
    assert!(!state.members().contains_key(&b));
    assert!(state.owners().contains(&c) && state.moves().is_empty());
    stage(&mut state, c, Change::ForceRemove).unwrap();
    assert_eq!(stage(&mut state, NodeId(0), Change::Leave), Err(Rejected::NobodyLeft));
    commit(&mut state).unwrap();
    assert_eq!(state.owners(), [NodeId(0); 8]);
}

#[test]
fn what_is_made_for_another_state_is_refused() {
    let mut state = founded();
    let stale = Command::Clear { expected: state.version() };
    let b = admit(&mut state, "b@h");
    assert_eq!(state.apply(&stale), Err(Rejected::Stale));
    assert_eq!(stage(&mut state, b, Change::Leave), Err(Rejected::State(MemberState::Joining)));
    assert_eq!(stage(&mut state, NodeId(9), Change::Leave), Err(Rejected::NotMember));
    let short = Command::Commit { expected: state.version(), owners: vec![NodeId(0); 7] };
    assert_eq!(state.apply(&short), Err(Rejected::Owners));
    let foreign = Command::Commit { expected: state.version(), owners: vec![NodeId(9); 8] };
    assert_eq!(state.apply(&foreign), Err(Rejected::Owners));
    state.apply(&Command::Clear { expected: state.version() }).unwrap();
    assert_eq!(state.members().len(), 1);
    assert_eq!(commit(&mut state), Err(Rejected::NothingStaged));
    let ring = state.ring_version();
    let version = state.version();
    state.apply(&Command::Clear { expected: version }).unwrap();
    assert_eq!(
        (state.version(), state.ring_version()),
        (version, ring),
        "what changes nothing has no version"
    );
}

#[test]
fn a_start_is_counted_once() {
    let mut state = founded();
    let started = |starts, start| Command::Started { node: NodeId(0), starts, start, address: "h:9".into() };
    state.apply(&started(3, 1)).unwrap();
    state.apply(&started(3, 1)).unwrap();
    assert_eq!(state.apply(&started(3, 2)), Err(Rejected::Restored { starts: 3 }));
    assert_eq!(state.apply(&started(2, 1)), Err(Rejected::Restored { starts: 3 }));
    let version = state.version();
    state.apply(&Command::Down { expected: version, node: NodeId(0) }).unwrap();
    state.apply(&started(4, 5)).unwrap();
    assert_eq!(member_state(&state, NodeId(0)), MemberState::Valid);
}

fn random_command(rng: &mut SplitMix64, state: &State) -> Command {
    let expected = state.version() - u64::from(rng.chance(1, 10));
    let node = NodeId(u16::try_from(rng.below(8)).unwrap());
    let by = NodeId(u16::try_from(rng.below(8)).unwrap());
    match rng.below(13) {
        0 | 1 => {
            let name = format!("{}@h", rng.below(20));
            Command::Admit { expected, name, address: "h".into(), zone: "z".into(), weight: 1 }
        }
        2 | 3 => {
            let changes = [
                Change::Join,
                Change::Leave,
                Change::Replace(by),
                Change::ForceReplace(by),
                Change::ForceRemove,
                Change::Weigh(9),
            ];
            let change = changes[usize::try_from(rng.below(6)).unwrap()];
            Command::Stage { expected, node, change }
        }
        4 => Command::Clear { expected },
        5 | 6 => {
            let members = state.after_commit();
            let claiming: Vec<NodeId> =
                members.iter().filter(|it| it.state.claims()).map(|it| it.id).collect();
            let mut owner = || match claiming.len() as u64 {
                0 => NodeId(99),
                len => claiming[usize::try_from(rng.below(len)).unwrap()],
            };
            Command::Commit { expected, owners: (0..8).map(|_| owner()).collect() }
        }
        7 | 8 => match state.moves().iter().next() {
            Some((&partition, &to)) => Command::Moved { to, partitions: vec![partition] },
            None => Command::Moved { to: by, partitions: vec![u32::from(node.0)] },
        },
        9 => Command::Gone { node },
        10 => Command::Down { expected, node },
        11 => Command::Started {
            node,
            starts: u32::try_from(rng.below(50)).unwrap(),
            start: 1,
            address: "h".into(),
        },
        _ => {
            let name = Bytes::from(rng.below(3).to_string());
            let before = state.slot(&name).cloned();
            let value = rng.chance(2, 3).then(|| Bytes::from(rng.below(9).to_string()));
            Command::Slot { name, before, value }
        }
    }
}

#[test]
fn random_commands_keep_the_invariants() {
    for seed in 0..200 {
        let mut rng = SplitMix64::new(seed);
        let mut state = founded();
        let mut changes = 0;
        for _ in 0..150 {
            let command = random_command(&mut rng, &state);
            let mut bytes = BytesMut::new();
            command.encode(&mut bytes);
            let mut fields = Reader::new(bytes.freeze());
            assert_eq!(Command::read(&mut fields), Ok(command.clone()));
            fields.end().unwrap();
            let before = state.clone();
            let applied = state.apply(&command);
            changes += u32::from(state != before);
            assert!(applied.is_ok() || state == before, "a refused command changes nothing");
            assert!(state.ring_version() >= before.ring_version());
            state.check();
            let ring = state.ring();
            assert_eq!(ring.version(), state.ring_version());
            assert_eq!(State::decode(state.encode()), Ok(state.clone()));
        }
        assert!(changes > 10, "seed {seed}: {changes} changes");
    }
}

#[test]
fn golden_bytes() {
    let mut state = founded();
    let b = admit(&mut state, "b@h");
    stage(&mut state, NodeId(0), Change::Replace(b)).unwrap();
    let fields: [&[u8]; 7] = [
        b"\x01\x07\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0\0\x01\0\0\x08\0\0\0\x02\0",
        b"\x02\0\0\x03a@h\x01z\x03h:1\x64\0\x01\0\0\0\0\0\0\0\0\0\0\0\0",
        b"\x01\0\x03b@h\0\x03h:2\x64\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"\x01\x08\0\0",
        b"\0",
        b"\x02\0\0\x02\x01\0\x01\0\0\0\0",
        b"\0\0",
    ];
    assert_eq!(state.encode(), fields.concat());
}

#[test]
fn damaged_states_make_no_panic() {
    let mut state = founded();
    admit(&mut state, "b@h");
    commit(&mut state).unwrap();
    let good = state.encode();
    let mut rng = SplitMix64::new(1);
    let mut read = 0;
    for _ in 0..20_000 {
        let mut bad = good.to_vec();
        for _ in 0..=rng.below(3) {
            let at = usize::try_from(rng.below(bad.len() as u64)).unwrap();
            bad[at] = u8::try_from(rng.below(256)).unwrap();
        }
        bad.truncate(usize::try_from(rng.below(2 * good.len() as u64)).unwrap());
        if let Ok(state) = State::decode(bad.into()) {
            state.check();
            read += 1;
        }
    }
    assert!(read > 0, "some damage is not to be seen without the checksum that surrounds a state");
}
