//! Stories in which a bug would show: each holds here, and `planted.rs` plants the bug.

use std::time::Duration;

use bytes::Bytes;
use strong::group::{Condition, Group, Input, REAP_SILENCE};
use strong::linearizability::{Action, Outcome, Verdict};

use crate::world::{Limits, SECOND, World, key};

/// Two voters have voted for a candidate and start anew; another one that has not heard of its term asks for their
/// votes.
pub fn votes_are_asked_for_twice(seed: u64) -> World {
    votes_are_asked_for_again(seed, World::crash)
}

/// Two voters have voted for a candidate, and the states that say so are damaged; another one that has not heard of its
/// term asks for their votes.
pub fn votes_are_asked_for_beside_damaged_states(seed: u64) -> World {
    votes_are_asked_for_again(seed, World::damage_state)
}

/// Two voters have voted for a candidate and end in some way; another one asks them for their votes when they start.
fn votes_are_asked_for_again(seed: u64, end: fn(&mut World, usize)) -> World {
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
        end(&mut world, voter);
        world.start(voter);
    }
    world.run(5 * SECOND);
    world
}

/// A leader is cut off, and another one writes. Then the first one is asked for a write whose condition holds.
pub fn a_condition_is_asked_of_a_leader_of_the_past(seed: u64) -> World {
    let mut world = World::quiet(seed, 3);
    let leader = world.settle();
    assert_eq!(world.ask(leader, key(0), Action::Put(1), Condition::None), Outcome::Done);
    world.isolate(leader);
    let next = next_leader(&mut world, leader);
    assert_eq!(world.ask(next, key(0), Action::Put(2), Condition::None), Outcome::Done);
    let (version, _) = world.nodes[next].held(&key(0)).unwrap();
    world.turn_to(0, leader);
    world.request(0, key(0), Action::Cas { expected: 2, value: 3 }, Condition::Is(version));
    world.run(5 * SECOND);
    world.end();
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
    assert_eq!(world.ask(leader, key(0), Action::Put(1), Condition::None), Outcome::Done);
    // The leader asks the voter behind it first, and all when its answer is late.
    world.slow = Some(((leader + 1) % 3, leader));
    assert_eq!(world.ask(leader, key(0), Action::Get, Condition::None), Outcome::Read(Some(1)));
    world.isolate(leader);
    let next = next_leader(&mut world, leader);
    assert_eq!(world.ask(next, key(0), Action::Put(2), Condition::None), Outcome::Done);
    world.turn_to(0, leader);
    world.request(0, key(0), Action::Get, Condition::None);
    world.run(SECOND / 100);
    world.arrive();
    world.run(5 * SECOND);
    world.end();
    world
}

/// An answer to a follower's read is late. When it comes, the follower is another process, cut off, which has asked
/// again, and a leader of a later term has written.
pub fn an_answer_to_another_life_is_late(seed: u64) -> World {
    let (mut world, [leader, follower, other]) = three(seed);
    assert_eq!(world.ask(leader, key(0), Action::Put(1), Condition::None), Outcome::Done);
    world.run(SECOND);
    world.slow = Some((leader, follower));
    world.turn_to(0, follower);
    world.request(0, key(0), Action::Get, Condition::None);
    world.run(SECOND / 50);
    world.slow = None;
    world.crash(follower);
    world.start(follower);
    world.run(SECOND);

    world.isolate(follower);
    world.crash(leader);
    world.start(leader);
    let leads = |world: &World, node: usize| world.nodes[node].group.as_ref().is_some_and(Group::is_ready);
    world.run_until(SECOND, |world| leads(world, leader) || leads(world, other));
    let Some(next) = [leader, other].into_iter().find(|node| leads(&world, *node)) else { return world };
    world.ask(next, key(0), Action::Put(2), Condition::None);
    world.turn_to(0, follower);
    world.request(0, key(0), Action::Get, Condition::None);
    world.run(SECOND / 500);
    world.arrive();
    world.run(5 * SECOND);
    world.end();
    world
}

/// A key is written between two parts of a follower's catch-up, and the follower is asked for it.
pub fn a_key_is_written_beside_a_catch_up(seed: u64) -> World {
    let (mut world, [leader, late]) = with_voter_down(seed, true);
    for number in 0..2 {
        write(&mut world, leader, key(number), |attempt| Action::Put(100 * attempt + 10 + number));
    }
    let leader = world.settle();
    world.start(late);
    run_until_parts(&mut world, 1);
    world.turn_to(0, late);
    world.request(0, key(1), Action::Get, Condition::None);
    world.run(SECOND / 125);
    world.turn_to(0, leader);
    world.request(0, key(1), Action::Put(20), Condition::None);
    world.run(5 * SECOND);
    world.end();
    world
}

/// One of two voters that acknowledged a write loses its disk; the other one dies.
pub fn a_disk_with_an_acknowledged_write_is_lost(seed: u64) -> World {
    let (mut world, [leader, holder, late]) = three(seed);
    put_without(&mut world, leader, late);
    world.crash(leader);
    world.lose_disk(holder);
    world.start(holder);
    heal_and_end(&mut world, leader);
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
    let (mut world, [leader, holder, late]) = three(seed);
    let records = world.records(holder);
    put_without(&mut world, leader, late);
    world.run(SECOND);
    world.roll_back(holder, records);
    world.start(holder);
    world.run(2 * SECOND);
    world.crash(leader);
    heal_and_end(&mut world, leader);
    world
}

/// Of one of two voters that acknowledged a write the entry is damaged; the other one dies.
pub fn an_acknowledged_entry_is_damaged(seed: u64) -> World {
    let (mut world, [leader, holder, late]) = three(seed);
    put_without(&mut world, leader, late);
    let damaged = world.group(holder).last().0;
    world.crash(leader);
    world.crash(holder);
    world.start_damaged(holder, damaged);
    heal_and_end(&mut world, leader);
    world
}

/// A copy of an earlier journal of a voter that acknowledged a write runs in its place, unregistered.
pub fn a_clone_is_started(seed: u64) -> World {
    let (mut world, [leader, holder, late]) = three(seed);
    let records = world.records(holder);
    put_without(&mut world, leader, late);
    // A note of the commit index would tell the clone that it forgot.
    world.run(SECOND / 10);
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

/// A key is deleted and its tombstone reaped while a voter that has the key is away.
pub fn a_tombstone_is_reaped_without_a_voter(seed: u64) -> World {
    let (mut world, [leader, late]) = with_voter_down(seed, true);
    delete(&mut world, leader, 5);
    let leader = world.settle();
    for _ in 0..2 {
        world.step(leader, Input::Reap { silence: Duration::ZERO });
        world.run(SECOND);
    }
    assert!(!world.nodes[leader].table.contains_key(&key(5)), "the tombstone is reaped");
    world.start(late);
    world.end();
    assert!(world.counts["refill"] > 0, "the voter is refilled");
    world
}

/// Tombstones are to be reaped while a voter is caught up that has a key deleted since.
pub fn a_tombstone_is_to_be_reaped_beside_a_catch_up(seed: u64) -> World {
    let (mut world, [leader, late]) = with_voter_down(seed, true);
    delete(&mut world, leader, 5);
    put_all(&mut world, leader, 10);
    let leader = world.settle();
    world.start(late);
    run_until_parts(&mut world, 1);
    for _ in 0..2 {
        world.step(leader, Input::Reap { silence: REAP_SILENCE });
    }
    world.end();
    assert!(!world.counts.contains_key("refill"), "the voter keeps what it has");
    world
}

/// A catch-up is broken off between its parts, by a crash of the receiver; keys of the first part are written
/// meanwhile.
pub fn a_catch_up_goes_on_after_a_crash(seed: u64) -> World {
    let (mut world, [leader, late]) = with_voter_down(seed, false);
    put_all(&mut world, leader, 1);
    put_all(&mut world, leader, 10);
    let leader = world.settle();
    world.start(late);
    run_until_parts(&mut world, 2);
    world.run(SECOND / 100);
    world.crash(late);
    put_all(&mut world, leader, 20);
    world.start(late);
    world.end();
    world
}

/// A catch-up is broken off while a part of it is folded, and another one begins.
pub fn a_catch_up_is_broken_off_beside_a_fold(seed: u64) -> World {
    let (mut world, [leader, late]) = with_voter_down(seed, false);
    put_all(&mut world, leader, 1);
    let leader = world.settle();
    world.start(late);
    run_until_parts(&mut world, 1);
    world.run(SECOND / 50);
    world.refuse_part(late, leader);
    // The voter's answer begins the next one.
    world.turn_to(0, leader);
    world.request(0, key(0), Action::Put(2), Condition::None);
    world.end();
    world
}

/// Links break when a write is answered, so that followers do not hear that it is committed, and come back soon.
pub fn a_commit_note_is_lost(seed: u64) -> World {
    let mut world = World::quiet(seed, 3);
    let leader = world.settle();
    assert_eq!(world.ask(leader, key(0), Action::Put(1), Condition::None), Outcome::Done);
    world.isolate(leader);
    world.run(SECOND / 2);
    world.cuts.clear();
    world.run(5 * SECOND);
    world.check_tables();
    world
}

/// A voter comes back to a group that has settled without it.
pub fn a_voter_comes_back_to_a_group_at_rest(seed: u64) -> World {
    let mut world = World::quiet(seed, 3);
    let leader = world.settle();
    let late = (leader + 1) % 3;
    world.crash(late);
    assert_eq!(world.ask(leader, key(0), Action::Put(1), Condition::None), Outcome::Done);
    world.run(5 * SECOND);
    assert!(world.group(leader).is_settled());
    world.start(late);
    world.run(5 * SECOND);
    world.check_tables();
    world
}

/// A leader cannot read a key. A voter is down, and needs a catch-up of all keys when it comes back.
pub fn a_leader_cannot_read_a_key(seed: u64) -> World {
    let (mut world, [leader, late]) = with_voter_down(seed, true);
    put_all(&mut world, leader, 2);
    let leader = world.settle();
    world.nodes[leader].damaged.insert(key(1));
    world.start(late);
    world.end();
    let is_healed = |world: &World| world.nodes.iter().all(|node| node.damaged.is_empty());
    assert!(world.run_until(20 * SECOND, is_healed), "its keys come from another voter");
    world.settle();
    world.check_tables();
    world
}

/// A voter without keys is the only one with a write, since the leader's disk is lost; another one has the keys.
pub fn a_voter_without_keys_has_the_last_write(seed: u64) -> World {
    let (mut world, [leader, holder, late]) = three(seed);
    put_all(&mut world, leader, 1);
    world.settle();
    world.isolate(late);
    world.step(holder, Input::Unreadable);
    let is_incomplete = |world: &World| world.group(holder).is_incomplete();
    assert!(world.run_until(5 * SECOND, is_incomplete));
    assert_eq!(world.ask(leader, key(0), Action::Put(7), Condition::None), Outcome::Done);
    world.lose_disk(leader);
    world.cuts.clear();
    world.run(20 * SECOND);
    let leader = world.settle();
    assert_eq!(world.ask(leader, key(0), Action::Get, Condition::None), Outcome::Read(Some(7)));
    world.end();
    world
}

/// Two voters of five are declared lost, so a majority is not. A third one is to be recovered, on a side with another
/// one; the other side writes, and the first one is read.
pub fn a_voter_is_to_be_recovered_beside_a_majority(seed: u64) -> World {
    let mut world = World::quiet(seed, 5);
    let leader = world.settle();
    assert_eq!(world.ask(leader, key(0), Action::Put(1), Condition::None), Outcome::Done);
    let [survivor, behind, second, third] = [1, 2, 3, 4].map(|place| (leader + place) % 5);
    for node in [survivor, behind] {
        for other in [leader, second, third] {
            world.cuts.extend([(node, other), (other, node)]);
        }
    }
    world.crash(survivor);
    assert_eq!(world.ask(leader, key(0), Action::Put(2), Condition::None), Outcome::Done);
    let lost = [leader, second].map(|node| world.voter(node)).into();
    let recovered = world.recover(survivor, &lost);
    world.start(survivor);
    let leads = |world: &World| world.nodes[survivor].group.as_ref().is_some_and(Group::is_ready);
    if recovered.is_ok() && world.run_until(10 * SECOND, leads) {
        world.ask(survivor, key(0), Action::Get, Condition::None);
        return world;
    }
    heal_and_end(&mut world, leader);
    world
}

/// A quiet world of three voters that have settled: the leader, a voter that will acknowledge a write, and one that
/// will not.
fn three(seed: u64) -> (World, [usize; 3]) {
    let mut world = World::quiet(seed, 3);
    let leader = world.settle();
    (world, [leader, (leader + 1) % 3, (leader + 2) % 3])
}

/// The one of three voters that leads in place of one that is cut off.
fn next_leader(world: &mut World, leader: usize) -> usize {
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    let next = |world: &World| others.into_iter().find(|node| world.group(*node).is_ready());
    assert!(world.run_until(5 * SECOND, |world| next(world).is_some()));
    next(world).unwrap()
}

/// A quiet world of three voters that keep no entry: the leader, and a voter that is down. That one may have a value of
/// each key.
fn with_voter_down(seed: u64, has_keys: bool) -> (World, [usize; 2]) {
    let mut world = World::quiet(seed, 3).with_limits(NO_LOG);
    let leader = world.settle();
    let late = (leader + 1) % 3;
    if has_keys {
        put_all(&mut world, leader, 1);
    }
    world.settle();
    world.crash(late);
    (world, [leader, late])
}

/// A write that is acknowledged while a voter is cut off.
fn put_without(world: &mut World, leader: usize, late: usize) {
    world.isolate(late);
    assert_eq!(world.ask(leader, key(0), Action::Put(1), Condition::None), Outcome::Done);
}

/// Links are healed, and the others go on for a while before the old leader is started.
fn heal_and_end(world: &mut World, leader: usize) {
    world.cuts.clear();
    world.run(5 * SECOND);
    world.start(leader);
    world.end();
}

/// Nodes that keep no entry that is applied.
const NO_LOG: Limits = Limits {
    window: Some(0),
    forgets_applied: true,
    reap_every: None,
    reap_silence: REAP_SILENCE,
    forwards: false,
};

/// Lets time pass until that many more parts of catch-ups are written.
fn run_until_parts(world: &mut World, count: u64) {
    let parts = |world: &World| world.counts.get("part").copied().unwrap_or(0);
    let before = parts(world);
    assert!(world.run_until(20 * SECOND, |world| parts(world) == before + count));
}

/// Writes the first five keys, and the sixth the first time.
fn put_all(world: &mut World, leader: usize, value: u64) {
    for number in 0..if value == 1 { 6 } else { 5 } {
        write(world, leader, key(number), |attempt| Action::Put(100 * attempt + value + number));
    }
}

fn delete(world: &mut World, leader: usize, number: u64) {
    write(world, leader, key(number), |_| Action::Delete);
}

/// Writes. Nodes that keep no entry need catch-up when messages overtake each other, so a write may end as timeout.
fn write(world: &mut World, leader: usize, key: Bytes, action: impl Fn(u64) -> Action) {
    let is_done = |attempt| world.ask(leader, key.clone(), action(attempt), Condition::None) == Outcome::Done;
    assert!((0..5).any(is_done), "a write succeeds");
}

#[test]
fn stories_are_linearizable() {
    let stories: [fn(u64) -> World; 21] = [
        votes_are_asked_for_twice,
        votes_are_asked_for_beside_damaged_states,
        a_condition_is_asked_of_a_leader_of_the_past,
        a_condition_fails_by_a_write_that_is_lost,
        an_answer_to_a_read_is_late,
        an_answer_to_another_life_is_late,
        a_key_is_written_beside_a_catch_up,
        a_disk_with_an_acknowledged_write_is_lost,
        all_lose_power_after_a_write,
        a_journal_is_set_back,
        an_acknowledged_entry_is_damaged,
        a_clone_is_started,
        a_tombstone_is_reaped_without_a_voter,
        a_tombstone_is_to_be_reaped_beside_a_catch_up,
        a_catch_up_goes_on_after_a_crash,
        a_catch_up_is_broken_off_beside_a_fold,
        a_commit_note_is_lost,
        a_voter_comes_back_to_a_group_at_rest,
        a_leader_cannot_read_a_key,
        a_voter_without_keys_has_the_last_write,
        a_voter_is_to_be_recovered_beside_a_majority,
    ];
    for (number, story) in stories.into_iter().enumerate() {
        for seed in 0..20 {
            assert_eq!(story(seed).verdict(), Verdict::Linearizable, "story {number}, seed {seed}");
        }
    }
}
