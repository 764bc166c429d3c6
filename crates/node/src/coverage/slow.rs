//! Slow scans: listings, folds and index queries in the log of slow requests.
//!
//! A scan is slow when its client waits as long as the threshold for the next part of its answer. While the client has
//! an answer to take the node does nothing for it, and that time makes no scan slow. So a long listing whose parts come
//! quickly has no line.
//!
//! A slow scan has one line while it waits, which names the nodes without an answer, and one at its end. Scans that
//! wait are looked at when the first of them may have come to be slow.
//!
//! Left out: the times of one scan (`scan_clock.rs`).

use super::Coverage;
use crate::hop::RequestId;
use crate::shard::env::Env;
use base::Monotonic;

impl Coverage {
    /// When scans are looked at next, if they are.
    pub(crate) fn next_look(&self) -> Option<Monotonic> {
        self.looks.next()
    }

    /// A scan's client waits for a part of its answer.
    pub(super) fn note_scan_waits(&mut self, env: &mut Env, id: RequestId) {
        let since = self.scans.get(&id).and_then(|scan| scan.slow.as_ref()?.new_wait());
        if let Some(since) = since {
            self.looks.note(env, since);
        }
    }

    /// Writes a line about each scan that has come to be slow, as far as there is room.
    pub(super) fn look_for_slow(&mut self, env: &mut Env, now: Monotonic) {
        let Some(since_max) = self.looks.begin(env, now) else { return };
        let mut first: Option<Monotonic> = None;
        for scan in self.scans.values_mut() {
            let kind = scan.kind();
            let Some(clock) = &mut scan.slow else { continue };
            let Some(since) = clock.new_wait() else { continue };
            if since <= since_max && self.looks.have_room(env, now) {
                clock.warn(env, kind, now);
            } else {
                first = Some(first.map_or(since, |first| first.min(since)));
            }
        }
        if let Some(first) = first {
            self.looks.note(env, first);
        }
    }
}
