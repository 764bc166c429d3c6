//! Stores that are registered, and groups that are founded on them.

use super::*;

fn birth(number: u64) -> Birth {
    Birth::of(number).unwrap()
}

fn stores(ring_bits: u8, births: &[u64]) -> StoreBirths {
    StoreBirths { ring_bits, births: births.iter().copied().map(birth).collect() }
}

fn start(state: &mut State, node: NodeId, starts: u32) {
    let started = Command::Started { node, starts, start: starts.into(), address: "h:1".into() };
    state.apply(&started).unwrap();
}

fn register(state: &mut State, node: NodeId, starts: u32, births: &[u64]) -> Result<(), Rejected> {
    let stores = stores(3, births);
    state.apply(&Command::RegisterStores { node, starts, start: starts.into(), stores })
}

fn found(state: &mut State, n_val: u8, number: u64) -> Result<(), Rejected> {
    state.apply(&Command::FoundGroups { expected: state.version(), n_val, number })
}

/// Members that have been started, of a ring that is at rest.
fn started(names: &[&str]) -> State {
    let mut state = founded();
    for name in names {
        admit(&mut state, name);
    }
    if !names.is_empty() {
        commit(&mut state).unwrap();
    }
    finish(&mut state);
    let nodes: Vec<NodeId> = state.members().keys().copied().collect();
    nodes.into_iter().for_each(|node| start(&mut state, node, 1));
    state
}

/// The same, with stores that are registered.
fn registered(names: &[&str]) -> State {
    let mut state = started(names);
    state.apply(&Command::PrepareStores).unwrap();
    let nodes: Vec<NodeId> = state.members().keys().copied().collect();
    for node in nodes {
        let first = 100 * (u64::from(node.0) + 1);
        register(&mut state, node, 1, &[first, first + 1]).unwrap();
    }
    state
}

#[test]
fn stores_are_registered_by_the_last_start_once_they_are_wanted() {
    let mut state = started(&["b@h"]);
    let (a, version) = (NodeId(0), state.version());
    assert_eq!(register(&mut state, a, 1, &[1]), Err(Rejected::Unprepared));
    assert!(!state.registers_stores());
    state.apply(&Command::PrepareStores).unwrap();
    let prepared = state.clone();
    state.apply(&Command::PrepareStores).unwrap();
    assert_eq!((state.registers_stores(), &state), (true, &prepared));

    assert_eq!(register(&mut state, a, 2, &[1]), Err(Rejected::Life));
    assert_eq!(register(&mut state, NodeId(9), 1, &[1]), Err(Rejected::NotMember));
    assert_eq!(register(&mut state, a, 1, &[]), Err(Rejected::Stores));
    assert_eq!(register(&mut state, a, 1, &[1; STORES_MAX + 1]), Err(Rejected::Stores));
    let finer = Command::RegisterStores { node: a, starts: 1, start: 1, stores: stores(8, &[1]) };
    assert_eq!(state.apply(&finer), Err(Rejected::Stores), "there are 128 prefixes");
    register(&mut state, a, 1, &[1, 2]).unwrap();
    // A store that draws a new birth is registered by the same process.
    register(&mut state, a, 1, &[1, 3]).unwrap();
    assert_eq!(state.registration(a).unwrap().stores, stores(3, &[1, 3]));
    assert_eq!(state.registration(NodeId(1)), None);
    assert_eq!(state.version(), version, "no plan is made from it");

    start(&mut state, a, 2);
    assert_eq!(state.registration(a), None, "an earlier process has registered them");
    register(&mut state, a, 2, &[1, 3]).unwrap();
    assert_eq!(state.registration(a).map(|it| (it.starts, it.start)), Some((2, 2)));
}

#[test]
fn a_member_that_is_forgotten_has_no_stores() {
    let mut state = registered(&[]);
    let b = admit(&mut state, "b@h");
    start(&mut state, b, 1);
    register(&mut state, b, 1, &[7]).unwrap();
    state.apply(&Command::Clear { expected: state.version() }).unwrap();
    assert_eq!(state.registration(b), None);
    state.check();
}

#[test]
fn groups_are_founded_once_on_the_ring_at_rest() {
    let mut state = started(&["b@h", "c@h"]);
    assert_eq!(found(&mut state, 3, 7), Err(Rejected::Unprepared));
    state.apply(&Command::PrepareStores).unwrap();
    assert_eq!(found(&mut state, 3, 7), Err(Rejected::Unregistered(NodeId(0))));
    for node in [0, 1, 2].map(NodeId) {
        register(&mut state, node, 1, &[u64::from(node.0) + 1]).unwrap();
    }
    start(&mut state, NodeId(1), 2);
    assert_eq!(found(&mut state, 3, 7), Err(Rejected::Unregistered(NodeId(1))));
    register(&mut state, NodeId(1), 2, &[2]).unwrap();
    for n_val in [0, 8, 255] {
        assert_eq!(found(&mut state, n_val, 7), Err(Rejected::NVal));
    }
    let stale = Command::FoundGroups { expected: state.version() - 1, n_val: 3, number: 7 };
    assert_eq!(state.apply(&stale), Err(Rejected::Stale));

    found(&mut state, 3, 7).unwrap();
    let after = state.clone();
    found(&mut state, 3, 8).unwrap();
    state.apply(&stale).unwrap();
    assert_eq!(state, after, "a second founding is none");
    found(&mut state, 1, 9).unwrap();
    let numbers: Vec<(u8, u64)> = state.foundings().map(|(n_val, it)| (n_val, it.number)).collect();
    assert_eq!(numbers, [(1, 9), (3, 7)]);
    // A later registration does not change the first voters.
    register(&mut state, NodeId(1), 2, &[99]).unwrap();
    assert_eq!(state.founding(3).unwrap().stores[&NodeId(1)], stores(3, &[2]));
}

#[test]
fn groups_are_not_founded_while_partitions_move() {
    let mut state = registered(&["b@h"]);
    stage(&mut state, NodeId(1), Change::Leave).unwrap();
    let whole = state.clone();
    found(&mut state, 3, 7).unwrap();
    assert_eq!(
        commit(&mut state),
        Err(Rejected::Pinned),
        "a change that was staged before is not carried out"
    );

    state = whole;
    commit(&mut state).unwrap();
    while !state.is_settled() {
        assert_eq!(found(&mut state, 3, 7), Err(Rejected::Moving));
        one_step(&mut state);
    }
    found(&mut state, 3, 7).unwrap();
    assert_eq!(state.founding(3).unwrap().stores.len(), 1);
}

#[test]
fn partitions_do_not_move_once_groups_are_founded() {
    let mut state = registered(&["b@h"]);
    found(&mut state, 3, 7).unwrap();
    let owners = state.owners().to_vec();
    let grows = Command::StageRing { expected: state.version(), size: size(16) };
    assert_eq!(state.apply(&grows), Err(Rejected::Pinned));
    assert_eq!(commit(&mut state), Err(Rejected::NothingStaged));
    for change in [Change::Leave, Change::ForceRemove] {
        stage(&mut state, NodeId(1), change).unwrap();
        let before = state.clone();
        assert_eq!(commit(&mut state), Err(Rejected::Pinned));
        assert_eq!(state, before);
    }
    // A plan that moves nothing is carried out: a newcomer waits for partitions, and a weight is another.
    state.apply(&Command::Clear { expected: state.version() }).unwrap();
    let c = admit(&mut state, "c@h");
    stage(&mut state, NodeId(1), Change::Weigh(50)).unwrap();
    state.apply(&Command::Commit { expected: state.version(), owners: owners.clone() }).unwrap();
    finish(&mut state);
    assert_eq!((state.owners(), member_state(&state, c)), (&*owners, MemberState::Valid));
    // An owner may be down: its partitions stay with it.
    state.apply(&Command::Down { expected: state.version(), node: NodeId(1) }).unwrap();
    start(&mut state, NodeId(1), 2);
    assert_eq!(state.heading(), owners);
}

#[test]
fn first_voters_are_the_stores_of_a_prefix_on_its_list() {
    let mut state = registered(&["b@h", "c@h", "d@h"]);
    (1..=FOUNDED_N_VAL_MAX).for_each(|n_val| found(&mut state, n_val, 7).unwrap());
    let (ring, prefixes) = (state.ring(), state.prefixes());
    for prefix in 0..u16::try_from(prefixes.partitions()).unwrap() {
        let partition = ring::Partition(u32::from(prefix) >> (prefixes.bits() - ring.size().bits()));
        for n_val in 1..=FOUNDED_N_VAL_MAX {
            let mut nodes: Vec<NodeId> = Vec::new();
            for entry in ring.preflist(partition, n_val.into()) {
                if !nodes.contains(&entry.node) {
                    nodes.push(entry.node);
                }
            }
            let shard = u64::from(ring::shard_of(prefix >> (prefixes.bits() - 3), 2));
            let voters = nodes.iter().map(|&node| (node, birth(100 * (u64::from(node.0) + 1) + shard)));
            assert_eq!(state.first_voters(n_val, prefix), Some(voters.collect()), "{prefix}, {n_val}");
        }
    }
    assert_eq!(started(&[]).first_voters(3, 0), None);
}

#[test]
fn an_epoch_is_raised_by_one() {
    let mut state = registered(&[]);
    let raise = |expected| Command::RaiseEpoch { n_val: 3, expected };
    assert_eq!(state.apply(&raise(0)), Err(Rejected::Unfounded));
    found(&mut state, 3, 7).unwrap();
    state.apply(&raise(0)).unwrap();
    assert_eq!(state.apply(&raise(0)), Err(Rejected::Stale), "a second operator looks again");
    assert_eq!(state.founding(3).map(|it| it.epoch), Some(1));
    (1..u16::MAX).for_each(|epoch| state.apply(&raise(epoch)).unwrap());
    assert_eq!(state.apply(&raise(u16::MAX)), Err(Rejected::Full));
}

#[test]
fn golden_bytes_of_sections() {
    let mut state = founded();
    let of_version_3 = state.encode();
    assert_eq!(of_version_3[0], 3);
    state.apply(&Command::PrepareStores).unwrap();
    let fields = &of_version_3[1..];
    assert_eq!(state.encode(), [b"\x04", fields, b"\x01\x01\x02\0\0"].concat());

    finish(&mut state);
    start(&mut state, NodeId(0), 0x0102);
    let base = state.encode();
    let fields = &base[..base.len() - 5];
    register(&mut state, NodeId(0), 0x0102, &[0x0605_0403_0201, 9]).unwrap();
    found(&mut state, 3, 0x0a0b).unwrap();
    state.apply(&Command::RaiseEpoch { n_val: 3, expected: 0 }).unwrap();
    let stores = b"\x03\x02\x01\x02\x03\x04\x05\x06\x09\0\0\0\0\0";
    let section: [&[u8]; 6] = [
        b"\x01\0\0\x02\x01\0\0\x02\x01\0\0\0\0\0\0",
        stores,
        b"\x01\x03\x0b\x0a\0\0\0\0\0\0\x01\0",
        b"\x01\x08\0\0",
        b"\x01\0\0",
        stores,
    ];
    let section = section.concat();
    let len = u8::try_from(section.len()).unwrap();
    assert_eq!(state.encode(), [fields, b"\x01\x01", &[len][..], &section].concat());
    assert_eq!(State::decode(state.encode()), Ok(state));
}

#[test]
fn golden_bytes_of_commands() {
    let bytes = |command: Command| {
        let mut out = BytesMut::new();
        command.encode(&mut out);
        out
    };
    assert_eq!(&bytes(Command::PrepareStores)[..], b"\x0e");
    let stores = stores(6, &[0x0605_0403_0201, 9]);
    let registers = Command::RegisterStores { node: NodeId(0x0102), starts: 3, start: 4, stores };
    let golden = b"\x0f\x02\x01\x03\0\0\0\x04\0\0\0\0\0\0\0\x06\x02\x01\x02\x03\x04\x05\x06\x09\0\0\0\0\0";
    assert_eq!(&bytes(registers)[..], golden);
    let founds = Command::FoundGroups { expected: 5, n_val: 3, number: 6 };
    assert_eq!(&bytes(founds)[..], b"\x10\x05\0\0\0\0\0\0\0\x03\x06\0\0\0\0\0\0\0");
    assert_eq!(&bytes(Command::RaiseEpoch { n_val: 3, expected: 0x0102 })[..], b"\x11\x03\x02\x01");
}

/// A state with these bytes of sections behind the fields of version 3.
pub(super) fn with_sections(sections: &[u8]) -> Result<State, Malformed> {
    let fields = founded().encode();
    State::decode([b"\x04", &fields[1..], sections].concat().into())
}

#[test]
fn a_state_of_a_newer_program_is_refused() {
    assert!(with_sections(b"\x01\x01\x02\0\0").is_ok_and(|state| state.registers_stores()));
    let newer = Err(Malformed("a state of a newer program"));
    assert_eq!(with_sections(b"\x01\x03\0"), newer);
    assert_eq!(with_sections(b"\x02\x01\x02\0\0\x07\x03abc"), newer);
    let mut next = founded().encode().to_vec();
    next[0] = 5;
    assert_eq!(State::decode(next.into()), Err(Malformed("a state of another format")));
    // A command of a newer program.
    let mut fields = Reader::new(Bytes::from_static(b"\x13\0\0"));
    assert_eq!(Command::read(&mut fields), Err(Malformed("an unknown command")));
}

#[test]
fn sections_that_no_program_writes_are_refused() {
    assert_eq!(with_sections(b"\0"), Err(Malformed("no section")));
    assert_eq!(with_sections(b"\x02\x01\x02\0\0\x01\x02\0\0"), Err(Malformed("sections out of order")));
    assert!(with_sections(b"\x01\x01\x03\0\0\0").is_err(), "bytes behind the fields");
    // Stores of a node that is no member, a store without a birth, and a founding of no n_val.
    let of_nobody = b"\x01\x01\x18\x01\x09\0\x01\0\0\0\x01\0\0\0\0\0\0\0\x03\x01\x01\0\0\0\0\0\0";
    assert_eq!(with_sections(of_nobody), Err(Malformed("stores of no member")));
    let unborn = b"\x01\x01\x18\x01\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\x03\x01\0\0\0\0\0\0\0";
    assert_eq!(with_sections(unborn), Err(Malformed("no birth is zero")));
    let mut state = registered(&[]);
    found(&mut state, 3, 7).unwrap();
    let change = |change: fn(&mut Consistent)| {
        let mut bad = state.clone();
        change(bad.consistent.as_mut().unwrap());
        State::decode(bad.encode()).unwrap_err().0
    };
    let rekey = |it: &mut Consistent| {
        let founding = it.foundings.remove(&3).unwrap();
        it.foundings.insert(0, founding);
    };
    assert_eq!(change(rekey), "a founding of no n_val");
    let halve = |it: &mut Consistent| it.foundings.get_mut(&3).unwrap().owners = [NodeId(0); 4].into();
    assert_eq!(change(halve), "a founding on a ring that cannot be");
    let rob = |it: &mut Consistent| it.foundings.get_mut(&3).unwrap().stores = Arc::default();
    assert_eq!(change(rob), "a founding with the stores of others");
}

#[test]
fn damaged_sections_make_no_panic() {
    let mut state = registered(&["b@h", "c@h"]);
    found(&mut state, 3, 7).unwrap();
    let good = state.encode();
    let section = good.len() - 120;
    let mut rng = SplitMix64::new(2);
    for _ in 0..20_000 {
        let mut bad = good.to_vec();
        for _ in 0..=rng.below(3) {
            let at = section + usize::try_from(rng.below((good.len() - section) as u64)).unwrap();
            bad[at] = u8::try_from(rng.below(256)).unwrap();
        }
        if let Ok(state) = State::decode(bad.into()) {
            state.check();
            (0..128).for_each(|prefix| drop(state.first_voters(3, prefix)));
            assert_eq!(State::decode(state.encode()), Ok(state));
        }
    }
}
