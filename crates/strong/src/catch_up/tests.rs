use base::Monotonic;

use super::*;

const NOW: Monotonic = Monotonic(1_000);

fn item(key: &'static str, index: u64) -> Item {
    let object = (index % 2 == 1).then(|| Bytes::from_static(b"object"));
    Item { key: Bytes::from_static(key.as_bytes()), version: Version::new(0, index), object }
}

fn checkpoint(place: Place) -> Checkpoint {
    Checkpoint { number: 7, base: 300, is_incomplete: false, place, snapshot: (310, 4), left_out: 0 }
}

fn send(sender: &mut Sender, message: ToSender) -> Vec<SenderOutput> {
    let mut out = Vec::new();
    sender.step(SenderInput::Message { message, reaped: 5, applied: 20 }, NOW, &mut out);
    out
}

fn fold(sender: &mut Sender, applied: u64, items: Vec<Item>, is_last: bool) -> ToReceiver {
    let mut out = Vec::new();
    let number = sender.number();
    sender.step(SenderInput::Folded { number, applied: (applied, 3), items, is_last }, NOW, &mut out);
    match out.pop() {
        Some(SenderOutput::Send(part)) => part,
        other => panic!("{other:?}"),
    }
}

fn receive(receiver: &mut Receiver, message: ToReceiver, applied: u64) -> Vec<ReceiverOutput> {
    let mut out = Vec::new();
    receiver.step(ReceiverInput::Message { message, applied, reaped: 0, is_unreadable: false }, &mut out);
    out
}

fn sync(receiver: &mut Receiver) -> Vec<ReceiverOutput> {
    let mut out = Vec::new();
    receiver.step(ReceiverInput::Synced, &mut out);
    out
}

fn offer(reaped: u64) -> ToReceiver {
    ToReceiver::Offer { number: 7, attempt: 1, reaped }
}

#[test]
fn a_catch_up_goes_on_behind_the_last_part_with_the_first_ones_index() {
    let mut out = Vec::new();
    let mut sender = Sender::begin(7, 5, NOW, &mut out);
    assert_eq!(out, [SenderOutput::Send(offer(5))]);
    let mut receiver = Receiver::default();
    let out = receive(&mut receiver, offer(5), 10);
    let begun = Checkpoint { base: 10, snapshot: (0, 0), ..checkpoint(Place::Begin) };
    let write = ReceiverOutput::Write { drops: false, items: vec![], checkpoint: begun };
    assert_eq!(out, [ReceiverOutput::Receiving { is_incomplete: false }, write]);
    let ready = ToSender::Ready { number: 7, attempt: 1, base: 10, place: Place::Begin };
    assert_eq!(sync(&mut receiver), [ReceiverOutput::Send(ready.clone())]);

    let begin = [SenderOutput::Begun { base: 10 }, SenderOutput::Fold { number: 7, above: 10, after: None }];
    assert_eq!(send(&mut sender, ready.clone()), begin);
    assert_eq!(send(&mut sender, ready), [], "twice");
    let part = fold(&mut sender, 20, vec![item("a", 11), item("b", 12)], false);
    let out = receive(&mut receiver, part.clone(), 11);
    let ReceiverOutput::Write { items, .. } = &out[0] else { panic!("{out:?}") };
    assert_eq!(items[..], [item("b", 12)], "the other one is applied here");
    assert_eq!(receive(&mut receiver, part, 11), [], "twice");
    sync(&mut receiver);

    // Its answer is lost.
    let mut out = Vec::new();
    sender.step(SenderInput::Tick { reaped: 5 }, NOW + OFFER_RETRY, &mut out);
    let Some(SenderOutput::Send(again)) = out.pop() else { panic!("no offer") };
    let out = receive(&mut receiver, again, 11);
    let place = Place::Key(Bytes::from_static(b"b"));
    let ready = ToSender::Ready { number: 7, attempt: 2, base: 10, place };
    assert_eq!(out, [ReceiverOutput::Send(ready.clone())]);
    let after = Some(Bytes::from_static(b"b"));
    assert_eq!(send(&mut sender, ready), [SenderOutput::Fold { number: 7, above: 10, after }]);
    let part = fold(&mut sender, 30, vec![item("c", 29)], true);
    receive(&mut receiver, part, 11);
    let kept = ToSender::Kept { number: 7, place: Place::End };
    let received = ReceiverOutput::Received { index: 20, term: 3 };
    assert_eq!(sync(&mut receiver), [received, ReceiverOutput::Send(kept.clone())]);
    assert_eq!(send(&mut sender, kept), [SenderOutput::CaughtUp { index: 20, term: 3 }]);
    assert_eq!(sender.next_timer(), None);

    let mut out = Vec::new();
    receiver.step(ReceiverInput::Applied { index: 28 }, &mut out);
    assert_eq!(out, []);
    receiver.step(ReceiverInput::Applied { index: 29 }, &mut out);
    assert_eq!(out, [ReceiverOutput::Forget]);
}

#[test]
fn a_fold_of_an_earlier_catch_up_makes_no_part() {
    let mut sender = Sender::begin(7, 5, NOW, &mut Vec::new());
    send(&mut sender, ToSender::Ready { number: 7, attempt: 1, base: 10, place: Place::Begin });
    let mut out = Vec::new();
    let (applied, items) = ((20, 3), vec![item("z", 11)]);
    let earlier = SenderInput::Folded { number: 6, applied, items, is_last: true };
    sender.step(earlier, NOW, &mut out);
    assert_eq!(out, []);
    let part = fold(&mut sender, 20, vec![item("a", 12)], false);
    assert!(matches!(part, ToReceiver::Part { items, .. } if items == [item("a", 12)]));
}

#[test]
fn a_receiver_that_missed_a_reaping_drops_all() {
    let mut receiver = Receiver::default();
    let out = receive(&mut receiver, offer(11), 10);
    let begun = Checkpoint { base: 0, is_incomplete: true, snapshot: (0, 0), ..checkpoint(Place::Begin) };
    let write = ReceiverOutput::Write { drops: true, items: vec![], checkpoint: begun.clone() };
    assert_eq!(out, [ReceiverOutput::Receiving { is_incomplete: true }, write]);

    let mut out = Vec::new();
    let mut receiver = Receiver::open(Some(begun.clone()), 10, &mut out);
    assert_eq!(out, []);
    let other = ToReceiver::Offer { number: 8, attempt: 1, reaped: 0 };
    let out = receive(&mut receiver, other, 10);
    let begun = Checkpoint { number: 8, ..begun };
    let write = ReceiverOutput::Write { drops: true, items: vec![], checkpoint: begun };
    assert_eq!(out[1], write, "under another number, again");
}

#[test]
fn tombstones_reaped_since_the_offer_need_another_offer() {
    let mut sender = Sender::begin(7, 5, NOW, &mut Vec::new());
    let ready = ToSender::Ready { number: 7, attempt: 1, base: 4, place: Place::Begin };
    let again = ToReceiver::Offer { number: 7, attempt: 2, reaped: 5 };
    assert_eq!(send(&mut sender, ready), [SenderOutput::Send(again.clone())]);

    let begun = Checkpoint { base: 4, snapshot: (0, 0), ..checkpoint(Place::Begin) };
    let mut receiver = Receiver::open(Some(begun), 4, &mut Vec::new());
    let out = receive(&mut receiver, again, 4);
    assert_eq!(out[0], ReceiverOutput::Receiving { is_incomplete: true });
}

#[test]
fn a_refill_beside_a_reaping_by_another_leader_begins_anew() {
    let begun = Checkpoint { base: 0, is_incomplete: true, ..checkpoint(Place::Begin) };
    let mut receiver = Receiver::open(Some(begun), 4, &mut Vec::new());
    let part = ToReceiver::Part {
        number: 7,
        snapshot: (20, 3),
        after: Place::Begin,
        items: vec![item("a", 19)],
        through: Place::End,
    };
    let mut out = Vec::new();
    receiver.step(
        ReceiverInput::Message { message: part, applied: 30, reaped: 21, is_unreadable: false },
        &mut out,
    );
    assert_eq!(out, [ReceiverOutput::Send(ToSender::Refused { number: 7 })]);
    let mut sender = Sender::begin(7, 5, NOW, &mut Vec::new());
    assert_eq!(send(&mut sender, ToSender::Refused { number: 7 }), [SenderOutput::Broken]);
}

#[test]
fn a_refill_by_a_leader_that_has_applied_less_begins_anew() {
    let begun = Checkpoint { base: 0, is_incomplete: true, snapshot: (0, 0), ..checkpoint(Place::Begin) };
    let part = |after: Place, through: Place| ToReceiver::Part {
        number: 7,
        snapshot: (20, 3),
        after,
        items: vec![item("a", 19)],
        through,
    };
    let place = Place::Key(Bytes::from_static(b"a"));
    let first = part(Place::Begin, place.clone());
    let mut receiver = Receiver::open(Some(begun.clone()), 21, &mut Vec::new());
    let refused = ReceiverOutput::Send(ToSender::Refused { number: 7 });
    assert_eq!(
        receive(&mut receiver, first.clone(), 21),
        [refused],
        "entry 21 had its effect on dropped keys"
    );

    let mut receiver = Receiver::open(Some(begun), 20, &mut Vec::new());
    assert!(matches!(receive(&mut receiver, first, 20)[0], ReceiverOutput::Write { .. }));
    sync(&mut receiver);
    let next = part(place, Place::End);
    assert!(
        matches!(receive(&mut receiver, next, 25)[0], ReceiverOutput::Write { .. }),
        "applied on top of it"
    );
}

#[test]
fn a_receiver_that_is_silent_is_given_up() {
    let mut sender = Sender::begin(7, 5, NOW, &mut Vec::new());
    let mut out = Vec::new();
    sender.step(SenderInput::Tick { reaped: 5 }, NOW + IDLE_MAX, &mut out);
    assert_eq!(out, [SenderOutput::Broken]);
}

#[test]
fn golden_bytes_of_checkpoints() {
    let goldens: [(Checkpoint, &[u8]); 3] = [
        (checkpoint(Place::Begin), b"\x02\x07\0\0\0\0\0\0\0\xAC\x02\xB6\x02\x04\0\0\0"),
        (
            checkpoint(Place::Key(Bytes::from_static(b"key"))),
            b"\x02\x07\0\0\0\0\0\0\0\xAC\x02\xB6\x02\x04\0\0\x01\x03key",
        ),
        (
            Checkpoint { is_incomplete: true, left_out: 311, ..checkpoint(Place::End) },
            b"\x02\x07\0\0\0\0\0\0\0\xAC\x02\xB6\x02\x04\xB7\x02\x01\x02",
        ),
    ];
    for (checkpoint, golden) in goldens {
        assert_eq!(checkpoint.encode(), golden);
        for length in 0..golden.len() {
            assert!(Checkpoint::read(Bytes::from_static(&golden[..length])).is_err());
        }
        assert_eq!(Checkpoint::read(Bytes::from_static(golden)), Ok(checkpoint));
    }

    let before = Bytes::from_static(b"\x01\x07\0\0\0\0\0\0\0\xAC\x02\xB6\x02\x04\0\x02");
    assert_eq!(Checkpoint::read(before), Ok(checkpoint(Place::End)), "of version 1");
}

#[test]
fn a_catch_up_ends_when_the_versions_that_it_left_out_are_applied() {
    let begun = Checkpoint { base: 300, snapshot: (0, 0), ..checkpoint(Place::Begin) };
    let mut receiver = Receiver::open(Some(begun), 300, &mut Vec::new());
    let part = ToReceiver::Part {
        number: 7,
        snapshot: (310, 4),
        after: Place::Begin,
        items: vec![item("a", 309), item("b", 331)],
        through: Place::End,
    };
    let out = receive(&mut receiver, part, 300);
    let ReceiverOutput::Write { items, checkpoint, .. } = &out[0] else { panic!("{out:?}") };
    assert_eq!((&items[..], checkpoint.left_out), (&[item("a", 309)][..], 331));
    sync(&mut receiver);
    let mut out = Vec::new();
    receiver.step(ReceiverInput::Applied { index: 330 }, &mut out);
    assert_eq!(out, [], "the store has an old version of b");
    receiver.step(ReceiverInput::Applied { index: 331 }, &mut out);
    assert_eq!(out, [ReceiverOutput::Forget]);
}
