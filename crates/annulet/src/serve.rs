//! `annulet serve`: runs a node and says what it runs with.

use crate::VERSION;
use crate::failure::{FAILED, Failure, UNUSABLE};
use crate::{log, plural, program};
use crate::{signals, supervisor};
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};
use server::config::{Config, Loaded, Origin, SETTINGS, Setting};
use server::{Started, config};
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

const CONFIG: &str = "config";

/// Has the banner show all options, not only those that are not at their defaults.
const SHOW_OPTIONS: &str = "show-options";

/// Has a node stop when its standard input ends: what holds the other end need not live to tell it.
pub const STOP_WITH_INPUT: &str = "stop-with-input";

/// Arguments of `serve`: one flag for each row of the table of settings.
pub struct Args {
    flags: Vec<(&'static str, String)>,
    file: Option<PathBuf>,
    stops_with_input: bool,
    shows_options: bool,
}

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        let file =
            Arg::new(CONFIG).long(CONFIG).value_name("FILE").value_parser(clap::value_parser!(PathBuf));
        let file = file.help(format!("Configuration file [default: {}, if it exists]", config::FILE_DEFAULT));
        let defaults = Config::default();
        let flag = |setting: &'static Setting| {
            let bounds = setting.bounds().map_or(String::new(), |bounds| format!(" [{bounds}]"));
            let help = match setting.show(&defaults) {
                none if none.is_empty() => format!("{}{bounds}", setting.help),
                default => format!("{}{bounds} [default: {default}]", setting.help),
            };
            let arg = Arg::new(setting.name).long(setting.flag()).value_name(setting.form()).help(help);
            match setting.is_switch() {
                true => arg.num_args(0..=1).require_equals(true).default_missing_value("on"),
                false => arg,
            }
        };
        let stop = Arg::new(STOP_WITH_INPUT).long(STOP_WITH_INPUT).action(ArgAction::SetTrue);
        let stop = stop
            .help("Stop cleanly when the standard input ends, and so when the process at its other end ends");
        let show = Arg::new(SHOW_OPTIONS).long(SHOW_OPTIONS).action(ArgAction::SetTrue);
        let show = show.help("Show all options and their origins at the start, not only changed ones");
        command.args(SETTINGS.iter().map(flag)).arg(file).arg(stop).arg(show)
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
        let shows_options = matches.get_flag(SHOW_OPTIONS);
        Ok(Args { flags, file: matches.get_one(CONFIG).cloned(), stops_with_input, shows_options })
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
    let levels = log::start(loaded.config.log_format)?;
    signals::start()?;
    for variable in &loaded.unknown_variables {
        let meant = config::variable_meant_by(variable).map(|meant| format!("; did you mean {meant}?"));
        tracing::warn!("{variable} is set, but there is no such option{}", meant.unwrap_or_default());
    }
    raise_open_files();
    log::abort_on_panic();
    if args.stops_with_input {
        thread::spawn(stop_with_input);
    }
    let (config, shows_options) = (loaded.config.clone(), args.shows_options);
    let progress = Arc::default();
    supervisor::start(&progress)?;
    server::serve(config, (&progress, levels), |started| {
        log_opening(started);
        // A node whose output nobody reads serves all the same.
        log::print(&banner(&loaded, started, shows_options));
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
        tracing::error!(%error, "cannot handle stop signals");
    }
}

fn log_opening(started: &Started) {
    for (shard, report) in started.reports.iter().enumerate() {
        for torn in &report.torn {
            tracing::info!(shard, "torn end removed after a crash: {torn}");
        }
        for damage in &report.damage {
            tracing::error!(shard, "{damage}; its data cannot be read on this node");
        }
        if let Some(why) = report.checkpoint {
            tracing::info!(shard, "hash trees are built from the heads: {why}");
        }
    }
}

/// What a person wants to know of a node that has just started.
fn banner(loaded: &Loaded, started: &Started, shows_options: bool) -> String {
    let program = program::name();
    let mut rows = vec![
        ("protocol buffers", started.pb.to_string()),
        ("HTTP", format!("{}  (objects, /stats, administration)", started.http)),
        ("data", format!("{}  ({})", absolute(started), opening(started))),
    ];
    if let Some(https) = started.https {
        rows.insert(2, ("HTTPS", format!("{https}  (the same under TLS)")));
    }
    if let Some(peers) = started.peers {
        rows.push(("peers", format!("{peers}  (a cluster of {})", plural::len(started.members, "node"))));
        if started.is_joining {
            rows.push((
                "joining",
                format!("owns nothing yet: see `{program} admin cluster plan`, then `commit`"),
            ));
        }
    }
    let mib = |bytes: u64| bytes >> 20;
    let (memory, value_max) = (mib(started.memory.bytes), mib(started.value_bytes_max));
    let source = &started.memory.source;
    rows.push(("memory", format!("{memory} MiB  ({source}; values up to {value_max} MiB)")));
    let options: Vec<ShownOption> =
        options(loaded, started).filter(|it| shows_options || it.is_changed).collect();
    rows.push(match shows_options || !options.is_empty() {
        true => ("options", String::new()),
        false => ("options", "all at their defaults: --show-options shows them".to_owned()),
    });
    let mut text = format!("annulet {VERSION}\n");
    let width = 18;
    for (name, value) in rows {
        push_line(&mut text, &format!("  {name:width$}{value}"));
    }
    for ShownOption { name, value, origin, .. } in &options {
        push_line(&mut text, &format!("    {name:width$}{value:24}  {origin}"));
    }
    if !shows_options && !options.is_empty() {
        push_line(&mut text, "    (the others are at their defaults: --show-options shows them)");
    }
    let node = match reached_by_default(started.pb) {
        true => String::new(),
        false => format!(" --node {}", from_here(started.http)),
    };
    push_line(&mut text, "try it:");
    push_line(
        &mut text,
        &format!("  {program} kv put{node} books dune 'A beginning is a very delicate time.'"),
    );
    push_line(&mut text, &format!("  {program} kv get{node} books dune"));
    text
}

/// An address as clients on this machine reach it.
fn from_here(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Whether the command line finds the node without being told where it is.
fn reached_by_default(pb: SocketAddr) -> bool {
    os::Address::from(from_here(pb)) == Config::default().pb_listen
}

/// An option, as the banner shows it.
struct ShownOption {
    name: &'static str,
    value: String,
    origin: String,
    /// Whether it is not at its default.
    is_changed: bool,
}

/// All options.
fn options(loaded: &Loaded, started: &Started) -> impl Iterator<Item = ShownOption> {
    let defaults = Config {
        ring_size: Some(Default::default()),
        shards: Some(server::shards_default(started.memory.bytes)),
        backend: Some(Default::default()),
        ..Config::default()
    };
    SETTINGS.iter().zip(&loaded.origins).map(move |(setting, origin)| {
        let (value, origin) = in_force(loaded, started, setting, origin);
        let is_changed = value != setting.show(&defaults);
        ShownOption { name: setting.name, value, origin, is_changed }
    })
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
        format!("recovered after an unclean stop: {} replayed", plural::count(replayed, "record"))
    }
}

fn push_line(text: &mut String, line: &str) {
    writeln!(text, "{}", line.trim_end()).expect("a string takes every text");
}
