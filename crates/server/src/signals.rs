//! The signals that a node heeds: SIGTERM and SIGINT stop it, and SIGHUP has certificates read again.
//!
//! Invariant: a signal that comes while it is not waited for is not lost; several of a kind count once.

use crate::error::Error;
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that stop the node.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

/// The signal that has certificates read again.
pub struct ReloadSignal(Signal);

/// Listens to signals from now on, within a runtime.
pub fn listen_to_signals() -> Result<(StopSignals, ReloadSignal), Error> {
    let failed = |cause: io::Error| Error::System("cannot handle signals", cause);
    let handler = |kind| signal(kind).map_err(failed);
    let terminate = handler(SignalKind::terminate())?;
    let interrupt = handler(SignalKind::interrupt())?;
    Ok((StopSignals { terminate, interrupt }, ReloadSignal(handler(SignalKind::hangup())?)))
}

impl StopSignals {
    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

impl ReloadSignal {
    /// Waits for the next one; forever if none can come any more.
    pub async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }
}
