//! What answers mean: a read is verified and compared with what was written, a write is noted as done, not done or in
//! doubt, and what went wrong is told.

use super::{SECOND_NS, State, Step};
use crate::check::{Cause, Found, Judgement, Outcome, Resolution, Suspicion};
use crate::driver::{Answer, ErrorKind, Rows, Sink};
use crate::history::{EARLIER_FROM, VALUE_WRONG};
use crate::keys::Shape;
use crate::rng::mix;
use crate::run::recorder::Ended;
use crate::run::tally::Done;
use crate::run::worker::Message;
use crate::values::Stamp;
use crate::workload::Op;
use results::ErrorRecord;
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Errors of one operation and kind that a worker tells of: a storm of them is counted, not described.
const TOLD_MAX: u32 = 20;

/// How long after a query that found too little it is asked again.
const ASK_AGAIN_AFTER_NS: u64 = 200_000_000;

/// The length of a text in an error record.
const TEXT_MAX: usize = 500;

impl Sink for State<'_> {
    fn answered(&mut self, token: u32, answer: Answer<'_>) {
        self.tick();
        self.answers += 1;
        let slot = &self.slots[token as usize];
        let (operation, step) = (slot.operation, slot.step);
        let op = self.shared.operations[operation].op;
        if let Answer::Failed { kind, text } = answer {
            let has_condition = step == Step::Single && (op.writes_value() || op == Op::DeleteIf);
            let is_condition = kind == ErrorKind::Precondition && has_condition;
            if is_condition && self.shared.is_consistent {
                return self.on_condition_failed(token);
            }
            return self.on_failed(token, kind, text);
        }
        if let Answer::Rows(rows) = answer {
            return self.on_rows(token, rows);
        }
        if matches!(answer, Answer::Again) {
            return self.on_again(token);
        }
        let reads = matches!(step, Step::UpdateRead | Step::Look | Step::Audit) || op == Op::Get;
        if !reads {
            return self.on_not_read(token, answer);
        }
        let (context, values, body): (&[u8], &[Range<usize>], &[u8]) = match answer {
            Answer::Found { context, values, body } => (context, values, body),
            _ => (&[], &[], &[]),
        };
        let bytes: u64 = values.iter().map(|at| at.len() as u64).sum();
        let found = self.verify(token, values, body);
        let value = self.note_read(token, context, values, body);
        match step {
            Step::Look => return self.on_look(token, found),
            Step::Audit => {
                self.shared.counts.audited.fetch_add(1, Ordering::Relaxed);
                self.compare(token, found);
                return self.release(token);
            }
            _ => {}
        }
        self.tally.read(operation, bytes);
        self.compare(token, found);
        let slot = &mut self.slots[token as usize];
        if step == Step::UpdateRead {
            slot.context.clear();
            slot.context.extend_from_slice(context);
            slot.expected = value.unwrap_or(VALUE_WRONG);
            slot.step = Step::Single;
            if op != Op::DeleteIf || !values.is_empty() {
                return self.follow.push_back(token);
            }
        }
        slot.not_found = values.is_empty();
        if slot.not_found && matches!(self.shared.operations[operation].keys, Some(Shape::Present { .. })) {
            return self.on_failed(token, ErrorKind::Missing, "a key that must be there is not");
        }
        self.on_done(token, 0);
    }
}

impl State<'_> {
    /// The answer to anything but a read.
    fn on_not_read(&mut self, token: u32, answer: Answer<'_>) {
        let slot = &mut self.slots[token as usize];
        let op = self.shared.operations[slot.operation].op;
        let (key, written) = (slot.key, slot.write.map_or(VALUE_WRONG, |write| write.sequence.into()));
        match answer {
            Answer::NotFound if op.writes_value() => {
                return self.on_failed(token, ErrorKind::Unsupported, "the server has no such bucket");
            }
            Answer::NotFound if op == Op::DeleteIf => return self.on_condition_failed(token),
            Answer::Stored { context } if self.shared.keeps_contexts => self.known.set(key, context, written),
            _ if op.writes_value() || op.deletes() => self.known.forget(key),
            _ => {}
        }
        slot.not_found = matches!(answer, Answer::NotFound) && op == Op::Head;
        self.note_end(token, Ended::Done);
        self.on_done(token, if let Answer::Listed(count) = answer { count } else { 0 });
    }

    /// Keeps the context that a read has brought, and records its value, which is returned where a history is written.
    fn note_read(&mut self, token: u32, context: &[u8], values: &[Range<usize>], body: &[u8]) -> Option<u64> {
        let key = self.slots[token as usize].key;
        let value = self.recorder.is_some().then(|| self.value_of(key, values, body)).flatten();
        self.note_end(token, Ended::Read(value));
        if self.shared.keeps_contexts {
            let context = if values.is_empty() { &[] } else { context };
            self.known.set(key, context, value.unwrap_or(VALUE_WRONG));
        }
        value
    }

    /// The value of a read, as the history has it.
    fn value_of(&self, key: u64, values: &[Range<usize>], body: &[u8]) -> Option<u64> {
        let stamp = match values {
            [] => return None,
            [at] => Stamp::read(&body[at.clone()], key),
            _ => return Some(VALUE_WRONG),
        };
        Some(match stamp {
            Ok(stamp) if stamp.run == self.shared.run => stamp.sequence.into(),
            // Below 2^53, which every reader of JSON tells exactly.
            Ok(stamp) => EARLIER_FROM + (mix(u64::from(stamp.run) << 32 | u64::from(stamp.sequence)) >> 12),
            Err(_) => VALUE_WRONG,
        })
    }

    /// Records the end of a request.
    fn note_end(&mut self, token: u32, ended: Ended) {
        if let Some(recorder) = &mut self.recorder {
            recorder.answered(token, ended, self.now);
        }
    }

    /// The condition of a write did not hold: an answer, and no error.
    fn on_condition_failed(&mut self, token: u32) {
        self.note_end(token, Ended::Failed);
        let slot = &mut self.slots[token as usize];
        self.known.forget(slot.key);
        if let Some(ticket) = slot.write.take() {
            self.shared.table.end_write(slot.key, ticket, Outcome::NotDone);
        }
        (slot.written, slot.condition_failed) = (0, true);
        self.tally_done(token, 0);
        self.release(token);
    }

    /// What the values of an answer are; none if one of them is corrupt, which is counted here.
    fn verify(&mut self, token: u32, values: &[Range<usize>], body: &[u8]) -> Option<Found> {
        if !self.shared.check.reads {
            return Some(Found::Nothing);
        }
        self.shared.counts.verified.fetch_add(1, Ordering::Relaxed);
        let mut found = Found::Nothing;
        for at in values {
            let key = self.slots[token as usize].key;
            let stamp = Stamp::read(&body[at.clone()], key);
            found = match (stamp, found) {
                (Err(what), _) => {
                    self.wrong(token, Cause::Corrupt, what);
                    return None;
                }
                (Ok(stamp), Found::Version(newest)) if stamp.run == self.shared.run => {
                    Found::Version(newest.max(stamp.sequence))
                }
                (Ok(stamp), _) if stamp.run == self.shared.run => Found::Version(stamp.sequence),
                (Ok(_), Found::Nothing) => Found::Earlier,
                (Ok(_), found) => found,
            };
        }
        Some(found)
    }

    /// Compares what a read found with what was written.
    fn compare(&mut self, token: u32, found: Option<Found>) {
        let Some(found) = found.filter(|_| self.shared.check.reads) else { return };
        let slot = &self.slots[token as usize];
        let (operation, id) = (slot.operation, slot.id);
        let judgement = self.shared.table.end_read(slot.key, slot.read, found);
        let counter = match judgement {
            Judgement::NotCompared => &self.shared.counts.not_compared,
            _ => &self.shared.counts.compared,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        match judgement {
            Judgement::Right | Judgement::NotCompared => {}
            Judgement::Corrupt => self.wrong(token, Cause::Corrupt, "a version that was never written"),
            Judgement::Suspect(suspicion) => {
                // Nobody has time to look again at more.
                if !self.suspects.add(self.now, suspicion, operation, id) {
                    self.on_resolved(token, &suspicion, Resolution::Unresolved);
                }
            }
        }
    }

    /// A page of a query is there.
    fn on_rows(&mut self, token: u32, rows: Rows<'_>) {
        let slot = &mut self.slots[token as usize];
        let Some(query) = &self.shared.operations[slot.operation].query else {
            return self.on_failed(token, ErrorKind::Protocol, "rows without a query");
        };
        let mut judged = Ok(());
        if self.shared.check.reads {
            judged = slot.asking.judge(query, rows, self.shared.naming, &mut self.entries);
            self.shared.counts.rows.fetch_add(rows.places.len() as u64, Ordering::Relaxed);
        } else {
            slot.asking.count(rows);
        }
        let goes_on = slot.asking.goes_on(query, rows.continuation);
        if let Err(what) = judged {
            self.wrong(token, Cause::WrongRow, &what);
        }
        if goes_on {
            return self.follow.push_back(token);
        }
        let asking = &self.slots[token as usize].asking;
        let found = asking.rows();
        let is_short = self.shared.check.reads && found < asking.rows_min(query);
        match self.slots[token as usize].step {
            Step::AskAgain if is_short => self.ask_again(token),
            Step::AskAgain => self.release(token),
            _ if is_short => {
                self.tally_done(token, found);
                self.ask_again(token);
            }
            _ => self.on_done(token, found),
        }
    }

    /// A query has found too little: a replica may not have heard of everything yet, so it is asked some times more.
    fn ask_again(&mut self, token: u32) {
        let slot = &mut self.slots[token as usize];
        slot.step = Step::AskAgain;
        if slot.asking.again() {
            return self.later.push(Reverse((self.now + ASK_AGAIN_AFTER_NS, token)));
        }
        let text = slot.asking.shortage(&self.shared.operations[slot.operation]);
        self.wrong(token, Cause::Incomplete, &text);
        self.release(token);
    }

    /// The request is to be sent once more: nothing was done, and nobody needs to know.
    fn on_again(&mut self, token: u32) {
        if let Some(recorder) = &mut self.recorder {
            recorder.forget(token);
        }
        let slot = &mut self.slots[token as usize];
        if let Some(ticket) = slot.write.take() {
            self.shared.table.end_write(slot.key, ticket, Outcome::NotDone);
        }
        self.follow.push_back(token);
    }

    /// A look found something; nothing that can be compared if it is corrupt. None: nobody answered.
    fn on_look(&mut self, token: u32, found: Option<Found>) {
        let slot = &mut self.slots[token as usize];
        let (table, sent, now) = (self.shared.table, slot.sent, self.now);
        if let Some(suspect) = slot.suspect.take() {
            let suspicion = suspect.suspicion;
            let resolution = match found {
                Some(found) => self.suspects.judge(suspect, (sent, now), found, table),
                None => self.suspects.unanswered(suspect, now, table),
            };
            if let Some(resolution) = resolution {
                self.on_resolved(token, &suspicion, resolution);
            }
        }
        self.release(token);
    }

    fn on_resolved(&mut self, token: u32, suspicion: &Suspicion, resolution: Resolution) {
        let cause = match resolution {
            Resolution::Known => return,
            Resolution::Unresolved => {
                self.shared.counts.unresolved.fetch_add(1, Ordering::Relaxed);
                Cause::Stale
            }
            Resolution::Cause(cause) => cause,
        };
        let found = match suspicion.found {
            Found::Nothing => "nothing".to_owned(),
            Found::Version(version) => format!("write {version}"),
            Found::Earlier => "a value from before this run".to_owned(),
        };
        let text = format!("found {found}; every write before {} had been replaced", suspicion.floor);
        self.wrong(token, cause, &text);
    }

    fn wrong(&mut self, token: u32, cause: Cause, text: &str) {
        self.shared.counts.wrong(cause);
        self.record(token, cause.name(), true, text);
    }

    /// Tells of what went wrong, the first times; all are counted.
    fn record(&mut self, token: u32, kind: &'static str, wrong: bool, text: &str) {
        let slot = &self.slots[token as usize];
        let told = self.told.entry((slot.operation, kind)).or_insert(0);
        *told += 1;
        if *told > TOLD_MAX {
            return;
        }
        let error = ErrorRecord {
            second: self.now / SECOND_NS,
            label: self.shared.operations[slot.operation].label.clone(),
            kind: kind.to_owned(),
            wrong,
            key: String::from_utf8_lossy(&slot.name).into_owned(),
            text: text.chars().take(TEXT_MAX).collect(),
        };
        self.out.send(Message::Error(Box::new(error))).ok();
    }

    fn on_done(&mut self, token: u32, results: u64) {
        let slot = &mut self.slots[token as usize];
        let (operation, id) = (slot.operation, slot.id);
        if let Some(ticket) = slot.write.take() {
            self.shared.table.end_write(slot.key, ticket, Outcome::Acknowledged);
            let op = &self.shared.operations[operation];
            if op.op.writes_value() {
                self.audit.offer((operation, id), &mut self.rng);
                match op.keys {
                    Some(Shape::Sequential { .. }) => self.inserted.sequence.acknowledge(id),
                    Some(Shape::Unique) => self.inserted.unique.acknowledge(id),
                    _ => {}
                }
            }
        }
        self.tally_done(token, results);
        self.release(token);
    }

    fn tally_done(&mut self, token: u32, results: u64) {
        let slot = &self.slots[token as usize];
        let done = Done {
            response_ns: self.now.saturating_sub(slot.due),
            service_ns: self.now.saturating_sub(slot.sent),
            not_found: slot.not_found,
            condition_failed: slot.condition_failed,
            written: slot.written,
            results,
        };
        self.tally.done(slot.operation, &done);
        self.change_outstanding(false);
    }

    fn on_failed(&mut self, token: u32, kind: ErrorKind, text: &str) {
        let is_consistent = self.shared.is_consistent;
        self.note_end(token, Ended::Error { kind, is_consistent });
        let slot = &mut self.slots[token as usize];
        let operation = slot.operation;
        if let Some(ticket) = slot.write.take() {
            self.known.forget(slot.key);
            let is_certain = kind.is_certain() || is_consistent && kind == ErrorKind::Unavailable;
            let outcome = if is_certain { Outcome::NotDone } else { Outcome::InDoubt };
            self.shared.table.end_write(slot.key, ticket, outcome);
            if outcome == Outcome::InDoubt {
                self.shared.counts.in_doubt.fetch_add(1, Ordering::Relaxed);
            }
        }
        match slot.step {
            Step::Look => return self.on_look(token, None),
            Step::Audit => return self.release(token),
            // Of what nobody answers nothing is known.
            Step::AskAgain => return self.release(token),
            _ => {}
        }
        self.tally.error(operation, kind);
        let retry = self.shared.retry;
        let is_wanted =
            if retry.on.is_empty() { kind.may_pass() } else { retry.on.iter().any(|it| it == kind.name()) };
        if is_wanted && self.slots[token as usize].attempt < retry.attempts {
            self.tally.retry(operation);
            let slot = &mut self.slots[token as usize];
            slot.attempt += 1;
            slot.asking.clear();
            slot.written = 0;
            self.begin_attempt(token);
            return self.later.push(Reverse((self.now + retry.backoff.as_nanos() as u64, token)));
        }
        self.record(token, kind.name(), false, text);
        self.tally.failed(operation, self.now.saturating_sub(self.slots[token as usize].due));
        self.change_outstanding(false);
        self.release(token);
    }

    /// Nobody can be asked any more: what waits to be sent has failed, and what would be looked at is not.
    pub fn give_up(&mut self) {
        self.audited = Some(Vec::new());
        let next = |state: &mut Self| {
            let later = |state: &mut Self| state.later.pop().map(|Reverse((_, token))| token);
            state.follow.pop_front().or_else(|| later(state))
        };
        // Whatever is tried again ends with its attempts.
        while let Some(token) = next(self) {
            self.on_failed(token, ErrorKind::Refused, "no server takes connections");
        }
        while let Some(suspect) = self.suspects.due(u64::MAX) {
            let Some(token) = self.free.pop() else { return };
            self.fill(token, Step::Look, suspect.operation, suspect.id, self.now);
            self.on_resolved(token, &suspect.suspicion, Resolution::Unresolved);
            self.free.push(token);
        }
    }

    fn release(&mut self, token: u32) {
        self.free.push(token);
    }
}
