//! Random commands on random states, and the steps of each change.

use super::*;
use base::Rng;
use base::rng::SplitMix64;
use bytes::BytesMut;
use protocol::peer::{Malformed, Reader};
use ring::Birth;

mod consistent;
mod policy;

fn founded() -> State {
    State::found(ClusterId(7), size(8), "a@h", "h:1", "z").unwrap()
}

fn size(partitions: u32) -> RingSize {
    RingSize::new(partitions).unwrap()
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
    let size = state.staged_size().unwrap_or(state.heading_size());
    let owners = claiming.iter().copied().cycle().take(size.all().len()).collect();
    state.apply(&Command::Commit { expected: state.version(), owners })
}

/// Everybody reports, until the next step is taken.
fn one_step(state: &mut State) {
    state.due().iter().for_each(|report| state.apply(report).unwrap());
}

fn finish(state: &mut State) {
    while !state.is_settled() {
        one_step(state);
    }
}

fn member_state(state: &State, node: NodeId) -> MemberState {
    state.members()[&node].member.state
}

fn adopted(node: NodeId, state: &State) -> Command {
    Command::Adopted { node, version: state.ring_version() }
}

fn copied(node: NodeId, state: &State) -> Command {
    let Step::Copying { version, .. } = state.step() else { panic!("{:?}", state.step()) };
    Command::Copied { node, target: *version }
}

#[test]
fn an_owner_is_one_when_it_has_the_data_and_all_know() {
    let (a, mut state) = (NodeId(0), founded());
    let ring = state.ring_version();
    let b = admit(&mut state, "b@h");
    assert_eq!(member_state(&state, b), MemberState::Joining);
    assert!(state.ring_version() > ring, "its members are part of what is published");
    commit(&mut state).unwrap();
    assert_eq!((member_state(&state, b), state.step()), (MemberState::Valid, &Step::AtRest));
    let next = state.heading().to_vec();
    // Nobody who does not know of it could pass on what it confirms.
    state.apply(&adopted(a, &state)).unwrap();
    assert_eq!(state.step(), &Step::AtRest);
    state.apply(&adopted(b, &state)).unwrap();
    let published = state.published();
    assert_eq!(published.target.as_ref().map(|ring| ring.owners().to_vec()), Some(next.clone()));
    assert_eq!((published.version, published.before.is_some()), (state.ring_version(), false));
    assert_eq!(published.ring.owners(), [a; 8]);
    let early = copied(b, &state);
    one_step(&mut state);
    assert_eq!((state.step(), state.owners()), (&Step::Switched { before: vec![a; 8] }, &next[..]));
    assert_eq!(state.apply(&early), Err(Rejected::Stale), "a copy counts once");
    let published = state.published();
    assert_eq!(published.before.map(|ring| ring.owners().to_vec()), Some(vec![a; 8]));
    assert!(published.target.is_none() && published.ring.owners() == next);
    one_step(&mut state);
    assert_eq!(state.step(), &Step::AtRest);
    assert!(!state.is_settled(), "all are to know that");
    one_step(&mut state);
    assert!(state.is_settled());
}

#[test]
fn reports_count_once_and_are_no_change_that_an_operator_could_miss() {
    let (a, mut state) = (NodeId(0), founded());
    let b = admit(&mut state, "b@h");
    let (version, late) = (state.version(), adopted(a, &state));
    state.apply(&late).unwrap();
    state.apply(&late).unwrap();
    assert_eq!(state.version(), version);
    assert!(state.has_adopted(a) && !state.has_adopted(b));
    assert_eq!(state.apply(&adopted(NodeId(9), &state)), Err(Rejected::NotMember));
    commit(&mut state).unwrap();
    assert_eq!(state.apply(&late), Err(Rejected::Stale), "another publication");
    finish(&mut state);
    assert_eq!(state.apply(&Command::Copied { node: a, target: RingVersion(1) }), Err(Rejected::Stale));
}

#[test]
fn a_leaving_member_owns_until_all_has_moved() {
    let mut state = founded();
    let b = admit(&mut state, "b@h");
    commit(&mut state).unwrap();
    finish(&mut state);
    stage(&mut state, b, Change::Leave).unwrap();
    assert_eq!(state.apply(&Command::Gone { node: b }), Err(Rejected::State(MemberState::Valid)));
    commit(&mut state).unwrap();
    while state.step() != &Step::AtRest {
        assert_eq!(member_state(&state, b), MemberState::Leaving);
        one_step(&mut state);
    }
    assert_eq!(member_state(&state, b), MemberState::Exiting);
    state.apply(&Command::Gone { node: b }).unwrap();
    assert!(!state.members().contains_key(&b));
    assert_eq!(admit(&mut state, "b@h"), NodeId(2), "a number is given once");
}

#[test]
fn who_is_removed_by_force_is_forgotten_when_others_have_what_it_owned() {
    let mut state = founded();
    let b = admit(&mut state, "b@h");
    commit(&mut state).unwrap();
    finish(&mut state);
    let c = admit(&mut state, "c@h");
    stage(&mut state, b, Change::ForceReplace(c)).unwrap();
    assert!(state.after_commit().iter().all(|member| member.id != b));
    commit(&mut state).unwrap();
    assert_eq!(member_state(&state, b), MemberState::Down);
    let started = Command::Started { node: b, starts: 9, start: 9, address: "h".into() };
    assert_eq!(state.apply(&started), Err(Rejected::NotMember), "it does not come back");
    finish(&mut state);
    assert!(!state.members().contains_key(&b) && state.owners().contains(&c));
    stage(&mut state, c, Change::ForceRemove).unwrap();
    assert_eq!(stage(&mut state, NodeId(0), Change::Leave), Err(Rejected::NobodyLeft));
    commit(&mut state).unwrap();
    finish(&mut state);
    assert_eq!((state.owners(), state.members().len()), (&[NodeId(0); 8][..], 1));
}

/// Three members, and a fourth that copies.
fn copying() -> (State, NodeId) {
    let mut state = founded();
    for name in ["b@h", "c@h"] {
        admit(&mut state, name);
    }
    commit(&mut state).unwrap();
    finish(&mut state);
    let d = admit(&mut state, "d@h");
    commit(&mut state).unwrap();
    one_step(&mut state);
    assert!(matches!(state.step(), Step::Copying { .. }));
    (state, d)
}

#[test]
fn who_is_declared_down_has_the_target_begun_again() {
    let (mut state, d) = copying();
    let (c, next) = (NodeId(2), state.heading().to_vec());
    let early = copied(d, &state);
    state.apply(&early).unwrap();
    state.apply(&Command::Down { expected: state.version(), node: c }).unwrap();
    assert_eq!((state.step(), state.heading()), (&Step::AtRest, &next[..]), "the plan is not forgotten");
    one_step(&mut state);
    assert_eq!(state.apply(&early), Err(Rejected::Stale), "what was copied, was not from all who give now");
    let target = state.published().target.unwrap();
    assert_eq!(target.members().get(c).unwrap().state, MemberState::Down);
    // It is back, with what nobody else may know: once more.
    let started = Command::Started { node: c, starts: 9, start: 9, address: "h".into() };
    state.apply(&started).unwrap();
    assert_eq!(state.step(), &Step::AtRest);
    finish(&mut state);
    assert_eq!(state.owners(), next);
}

#[test]
fn whoever_is_to_get_something_holds_the_change_up_while_it_is_down() {
    let (mut state, d) = copying();
    state.apply(&Command::Down { expected: state.version(), node: d }).unwrap();
    (0..3).for_each(|_| {
        state
            .due()
            .iter()
            .filter(|it| !matches!(it, Command::Copied { .. }))
            .for_each(|it| state.apply(it).unwrap())
    });
    assert_eq!(state.uncopied(), [NodeId(0), NodeId(1), NodeId(2), d]);
    for node in [0, 1, 2].map(NodeId) {
        state.apply(&copied(node, &state)).unwrap();
    }
    assert_eq!(state.uncopied(), [d]);
    // It is given up for lost, and others get what was to be its own.
    stage(&mut state, d, Change::ForceRemove).unwrap();
    commit(&mut state).unwrap();
    assert!(!state.members().contains_key(&d), "it owned nothing yet");
    finish(&mut state);
    assert_eq!(state.members().len(), 3);
}

#[test]
fn a_leaver_that_was_down_leaves_when_it_is_back() {
    let (mut state, _) = copying();
    finish(&mut state);
    let c = NodeId(2);
    stage(&mut state, c, Change::Leave).unwrap();
    commit(&mut state).unwrap();
    state.apply(&Command::Down { expected: state.version(), node: c }).unwrap();
    finish(&mut state);
    assert_eq!((member_state(&state, c), state.owners().contains(&c)), (MemberState::Down, false));
    let started = Command::Started { node: c, starts: 9, start: 9, address: "h".into() };
    state.apply(&started).unwrap();
    assert_eq!(member_state(&state, c), MemberState::Exiting);
}

#[test]
fn another_commit_takes_the_place_of_the_one_under_way() {
    let (mut state, d) = copying();
    stage(&mut state, d, Change::Leave).unwrap();
    commit(&mut state).unwrap();
    assert_eq!(state.step(), &Step::AtRest);
    assert_eq!(member_state(&state, d), MemberState::Exiting, "it never had anything");
    finish(&mut state);
    assert!(!state.owners().contains(&d));
}

#[test]
fn a_recovery_begins_what_was_being_copied_again() {
    let (mut state, d) = copying();
    let early = copied(d, &state);
    let next = state.heading().to_vec();
    state.recover(2);
    assert_eq!((state.step(), state.ring_version()), (&Step::AtRest, RingVersion(2 << EPOCH_SHIFT | 1)));
    one_step(&mut state);
    assert_eq!(state.apply(&early), Err(Rejected::Stale));
    finish(&mut state);
    assert_eq!(state.owners(), next);
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

#[test]
fn what_a_plan_is_not_made_from_does_not_make_it_old() {
    let mut state = founded();
    let b = admit(&mut state, "b@h");
    let plan = Command::Commit { expected: state.version(), owners: vec![b; 8] };
    // The newcomer has started, its shards go by what was published, and somebody has created a bucket type.
    state.apply(&Command::Started { node: b, starts: 1, start: 7, address: "h:9".into() }).unwrap();
    one_step(&mut state);
    let value = Some(Bytes::from_static(b"v"));
    state.apply(&Command::Slot { name: Bytes::from_static(b"s"), before: None, value }).unwrap();
    state.apply(&Command::Retire { actors: vec![3] }).unwrap();
    state.apply(&plan).unwrap();
    // Nor do steps of the plan before.
    stage(&mut state, NodeId(0), Change::Weigh(50)).unwrap();
    let plan = Command::Commit { expected: state.version(), owners: vec![NodeId(0); 8] };
    while !matches!(state.step(), Step::Switched { .. }) {
        one_step(&mut state);
    }
    state.apply(&plan).unwrap();
    let (stale, started) = (Command::Clear { expected: state.version() }, |starts| Command::Started {
        node: b,
        starts,
        start: 8,
        address: "h:9".into(),
    });
    state.apply(&Command::Down { expected: state.version(), node: b }).unwrap();
    assert_eq!(state.apply(&stale), Err(Rejected::Stale), "who is down decides where partitions go");
    let stale = Command::Clear { expected: state.version() };
    state.apply(&started(2)).unwrap();
    assert_eq!(state.apply(&stale), Err(Rejected::Stale), "and so does who is back");
}

#[test]
fn another_number_of_replicas_has_the_target_begun_again() {
    let (mut state, d) = copying();
    let next = state.heading().to_vec();
    let early = copied(d, &state);
    let slot = |name, before: Option<&'static [u8]>, value| Command::Slot {
        name: Bytes::from_static(name),
        before: before.map(Bytes::from_static),
        value: Some(Bytes::from_static(value)),
    };
    state.apply(&slot(b"another", None, b"3")).unwrap();
    assert!(matches!(state.step(), Step::Copying { .. }));
    state.apply(&slot(COPIED_SLOT, None, b"3")).unwrap();
    assert_eq!((state.step(), state.heading()), (&Step::AtRest, &next[..]));
    one_step(&mut state);
    assert_eq!(state.apply(&early), Err(Rejected::Stale), "what was copied is not all");
    let before = state.clone();
    state.apply(&slot(COPIED_SLOT, Some(b"3"), b"3")).unwrap();
    assert_eq!(state, before);
    finish(&mut state);
    assert_eq!(state.owners(), next);
    state.apply(&slot(COPIED_SLOT, Some(b"3"), b"5")).unwrap();
    assert!(state.is_settled());
}

fn random_command(rng: &mut SplitMix64, state: &State) -> Command {
    let expected = state.version() - u64::from(rng.chance(1, 10));
    let node = NodeId(u16::try_from(rng.below(8)).unwrap());
    let by = NodeId(u16::try_from(rng.below(8)).unwrap());
    if rng.chance(1, 2)
        && let due = state.due()
        && !due.is_empty()
    {
        return due[usize::try_from(rng.below(due.len() as u64)).unwrap()].clone();
    }
    match rng.below(21) {
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
            let size = state.staged_size().unwrap_or(state.heading_size());
            Command::Commit { expected, owners: size.all().map(|_| owner()).collect() }
        }
        7 => Command::Adopted { node, version: late_version(rng, state.ring_version()) },
        8 => match state.step() {
            Step::Copying { version, .. } => Command::Copied { node, target: late_version(rng, *version) },
            _ => Command::Copied { node, target: state.ring_version() },
        },
        9 => Command::Gone { node },
        10 => Command::Down { expected, node },
        11 => Command::Started {
            node,
            starts: u32::try_from(rng.below(50)).unwrap(),
            start: 1,
            address: "h".into(),
        },
        12 => Command::StageRing { expected, size: size(8 << rng.below(3)) },
        13..=17 => random_consistent(rng, state),
        18 | 19 => policy::random_change(rng, state),
        _ => {
            let name = Bytes::from(rng.below(3).to_string());
            let before = state.slot(&name).cloned();
            let value = rng.chance(2, 3).then(|| Bytes::from(rng.below(9).to_string()));
            Command::Slot { name, before, value }
        }
    }
}

/// A command about stores or groups. Groups are founded late in half of all lives, since partitions move no more then.
fn random_consistent(rng: &mut SplitMix64, state: &State) -> Command {
    let expected = state.version() - u64::from(rng.chance(1, 10));
    let n_val = u8::try_from(1 + rng.below(4)).unwrap();
    match rng.below(400) {
        0..=19 => Command::PrepareStores,
        20..=99 => Command::FoundGroups { expected, n_val, number: rng.next_u64() },
        100..=119 => {
            let epoch = state.founding(n_val).map_or(0, |it| it.epoch);
            Command::RaiseEpoch { n_val, expected: epoch + u16::from(rng.chance(1, 4)) }
        }
        _ => {
            let nodes: Vec<NodeId> = state.members().keys().copied().collect();
            let node = nodes[usize::try_from(rng.below(nodes.len() as u64)).unwrap()];
            let record = &state.members()[&node];
            let starts = record.starts + u32::from(rng.chance(1, 8));
            let births = (0..rng.below(4)).map(|_| Birth::draw(rng)).collect();
            let stores = StoreBirths { ring_bits: u8::try_from(3 + rng.below(6)).unwrap(), births };
            Command::RegisterStores { node, starts, start: record.start, stores }
        }
    }
}

fn late_version(rng: &mut SplitMix64, version: RingVersion) -> RingVersion {
    RingVersion(version.0 - u64::from(rng.chance(1, 4)))
}

/// What members know and have, by their own reports: a model of what [`Step`] promises.
struct Witness {
    /// The version that each goes by.
    goes_by: BTreeMap<NodeId, RingVersion>,
    /// Who has copied for which target.
    has: BTreeSet<(NodeId, RingVersion)>,
    /// Since when the step has been published that is in force.
    since: RingVersion,
}

impl Witness {
    fn look(&mut self, command: &Command, applied: bool, before: &State, after: &State) {
        match command {
            Command::Adopted { node, version } if applied => drop(self.goes_by.insert(*node, *version)),
            Command::Copied { node, target } => drop(self.has.insert((*node, *target))),
            _ => {}
        }
        if after.ring_version() != before.ring_version() {
            assert_eq!(after.ring_version().0, before.ring_version().0 + 1);
        }
        if let Command::FoundGroups { n_val, .. } = command
            && applied
            && before.founding(*n_val).is_none()
        {
            let founding = after.founding(*n_val).unwrap();
            assert_eq!(*founding.owners, *before.owners());
            for owner in before.owners() {
                let record = &before.members()[owner];
                let it = before.registration(*owner).expect("each owner has registered its stores");
                assert_eq!((it.starts, it.start), (record.starts, record.start));
                assert_eq!(founding.stores[owner], it.stores);
            }
        }
        if before.foundings().next().is_some() {
            assert_eq!(after.heading(), before.owners(), "partitions of groups stay");
        }
        let is_same = match (before.step(), after.step()) {
            (Step::Copying { version, .. }, Step::Copying { version: other, .. }) => version == other,
            (here, there) => here == there,
        };
        if is_same {
            return assert_eq!(before.owners(), after.owners(), "owners change with a step alone");
        }
        let legal = matches!(
            (before.step(), after.step()),
            (Step::AtRest, Step::Copying { .. })
                | (Step::Copying { .. }, Step::Switched { .. } | Step::AtRest)
                | (Step::Switched { .. }, Step::AtRest)
        );
        assert!(legal, "{:?} after {:?}", after.step(), before.step());
        if !matches!((before.step(), after.step()), (Step::Copying { .. }, Step::AtRest)) {
            // All whom others wait for go by the step before, so none goes by an older one.
            for record in
                after.members().values().filter(|it| it.is_live() && it.member.state != MemberState::Joining)
            {
                let knows = self.goes_by.get(&record.member.id).is_some_and(|by| *by >= self.since);
                assert!(
                    knows || self.since == founded().ring_version(),
                    "{record:?} does not know the step before"
                );
            }
        }
        if let (Step::Copying { target, version, .. }, Step::Switched { .. }) = (before.step(), after.step())
        {
            assert_eq!(after.owners(), target);
            let ratio = target.len() / before.owners().len();
            for (at, node) in target.iter().enumerate() {
                let owner = before.owners()[at / ratio];
                assert!(*node == owner || self.has.contains(&(*node, *version)), "{node} has nothing of it");
            }
        }
        self.since = after.ring_version();
    }
}

/// Whether groups were founded in it.
fn random_life(seed: u64) -> bool {
    let mut rng = SplitMix64::new(seed);
    let mut state = founded();
    let since = state.ring_version();
    let mut witness = Witness { goes_by: BTreeMap::new(), has: BTreeSet::new(), since };
    let (mut changes, mut records) = (0, BTreeMap::new());
    for _ in 0..300 {
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
        witness.look(&command, applied.is_ok(), &before, &state);
        policy::follow_model(&mut records, &command, applied.is_ok(), (&before, &state));
        assert!(state.ring_version() >= before.ring_version());
        state.check();
        let published = state.published();
        assert_eq!(published.ring.version(), state.ring_version());
        assert_eq!(state.published_after(&before.published()), published);
        assert_eq!(State::decode(state.encode()), Ok(state.clone()));
    }
    assert!(changes > 10, "seed {seed}: {changes} changes");
    finish(&mut state);
    state.foundings().next().is_some()
}

#[test]
fn random_commands_keep_the_invariants() {
    let founded = (0..200).filter(|&seed| random_life(seed)).count();
    assert!((20..=100).contains(&founded), "groups were founded in {founded} lives of 200");
}

#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_caught() {
    use base::planted::{Planted, plant};
    for bug in [Planted::SwitchedUncopied, Planted::CopyCountedTwice] {
        let complaint = (0..200).find_map(|seed| {
            plant(Some(bug));
            let caught = std::panic::catch_unwind(|| random_life(seed)).err();
            plant(None);
            caught.map(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
        });
        assert!(
            complaint.as_ref().is_some_and(|it| it.contains("has nothing of it")),
            "{bug:?}: {complaint:?}"
        );
    }
}

const MEMBERS: [&[u8]; 2] = [
    b"\0\0\x03a@h\x01z\x03h:1\x64\0\x01\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\x01\0\x03b@h\0\x03h:2\x64\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
];

const VALID_B: &[u8] = b"\x01\0\x03b@h\0\x03h:2\x64\0\x01\0\0\0\0\0\0\0\0\0\0\0\0";

#[test]
fn golden_bytes() {
    let mut state = founded();
    let b = admit(&mut state, "b@h");
    stage(&mut state, NodeId(0), Change::Replace(b)).unwrap();
    let fields: [&[u8]; 11] = [
        b"\x03\x07\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0\0\x01\0\0\x08\0\0\0\x80\0\0\0\x02\0",
        b"\x02",
        MEMBERS[0],
        b"\0",
        MEMBERS[1],
        b"\0",
        b"\x01\x08\0\0",
        b"\0\0\0",
        b"\x02\0\0\x02\x01\0\x01\0\0\0\0",
        b"\0\0\0\0",
        b"\0\0",
    ];
    assert_eq!(state.encode(), fields.concat());
    commit(&mut state).unwrap();
    state.apply(&adopted(b, &state)).unwrap();
    let fields: [&[u8]; 11] = [
        b"\x03\x07\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x03\0\0\0\0\x01\0\0\x08\0\0\0\x80\0\0\0\x02\0",
        b"\x02",
        b"\0\0\x03a@h\x01z\x03h:1\x64\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\x01",
        b"\x01\0\x03b@h\0\x03h:2\x64\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"\x01\x08\0\0",
        b"\0",
        b"\x01\x01\x08\x01\0",
        b"\x01\x01\0",
        b"\0",
        b"\0\0\0\0",
        b"\0\0",
    ];
    assert_eq!(state.encode(), fields.concat());
    state.apply(&adopted(NodeId(0), &state)).unwrap();
    state.apply(&copied(b, &state)).unwrap();
    let step: &[u8] = b"\x01\x08\0\0\x01\x01\x08\x01\0\x04\0\0\0\0\x01\0\0\x01\x01\0\0\0\0\0\0\0\0\0\0";
    assert!(state.encode().ends_with(step));
    one_step(&mut state);
    assert!(state.encode().ends_with(b"\x01\x08\x01\0\x02\x01\x08\0\0\0\0\0\0\0\0\0\0\0"));
}

#[test]
fn golden_bytes_of_reports() {
    let bytes = |command: Command| {
        let mut out = BytesMut::new();
        command.encode(&mut out);
        out
    };
    let (node, version) = (NodeId(0x0102), RingVersion(0x0100_0000_0003));
    assert_eq!(&bytes(Command::Adopted { node, version })[..], b"\x0b\x02\x01\x03\0\0\0\0\x01\0\0");
    assert_eq!(&bytes(Command::Copied { node, target: version })[..], b"\x0c\x02\x01\x03\0\0\0\0\x01\0\0");
    let grows = Command::StageRing { expected: 3, size: size(1_024) };
    assert_eq!(&bytes(grows)[..], b"\x0d\x03\0\0\0\0\0\0\0\0\x04\0\0");
}

#[test]
fn a_state_of_the_format_before_is_read() {
    let fields: [&[u8]; 8] = [
        b"\x01\x07\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0\0\x01\0\0\x08\0\0\0\x02\0",
        b"\x02",
        MEMBERS[0],
        MEMBERS[1],
        b"\x01\x08\0\0",
        b"\0",
        b"\x02\0\0\x02\x01\0\x01\0\0\0\0",
        b"\0\0",
    ];
    // Keys were ordered by partitions.
    let founded = || State::found_by(ClusterId(7), (size(8), size(8)), [("a@h", "h:1", "z")]).unwrap();
    let mut state = founded();
    let b = admit(&mut state, "b@h");
    stage(&mut state, NodeId(0), Change::Replace(b)).unwrap();
    assert_eq!(State::decode(Bytes::from(fields.concat())), Ok(state.clone()));
    let of_one_size: [&[u8]; 10] = [
        b"\x02\x07\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0\0\x01\0\0\x08\0\0\0\x02\0",
        b"\x02",
        MEMBERS[0],
        b"\0",
        MEMBERS[1],
        b"\0",
        b"\x01\x08\0\0",
        b"\0\0\0",
        b"\x02\0\0\x02\x01\0\x01\0\0\0\0",
        b"\0\0",
    ];
    assert_eq!(State::decode(Bytes::from(of_one_size.concat())), Ok(state));
    // One partition was on its way to a member that owned none.
    let moving = [&fields.concat()[..31], b"\x02", MEMBERS[0], VALID_B].concat();
    let moving = [&moving[..], b"\x01\x08\0\0", b"\x01\x03\x01\0", b"\0", b"\0\0"].concat();
    let state = State::decode(Bytes::from(moving)).unwrap();
    let mut next = [NodeId(0); 8];
    next[3] = b;
    assert_eq!((state.step(), state.heading(), state.is_settled()), (&Step::AtRest, &next[..], false));
}

#[test]
fn a_ring_grows_by_the_steps_of_any_change() {
    let mut state = founded();
    admit(&mut state, "b@h");
    commit(&mut state).unwrap();
    finish(&mut state);
    let grow = |state: &State, to| Command::StageRing { expected: state.version(), size: size(to) };
    let refused = Rejected::Size { has: 8, most: 128 };
    assert_eq!(state.apply(&grow(&state, 8)), Err(refused));
    assert_eq!(state.apply(&grow(&state, 256)), Err(refused));
    state.apply(&grow(&state, 16)).unwrap();
    state.apply(&grow(&state, 32)).unwrap();
    assert_eq!((state.staged_size(), state.size()), (Some(size(32)), size(8)));
    let expected = state.version();
    assert_eq!(state.apply(&Command::Commit { expected, owners: vec![NodeId(0); 8] }), Err(Rejected::Owners));
    assert_eq!(State::decode(state.encode()), Ok(state.clone()));
    let same = State { staged_size: Some(size(8)), ..state.clone() };
    assert_eq!(State::decode(same.encode()), Err(Malformed("a ring that cannot be")));
    let mut cleared = state.clone();
    cleared.apply(&Command::Clear { expected }).unwrap();
    assert_eq!((cleared.staged_size(), commit(&mut cleared)), (None, Err(Rejected::NothingStaged)));

    let plan = state.plan(4).unwrap();
    assert_eq!((plan.size, plan.owners.len(), plan.moved, plan.copies.copies), (size(32), 32, 0, 0));
    state.apply(&plan.command()).unwrap();
    let sizes = |state: &State| {
        let published = state.published();
        let size = |ring: &Arc<ring::Ring>| ring.size().partitions();
        (published.before.as_ref().map(size), size(&published.ring), published.target.as_ref().map(size))
    };
    assert_eq!((state.size(), state.heading_size()), (size(8), size(32)));
    assert_eq!(state.apply(&grow(&state, 64)), Err(Rejected::Moving));
    let mut seen = vec![sizes(&state)];
    while !state.is_settled() {
        one_step(&mut state);
        assert_eq!(State::decode(state.encode()), Ok(state.clone()));
        seen.push(sizes(&state));
    }
    seen.dedup();
    // All had adopted what was there before, so it begins at once.
    let steps = [(None, 8, Some(32)), (Some(8), 32, None), (None, 32, None)];
    assert_eq!(seen, steps);
    assert_eq!(state.size(), size(32));
    // A newcomer gets its share of the ring that has grown, and no more. Three nodes are at a distance of three only in
    // turn, so the two exchange some of what they have, too.
    let newcomer = admit(&mut state, "c@h");
    let plan = state.plan(4).unwrap();
    let share = plan.parts[&newcomer].will_own;
    assert!(share <= 11 && plan.moved <= 18, "it gets {share}, {} move", plan.moved);
}

#[test]
fn a_ring_that_grows_is_given_up_like_any_target() {
    let mut state = founded();
    admit(&mut state, "b@h");
    commit(&mut state).unwrap();
    finish(&mut state);
    state.apply(&Command::StageRing { expected: state.version(), size: size(16) }).unwrap();
    commit(&mut state).unwrap();
    while !matches!(state.step(), Step::Copying { .. }) {
        one_step(&mut state);
    }
    state.apply(&Command::Down { expected: state.version(), node: NodeId(1) }).unwrap();
    assert_eq!((state.step(), state.size(), state.heading_size()), (&Step::AtRest, size(8), size(16)));
    let started = Command::Started { node: NodeId(1), starts: 1, start: 1, address: "h".into() };
    state.apply(&started).unwrap();
    finish(&mut state);
    assert_eq!(state.size(), size(16));
}

#[test]
fn damaged_states_make_no_panic() {
    let mut state = founded();
    admit(&mut state, "b@h");
    commit(&mut state).unwrap();
    one_step(&mut state);
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
