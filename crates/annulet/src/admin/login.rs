//! The login of the command line at a node with security on: TLS, and a user with a password.
//!
//! 1. `ANNULET_CA` names the certificate authority of the nodes' client ports. With it requests go by HTTPS, and
//!    objects by STARTTLS.
//! 2. `ANNULET_USER` and `ANNULET_PASSWORD_FILE` are the login. A password is sent under TLS alone.
//!
//! Left out: client certificates.

use super::security::password;
use crate::failure::{FAILED, Failure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use client::Client;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CA: &str = "ANNULET_CA";
const USER: &str = "ANNULET_USER";
const PASSWORD_FILE: &str = "ANNULET_PASSWORD_FILE";

/// A login under TLS.
pub(crate) struct Login {
    tls: Arc<ClientConfig>,
    /// A user and the password.
    user: Option<(String, String)>,
}

impl Login {
    /// The login that the environment names; none without a certificate authority.
    ///
    /// # Errors
    /// A user without a certificate authority or a password, and files that are of no use.
    pub(crate) fn of_environment() -> Result<Option<Login>, Failure> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let failed = |what: &str| Failure::new(FAILED, what.to_owned());
        let user = match variable(USER).map(|user| user.into_string()) {
            Some(Ok(user)) if !user.contains(':') => Some(user),
            Some(_) => return Err(failed("ANNULET_USER is no name of a user")),
            None => None,
        };
        let Some(ca) = variable(CA).map(PathBuf::from) else {
            return match user {
                Some(_) => Err(failed("ANNULET_USER needs ANNULET_CA: a password is sent under TLS alone")),
                None => Ok(None),
            };
        };
        let user = match (user, variable(PASSWORD_FILE).map(PathBuf::from)) {
            (Some(user), Some(file)) => Some((user, password(&file)?)),
            (Some(_), None) => return Err(failed("ANNULET_USER needs ANNULET_PASSWORD_FILE")),
            (None, _) => None,
        };
        Ok(Some(Login { tls: Arc::new(client_config(&ca)?), user }))
    }

    /// The value of the header `Authorization`.
    pub(super) fn authorization(&self) -> Option<String> {
        self.user.as_ref().map(|(user, password)| authorization(user, password))
    }

    /// Takes a connection to the node at `address` under TLS.
    ///
    /// # Errors
    /// An address that no certificate can name.
    pub(super) fn secure(
        &self,
        address: &str,
        tcp: TcpStream,
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        Ok(StreamOwned::new(self.connection(address)?, tcp))
    }

    /// Takes a new connection of protocol buffers to the node at `address` under TLS, and logs in.
    pub(crate) fn log_in(&self, client: Client, address: &str) -> Result<Client, Failure> {
        let connection = self.connection(address).map_err(client::Error::from)?;
        let mut client = client.start_tls(connection)?;
        if let Some((user, password)) = &self.user {
            client.log_in(user, Some(password))?;
        }
        Ok(client)
    }

    fn connection(&self, address: &str) -> io::Result<ClientConnection> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        ClientConnection::new(Arc::clone(&self.tls), name).map_err(io::Error::other)
    }
}

fn authorization(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

fn client_config(ca: &Path) -> Result<ClientConfig, Failure> {
    let failed = |what: &dyn std::fmt::Display| Failure::new(FAILED, format!("{}: {what}", ca.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).map_err(|error| failed(&error))? {
        let certificate = certificate.map_err(|error| failed(&error))?;
        roots.add(certificate).map_err(|error| failed(&error))?;
    }
    if roots.is_empty() {
        return Err(failed(&"there is no certificate in it"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_may_have_colons() {
        // RFC 7617, section 2.
        assert_eq!(authorization("Aladdin", "open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(authorization("a", "b:c"), "Basic YTpiOmM=");
    }

    #[test]
    fn authorities_without_a_certificate_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, "no certificate").unwrap();
        assert!(client_config(&file).is_err());
        assert!(client_config(&folder.path().join("missing.pem")).is_err());
    }
}
