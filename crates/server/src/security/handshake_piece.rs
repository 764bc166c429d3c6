//! A piece of a handshake: its arithmetic takes up to milliseconds, which a shard's thread has not.
//!
//! The shard's thread reads and writes the socket. Bytes of a handshake go to a thread for computations together with
//! the state of TLS, and come back with it.

use crate::compute_threads::ComputeThreads;
use crate::stream::decrypt;
use bytes::BytesMut;
use rustls::ServerConnection;
use std::io;

/// Bytes of the client, and the state of TLS that takes them.
pub(crate) struct Piece {
    /// The state.
    pub(crate) tls: Box<ServerConnection>,
    /// The bytes.
    pub(crate) cipher: Vec<u8>,
    /// The plaintext that was behind the handshake.
    pub(crate) input: BytesMut,
}

impl Piece {
    /// Has TLS take the bytes. The piece comes back also if they are no handshake.
    ///
    /// # Errors
    /// Too many computations wait.
    pub(crate) async fn decrypt_on(
        mut self,
        threads: &ComputeThreads,
    ) -> io::Result<(Piece, io::Result<()>)> {
        let decrypt = move || {
            let result = match decrypt(&mut self.tls, &self.cipher, &mut self.input) {
                Ok(true) => Ok(()),
                Ok(false) => Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) => Err(error),
            };
            (self, result)
        };
        threads.run(decrypt).await
    }
}
