//! Notices for the supervisor of a node's process (systemd), by its socket: the variable `NOTIFY_SOCKET`.
//!
//! 1. A thread waits for the next stage of the node, or for the time of its next look. 2. The core (`notices.rs`)
//!    decides which notices are due. 3. The thread sends them.
//!
//! Invariant: the node never waits for its supervisor.
//!
//! Left out: a process without a supervisor has no such thread.

mod notices;

use notices::{Look, Notice, Notices};
use rustix::time::{ClockId, clock_gettime};
use sd_notify::NotifyState;
use server::Progress;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The variable with the supervisor's socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Begins to notify the supervisor, if there is one, of a node's progress.
///
/// # Errors
/// If no thread can be started.
pub fn start(progress: &Arc<Progress>) -> io::Result<()> {
    if std::env::var_os(SOCKET).is_none_or(|socket| socket.is_empty()) {
        return Ok(());
    }
    let progress = Arc::clone(progress);
    let thread = std::thread::Builder::new().name("annulet-notify".to_owned());
    thread.spawn(move || run(&progress, Notices::new(sd_notify::watchdog_enabled())))?;
    Ok(())
}

/// Notifies the supervisor until the process ends.
fn run(progress: &Progress, mut notices: Notices) {
    let (mut out, mut has_failed) = (Vec::new(), false);
    loop {
        let stage = progress.stage();
        notices.step(&Look { stage, turns: progress.turns(), cpu: cpu() }, &mut out);
        let states: Vec<NotifyState<'_>> = out.drain(..).map(state).collect();
        if !states.is_empty()
            && let Err(error) = sd_notify::notify(&states)
            && !std::mem::replace(&mut has_failed, true)
        {
            tracing::warn!(%error, "the supervisor cannot be notified");
        }
        progress.wait(stage, notices.pause());
    }
}

fn state(notice: Notice) -> NotifyState<'static> {
    match notice {
        Notice::Ready => NotifyState::Ready,
        Notice::Stopping => NotifyState::Stopping,
        Notice::Status(text) => NotifyState::Status(text),
        Notice::Watchdog => NotifyState::Watchdog,
        Notice::Extend(by) => {
            NotifyState::ExtendTimeoutUsec(u32::try_from(by.as_micros()).unwrap_or(u32::MAX))
        }
    }
}

/// The CPU time that the process has used.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}
