//! `annulet bench scenario`: nodes of this same program under load, and things that are done to them.

use super::run::{live, stop_by_signal, tell};
use crate::admin::login::LoginArgs;
use crate::failure::{Failure, UNUSABLE};
use crate::sibling;
use bench::{Control, Identity};
use clap::ValueHint;
use experiments::scenario::launch::{Launcher, NodeAddresses};
use experiments::scenario::{Plan, Program, Scenario, etcd, network, play};
use results::Summary;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Arguments of `bench scenario`.
#[derive(clap::Args)]
pub struct Args {
    /// The scenario.
    #[arg(value_hint = ValueHint::FilePath, value_name = "FILE")]
    file: PathBuf,
    /// Folder of the results, empty or missing.
    #[arg(long, value_hint = ValueHint::DirPath, value_name = "DIR")]
    out: PathBuf,
    /// Folder of the nodes' data, empty or missing, kept afterwards [default: a folder that is removed].
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
    let node = |at: u16| NodeAddresses::of(scenario.host(at.into()), scenario.base_port, at + 1);
    let nodes = (0..scenario.nodes).map(node).collect::<Vec<_>>();
    let plans = match scenario.program {
        Program::Annulet => plans(scenario, data, &nodes)?,
        Program::Etcd => etcd::plans(data, &nodes),
    };
    let login =
        scenario.login.as_ref().map(|files| LoginArgs::of_files(files).login()).transpose()?.flatten();
    let login = login.map(|login| login.for_bench());
    let identity = Identity { version: crate::VERSION.to_owned(), login, ..Identity::default() };
    Ok(play(scenario, plans, out, &identity, control, &mut live())?)
}

/// The plans of nodes of this program, whose certificates are made.
fn plans(scenario: &Scenario, data: &Path, nodes: &[NodeAddresses]) -> Result<Vec<Plan>, Failure> {
    let options = scenario.options.iter().map(|(name, value)| (name.replace('_', "-"), value.clone()));
    let launcher = Launcher {
        program: &sibling::program("annulet")?,
        home: data,
        nodes,
        founders: scenario.founders.into(),
        options: options.collect(),
    };
    launcher.make_certificates()?;
    Ok((0..nodes.len()).map(|at| launcher.plan(at)).collect())
}

/// The same command again, in a network namespace of its own, which is gone with it.
fn enter_namespace() -> Result<(), Failure> {
    let program = std::env::current_exe()?;
    let mut command = std::process::Command::new("unshare");
    let error = command.arg("--net").arg(program).args(std::env::args_os().skip(1)).exec();
    writeln!(std::io::stderr(), "unshare --net: {error}")?;
    Err(Failure::new(UNUSABLE, "no network namespace could be made"))
}
