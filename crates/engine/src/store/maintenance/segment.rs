//! The next segment is made as soon as the last one made is in use, and the one before it is sealed as soon as it is
//! durable.

use crate::journal::prepare::PrepareSegment;
use crate::journal::segment::SegmentId;
use crate::store::Store;
use crate::store::open::JOURNAL_DIR;
use base::spawn::Outcome;

impl Store {
    pub(super) fn want_segment(&mut self) {
        if !self.writer.wants_segment()
            || self.maintenance.segment.is_some()
            || self.maintenance.closing.is_some()
        {
            return;
        }
        let outcome = Outcome::new();
        let id = SegmentId(self.maintenance.next_segment);
        self.maintenance.next_segment += 1;
        let (dir, incarnation) = (self.dir.join(JOURNAL_DIR), self.manifest.incarnation);
        let job = PrepareSegment::new(&dir, id, incarnation, outcome.clone());
        self.spawn.spawn(Box::new(job));
        self.maintenance.segment = Some(outcome);
    }

    pub(super) fn take_segment(&mut self) {
        let Some(made) = self.maintenance.segment.as_ref().and_then(Outcome::take) else { return };
        self.maintenance.segment = None;
        match made {
            Ok(ready) => self.writer.provide(ready),
            Err(error) => self.on_failure(error),
        }
    }

    pub(super) fn want_seal(&mut self) {
        let Some(seal) = self.writer.take_seal() else { return };
        self.maintenance.compaction.sealing.push(seal.ended());
        self.spawn.spawn(Box::new(seal));
    }
}
