//! TLS over a socket.
//!
//! The socket is read in large steps and everything that has come is decrypted before anybody looks at it; what
//! is written is encrypted whole and leaves in as few system calls as the socket's buffer allows.

use super::tls::certificate_name;
use bytes::BytesMut;
use rustls::Connection;
use rustls::pki_types::CertificateDer;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, BufRead, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How much is read from a socket at once: what may come in while the other links have their turn.
pub(super) const READ_BYTES: usize = 128 << 10;

/// Handshakes are read in smaller steps, since strangers may begin them.
pub(super) const HANDSHAKE_READ_BYTES: usize = 4 << 10;

/// One end of a connection.
pub(super) struct Channel {
    tcp: TcpStream,
    tls: Connection,
    /// Calls of the system that wrote.
    pub(super) writes: u64,
}

impl Channel {
    /// Over a connected socket.
    pub(super) fn new(tcp: TcpStream, tls: Connection) -> Channel {
        Channel { tcp, tls, writes: 0 }
    }

    /// Apart, to be put together on another thread.
    pub(super) fn into_parts(self) -> io::Result<(std::net::TcpStream, Connection)> {
        Ok((self.tcp.into_std()?, self.tls))
    }

    /// The certificate of the other end.
    pub(super) fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.tls.peer_certificates()?.first()
    }

    /// Whether the opener of an accepted connection meant this node, by the name in its handshake.
    pub(super) fn is_meant_for(&self, node: &str) -> bool {
        let Connection::Server(tls) = &self.tls else { return false };
        tls.server_name().is_some_and(|name| name == certificate_name(node))
    }

    /// Does the handshake. What the other end sent right behind it is appended to `input`.
    pub(super) async fn handshake(&mut self, input: &mut BytesMut) -> io::Result<()> {
        let mut scratch = [0; HANDSHAKE_READ_BYTES];
        loop {
            self.flush().await?;
            if !self.tls.is_handshaking() {
                return Ok(());
            }
            if !self.read(input, &mut scratch).await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Writes all of `pieces`.
    pub(super) async fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        let taken = self.tls.writer().write_vectored(pieces)?;
        assert_eq!(taken, len, "the end of a connection that writes has no limit to its buffer");
        self.flush().await
    }

    /// Reads once and appends what that was to `input`; false at the connection's end. What is dropped before it
    /// is done has read nothing.
    pub(super) async fn read(&mut self, input: &mut BytesMut, scratch: &mut [u8]) -> io::Result<bool> {
        let read = poll_fn(|context| self.poll_tcp(context, scratch)).await?;
        if read == 0 {
            return Ok(false);
        }
        self.decrypt(&scratch[..read], input)
    }

    /// The same with a scratch buffer that is shared with others of this thread.
    pub(super) async fn read_shared(
        &mut self,
        input: &mut BytesMut,
        scratch: &RefCell<Box<[u8]>>,
    ) -> io::Result<bool> {
        poll_fn(|context| {
            let scratch = &mut *scratch.borrow_mut();
            let read = ready!(self.poll_tcp(context, scratch))?;
            Poll::Ready(if read == 0 { Ok(false) } else { self.decrypt(&scratch[..read], input) })
        })
        .await
    }

    fn poll_tcp(&mut self, context: &mut Context<'_>, scratch: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(scratch);
        ready!(Pin::new(&mut self.tcp).poll_read(context, &mut buf))?;
        Poll::Ready(Ok(buf.filled().len()))
    }

    fn decrypt(&mut self, mut raw: &[u8], input: &mut BytesMut) -> io::Result<bool> {
        while !raw.is_empty() {
            if self.tls.read_tls(&mut raw)? == 0 {
                return Ok(false);
            }
            let state = self.tls.process_new_packets().map_err(|error| {
                // The other end is told why, if that can be had without waiting.
                self.tls.write_tls(&mut TryWrite(&self.tcp)).ok();
                io::Error::new(io::ErrorKind::InvalidData, error)
            })?;
            let mut left = state.plaintext_bytes_to_read();
            input.reserve(left);
            while left > 0 {
                let mut reader = self.tls.reader();
                let chunk = reader.fill_buf()?;
                let len = chunk.len();
                input.extend_from_slice(chunk);
                reader.consume(len);
                left -= len;
            }
        }
        Ok(true)
    }

    async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|context| {
            while self.tls.wants_write() {
                let mut socket = Socket { tcp: &mut self.tcp, context };
                match self.tls.write_tls(&mut socket) {
                    Ok(_) => self.writes += 1,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }
}

/// A socket that says `WouldBlock` and wakes the task when it no longer does.
struct Socket<'a, 'b> {
    tcp: &'a mut TcpStream,
    context: &'a mut Context<'b>,
}

impl Write for Socket<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match Pin::new(&mut *self.tcp).poll_write_vectored(self.context, pieces) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket that is not waited for.
struct TryWrite<'a>(&'a TcpStream);

impl Write for TryWrite<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
