//! The connection: frames out, frames in, and the end of it at the first error.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use protocol::frame::{FRAME_BEFORE_FIRST_MAX, FRAME_MAX, READ_STEP};
use protocol::messages::{AuthReq, ErrorResp};
use protocol::{Frame, Limits, Message, Request, codes, next_frame};

use rustls::{ClientConnection, StreamOwned};

use crate::Error;
use crate::transport::Transport;

/// The largest answer taken: several siblings of the largest size a put may have.
const ANSWER_MAX: usize = 1 << 30;

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection to one address.
    pub connect: Duration,
    /// For one read or write on the socket to make progress.
    pub io: Duration,
}

impl Default for Timeouts {
    /// A server gives up on a request after 60 seconds; wait a little longer, to hear it say so.
    fn default() -> Timeouts {
        Timeouts { connect: Duration::from_secs(5), io: Duration::from_secs(65) }
    }
}

/// A connection to one node.
#[derive(Debug)]
pub struct Client {
    stream: Transport,
    received: BytesMut,
    chunk: Vec<u8>,
    sending: Vec<u8>,
    /// Whether the server has answered a request: before that it takes no large one.
    answered: bool,
    dead: bool,
}

impl Client {
    /// Connects to the first address of `addr` that answers.
    pub fn connect(addr: impl ToSocketAddrs, timeouts: Timeouts) -> Result<Client, Error> {
        let stream = connect_any(addr, timeouts.connect)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeouts.io))?;
        stream.set_write_timeout(Some(timeouts.io))?;
        Ok(Client {
            stream: Transport::Plain(stream),
            received: BytesMut::new(),
            chunk: vec![0; READ_STEP],
            sending: Vec::new(),
            answered: false,
            dead: false,
        })
    }

    /// Goes on under TLS, as the state of TLS has it. The connection has to be new, and in plaintext.
    ///
    /// # Errors
    /// A node without a certificate, and a certificate that is not verified.
    ///
    /// # Panics
    /// If the connection is under TLS.
    pub fn start_tls(self, tls: ClientConnection) -> Result<Client, Error> {
        let mut client = self;
        let () = client.call(&Request::StartTls, codes::START_TLS)?;
        if !client.received.is_empty() {
            return Err(Error::Protocol("bytes in plaintext behind the begin of TLS".into()));
        }
        let Client { stream, received, chunk, sending, answered, dead } = client;
        let Transport::Plain(socket) = stream else { panic!("a connection is encrypted once") };
        let mut stream = StreamOwned::new(tls, socket);
        // The certificate is verified before a password is sent.
        stream.conn.complete_io(&mut stream.sock)?;
        let stream = Transport::Tls(Box::new(stream));
        Ok(Client { stream, received, chunk, sending, answered, dead })
    }

    /// Logs in. Without a password, the client certificate of the connection is the proof.
    ///
    /// # Errors
    /// A login that is refused, and a node that asks for none.
    pub fn log_in(&mut self, user: &str, password: Option<&str>) -> Result<(), Error> {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let login = AuthReq { user: bytes(user), password: bytes(password.unwrap_or_default()) };
        self.call(&Request::Auth(login), codes::AUTH_RESP)
    }

    /// Sends a frame with any code and body, sound or not.
    pub fn send_frame(&mut self, code: u8, body: &[u8]) -> Result<(), Error> {
        let len = u32::try_from(body.len() + 1).map_err(|_| Error::Protocol("frame too large".into()))?;
        self.sending.clear();
        self.sending.extend_from_slice(&len.to_be_bytes());
        self.sending.push(code);
        self.sending.extend_from_slice(body);
        self.flush()
    }

    /// Receives the next frame, an error answer included.
    pub fn recv_frame(&mut self) -> Result<Frame, Error> {
        self.check_alive()?;
        self.read_frame().inspect_err(|_| self.dead = true)
    }

    /// Sends `request` and receives the first message of its answer, which must have this code. A connection does not
    /// begin with a large request, which a server refuses: a ping goes before it.
    pub(crate) fn call<M: Message + Default>(&mut self, request: &Request, code: u8) -> Result<M, Error> {
        self.sending.clear();
        request.encode(&mut self.sending);
        if self.sending.len() > FRAME_MAX {
            return Err(Error::Protocol(format!("a request of {} bytes", self.sending.len())));
        }
        if self.sending.len() > FRAME_BEFORE_FIRST_MAX && !self.answered {
            let large = std::mem::take(&mut self.sending);
            self.ping()?;
            self.sending = large;
        }
        self.flush()?;
        self.recv(code)
    }

    /// Receives a message that must have this code.
    pub(crate) fn recv<M: Message + Default>(&mut self, code: u8) -> Result<M, Error> {
        let frame = self.recv_frame()?;
        if frame.code == codes::ERROR_RESP {
            let error: ErrorResp = self.decode(frame)?;
            return Err(Error::Server(String::from_utf8_lossy(&error.errmsg).into_owned()));
        }
        if frame.code != code {
            self.dead = true;
            return Err(Error::Protocol(format!(
                "{} (code {}) instead of {}",
                codes::name(frame.code),
                frame.code,
                codes::name(code)
            )));
        }
        self.answered = true;
        self.decode(frame)
    }

    fn decode<M: Message + Default>(&mut self, frame: Frame) -> Result<M, Error> {
        M::decode(frame.body).map_err(|error| {
            self.dead = true;
            Error::Protocol(format!("{}: {error}", codes::name(frame.code)))
        })
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.check_alive()?;
        let sent = self.stream.write_all(&self.sending).and_then(|()| self.stream.flush());
        sent.inspect_err(|_| self.dead = true)?;
        Ok(())
    }

    fn check_alive(&self) -> Result<(), Error> {
        if self.dead {
            return Err(Error::Protocol("the connection is dead after an earlier error".into()));
        }
        Ok(())
    }

    fn read_frame(&mut self) -> Result<Frame, Error> {
        loop {
            let limits = Limits { frame_max: ANSWER_MAX };
            let next = next_frame(&mut self.received, limits);
            if let Some(frame) = next.map_err(|error| Error::Protocol(error.to_string()))? {
                return Ok(frame);
            }
            match self.stream.read(&mut self.chunk) {
                Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(n) => self.received.extend_from_slice(&self.chunk[..n]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn connect_any(addr: impl ToSocketAddrs, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::InvalidInput, "no address to connect to");
    for addr in addr.to_socket_addrs()? {
        match TcpStream::connect_timeout(&addr, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
