//! TLS of the doors for clients.
//!
//! The node shows its certificate. With an authority for clients it asks for theirs as well. A client may do without
//! one: a certificate that is offered is verified, and one that is not of the authority ends the handshake.
//!
//! TLS 1.2 is spoken too, by suites with ephemeral keys and authenticated encryption alone, since clients of Riak are
//! old. Sessions are resumed only without an authority: where certificates count, each handshake verifies one.

use crate::peer::{TlsError, certificates};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use security::{Attribute, common_name};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Sessions that clients may resume: a few hundred bytes each, for the pools of as many clients.
const SESSIONS_MAX: usize = 4096;

/// The files of a node's TLS for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// The certificate of the node, and those between it and its authority.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority of clients' certificates.
    pub client_ca: Option<PathBuf>,
}

/// The node's end of connections with clients.
pub(crate) struct ClientTls(Arc<ServerConfig>);

impl ClientTls {
    /// Reads the files, and checks that the key is the certificate's.
    pub(crate) fn load(files: &ClientFiles) -> Result<ClientTls, TlsError> {
        let wrong =
            |path: &Path, what: &dyn ToString| TlsError { path: path.to_path_buf(), what: what.to_string() };
        let chain = certificates(&files.cert)?;
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| wrong(&files.key, &error))?;
        let verifier = files.client_ca.as_deref().map(verifier).transpose()?;
        let has_verifier = verifier.is_some();

        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| wrong(&files.cert, &error))?;
        let config = match verifier {
            Some(verifier) => config.with_client_cert_verifier(verifier),
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_single_cert(chain, key).map_err(|error| wrong(&files.key, &error))?;
        if has_verifier {
            config.send_tls13_tickets = 0;
            config.session_storage = Arc::new(NoServerSessionStorage {});
        } else {
            config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
        }
        Ok(ClientTls(Arc::new(config)))
    }

    /// The node's end of a connection that was accepted.
    pub(crate) fn accept(&self) -> Result<ServerConnection, rustls::Error> {
        ServerConnection::new(Arc::clone(&self.0))
    }
}

/// Whether clients and nodes have authorities apart: otherwise a client could join, and a node log in.
///
/// # Errors
/// If a certificate is in both files, or one of them cannot be read.
pub(crate) fn check_apart(client_ca: &Path, peer_ca: &Path) -> Result<(), TlsError> {
    let of_peers = certificates(peer_ca)?;
    match certificates(client_ca)?.iter().any(|authority| of_peers.contains(authority)) {
        false => Ok(()),
        true => {
            let what = "also the authority of the nodes (peer_ca): clients need one of their own".to_owned();
            Err(TlsError { path: client_ca.to_path_buf(), what })
        }
    }
}

/// Verifies certificates of clients that offer one.
fn verifier(client_ca: &Path) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let wrong = |what: &dyn ToString| TlsError { path: client_ca.to_path_buf(), what: what.to_string() };
    let mut roots = RootCertStore::empty();
    for authority in certificates(client_ca)? {
        roots.add(authority).map_err(|error| wrong(&error))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()))
        .allow_unauthenticated()
        .build()
        .map_err(|error| wrong(&error))
}

/// The user's name in the certificate that a client has shown and the handshake has verified.
pub(crate) fn certified_name(tls: &ServerConnection) -> Option<Vec<u8>> {
    certificate_user(tls.peer_certificates()?.first()?)
}

/// The user's name in a client certificate, as DER.
pub fn certificate_user(certificate: &[u8]) -> Option<Vec<u8>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let attributes = parsed.subject().iter_attributes();
    let attributes = attributes.map(|attribute| Attribute {
        oid: attribute.attr_type().as_bytes(),
        value: attribute.attr_value().data,
    });
    common_name(attributes).map(<[u8]>::to_vec)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::stream::Stream;
    use bytes::BytesMut;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::CertificateDer};
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use tempfile::TempDir;

    /// An authority for node and clients, and their certificates.
    pub(crate) struct Certificates {
        pub(crate) dir: TempDir,
        issuer: Issuer<'static, KeyPair>,
    }

    impl Certificates {
        /// With a node's certificate for `localhost`.
        pub(crate) fn new() -> Certificates {
            let dir = tempfile::tempdir().unwrap();
            let mut authority = CertificateParams::default();
            authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            std::fs::write(dir.path().join("ca.pem"), authority.self_signed(&key).unwrap().pem()).unwrap();
            let certificates = Certificates { dir, issuer: Issuer::new(authority, key) };
            certificates.issue("node", "localhost", None);
            certificates
        }

        /// A certificate with this common name or none, in `NAME.pem`, with its key in `NAME.key`.
        pub(crate) fn issue(&self, name: &str, host: &str, common_name: Option<&str>) {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
            params.distinguished_name = rcgen::DistinguishedName::new();
            if let Some(common_name) = common_name {
                params.distinguished_name.push(DnType::CommonName, common_name);
            }
            let cert = params.signed_by(&key, &self.issuer).unwrap();
            std::fs::write(self.path(&format!("{name}.pem")), cert.pem()).unwrap();
            std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        }

        pub(crate) fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        pub(crate) fn files(&self, asks_clients: bool) -> ClientFiles {
            let client_ca = asks_clients.then(|| self.path("ca.pem"));
            ClientFiles { cert: self.path("node.pem"), key: self.path("node.key"), client_ca }
        }

        /// A client's end of a connection, with the certificate of `name`.
        pub(crate) fn client(
            &self,
            name: Option<&str>,
            tcp: TcpStream,
        ) -> StreamOwned<ClientConnection, TcpStream> {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(self.path("ca.pem")).unwrap()).unwrap();
            let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots);
            let config = match name {
                None => config.with_no_client_auth(),
                Some(name) => {
                    let cert = CertificateDer::from_pem_file(self.path(&format!("{name}.pem"))).unwrap();
                    let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).unwrap();
                    config.with_client_auth_cert(vec![cert], key).unwrap()
                }
            };
            let name = ServerName::try_from("localhost").unwrap();
            StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), tcp)
        }
    }

    #[test]
    fn files_that_are_of_no_use_are_named() {
        let certificates = Certificates::new();
        certificates.issue("other", "localhost", None);
        let good = certificates.files(true);
        assert!(ClientTls::load(&good).is_ok());
        let told = |files: ClientFiles| ClientTls::load(&files).err().expect("a file is wrong").to_string();
        let missing = certificates.path("missing.pem");
        assert!(told(ClientFiles { cert: missing.clone(), ..good.clone() }).contains("missing.pem: "));
        assert!(told(ClientFiles { key: missing.clone(), ..good.clone() }).contains("missing.pem: "));
        assert!(told(ClientFiles { client_ca: Some(missing), ..good.clone() }).contains("missing.pem: "));
        let of_other = told(ClientFiles { key: certificates.path("other.key"), ..good.clone() });
        assert!(of_other.contains("other.key: "), "{of_other}");
        let no_certificate = told(ClientFiles { cert: certificates.path("node.key"), ..good });
        assert!(no_certificate.contains("no certificate in this file"), "{no_certificate}");
    }

    #[test]
    fn nodes_and_clients_have_authorities_apart() {
        let (one, other) = (Certificates::new(), Certificates::new());
        assert!(check_apart(&one.path("ca.pem"), &other.path("ca.pem")).is_ok());
        let told = check_apart(&one.path("ca.pem"), &one.path("ca.pem")).unwrap_err().to_string();
        assert!(told.contains("ca.pem: also the authority of the nodes"), "{told}");
    }

    /// Sends `bytes` to a node that answers them twice; the name that it finds in the client's certificate.
    fn echo(
        certificates: &Certificates,
        asks_clients: bool,
        client: Option<&str>,
        bytes: usize,
    ) -> Option<Vec<u8>> {
        let tls = ClientTls::load(&certificates.files(asks_clients)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut end =
            certificates.client(client, TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let sent: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
        let expected = sent.repeat(2);
        let client = std::thread::spawn(move || {
            end.write_all(&sent).unwrap();
            let mut answer = vec![0; 2 * bytes];
            end.read_exact(&mut answer).unwrap();
            end.conn.send_close_notify();
            end.flush().unwrap();
            answer
        });
        let name = runtime.block_on(async {
            let (tcp, _) = listener.accept().unwrap();
            tcp.set_nonblocking(true).unwrap();
            let mut stream = Stream::plain(tokio::net::TcpStream::from_std(tcp).unwrap());
            stream.secure(tls.accept().unwrap());
            let mut input = BytesMut::new();
            stream.handshake(&mut input).await.unwrap();
            let name = stream.tls().and_then(certified_name);
            while input.len() < bytes {
                assert_ne!(stream.read_buf(&mut input).await.unwrap(), 0);
            }
            stream.write_all(&input.repeat(2)).await.unwrap();
            assert_eq!(stream.read_buf(&mut input).await.unwrap(), 0, "the client has ended its side");
            stream.shutdown().await.unwrap();
            name
        });
        assert_eq!(client.join().unwrap(), expected);
        name
    }

    #[test]
    fn bytes_pass_both_ways() {
        let certificates = Certificates::new();
        certificates.issue("alice", "alice", Some("alice"));
        for bytes in [1, 100, 16 << 10, (1 << 20) + 1] {
            assert_eq!(echo(&certificates, false, None, bytes), None);
        }
        assert_eq!(echo(&certificates, true, None, 100), None);
        assert_eq!(echo(&certificates, true, Some("alice"), 100), Some(b"alice".to_vec()));
        assert_eq!(echo(&certificates, false, Some("alice"), 100), None, "nobody has verified it");
    }
}
