use base::Monotonic;
use bytes::{Bytes, BytesMut};
use protocol::peer::Reader;

use super::*;

const HOLDER: Process = Process { node: NodeId(1), life: 11 };
const OTHER: Process = Process { node: NodeId(2), life: 22 };

fn at(millis: u64) -> Monotonic {
    Monotonic(millis * 1_000_000)
}

/// A block of a holder that has heard this process at once.
fn block(stamp: Monotonic, echo: Monotonic) -> Block {
    Block { stamp, echo: Some(echo), promise: None, asks: true, is_released: false }
}

/// The promises of a process that started long ago.
fn promises() -> Promises {
    Promises::new(Monotonic(0))
}

#[test]
fn a_promise_is_closed_only_when_its_time_has_passed() {
    let mut promises = promises();
    assert_eq!(promises.close(HOLDER, at(5_000)), Ok(()), "there is none");
    promises.hear(HOLDER, &block(at(7), at(5_000)), at(5_000));
    assert_eq!(promises.told(HOLDER), (Some(at(7)), Some((1, at(7)))));
    assert_eq!(promises.close(HOLDER, at(5_400)), Err(Duration::from_millis(600)));
    promises.hear(HOLDER, &block(at(400), at(5_400)), at(5_500));
    assert_eq!(promises.told(HOLDER).1, Some((1, at(400))), "it is renewed");
    assert_eq!(promises.close(HOLDER, at(6_499)), Err(Duration::from_millis(1)));

    assert_eq!(promises.left(HOLDER, at(6_500)), None);
    promises.hear(HOLDER, &block(at(1_500), at(6_500)), at(6_600));
    assert_eq!(promises.number(HOLDER), Some(1), "it lapsed, and was not closed");
    assert_eq!(promises.close(HOLDER, at(7_600)), Ok(()));
    assert_eq!((promises.number(HOLDER), promises.told(HOLDER).1), (None, None));
    promises.hear(HOLDER, &block(at(2_500), at(7_600)), at(7_600));
    assert_eq!(promises.number(HOLDER), Some(2), "a closed one has another number");
    promises.hear(OTHER, &block(at(1), at(7_600)), at(7_600));
    assert_eq!(promises.number(OTHER), Some(3), "no two promises of a process have one number");
}

#[test]
fn a_holder_that_does_not_hear_gets_no_promise() {
    let mut promises = promises();
    let refused = [
        Block { echo: None, ..block(at(1), at(0)) },
        block(at(2), at(3_999)),
        block(at(3), at(5_001)),
        Block { asks: false, ..block(at(4), at(5_000)) },
    ];
    for block in refused {
        promises.hear(HOLDER, &block, at(5_000));
        assert_eq!(promises.told(HOLDER), (Some(block.stamp), None), "it is echoed all the same");
    }
    promises.hear(HOLDER, &block(at(5), at(4_000)), at(5_000));
    assert_eq!(promises.number(HOLDER), Some(1), "an echo of 1 s is new enough");
}

#[test]
fn a_released_promise_is_closed_and_never_renewed() {
    let mut promises = promises();
    promises.hear(HOLDER, &block(at(1), at(5_000)), at(5_000));
    promises.hear(HOLDER, &Block { is_released: true, ..block(at(2), at(5_000)) }, at(5_001));
    assert_eq!(promises.close(HOLDER, at(5_001)), Ok(()));
    promises.hear(HOLDER, &block(at(1), at(5_000)), at(5_002));
    assert_eq!(promises.number(HOLDER), None, "a late message");
    let next = Process { life: 12, ..HOLDER };
    promises.hear(next, &block(at(1), at(5_002)), at(5_002));
    assert_eq!(promises.number(next), Some(2), "another life");
}

#[test]
fn a_life_that_is_superseded_is_not_renewed() {
    let mut promises = promises();
    let next = Process { life: 12, ..HOLDER };
    promises.hear(HOLDER, &block(at(1), at(5_000)), at(5_000));
    promises.register(next, at(5_100));
    promises.hear(HOLDER, &block(at(200), at(5_200)), at(5_200));
    assert_eq!(promises.left(HOLDER, at(5_200)), Some(Duration::from_millis(800)), "it stands");
    promises.register(next, at(6_000));
    assert_eq!(promises.told(HOLDER), (None, None), "its entry is gone");
    promises.hear(HOLDER, &block(at(300), at(6_000)), at(6_000));
    assert_eq!(promises.told(HOLDER), (None, None));
}

#[test]
fn a_table_of_promises_is_bounded() {
    let mut promises = promises();
    for life in 0..PROCESSES_MAX as u64 {
        promises.hear(Process { life, ..OTHER }, &block(at(1), at(5_000)), at(5_000));
    }
    promises.hear(HOLDER, &block(at(1), at(5_500)), at(5_500));
    assert_eq!(promises.number(HOLDER), None, "all others stand");
    promises.hear(HOLDER, &block(at(1), at(6_000)), at(6_000));
    assert_eq!(promises.number(HOLDER), Some(PROCESSES_MAX as u64 + 1));
}

/// A block that tells of a promise.
fn told(number: u64, stamp: Monotonic) -> Block {
    Block { promise: Some((number, stamp)), ..block(at(1), at(1)) }
}

#[test]
fn a_grant_counts_from_the_holders_stamp() {
    let mut grants = Grants::default();
    grants.hear(OTHER, &told(4, at(100)), at(900));
    assert_eq!(grants.until(OTHER, 4), Some(at(1_000)));
    grants.hear(OTHER, &told(4, at(50)), at(910));
    assert_eq!(grants.until(OTHER, 4), Some(at(1_000)), "a late message shortens nothing");
    grants.hear(OTHER, &told(3, at(200)), at(920));
    assert_eq!((grants.until(OTHER, 3), grants.until(OTHER, 4)), (None, Some(at(1_000))));
    grants.hear(OTHER, &told(5, at(150)), at(930));
    assert_eq!((grants.until(OTHER, 4), grants.until(OTHER, 5)), (None, Some(at(1_050))));
    grants.hear(OTHER, &told(6, at(951)), at(950));
    assert_eq!(grants.until(OTHER, 6), None, "a stamp that was never given");
    let next = Process { life: 23, ..OTHER };
    assert_eq!(grants.until(next, 5), None, "another life");
    grants.register(next);
    assert_eq!(grants.until(OTHER, 5), None);
}

#[test]
fn the_guard_closes_the_promise_to_the_leader_that_it_follows() {
    let (mut guard, mut promises) = (VoteGuard::default(), promises());
    let candidate = Process { node: NodeId(3), life: 33 };
    assert_eq!(
        guard.permit(Ballot::Question, OTHER, &mut promises, at(400)),
        Err(Refusal::Started { left: Duration::from_millis(600) }),
    );
    assert_eq!(guard.permit(Ballot::Transfer, OTHER, &mut promises, at(400)), Ok(()));

    promises.hear(HOLDER, &block(at(1), at(5_000)), at(5_000));
    assert_eq!(guard.permit(Ballot::Vote, OTHER, &mut promises, at(5_000)), Ok(()), "it follows nobody");
    guard.follow(HOLDER, 4);
    guard.on_higher_term();
    let refused = Refusal::Promised { leader: HOLDER, term: 4, left: Duration::from_millis(900) };
    for ballot in [Ballot::Question, Ballot::Vote] {
        assert_eq!(guard.permit(ballot, candidate, &mut promises, at(5_100)), Err(refused));
        assert_eq!(guard.permit(ballot, HOLDER, &mut promises, at(5_100)), Ok(()), "the leader itself");
    }
    assert_eq!(guard.permit(Ballot::Transfer, candidate, &mut promises, at(5_100)), Ok(()));
    assert_eq!(promises.number(HOLDER), Some(1));

    assert_eq!(guard.permit(Ballot::Question, candidate, &mut promises, at(6_000)), Ok(()));
    assert_eq!(promises.number(HOLDER), Some(1), "a question closes nothing");
    assert_eq!(guard.permit(Ballot::Vote, candidate, &mut promises, at(6_000)), Ok(()));
    assert_eq!(promises.number(HOLDER), None);
}

#[test]
fn a_release_of_a_group_is_of_one_term_and_closes_nothing() {
    let (mut guard, mut promises) = (VoteGuard::default(), promises());
    promises.hear(HOLDER, &block(at(1), at(5_000)), at(5_000));
    guard.follow(HOLDER, 4);
    guard.release(HOLDER, 3);
    guard.release(OTHER, 4);
    assert!(guard.permit(Ballot::Vote, OTHER, &mut promises, at(5_000)).is_err());
    guard.release(HOLDER, 4);
    guard.follow(HOLDER, 4);
    assert_eq!(guard.permit(Ballot::Vote, OTHER, &mut promises, at(5_000)), Ok(()));
    assert_eq!(promises.number(HOLDER), Some(1));
    guard.follow(HOLDER, 5);
    assert!(guard.permit(Ballot::Vote, OTHER, &mut promises, at(5_000)).is_err());
    assert_eq!(guard.followed(), Some((HOLDER, 5)));
}

/// A process with a grant of number 1 until that many milliseconds.
fn granted(grants: &mut Grants, node: u16, until: u64) -> Process {
    let process = Process { node: NodeId(node), life: node.into() };
    grants.hear(process, &told(1, at(until - 900)), at(until));
    process
}

#[test]
fn a_lease_needs_a_majority_of_each_half() {
    let (mut grants, mut lease) = (Grants::default(), Lease::<u16>::new());
    lease.lead(2);
    for (node, until) in [(2, 2_000), (3, 3_000), (4, 4_000), (5, 5_000)] {
        let process = granted(&mut grants, node, until);
        lease.on_answer(node, process, 1, 2);
    }
    type Half = (&'static [u16], bool);
    let ends: [(&[Half], u64); 7] = [
        (&[(&[2, 3], true)], 3_000),
        (&[(&[2, 3, 4, 5], true)], 4_000),
        (&[(&[2, 3, 4], false)], 3_000),
        (&[(&[2], true)], 2_000),
        (&[(&[2, 3], true), (&[4, 5], true)], 3_000),
        (&[(&[4, 5], true), (&[2, 3], false)], 2_000),
        (&[(&[9, 8], true)], 0),
    ];
    for (halves, end) in ends {
        lease.on_configuration();
        assert_eq!(lease.holds(at(end.saturating_sub(1)), &grants, halves), end > 0, "{halves:?}");
        assert!(!lease.holds(at(end), &grants, halves), "{halves:?}");
    }
    assert!(lease.holds(Monotonic(u64::MAX - 1), &grants, &[(&[], true)]), "a group of one voter");
}

#[test]
fn a_lease_is_of_one_term_and_one_number() {
    let (mut grants, mut lease) = (Grants::default(), Lease::<u16>::new());
    let halves: &[(&[u16], bool)] = &[(&[2, 3], true)];
    lease.lead(2);
    let process = granted(&mut grants, 2, 2_000);
    lease.on_answer(2, process, 1, 1);
    assert!(!lease.holds(at(1_000), &grants, halves), "an answer of an earlier term");
    lease.on_answer(2, process, 1, 2);
    assert!(lease.holds(at(1_000), &grants, halves));
    grants.hear(process, &told(2, at(2_000)), at(2_000));
    assert!(lease.holds(at(1_999), &grants, halves), "the end that was found stays true");
    assert!(!lease.holds(at(2_000), &grants, halves), "another number");
    lease.on_answer(2, process, 2, 2);
    lease.on_answer(2, process, 1, 2);
    assert!(lease.holds(at(2_000), &grants, halves), "a late answer takes nothing away");

    lease.lead(3);
    assert!(!lease.holds(at(2_000), &grants, halves));
    lease.on_answer(2, process, 2, 3);
    assert!(lease.holds(at(2_000), &grants, halves));
    lease.give_up();
    assert!(!lease.holds(at(2_000), &grants, halves) && lease.is_given_up());
}

/// Blocks, and their bytes.
fn golden() -> Vec<(Block, &'static [u8])> {
    let least = Block { stamp: at(1), echo: None, promise: None, asks: false, is_released: false };
    let promise = Some((300, Monotonic(0x0102)));
    vec![
        (least.clone(), b"\x01\x00\x40\x42\x0F\0\0\0\0\0"),
        (Block { is_released: true, ..least.clone() }, b"\x01\x02\x40\x42\x0F\0\0\0\0\0"),
        (
            Block { asks: true, echo: Some(Monotonic(3)), promise, ..least },
            b"\x01\x0D\x40\x42\x0F\0\0\0\0\0\x03\0\0\0\0\0\0\0\xAC\x02\x02\x01\0\0\0\0\0\0",
        ),
    ]
}

#[test]
fn golden_bytes() {
    for (block, bytes) in golden() {
        let mut out = BytesMut::new();
        block.put(&mut out);
        assert_eq!(out, bytes, "{block:?}");
        for length in 0..bytes.len() {
            let mut fields = Reader::new(Bytes::from_static(&bytes[..length]));
            assert!(Block::read(&mut fields).is_err(), "{block:?} of {length} bytes");
        }
        let mut fields = Reader::new(Bytes::from([bytes, b"more"].concat()));
        assert_eq!(Block::read(&mut fields), Ok(block));
        assert_eq!(fields.u8(), Ok(b'm'));
    }
}

#[test]
fn malformed_blocks_are_refused() {
    let refused: [&'static [u8]; 3] = [
        b"\x02\x00\0\0\0\0\0\0\0\0",
        b"\x01\x10\0\0\0\0\0\0\0\0",
        b"\x01\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    ];
    for bytes in refused {
        assert!(Block::read(&mut Reader::new(Bytes::from_static(bytes))).is_err(), "{bytes:?}");
    }
}
