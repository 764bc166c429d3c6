//! TLS of the doors for clients.
//!
//! [`ClientTls`] is made of files that are read together. [`super::ClientCertificates`] replaces it as a whole when
//! they are read again.
//!
//! The node shows its certificate. With an authority for clients it asks for theirs as well. A client may do without
//! one: a certificate that is offered is verified, and one that is not of the authority ends the handshake.
//!
//! TLS 1.2 is spoken too, by suites with ephemeral keys and authenticated encryption alone, since clients of Riak are
//! old. Sessions are resumed only without an authority: where certificates count, each handshake verifies one. The
//! sessions end with the certificate that they began under: the keys of tickets are made with it.
//!
//! A session is in its ticket, under a key of the node that changes every six hours. The library's store of sessions
//! searches all of them for the one that it takes out. Sessions of TLS 1.2 are in that store as well, for clients that
//! know no tickets; these are not taken out.

use super::revocation::{RevocationLists, read_lists};
use crate::peer::{TlsError, certificates, end_of_validity};
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use security::{Attribute, common_name};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Sessions of TLS 1.2 that clients may resume: a few hundred bytes each, for the pools of as many clients.
const SESSIONS_MAX: usize = 4096;

/// Tickets for a connection by TLS 1.3: each that resumes a session uses one up, and has one for the next.
const TICKETS: usize = 1;

/// The files of a node's TLS for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// The certificate of the node, and those between it and its authority.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority of clients' certificates.
    pub client_ca: Option<PathBuf>,
    /// Lists of the certificates that this authority has revoked.
    pub client_crls: Vec<PathBuf>,
}

/// Ends of the validity of certificates and lists for clients, in seconds since 1970; 0 if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ClientTlsExpiry {
    /// Of the node's certificate.
    client_port_expiry_seconds: i64,
    /// Of the authority of clients' certificates; the first one of several.
    client_authority_expiry_seconds: i64,
    /// The time until which the first revocation list is to be followed by another.
    revocation_list_update_seconds: i64,
}

/// The node's end of connections with clients, by files that were read together.
pub(crate) struct ClientTls {
    config: Arc<ServerConfig>,
    /// Verifies certificates of clients; `None` without an authority of theirs.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    expiry: ClientTlsExpiry,
}

impl ClientTls {
    /// Reads the files, and checks that the key is the certificate's.
    pub(crate) fn load(files: &ClientFiles) -> Result<ClientTls, TlsError> {
        let wrong =
            |path: &Path, what: &dyn ToString| TlsError { path: path.to_path_buf(), what: what.to_string() };
        let chain = certificates(&files.cert)?;
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| wrong(&files.key, &error))?;
        let authorities = files.client_ca.as_deref().map(certificates).transpose()?.unwrap_or_default();
        let lists = read_lists(&files.client_crls, &authorities)?;
        let expiry = ClientTlsExpiry {
            client_port_expiry_seconds: end_of_validity(&chain[0]),
            client_authority_expiry_seconds: authorities.iter().map(end_of_validity).min().unwrap_or(0),
            revocation_list_update_seconds: lists.first_update(),
        };
        let verifier =
            files.client_ca.as_deref().map(|path| verifier(path, authorities, lists)).transpose()?;

        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| wrong(&files.cert, &error))?;
        let config = match &verifier {
            Some(verifier) => config.with_client_cert_verifier(Arc::clone(verifier)),
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_single_cert(chain, key).map_err(|error| wrong(&files.key, &error))?;
        if verifier.is_some() {
            config.send_tls13_tickets = 0;
            config.session_storage = Arc::new(NoServerSessionStorage {});
        } else {
            config.send_tls13_tickets = TICKETS;
            config.ticketer = Ticketer::new().map_err(|error| wrong(&files.key, &error))?;
            config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
        }
        Ok(ClientTls { config: Arc::new(config), verifier, expiry })
    }

    /// The ends of the validity of its parts.
    pub(crate) fn expiry(&self) -> ClientTlsExpiry {
        self.expiry
    }

    /// Verifies the certificate that a client has shown, if it has shown one: also one that another [`ClientTls`] has
    /// verified in the handshake.
    pub(super) fn verify_again(&self, tls: &ServerConnection) -> Result<(), rustls::Error> {
        let Some((verifier, chain)) = self.verifier.as_ref().zip(tls.peer_certificates()) else {
            return Ok(());
        };
        let Some((own, between)) = chain.split_first() else { return Ok(()) };
        if base::planted!(ResumedAfterRevocation) {
            return Ok(());
        }
        verifier.verify_client_cert(own, between, UnixTime::now()).map(drop)
    }

    /// The node's end of a connection that was accepted.
    pub(crate) fn accept(&self) -> Result<ServerConnection, rustls::Error> {
        ServerConnection::new(Arc::clone(&self.config))
    }
}

/// Whether clients and nodes have authorities apart: otherwise a client could join, and a node log in.
///
/// # Errors
/// If a certificate is in both files, or one of them cannot be read.
pub(crate) fn check_apart(client_ca: &Path, peer_ca: &Path) -> Result<(), TlsError> {
    let of_peers = certificates(peer_ca)?;
    match certificates(client_ca)?.iter().any(|authority| of_peers.contains(authority)) {
        true if base::planted!(ClientCertificateJoins) => Ok(()),
        false => Ok(()),
        true => {
            let what = "also the authority of the nodes (peer_ca): clients need one of their own".to_owned();
            Err(TlsError { path: client_ca.to_path_buf(), what })
        }
    }
}

/// Verifies certificates of clients that offer one. With lists, the status of each certificate of the chain is known
/// from one of them.
fn verifier(
    client_ca: &Path,
    authorities: Vec<CertificateDer<'static>>,
    lists: RevocationLists,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let wrong = |what: &dyn ToString| TlsError { path: client_ca.to_path_buf(), what: what.to_string() };
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| wrong(&error))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()))
        .with_crls(lists.into_ders())
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
    use crate::compute_threads::ComputeThreads;
    use crate::stream::Stream;
    use bytes::BytesMut;
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
        KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
    };
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};
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
            authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
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

        /// Writes the list of the authority to `NAME.crl`, with the certificates of `revoked`.
        pub(crate) fn revoke(&self, name: &str, revoked: &[&str]) {
            let revoked = revoked.iter().map(|name| {
                let der = CertificateDer::from_pem_file(self.path(&format!("{name}.pem"))).unwrap();
                let (_, parsed) = X509Certificate::from_der(&der).unwrap();
                RevokedCertParams {
                    serial_number: SerialNumber::from_slice(parsed.raw_serial()),
                    revocation_time: date_time_ymd(2020, 1, 1),
                    reason_code: None,
                    invalidity_date: None,
                }
            });
            let list = CertificateRevocationListParams {
                this_update: date_time_ymd(2020, 1, 1),
                next_update: date_time_ymd(2020, 2, 1),
                crl_number: SerialNumber::from(1),
                issuing_distribution_point: None,
                revoked_certs: revoked.collect(),
                key_identifier_method: KeyIdMethod::Sha256,
            };
            let list = list.signed_by(&self.issuer).unwrap().pem().unwrap();
            std::fs::write(self.path(&format!("{name}.crl")), list).unwrap();
        }

        /// The files of a node that verifies its clients by the list of this name.
        pub(crate) fn files_with_list(&self, name: &str) -> ClientFiles {
            ClientFiles { client_crls: vec![self.path(&format!("{name}.crl"))], ..self.files(true) }
        }

        pub(crate) fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        pub(crate) fn files(&self, asks_clients: bool) -> ClientFiles {
            let client_ca = asks_clients.then(|| self.path("ca.pem"));
            let (cert, key) = (self.path("node.pem"), self.path("node.key"));
            ClientFiles { cert, key, client_ca, client_crls: Vec::new() }
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
    fn revocation_lists_are_of_the_authorities() {
        let (own, other) = (Certificates::new(), Certificates::new());
        own.revoke("own", &["node"]);
        other.revoke("other", &[]);
        let loaded = ClientTls::load(&own.files_with_list("own")).unwrap();
        // The first of February 2020.
        assert_eq!(loaded.expiry().revocation_list_update_seconds, 1_580_515_200);
        assert!(loaded.expiry().client_port_expiry_seconds > 0);
        assert_eq!(ClientTls::load(&own.files(true)).unwrap().expiry().revocation_list_update_seconds, 0);

        let told = |client_crls: Vec<PathBuf>, client_ca: PathBuf| {
            let files = ClientFiles { client_crls, client_ca: Some(client_ca), ..own.files(true) };
            ClientTls::load(&files).err().expect("a list is wrong").to_string()
        };
        let ca = own.path("ca.pem");
        let foreign = told(vec![other.path("other.crl")], ca.clone());
        assert!(foreign.contains("other.crl: ") && foreign.contains("signed by no authority"), "{foreign}");
        let none = told(vec![own.path("node.pem")], ca.clone());
        assert!(none.contains("no revocation list in this file"), "{none}");
        let both = [std::fs::read(&ca).unwrap(), std::fs::read(other.path("ca.pem")).unwrap()].concat();
        std::fs::write(own.path("both.pem"), both).unwrap();
        let unknown = told(vec![own.path("own.crl")], own.path("both.pem"));
        assert!(unknown.contains("no list of"), "{unknown}");
        let lists = vec![own.path("own.crl"), other.path("other.crl")];
        let files =
            ClientFiles { client_ca: Some(own.path("both.pem")), client_crls: lists, ..own.files(true) };
        assert!(ClientTls::load(&files).is_ok());
    }

    #[test]
    pub(crate) fn nodes_and_clients_have_authorities_apart() {
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
            let threads = ComputeThreads::start().unwrap();
            stream.handshake(&mut input, &threads, || ()).await.unwrap();
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

    /// A handshake with a client of these settings: its kind, and the tickets that the client has got.
    fn shake_hands(tls: &ClientTls, config: &Arc<ClientConfig>) -> (HandshakeKind, u32) {
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(Arc::clone(config), name).unwrap();
        let mut node = tls.accept().unwrap();
        while client.wants_write() || node.wants_write() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            node.read_tls(&mut &bytes[..]).unwrap();
            node.process_new_packets().unwrap();
            bytes.clear();
            node.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut &bytes[..]).unwrap();
            client.process_new_packets().unwrap();
        }
        assert!(!client.is_handshaking() && !node.is_handshaking());
        (node.handshake_kind().unwrap(), client.tls13_tickets_received())
    }

    #[test]
    fn sessions_are_resumed_until_the_certificate_is_read_again() {
        use HandshakeKind::{Full, Resumed};
        let certificates = Certificates::new();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificates.path("ca.pem")).unwrap()).unwrap();
        for (version, tickets) in [(&TLS13, 1), (&TLS12, 0)] {
            let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
            let config = config.with_protocol_versions(&[version]).unwrap();
            let client = Arc::new(config.with_root_certificates(roots.clone()).with_no_client_auth());
            let first = ClientTls::load(&certificates.files(false)).unwrap();
            assert_eq!(shake_hands(&first, &client), (Full, tickets));
            for _ in 0..3 {
                assert_eq!(shake_hands(&first, &client), (Resumed, tickets));
            }
            let again = ClientTls::load(&certificates.files(false)).unwrap();
            assert_eq!(shake_hands(&again, &client), (Full, tickets));

            let verifying = ClientTls::load(&certificates.files(true)).unwrap();
            for _ in 0..2 {
                assert_eq!(shake_hands(&verifying, &client), (Full, 0));
            }
        }
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
