//! Logs that are restored from backups.

use super::*;

/// A backup of one node's log.
#[derive(Clone)]
struct Backup {
    disk: Bytes,
    starts: u32,
}

fn back_up(world: &World, at: usize) -> Backup {
    Backup { disk: world.nodes[at].disk.clone(), starts: world.nodes[at].starts }
}

/// The state and the commit of a backup.
fn content(world: &mut World, at: usize, backup: &Backup) -> (u64, State) {
    let (identity, rng) = (world.identity(at), world.rng());
    let (log, _) = Log::open(identity, &backup.disk, rng, world.now).unwrap();
    (log.commit(), log.state().unwrap().clone())
}

/// Puts a backup in the place of a stopped node's folder, as a restore does.
fn restore(world: &mut World, at: usize, backup: &Backup) {
    assert!(world.nodes[at].log.is_none());
    world.nodes[at].disk = Log::restored(&backup.disk).unwrap();
    (world.nodes[at].starts, world.nodes[at].ring) = (backup.starts, 0);
}

/// Ends all nodes and puts their backups in their places. Entries behind the last one of the backups never were.
/// Returns the names of slots that a backup has.
fn restore_all(world: &mut World, backups: &[Backup]) -> Vec<Bytes> {
    (0..world.nodes.len()).for_each(|at| world.kill(at));
    world.flying.clear();
    let contents: Vec<(u64, State)> =
        backups.iter().enumerate().map(|(at, backup)| content(world, at, backup)).collect();
    let (commit, newest) = contents.into_iter().max_by_key(|(commit, _)| *commit).unwrap();
    world.history.retain(|(_, index), _| *index <= commit);
    world.rings.retain(|version, _| *version <= newest.ring_version().0);
    world.leaders.clear();
    world.slots.retain(|_, name| newest.slot(name).is_some());
    for (at, backup) in backups.iter().enumerate() {
        restore(world, at, backup);
    }
    world.slots.values().cloned().collect()
}

fn set_slot(world: &mut World, name: String) -> Outcome {
    let name = Bytes::from(name);
    world.propose(|_| Command::Slot { name, before: None, value: Some(Bytes::new()) })
}

/// Changes that are made between two backups, with other leaders now and then. The last one is under way at the end.
fn some_changes(world: &mut World, number: u64) {
    for change in 0..world.rng.below(5) {
        if world.leader().is_some() {
            set_slot(world, format!("{number}.{change}")).ok();
        }
    }
    if world.rng.chance(1, 3) {
        let at = usize::try_from(world.rng.below(world.nodes.len() as u64)).unwrap();
        world.kill(at);
        let away = 1 + world.rng.below(5);
        world.run(away);
        world.start(at);
        let back = world.rng.below(4);
        world.run(back);
    }
    if let Some(leader) = world.leader() {
        let name = Bytes::from(format!("{number}, under way"));
        world.propose_at(leader, Command::Slot { name, before: None, value: Some(Bytes::new()) });
    }
    let part = world.rng.below(SECOND / 10);
    world.run_until(Monotonic(world.now.0 + part));
}

/// Backups of all nodes in any order, with changes in between.
fn some_backups(world: &mut World) -> Vec<Backup> {
    let mut backups: BTreeMap<usize, Backup> = BTreeMap::new();
    for number in 0..world.nodes.len() as u64 {
        let left: Vec<usize> = (0..world.nodes.len()).filter(|at| !backups.contains_key(at)).collect();
        let at = left[usize::try_from(world.rng.below(left.len() as u64)).unwrap()];
        backups.insert(at, back_up(world, at));
        some_changes(world, number);
    }
    backups.into_values().collect()
}

/// A cluster is restored from backups of different moments. Its nodes start in any order, and crash and lose messages
/// meanwhile.
pub(super) fn different_moments(seed: u64) {
    let nodes = 3 + u16::try_from(seed % 4).unwrap();
    let mut world = World::of(seed, nodes);
    let backups = some_backups(&mut world);
    let kept = restore_all(&mut world, &backups);

    world.lost_of_thousand = world.rng.below(200);
    world.torn_one_in = [0, 10][usize::try_from(seed % 2).unwrap()];
    for _ in 0..3 * world.nodes.len() {
        let stopped: Vec<usize> =
            (0..world.nodes.len()).filter(|&at| world.nodes[at].log.is_none()).collect();
        if !stopped.is_empty() {
            let at = usize::try_from(world.rng.below(stopped.len() as u64)).unwrap();
            world.start(stopped[at]);
        }
        let seconds = world.rng.below(30);
        world.run(seconds);
        if world.rng.chance(1, 4) {
            let at = usize::try_from(world.rng.below(world.nodes.len() as u64)).unwrap();
            world.kill(at);
        }
        if world.leader().is_some() {
            let name = format!("new {}", world.token);
            set_slot(&mut world, name).ok();
        }
    }
    (world.lost_of_thousand, world.torn_one_in) = (0, 0);
    (0..world.nodes.len()).for_each(|at| world.start(at));
    world.run(150);

    let context = format!("seed {seed}");
    world.assert_settled(&context);
    let leader = world.leader().unwrap();
    for name in &kept {
        assert!(world.state(leader).slot(name).is_some(), "{context}: {name:?} was in a backup");
    }
    world.assert_acknowledged_is_there(&context);
    assert!(world.live().into_iter().all(|at| !world.log(at).is_held()), "{context}: a hold ends");
    assert!(world.nodes.iter().all(|node| node.contradicted_by.is_empty()), "{context}");
    assert_eq!(set_slot(&mut world, "end".to_owned()), Ok(()), "{context}");
}

#[test]
fn a_cluster_restored_from_different_moments_has_one_state() {
    (0..60).for_each(different_moments);
}

#[test]
fn a_backup_that_is_far_behind_takes_the_state_over() {
    let mut world = World::of(8, 3);
    let mut backups: Vec<Backup> = (0..3).map(|at| back_up(&world, at)).collect();
    for number in 0..crate::log::persist::COMPACT_AFTER + 50 {
        assert_eq!(set_slot(&mut world, number.to_string()), Ok(()));
    }
    world.run(10);
    backups[1] = back_up(&world, 1);
    restore_all(&mut world, &backups);
    [2, 0, 1].into_iter().for_each(|at| world.start(at));
    // The state comes as a whole, and the mark stays with it until the end of the hold.
    world.run(3);
    assert!(world.log(0).is_held() && world.log(0).store().base.index > crate::log::persist::COMPACT_AFTER);
    world.kill(0);
    world.start(0);
    assert!(world.log(0).is_held());
    world.run(20);
    world.assert_settled("all have the latest state");
    world.assert_acknowledged_is_there("all have the latest state");
}

/// Backups of three nodes, the last one with a change that the others lack.
fn one_is_ahead(seed: u64) -> (World, Vec<Backup>) {
    let mut world = World::of(seed, 3);
    let mut backups: Vec<Backup> = (0..3).map(|at| back_up(&world, at)).collect();
    assert_eq!(set_slot(&mut world, "late".to_owned()), Ok(()));
    world.run(10);
    backups[2] = back_up(&world, 2);
    (world, backups)
}

#[test]
fn older_backups_wait_for_the_latest() {
    let (mut world, backups) = one_is_ahead(1);
    restore_all(&mut world, &backups);
    world.start(0);
    world.start(1);
    world.run(120);
    assert_eq!(world.leader(), None, "two of three wait");
    assert_eq!(world.log(0).awaited(), [NodeId(2)]);
    // The wait outlives a start.
    world.kill(1);
    world.start(1);
    world.run(30);
    assert_eq!((world.leader(), world.log(1).awaited()), (None, vec![NodeId(2)]));
    world.start(2);
    world.run(15);
    world.assert_settled("all have compared");
    assert!(world.state(0).slot(b"late").is_some());
    let marks = |world: &World| {
        world.nodes.iter().filter(|node| Log::restored(&node.disk).unwrap() == node.disk).count()
    };
    assert_eq!(marks(&world), 0, "no file has the mark any more");
}

/// One backup has an entry that was never committed, of a term that the others do not know and give again.
fn a_term_comes_again(seed: u64) {
    let mut world = World::of(seed, 3);
    let mut backups: Vec<Backup> = (0..3).map(|at| back_up(&world, at)).collect();
    let (epoch, term, index) = (world.log(2).epoch(), world.log(2).term() + 1, world.log(2).commit() + 1);
    let name = Bytes::from_static(b"never committed");
    let payload = Payload::Command(Command::Slot { name, before: None, value: Some(Bytes::new()) });
    let mut more = BytesMut::new();
    file::Record::Hard { epoch, term, voted: Some(NodeId(2)) }.put(&mut more);
    file::Record::Entry(Entry { index, term, payload }).put(&mut more);
    backups[2].disk = [&backups[2].disk[..], &more].concat().into();
    restore_all(&mut world, &backups);
    (0..3).for_each(|at| world.start(at));
    world.run(30);
    world.assert_settled("all have compared");
    assert_eq!(set_slot(&mut world, "after".to_owned()), Ok(()));
    world.run(10);
    for at in 0..3 {
        assert!(world.state(at).slot(b"after").is_some());
        assert_eq!(world.state(at).slot(b"never committed"), None);
    }
}

#[test]
fn what_no_backup_has_as_committed_goes() {
    (0..10).for_each(a_term_comes_again);
}

/// The backup of one of three nodes is missing.
fn a_backup_is_lost(seed: u64) {
    let (mut world, backups) = one_is_ahead(seed);
    restore_all(&mut world, &backups);
    world.lost_of_thousand = world.rng.below(100);
    world.start(0);
    world.start(1);
    world.run(20);
    let word = world.log(0).safety_word();
    world.step(0, 0, Input::Recover { word });
    world.run(60);
    assert_eq!(world.leader(), Some(0));
    assert!(!world.log(0).is_held() && !world.log(1).is_held());
    assert_eq!(world.nodes[1].starts, backups[1].starts + 1, "a start that is registered counts once");
    assert_eq!(world.state(0).slot(b"late"), None, "it is lost, as the operator accepted");
    assert_eq!(set_slot(&mut world, "after".to_owned()), Ok(()));
    // Its backup is found after all.
    world.start(2);
    world.run(90);
    world.lost_of_thousand = 0;
    world.run(30);
    world.assert_settled("all follow the recovery");
}

#[test]
fn an_operator_ends_the_wait_for_a_lost_backup() {
    (0..20).for_each(a_backup_is_lost);
}

/// The backup of one of three founders is missing, and the founder comes back with an empty folder.
fn a_founder_comes_back_empty(seed: u64) {
    let mut world = scenarios::founded_by_all(seed, 3);
    world.run(30);
    let backups: Vec<Backup> = (0..3).map(|at| back_up(&world, at)).collect();
    restore_all(&mut world, &backups);
    world.start(0);
    world.start(1);
    world.run(20);
    let word = world.log(0).safety_word();
    world.step(0, 0, Input::Recover { word });
    world.run(20);
    let mut empty = scenarios::founded_by_all(seed + 1_000, 3);
    let log = empty.nodes[2].log.take().unwrap();
    (world.nodes[2].disk, world.nodes[2].starts) = (empty.nodes[2].disk.clone(), 1);
    (world.nodes[2].seen, world.nodes[2].checked, world.nodes[2].ring) = (None, (0, 0), 0);
    world.nodes[2].log = Some(log);
    world.run(12);
    let own = &world.state(0).members()[&NodeId(2)];
    assert_eq!(own.start, world.log(2).identity().start, "its start is registered soon");
    world.run(20);
    world.assert_settled("all vote");
}

#[test]
fn a_founder_without_a_backup_comes_back_empty() {
    (0..10).for_each(a_founder_comes_back_empty);
}

/// One node is restored while the others have gone on.
fn one_of_a_cluster_that_goes_on(seed: u64) {
    let mut world = World::of(seed, 3 + u16::try_from(seed % 3).unwrap());
    let at = usize::try_from(world.rng.below(world.nodes.len() as u64)).unwrap();
    let backup = back_up(&world, at);
    for number in 0..1 + seed % 4 {
        assert_eq!(set_slot(&mut world, format!("{number}")), Ok(()));
        if seed.is_multiple_of(2) {
            world.kill(at);
            world.run(5);
            world.start(at);
            world.run(10);
        }
    }
    world.kill(at);
    let is_away = world.rng.chance(1, 2);
    world.run(if is_away { 80 } else { 5 });
    restore(&mut world, at, &backup);
    world.start(at);
    world.run(30);
    let context = format!("seed {seed}");
    assert_eq!(set_slot(&mut world, "meanwhile".to_owned()), Ok(()), "{context}");
    world.run(120);
    world.assert_settled(&context);
    world.assert_acknowledged_is_there(&context);
    assert!(!world.log(at).is_held(), "{context}");
    assert!(world.nodes.iter().all(|node| node.contradicted_by.is_empty()), "{context}");
}

#[test]
fn a_restored_node_of_a_cluster_that_goes_on_catches_up() {
    (0..24).for_each(one_of_a_cluster_that_goes_on);
}

#[test]
fn a_restored_voter_has_no_vote_in_a_cluster_that_has_gone_on() {
    let mut world = World::of(3, 3);
    let leader = world.leader().unwrap();
    let at = (leader + 1) % 3;
    let backup = back_up(&world, at);
    assert_eq!(set_slot(&mut world, "acknowledged by it".to_owned()), Ok(()));
    world.run(5);
    world.kill(at);
    restore(&mut world, at, &backup);
    world.start(at);
    while world.log(at).is_held() {
        assert!(!world.log(at).takes_part());
        world.run_until(Monotonic(world.now.0 + SECOND / 100));
    }
    assert!(!world.log(at).voters().contains(&world.nodes[at].id), "it is counted out first");
    world.run(60);
    world.assert_settled("it votes again");
}

#[test]
fn a_node_alone_does_not_wait() {
    let mut world = World::new(4);
    world.run(5);
    world.kill(0);
    let backup = back_up(&world, 0);
    assert_eq!(Log::restored(&backup.disk).unwrap(), backup.disk);
    restore(&mut world, 0, &backup);
    world.start(0);
    world.run(2);
    assert_eq!(world.leader(), Some(0));
}

#[test]
fn a_restore_without_users_is_held_as_well() {
    let (mut world, backups) = one_is_ahead(5);
    let files =
        backups.into_iter().map(|it| Backup { disk: Log::without_users(&it.disk, &[]).unwrap(), ..it });
    let backups: Vec<Backup> = files.collect();
    restore_all(&mut world, &backups);
    [1, 0].into_iter().for_each(|at| world.start(at));
    world.run(30);
    assert_eq!(world.leader(), None);
    world.start(2);
    world.run(15);
    world.assert_settled("all have compared");
    assert!(world.state(1).slot(b"late").is_some());
}

/// Two logs are put back by other means than a restore, so that they go on without the third one's last entries.
fn contradicted() -> World {
    let (mut world, backups) = one_is_ahead(6);
    restore_all(&mut world, &backups);
    for (at, backup) in backups.iter().enumerate().take(2) {
        world.nodes[at].disk = backup.disk.clone();
        world.start(at);
    }
    world.nodes[2].disk = backups[2].disk.clone();
    // The third one has entries of another history.
    let commit = world.log(0).commit();
    world.history.retain(|(_, index), _| *index <= commit);
    world.run(20);
    for number in 0..20 {
        assert_eq!(set_slot(&mut world, format!("other {number}")), Ok(()));
    }
    world
}

#[test]
fn a_log_that_contradicts_its_cluster_says_so_and_takes_no_part() {
    let mut world = contradicted();
    world.start(2);
    // Its entries are not compared with the history of the others.
    let compared = (world.log(2).epoch().number, world.log(2).commit());
    world.nodes[2].checked = compared;
    let before = world.log(2).commit();
    world.run(30);
    assert!(!world.nodes[2].contradicted_by.is_empty() && world.log(2).is_contradicted());
    assert_eq!(world.log(2).commit(), before, "it takes no entry");
    assert!(world.leader().is_some_and(|leader| leader < 2));
    assert!((0..2).all(|at| !world.log(at).is_contradicted() && world.state(at).slot(b"late").is_none()));
    assert_eq!(set_slot(&mut world, "goes on".to_owned()), Ok(()));
}

#[test]
fn contradicting_news_and_snapshots_are_not_taken() {
    let mut world = World::of(7, 3);
    let leader = world.leader().unwrap();
    let at = (leader + 1) % 3;
    let envelope = world.log(leader).envelope();
    let last = world.log(at).committed().last().unwrap().clone();
    let (commit, term) = (last.index, last.term);
    world.kill(leader);
    // A voter that hears no leader takes entries from anybody.
    world.run_until(Monotonic(world.now.0 + SECOND));

    let other = Entry { payload: Payload::Command(Command::Clear { expected: 77 }), ..last };
    let next = Entry { index: commit + 1, term, payload: Payload::Nothing };
    let state = world.state(at).clone();
    let conf = world.log(at).store().conf.clone();
    let snapshot = Snapshot { index: commit + 9, term: term - 1, conf, state: state.encode() };
    for message in [
        Message::News { commit: commit + 1, entries: vec![other, next.clone()] },
        Message::News { commit: commit + 1, entries: vec![Entry { term: term - 1, ..next }] },
        Message::Snapshot(snapshot),
    ] {
        world.nodes[at].contradicted_by.clear();
        world.nodes[at].log.as_mut().unwrap().contradictions = Contradictions::default();
        world.step(at, leader, Input::Message(message.encode(&envelope)));
        assert_eq!(world.nodes[at].contradicted_by, [NodeId(u16::try_from(leader).unwrap())]);
        assert_eq!((world.log(at).commit(), world.state(at)), (commit, &state));
        assert!(!world.log(at).is_contradicted(), "one of three voters is no majority");
    }
}
