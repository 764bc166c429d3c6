//! Clusters that are restored without their users.

use super::*;

/// The verifier of a user's password in these clusters.
const VERIFIER: &[u8] = b"the verifier of a password";

fn change(world: &mut World, number: u64) {
    let record = (Bytes::from(number.to_string()), Some(Bytes::from([VERIFIER, b"."].concat())));
    let change =
        |state: &State| Command::ChangePolicy { expected: state.policy_version(), changes: vec![record] };
    assert_eq!(world.propose(change), Ok(()));
}

fn records() -> Vec<(Bytes, Bytes)> {
    vec![(Bytes::from_static(b"mode"), Bytes::from_static(b"mode on"))]
}

/// Puts a file in the place of a stopped node's, without its users.
fn restore(world: &mut World, at: usize, file: &Bytes) {
    assert!(world.nodes[at].log.is_none());
    let file = Log::without_users(file, &records()).unwrap();
    assert!(!file.windows(VERIFIER.len()).any(|bytes| bytes == VERIFIER));
    world.nodes[at].disk = file;
    world.nodes[at].ring = 0;
}

#[test]
fn nodes_that_are_restored_from_different_moments_agree() {
    for seed in 0..8 {
        let mut world = World::of(seed, 3);
        change(&mut world, 0);
        let (leader, first) = (world.leader().unwrap(), usize::from(world.leader() == Some(0)));
        let early = world.nodes[first].disk.clone();
        (1..4).for_each(|number| change(&mut world, number));
        // One node knows that an entry is committed which is the last one of another.
        let expected = world.state(leader).policy_version();
        let record = (Bytes::from_static(b"4"), Some(Bytes::from_static(VERIFIER)));
        world.propose_at(leader, Command::ChangePolicy { expected, changes: vec![record] });
        let commit = world.log(leader).commit();
        while world.log(leader).commit() == commit {
            world.run_until(Monotonic(world.now.0 + SECOND / 1_000));
        }
        assert!((0..3).any(|at| world.log(at).commit() == commit), "an entry is not known to be committed");
        (0..3).for_each(|at| world.kill(at));
        world.flying.clear();
        for at in 0..3 {
            let file = if at == first { early.clone() } else { world.nodes[at].disk.clone() };
            restore(&mut world, at, &file);
            world.start(at);
        }
        world.run(90);
        world.assert_settled("restored");

        let leader = world.leader().unwrap();
        let policy = world.state(leader).policy().unwrap();
        assert!(policy.iter().map(|(key, value)| (key.clone(), value.clone())).eq(records()));
        let before = world.state(leader).policy_version();
        change(&mut world, 9);
        world.run(20);
        world.assert_settled("changed after the restore");
        assert_eq!(world.state(0).policy_version(), before + 1);
    }
}

#[test]
fn a_cluster_that_has_gone_on_refuses_a_node_without_users() {
    let mut world = World::of(3, 3);
    change(&mut world, 0);
    let node = (world.leader().unwrap() + 1) % 3;
    world.kill(node);
    let file = world.nodes[node].disk.clone();
    restore(&mut world, node, &file);
    world.start(node);
    world.run(30);
    assert!(world.nodes[node].told.iter().any(|it| matches!(it, Refusal::Fork { .. })));
    let others = world.live().into_iter().filter(|&at| at != node);
    assert!(others.into_iter().all(|at| world.state(at).policy().unwrap().get(b"0").is_some()));
}

#[test]
fn a_restore_may_be_repeated() {
    let mut world = World::of(5, 1);
    let versions = [0, 1].map(|number| {
        change(&mut world, number);
        world.kill(0);
        let file = world.nodes[0].disk.clone();
        restore(&mut world, 0, &file);
        world.start(0);
        world.run(5);
        (world.log(0).epoch(), world.state(0).policy_version())
    });
    assert_ne!(versions[0].0, versions[1].0, "each restore begins another history");
    assert_eq!(versions[0].1, versions[1].1);
}
