//! The login of the command line at a node with security on: TLS, and a user with a password or a certificate.
//!
//! 1. `--ca` names the certificate authority of the nodes' client ports. With it requests go by HTTPS, and objects by
//!    STARTTLS.
//! 2. `--user` and `--password-file` are the login. `--cert` and `--key` are a client certificate, which has the user.
//! 3. Each flag has a variable, for a shell that is to stay logged in.
//!
//! Invariants: a password is sent under TLS alone, and stands in no argument.

use super::security::password;
use crate::failure::{FAILED, Failure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::ValueHint;
use client::Client;
use experiments::scenario::LoginFiles;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::ffi::OsString;
use std::fmt::Display;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The heading of the flags in the help of a command.
const HEADING: &str = "Login";

/// The flags of a login, for every command that asks a node.
#[derive(clap::Args, Clone, Default)]
#[group(skip)]
pub struct LoginArgs {
    /// Certificate authority of the client ports, as PEM: the command goes under TLS, and --node names a port with TLS.
    #[arg(id = "login_ca", long = "ca", value_name = "FILE", value_hint = ValueHint::FilePath,
        env = "ANNULET_CA", help_heading = HEADING)]
    ca: Option<OsString>,
    /// User that logs in [default: the user of --cert].
    #[arg(id = "login_user", long = "user", value_name = "NAME", env = "ANNULET_USER", help_heading = HEADING)]
    user: Option<String>,
    /// File whose first line is the password of the user.
    #[arg(id = "login_password_file", long = "password-file", value_name = "FILE", value_hint = ValueHint::FilePath,
        env = "ANNULET_PASSWORD_FILE", help_heading = HEADING)]
    password_file: Option<OsString>,
    /// Client certificate of the user, as PEM.
    #[arg(id = "login_cert", long = "cert", value_name = "FILE", value_hint = ValueHint::FilePath,
        env = "ANNULET_CERT", help_heading = HEADING)]
    cert: Option<OsString>,
    /// Key of --cert, as PEM.
    #[arg(id = "login_key", long = "key", value_name = "FILE", value_hint = ValueHint::FilePath,
        env = "ANNULET_KEY", help_heading = HEADING)]
    key: Option<OsString>,
    /// The login, once its files were read.
    #[arg(skip)]
    read: OnceLock<Option<Arc<Login>>>,
}

/// A login under TLS.
pub struct Login {
    tls: Arc<ClientConfig>,
    user: Option<String>,
    password: Option<String>,
}

impl LoginArgs {
    /// The same of a scenario's file.
    pub(crate) fn of_files(files: &LoginFiles) -> LoginArgs {
        let named = |file: &Option<PathBuf>| file.as_ref().map(|file| file.clone().into_os_string());
        LoginArgs {
            ca: Some(files.ca.clone().into_os_string()),
            user: files.user.clone(),
            password_file: named(&files.password_file),
            cert: named(&files.cert),
            key: named(&files.key),
            read: OnceLock::new(),
        }
    }

    /// The login; none without a certificate authority. Its files are read once.
    ///
    /// # Errors
    /// Flags that do not fit together, and files that are of no use.
    pub(crate) fn login(&self) -> Result<Option<Arc<Login>>, Failure> {
        if let Some(read) = self.read.get() {
            return Ok(read.clone());
        }
        let login = self.read_files()?.map(Arc::new);
        Ok(self.read.get_or_init(|| login).clone())
    }

    fn read_files(&self) -> Result<Option<Login>, Failure> {
        let [ca, password_file, cert, key] =
            [&self.ca, &self.password_file, &self.cert, &self.key].map(|file| named(file.as_ref()));
        let user = self.user.as_deref().filter(|user| !user.is_empty());
        let failed = |what: &str| Err(Failure::new(FAILED, what.to_owned()));
        if user.is_some_and(|user| user.contains(':')) {
            return failed("--user (ANNULET_USER) is no name of a user");
        }
        let certificate = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return failed("--cert (ANNULET_CERT) and --key (ANNULET_KEY) need each other"),
        };
        let Some(ca) = ca else {
            return match (user, certificate) {
                (None, None) => Ok(None),
                _ => failed("a login needs --ca (ANNULET_CA): it is sent under TLS alone"),
            };
        };
        if user.is_some() && password_file.is_none() && certificate.is_none() {
            return failed(
                "--user (ANNULET_USER) needs --password-file (ANNULET_PASSWORD_FILE), or --cert and --key",
            );
        }

        let (tls, certified) = client_config(ca, certificate)?;
        let password = user.and(password_file).map(password).transpose()?;
        Ok(Some(Login { tls: Arc::new(tls), user: user.map(str::to_owned).or(certified), password }))
    }
}

/// A file that is named; none of a variable that is set and empty.
fn named(file: Option<&OsString>) -> Option<&Path> {
    file.filter(|file| !file.is_empty()).map(Path::new)
}

impl Login {
    /// The value of the header `Authorization`; none if the certificate of the connection is the login.
    pub(super) fn authorization(&self) -> Option<String> {
        let (user, password) = self.user.as_ref().zip(self.password.as_ref())?;
        Some(authorization(user, password))
    }

    /// The same for the load generator.
    pub(crate) fn for_bench(&self) -> bench::Login {
        let (user, password) = (self.user.clone(), self.password.clone());
        bench::Login { tls: Arc::clone(&self.tls), user, password }
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
        if let Some(user) = &self.user {
            client.log_in(user, self.password.as_deref())?;
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

/// TLS with an authority and perhaps a client certificate and its key; and the user that the certificate names.
fn client_config(
    ca: &Path,
    certificate: Option<(&Path, &Path)>,
) -> Result<(ClientConfig, Option<String>), Failure> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(ca)? {
        roots.add(authority).map_err(|error| unusable(ca, &error))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(ca, &error))?
        .with_root_certificates(roots);

    let Some((certificate, key_file)) = certificate else { return Ok((config.with_no_client_auth(), None)) };
    let chain = certificates(certificate)?;
    let user = chain.first().and_then(|certificate| server::certificate_user(certificate));
    let user = user.and_then(|user| String::from_utf8(user).ok());
    let key = PrivateKeyDer::from_pem_file(key_file).map_err(|error| unusable(key_file, &error))?;
    let config = config.with_client_auth_cert(chain, key).map_err(|error| unusable(key_file, &error))?;
    Ok((config, user))
}

/// The certificates of a file, one at least.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = CertificateDer::pem_file_iter(file).map_err(|error| unusable(file, &error))?;
    let read: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| unusable(file, &error))?;
    if read.is_empty() { Err(unusable(file, &"there is no certificate in it")) } else { Ok(read) }
}

fn unusable(file: &Path, what: &dyn Display) -> Failure {
    Failure::new(FAILED, format!("{}: {what}", file.display()))
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

    /// The login of flags; a name stands for a file of a folder.
    fn login(folder: &Path, flags: &[(&str, &str)]) -> Result<Option<Arc<Login>>, String> {
        let given = |flag: &str| flags.iter().find(|(name, _)| *name == flag).map(|(_, value)| *value);
        let file = |flag: &str| given(flag).map(|name| folder.join(name).into_os_string());
        let args = LoginArgs {
            ca: file("ca"),
            user: given("user").map(str::to_owned),
            password_file: file("password-file"),
            cert: file("cert"),
            key: file("key"),
            ..LoginArgs::default()
        };
        args.login().map_err(|failure| failure.text)
    }

    #[test]
    fn flags_of_a_login_fit_together() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::write(folder.join("none.pem"), "no certificate").unwrap();
        std::fs::write(folder.join("password"), "secret\n").unwrap();
        let users = ["ann".to_owned()];
        super::super::cert::make_clients(folder, &[], &users).unwrap();

        assert!(login(folder, &[]).unwrap().is_none());
        let (ca, user, file) = (("ca", "ca.pem"), ("user", "bob"), ("password-file", "password"));
        let bob = login(folder, &[ca, user, file]).unwrap().unwrap();
        assert_eq!(bob.authorization(), Some(authorization("bob", "secret")));
        let (cert, key) = (("cert", "ann.pem"), ("key", "ann.key"));
        let ann = login(folder, &[ca, cert, key]).unwrap().unwrap();
        assert_eq!((ann.user.as_deref(), ann.authorization()), (Some("ann"), None), "the certificate's user");
        for (flags, text) in [
            (&[user, file][..], "needs --ca"),
            (&[cert, key], "needs --ca"),
            (&[ca, user], "needs --password-file"),
            (&[ca, cert], "need each other"),
            (&[ca, key], "need each other"),
            (&[ca, ("user", "a:b"), file], "no name of a user"),
            (&[("ca", "none.pem")], "no certificate"),
            (&[("ca", "missing.pem")], "missing.pem: "),
            (&[ca, cert, ("key", "password")], "password: "),
        ] {
            let told = login(folder, flags).map(drop).unwrap_err();
            assert!(told.contains(text), "{flags:?}: {told}");
        }
    }
}
