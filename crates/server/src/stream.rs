//! A client's connection: a socket ([`Socket`]), in plaintext or under TLS.
//!
//! Both kinds are read when the socket is ready, into the buffer that frames are cut off. Under TLS one read takes at
//! most [`CIPHER_BYTES`] off the socket, and all plaintext that comes of them goes to the caller at once: nothing that
//! was decrypted stays behind. Writes are encrypted in pieces of at most [`PLAIN_BYTES_MAX`], and each is sent before
//! the next.
//!
//! Invariant: plaintext that was read before a handshake is never taken for bytes of the encrypted stream. A caller of
//! [`Stream::secure`] has nothing left in the input buffer.
//!
//! The arithmetic of a handshake is done on other threads ([`ComputeThreads`]).

use crate::compute_threads::ComputeThreads;
use crate::security::Piece;
use crate::socket::{ClientOrigin, Socket, Unwaited};
use bytes::BytesMut;
use protocol::HelloProgress;
use rustls::ServerConnection;
use std::future::poll_fn;
use std::io::{self, BufRead, Write as _};
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};
use tokio::net::{TcpStream, UnixStream};

/// Ciphertext that is read at a time: a record of TLS, on the stack of the thread.
const CIPHER_BYTES: usize = 16 << 10;

/// Plaintext that is encrypted at a time, which bounds the memory of a connection whose client takes nothing.
const PLAIN_BYTES_MAX: usize = 64 << 10;

/// A client's connection.
pub struct Stream {
    socket: Socket,
    /// `None` in plaintext. In a box, since most connections have none.
    tls: Option<Box<ServerConnection>>,
    /// The generation of the certificates that its client was verified under.
    generation: u64,
}

impl Stream {
    /// A connection in plaintext.
    pub fn plain(tcp: TcpStream) -> Stream {
        Stream { socket: Socket::Tcp(tcp), tls: None, generation: 0 }
    }

    /// A connection by the local socket of the node.
    pub(crate) fn local(socket: UnixStream) -> Stream {
        Stream { socket: Socket::Local(socket), tls: None, generation: 0 }
    }

    /// Goes on under TLS, whose handshake begins with the next byte.
    ///
    /// # Panics
    /// If it is under TLS already.
    pub fn secure(&mut self, mut tls: ServerConnection) {
        assert!(self.tls.is_none(), "a connection is encrypted once");
        tls.set_buffer_limit(Some(PLAIN_BYTES_MAX));
        self.tls = Some(Box::new(tls));
    }

    /// The state of TLS, once there is one.
    pub fn tls(&self) -> Option<&ServerConnection> {
        self.tls.as_deref()
    }

    /// The generation of the certificates that its client was verified under.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The client was verified under this generation of the certificates.
    pub fn set_generation(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// Has small pieces sent at once.
    pub fn set_nodelay(&self) -> io::Result<()> {
        self.socket.set_nodelay()
    }

    /// The client's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// The client, for the audit log.
    pub(crate) fn origin(&self) -> ClientOrigin {
        self.socket.origin()
    }

    /// The address that the client has connected to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Ready once there may be something to read, or the connection has ended.
    #[inline]
    pub fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_read_ready(context)
    }

    /// Whether bytes, encrypted or not, are there now. The runtime hears of them some time later.
    pub fn has_input(&self) -> bool {
        self.socket.has_input()
    }

    /// Appends bytes that are there to `input`: how many, 0 at the connection's end.
    ///
    /// # Errors
    /// `WouldBlock` if there are none yet, also if a record of TLS is not complete.
    #[inline]
    pub fn try_read_buf(&mut self, input: &mut BytesMut) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.try_read_buf(input),
            Some(tls) => try_decrypt(&self.socket, tls, input),
        }
    }

    /// Sends a part of `bytes`: how many.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.write(bytes).await,
            Some(tls) => {
                let taken = tls.writer().write(bytes)?;
                flush(&self.socket, tls).await?;
                Ok(taken)
            }
        }
    }

    /// Sends all of `bytes`.
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.tls.is_none() {
            return self.socket.write_all(bytes).await;
        }
        let mut sent = 0;
        while sent < bytes.len() {
            match self.write(&bytes[sent..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                some => sent += some,
            }
        }
        Ok(())
    }

    /// Waits until the client has sent something.
    ///
    /// # Errors
    /// `UnexpectedEof` if the client ends the connection before.
    pub async fn first_byte(&self) -> io::Result<()> {
        self.socket.first_byte().await
    }

    /// Does the handshake of TLS, with its arithmetic on `threads`. `on_hello` is called once the client's whole hello
    /// has come, which is seen before the arithmetic: hellos that wait for a thread have come too. Bytes that the
    /// client has sent right behind the handshake are appended to `input`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the client ends the connection before.
    pub(crate) async fn handshake(
        &mut self,
        input: &mut BytesMut,
        threads: &ComputeThreads,
        on_hello: impl Fn(),
    ) -> io::Result<()> {
        let (mut has_hello, mut hello) = (false, HelloProgress::default());
        while let Some(tls) = &mut self.tls {
            // A node has nothing to say before a hello.
            if tls.wants_write() && !has_hello {
                has_hello = true;
                on_hello();
            }
            flush(&self.socket, tls).await?;
            if !tls.is_handshaking() {
                break;
            }
            let Some(cipher) = self.read_cipher().await? else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            if !has_hello && hello.is_whole_with(&cipher) {
                has_hello = true;
                on_hello();
            }
            let tls = self.tls.take().expect("the connection is under TLS");
            let piece = Piece { tls, cipher, input: input.split() };
            let (piece, result) = piece.decrypt_on(threads).await?;
            input.unsplit(piece.input);
            let tls = self.tls.insert(piece.tls);
            result.inspect_err(|_| tell_alert(&self.socket, tls))?;
        }
        Ok(())
    }

    /// Waits for bytes off the socket; none at the connection's end.
    async fn read_cipher(&self) -> io::Result<Option<Vec<u8>>> {
        loop {
            self.socket.readable().await?;
            let mut cipher = [0; CIPHER_BYTES];
            match self.socket.try_read(&mut cipher) {
                Ok(0) => return Ok(None),
                Ok(read) => return Ok(Some(cipher[..read].to_vec())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for bytes, and appends them to `input`: how many, 0 at the connection's end.
    #[cfg(test)]
    pub async fn read_buf(&mut self, input: &mut BytesMut) -> io::Result<usize> {
        loop {
            self.socket.readable().await?;
            match self.try_read_buf(input) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    /// Says that nothing more comes from this side.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            flush(&self.socket, tls).await?;
        }
        self.socket.shutdown().await
    }

    /// Reads bytes off the socket to drop them: how many, 0 at the connection's end. They are not decrypted.
    pub async fn discard(&mut self, scratch: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| {
            loop {
                ready!(self.socket.poll_read_ready(context))?;
                match self.socket.try_read(scratch) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return Poll::Ready(read),
                }
            }
        })
        .await
    }
}

/// Reads once off the socket. A caller that waits for more looks at other connections between two reads, also if the
/// client sends nothing but records without plaintext.
fn try_decrypt(socket: &Socket, tls: &mut ServerConnection, input: &mut BytesMut) -> io::Result<usize> {
    let mut cipher = [0; CIPHER_BYTES];
    let read = socket.try_read(&mut cipher)?;
    if read == 0 {
        return Ok(0);
    }
    let before = input.len();
    let goes_on = decrypt(tls, &cipher[..read], input).inspect_err(|_| tell_alert(socket, tls))?;
    match input.len() - before {
        0 if goes_on => Err(io::ErrorKind::WouldBlock.into()),
        got => Ok(got),
    }
}

/// Tells the client why its bytes are not taken, if that can be had without waiting.
fn tell_alert(socket: &Socket, tls: &mut ServerConnection) {
    tls.write_tls(&mut Unwaited(socket)).ok();
}

/// Decrypts `cipher` to the end of `input`. False once the client has ended its side. After an error TLS has an alert
/// for the client.
pub(crate) fn decrypt(
    tls: &mut ServerConnection,
    mut cipher: &[u8],
    input: &mut BytesMut,
) -> io::Result<bool> {
    while !cipher.is_empty() {
        if tls.read_tls(&mut cipher)? == 0 {
            return Ok(false);
        }
        let state = tls.process_new_packets();
        let state = state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let has_ended = state.peer_has_closed();
        let mut left = state.plaintext_bytes_to_read();
        input.reserve(left);
        while left > 0 {
            let mut reader = tls.reader();
            let chunk = reader.fill_buf()?;
            let len = chunk.len();
            input.extend_from_slice(chunk);
            reader.consume(len);
            left -= len;
        }
        if has_ended {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Sends the bytes that TLS has encrypted, as the socket takes them.
async fn flush(socket: &Socket, tls: &mut ServerConnection) -> io::Result<()> {
    while tls.wants_write() {
        match tls.write_tls(&mut Unwaited(socket)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
