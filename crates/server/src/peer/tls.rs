//! Certificates: mutual authentication of nodes.
//!
//! The cluster has a certificate authority of its own. A node has a certificate of that authority, good for both
//! ends of a connection, whose DNS name stands for the node ([`certificate_name`]). Both ends verify the other's;
//! the opener that it has reached the node it meant, the acceptor, when it has read `Hello`, that the certificate
//! names the node that it claims to be. A newcomer knows an address only: it is content with any node of the authority
//! ([`AnyNode`]), as whoever has a certificate of it can make members anyway.
//!
//! The files are read again on request ([`Tls::read_again`]): new links go by the new certificates, open ones stay.
//!
//! Sessions are not resumed: a link is opened once and lives long, and without tickets the acceptor never writes to
//! an opener that does not read.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    Resumption, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor, verify_server_name,
};
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Hexadecimal digits of a name of a certificate between two dots, which may have 63 bytes.
const LABEL_DIGITS: usize = 60;

/// What the names of nodes' certificates end in.
const SUFFIX: &str = "annulet";

/// A certificate or a key that is of no use.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct TlsError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// The DNS name that stands for a node in its certificate: the bytes of its name in hexadecimal digits, since a
/// node's name may have characters that a DNS name may not, and two nodes must never have the same.
pub fn certificate_name(node: &str) -> String {
    let mut name = String::new();
    for (at, byte) in node.bytes().enumerate() {
        if at > 0 && (2 * at).is_multiple_of(LABEL_DIGITS) {
            name.push('.');
        }
        for digit in [byte >> 4, byte & 15] {
            name.push(char::from_digit(digit.into(), 16).expect("four bits are a digit"));
        }
    }
    format!("{name}.{SUFFIX}")
}

/// Whether the files make a node's end of a link: the certificate is of this authority, names the node, and belongs
/// to the key.
pub fn check_files(ca: &Path, cert: &Path, key: &Path, node: &str) -> Result<(), TlsError> {
    Tls::load(ca, cert, key, node).map(drop)
}

/// Whether `certificate` stands for `node`.
pub(super) fn stands_for(certificate: &CertificateDer<'_>, node: &str) -> bool {
    let parsed = ParsedCertificate::try_from(certificate);
    parsed.is_ok_and(|parsed| verify_server_name(&parsed, &server_name(node)).is_ok())
}

/// Both ends of connections to other nodes, by the certificates in force.
pub(crate) struct Tls {
    files: PeerFiles,
    ends: RwLock<Arc<LinkEnds>>,
}

/// The files of a node's TLS with other nodes.
struct PeerFiles {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
    /// The node that the certificate names.
    node: String,
}

/// Both ends of connections, by certificates that were read together.
pub(crate) struct LinkEnds {
    client: Arc<ClientConfig>,
    /// For a node of which only the address is known.
    newcomer: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    expiry: CertificateExpiry,
}

/// Ends of the validity of certificates, in seconds since 1970; 0 if unknown, and of a node without certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CertificateExpiry {
    /// Of the node's own.
    pub certificate_expiry_seconds: i64,
    /// Of the authority's; the first one of several.
    pub authority_expiry_seconds: i64,
}

impl CertificateExpiry {
    /// The time until the first of them ends; `None` if none is known.
    pub fn left(self, now: Duration) -> Option<Duration> {
        let ends = [self.certificate_expiry_seconds, self.authority_expiry_seconds];
        let first = ends.into_iter().filter(|end| *end != 0).min()?;
        Some(Duration::from_secs(u64::try_from(first).unwrap_or(0)).saturating_sub(now))
    }

    fn of(own: &CertificateDer<'_>, authorities: &[CertificateDer<'_>]) -> CertificateExpiry {
        let authorities = authorities.iter().map(end_of_validity);
        CertificateExpiry {
            certificate_expiry_seconds: end_of_validity(own),
            authority_expiry_seconds: authorities.min().unwrap_or(0),
        }
    }
}

/// The end of a certificate's validity, in seconds since 1970; 0 of one that cannot be read.
pub(crate) fn end_of_validity(certificate: &CertificateDer<'_>) -> i64 {
    X509Certificate::from_der(certificate).map_or(0, |(_, parsed)| parsed.validity().not_after.timestamp())
}

impl Tls {
    /// Reads the files, and checks that they are of use for `node`.
    pub(crate) fn load(ca: &Path, cert: &Path, key: &Path, node: &str) -> Result<Tls, TlsError> {
        let [ca, cert, key] = [ca, cert, key].map(Path::to_path_buf);
        let files = PeerFiles { ca, cert, key, node: node.to_owned() };
        let ends = RwLock::new(Arc::new(LinkEnds::read(&files)?));
        Ok(Tls { files, ends })
    }

    /// Reads the files again, with the same checks. Nothing is in force before [`Tls::replace`].
    pub(crate) fn read_again(&self) -> Result<LinkEnds, TlsError> {
        LinkEnds::read(&self.files)
    }

    /// Has connections go by these from now on. Those that are open stay.
    pub(crate) fn replace(&self, ends: LinkEnds) {
        *self.ends.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ends);
    }

    /// The ends of the validity of its certificates.
    pub(crate) fn expiry(&self) -> CertificateExpiry {
        self.ends().expiry
    }

    /// The opener's end of a connection to some node of the cluster.
    pub(super) fn open_to_any(&self) -> Result<Connection, rustls::Error> {
        // The name is not looked at.
        let connection = ClientConnection::new(Arc::clone(&self.ends().newcomer), server_name("any@any"))?;
        Ok(connection.into())
    }

    /// The opener's end of a connection to `node`.
    pub(super) fn open(&self, node: &str) -> Result<Connection, rustls::Error> {
        let mut connection = ClientConnection::new(Arc::clone(&self.ends().client), server_name(node))?;
        connection.set_buffer_limit(None);
        Ok(connection.into())
    }

    /// The acceptor's end of a connection.
    pub(super) fn accept(&self) -> Result<Connection, rustls::Error> {
        Ok(ServerConnection::new(Arc::clone(&self.ends().server))?.into())
    }

    fn ends(&self) -> Arc<LinkEnds> {
        Arc::clone(&self.ends.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl LinkEnds {
    fn read(PeerFiles { ca, cert, key, node }: &PeerFiles) -> Result<LinkEnds, TlsError> {
        let provider = Arc::new(provider());
        let mut roots = RootCertStore::empty();
        let authorities = certificates(ca)?;
        for authority in authorities.iter().cloned() {
            roots.add(authority).map_err(|error| wrong(ca, error))?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(cert)?;
        check_own(cert, &chain, &roots, &provider, node)?;
        let expiry = CertificateExpiry::of(&chain[0], &authorities);
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, error))?;

        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let verifier = verifier.build().map_err(|error| wrong(ca, error))?;
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| wrong(cert, error))?
            .with_webpki_verifier(verifier)
            .with_client_auth_cert(chain.clone(), private.clone_key())
            .map_err(|error| wrong(key, error))?;
        client.resumption = Resumption::disabled();
        let mut newcomer = client.clone();
        let any = AnyNode { roots: Arc::clone(&roots), provider: Arc::clone(&provider) };
        newcomer.dangerous().set_certificate_verifier(Arc::new(any));

        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let verifier = verifier.build().map_err(|error| wrong(ca, error))?;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| wrong(cert, error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, private)
            .map_err(|error| wrong(key, error))?;
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        let (client, newcomer, server) = (Arc::new(client), Arc::new(newcomer), Arc::new(server));
        Ok(LinkEnds { client, newcomer, server, expiry })
    }
}

/// Verifies that the other end has a certificate of the authority, whichever node it stands for. The proof that it has
/// the key of that certificate is verified as ever.
#[derive(Debug)]
struct AnyNode {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyNode {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(own)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, between, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is supported".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The ciphers, AES with 128 bits first: as good as the longer key here, and a third faster.
fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..default_provider()
    }
}

fn server_name(node: &str) -> ServerName<'static> {
    let name = ServerName::try_from(certificate_name(node));
    name.expect("hexadecimal digits in labels of 60 are a DNS name, and names of nodes are short")
}

/// The certificates of a file.
///
/// # Errors
/// If it has none.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_file_iter(path).map_err(|error| wrong(path, error))?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(|error| wrong(path, error))?;
    if all.is_empty() { Err(wrong(path, "no certificate in this file")) } else { Ok(all) }
}

/// Says early, and to the person who can mend it, what every other node would say.
fn check_own(
    path: &Path,
    chain: &[CertificateDer<'static>],
    roots: &RootCertStore,
    provider: &CryptoProvider,
    node: &str,
) -> Result<(), TlsError> {
    let (own, between) = chain.split_first().expect("there is a certificate in it");
    let parsed = ParsedCertificate::try_from(own).map_err(|error| wrong(path, error))?;
    let algorithms = provider.signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&parsed, roots, between, UnixTime::now(), algorithms)
        .map_err(|error| wrong(path, format!("not of this certificate authority: {error}")))?;
    if stands_for(own, node) {
        return Ok(());
    }
    Err(wrong(path, format!("it does not name {node}: {} is not in it", certificate_name(node))))
}

fn wrong(path: &Path, what: impl ToString) -> TlsError {
    TlsError { path: path.to_path_buf(), what: what.to_string() }
}
