//! The measured nodes: with a certificate for clients, users and grants. The mode of security changes while they run.

use super::connection::{self, HOME};
use super::{Context, OBJECTS};
use crate::Result;
use crate::load::{Load, Op};
use crate::nodes::{self, Cluster, Setup};
use bench::Login;
use rustls::ClientConfig;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Connections that wait for this figure do so beyond the default of a node.
const CONNECTIONS_MAX: usize = 12_000;

/// Time in which the members come to know each other, as the first change of the policy needs.
const FIRST_CHANGE_MAX: Duration = Duration::from_secs(60);

/// A user, and one with limits that are never reached.
pub(super) const USER: &str = "ann";
pub(super) const LIMITED: &str = "ben";
pub(super) const PASSWORD: &str = "the-right-password";

/// The policy but for its mode.
const POLICY: [&str; 8] = [
    "add-user root password=the-password-of-root",
    "add-source root 127.0.0.1/32 password",
    "grant annulet.admin on any to root",
    "add-user ann password=the-right-password",
    "add-user ben password=the-right-password ops_per_s=1000000000 bytes_per_s=1000000000000",
    "add-source all 127.0.0.0/8 password",
    "grant riak_kv.get,riak_kv.put on any to ann",
    "grant riak_kv.get,riak_kv.put on any to ben",
];

/// Nodes with a policy, security off.
pub(super) struct SecuredNodes {
    pub(super) cluster: Cluster,
    /// The HTTPS port of a node alone.
    pub(super) https: SocketAddr,
    program: PathBuf,
    data: PathBuf,
    ca: PathBuf,
}

impl SecuredNodes {
    /// Starts nodes on new folders, and makes the policy.
    pub(super) fn start(context: &Context, name: &str, count: u16) -> Result<SecuredNodes> {
        SecuredNodes::start_as(context, name, count, false)
    }

    /// The same; the nodes verify certificates of clients if wanted.
    pub(super) fn start_as(
        context: &Context,
        name: &str,
        count: u16,
        verifies: bool,
    ) -> Result<SecuredNodes> {
        let home = context.home.join(name);
        let setup = Setup::new(&context.binary, home.clone(), count, "none")?;
        let certificates = home.join("clients");
        let mut command = Command::new(&context.binary);
        command.args(["admin", "cert", "--host", "127.0.0.1", "--user", USER, "--dir"]).arg(&certificates);
        succeeded(&command.output()?)?;
        let file = |name: &str| certificates.join(name).display().to_string();
        let setup = setup
            .with("tls-cert", file("127.0.0.1.pem"))
            .with("tls-key", file("127.0.0.1.key"))
            .with("connections-max", CONNECTIONS_MAX);
        let setup = if verifies { setup.with("tls-client-ca", file("ca.pem")) } else { setup };
        let https = nodes::free_address()?;
        let setup = if count == 1 { setup.with("https-listen", https) } else { setup };
        let cluster = Cluster::start(&setup)?;
        let (program, data, ca) = (context.binary.clone(), setup.folder(1), certificates.join("ca.pem"));
        let nodes = SecuredNodes { cluster, https, program, data, ca };

        let begin = Instant::now();
        while let Err(failure) = nodes.security(POLICY[0]) {
            if begin.elapsed() > FIRST_CHANGE_MAX {
                return Err(failure);
            }
            sleep(Duration::from_millis(250));
        }
        POLICY[1..].iter().try_for_each(|line| nodes.security(line))?;
        Ok(nodes)
    }

    /// The same with objects.
    pub(super) fn start_filled(context: &Context, name: &str) -> Result<SecuredNodes> {
        let nodes = SecuredNodes::start(context, name, 1)?;
        nodes.cluster.servers.fill(&Load::fill(OBJECTS))?;
        Ok(nodes)
    }

    /// A command of `annulet admin security`, through the local socket of the first node.
    pub(super) fn security(&self, line: &str) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["admin", "security"]).args(line.split(' ')).arg("--data").arg(&self.data);
        succeeded(&command.output()?)
    }

    /// The authority of the nodes' certificates.
    pub(super) fn ca(&self) -> &Path {
        &self.ca
    }

    /// The settings of TLS with the certificate of the user.
    pub(super) fn certified(&self) -> Result<Arc<ClientConfig>> {
        let [cert, key] = ["pem", "key"].map(|kind| self.ca.with_file_name(format!("{USER}.{kind}")));
        connection::settings(&self.ca, rustls::DEFAULT_VERSIONS, Some((&cert, &key)), false)
    }

    /// The settings of TLS 1.2.
    pub(super) fn tls12(&self) -> Result<Arc<ClientConfig>> {
        connection::settings(&self.ca, &[&rustls::version::TLS12], None, false)
    }

    /// A login of the load; without a user under TLS alone.
    pub(super) fn login(&self, user: Option<&str>) -> Result<Login> {
        let tls = connection::trust(&self.ca, true)?;
        Ok(Login { tls, user: user.map(str::to_owned), password: user.map(|_| PASSWORD.to_owned()) })
    }

    /// Reads of any object at a steady rate, by the user.
    pub(super) fn steady_reads(&self, rate: u32, seed: u64) -> Result<Load> {
        let login = Some(self.login(Some(USER))?);
        Ok(Load { login, seed, rate: Some(rate), ..Load::new(Op::Get, 16, OBJECTS) })
    }

    /// A new login of the user from the address of honest clients: its time, and the text of its refusal.
    pub(super) fn timed_login(
        &self,
        password: &str,
        tls: &Arc<ClientConfig>,
    ) -> Result<(Duration, std::result::Result<(), String>)> {
        let begin = Instant::now();
        let mut client = connection::Connection::open(HOME, self.cluster.servers.addresses[0], Some(tls))?;
        let told = client.log_in(USER, password)?;
        Ok((begin.elapsed(), told))
    }
}

fn succeeded(output: &Output) -> Result<()> {
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into()),
    }
}
