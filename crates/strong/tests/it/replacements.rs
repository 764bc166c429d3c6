//! Stores that lost their data, and get their votes back as other voters.

use strong::group::{Condition, Group};
use strong::linearizability::{Action, Outcome, Verdict};

use crate::lives::live;
use crate::world::{Faults, Limits, MILLISECOND, SECOND, World, key};

/// Time within which a store gets its vote back: its registration, a catch-up of few keys, and three entries.
const REPLACED_WITHIN: u64 = 10 * SECOND;

/// A life of 20 seconds in which disks are lost and replaced.
fn a_life_of_new_disks(seed: u64) -> World {
    let nodes = [3, 5, 3, 7][usize::try_from(seed % 4).unwrap()];
    let faults = Faults {
        lost_of_thousand: [0, 20, 100][usize::try_from(seed % 3).unwrap()],
        late_of_thousand: [0, 5, 50, 200][usize::try_from(seed / 2 % 4).unwrap()],
        every: Some([200, 400, 1_000][usize::try_from(seed / 2 % 3).unwrap()] * MILLISECOND),
        loses_disks: true,
        replaces_disks: true,
        damages_keys: false,
    };
    live(seed, nodes, faults)
}

#[test]
fn lives_of_new_disks_are_linearizable() {
    let seeds = std::env::var("STRONG_LIVES").map_or(40, |seeds| seeds.parse().unwrap());
    let mut lost = 0;
    for seed in 0..seeds {
        let world = a_life_of_new_disks(seed);
        assert_eq!(world.verdict(), Verdict::Linearizable, "seed {seed}");
        lost += world.counts.get("new disk").copied().unwrap_or(0);
    }
    println!("{lost} disks were lost");
    assert!(lost >= seeds, "lives have new disks");
}

fn put_all(world: &mut World, value: u64) {
    let leader = world.settle();
    for number in 0..6 {
        let put = Action::Put(value + number);
        assert_eq!(world.ask(leader, key(number), put, Condition::None), Outcome::Done);
    }
}

#[test]
fn all_disks_are_lost_in_turn_and_nothing_is_lost() {
    for seed in 0..20 {
        for nodes in [3, 5] {
            let limits = Limits { window: (seed % 2 == 0).then_some(0), ..Limits::default() };
            let mut world = World::quiet(seed, nodes).with_limits(limits);
            put_all(&mut world, 10);
            for node in 0..nodes {
                world.lose_disk(node);
                world.run(seed * SECOND / 4);
                world.nodes[node].is_gone = false;
                world.start(node);
                let is_whole =
                    |world: &World| world.is_whole() && world.group(node).members().learners.is_empty();
                assert!(
                    world.run_until(REPLACED_WITHIN, is_whole),
                    "seed {seed}, node {node}: {}",
                    world.describe()
                );
            }
            let leader = world.settle();
            for number in 0..6 {
                let read = world.ask(leader, key(number), Action::Get, Condition::None);
                assert_eq!(read, Outcome::Read(Some(10 + number)));
            }
            world.end();
        }
    }
}

/// The first step of a replacement is that a learner is applied, the second that the joint configuration is, the third
/// that it is left.
fn has_reached(group: &Group, step: usize, node: usize) -> bool {
    let members = group.members();
    let is_of = |voter: &strong::group::VoterId| usize::from(voter.node.0) == node;
    match step {
        0 => members.learners.iter().any(is_of),
        1 => !members.outgoing.is_empty(),
        _ => members.outgoing.is_empty() && members.learners.is_empty(),
    }
}

#[test]
fn a_crash_at_each_step_of_a_replacement_ends_in_the_same() {
    for seed in 0..10 {
        for step in 0..3 {
            for crashed in 0..3 {
                let mut world = World::quiet(seed, 3);
                put_all(&mut world, 10);
                let leader = world.settle();
                let (lost, other) = ((leader + 1) % 3, (leader + 2) % 3);
                world.lose_disk(lost);
                world.nodes[lost].is_gone = false;
                world.start(lost);
                let before = world.known(leader, lost);
                let is_there = |world: &World| {
                    let group = world.group(leader);
                    let is_begun = step < 2 || !group.members().has(before);
                    is_begun && has_reached(group, step, lost)
                };
                assert!(world.run_until(REPLACED_WITHIN, is_there), "step {step}");
                let crashed = [leader, lost, other][crashed];
                world.crash(crashed);
                world.run(seed * SECOND / 3);
                world.start(crashed);
                world.run(2 * SECOND);
                world.settle();
                assert!(world.is_whole(), "seed {seed}, step {step}, crashed {crashed}");
                put_all(&mut world, 20);
                world.end();
                assert_eq!(world.verdict(), Verdict::Linearizable);
            }
        }
    }
}

#[test]
fn a_new_disk_that_is_lost_again_is_replaced_again() {
    for seed in 0..10 {
        for step in 0..2 {
            let mut world = World::quiet(seed, 3);
            put_all(&mut world, 10);
            let leader = world.settle();
            let lost = (leader + 1) % 3;
            for _ in 0..2 {
                world.lose_disk(lost);
                world.nodes[lost].is_gone = false;
                world.start(lost);
                let is_there = |world: &World| has_reached(world.group(leader), step, lost);
                assert!(world.run_until(REPLACED_WITHIN, is_there), "step {step}");
            }
            world.settle();
            world.end();
        }
    }
}

#[test]
fn a_settled_group_takes_a_new_disk_in() {
    let mut world = World::quiet(1, 3);
    put_all(&mut world, 10);
    let leader = world.settle();
    let lost = (leader + 1) % 3;
    world.lose_disk(lost);
    world.run(20 * SECOND);
    assert!(world.group(leader).is_settled() && world.group(leader).next_timer().is_none());
    world.nodes[lost].is_gone = false;
    world.start(lost);
    assert!(world.run_until(REPLACED_WITHIN, World::is_whole));
    world.run(5 * SECOND);
    assert!(world.group(leader).is_settled() && world.group(leader).next_timer().is_none());
    world.check_tables();
}
