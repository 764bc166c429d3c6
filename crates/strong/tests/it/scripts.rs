//! Short stories of one group.

use strong::envelope::NOTE_HELD_MAX;
use strong::group::{COMMIT_NOTE_AFTER, Condition, HEARTBEAT_EVERY, Input, Output, Version};
use strong::linearizability::{Action, Outcome, Verdict};

use crate::world::{MILLISECOND, SECOND, World, key};

/// Seconds of quiet that are looked at.
const QUIET: u64 = 20 * SECOND;

fn put(value: u64) -> Action {
    Action::Put(value)
}

#[test]
fn a_group_elects_writes_and_reads() {
    for nodes in [1, 3, 5, 7] {
        let mut world = World::quiet(1, nodes);
        let leader = world.settle();
        assert_eq!(world.ask(leader, key(0), Action::Get, Condition::None), Outcome::Read(None));
        assert_eq!(world.ask(leader, key(0), put(7), Condition::None), Outcome::Done);
        assert_eq!(world.ask(leader, key(0), Action::Get, Condition::None), Outcome::Read(Some(7)));
        let once = Action::PutOnce(8);
        assert_eq!(world.ask(leader, key(0), once, Condition::Absent), Outcome::Failed);
        assert_eq!(world.ask(leader, key(0), Action::Delete, Condition::None), Outcome::Done);
        assert_eq!(world.ask(leader, key(0), once, Condition::Absent), Outcome::Done);
        assert_eq!(world.verdict(), Verdict::Linearizable);
        if nodes > 1 {
            let other = (leader + 1) % nodes;
            assert_eq!(world.ask(other, key(0), put(9), Condition::None), Outcome::Unavailable);
        }
    }
}

#[test]
fn the_first_on_the_list_leads() {
    let firsts = (0..10).filter(|&seed| World::quiet(seed, 3).settle() == 0).count();
    assert!(firsts >= 6, "{firsts} of 10");
}

#[test]
fn a_settled_group_is_silent() {
    let mut world = World::quiet(2, 3);
    let leader = world.settle();
    world.run(SECOND);
    assert!((0..3).all(|node| world.group(node).next_timer().is_none()));
    let term = world.group(leader).term();
    world.run(QUIET);
    assert_eq!(world.group(leader).term(), term);
    assert!(world.group(leader).is_settled());
}

#[test]
fn a_settled_group_wakes_when_its_leader_dies() {
    for seed in 0..10 {
        let mut world = World::quiet(seed, 3);
        let leader = world.settle();
        world.run(QUIET);
        world.crash(leader);
        let is_led = |world: &World| world.leader().is_some_and(|leader| world.group(leader).is_ready());
        assert!(world.run_until(3 * SECOND, is_led), "seed {seed}");
    }
}

#[test]
fn a_group_whose_leader_is_restarted_has_a_leader() {
    for seed in 0..10 {
        let mut world = World::quiet(seed, 3);
        let leader = world.settle();
        world.crash(leader);
        world.start(leader);
        let is_led = |world: &World| world.leader().is_some_and(|leader| world.group(leader).is_ready());
        assert!(world.run_until(3 * SECOND, is_led), "seed {seed}");
    }
}

#[test]
fn one_way_cuts_that_last_do_not_stop_a_group() {
    for seed in 0..10 {
        for is_deaf in [true, false] {
            let mut world = World::quiet(seed, 3);
            let leader = world.settle();
            for other in (0..3).filter(|other| *other != leader) {
                world.cuts.insert(if is_deaf { (other, leader) } else { (leader, other) });
            }
            let answers = |world: &mut World| {
                let Some(leader) = world.leader().filter(|&it| it != leader) else { return false };
                world.group(leader).is_ready()
                    && world.ask(leader, key(0), put(1), Condition::None) == Outcome::Done
            };
            world.run(5 * SECOND);
            assert!(answers(&mut world), "seed {seed}, deaf: {is_deaf}");
        }
    }
}

#[test]
fn a_voter_that_hears_no_majority_is_silent() {
    let mut world = World::quiet(9, 3);
    let leader = world.settle();
    world.crash(leader);
    world.crash((leader + 1) % 3);
    world.run(5 * SECOND);
    let (last, sent) = ((leader + 2) % 3, world.sent);
    assert_eq!(world.group(last).next_timer(), None);
    world.run(QUIET);
    assert!(world.sent - sent <= 2 * 5 * 21, "it sends pings alone: {}", world.sent - sent);
    world.start(leader);
    world.settle();
}

#[test]
fn heartbeats_to_a_dead_voter_become_rarer() {
    let mut world = World::quiet(3, 3);
    let leader = world.settle();
    world.isolate((leader + 1) % 3);
    // The dead voter counts as reachable as long as nobody says otherwise.
    world.ask(leader, key(0), put(1), Condition::None);
    let sent = world.sent;
    world.run(SECOND);
    let pings = 6 * 5;
    assert!(world.sent - sent < pings + SECOND / u64::try_from(HEARTBEAT_EVERY.as_nanos()).unwrap() * 8);
}

#[test]
fn a_leader_without_a_majority_answers_in_one_of_three_classes() {
    let mut world = World::quiet(4, 3);
    let leader = world.settle();
    assert_eq!(world.ask(leader, key(0), put(1), Condition::None), Outcome::Done);
    world.isolate(leader);
    assert_eq!(world.ask(leader, key(0), Action::Get, Condition::None), Outcome::Unavailable);
    assert_eq!(world.ask(leader, key(0), put(2), Condition::None), Outcome::Timeout);
    let cas = Action::Cas { expected: 9, value: 3 };
    let stale = Condition::Is(Version::new(0, 1));
    assert_eq!(
        world.ask(leader, key(0), cas, stale),
        Outcome::Unavailable,
        "not failed: nobody confirmed it"
    );
    world.heal();
    world.end();
    assert_eq!(world.verdict(), Verdict::Linearizable);
}

#[test]
fn a_store_that_lost_its_disk_has_no_vote() {
    let mut world = World::quiet(5, 3);
    let leader = world.settle();
    world.lose_disk((leader + 1) % 3);
    assert!(world.nodes[(leader + 1) % 3].is_gone);
    assert_eq!(world.ask(leader, key(0), put(1), Condition::None), Outcome::Done);
    world.crash(leader);
    world.run(10 * SECOND);
    assert_eq!(world.leader(), None, "one voter of three is no majority");
}

#[test]
fn an_unregistered_store_neither_votes_nor_acknowledges() {
    let mut world = World::quiet(6, 3);
    let leader = world.settle();
    let voter = (leader + 1) % 3;
    world.crash(voter);
    world.start(voter);
    // Its registration takes up to 200 ms; nothing is sent before.
    let message = strong::group::Message::VoteRequest {
        term: 99,
        last: (99, 98),
        commit: (0, 0),
        is_pre: false,
        is_transfer: false,
    };
    let (from, mut out) = (world.voter(leader), Vec::new());
    let group = world.nodes[voter].group.as_mut().unwrap();
    group.step(Input::Message { from, message: message.encode() }, world.now, &mut out);
    assert!(!out.iter().any(|output| matches!(output, Output::Send { .. } | Output::Persist(_))), "{out:?}");
}

#[test]
fn a_voter_that_forgot_says_so_and_takes_no_part() {
    let mut world = World::quiet(7, 3);
    let leader = world.settle();
    let voter = (leader + 1) % 3;
    let records = world.records(voter);
    for value in 1..4 {
        assert_eq!(world.ask(leader, key(0), put(value), Condition::None), Outcome::Done);
    }
    world.run(SECOND);
    world.roll_back(voter, records);
    world.start(voter);
    assert!(world.run_until(5 * SECOND, |world| world.nodes[voter].forgot), "a heartbeat shows it");
    assert_eq!(world.ask(leader, key(0), put(9), Condition::None), Outcome::Done, "two of three go on");
    world.run(5 * SECOND);
    assert!(world.group(leader).is_settled(), "the leader counts it out");
    world.crash(leader);
    world.run(10 * SECOND);
    assert_eq!(world.leader(), None, "it has no vote");
}

#[test]
fn a_suspect_voter_takes_part_once_it_was_brought_up_to_date() {
    let mut world = World::quiet(8, 3);
    let leader = world.settle();
    let (voter, third) = ((leader + 1) % 3, (leader + 2) % 3);
    // The voter acknowledges an entry that it does not hear to be committed.
    world.turn_to(0, leader);
    let token_before = world.group(voter).last().0;
    world.request(0, key(0), put(1), Condition::None);
    assert!(world.run_until(SECOND, |world| world.group(voter).last().0 > token_before));
    world.cuts.insert((leader, voter));
    world.run(100 * MILLISECOND);
    world.cuts.clear();
    let damaged = world.group(voter).last().0;
    assert!(world.group(voter).applied() < damaged, "it is not applied");
    world.crash(leader);
    world.crash(voter);
    world.start_damaged(voter, damaged);
    assert!(world.group(voter).is_suspect());
    world.run(5 * SECOND);
    assert_eq!(world.leader(), None, "it neither votes nor campaigns");

    world.start(leader);
    let next = world.settle();
    assert_ne!(next, voter);
    assert_eq!(world.ask(next, key(0), put(2), Condition::None), Outcome::Done);
    world.run(SECOND);
    assert!(!world.group(voter).is_suspect());
    world.crash(third);
    let leader = world.settle();
    assert_eq!(world.ask(leader, key(0), put(3), Condition::None), Outcome::Done);
}

#[test]
fn a_group_is_recovered_from_a_minority() {
    for seed in 0..5 {
        let mut world = World::quiet(seed, 5);
        let leader = world.settle();
        let (first, second) = ((leader + 1) % 5, (leader + 2) % 5);
        assert_eq!(world.ask(leader, key(0), put(1), Condition::None), Outcome::Done);
        let leader = world.settle();
        let version = world.group(leader).next_version().unwrap();
        (0..5).for_each(|node| world.crash(node));
        let lost: Vec<usize> = (0..5).filter(|node| ![first, second].contains(node)).collect();
        for &node in &lost {
            world.nodes[node].is_gone = true;
        }
        let voters = lost.iter().map(|&node| world.voter(node)).collect();
        for node in [first, second] {
            world.recover(node, &voters).unwrap();
            world.start(node);
        }
        let leader = world.settle();
        assert!(lost.iter().all(|node| *node != leader));
        assert_eq!(world.ask(leader, key(0), Action::Get, Condition::None), Outcome::Read(Some(1)));
        assert_eq!(world.ask(leader, key(0), put(2), Condition::None), Outcome::Done);
        let next = world.group(leader).next_version().unwrap();
        assert!(next > Version::new(1, 0) && version < Version::new(1, 0), "another epoch");
    }
}

#[test]
fn followers_hear_soon_that_a_write_is_committed() {
    for seed in 0..10 {
        let mut world = World::quiet(seed, 3);
        let leader = world.settle();
        assert_eq!(world.ask(leader, key(0), put(1), Condition::None), Outcome::Done);
        let (commit, before) = (world.group(leader).commit(), world.now);
        let hear = |world: &World| (0..3).all(|node| world.group(node).commit() == commit);
        assert!(world.run_until(SECOND, hear));
        let took = world.now.since(before);
        assert!(took < COMMIT_NOTE_AFTER + NOTE_HELD_MAX, "seed {seed}: {took:?}");
    }
}

#[test]
fn appends_of_a_busy_group_tell_that_entries_are_committed() {
    let mut world = World::quiet(1, 3);
    let leader = world.settle();
    let (writes, before) = (100, world.sent);
    for value in 1..=writes {
        assert_eq!(world.ask(leader, key(0), put(value), Condition::None), Outcome::Done);
        world.run(10 * MILLISECOND);
    }
    // Two appends and their answers; a note to each follower and its answer would be four more.
    let sent = world.sent - before;
    assert!(sent < 6 * writes, "{sent} messages");
}
