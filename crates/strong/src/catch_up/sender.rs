//! The sender of a catch-up.

use base::Monotonic;
use bytes::Bytes;

use super::receiver::Place;
use super::{IDLE_MAX, Item, OFFER_RETRY, ToReceiver, ToSender};

/// The sender's end of one catch-up of one voter.
#[derive(Debug)]
pub struct Sender {
    number: u64,
    attempt: u64,
    stage: Stage,
    /// The base of the receiver.
    base: u64,
    /// Index and term of the snapshot, once the first part is folded.
    snapshot: Option<(u64, u64)>,
    /// When it offers again.
    retry_at: Monotonic,
    /// When it gives up.
    ends_at: Monotonic,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// The receiver has not answered the last offer.
    Offered,
    /// A fold behind a place is under way here.
    Folding(Place),
    /// A part is on its way or being written.
    Sent(Place),
    /// It has succeeded or failed.
    Ended,
}

/// An event for a sender.
#[derive(Clone, Debug)]
pub enum SenderInput {
    /// The receiver's message has come.
    Message {
        /// The message.
        message: ToSender,
        /// [`crate::group::Group::reaped`] of the leader here.
        reaped: u64,
        /// The leader's applied index.
        applied: u64,
    },
    /// A fold is done.
    Folded {
        /// The number of the catch-up that wanted it. A fold may outlast its catch-up.
        number: u64,
        /// Index and term of the last entry applied as of the fold.
        applied: (u64, u64),
        /// Keys behind the place that have versions above the base, in order.
        items: Vec<Item>,
        /// Whether there are no more.
        is_last: bool,
    },
    /// Time has passed; due at [`Sender::next_timer`].
    Tick {
        /// [`crate::group::Group::reaped`] of the leader here.
        reaped: u64,
    },
}

/// Something that a sender wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderOutput {
    /// Send to the receiver.
    Send(ToReceiver),
    /// Step the group with [`crate::group::Input::CatchUpBegun`], before anything else.
    Begun {
        /// The base.
        base: u64,
    },
    /// Fold keys with versions above an index, at most [`super::PART_BYTES_MAX`] of them.
    Fold {
        /// The number of the catch-up.
        number: u64,
        /// The index.
        above: u64,
        /// The key behind which to begin; none for the first one.
        after: Option<Bytes>,
    },
    /// The receiver has all parts: [`crate::group::Input::CaughtUp`]. The sender has ended.
    CaughtUp {
        /// The snapshot's index.
        index: u64,
        /// Its term.
        term: u64,
    },
    /// It failed: [`crate::group::Input::CatchUpBroken`]. The sender has ended.
    Broken,
}

impl Sender {
    /// Begins a catch-up under a random number.
    pub fn begin(number: u64, reaped: u64, now: Monotonic, out: &mut Vec<SenderOutput>) -> Sender {
        let mut sender = Sender {
            number,
            attempt: 0,
            stage: Stage::Offered,
            base: 0,
            snapshot: None,
            retry_at: now,
            ends_at: now + IDLE_MAX,
        };
        sender.offer(reaped, now, out);
        sender
    }

    /// Takes an input at `now`, and appends its outputs to `out`, in order.
    pub fn step(&mut self, input: SenderInput, now: Monotonic, out: &mut Vec<SenderOutput>) {
        match input {
            SenderInput::Message { message, reaped, applied } => {
                self.on_message(message, (reaped, applied), now, out);
            }
            SenderInput::Folded { number, applied, items, is_last } => {
                if number == self.number || base::planted!(FoldOfAnotherCatchUp) {
                    self.on_folded(applied, items, is_last, now, out);
                }
            }
            SenderInput::Tick { reaped } => self.on_tick(reaped, now, out),
        }
        self.invariants();
    }

    /// The number of the catch-up.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When the next [`SenderInput::Tick`] is due; none when it has ended.
    pub fn next_timer(&self) -> Option<Monotonic> {
        match self.stage {
            Stage::Ended => None,
            Stage::Folding(_) => Some(self.ends_at),
            Stage::Offered | Stage::Sent(_) => Some(self.retry_at.min(self.ends_at)),
        }
    }

    fn offer(&mut self, reaped: u64, now: Monotonic, out: &mut Vec<SenderOutput>) {
        self.attempt += 1;
        self.stage = Stage::Offered;
        self.retry_at = now + OFFER_RETRY;
        let (number, attempt) = (self.number, self.attempt);
        out.push(SenderOutput::Send(ToReceiver::Offer { number, attempt, reaped }));
    }

    fn on_message(
        &mut self,
        message: ToSender,
        (reaped, applied): (u64, u64),
        now: Monotonic,
        out: &mut Vec<SenderOutput>,
    ) {
        match message {
            ToSender::Ready { number, attempt, base, place }
                if (number, attempt) == (self.number, self.attempt) && self.stage == Stage::Offered =>
            {
                self.on_ready(base, place, (reaped, applied), now, out);
            }
            ToSender::Kept { number, place }
                if number == self.number && self.stage == Stage::Sent(place.clone()) =>
            {
                self.go_on(place, now, out);
            }
            ToSender::Refused { number } if number == self.number && self.stage != Stage::Ended => {
                self.end(SenderOutput::Broken, out);
            }
            // Late, twice, or of another catch-up.
            _ => {}
        }
    }

    /// Begins or goes on where the receiver is.
    fn on_ready(
        &mut self,
        base: u64,
        place: Place,
        (reaped, applied): (u64, u64),
        now: Monotonic,
        out: &mut Vec<SenderOutput>,
    ) {
        if self.snapshot.is_some() {
            // A part may have arrived late, so all parts under this number have one base and one snapshot.
            if base != self.base {
                return self.end(SenderOutput::Broken, out);
            }
        } else if place == Place::Begin {
            if base > 0 && base < reaped {
                // Tombstones above its base have been reaped since the offer.
                return self.offer(reaped, now, out);
            }
            self.base = base;
            // A receiver that has dropped all gets a state that is no older than this one.
            out.push(SenderOutput::Begun { base: if base > 0 { base } else { applied } });
        } else {
            return self.end(SenderOutput::Broken, out);
        }
        self.go_on(place, now, out);
    }

    /// Folds the part behind a place, or ends.
    fn go_on(&mut self, place: Place, now: Monotonic, out: &mut Vec<SenderOutput>) {
        self.ends_at = now + IDLE_MAX;
        let after = match &place {
            Place::Begin => None,
            Place::Key(key) => Some(key.clone()),
            Place::End => {
                let (index, term) =
                    self.snapshot.expect("a part was folded before the receiver has the last one");
                return self.end(SenderOutput::CaughtUp { index, term }, out);
            }
        };
        self.stage = Stage::Folding(place);
        out.push(SenderOutput::Fold { number: self.number, above: self.base, after });
    }

    fn on_folded(
        &mut self,
        applied: (u64, u64),
        items: Vec<Item>,
        is_last: bool,
        now: Monotonic,
        out: &mut Vec<SenderOutput>,
    ) {
        let Stage::Folding(after) = &self.stage else { return };
        let (number, after) = (self.number, after.clone());
        if self.snapshot.is_none() || base::planted!(CatchUpResumedNewer) {
            self.snapshot = Some(applied);
        }
        let snapshot = self.snapshot.expect("it was set above");
        assert!(snapshot.0 <= applied.0, "a later fold shows no older state");
        let through = match items.last() {
            Some(item) if !is_last => Place::Key(item.key.clone()),
            _ => Place::End,
        };
        assert!(is_last || through != Place::End, "a part that is not the last one has a key");

        self.stage = Stage::Sent(through.clone());
        self.retry_at = now + OFFER_RETRY;
        out.push(SenderOutput::Send(ToReceiver::Part { number, snapshot, after, items, through }));
    }

    fn on_tick(&mut self, reaped: u64, now: Monotonic, out: &mut Vec<SenderOutput>) {
        if self.next_timer().is_none_or(|at| now < at) {
            return;
        }
        if now >= self.ends_at {
            return self.end(SenderOutput::Broken, out);
        }
        self.offer(reaped, now, out);
    }

    fn end(&mut self, with: SenderOutput, out: &mut Vec<SenderOutput>) {
        self.stage = Stage::Ended;
        out.push(with);
    }

    fn invariants(&self) {
        debug_assert!(
            !matches!(self.stage, Stage::Sent(_)) || self.snapshot.is_some(),
            "a part has the snapshot's index"
        );
    }
}
