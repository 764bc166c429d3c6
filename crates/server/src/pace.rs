//! How fast a client has to send: who begins a request and does not go on holds memory and a connection for nothing.

use base::Monotonic;
use std::time::Duration;

/// How long the head of a request may take, or the start of a frame.
pub const HEAD_MAX: Duration = Duration::from_secs(10);

/// The least that must come of a body in [`WINDOW`]: below half a kilobyte a second there is no network.
pub const WINDOW_BYTES_MIN: usize = 5 << 10;

/// The time in which it must come.
pub const WINDOW: Duration = Duration::from_secs(10);

/// What a client is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// Nothing: it may be idle.
    Nothing,
    /// A head.
    Head,
    /// A body.
    Body,
}

/// A client's pace.
#[derive(Debug)]
pub struct Pace {
    sending: Sending,
    until: Monotonic,
    got: usize,
}

impl Pace {
    /// Of a client that has sent nothing yet, and may take until then.
    pub fn new(until: Monotonic) -> Pace {
        Pace { sending: Sending::Head, until, got: 0 }
    }

    /// Until when the client must send more, being in the middle of this, having sent `got` bytes since the last
    /// call, and with `idle_timeout` if it is in the middle of nothing.
    pub fn until(
        &mut self,
        sending: Sending,
        got: usize,
        now: Monotonic,
        idle_timeout: Duration,
    ) -> Monotonic {
        let goes_on = std::mem::replace(&mut self.sending, sending) == sending;
        self.got += got;
        match sending {
            Sending::Nothing => self.until = now + idle_timeout,
            Sending::Head if goes_on => {}
            Sending::Body if goes_on && self.got < WINDOW_BYTES_MIN => {}
            Sending::Head => self.until = now + HEAD_MAX,
            Sending::Body => {
                self.until = now + WINDOW;
                self.got = 0;
            }
        }
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(3600);

    fn at(seconds: u64) -> Monotonic {
        Monotonic(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_head_has_its_time_however_it_trickles() {
        let mut pace = Pace::new(at(7));
        assert_eq!(pace.until(Sending::Head, 0, at(0), IDLE), at(7), "nothing has come yet");
        assert_eq!(pace.until(Sending::Head, 1, at(5), IDLE), at(7));
        assert_eq!(pace.until(Sending::Nothing, 9, at(6), IDLE), at(3606));
        assert_eq!(pace.until(Sending::Head, 1, at(100), IDLE), at(110));
        assert_eq!(pace.until(Sending::Head, 1, at(109), IDLE), at(110));
    }

    #[test]
    fn a_body_goes_on_while_enough_comes() {
        let mut pace = Pace::new(at(10));
        assert_eq!(pace.until(Sending::Body, 100, at(1), IDLE), at(11));
        assert_eq!(pace.until(Sending::Body, WINDOW_BYTES_MIN - 1, at(5), IDLE), at(11));
        assert_eq!(pace.until(Sending::Body, 1, at(10), IDLE), at(20), "enough in all");
        assert_eq!(pace.until(Sending::Body, 1, at(19), IDLE), at(20));
        assert_eq!(pace.until(Sending::Head, 1, at(19), IDLE), at(29), "the next request");
    }
}
