//! `annulet serve`: runs a node and says what it runs with.

use crate::VERSION;
use crate::failure::{FAILED, Failure, UNUSABLE};
use crate::log;
use crate::signals;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};
use server::config::{Config, Loaded, Origin, SETTINGS, Setting};
use server::{Started, config};
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::thread;

const CONFIG: &str = "config";

/// Has a node stop when its standard input ends: what holds the other end need not live to tell it.
pub const STOP_WITH_INPUT: &str = "stop-with-input";

/// Arguments of `serve`: one flag for each row of the table of settings.
pub struct Args {
    flags: Vec<(&'static str, String)>,
    file: Option<PathBuf>,
    stops_with_input: bool,
}

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        let file =
            Arg::new(CONFIG).long(CONFIG).value_name("FILE").value_parser(clap::value_parser!(PathBuf));
        let file =
            file.help(format!("Configuration file [default: {}, if it is there]", config::FILE_DEFAULT));
        let defaults = Config::default();
        let flag = |setting: &'static Setting| {
            let help = match setting.name {
                // These two say themselves what a new data folder is made with.
                "ring_size" | "shards" => setting.help.to_owned(),
                _ => match setting.show(&defaults) {
                    none if none.is_empty() => setting.help.to_owned(),
                    default => format!("{} [default: {default}]", setting.help),
                },
            };
            let arg = Arg::new(setting.name).long(setting.flag).value_name(setting.value_name).help(help);
            match setting.value_alone() {
                Some(word) => arg.num_args(0..=1).require_equals(true).default_missing_value(word),
                None => arg,
            }
        };
        let stop = Arg::new(STOP_WITH_INPUT).long(STOP_WITH_INPUT).action(ArgAction::SetTrue);
        let stop =
            stop.help("Stop, as at a signal, when the standard input ends: with whoever holds its other end");
        command.args(SETTINGS.iter().map(flag)).arg(file).arg(stop)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Args::augment_args(command)
    }
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Args, clap::Error> {
        let given = |setting: &Setting| matches.get_one::<String>(setting.name).cloned();
        let flags = SETTINGS.iter().filter_map(|setting| Some((setting.name, given(setting)?))).collect();
        let stops_with_input = matches.get_flag(STOP_WITH_INPUT);
        Ok(Args { flags, file: matches.get_one(CONFIG).cloned(), stops_with_input })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Args::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Runs a node until it is told to stop.
pub fn run(args: &Args) -> Result<(), Failure> {
    let loaded =
        Config::load(args.flags.clone(), std::env::vars_os(), args.file.as_deref()).map_err(|error| {
            let code = if error.place.starts_with("--") { UNUSABLE } else { FAILED };
            Failure::new(code, error.to_string())
        })?;
    log::start()?;
    signals::start()?;
    for variable in &loaded.unknown_variables {
        tracing::warn!("{variable} is set, and means nothing to this program");
    }
    raise_open_files();
    log::abort_on_panic();
    if args.stops_with_input {
        thread::spawn(stop_with_input);
    }
    let config = loaded.config.clone();
    server::serve(config, |started| {
        log_opening(started);
        // A node whose output nobody reads serves all the same.
        log::print(&banner(&loaded, started));
    })
    .map_err(|error| Failure::new(FAILED, error.to_string()))?;
    tracing::info!("stopped; all data is on disk");
    Ok(())
}

/// Connections and files are descriptors, and the usual soft limit of 1,024 is a relic of `select`.
fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// Waits for the standard input to end, and gives this process the signal that stops it.
fn stop_with_input() {
    match io::copy(&mut io::stdin().lock(), &mut io::sink()) {
        Ok(_) => tracing::info!("the standard input has ended"),
        Err(error) => tracing::warn!(%error, "the standard input cannot be read"),
    }
    if let Err(error) = kill_process(getpid(), Signal::TERM) {
        tracing::error!(%error, "this process cannot be told to stop");
    }
}

fn log_opening(started: &Started) {
    for (shard, report) in started.reports.iter().enumerate() {
        for torn in &report.torn {
            tracing::info!(shard, "torn by a crash and cut off: {torn}");
        }
        for damage in &report.damage {
            tracing::error!(shard, "{damage}; what it held cannot be read here");
        }
        if let Some(why) = report.checkpoint {
            tracing::info!(shard, "hash trees are made from the heads: {why}");
        }
    }
}

/// What a person wants to know of a node that has just started.
fn banner(loaded: &Loaded, started: &Started) -> String {
    let pb = started.pb.to_string();
    let mut rows = vec![
        ("protocol buffers", pb.clone()),
        ("HTTP", format!("{}  (/ping, /stats)", started.http)),
        ("data", format!("{}  ({})", absolute(started), opening(started))),
    ];
    if let Some(peers) = started.peers {
        let nodes = if started.members == 1 { "node" } else { "nodes" };
        rows.push(("peers", format!("{peers}  (a cluster of {} {nodes})", started.members)));
        if started.is_joining {
            rows.push((
                "joining",
                "owns nothing yet: see `annulet admin cluster plan`, then `commit`".to_owned(),
            ));
        }
    }
    rows.push(("options", String::new()));
    let mut text = format!("annulet {VERSION}\n");
    let width = 18;
    for (name, value) in rows {
        push_line(&mut text, &format!("  {name:width$}{value}"));
    }
    for (setting, origin) in SETTINGS.iter().zip(&loaded.origins) {
        let (value, origin) = in_force(loaded, started, setting, origin);
        push_line(&mut text, &format!("    {:width$}{value:24}  {origin}", setting.name));
    }
    let address =
        if started.pb == Config::default().pb_listen { String::new() } else { format!(" --address {pb}") };
    push_line(&mut text, "try it:");
    push_line(
        &mut text,
        &format!("  annulet kv put{address} books dune 'A beginning is a very delicate time.'"),
    );
    push_line(&mut text, &format!("  annulet kv get{address} books dune"));
    text
}

/// What an option came to: a data folder that exists decides some of them.
fn in_force(loaded: &Loaded, started: &Started, setting: &Setting, origin: &Origin) -> (String, String) {
    let made = match setting.name {
        "ring_size" => Some(started.layout.ring_size.partitions().to_string()),
        "shards" => Some(started.layout.shards.to_string()),
        "backend" => Some(started.founding.backend.name().to_owned()),
        "type_backends" => Some(started.founding.types.to_string()),
        _ => None,
    };
    let is_new = started.reports.iter().all(|report| report.created);
    let origin = match (&made, origin) {
        (Some(_), Origin::Default) if !is_new => "data folder".to_owned(),
        (_, origin) => origin.to_string(),
    };
    (made.unwrap_or_else(|| setting.show(&loaded.config)), origin)
}

fn absolute(started: &Started) -> String {
    let path = std::path::absolute(&started.data).unwrap_or_else(|_| started.data.clone());
    path.display().to_string()
}

fn opening(started: &Started) -> String {
    let replayed: u64 = started.reports.iter().map(|report| report.replayed).sum();
    if started.reports.iter().all(|report| report.created) {
        "new".to_owned()
    } else if started.founding.backend != Default::default() {
        // Another backend does not tell how it was left.
        "there before".to_owned()
    } else if started.reports.iter().all(|report| report.clean) {
        "stopped cleanly before".to_owned()
    } else {
        format!("recovered after an unclean stop: {replayed} records replayed")
    }
}

fn push_line(text: &mut String, line: &str) {
    writeln!(text, "{}", line.trim_end()).expect("a string takes every text");
}
