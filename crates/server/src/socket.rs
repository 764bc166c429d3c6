//! The socket of a client's connection: TCP, or the local socket of the node.

use bytes::BytesMut;
use rustix::net::{RecvFlags, recv};
use std::fmt;
use std::io::{self, IoSlice, Write};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};

/// The client at the other end of a connection, for the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientOrigin {
    /// A client at this address.
    Address(SocketAddr),
    /// A user of this machine, by the local socket.
    LocalUid(u32),
    /// A connection that has ended.
    Unknown,
}

impl fmt::Display for ClientOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientOrigin::Address(address) => write!(f, "{address}"),
            ClientOrigin::LocalUid(uid) => write!(f, "local uid {uid}"),
            ClientOrigin::Unknown => f.write_str("unknown"),
        }
    }
}

/// A socket that is read when it is ready.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Local(UnixStream),
}

/// Calls the same function of either kind of socket.
macro_rules! either {
    ($socket:expr, $it:ident => $call:expr) => {
        match $socket {
            Socket::Tcp($it) => $call,
            Socket::Local($it) => $call,
        }
    };
}

impl Socket {
    /// Has small pieces sent at once.
    pub(crate) fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(tcp) => tcp.set_nodelay(true),
            // It delays nothing.
            Socket::Local(_) => Ok(()),
        }
    }

    /// The client's address.
    ///
    /// # Errors
    /// `AddrNotAvailable` of the local socket, whose clients have none.
    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Socket::Tcp(tcp) => tcp.peer_addr(),
            Socket::Local(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    /// The address that the client has connected to; errors are those of [`Socket::peer_addr`].
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Socket::Tcp(tcp) => tcp.local_addr(),
            Socket::Local(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    /// The client.
    pub(crate) fn origin(&self) -> ClientOrigin {
        match self {
            Socket::Tcp(tcp) => tcp.peer_addr().map_or(ClientOrigin::Unknown, ClientOrigin::Address),
            Socket::Local(local) => {
                local.peer_cred().map_or(ClientOrigin::Unknown, |client| ClientOrigin::LocalUid(client.uid()))
            }
        }
    }

    /// Ready once there may be something to read, or the connection has ended.
    #[inline]
    pub(crate) fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, it => it.poll_read_ready(context))
    }

    /// Whether bytes are there now, by a call of the system. The runtime hears of them some time later.
    pub(crate) fn has_input(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        either!(self, it => recv(it, &mut [0], flags)).is_ok_and(|(read, _)| read > 0)
    }

    /// Waits until there may be something to read.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        either!(self, it => it.readable().await)
    }

    /// Waits until the client has sent something.
    ///
    /// # Errors
    /// `UnexpectedEof` if the client ends the connection before.
    pub(crate) async fn first_byte(&self) -> io::Result<()> {
        match self {
            // The readiness of a socket may be a false alarm.
            Socket::Tcp(tcp) => match tcp.peek(&mut [0]).await? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(()),
            },
            // It has no handshake that a false alarm would cost.
            Socket::Local(local) => local.readable().await,
        }
    }

    /// Waits until some bytes can be written.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        either!(self, it => it.writable().await)
    }

    /// Reads bytes that are there.
    pub(crate) fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        either!(self, it => it.try_read(bytes))
    }

    /// Appends bytes that are there.
    #[inline]
    pub(crate) fn try_read_buf(&self, input: &mut BytesMut) -> io::Result<usize> {
        either!(self, it => it.try_read_buf(input))
    }

    /// Sends a part of `bytes`.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, it => it.write(bytes).await)
    }

    /// Sends all of `bytes`.
    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        either!(self, it => it.write_all(bytes).await)
    }

    /// Says that nothing more comes from this side.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        either!(self, it => it.shutdown().await)
    }
}

/// A socket that is not waited for.
pub(crate) struct Unwaited<'a>(pub(crate) &'a Socket);

impl Write for Unwaited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        either!(self.0, it => it.try_write(bytes))
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        either!(self.0, it => it.try_write_vectored(pieces))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
