//! The lives of clusters.

use super::*;
use crate::log::persist::COMPACT_AFTER;
use crate::state::StoreBirths;
use ring::Birth;

/// Something that an operator, a node or a program might ask for in this state.
fn some_command(world: &mut World, state: &State) -> Command {
    let expected = state.version();
    let members: Vec<NodeId> = state.members().keys().copied().collect();
    let node = members[usize::try_from(world.rng.below(members.len() as u64)).unwrap()];
    let newcomer =
        state.members().values().find(|it| it.member.state == MemberState::Joining).map(|it| it.member.id);
    let valid = state.members().values().filter(|it| it.member.state == MemberState::Valid).count();
    match world.rng.below(16) {
        0 | 1 if valid > 3 => Command::Stage { expected, node, change: Change::Leave },
        2 if newcomer.is_some() => {
            Command::Stage { expected, node, change: Change::Replace(newcomer.unwrap_or(node)) }
        }
        3 => Command::Stage { expected, node, change: Change::Weigh(50) },
        4 if world.rng.chance(1, 4) => Command::Clear { expected },
        5..=7 => Command::Commit { expected, owners: claim(state) },
        8 | 9 => state.due().into_iter().next().unwrap_or(Command::Clear { expected: 0 }),
        10 => {
            let exiting = state.members().values().find(|it| it.member.state == MemberState::Exiting);
            Command::Gone { node: exiting.map_or(node, |it| it.member.id) }
        }
        11 if world.rng.chance(1, 4) => Command::Down { expected, node },
        12 | 13 => about_groups(world, state, node),
        _ => {
            let name = Bytes::from(format!("slot {}", world.token));
            Command::Slot { name, before: None, value: Some(Bytes::from_static(b"value")) }
        }
    }
}

/// A member registers its stores, or groups are founded: rarely, since partitions move no more then.
fn about_groups(world: &mut World, state: &State, node: NodeId) -> Command {
    if !state.registers_stores() {
        return Command::PrepareStores;
    }
    if world.rng.chance(1, 10) {
        return Command::FoundGroups { expected: state.version(), n_val: 3, number: world.rng.next_u64() };
    }
    let record = &state.members()[&node];
    let births = [Birth::draw(&mut world.rng)].into();
    let stores = StoreBirths { ring_bits: 4, births };
    Command::RegisterStores { node, starts: record.starts, start: record.start, stores }
}

/// Joins, leaves, replacements, crashes at every write, cuts and losses; then all is well again. Whether stores were
/// registered.
fn a_life(seed: u64) -> bool {
    let nodes = 3 + u16::try_from(seed % 6).unwrap();
    let mut world = World::of(seed, nodes);
    for _ in 0..60 {
        world.lost_of_thousand = world.rng.below(200);
        world.torn_one_in = [0, 20, 60][usize::try_from(world.rng.below(3)).unwrap()];
        let at = usize::try_from(world.rng.below(world.nodes.len() as u64)).unwrap();
        match world.rng.below(12) {
            0 => world.kill(at),
            1 | 2 => world.start(at),
            3 => {
                let other = usize::try_from(world.rng.below(world.nodes.len() as u64)).unwrap();
                world.cuts.extend([(at, other), (other, at)]);
            }
            4 => {
                // Nobody is heard by it; half of the time it is not heard either.
                world.cuts.extend((0..world.nodes.len()).map(|other| (other, at)));
                if world.rng.chance(1, 2) {
                    world.cuts.extend((0..world.nodes.len()).map(|other| (at, other)));
                }
            }
            5 | 6 => world.cuts.clear(),
            7 if world.nodes.len() < 14 => admit_or_not(&mut world),
            _ => {}
        }
        for at in world.live() {
            if let Some(state) = world.log(at).state().cloned().filter(|_| world.rng.chance(1, 3)) {
                let command = some_command(&mut world, &state);
                world.propose_at(at, command);
            }
        }
        let steps = 1 + world.rng.below(8);
        world.run(steps);
    }
    world.cuts.clear();
    (world.lost_of_thousand, world.torn_one_in) = (0, 0);
    (0..world.nodes.len()).for_each(|at| world.start(at));
    world.run(240);
    let context = format!("seed {seed}");
    world.assert_settled(&context);
    world.assert_acknowledged_is_there(&context);
    let slot = Command::Slot { name: Bytes::from_static(b"end"), before: None, value: Some(Bytes::new()) };
    assert_eq!(world.propose(|_| slot), Ok(()), "{context}");
    world.state(world.leader().unwrap()).registers_stores()
}

/// A node asks to join; when it hears that it may, it starts.
fn admit_or_not(world: &mut World) {
    let Some(leader) = world.leader() else { return };
    let state = world.state(leader).clone();
    let name = format!("x{}@h", world.token);
    let token = world.propose_at(
        leader,
        Command::Admit {
            expected: state.version(),
            name: name.clone(),
            address: "h".into(),
            zone: "z".into(),
            weight: 100,
        },
    );
    world.run(2);
    let admitted = world.live().into_iter().find_map(|at| {
        let members = world.log(at).state()?.members();
        members.values().find(|it| *it.member.name == *name).map(|it| it.member.id)
    });
    if world.answers.get(&token) == Some(&Ok(()))
        && let Some(id) = admitted
    {
        world.join(id);
    }
}

#[test]
fn lives_of_clusters() {
    let registered = (0..30).filter(|&seed| a_life(seed)).count();
    assert!(registered >= 20, "stores were registered in {registered} lives of 30");
}

#[cfg(feature = "planted")]
fn is_caught(bug: base::planted::Planted, life: impl Fn(u64) + std::panic::RefUnwindSafe) -> bool {
    base::planted::plant(Some(bug));
    let caught = (0..20).any(|seed| std::panic::catch_unwind(|| life(seed)).is_err());
    base::planted::plant(None);
    caught
}

#[test]
fn any_member_takes_a_proposal() {
    // With this seed none of the proposals comes twice, which would be refused.
    let mut world = World::of(21, 8);
    let tokens: Vec<u64> = (0..8)
        .map(|at| {
            let (name, value) = (Bytes::from(format!("slot {at}")), Some(Bytes::new()));
            world.propose_at(at, Command::Slot { name, before: None, value })
        })
        .collect();
    // Some messages take ten seconds.
    world.run(12);
    assert!(tokens.iter().all(|token| world.answers.get(token) == Some(&Ok(()))), "{:?}", world.answers);
    let leader = world.leader().unwrap();
    assert!(world.state(leader).members().values().all(|it| it.starts > 0), "each start is registered");
}

#[test]
fn a_start_is_registered_as_soon_as_somebody_can_be_asked() {
    let mut world = World::of(16, 8);
    let leader = world.leader().unwrap();
    let votes = |world: &World, at: usize| world.log(leader).voters().contains(&world.nodes[at].id);
    let voter = (0..8).find(|&at| at != leader && votes(&world, at)).unwrap();
    let other = (0..8).find(|&at| !votes(&world, at)).unwrap();
    for at in [voter, other] {
        world.kill(at);
        world.run(1);
        world.start(at);
    }
    world.run(2);
    for at in [voter, other] {
        let record = &world.state(leader).members()[&world.nodes[at].id];
        let identity = world.log(at).identity();
        assert_eq!((record.starts, record.start), (identity.starts, identity.start), "node {at}");
    }
    // One that leads nobody but itself registers in its first step.
    let mut world = World::new(17);
    assert_eq!(world.state(0).members()[&NodeId(0)].starts, 1);
    world.kill(0);
    world.start(0);
    world.step(0, 0, Input::Tick);
    assert_eq!(world.state(0).members()[&NodeId(0)].starts, 2);
}

#[test]
fn what_nobody_could_read_is_refused() {
    let mut world = World::of(15, 3);
    let zone = "z".repeat(crate::state::TEXT_BYTES_MAX + 1);
    let (name, address) = ("new@h".to_owned(), "h:9".to_owned());
    let admit = |state: &State| Command::Admit { expected: state.version(), name, address, zone, weight: 1 };
    assert_eq!(world.propose(admit), Err(Failed::Rejected(Rejected::Text)));
}

/// A leader that is cut off is asked for a change, while the others elect another.
fn a_leader_is_cut_off(seed: u64) {
    let mut world = World::of(seed, 5);
    let leader = world.leader().unwrap();
    for other in (0..5).filter(|other| *other != leader) {
        world.cuts.extend([(leader, other), (other, leader)]);
    }
    let slot = |name: &'static [u8]| {
        let (name, value) = (Bytes::from_static(name), Some(Bytes::new()));
        Command::Slot { name, before: None, value }
    };
    let token = world.propose_at(leader, slot(b"there"));
    world.run(10);
    let next = world.leader().unwrap();
    assert_ne!(next, leader, "the others have elected one, and it has noticed that it leads nobody");
    let other = world.propose_at(next, slot(b"here"));
    world.run(10);
    world.cuts.clear();
    world.run(20);
    world.assert_settled("healed");
    assert_eq!(world.answers[&token], Err(Failed::Unknown));
    assert_eq!(world.answers[&other], Ok(()));
    assert_eq!(world.state(next).slot(b"there"), None);
}

#[test]
fn a_leader_that_is_cut_off_commits_nothing() {
    (0..10).for_each(a_leader_is_cut_off);
}

/// A snapshot arrives after the ring has changed twice.
fn what_comes_late(seed: u64) {
    let mut world = World::of(seed, 3);
    let leader = world.leader().unwrap();
    let follower = (leader + 1) % 3;
    let snapshot = Message::Snapshot(world.log(leader).snapshot());
    let late = snapshot.encode(&world.log(leader).envelope());
    world.admit();
    world.commit_staged();
    world.run(20);
    let ring = world.state(follower).ring_version();
    world.step(follower, leader, Input::Message(late));
    assert_eq!(world.state(follower).ring_version(), ring);
    world.run(10);
    world.finish_moves();
    world.run(30);
    world.assert_settled("in the end");
}

#[test]
fn a_ring_that_comes_late_is_not_taken() {
    (0..5).for_each(what_comes_late);
}

#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_caught() {
    use base::planted::Planted;
    assert!(is_caught(Planted::CommittedEntryLost, a_leader_is_cut_off));
    assert!(is_caught(Planted::StaleSnapshotAccepted, what_comes_late));
    assert!(is_caught(Planted::RestoredVotes, |_| restored_twice_started()));
    assert!(is_caught(Planted::RestoredLogVotes, restored::different_moments));
}

#[test]
fn a_cluster_grows_shrinks_and_chooses_its_voters() {
    let mut world = World::of(1, 1);
    assert_eq!(world.log(0).voters().len(), 1);
    let mut world_of = |nodes: u16| {
        while world.nodes.len() < usize::from(nodes) {
            world.admit();
        }
        world.commit_staged();
        world.run(30);
        world.finish_moves();
        world.run(60);
        world.assert_settled("grown");
        let leader = world.leader().unwrap();
        let state = world.state(leader);
        let zones: BTreeSet<&str> =
            world.log(leader).voters().iter().map(|voter| &*state.members()[voter].member.zone).collect();
        assert_eq!(zones.len(), world.log(leader).voters().len().min(3), "voters are spread over zones");
    };
    world_of(3);
    world_of(7);
    // Two leave; what they own is theirs until it has moved.
    for node in [1, 2].map(NodeId) {
        let leave = |state: &State| Command::Stage { expected: state.version(), node, change: Change::Leave };
        assert_eq!(world.propose(leave), Ok(()));
    }
    world.commit_staged();
    let leader = world.leader().unwrap();
    assert!(world.state(leader).owners().contains(&NodeId(1)));
    world.finish_moves();
    let leader = world.leader().unwrap();
    assert!(!world.state(leader).owners().contains(&NodeId(1)));
    assert_eq!(world.state(leader).members()[&NodeId(1)].member.state, MemberState::Exiting);
    world.run(60);
    for node in [1, 2].map(NodeId) {
        assert_eq!(world.propose(|_| Command::Gone { node }), Ok(()));
    }
    world.run(30);
    world.assert_settled("two have left");
    assert!(
        world.nodes[1].told.is_empty()
            || world.nodes[1].told.iter().all(|it| matches!(it, Refusal::NotMember { .. }))
    );
}

#[test]
fn a_voter_that_is_gone_is_replaced() {
    let mut world = World::of(2, 5);
    let gone = usize::from(world.log(world.leader().unwrap()).voters().first().unwrap().0);
    world.kill(gone);
    world.run(voters::VOTER_DOWN_MAX.as_secs() + 60);
    world.assert_settled("healed");
    let id = world.nodes[gone].id;
    assert!(!world.log(world.leader().unwrap()).voters().contains(&id));
    world.start(gone);
    world.run(30);
    world.assert_settled("it came back");
}

#[test]
fn a_quiet_cluster_says_little_and_writes_nothing() {
    let mut world = World::of(3, 9);
    let disks: Vec<Bytes> = world.nodes.iter().map(|node| node.disk.clone()).collect();
    world.messages = 0;
    world.run(60);
    // The leader's heartbeats to four and their answers, and a poll by each in five seconds.
    let heartbeats = SECOND.div_ceil(u64::try_from(HEARTBEAT_EVERY.as_nanos()).unwrap());
    assert!(world.messages <= 60 * (heartbeats * 4 * 2 + 2) + 9 * 13, "{} messages", world.messages);
    assert!(world.nodes.iter().map(|node| &node.disk).eq(&disks), "nothing was written");
}

#[test]
fn those_who_missed_little_get_little() {
    let mut world = World::of(4, 8);
    let leader = world.leader().unwrap();
    let away = (0..8).find(|&at| !world.log(leader).voters().contains(&world.nodes[at].id)).unwrap();
    world.kill(away);
    world.run(5);
    for slot in 0..10 {
        let name = Bytes::from(format!("slot {slot}"));
        let value = Some(Bytes::from(vec![7; 1_000]));
        assert_eq!(world.propose(|_| Command::Slot { name, before: None, value }), Ok(()));
    }
    world.start(away);
    let base = world.log(away).store().base.index;
    world.run(20);
    world.assert_settled("it caught up");
    assert_eq!(world.log(away).store().base.index, base, "entries came, not the state");
}

/// Groups are founded on five nodes, one of which hears of that as a whole and later; then all are started again.
#[test]
fn first_voters_are_the_same_at_all_nodes() {
    let mut world = World::of(18, 5);
    let leader = world.leader().unwrap();
    let away = (0..5).find(|&at| !world.log(leader).voters().contains(&world.nodes[at].id)).unwrap();
    assert_eq!(world.propose(|_| Command::PrepareStores), Ok(()));
    for node in (0..5).map(NodeId) {
        let register = |state: &State| {
            let record = &state.members()[&node];
            let births = [Birth::of(u64::from(node.0) + 1).unwrap()].into();
            let stores = StoreBirths { ring_bits: 4, births };
            Command::RegisterStores { node, starts: record.starts, start: record.start, stores }
        };
        assert_eq!(world.propose(register), Ok(()));
    }
    world.run(10);
    world.kill(away);
    let found = |state: &State| Command::FoundGroups { expected: state.version(), n_val: 3, number: 7 };
    assert_eq!(world.propose(found), Ok(()));
    for round in 0..COMPACT_AFTER {
        let (name, value) = (Bytes::from(round.to_string()), Some(Bytes::new()));
        assert_eq!(world.propose(|_| Command::Slot { name, before: None, value }), Ok(()));
    }
    let voters = world.state(world.leader().unwrap()).first_voters(3, 9).unwrap();
    assert_eq!(voters.len(), 3);
    (0..5).for_each(|at| world.kill(at));
    (0..5).for_each(|at| world.start(at));
    world.run(60);
    world.assert_settled("all were started again");
    for at in 0..5 {
        assert_eq!(world.state(at).first_voters(3, 9), Some(voters.clone()));
        let registration = world.state(at).registration(world.nodes[at].id);
        assert_eq!(registration, None, "this process has not registered its stores");
    }
}

#[test]
fn a_long_log_is_replaced_by_its_state() {
    let mut world = World::of(5, 3);
    for round in 0..COMPACT_AFTER + 50 {
        let name = Bytes::from_static(b"slot");
        let before = (round > 0).then(|| Bytes::from((round - 1).to_string()));
        let value = Some(Bytes::from(round.to_string()));
        assert_eq!(world.propose(|_| Command::Slot { name, before, value }), Ok(()));
    }
    world.run(10);
    for at in 0..3 {
        assert!(world.log(at).store().base.index > 1);
        assert!(world.nodes[at].disk.len() < 60_000, "{} bytes", world.nodes[at].disk.len());
        world.kill(at);
    }
    world.run(1);
    (0..3).for_each(|at| world.start(at));
    world.run(20);
    world.assert_settled("all were started again");
    let leader = world.leader().unwrap();
    assert_eq!(world.state(leader).slot(b"slot"), Some(&Bytes::from((COMPACT_AFTER + 49).to_string())));
}

#[test]
fn a_lost_majority_is_given_up_on_purpose_only() {
    let mut world = World::of(6, 5);
    let voters: Vec<usize> =
        world.log(world.leader().unwrap()).voters().iter().map(|voter| usize::from(voter.0)).collect();
    assert_eq!(voters.len(), 3);
    // The last change reaches the voters alone.
    for voter in &voters[..2] {
        world.kill(*voter);
    }
    let survivor = voters[2];
    world.run(20);
    assert!(world.leader().is_none());
    let refused = Command::Clear { expected: world.state(survivor).version() };
    let token = world.propose_at(survivor, refused);
    world.run(15);
    assert!(world.answers[&token].is_err());
    world.step(survivor, survivor, Input::Recover { word: "yes".into() });
    assert_eq!(world.log(survivor).epoch().number, 1, "not by any word");
    let ring = world.state(survivor).ring_version();
    let word = world.log(survivor).safety_word();
    world.step(survivor, survivor, Input::Recover { word });
    world.run(60);
    assert_eq!(world.leader(), Some(survivor));
    assert!(world.state(survivor).ring_version() > ring);
    for voter in &voters[..2] {
        let node = NodeId(u16::try_from(*voter).unwrap());
        let remove =
            |state: &State| Command::Stage { expected: state.version(), node, change: Change::ForceRemove };
        assert_eq!(world.propose(remove), Ok(()));
    }
    world.commit_staged();
    world.run(60);
    world.assert_settled("recovered");
    assert!(world.live().into_iter().all(|at| world.log(at).epoch().number == 2));
    // The lost ones come back: they are no members any more, and change nothing.
    world.start(voters[0]);
    world.start(voters[1]);
    world.run(60);
    assert!(world.nodes[voters[0]].ring <= world.state(survivor).ring_version().0);
    assert_eq!(world.leader(), Some(survivor));
}

#[test]
fn two_recoveries_do_not_mix() {
    let mut world = World::of(7, 4);
    let voters: Vec<usize> =
        world.log(world.leader().unwrap()).voters().iter().map(|voter| usize::from(voter.0)).collect();
    for one in 0..4 {
        world.cuts.extend((0..4).filter(|other| *other != one).map(|other| (one, other)));
    }
    for voter in &voters[..2] {
        let word = world.log(*voter).safety_word();
        world.step(*voter, *voter, Input::Recover { word });
    }
    world.run(30);
    world.cuts.clear();
    // Nobody else may follow both; here the rings are equal, so that it does not matter which one they follow.
    world.run(30);
    let forked = |at: &usize| world.nodes[*at].told.iter().any(|it| matches!(it, Refusal::Fork { .. }));
    assert!(forked(&voters[0]) && forked(&voters[1]));
    let word = world.log(voters[0]).safety_word();
    world.step(voters[0], voters[0], Input::Recover { word });
    world.run(90);
    assert!(world.live().into_iter().all(|at| world.log(at).epoch().number == 3));
    world.assert_settled("one history");
}

#[test]
fn another_cluster_and_another_version_are_refused() {
    let mut world = World::of(8, 3);
    let mut envelope = world.log(1).envelope();
    envelope.cluster = ClusterId(0xC2);
    let mut vote = raft::eraftpb::Message::default();
    vote.set_msg_type(raft::eraftpb::MessageType::MsgRequestVote);
    (vote.term, vote.index, vote.log_term) = (99, 999, 99);
    let message = Message::Consensus(vote.into());
    world.step(0, 1, Input::Message(message.encode(&envelope)));
    let refusal = Refusal::Cluster { ours: CLUSTER, theirs: ClusterId(0xC2) };
    let mut other = message.encode(&world.log(1).envelope()).to_vec();
    other[0] = 3;
    world.step(0, 1, Input::Message(other.into()));
    let refusals = [refusal, Refusal::Version { ours: VERSION, theirs: 3 }];
    assert_eq!(world.nodes[0].refused, refusals);
    world.run(1);
    assert!(refusals.iter().all(|refusal| world.nodes[1].told.contains(refusal)), "both sides are told");
    assert!(world.log(0).term() < 99);
}

/// A voter's folder is replaced by one of two starts ago.
fn restored_twice_started() {
    let mut world = World::of(9, 3);
    let leader = world.leader().unwrap();
    let at = (leader + 1) % 3;
    let (disk, starts) = (world.nodes[at].disk.clone(), world.nodes[at].starts);
    for _ in 0..2 {
        world.kill(at);
        world.run(1);
        world.start(at);
        world.run(15);
    }
    let slot = Command::Slot { name: Bytes::from_static(b"slot"), before: None, value: Some(Bytes::new()) };
    assert_eq!(world.propose(|_| slot), Ok(()));
    world.kill(at);
    (world.nodes[at].disk, world.nodes[at].starts, world.nodes[at].ring) = (disk, starts, 0);
    world.start(at);
    world.run(10);
    assert!(world.nodes[at].told.iter().any(|it| matches!(it, Refusal::Restored { .. })), "it is told");
    world.run(120);
    world.assert_settled("it takes part again");
    assert_eq!(world.live().len(), 3);
}

#[test]
fn a_restored_folder_has_no_vote() {
    restored_twice_started();
}

#[test]
fn what_a_process_before_had_said_takes_nobodys_vote() {
    let mut world = World::of(11, 3);
    let leader = world.leader().unwrap();
    let at = (leader + 1) % 3;
    let other = (leader + 2) % 3;
    let before = world.log(at).envelope();
    world.kill(at);
    world.run(1);
    world.start(at);
    world.run(15);
    let starts = world.nodes[at].starts;
    assert_eq!(world.state(at).members()[&world.nodes[at].id].starts, starts, "it is known");
    let mut vote = raft::eraftpb::Message::default();
    vote.set_msg_type(raft::eraftpb::MessageType::MsgRequestVote);
    (vote.term, vote.index, vote.log_term) = (99, 999, 99);
    world.step(other, at, Input::Message(Message::Consensus(vote.into()).encode(&before)));
    world.run(1);
    assert!(world.nodes[at].told.iter().any(|it| matches!(it, Refusal::Restored { .. })), "it is told");
    assert_eq!(world.nodes[at].starts, starts, "it is what it was");
    assert!(world.log(at).restored.is_none());
}

#[test]
fn a_voter_that_forgot_what_it_acknowledged_loses_its_vote() {
    let mut world = World::of(10, 5);
    let leader = world.leader().unwrap();
    let here = world.nodes[leader].id;
    let voter = *world.log(leader).voters().iter().find(|voter| **voter != here).unwrap();
    let at = usize::from(voter.0);
    let disk = world.nodes[at].disk.clone();
    for slot in 0..3 {
        let name = Bytes::from(format!("slot {slot}"));
        assert_eq!(
            world.propose(|_| Command::Slot { name, before: None, value: Some(Bytes::new()) }),
            Ok(())
        );
    }
    world.run(5);
    world.kill(at);
    (world.nodes[at].disk, world.nodes[at].ring) = (disk, 0);
    world.start(at);
    world.run(30);
    assert!(!world.log(world.leader().unwrap()).voters().contains(&voter));
    world.assert_settled("another votes");
}

#[test]
fn a_stale_command_changes_nothing() {
    let mut world = World::of(11, 3);
    let leader = world.leader().unwrap();
    let before = world.state(leader).clone();
    let stale = Command::Clear { expected: before.version() - 1 };
    assert_eq!(world.propose(|_| stale), Err(Failed::Rejected(Rejected::Stale)));
    assert_eq!(*world.state(leader), before);
}

#[test]
fn a_seed_decides_everything() {
    let life = |seed| {
        let mut world = World::of(seed, 5);
        world.lost_of_thousand = 100;
        world.run(60);
        (world.messages, world.nodes.iter().map(|node| node.disk.clone()).collect::<Vec<_>>())
    };
    assert_eq!(life(12), life(12));
}

/// A message of the consensus with anything in it that can be read.
fn some_message(rng: &mut SplitMix64, term: u64, last: u64) -> Message {
    use raft::eraftpb::MessageType::*;
    const KINDS: [raft::eraftpb::MessageType; 9] = [
        MsgAppend,
        MsgAppendResponse,
        MsgRequestVote,
        MsgRequestVoteResponse,
        MsgRequestPreVote,
        MsgRequestPreVoteResponse,
        MsgHeartbeat,
        MsgHeartbeatResponse,
        MsgSnapshot,
    ];
    let mut message = raft::eraftpb::Message::default();
    message.set_msg_type(KINDS[usize::try_from(rng.below(9)).unwrap()]);
    message.term = term + rng.below(3);
    let mut near = || if rng.chance(1, 50) { (1 << 56) - 2 } else { last.saturating_sub(4) + rng.below(8) };
    (message.index, message.commit, message.reject_hint) = (near(), near(), near());
    (message.log_term, message.commit_term) = (rng.below(message.term + 1), rng.below(message.term + 1));
    message.reject = rng.chance(1, 2);
    match message.get_msg_type() {
        MsgAppend => {
            let entries = (1..=rng.below(4)).map(|at| {
                let node = NodeId(u16::try_from(rng.below(4)).unwrap());
                let payload = match rng.below(5) {
                    0 => Payload::Nothing,
                    1 => Payload::Voters(VoterChange::Learn(node)),
                    2 => Payload::Voters(VoterChange::Vote(node)),
                    3 => Payload::Voters(VoterChange::Remove(node)),
                    _ => Payload::Command(Command::Down { expected: rng.below(20), node }),
                };
                library::entry_of(&Entry { index: message.index + at, term: message.term, payload })
            });
            let entries: Vec<_> = entries.collect();
            message.set_entries(entries.into());
        }
        MsgSnapshot => {
            let voters = (0..4).map(NodeId).filter(|_| rng.chance(1, 2)).collect();
            let conf = Conf { voters, learners: BTreeSet::new() };
            let state = State::found(CLUSTER, RingSize::new(16).unwrap(), "n0@h", "h:0", "z0").unwrap();
            let state = if rng.chance(1, 2) { state.encode() } else { Bytes::from_static(b"none") };
            let (index, term) = (message.index, message.log_term);
            message.set_snapshot(library::snapshot_of(&Snapshot { index, term, conf, state }));
        }
        _ => {}
    }
    Message::Consensus(message.into())
}

#[test]
fn no_message_of_a_voter_makes_a_panic() {
    for seed in 0..250 {
        let mut world = World::of(seed, 3);
        let mut rng = SplitMix64::new(seed);
        let envelope = world.log(1).envelope();
        let mut log = world.nodes[0].log.take().unwrap();
        for _ in 0..60 {
            let message = some_message(&mut rng, log.term(), log.last().0).encode(&envelope);
            let commit = log.commit();
            log.step(Input::Message(message), world.now, &mut Vec::new());
            assert!(log.commit() >= commit);
            if rng.chance(1, 3) {
                world.now = Monotonic(world.now.0 + SECOND);
                log.step(Input::Tick, world.now, &mut Vec::new());
            }
        }
    }
}

/// A cluster of `nodes` that all begin at once, each for itself.
pub(super) fn founded_by_all(seed: u64, nodes: u16) -> World {
    let mut world = World::empty(seed);
    let names: Vec<(String, String)> = (0..nodes).map(|at| (name(NodeId(at)), format!("h:{at}"))).collect();
    let founders = || names.iter().map(|(name, address)| (&**name, &**address, ""));
    let state =
        State::found_by(CLUSTER, (RingSize::new(16).unwrap(), RingSize::new(256).unwrap()), founders())
            .unwrap();
    for id in 0..nodes {
        let at = world.add(NodeId(id));
        let (identity, rng) = (world.identity(at), world.rng());
        world.nodes[at].log = Some(Log::found(identity, state.clone(), rng, world.now));
        world.step(at, at, Input::Tick);
    }
    world
}

#[test]
fn those_who_found_a_cluster_at_once_have_one_history() {
    for seed in 0..20 {
        let nodes = [2, 3, 5, 8][usize::try_from(seed % 4).unwrap()];
        let mut world = founded_by_all(seed, nodes);
        world.run(30);
        world.assert_settled("founded");
        let slot = Command::Slot { name: Bytes::from_static(b"a"), before: None, value: Some(Bytes::new()) };
        assert_eq!(world.propose(|_| slot), Ok(()));
        let leader = world.leader().unwrap();
        assert!(world.state(leader).members().values().all(|it| it.starts == 1));
        // One comes again with nothing in its folder: it is told so, and follows.
        let at = (leader + 1) % usize::from(nodes);
        world.kill(at);
        let (identity, rng) = (world.identity(at), world.rng());
        let names: Vec<String> = (0..nodes).map(|at| format!("n{at}@h")).collect();
        let addresses: Vec<String> = (0..nodes).map(|at| format!("h:{at}")).collect();
        let founders = names.iter().zip(&addresses).map(|(name, address)| (&**name, &**address, ""));
        let state =
            State::found_by(CLUSTER, (RingSize::new(16).unwrap(), RingSize::new(256).unwrap()), founders)
                .unwrap();
        (world.nodes[at].disk, world.nodes[at].ring, world.nodes[at].checked) = (Bytes::new(), 0, (0, 0));
        world.nodes[at].seen = None;
        world.nodes[at].log = Some(Log::found(identity, state, rng, world.now));
        world.step(at, at, Input::Tick);
        world.run(90);
        world.assert_settled("one had forgotten all");
    }
}
