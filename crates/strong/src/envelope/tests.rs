use base::Monotonic;
use base::Rng;
use base::rng::SplitMix64;

use super::*;
use crate::group::Message;

const HERE: Endpoint = Endpoint { life: 0x0102, shard: 3 };
const THERE: Endpoint = Endpoint { life: 0x0405, shard: 6 };

fn group(prefix: u16) -> GroupId {
    GroupId { n_val: 3, founding: 0xF00D, prefix }
}

fn heartbeat(commit: u64, context: u64) -> Bytes {
    Message::Heartbeat { term: 4, commit, context }.encode()
}

fn append(bytes: usize) -> Bytes {
    let mut message =
        Message::Append { term: 4, previous: (6, 3), commit: 5, acknowledged: 2, entries: vec![] }
            .encode()
            .to_vec();
    message.resize(bytes.max(message.len()), 0);
    message.into()
}

fn envelope() -> Envelope {
    let other = GroupId { n_val: 5, founding: 1, prefix: 0x1234 };
    let messages = vec![
        (group(7), Bytes::from_static(b"one")),
        (group(8), Bytes::from_static(b"two")),
        (other, Bytes::from_static(b"three")),
    ];
    Envelope { from: HERE, to: THERE, lane: Lane::Requests, messages }
}

#[test]
fn golden_bytes() {
    let golden: [&[u8]; 6] = [
        b"\x01\x01\x02\x01\0\0\0\0\0\0\x03\0\x05\x04\0\0\0\0\0\0\x06\0",
        b"\x03\x0D\xF0\0\0\0\0\0\0\x02",
        b"\x07\0\x03one",
        b"\x08\0\x03two",
        b"\x05\x01\0\0\0\0\0\0\0\x01",
        b"\x34\x12\x05three",
    ];
    let golden = golden.concat();
    assert_eq!(envelope().encode(), golden);
    assert_eq!(Envelope::read(golden.clone().into()), Ok(envelope()));
    let ends = [22, 44, golden.len()];
    for length in 0..golden.len() {
        let read = Envelope::read(Bytes::copy_from_slice(&golden[..length]));
        assert_eq!(read.is_ok(), ends.contains(&length), "{length} bytes");
    }
}

#[test]
fn random_bytes_make_no_panic() {
    let mut rng = SplitMix64::new(5);
    let good = envelope().encode();
    for _ in 0..100_000 {
        let mut bad = good.to_vec();
        bad.truncate(usize::try_from(rng.below(2 * bad.len() as u64)).unwrap());
        for _ in 0..=rng.below(4) {
            let at = rng.below(bad.len().max(1) as u64);
            if let Some(byte) = bad.get_mut(usize::try_from(at).unwrap()) {
                *byte = u8::try_from(rng.below(256)).unwrap();
            }
        }
        if let Ok(read) = Envelope::read(bad.into()) {
            assert_eq!(Envelope::read(read.encode()), Ok(read));
        }
    }
}

#[test]
fn appends_and_their_answers_are_requests() {
    assert_eq!(Lane::of(&append(30)), Lane::Requests);
    let reply = Message::AppendReply { term: 4, index: 9, commit: 5, rejected: None };
    assert_eq!(Lane::of(&reply.encode()), Lane::Requests);
    assert_eq!(Lane::of(&heartbeat(5, 0)), Lane::Liveness);
    assert_eq!(Lane::of(&Message::TimeoutNow { term: 4 }.encode()), Lane::Liveness);
}

#[test]
fn counts_are_bounded() {
    let messages = vec![(group(1), Bytes::new()); ENVELOPE_MESSAGES_MAX + 1];
    let bytes = Envelope { messages, ..envelope() }.encode();
    assert_eq!(Envelope::read(bytes), Err(Malformed("no messages in an envelope, or too many")));
}

#[test]
fn messages_of_a_turn_share_envelopes_by_lane() {
    let (mut outgoing, now) = (Outgoing::new(HERE), Monotonic(0));
    outgoing.push(THERE, group(1), append(30), now);
    outgoing.push(THERE, group(2), heartbeat(5, 9), now);
    outgoing.push(THERE, group(1), append(40), now);
    let taken = outgoing.take(now);
    let lanes: Vec<_> = taken.iter().map(|(_, it)| (it.lane, it.messages.len())).collect();
    assert_eq!(lanes, [(Lane::Liveness, 1), (Lane::Requests, 2)]);
    assert_eq!(taken[1].1.messages, [(group(1), append(30)), (group(1), append(40))], "in order");
    assert_eq!(outgoing.take(now), []);
}

#[test]
fn notes_wait_for_company() {
    let (mut outgoing, now) = (Outgoing::new(HERE), Monotonic(0));
    outgoing.push(THERE, group(1), heartbeat(5, 0), now);
    outgoing.push(THERE, group(1), heartbeat(6, 0), now);
    assert_eq!(outgoing.take(now), []);
    assert_eq!(outgoing.next_timer(), Some(now + NOTE_HELD_MAX));
    let taken = outgoing.take(now + NOTE_HELD_MAX);
    assert_eq!(taken[0].1.messages, [(group(1), heartbeat(6, 0))], "the newest one");
    assert_eq!(outgoing.next_timer(), None);

    outgoing.push(THERE, group(1), heartbeat(7, 0), now);
    outgoing.push(THERE, group(2), heartbeat(7, 0), now);
    outgoing.push(THERE, group(2), append(30), now);
    let taken = outgoing.take(now);
    assert_eq!(taken[0].1.messages, [(group(1), heartbeat(7, 0))]);
    assert_eq!(taken[1].1.messages, [(group(2), append(30))], "it says more than the note");
}

#[test]
fn envelopes_are_bounded() {
    let (mut outgoing, now) = (Outgoing::new(HERE), Monotonic(0));
    for size in [ENVELOPE_BYTES_MAX / 2, ENVELOPE_BYTES_MAX / 2, 20, 2 * ENVELOPE_BYTES_MAX] {
        outgoing.push(THERE, group(1), append(size), now);
    }
    let counts: Vec<_> = outgoing.take(now).iter().map(|(_, it)| it.messages.len()).collect();
    assert_eq!(counts, [2, 1, 1]);
}
