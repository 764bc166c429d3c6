//! The receiver of a catch-up.

use bytes::{BufMut, Bytes, BytesMut};
use protocol::peer::{Malformed, Reader, put_bytes, put_varint};

use super::{Item, ToReceiver, ToSender};

/// How far the parts go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// None is there.
    Begin,
    /// They go through a key.
    Key(Bytes),
    /// All are there.
    End,
}

impl Place {
    /// Appends its bytes.
    pub(super) fn put(&self, out: &mut BytesMut) {
        match self {
            Place::Begin => out.put_u8(0),
            Place::Key(key) => {
                out.put_u8(1);
                put_bytes(out, key);
            }
            Place::End => out.put_u8(2),
        }
    }

    /// Reads one.
    pub(super) fn read(fields: &mut Reader) -> Result<Place, Malformed> {
        Ok(match fields.u8()? {
            0 => Place::Begin,
            1 => Place::Key(fields.bytes()?),
            2 => Place::End,
            _ => return Err(Malformed("an unknown place")),
        })
    }
}

/// The durable record of a catch-up, written with each part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The catch-up.
    pub number: u64,
    /// All versions up to it had their effect here when the catch-up began; zero if all was dropped.
    pub base: u64,
    /// The store has dropped the group's keys, and lacks some until the snapshot's index is applied.
    pub is_incomplete: bool,
    /// The place of the last part.
    pub place: Place,
    /// Index and term of the snapshot; zeros before the first part.
    pub snapshot: (u64, u64),
    /// The newest version that a part had and the store did not take, as it is above the snapshot; zero for none. The
    /// keys are those of no index before it is applied.
    pub left_out: u64,
}

/// The version of the encoding that is written. Version 1 has no `left_out`.
const CHECKPOINT_VERSION: u8 = 2;

impl Checkpoint {
    /// Whether the store may lack keys, or have versions that its log does not lead to yet.
    pub fn has_changed_keys(&self) -> bool {
        self.is_incomplete || self.place != Place::Begin
    }

    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(CHECKPOINT_VERSION);
        out.put_u64_le(self.number);
        for number in [self.base, self.snapshot.0, self.snapshot.1, self.left_out] {
            put_varint(&mut out, number);
        }
        out.put_u8(self.is_incomplete.into());
        self.place.put(&mut out);
        out.freeze()
    }

    /// The checkpoint in bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(bytes: Bytes) -> Result<Checkpoint, Malformed> {
        let mut fields = Reader::new(bytes);
        let version = fields.u8()?;
        if !(1..=CHECKPOINT_VERSION).contains(&version) {
            return Err(Malformed("an unknown version of a checkpoint"));
        }
        let (number, base) = (fields.u64()?, fields.varint()?);
        let snapshot = (fields.varint()?, fields.varint()?);
        let left_out = if version == 1 { 0 } else { fields.varint()? };
        let is_incomplete = match fields.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed("a flag is neither 0 nor 1")),
        };
        let place = Place::read(&mut fields)?;
        fields.end()?;
        Ok(Checkpoint { number, base, is_incomplete, place, snapshot, left_out })
    }
}

/// The receiver's end of the catch-ups of one group.
#[derive(Debug, Default)]
pub struct Receiver {
    /// The newest one, which may not be synced yet.
    checkpoint: Option<Checkpoint>,
    /// The answer that waits for the sync of the checkpoint.
    answer: Option<ToSender>,
}

/// An event for a receiver.
#[derive(Clone, Debug)]
pub enum ReceiverInput {
    /// A message has come from another voter. It is dropped before if the group here leads.
    Message {
        /// The message.
        message: ToReceiver,
        /// The applied index of the group here.
        applied: u64,
        /// [`crate::group::Group::reaped`] of the group here.
        reaped: u64,
        /// [`crate::group::Group::is_unreadable`] of the group here.
        is_unreadable: bool,
    },
    /// The last [`ReceiverOutput::Write`] is synced.
    Synced,
    /// The group has applied up to an index.
    Applied {
        /// The index.
        index: u64,
    },
}

/// Something that a receiver wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverOutput {
    /// Step the group with [`crate::group::Input::Receiving`], before anything else.
    Receiving {
        /// Whether the store drops the group's keys.
        is_incomplete: bool,
    },
    /// Write in one batch; [`ReceiverInput::Synced`] when it and all before it are synced.
    Write {
        /// First drop all keys of the group.
        drops: bool,
        /// Then write these; a version never replaces an equal or a newer one.
        items: Vec<Item>,
        /// And the record of the catch-up, in the place of the one before.
        checkpoint: Checkpoint,
    },
    /// Step the group with [`crate::group::Input::Received`].
    Received {
        /// The snapshot's index.
        index: u64,
        /// Its term.
        term: u64,
    },
    /// Send to the sender.
    Send(ToSender),
    /// Remove the record of the catch-up: it has ended.
    Forget,
}

impl Receiver {
    /// The receiver of a store with a record of a catch-up; the group was opened with its mark.
    ///
    /// `applied` is the applied index of the group as it was opened.
    pub fn open(checkpoint: Option<Checkpoint>, applied: u64, out: &mut Vec<ReceiverOutput>) -> Receiver {
        let mut receiver = Receiver { checkpoint, answer: None };
        receiver.on_complete(out);
        receiver.on_applied(applied, out);
        receiver
    }

    /// Takes an input, and appends its outputs to `out`, in order.
    pub fn step(&mut self, input: ReceiverInput, out: &mut Vec<ReceiverOutput>) {
        match input {
            ReceiverInput::Message {
                message: ToReceiver::Offer { number, attempt, reaped },
                applied,
                is_unreadable,
                ..
            } => {
                // No key counts that cannot be read.
                let applied = if is_unreadable { None } else { Some(applied) };
                self.on_offer(number, attempt, reaped, applied, out);
            }
            ReceiverInput::Message { message, applied, reaped, .. } => {
                self.on_part(message, applied, reaped, out);
            }
            ReceiverInput::Synced => {
                if let Some(answer) = self.answer.take() {
                    self.on_complete(out);
                    out.push(ReceiverOutput::Send(answer));
                }
            }
            ReceiverInput::Applied { index } => self.on_applied(index, out),
        }
    }

    /// Begins a catch-up, or tells how far the one under way is. Without an applied index the store has no keys to rest
    /// on.
    fn on_offer(
        &mut self,
        number: u64,
        attempt: u64,
        reaped: u64,
        applied: Option<u64>,
        out: &mut Vec<ReceiverOutput>,
    ) {
        if self.answer.is_some() {
            // The sender offers again.
            return;
        }
        let known = self.checkpoint.as_ref().filter(|known| known.number == number);
        if let Some(Checkpoint { base, place, .. }) = known
            && (*place != Place::Begin || *base == 0 || *base >= reaped)
        {
            let (base, place) = (*base, place.clone());
            return out.push(ReceiverOutput::Send(ToSender::Ready { number, attempt, base, place }));
        }

        let was_incomplete = self.checkpoint.as_ref().is_some_and(|known| known.is_incomplete);
        let base = applied.filter(|applied| !was_incomplete && *applied >= reaped);
        let is_incomplete = base.is_none();
        let drops = is_incomplete && !base::planted!(SnapshotPartKept);
        let base = base.unwrap_or(0);
        out.push(ReceiverOutput::Receiving { is_incomplete });
        let answer = ToSender::Ready { number, attempt, base, place: Place::Begin };
        let place = Place::Begin;
        let checkpoint = Checkpoint { number, base, is_incomplete, place, snapshot: (0, 0), left_out: 0 };
        self.write(drops, Vec::new(), checkpoint, answer, out);
    }

    /// Takes the part behind the last one.
    fn on_part(&mut self, message: ToReceiver, applied: u64, reaped: u64, out: &mut Vec<ReceiverOutput>) {
        let ToReceiver::Part { number, snapshot, after, mut items, through } = message else { return };
        let Some(known) = self.checkpoint.as_ref() else { return };
        if known.number != number || known.place != after || self.answer.is_some() {
            return;
        }
        let is_first = known.place == Place::Begin;
        if known.is_incomplete && (reaped > snapshot.0 || is_first && applied > snapshot.0) {
            // Another leader has reaped versions here that this part may still have. Or the sender has not applied yet
            // all that this store had applied when it dropped its keys.
            return out.push(ReceiverOutput::Send(ToSender::Refused { number }));
        }
        // A later fold may show versions above the snapshot. Their entries follow it in the log, and are then applied
        // over no newer version.
        let newest = items.iter().map(|item| item.version.index()).max().unwrap_or(0);
        let left_out = if newest > snapshot.0 { known.left_out.max(newest) } else { known.left_out };
        items.retain(|item| item.version.index() <= snapshot.0);
        if !known.is_incomplete {
            // Versions up to the applied entry have had their effect, and may be gone since.
            items.retain(|item| item.version.index() > applied);
        }
        let checkpoint = Checkpoint { place: through.clone(), snapshot, left_out, ..known.clone() };
        self.write(false, items, checkpoint, ToSender::Kept { number, place: through }, out);
    }

    fn write(
        &mut self,
        drops: bool,
        items: Vec<Item>,
        checkpoint: Checkpoint,
        answer: ToSender,
        out: &mut Vec<ReceiverOutput>,
    ) {
        self.checkpoint = Some(checkpoint.clone());
        self.answer = Some(answer);
        out.push(ReceiverOutput::Write { drops, items, checkpoint });
    }

    /// Lets the group install the snapshot, if all parts are synced.
    fn on_complete(&self, out: &mut Vec<ReceiverOutput>) {
        if let Some(known) = self.checkpoint.as_ref().filter(|known| known.place == Place::End) {
            let (index, term) = known.snapshot;
            out.push(ReceiverOutput::Received { index, term });
        }
    }

    /// Ends the catch-up when the snapshot's index, and all versions that were left out, are applied.
    fn on_applied(&mut self, index: u64, out: &mut Vec<ReceiverOutput>) {
        let is_over = |known: &mut Checkpoint| {
            known.place == Place::End && known.snapshot.0.max(known.left_out) <= index
        };
        if self.answer.is_none() && self.checkpoint.take_if(is_over).is_some() {
            out.push(ReceiverOutput::Forget);
        }
    }
}
