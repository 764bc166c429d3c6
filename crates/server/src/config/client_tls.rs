//! The options of TLS for clients, together.

use super::Config;
use crate::security::ClientFiles;

impl Config {
    /// The files of TLS for clients; `None` without a certificate.
    ///
    /// # Errors
    /// The option that needs another one, and why.
    pub fn client_tls(&self) -> Result<Option<ClientFiles>, (&'static str, String)> {
        let needs = |name, what: &str| Err((name, format!("needs {what}")));
        match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => {
                let (client_ca, client_crls) = (self.tls_client_ca.clone(), self.tls_client_crl.clone());
                if client_ca.is_none() && !client_crls.is_empty() {
                    return needs("tls_client_crl", "tls_client_ca, the authority that the lists are of");
                }
                Ok(Some(ClientFiles { cert: cert.clone(), key: key.clone(), client_ca, client_crls }))
            }
            (Some(_), None) => needs("tls_cert", "tls_key, the key of the certificate"),
            (None, Some(_)) => needs("tls_key", "tls_cert, the certificate of the key"),
            (None, None) if self.tls_client_ca.is_some() => needs("tls_client_ca", "tls_cert and tls_key"),
            (None, None) if !self.tls_client_crl.is_empty() => {
                needs("tls_client_crl", "tls_cert and tls_key")
            }
            (None, None) if self.https_listen.is_some() => needs("https_listen", "tls_cert and tls_key"),
            (None, None) => Ok(None),
        }
    }
}
