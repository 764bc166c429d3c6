//! The bytes of a connection of the pool: a non-blocking socket, in plaintext or under TLS.
//!
//! Under TLS a read or a write may make progress with the handshake alone, which is `WouldBlock` to the caller.
//! [`Transport::flush`] sends encrypted bytes that the socket did not take before. [`Transport::has_plaintext`] says
//! whether decrypted bytes wait to be read, which no event of the socket tells.

use rustix::fd::{AsFd, BorrowedFd};
use rustls::{ClientConnection, Stream};
use socket2::Socket;
use std::io::{self, Read, Write};

/// A socket, perhaps under TLS.
pub(super) struct Transport {
    socket: Socket,
    /// `None` in plaintext. In a box, since most connections have none.
    tls: Option<Box<ClientConnection>>,
}

impl Transport {
    /// A connection in plaintext.
    pub(super) fn new(socket: Socket) -> Transport {
        Transport { socket, tls: None }
    }

    /// Goes on under TLS, whose handshake begins with the next read or write.
    ///
    /// # Panics
    /// If it is under TLS.
    pub(super) fn secure(&mut self, tls: ClientConnection) {
        assert!(self.tls.is_none(), "a connection is encrypted once");
        self.tls = Some(Box::new(tls));
    }

    /// The error of a connection attempt.
    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }

    /// Whether bytes wait for room in the socket, for a writer that was told `WouldBlock`. A handshake may wait for
    /// the server instead.
    pub(super) fn waits_for_room(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.wants_write())
    }

    /// Whether a read returns bytes without an event of the socket.
    pub(super) fn has_plaintext(&mut self) -> bool {
        // All packets are processed, so that this reads a number alone.
        let state = self.tls.as_mut().map(|tls| tls.process_new_packets());
        state.is_some_and(|state| state.is_ok_and(|state| state.plaintext_bytes_to_read() > 0))
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Read for Transport {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.read(bytes) };
        Stream::new(&mut **tls, &mut self.socket).read(bytes)
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.write(bytes) };
        Stream::new(&mut **tls, &mut self.socket).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        Stream::new(&mut **tls, &mut self.socket).flush()
    }
}
