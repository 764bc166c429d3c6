//! The login of a run at servers with security on: TLS for each connection, and a user.

use crate::Error;
use os::Address;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// A login by protocol buffers or HTTPS. `Debug` does not show its password.
#[derive(Clone)]
pub struct Login {
    /// The settings of TLS, perhaps with a client certificate.
    pub tls: Arc<ClientConfig>,
    /// The user; none to go under TLS alone.
    pub user: Option<String>,
    /// The password; none with a client certificate.
    pub password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// TLS with servers, each by the name that its certificate must have.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ClientConfig>,
    names: Vec<(SocketAddr, ServerName<'static>)>,
}

impl ServerTls {
    /// For servers at these addresses, as they were named and as they were found.
    ///
    /// # Errors
    /// A host that no certificate can name.
    pub(crate) fn new(
        config: &Arc<ClientConfig>,
        named: &[Address],
        found: &[SocketAddr],
    ) -> Result<ServerTls, Error> {
        let name = |(named, &found): (&Address, &SocketAddr)| {
            let host = named.name().map_or_else(|| found.ip().to_string(), str::to_owned);
            let name = ServerName::try_from(host);
            let name = name.map_err(|error| Error::Unusable(format!("addresses: {named}: {error}")))?;
            Ok((found, name))
        };
        let names = named.iter().zip(found).map(name).collect::<Result<_, Error>>()?;
        Ok(ServerTls { config: Arc::clone(config), names })
    }

    /// The state of a new connection to a server.
    pub(crate) fn connection(&self, server: SocketAddr) -> Result<ClientConnection, String> {
        let name = self.names.iter().find(|(address, _)| *address == server).map(|(_, name)| name.clone());
        let name = name.ok_or("a server without a name")?;
        ClientConnection::new(Arc::clone(&self.config), name).map_err(|error| error.to_string())
    }
}
