//! Threads for the arithmetic of handshakes: signatures and keys take up to milliseconds, which a shard's thread has
//! not.
//!
//! The shard's thread reads and writes the socket. Bytes of a handshake go to one of these threads together with the
//! state of TLS, and come back with it.

use crate::machine;
use crate::stream::decrypt;
use bytes::BytesMut;
use rustls::ServerConnection;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// Threads: more would take the processors from the shards in a flood of handshakes.
const THREADS_MAX: usize = 2;

/// Processors for each of these threads.
const CORES_PER_THREAD: usize = 4;

/// The nice value of these threads: strangers begin handshakes, and they must not slow requests of others down. It is
/// that of job threads, about a third of the share of a shard: a handshake has five seconds (`door.rs`).
const NICENESS: i32 = 5;

/// Pieces of handshakes that wait: one for each that is under way.
const QUEUE_MAX: usize = super::handshakes::UNDER_WAY_MAX;

/// The threads. They end when this is dropped.
pub(crate) struct HandshakeThreads {
    jobs: SyncSender<Job>,
}

struct Job {
    piece: Piece,
    tell: oneshot::Sender<(Piece, io::Result<()>)>,
}

/// A piece of a handshake: bytes of the client, and the state of TLS that takes them.
pub(crate) struct Piece {
    /// The state.
    pub(crate) tls: Box<ServerConnection>,
    /// The bytes.
    pub(crate) cipher: Vec<u8>,
    /// The plaintext that was behind the handshake.
    pub(crate) input: BytesMut,
}

impl HandshakeThreads {
    /// Starts the threads.
    pub(crate) fn start() -> io::Result<HandshakeThreads> {
        let (jobs, queue) = sync_channel(QUEUE_MAX);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..(machine::cores() / CORES_PER_THREAD).clamp(1, THREADS_MAX) {
            let queue = Arc::clone(&queue);
            let body = move || {
                os::lower_priority(NICENESS);
                take_all(&queue);
            };
            std::thread::Builder::new().name("annulet-tls".to_owned()).spawn(body)?;
        }
        Ok(HandshakeThreads { jobs })
    }

    /// Has TLS take the bytes. The piece comes back also if they are no handshake.
    ///
    /// # Errors
    /// Too many wait.
    pub(crate) async fn take(&self, piece: Piece) -> io::Result<(Piece, io::Result<()>)> {
        let busy = || io::Error::new(io::ErrorKind::ResourceBusy, "too many handshakes wait");
        let (tell, told) = oneshot::channel();
        self.jobs.try_send(Job { piece, tell }).map_err(|_| busy())?;
        told.await.map_err(|_| busy())
    }
}

fn take_all(queue: &Mutex<Receiver<Job>>) {
    loop {
        // The lock is free while the job is done.
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { mut piece, tell }) = job else { return };
        if tell.is_closed() {
            continue;
        }
        let result = match decrypt(&mut piece.tls, &piece.cipher, &mut piece.input) {
            Ok(true) => Ok(()),
            Ok(false) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(error),
        };
        // The connection may have ended.
        tell.send((piece, result)).ok();
    }
}
