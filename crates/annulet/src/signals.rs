//! Signals that would end a process, and that are no reason for a node to end uncleanly.
//!
//! SIGTERM and SIGINT stop a node; the server listens to them. SIGQUIT and SIGXCPU do the same here. SIGHUP has the
//! server read certificates again once it serves; a start that is under way has just read them. All others that a
//! person, a terminal or a supervisor may send are ignored with a line in the log. SIGPIPE, SIGTTOU and SIGXFSZ concern
//! a write, whose error tells the same: Rust's runtime and the start of the log have them ignored.
//!
//! Left out: SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS and SIGTRAP tell of faults of the program, after which it
//! cannot go on, and SIGKILL and SIGSTOP cannot be caught. Signals that only pause a process do so.

use crate::failure::Failure;
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::iterator::Signals;
use std::ffi::c_int;

/// Signals that stop a node as SIGTERM does.
const STOPPING: [Signal; 2] = [Signal::QUIT, Signal::XCPU];

/// Signals that are ignored, beside those of real time.
const IGNORED: [Signal; 8] = [
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::POWER,
    Signal::STKFLT,
];

/// The signal to read certificates again, which would end a process that does not serve yet.
const RELOADING: Signal = Signal::HUP;

/// Signals of real time. The C library has the first two of the kernel's, from 32 on, for itself.
const REAL_TIME: std::ops::RangeInclusive<c_int> = 34..=64;

/// Begins to deal with signals, on a thread of its own.
pub fn start() -> Result<(), Failure> {
    let known = STOPPING.iter().chain(&IGNORED).chain([&RELOADING]).map(|signal| signal.as_raw());
    let mut signals = Signals::new(known)?;
    for number in REAL_TIME {
        if let Err(error) = signals.add_signal(number) {
            tracing::debug!(number, %error, "a signal cannot be caught");
        }
    }
    std::thread::Builder::new().name("annulet-signals".to_owned()).spawn(move || {
        for number in &mut signals {
            on_signal(number);
        }
    })?;
    Ok(())
}

fn on_signal(number: c_int) {
    let stopping = STOPPING.iter().find(|signal| signal.as_raw() == number);
    let name = signal_hook::low_level::signal_name(number).map_or_else(|| number.to_string(), str::to_owned);
    if number == RELOADING.as_raw() {
        tracing::info!("the signal {name} has certificates read again");
    } else if stopping.is_none() {
        tracing::info!("the signal {name} is ignored");
    } else if let Err(error) = kill_process(getpid(), Signal::TERM) {
        tracing::error!(%error, "cannot handle stop signals");
    } else {
        tracing::info!("the signal {name} stops this node");
    }
}
