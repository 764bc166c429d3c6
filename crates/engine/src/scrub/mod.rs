//! The scrub: every block of every table and every record of the journal is read again within a period, so that damage
//! to what nobody reads is found while there are other copies of it.
//!
//! 1. A pass goes through the segments in the order of their records, then through the tables that there were when it
//!    began, in the order of their numbers. What flushes, merges and compactions write meanwhile is new, and waits for
//!    the next pass.
//! 2. A file is read a step at a time (`file.rs`): each step is a job of about a mebibyte, and the time between two is
//!    what is left of the period for each mebibyte that is left.
//! 3. How far a pass has come is in a file (`mark.rs`) after each file that was gone through, so that a restart goes on
//!    there.
//!
//! Damage is reported and counted; what it hits answers errors already, and a merge or a compaction puts it aside.
//!
//! Left out: the segment that is written, and those whose records are not all in tables: a start reads them. What the
//! page cache has is not read from the disk.

mod file;
mod mark;

pub(crate) use file::{FileScrub, STEP_BYTES, ScrubStep, StepEnd, Unit};
pub(crate) use mark::{MARK_FILE, Mark, WriteMark};
