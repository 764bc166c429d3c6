//! Asks a running node over HTTP, once: at an address, or through the local socket in its data folder.

use super::login::{Login, LoginArgs};
use crate::failure::{self, FAILED, Failure};
use clap::ValueHint;
use serde_json::Value;
use server::admin_socket;
use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait for a connection, and for an answer: a change that not every node confirms is given up after a
/// minute.
const WAITS: Waits = Waits { connect: Duration::from_secs(5), answer: Duration::from_secs(65) };

/// How long a leader is waited for, and how often it is asked for: an election takes some seconds at most.
const LEADER_WAIT_MAX: Duration = Duration::from_secs(10);
const LEADER_ASK_EVERY: Duration = Duration::from_millis(250);

/// The longest waits for a connection, and for each part of an answer.
#[derive(Clone, Copy)]
struct Waits {
    connect: Duration,
    answer: Duration,
}

/// The largest answer taken: a thousand bucket types are two megabytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// An answer.
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its body; null if there is none.
    pub body: Value,
}

/// The status of a request in plaintext where security is on, of one without a login or with a wrong one, and of one
/// without a permission.
const UPGRADE_REQUIRED: u16 = 426;
const UNAUTHORIZED: u16 = 401;
const FORBIDDEN: u16 = 403;

/// Where a node serves HTTP, if nothing else is said.
const DEFAULT: &str = "127.0.0.1:8098";

/// The `Host` of requests through the local socket, which has no address.
const LOCAL_HOST: &str = "localhost";

/// A variable of older versions, which did the same as `ANNULET_NODE`.
const OLDER_VARIABLE: &str = "ANNULET_HTTP";

/// The address of a node.
#[derive(clap::Args, Default)]
#[group(skip)]
pub struct NodeAddress {
    /// HTTP address of the node to ask [default: 127.0.0.1:8098].
    #[arg(long, value_name = "HOST:PORT", env = "ANNULET_NODE", global = true, value_parser = node_address)]
    node: Option<String>,
}

/// The addresses of several nodes.
#[derive(clap::Args)]
#[group(skip)]
pub struct NodeAddresses {
    /// HTTP addresses of the nodes, separated by commas or given one by one [default: 127.0.0.1:8098].
    // By its name it takes the place of the option of one node, which commands above may have for all below.
    #[arg(
        id = "node",
        long = "node",
        value_name = "HOST:PORT",
        env = "ANNULET_NODE",
        value_delimiter = ',',
        value_parser = node_address
    )]
    nodes: Vec<String>,
}

impl NodeAddresses {
    /// The addresses, or that of a node which nobody has named.
    pub fn addresses(&self) -> Vec<String> {
        match self.nodes.is_empty() {
            true => vec![NodeAddress::default().address()],
            false => self.nodes.clone(),
        }
    }
}

/// The place of a node, for administration.
#[derive(clap::Args)]
#[group(skip)]
pub struct AdminTarget {
    #[command(flatten)]
    address: NodeAddress,
    /// Data folder of a node that runs on this machine, in place of --node: it is asked through its local socket,
    /// without a login.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, global = true)]
    data: Option<PathBuf>,
}

/// Which node, and the login there.
#[derive(clap::Args, Default)]
#[group(skip)]
pub struct Node {
    #[command(flatten)]
    address: NodeAddress,
    #[command(flatten)]
    login: LoginArgs,
}

/// The same, for administration.
#[derive(clap::Args)]
#[group(skip)]
pub struct AdminNode {
    #[command(flatten)]
    target: AdminTarget,
    #[command(flatten)]
    login: LoginArgs,
}

/// The way to a node.
pub enum Endpoint {
    /// Its HTTP; under TLS with a login.
    Address(String, Option<Arc<Login>>),
    /// The local socket in this data folder.
    Local(PathBuf),
}

/// The text of a node's address. None is none, as in a variable that is set and empty.
pub fn node_address(text: &str) -> Result<String, String> {
    match text {
        "" => Ok(String::new()),
        text => text.parse::<os::Address>().map(|address| address.to_string()),
    }
}

/// Why there is no answer to a request.
enum Unanswered {
    Connect(std::io::Error),
    Io(std::io::Error),
    /// Something answered that is no HTTP.
    NotHttp,
}

impl NodeAddress {
    /// The node's address, if it was named.
    fn named(&self) -> Option<&str> {
        self.node.as_deref().filter(|address| !address.is_empty())
    }

    /// The node's address.
    fn address(&self) -> String {
        let older = || std::env::var(OLDER_VARIABLE).ok().filter(|address| !address.is_empty());
        self.named().map(str::to_owned).or_else(older).unwrap_or_else(|| DEFAULT.to_owned())
    }
}

impl Node {
    /// The node's address, if it was named.
    pub fn named(&self) -> Option<&str> {
        self.address.named()
    }

    /// The login.
    pub(crate) fn login(&self) -> Result<Option<Arc<Login>>, Failure> {
        self.login.login()
    }

    /// Sends a request and takes the answer.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Result<Answer, Failure> {
        Endpoint::Address(self.address.address(), self.login()?).ask(method, path, body)
    }

    /// Where the node at `address` serves protocol buffers, as it says. If what is there speaks them itself, it is
    /// that.
    pub fn protocol_buffers(&self, address: &str) -> Result<String, Failure> {
        let login = self.login()?;
        let is_secure = login.is_some();
        let answer = match Endpoint::Address(address.to_owned(), login).ask_within("GET", "/stats", "", WAITS)
        {
            Ok(answer) => answer,
            Err(Unanswered::Connect(error)) => return Err(failure::unreachable(address, &error)),
            Err(_) => return Ok(address.to_owned()),
        };
        let listens =
            answer.body["options"]["pb_listen"].as_str().and_then(|at| at.parse::<SocketAddr>().ok());
        let listens = listens
            .filter(|listens| listens.port() != 0)
            .ok_or_else(|| Failure::new(FAILED, format!("{address} {}", port_unknown(&answer))))?;

        // Where it listens everywhere, it is reached as its HTTP port was. A certificate has the host that was named.
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        match listens.ip().is_unspecified() || is_secure {
            true => Ok(format!("{host}:{}", listens.port())),
            false => Ok(listens.to_string()),
        }
    }
}

/// The error for an answer to a request for `/stats` without the address of protocol buffers: the cause, and the remedy.
fn port_unknown(answer: &Answer) -> String {
    let told = answer.body["error"].as_str().or(answer.body.as_str()).unwrap_or_default();
    match answer.status {
        UPGRADE_REQUIRED => "has security on, and this port is in plaintext: --node names the port of \
            --https-listen, --ca its authority, and --user and --password-file, or --cert and --key, the user"
            .to_owned(),
        UNAUTHORIZED => format!(
            "has security on, and refuses the login ({told}): --user and --password-file, or --cert and --key, \
             are the user"
        ),
        FORBIDDEN => format!(
            "does not tell this user where it serves protocol buffers ({told}): --node may name that port itself"
        ),
        _ => "does not say where it serves protocol buffers: --node may name that port itself".to_owned(),
    }
}

/// Why a request was not carried out, if that may be over soon: the cluster has just started, or elects a leader.
fn waits_for_leader(answer: &Answer) -> Option<String> {
    let cause = answer.body["error"].as_str().filter(|_| answer.status == 503)?;
    // The last one is the text of older nodes.
    let passing =
        ["no leader", "this node does not know the cluster's current state", "this node has not heard"];
    let may_end = passing.iter().any(|text| cause.starts_with(text));
    may_end.then(|| cause.to_owned())
}

impl AdminNode {
    /// The way to the node.
    pub fn endpoint(&self) -> Result<Endpoint, Failure> {
        Ok(match &self.target.data {
            Some(data) => Endpoint::Local(data.clone()),
            None => Endpoint::Address(self.target.address.address(), self.login()?),
        })
    }

    /// The login.
    pub(crate) fn login(&self) -> Result<Option<Arc<Login>>, Failure> {
        self.login.login()
    }

    /// Sends a request and takes the answer.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Result<Answer, Failure> {
        self.endpoint()?.ask(method, path, body)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Address(address, _) => f.write_str(address),
            Endpoint::Local(data) => write!(f, "{}", data.display()),
        }
    }
}

impl Endpoint {
    /// Sends a request and takes the answer. A leader that is to be elected is waited for.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Result<Answer, Failure> {
        let ask = || self.ask_within(method, path, body, WAITS);
        let (begun, mut is_told) = (Instant::now(), false);
        let mut answer = ask();
        while let Some(cause) = answer.as_ref().ok().and_then(waits_for_leader)
            && begun.elapsed() < LEADER_WAIT_MAX
        {
            if !std::mem::replace(&mut is_told, true) {
                let seconds = LEADER_WAIT_MAX.as_secs();
                // Where nobody listens it is waited for all the same.
                writeln!(std::io::stderr(), "annulet: {cause}: waiting up to {seconds} s").ok();
            }
            std::thread::sleep(LEADER_ASK_EVERY);
            answer = ask();
        }
        answer.map_err(|unanswered| self.failure(unanswered))
    }

    /// Asks once for a page, and waits so long at most for the connection and each part of the answer. Its JSON, or why
    /// there is none.
    pub fn look(&self, path: &str, max: Duration) -> Result<Value, String> {
        match self.ask_within("GET", path, "", Waits { connect: max, answer: max }) {
            Ok(answer) if answer.body.is_object() => Ok(answer.body),
            Ok(answer) => Err(format!("HTTP status {}", answer.status)),
            Err(Unanswered::Connect(error) | Unanswered::Io(error)) => Err(error.to_string()),
            Err(Unanswered::NotHttp) => Err("no HTTP answer".to_owned()),
        }
    }

    fn failure(&self, unanswered: Unanswered) -> Failure {
        match (self, unanswered) {
            (Endpoint::Address(address, _), Unanswered::Connect(error)) => {
                failure::unreachable(address, &error)
            }
            (Endpoint::Local(data), Unanswered::Connect(error)) => failure::no_local_node(data, &error),
            (_, Unanswered::Io(error)) => Failure::new(FAILED, format!("{self}: {error}")),
            (_, Unanswered::NotHttp) => Failure::new(
                FAILED,
                format!(
                    "{self}: no HTTP answer: --node names a node's HTTP port, 8098 if nothing else was said"
                ),
            ),
        }
    }

    fn ask_within(&self, method: &str, path: &str, body: &str, waits: Waits) -> Result<Answer, Unanswered> {
        let (host, login) = match self {
            Endpoint::Address(address, login) => (&**address, login.as_deref()),
            Endpoint::Local(_) => (LOCAL_HOST, None),
        };
        let authorization = login.and_then(Login::authorization);
        let authorization = authorization.map(|it| format!("Authorization: {it}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             {authorization}Content-Length: {}\r\n\r\n",
            body.len()
        );
        read_answer(&self.exchange(&head, body, waits)?)
    }

    fn exchange(&self, head: &str, body: &str, waits: Waits) -> Result<Vec<u8>, Unanswered> {
        let answer = match self {
            Endpoint::Address(address, login) => {
                let tcp = connect(address, waits.connect).map_err(Unanswered::Connect)?;
                tcp.set_read_timeout(Some(waits.answer)).map_err(Unanswered::Io)?;
                match login {
                    None => talk(tcp, head, body),
                    Some(login) => login.secure(address, tcp).and_then(|stream| talk(stream, head, body)),
                }
            }
            Endpoint::Local(data) => {
                let socket = admin_socket::connect(data).map_err(Unanswered::Connect)?;
                socket.set_read_timeout(Some(waits.answer)).map_err(Unanswered::Io)?;
                talk(socket, head, body)
            }
        };
        answer.map_err(Unanswered::Io)
    }
}

fn read_answer(answer: &[u8]) -> Result<Answer, Unanswered> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or(Unanswered::NotHttp)?;
    let head = head.strip_prefix("HTTP/").ok_or(Unanswered::NotHttp)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or(Unanswered::NotHttp)?;
    // Whoever is in between may answer something else than JSON.
    let body = match body {
        "" => Value::Null,
        body => serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.trim().to_owned())),
    };
    Ok(Answer { status, body })
}

/// Sends a request, and reads until the node ends the connection.
fn talk(mut stream: impl Read + Write, head: &str, body: &str) -> std::io::Result<Vec<u8>> {
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    stream.flush()?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

/// Connects to the first address of a name that answers.
fn connect(address: &str, max: Duration) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("no address to connect to");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, max) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A name as it stands in a path.
pub fn encoded(name: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.iter()
        .copied()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_by_host_and_port() {
        for text in ["", "localhost:8098", "127.0.0.1:8098", "[::1]:8098", "n1.example:8098"] {
            assert_eq!(node_address(text).as_deref(), Ok(text));
        }
        for text in ["localhost", "8098", "http://localhost:8098", "a b:1"] {
            assert!(node_address(text).unwrap_err().contains("is not a host and a port"), "{text}");
        }
    }

    #[test]
    fn an_unknown_port_is_told_with_its_cause() {
        let told = |status, body: &str| {
            let head = format!("HTTP/1.1 {status} Reason\r\nContent-Type: text/plain\r\n\r\n");
            port_unknown(&read_answer(&[head.as_bytes(), body.as_bytes()].concat()).ok().unwrap())
        };
        let plaintext = told(426, "Security is enabled and Riak does not accept credentials over HTTP.");
        assert!(plaintext.starts_with("has security on, and this port is in plaintext: "), "{plaintext}");
        for flag in ["--https-listen", "--ca", "--user", "--password-file", "--cert", "--key"] {
            assert!(plaintext.contains(flag), "{plaintext}");
        }
        assert!(told(401, "Unauthorized").contains("refuses the login (Unauthorized)"));
        assert!(told(403, r#"{"error":"Permission denied"}"#).contains("(Permission denied)"));
        for other in [told(200, "{}"), told(404, "not found")] {
            assert!(other.starts_with("does not say where it serves protocol buffers"), "{other}");
        }
    }

    #[test]
    fn names_are_encoded() {
        assert_eq!(encoded("a-b c/ü".as_bytes()), "a-b%20c%2F%C3%BC");
    }
}
