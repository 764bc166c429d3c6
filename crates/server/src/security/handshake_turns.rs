//! The turns of handshakes, for the threads of all shards: [`Handshakes`] under a lock that is held for a step.

use super::handshakes::{HandshakeId, Handshakes, Input, Output};
use base::FastMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Decisions on one handshake: it begins, and is dropped.
const DECISIONS_MAX: usize = 2;

/// The turns of a node's handshakes.
#[derive(Default)]
pub(super) struct HandshakeTurns {
    tasks: Mutex<Tasks>,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Tasks {
    handshakes: Handshakes,
    last_id: u64,
    /// The way to the task of each handshake.
    told: FastMap<HandshakeId, Sender<Output>>,
}

/// A handshake with a turn, or one that waits for it. It has ended when this is dropped.
pub(super) struct Turn<'a> {
    turns: &'a HandshakeTurns,
    id: HandshakeId,
}

/// The decisions on a handshake, as they are made.
pub(super) struct Decisions(Receiver<Output>);

impl HandshakeTurns {
    /// Takes a handshake of a client that has begun to speak.
    pub(super) fn arrive(&self, address: IpAddr) -> (Turn<'_>, Decisions) {
        let (tell, told) = channel(DECISIONS_MAX);
        let mut tasks = self.lock();
        tasks.last_id += 1;
        let id = HandshakeId(tasks.last_id);
        tasks.told.insert(id, tell);
        self.step(&mut tasks, Input::Arrived(id, address));
        (Turn { turns: self, id }, Decisions(told))
    }

    /// Handshakes that were given up for others.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn step(&self, tasks: &mut Tasks, input: Input) {
        for output in tasks.handshakes.step(input) {
            let (Output::Begin(id) | Output::Drop(id)) = output;
            if matches!(output, Output::Drop(_)) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(tell) = tasks.told.get(&id) {
                // A handshake that has ended meanwhile does not listen.
                tell.try_send(output).ok();
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// The client's whole hello has come.
    pub(super) fn note_hello(&self) {
        self.turns.step(&mut self.turns.lock(), Input::HasHello(self.id));
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut tasks = self.turns.lock();
        tasks.told.remove(&self.id);
        self.turns.step(&mut tasks, Input::Ended(self.id));
    }
}

impl Decisions {
    /// Waits until the handshake may begin.
    ///
    /// # Errors
    /// It is given up for another one.
    pub(super) async fn begin(&mut self) -> io::Result<()> {
        match self.0.recv().await {
            Some(Output::Begin(_)) => Ok(()),
            Some(Output::Drop(_)) | None => Err(given_up()),
        }
    }

    /// Waits until a handshake that has begun is given up for another one: perhaps for ever.
    pub(super) async fn given_up(&mut self) -> io::Error {
        match self.0.recv().await {
            Some(_) => given_up(),
            None => std::future::pending().await,
        }
    }
}

fn given_up() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the handshake is given up for others")
}
