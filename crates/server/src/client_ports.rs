//! The ports for clients: the listeners of protocol buffers, HTTP and HTTPS, one of each for every shard.
//!
//! 1. [`ClientPorts::open`] listens, so that a port in use is known before a store is touched. A program that asks for
//!    any port finds the one that it got in the options in force.
//! 2. The names by which HTTP and HTTPS are asked follow from the options and the addresses.
//! 3. [`guard`] makes the guard of the doors, with the certificate for clients if the node has one.

use crate::compute_threads::ComputeThreads;
use crate::config::{Cluster, Config};
use crate::error::Error;
use crate::listen::{bound, listen};
use crate::security::{ClientCertificates, DoorGuard, Policies};
use crate::thread::Listeners;
use node::http::{HostName, HostNames};
use os::Address;
use security::Mode;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// The addresses at which clients are served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientAddresses {
    pub(crate) pb: SocketAddr,
    pub(crate) http: SocketAddr,
    /// `None` without the option.
    pub(crate) https: Option<SocketAddr>,
}

impl ClientAddresses {
    /// The number of addresses.
    pub(crate) fn count(&self) -> usize {
        if self.https.is_some() { 3 } else { 2 }
    }
}

/// The ports for clients.
pub(crate) struct ClientPorts {
    addresses: ClientAddresses,
    /// The names by which HTTP is asked.
    pub(crate) http_names: HostNames,
    /// The names by which HTTPS is asked; none without it.
    pub(crate) https_names: HostNames,
}

impl ClientPorts {
    /// Listens for clients, with one listener of each port for every shard. The options get the addresses that were
    /// found.
    ///
    /// # Errors
    /// An address that is not this machine's, or that is in use.
    pub(crate) fn open(config: &mut Config, shards: usize) -> Result<(ClientPorts, Vec<Listeners>), Error> {
        let pb_listeners = listen("pb_listen", &config.pb_listen, shards)?;
        let http_listeners = listen("http_listen", &config.http_listen, shards)?;
        let pb = bound("pb_listen", &config.pb_listen, &pb_listeners[0])?;
        let http = bound("http_listen", &config.http_listen, &http_listeners[0])?;
        let (https, https_listeners) = listen_https(config, shards)?.unzip();

        let http_names = names(config, &config.http_listen, http);
        let https_names = config.https_listen.as_ref().zip(https);
        let https_names = https_names.map(|(listen, at)| names(config, listen, at)).unwrap_or_default();
        (config.pb_listen, config.http_listen) = (pb.into(), http.into());
        config.https_listen = https.map(Into::into);

        let mut https_listeners = https_listeners.into_iter().flatten();
        let listeners = pb_listeners.into_iter().zip(http_listeners);
        let listeners = listeners.map(|(pb, http)| {
            let https = https_listeners.next();
            Listeners { pb, http, https, local: None }
        });
        let addresses = ClientAddresses { pb, http, https };
        Ok((ClientPorts { addresses, http_names, https_names }, listeners.collect()))
    }

    /// The addresses.
    pub(crate) fn addresses(&self) -> ClientAddresses {
        self.addresses
    }

    /// Checks that no client of another machine is served without a login, unless that is intended.
    ///
    /// # Errors
    /// An address beyond loopback, while security is not on.
    pub(crate) fn check_exposure(&self, mode: Mode, is_insecure: bool) -> Result<(), Error> {
        if mode == Mode::On || is_insecure {
            return Ok(());
        }
        let ClientAddresses { pb, http, https } = self.addresses;
        let doors = [("pb_listen", pb), ("http_listen", http)];
        let doors = doors.into_iter().chain(https.map(|https| ("https_listen", https)));
        for (option, address) in doors {
            if !address.ip().to_canonical().is_loopback() {
                let mode = if mode == Mode::Permissive { "permissive" } else { "off" };
                return Err(Error::Exposed { option, address, mode });
            }
        }
        Ok(())
    }
}

/// The guard of the doors for clients, with the node's certificate for them if it has one.
///
/// # Errors
/// Files of certificates and keys that cannot be used.
pub(crate) fn guard(
    config: &Config,
    cluster: Option<&Cluster>,
    policies: &Arc<Policies>,
    compute: &Arc<ComputeThreads>,
) -> Result<DoorGuard, Error> {
    let files = config.client_tls().map_err(|(name, what)| Error::Options(name, what))?;
    let peer_ca = cluster.map(|cluster| cluster.ca.clone());
    let certificates = files.map(|files| ClientCertificates::load(files, peer_ca)).transpose()?;
    DoorGuard::new(Arc::clone(policies), certificates, Arc::clone(compute))
        .map_err(|cause| Error::System("cannot start a thread", cause))
}

/// The listeners of HTTPS, one for each shard, and their address; `None` without the option.
fn listen_https(config: &Config, count: usize) -> Result<Option<(SocketAddr, Vec<TcpListener>)>, Error> {
    let Some(address) = &config.https_listen else { return Ok(None) };
    let listeners = listen("https_listen", address, count)?;
    Ok(Some((bound("https_listen", address, &listeners[0])?, listeners)))
}

/// The names by which HTTP is asked at an address: of the option `http_host`, and the name that the option of the
/// address has, if it has one.
fn names(config: &Config, listen: &Address, bound: SocketAddr) -> HostNames {
    let listening = listen.name().and_then(|name| HostName::read(name.as_bytes()));
    let named: Vec<HostName> = config.http_host.iter().cloned().chain(listening).collect();
    HostNames::new(&[bound], &named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_secured_or_intended_ports_are_beyond_loopback() {
        let exposed = |addresses: [&str; 3], mode, is_insecure| {
            let [pb, http, https] = addresses.map(|text| text.parse().unwrap());
            let addresses = ClientAddresses { pb, http, https: Some(https) };
            let (http_names, https_names) = Default::default();
            let checked =
                ClientPorts { addresses, http_names, https_names }.check_exposure(mode, is_insecure);
            checked.err().map(|error| error.to_string())
        };
        let here = "127.0.0.1:1";
        for mode in [Mode::Off, Mode::Permissive] {
            assert_eq!(exposed([here, "[::1]:2", "[::ffff:127.0.0.9]:3"], mode, false), None);
            for (place, option) in ["pb_listen", "http_listen", "https_listen"].into_iter().enumerate() {
                for address in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
                    let mut addresses = [here; 3];
                    addresses[place] = address;
                    let text = exposed(addresses, mode, false).unwrap();
                    assert!(text.starts_with(&format!("{option}: {address}: ")), "{text}");
                    assert_eq!(exposed(addresses, mode, true), None);
                    assert_eq!(exposed(addresses, Mode::On, false), None);
                }
            }
        }
    }

    #[test]
    fn http_is_asked_by_the_name_that_it_listens_at() {
        let host = |name: &str| HostName::read(name.as_bytes()).unwrap();
        let bound = "127.0.1.1:8098".parse().unwrap();
        let hosts = |listen: &str| {
            let config = Config {
                http_listen: listen.parse().unwrap(),
                http_host: vec![host("db.example")],
                ..Config::default()
            };
            names(&config, &config.http_listen, bound)
        };
        let named = |names: &[&str]| {
            HostNames::new(&[bound], &names.iter().map(|name| host(name)).collect::<Vec<_>>())
        };
        assert_eq!(hosts("n1.example:0"), named(&["db.example", "n1.example"]));
        assert_eq!(hosts("127.0.1.1:8098"), named(&["db.example"]));
    }
}
