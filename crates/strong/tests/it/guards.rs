//! Messages with anything in them that can be read: none ends the process.

use std::time::Duration;

use base::rng::SplitMix64;
use base::{Monotonic, Rng};
use bytes::Bytes;
use strong::group::{
    Answer, Cause, Condition, Configuration, Entry, Input, Message, NUMBER_MAX, Output, Payload, Proposal,
    UNAPPLIED_BYTES_MAX, UNAPPLIED_ENTRIES_MAX, Write,
};

use crate::world::{SECOND, World};

fn below(rng: &mut SplitMix64, bound: u64) -> usize {
    usize::try_from(rng.below(bound)).unwrap()
}

/// A message with numbers near those of a group, of which it had some entries: index and term.
fn some_message(
    rng: &mut SplitMix64,
    own_term: u64,
    last: u64,
    known: &[(u64, u64)],
    (received, configuration): ((u64, u64), &Configuration),
) -> Message {
    let term = (own_term + rng.below(4)).saturating_sub(1).max(1);
    let near = |rng: &mut SplitMix64| match rng.chance(1, 50) {
        true => NUMBER_MAX - 2,
        false => (last + rng.below(5)).saturating_sub(4).max(1),
    };
    let earlier = |rng: &mut SplitMix64| 1 + rng.below(term);
    let commit = (near(rng), earlier(rng));
    match rng.below(13) {
        0 | 1 => {
            let known = known.iter().rev().filter(|(_, of_term)| *of_term <= term);
            let known = known.copied().nth(usize::try_from(rng.below(4)).unwrap());
            let random = (near(rng), earlier(rng));
            let previous = known.filter(|_| rng.chance(3, 4)).unwrap_or(random);
            let terms = previous.1..=term;
            let entry = |at, rng: &mut SplitMix64| {
                let write = Payload::Write(Write { key: Bytes::from_static(b"k"), object: None });
                let term = terms.start() + rng.below(terms.end() - terms.start() + 1);
                let payload = [Payload::First, write, Payload::Reap { through: rng.below(last + 1) }];
                Entry { index: previous.0 + at, term, payload: payload[below(rng, 3)].clone() }
            };
            let mut entries: Vec<Entry> = (1..=rng.below(4)).map(|at| entry(at, rng)).collect();
            let mut highest = 0;
            for entry in &mut entries {
                highest = highest.max(entry.term);
                entry.term = highest;
            }
            let acknowledged = if rng.chance(1, 20) { near(rng) } else { 0 };
            Message::Append { term, previous, commit: commit.0, acknowledged, entries }
        }
        2 => {
            let rejected = rng.chance(1, 2).then(|| (near(rng), earlier(rng)));
            Message::AppendReply { term, index: near(rng), commit: commit.0, rejected }
        }
        3 => {
            let commit = if rng.chance(1, 10) { near(rng) } else { 1 };
            Message::Heartbeat { term, commit, context: rng.below(3) }
        }
        4 => Message::HeartbeatReply { term, commit: commit.0, context: rng.below(3) },
        5 => {
            let (is_pre, is_transfer) = (rng.chance(1, 2), rng.chance(1, 4));
            Message::VoteRequest { term, last: (near(rng), earlier(rng)), commit, is_pre, is_transfer }
        }
        6 => {
            let (is_pre, is_rejected) = (rng.chance(1, 2), rng.chance(1, 3));
            let commit = if rng.chance(1, 2) { (0, 0) } else { commit };
            Message::VoteReply { term, commit, is_pre, is_rejected }
        }
        7 => Message::Resigned { term },
        8 => Message::Incomplete { term },
        9 => Message::ReadQuestion { term, context: rng.below(3) },
        10 => Message::ReadReply { term, context: rng.below(3), index: near(rng) },
        11 => {
            let last = if rng.chance(1, 2) { received } else { (near(rng), earlier(rng)) };
            let (term, reaped) = (term.max(last.1), rng.below(last.0));
            Message::Snapshot { term, last, reaped, configuration: configuration.clone() }
        }
        _ => Message::TimeoutNow { term },
    }
}

#[test]
fn no_message_of_a_peer_makes_a_panic() {
    let seeds = std::env::var("STRONG_FUZZ").map_or(3_000, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let mut world = World::quiet(seed, if seed % 4 == 0 { 1 } else { 3 });
        world.settle();
        let mut rng = SplitMix64::new(seed);
        let peers: Vec<_> = (0..world.nodes.len()).map(|node| world.voter(node)).collect();
        let here = usize::try_from(seed).unwrap() % world.nodes.len();
        let mut group = world.nodes[here].group.take().unwrap();
        let (mut unsynced, mut known, mut token) = (Vec::new(), vec![group.last()], 1_000);
        let mut asked = None;
        let mut received = (1, 1);
        let configuration = group.state().configuration;
        if seed % 2 == 0 {
            // It stands for election.
            let voter = group.leader().unwrap();
            group.step(Input::Reachable { voter, is_up: false }, world.now, &mut Vec::new());
        }
        for _ in 0..100 {
            world.now = Monotonic(world.now.0 + rng.below(SECOND / 2));
            let deadline = Monotonic(world.now.0 + SECOND);
            token += 1;
            let peer = peers[usize::try_from(rng.below(peers.len() as u64)).unwrap()];
            let input = match rng.below(20) {
                0 => Input::Tick,
                14 if !group.leads() => Input::Receiving { is_incomplete: rng.chance(1, 2) },
                15 => {
                    let index = (group.last().0 + rng.below(5)).saturating_sub(2).max(1);
                    received = (index, 1 + rng.below(group.term()));
                    Input::Received { index, term: received.1 }
                }
                16 => Input::CatchUpBegun { voter: peer, base: rng.below(group.applied() + 1) },
                17 => match group.applied_entry() {
                    Some((index, term)) => Input::CaughtUp { voter: peer, index, term },
                    None => Input::CatchUpBroken { voter: peer },
                },
                18 => {
                    group.trim(usize::try_from(rng.below(200)).unwrap());
                    Input::Reap { silence: Duration::from_secs(rng.below(2)) }
                }
                1 | 6 if !unsynced.is_empty() => {
                    let all = unsynced.len() - 1;
                    let some = usize::try_from(rng.below(unsynced.len() as u64)).unwrap();
                    let at = if rng.chance(1, 2) { all } else { some };
                    let number = unsynced.drain(..=at).next_back().unwrap();
                    Input::Persisted { number }
                }
                19 => Input::Unreadable,
                2 => Input::Read { token, deadline },
                7 if asked.is_some() => {
                    let message: Message = asked.take().unwrap();
                    Input::Message { from: peer, message: message.encode() }
                }
                4 => Input::Restarted { voter: peer },
                5 => {
                    let write = Write { key: Bytes::from_static(b"k"), object: None };
                    let condition = Condition::None;
                    Input::Propose(Proposal { token, condition, write, head: None, version: None, deadline })
                }
                3 => {
                    let is_up = rng.chance(1, 2);
                    Input::Reachable { voter: peer, is_up }
                }
                _ => {
                    let message = some_message(
                        &mut rng,
                        group.term(),
                        group.last().0,
                        &known,
                        (received, &configuration),
                    );
                    let message = message.encode();
                    Input::Message { from: peer, message }
                }
            };
            let mut out = Vec::new();
            group.step(input, world.now, &mut out);
            for output in out {
                match output {
                    Output::Persist(batch) => {
                        let replaced = batch.entries.first().map_or(u64::MAX, |first| first.index);
                        assert!(
                            batch.commit < replaced,
                            "entries that a crash brings back are not committed"
                        );
                        unsynced.push(batch.number);
                        known.extend(batch.entries.iter().map(|entry| (entry.index, entry.term)));
                    }
                    Output::Send { message, .. } => {
                        if let Ok(Message::VoteRequest { term, is_pre, .. }) = Message::read(message) {
                            let commit = (0, 0);
                            asked = Some(Message::VoteReply { term, commit, is_pre, is_rejected: false });
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn a_late_rejection_makes_no_catch_up() {
    let mut world = World::quiet(1, 3);
    let leader = world.settle();
    world.run(SECOND);
    let voter = world.voter((leader + 1) % 3);
    let mut group = world.nodes[leader].group.take().unwrap();
    let (term, (last, _)) = (group.term(), group.last());
    group.trim(0);

    let late = Message::AppendReply { term, index: last, commit: last, rejected: Some((last - 1, term)) };
    let beat = Message::HeartbeatReply { term, commit: last, context: 0 };
    let write = Write { key: Bytes::from_static(b"k"), object: None };
    let deadline = Monotonic(world.now.0 + SECOND);
    let (token, condition) = (1, Condition::None);
    let mut out = Vec::new();
    for input in [
        Input::Reachable { voter, is_up: false },
        Input::Message { from: voter, message: late.encode() },
        Input::Reachable { voter, is_up: true },
        Input::Propose(Proposal { token, condition, write, head: None, version: None, deadline }),
        Input::Message { from: voter, message: beat.encode() },
    ] {
        group.step(input, world.now, &mut out);
    }
    let wants = |output: &Output| matches!(output, Output::CatchUpWanted { .. });
    assert!(!out.iter().any(wants), "the voter has all entries: {out:?}");
    let appends = |output: &Output| match output {
        Output::Send { to, message } if *to == voter => {
            matches!(Message::read(message.clone()), Ok(Message::Append { previous, .. }) if previous.0 == last)
        }
        _ => false,
    };
    assert!(out.iter().any(appends), "the next entry is sent: {out:?}");
}

#[test]
fn a_follower_that_is_full_drops_entries_and_takes_a_new_leaders() {
    let mut world = World::quiet(1, 3);
    let leader = world.settle();
    let voter = (leader + 1) % 3;
    let from = world.voter(leader);
    let mut group = world.nodes[voter].group.take().unwrap();
    let (term, (first, first_term)) = (group.term(), group.last());
    let append = |term, previous: (u64, u64)| {
        let payload = Payload::Write(Write { key: Bytes::from_static(b"k"), object: None });
        let entries = vec![Entry { index: previous.0 + 1, term, payload }];
        Message::Append { term, previous, commit: 0, acknowledged: 0, entries }.encode()
    };
    let mut step = |message| {
        let mut out = Vec::new();
        group.step(Input::Message { from, message }, world.now, &mut out);
        group.last()
    };
    let mut last = (first, first_term);
    for _ in 0..2 * UNAPPLIED_ENTRIES_MAX {
        last = step(append(term, last));
    }
    assert!(last.0 - first <= UNAPPLIED_ENTRIES_MAX, "{last:?} after {first}");
    let last = step(append(term + 1, (first, first_term)));
    assert_eq!(last, (first + 1, term + 1), "entries of a new leader replace those that wait");
}

/// A new leader does not know how far its voters are. One that has all that may be unapplied, or is farther behind, has
/// to say so: entries that were dropped in silence were sent again for ever.
#[test]
fn a_voter_that_has_no_room_tells_a_new_leader_how_far_it_is() {
    let mut world = World::quiet(1, 3);
    let leader = world.settle();
    let voter = (leader + 1) % 3;
    let from = world.voter(leader);
    let mut group = world.nodes[voter].group.take().unwrap();
    let (first, term) = (group.last(), group.term());
    let append = |term, previous: (u64, u64), count| {
        let entry = |at| Entry { index: previous.0 + at, term, payload: Payload::First };
        let entries = (1..=count).map(entry).collect();
        Message::Append { term, previous, commit: 0, acknowledged: 0, entries }.encode()
    };
    let mut answer_to = |message| {
        let mut out = Vec::new();
        group.step(Input::Message { from, message }, world.now, &mut out);
        let numbers = out.iter().filter_map(|output| match output {
            Output::Persist(batch) => Some(batch.number),
            _ => None,
        });
        for number in numbers.collect::<Vec<_>>() {
            group.step(Input::Persisted { number }, world.now, &mut out);
        }
        let sent = out.into_iter().rev().find_map(|output| match output {
            Output::Send { message, .. } => Message::read(message).ok(),
            _ => None,
        });
        match sent {
            Some(Message::AppendReply { index, rejected, .. }) => (index, rejected.map(|(hint, _)| hint)),
            other => panic!("{other:?} is no answer"),
        }
    };

    let far = (first.0 + 2 * UNAPPLIED_ENTRIES_MAX, term);
    assert_eq!(answer_to(append(term, far, 1)), (far.0, Some(first.0)), "it is far behind");
    let last = first.0 + UNAPPLIED_ENTRIES_MAX + 1;
    assert_eq!(answer_to(append(term, first, UNAPPLIED_ENTRIES_MAX + 1)), (last, None));
    assert_eq!(answer_to(append(term + 1, (last, term), 1)), (last, None), "it is full");
}

/// Proposes writes of a size at a leader that is cut off, until it refuses one; how many it takes.
fn proposals_taken(size: usize) -> u64 {
    let mut world = World::quiet(2, 3);
    let leader = world.settle();
    let now = world.now;
    let deadline = Monotonic(now.0 + SECOND);
    let mut group = world.nodes[leader].group.take().unwrap();
    (0_u64..)
        .find(|&token| {
            let object = Some(Bytes::from(vec![0; size]));
            let write = Write { key: Bytes::copy_from_slice(&token.to_le_bytes()), object };
            let proposal = Proposal {
                token,
                condition: Condition::Absent,
                write,
                head: None,
                version: group.next_version(),
                deadline,
            };
            let mut out = Vec::new();
            group.step(Input::Propose(proposal), now, &mut out);
            out.contains(&Output::Answer { token, answer: Answer::Unavailable(Cause::Overload) })
        })
        .unwrap()
}

#[test]
fn a_leader_that_is_full_refuses_more() {
    assert_eq!(proposals_taken(10), UNAPPLIED_ENTRIES_MAX);
    let taken = proposals_taken(UNAPPLIED_BYTES_MAX / 10);
    assert!((9..=10).contains(&taken), "{taken} entries of a tenth");
    assert_eq!(proposals_taken(2 * UNAPPLIED_BYTES_MAX), 1, "one is always taken");
}

#[test]
fn an_acknowledgment_of_entries_that_do_not_exist_commits_nothing() {
    let mut world = World::quiet(3, 3);
    let leader = world.settle();
    let (from, now) = (world.voter((leader + 1) % 3), world.now);
    let deadline = Monotonic(now.0 + SECOND);
    let mut group = world.nodes[leader].group.take().unwrap();
    let (term, index) = (group.term(), group.last().0 + 1);
    let reply = Message::AppendReply { term, index, commit: index, rejected: None }.encode();
    let mut out = Vec::new();
    group.step(Input::Message { from, message: reply }, now, &mut out);

    let write = Write { key: Bytes::from_static(b"k"), object: None };
    let proposal =
        Proposal { token: 1, condition: Condition::None, write, head: None, version: None, deadline };
    group.step(Input::Propose(proposal), now, &mut out);
    let number = out.iter().find_map(|output| match output {
        Output::Persist(batch) => Some(batch.number),
        _ => None,
    });
    group.step(Input::Persisted { number: number.unwrap() }, now, &mut out);
    assert!(!out.iter().any(|output| matches!(output, Output::Answer { .. } | Output::Apply(_))), "{out:?}");
}
