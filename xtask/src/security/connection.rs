//! A connection by protocol buffers from any address of this machine, under TLS if wanted.

use crate::Result;
use protocol::messages::{AuthReq, ErrorResp};
use protocol::{Message, codes};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned, SupportedProtocolVersion,
};
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time for a connection and for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// The address of honest clients.
pub(super) const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The settings of TLS that trust an authority. Sessions are resumed if wanted.
pub(super) fn trust(ca: &Path, resumes: bool) -> Result<Arc<ClientConfig>> {
    settings(ca, rustls::DEFAULT_VERSIONS, None, resumes)
}

/// The settings of TLS of some versions, with a client certificate and its key if wanted.
pub(super) fn settings(
    ca: &Path,
    versions: &[&'static SupportedProtocolVersion],
    certificate: Option<(&Path, &Path)>,
    resumes: bool,
) -> Result<Arc<ClientConfig>> {
    let read = |file: &Path| {
        CertificateDer::from_pem_file(file).map_err(|error| format!("{}: {error}", file.display()))
    };
    let mut roots = RootCertStore::empty();
    roots.add(read(ca)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
    let config = config.with_root_certificates(roots);
    let mut config = match certificate {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| error.to_string())?;
            config.with_client_auth_cert(vec![read(certificate)?], key)?
        }
    };
    if !resumes {
        config.resumption = rustls::client::Resumption::disabled();
    }
    Ok(Arc::new(config))
}

/// A socket from an address of this machine.
pub(super) fn connect(from: IpAddr, to: SocketAddr) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect_timeout(&to.into(), ANSWER_MAX)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    Ok(stream)
}

/// Bytes of a connection.
pub(super) trait Bytes: Read + Write + Send {}

impl<T: Read + Write + Send> Bytes for T {}

/// TLS over a socket, whose handshake is done.
pub(super) fn secure(
    mut socket: TcpStream,
    tls: &Arc<ClientConfig>,
) -> Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut state = ClientConnection::new(Arc::clone(tls), ServerName::IpAddress(HOME.into()))?;
    state.complete_io(&mut socket)?;
    Ok(StreamOwned::new(state, socket))
}

/// A connection by protocol buffers.
pub(super) enum Connection {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Connection {
    /// Opens it: in plaintext without settings of TLS.
    pub(super) fn open(from: IpAddr, to: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> Result<Connection> {
        let mut plain = Connection::Plain(connect(from, to)?);
        let Some(tls) = tls else { return Ok(plain) };
        plain.ask(codes::START_TLS, &[], codes::START_TLS)?;
        let Connection::Plain(socket) = plain else { unreachable!("it is in plaintext") };
        Ok(Connection::Tls(Box::new(secure(socket, tls)?)))
    }

    /// Whether the handshake has resumed a session.
    pub(super) fn is_resumed(&self) -> bool {
        match self {
            Connection::Plain(_) => false,
            Connection::Tls(stream) => stream.conn.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }

    /// Its socket alone.
    pub(super) fn into_socket(self) -> TcpStream {
        match self {
            Connection::Plain(socket) => socket,
            Connection::Tls(stream) => stream.sock,
        }
    }

    /// Logs in: the text of the node's refusal, if it refuses. A login that is put off is refused with another text
    /// than a wrong one.
    pub(super) fn log_in(&mut self, user: &str, password: &str) -> Result<std::result::Result<(), String>> {
        let (user, password) = (user.as_bytes().to_vec().into(), password.as_bytes().to_vec().into());
        match self.exchange(codes::AUTH_REQ, &AuthReq { user, password }.encode_to_vec())? {
            (codes::AUTH_RESP, _) => Ok(Ok(())),
            (codes::ERROR_RESP, body) => {
                let text = ErrorResp::decode(&*body).map_err(|error| error.to_string())?.errmsg;
                Ok(Err(String::from_utf8_lossy(&text).into_owned()))
            }
            (told, _) => Err(format!("code {told} is the answer to a login").into()),
        }
    }

    /// Sends a message whose answer must have a code.
    pub(super) fn ask(&mut self, code: u8, body: &[u8], answer: u8) -> Result<()> {
        match self.exchange(code, body)? {
            (told, _) if told == answer => Ok(()),
            (told, _) => Err(format!("code {told} is the answer to code {code}").into()),
        }
    }

    /// Sends a message: the code and the body of the answer.
    pub(super) fn exchange(&mut self, code: u8, body: &[u8]) -> Result<(u8, Vec<u8>)> {
        let stream: &mut dyn Bytes = match self {
            Connection::Plain(socket) => socket,
            Connection::Tls(stream) => &mut **stream,
        };
        let len = u32::try_from(body.len() + 1)?;
        stream.write_all(&[&len.to_be_bytes()[..], &[code], body].concat())?;
        stream.flush()?;
        let mut header = [0; 5];
        stream.read_exact(&mut header)?;
        let len = u32::from_be_bytes([header[0], header[1], header[2], header[3]]).saturating_sub(1);
        let mut body = vec![0; len as usize];
        stream.read_exact(&mut body)?;
        Ok((header[4], body))
    }
}
