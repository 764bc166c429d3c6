//! `annulet bench run` and `annulet bench merge`.

use crate::VERSION;
use crate::admin::login::LoginArgs;
use crate::failure::{FAILED, Failure, UNUSABLE};
use bench::live::{Columns, Live};
use bench::{Control, Identity, Observer, Workload};
use clap::ValueHint;
use results::{Summary, utc};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Generators at most: more would not be started by hand.
const GENERATORS_MAX: u32 = 1000;

/// Arguments of `bench run`.
#[derive(clap::Args)]
pub struct Args {
    /// Workload file; docs/bench.md has the format.
    #[arg(value_name = "WORKLOAD.toml", value_hint = ValueHint::FilePath)]
    workload: PathBuf,
    /// Folder of the results, empty or missing [default: bench-results/NAME-TIME].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
    /// Number of this generator, such as 2/3: each has its share of the rate, the operations and the keys.
    #[arg(long, value_name = "I/N", value_parser = generator, default_value = "1/1")]
    generator: (u32, u32),
    /// File of the history, one line for each request on a key, for `bench check`; replaces that of the workload.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    history: Option<PathBuf>,
    #[command(flatten)]
    login: LoginArgs,
}

/// Arguments of `bench merge`.
#[derive(clap::Args)]
pub struct MergeArgs {
    /// Results of generators that ran at the same time.
    #[arg(value_name = "DIR", num_args = 2.., required = true)]
    folders: Vec<PathBuf>,
    /// Folder of the merged results, empty or missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

fn generator(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    let sound = numbers.filter(|&(i, n): &(u32, u32)| (1..=n).contains(&i) && n <= GENERATORS_MAX);
    sound.ok_or_else(|| format!("{text:?} is not of the form 2/3, up to {GENERATORS_MAX}"))
}

/// Runs a workload; fails if the store was wrong.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut workload =
        Workload::read(&args.workload).map_err(|error| Failure::new(UNUSABLE, error.to_string()))?;
    if args.history.is_some() {
        workload.history.clone_from(&args.history);
    }
    let out = args.out.clone().unwrap_or_else(|| default_out(&workload.name));
    let (index, of) = args.generator;
    let version = VERSION.to_owned();
    let login = args.login.login()?.map(|login| login.for_bench());
    let identity = Identity { index: index - 1, of, version, command: std::env::args().collect(), login };
    let control = Arc::new(Control::default());
    stop_by_signal(Arc::clone(&control))?;
    let summary = bench::run(&workload, &out, &identity, &control, &mut live())?;
    if let Some(path) = &workload.history {
        print(&format!("history: {}", path.display()));
    }
    tell(&summary, &out)
}

/// Merges results.
pub fn merge(args: &MergeArgs) -> Result<(), Failure> {
    let folders: Vec<&Path> = args.folders.iter().map(PathBuf::as_path).collect();
    let summary = results::merge::merge(&folders, &args.out)?;
    live().finished(&summary);
    tell(&summary, &args.out)
}

fn default_out(name: &str) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let time: String = utc(now).chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    PathBuf::from("bench-results").join(format!("{name}-{time}"))
}

/// The first signal ends the load, and the results are written; the second ends the program.
pub fn stop_by_signal(control: Arc<Control>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        for _ in &mut signals {
            if control.is_stopped() {
                std::process::exit(FAILED.into());
            }
            control.stop();
        }
    });
    Ok(())
}

/// Shows the run on standard output: a table on a terminal, a line a second elsewhere.
pub fn live() -> Live<io::Stdout> {
    let out = io::stdout();
    let terminal = out.is_terminal().then_some(columns as Columns);
    Live::new(out, terminal)
}

fn columns() -> usize {
    rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_col.into())
}

fn print(text: &str) {
    // A run whose output nobody reads goes on all the same.
    writeln!(io::stdout(), "{}", text.trim_end()).ok();
}

/// Says where the results are; fails if the store was wrong.
pub fn tell(summary: &Summary, out: &Path) -> Result<(), Failure> {
    print(&format!("results: {}", out.display()));
    match summary.verdict.passed {
        true => Ok(()),
        false => Err(Failure::new(FAILED, format!("wrong: {}", summary.verdict.failures.join("; ")))),
    }
}
