//! The moment in which a stop of the node ends a connection: a request that meets the end has no answer.
//!
//! 1. Readers are told of the stop. One between two requests then waits for a silence of its client, and one in the
//!    middle of a request for [`TURN_MAX`].
//! 2. A request that comes meanwhile is served, and the next silence counts.
//! 3. The longer the stop lasts, the shorter is the silence that is enough ([`SILENCES`]). A client that is never
//!    silent is closed after an answer.
//!
//! HTTP tells a client with the next answer that the connection ends. Protocol buffers have no such message. So a
//! request may still be on its way when the silence ends: its client gets an error, and it has no effect.

use std::time::Duration;

/// The time of a client in the middle of a request, or of an answer. One that works sends or takes the next bytes within
/// it; half-open connections must not use up the time that a stop waits for requests.
pub const TURN_MAX: Duration = Duration::from_secs(1);

/// The time since the begin of the stop, and the silence that ends a connection until then. The first silence is longer
/// than any pause of a client in a closed loop, so it ends those at rest. The last is some round trips of a datacentre,
/// so a request is seldom on its way. All of it takes a third of the time that a stop waits for requests.
const SILENCES: [(Duration, Duration); 3] = [
    (Duration::from_secs(1), Duration::from_millis(20)),
    (Duration::from_secs(2), Duration::from_millis(5)),
    (Duration::from_secs(3), Duration::from_millis(1)),
];

/// The silence that is enough, that long after the begin of a stop; `None` for none.
pub fn silence_after(since: Duration) -> Option<Duration> {
    SILENCES.iter().find(|(until, _)| since < *until).map(|(_, silence)| *silence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_becomes_less_patient() {
        let ms = Duration::from_millis;
        let silences = [0, 999, 1_000, 1_999, 2_000, 2_999, 3_000].map(|since| silence_after(ms(since)));
        let expected = [Some(20), Some(20), Some(5), Some(5), Some(1), Some(1), None];
        assert_eq!(silences, expected.map(|silence| silence.map(ms)));
    }
}
