//! `annulet bench scenario`: nodes of this same program under load, and things that are done to them.

use super::run::{live, stop_by_signal, tell};
use crate::admin;
use crate::failure::{Failure, UNUSABLE};
use crate::sibling;
use bench::{Control, Error, Identity};
use clap::ValueHint;
use experiments::scenario::{Plan, Scenario, network, play};
use results::Summary;
use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// In the ten ports of a node: where each protocol is, as with `dev`.
const PORTS_PER_NODE: u16 = 10;
const PB_PORT: u16 = 7;
const HTTP_PORT: u16 = 8;
const PEER_PORT: u16 = 9;

/// Arguments of `bench scenario`.
#[derive(clap::Args)]
pub struct Args {
    /// The scenario.
    #[arg(value_hint = ValueHint::FilePath, value_name = "FILE")]
    file: PathBuf,
    /// Where the results go; must be empty or missing.
    #[arg(long, value_hint = ValueHint::DirPath, value_name = "DIR")]
    out: PathBuf,
    /// Where the nodes have their folders, empty or missing, kept afterwards [default: a folder that is removed].
    #[arg(long, value_hint = ValueHint::DirPath, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Plays the scenario; the exit code says whether the store was right.
pub fn run(args: &Args) -> Result<(), Failure> {
    let scenario = Scenario::read(&args.file)?;
    if scenario.namespaces {
        network::Networks::check()?;
        if !network::is_apart() {
            return enter_namespace();
        }
    }
    let temporary = tempfile::tempdir()?;
    let data = std::path::absolute(args.data.as_deref().unwrap_or(temporary.path()))?;
    let control = Arc::new(Control::default());
    stop_by_signal(Arc::clone(&control))?;
    let summary = play_in(&scenario, &data, &args.out, &control)?;
    tell(&summary, &args.out)
}

/// Plays a scenario whose nodes have their folders in `data`, which must be empty or missing.
pub fn play_in(scenario: &Scenario, data: &Path, out: &Path, control: &Control) -> Result<Summary, Failure> {
    if data.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::new(UNUSABLE, format!("{} is not empty", data.display())));
    }
    let nodes = (0..usize::from(scenario.nodes)).map(|at| Place::of(scenario, at)).collect::<Vec<_>>();
    let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
    if nodes.len() > 1 {
        admin::make(&data.join("certs"), &names)?;
    }
    let program = sibling::program("annulet")?;
    let launch = |at: usize| plan(scenario, &program, &nodes, at, data);
    let identity = Identity { version: crate::VERSION.to_owned(), ..Identity::default() };
    Ok(play(scenario, &launch, out, &identity, control, &mut live())?)
}

/// Where a node is.
struct Place {
    name: String,
    pb: SocketAddr,
    http: SocketAddr,
    peers: SocketAddr,
}

impl Place {
    fn of(scenario: &Scenario, at: usize) -> Place {
        let host = scenario.host(at);
        let number = u16::try_from(at + 1).expect("there are few nodes");
        let address = |port| SocketAddr::new(host, scenario.base_port + number * PORTS_PER_NODE + port);
        Place {
            name: format!("n{number}@{host}"),
            pb: address(PB_PORT),
            http: address(HTTP_PORT),
            peers: address(PEER_PORT),
        }
    }
}

fn plan(scenario: &Scenario, program: &Path, nodes: &[Place], at: usize, data: &Path) -> Result<Plan, Error> {
    let Place { name, pb, http, peers } = &nodes[at];
    let folder = data.join(format!("n{}", at + 1));
    let mut command: Vec<OsString> = vec![program.into(), "serve".into()];
    let mut flag = |name: &str, value: OsString| command.extend([OsString::from(format!("--{name}")), value]);
    flag("name", name.into());
    flag("pb-listen", pb.to_string().into());
    flag("http-listen", http.to_string().into());
    flag("data", folder.clone().into());
    if nodes.len() > 1 {
        let certificates = data.join("certs");
        let own = admin::node_files(&certificates, name).map_err(|failure| Error::Unusable(failure.text))?;
        let founders = &nodes[..usize::from(scenario.founders)];
        if at < founders.len() {
            let all: Vec<String> =
                founders.iter().map(|node| format!("{}={}", node.name, node.peers)).collect();
            flag("cluster", all.join(",").into());
        } else {
            let contacts: Vec<String> = founders.iter().map(|node| node.peers.to_string()).collect();
            flag("join", contacts.join(",").into());
        }
        flag("peer-listen", peers.to_string().into());
        flag("peer-ca", admin::authority_files(&certificates).certificate.into());
        flag("peer-cert", own.certificate.into());
        flag("peer-key", own.key.into());
        // Nodes share this machine's cores, as with `dev`.
        if !scenario.options.contains_key("shards") {
            flag("shards", "1".into());
        }
    }
    for (name, value) in &scenario.options {
        flag(&name.replace('_', "-"), value.into());
    }
    Ok(Plan {
        name: name.clone(),
        pb: *pb,
        http: *http,
        data: folder,
        program: program.to_owned(),
        command,
        groups: Vec::new(),
    })
}

/// The same command again, in a network namespace of its own, which is gone with it.
fn enter_namespace() -> Result<(), Failure> {
    let program = std::env::current_exe()?;
    let mut command = std::process::Command::new("unshare");
    let error = command.arg("--net").arg(program).args(std::env::args_os().skip(1)).exec();
    writeln!(std::io::stderr(), "unshare --net: {error}")?;
    Err(Failure::new(UNUSABLE, "no network namespace could be made"))
}
