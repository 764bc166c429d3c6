//! Stories in which a bug would show: each holds here, and `planted.rs` plants the bug.

use strong::group::{Condition, Group};
use strong::linearizability::{Action, Outcome, Verdict};

use crate::world::{SECOND, World, key};

/// Two voters have voted for a candidate and start anew; another one that has not heard of its term asks for their
/// votes.
pub fn votes_are_asked_for_twice(seed: u64) -> World {
    let mut world = World::quiet(seed, 5);
    let old = world.settle();
    world.crash(old);
    let others: Vec<usize> = (0..5).filter(|node| *node != old).collect();
    let (first, late) = (others[0], others[1]);
    world.isolate(late);
    let leads = |world: &World| world.nodes[first].group.as_ref().is_some_and(Group::leads);
    if !world.run_until(5 * SECOND, leads) {
        return world;
    }
    world.cuts.clear();
    world.isolate(first);
    for &voter in &others[2..] {
        world.crash(voter);
        world.start(voter);
    }
    world.run(5 * SECOND);
    world
}

/// A leader is cut off with a write under way, and another write that would fail by it.
pub fn a_condition_fails_by_a_write_that_is_lost(seed: u64) -> World {
    let mut world = World::quiet(seed, 3);
    let leader = world.settle();
    assert_eq!(world.ask(leader, key(0), Action::PutOnce(1), Condition::Absent), Outcome::Done);
    let (version, _) = world.nodes[leader].held(&key(0)).unwrap();
    world.isolate(leader);
    let cas = |value| Action::Cas { expected: 1, value };
    world.turn_to(0, leader);
    world.request(0, key(0), cas(2), Condition::Is(version));
    world.run(SECOND / 10);
    world.request(0, key(0), cas(3), Condition::Is(version));
    world.run(5 * SECOND);
    world.cuts.clear();
    world.end();
    world
}

/// An answer to a read's heartbeat is late: when it comes, another leader has been elected and has written.
pub fn an_answer_to_a_read_is_late(seed: u64) -> World {
    let mut world = World::quiet(seed, 3);
    let leader = world.settle();
    let (first, second) = ((leader + 1) % 3, (leader + 2) % 3);
    assert_eq!(world.ask(leader, key(0), Action::Put(1), Condition::None), Outcome::Done);
    world.slow = Some((second, leader));
    assert_eq!(world.ask(leader, key(0), Action::Get, Condition::None), Outcome::Read(Some(1)));
    world.isolate(leader);
    let is_led = |world: &World| {
        [first, second].into_iter().any(|node| world.nodes[node].group.as_ref().is_some_and(Group::is_ready))
    };
    assert!(world.run_until(5 * SECOND, is_led));
    let next = if world.group(first).is_ready() { first } else { second };
    assert_eq!(world.ask(next, key(0), Action::Put(2), Condition::None), Outcome::Done);
    world.turn_to(0, leader);
    world.request(0, key(0), Action::Get, Condition::None);
    world.run(SECOND / 100);
    world.arrive();
    world.run(5 * SECOND);
    world.end();
    world
}

/// One of two voters that acknowledged a write loses its disk; the other one dies.
pub fn a_disk_with_an_acknowledged_write_is_lost(seed: u64) -> World {
    let mut world = World::quiet(seed, 3);
    let leader = world.settle();
    let (holder, late) = ((leader + 1) % 3, (leader + 2) % 3);
    world.isolate(late);
    assert_eq!(world.ask(leader, key(0), Action::Put(1), Condition::None), Outcome::Done);
    world.crash(leader);
    world.lose_disk(holder);
    world.start(holder);
    world.cuts.clear();
    world.run(5 * SECOND);
    world.start(leader);
    world.end();
    world
}

/// All lose power when a write was answered; two of them go on.
pub fn all_lose_power_after_a_write(seed: u64) -> World {
    let mut world = World::quiet(seed, 3);
    let leader = world.settle();
    assert_eq!(world.ask(leader, key(0), Action::Put(1), Condition::None), Outcome::Done);
    (0..3).for_each(|node| world.crash(node));
    (0..3).filter(|node| *node != leader).for_each(|node| world.start(node));
    world.run(5 * SECOND);
    world.start(leader);
    world.end();
    world
}

/// One of two voters that acknowledged a write is set back to an earlier journal, hears the leader, and then the
/// leader dies.
pub fn a_journal_is_set_back(seed: u64) -> World {
    let mut world = World::quiet(seed, 3);
    let leader = world.settle();
    let (holder, late) = ((leader + 1) % 3, (leader + 2) % 3);
    let records = world.records(holder);
    world.isolate(late);
    assert_eq!(world.ask(leader, key(0), Action::Put(1), Condition::None), Outcome::Done);
    world.run(SECOND);
    world.roll_back(holder, records);
    world.start(holder);
    world.run(2 * SECOND);
    world.crash(leader);
    world.cuts.clear();
    world.run(5 * SECOND);
    world.start(leader);
    world.end();
    world
}

/// Of one of two voters that acknowledged a write the entry is damaged; the other one dies.
pub fn an_acknowledged_entry_is_damaged(seed: u64) -> World {
    let mut world = World::quiet(seed, 3);
    let leader = world.settle();
    let (holder, late) = ((leader + 1) % 3, (leader + 2) % 3);
    world.isolate(late);
    assert_eq!(world.ask(leader, key(0), Action::Put(1), Condition::None), Outcome::Done);
    let damaged = world.group(holder).last().0;
    world.crash(leader);
    world.crash(holder);
    world.start_damaged(holder, damaged);
    world.cuts.clear();
    world.run(5 * SECOND);
    world.start(leader);
    world.end();
    world
}

/// A copy of an earlier journal of a voter that acknowledged a write runs in its place, unregistered.
pub fn a_clone_is_started(seed: u64) -> World {
    let mut world = World::quiet(seed, 3);
    let leader = world.settle();
    let (holder, late) = ((leader + 1) % 3, (leader + 2) % 3);
    let records = world.records(holder);
    world.isolate(late);
    assert_eq!(world.ask(leader, key(0), Action::Put(1), Condition::None), Outcome::Done);
    world.crash(leader);
    world.roll_back(holder, records);
    world.nodes[holder].is_refused = true;
    world.start(holder);
    world.cuts.clear();
    world.run(5 * SECOND);
    world.crash(holder);
    world.nodes[holder].is_gone = true;
    world.start(leader);
    world.end();
    world
}

#[test]
fn stories_are_linearizable() {
    let stories: [fn(u64) -> World; 8] = [
        votes_are_asked_for_twice,
        a_condition_fails_by_a_write_that_is_lost,
        an_answer_to_a_read_is_late,
        a_disk_with_an_acknowledged_write_is_lost,
        all_lose_power_after_a_write,
        a_journal_is_set_back,
        an_acknowledged_entry_is_damaged,
        a_clone_is_started,
    ];
    for (number, story) in stories.into_iter().enumerate() {
        for seed in 0..20 {
            assert_eq!(story(seed).verdict(), Verdict::Linearizable, "story {number}, seed {seed}");
        }
    }
}
