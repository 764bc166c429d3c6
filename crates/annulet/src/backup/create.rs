//! `annulet backup create`, and `stop`.

use super::bar::Bar;
use super::size;
use crate::admin::http::{Endpoint, Node, NodeAddresses};
use crate::admin::login::LoginArgs;
use crate::failure::{FAILED, Failure, UNUSABLE};
use crate::plural::count;
use backup::{How, Progress};
use clap::ValueHint;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// How often nodes are asked how far they are.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// A node that does not answer for so many questions in a row is taken to have stopped.
const UNANSWERED_MAX: u32 = 25;

/// Arguments of `create`.
#[derive(clap::Args)]
pub struct Args {
    /// Folder of backups on the node's machine, below its option backup-dir [default: that folder]. For a stopped node,
    /// any folder.
    #[arg(value_hint = ValueHint::DirPath, value_name = "DEST")]
    dest: Option<PathBuf>,
    #[command(flatten)]
    nodes: NodeAddresses,
    #[command(flatten)]
    login: LoginArgs,
    /// Data folder of a stopped node, in place of a running node.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "dest")]
    data: Option<PathBuf>,
    /// Name of the backup [default: the time and the node's name].
    #[arg(long)]
    name: Option<String>,
    /// Copy all files in place of hard links, which fail with the same disk.
    #[arg(long)]
    copy: bool,
    /// Most MiB per second that a running node reads and writes for the backup [default: 64].
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: Option<u64>,
    /// Print the results as JSON, one line for each node.
    #[arg(long)]
    json: bool,
}

/// Arguments of `stop`.
#[derive(clap::Args)]
pub struct Stop {
    #[command(flatten)]
    node: Node,
}

/// Makes backups, and tells what they came to.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.data {
        Some(data) => of_stopped(args, data),
        None => of_running(args),
    }
}

fn of_stopped(args: &Args, data: &std::path::Path) -> Result<(), Failure> {
    let dest = args
        .dest
        .as_deref()
        .ok_or_else(|| Failure::new(UNUSABLE, "DEST: the folder of backups is missing"))?;
    let how = if args.copy { How::Copy } else { How::Link };
    let mut bar = Bar::new("backup");
    let made = server::backup::create_stopped(data, (dest, args.name.as_deref()), how, &mut |progress| {
        bar.show(progress)
    });
    bar.end();
    let made = made?;
    tell(
        args,
        &json!({
            "state": "done",
            "folder": made.folder,
            "files": made.index.files.len(),
            "bytes": made.index.bytes(),
            "copied": made.copied,
            "linked": made.linked,
            "kept": made.kept,
            "earlier": made.earlier,
        }),
    )
}

/// A node that makes a backup.
struct Asked<'a> {
    endpoint: Endpoint,
    address: &'a str,
    /// The backup's name, by which its end is known from that of another.
    name: Value,
    seen: Value,
    unanswered: u32,
}

fn of_running(args: &Args) -> Result<(), Failure> {
    let mut asked = Vec::new();
    let addresses = args.nodes.addresses();
    for address in &addresses {
        asked.push(begin(args, address)?);
    }
    let mut bar = Bar::new("backup");
    while asked.iter_mut().map(look).collect::<Result<Vec<_>, _>>()?.contains(&true) {
        let of = |key: &str| asked.iter().map(|it| it.seen[key].as_u64().unwrap_or_default()).sum();
        bar.show(&Progress {
            files: of("files"),
            bytes: of("bytes"),
            files_done: of("files_done"),
            bytes_done: of("bytes_done"),
            copied: of("copied"),
            slice: 0,
        });
        std::thread::sleep(ASK_EVERY);
    }
    bar.end();
    let mut failed = Vec::new();
    for it in &asked {
        match it.seen["state"].as_str() {
            Some("done") => tell(args, &it.seen)?,
            _ => {
                failed.push(format!("{}: {}", it.address, it.seen["error"].as_str().unwrap_or("it is gone")))
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::new(FAILED, failed.join("\n"))) }
}

fn begin<'a>(args: &Args, address: &'a str) -> Result<Asked<'a>, Failure> {
    let endpoint = Endpoint::Address(address.to_owned(), args.login.login()?);
    let body = json!({
        "folder": args.dest,
        "name": args.name,
        "copy": args.copy,
        "bytes_per_second": args.rate.map(|rate| rate << 20),
    });
    let answer = endpoint.ask("POST", "/admin/backup", &body.to_string())?;
    if answer.status != 202 {
        let code = if answer.status < 500 { UNUSABLE } else { FAILED };
        return Err(Failure::new(code, format!("{address}: {}", said(&answer.body))));
    }
    Ok(Asked { endpoint, address, name: answer.body["name"].clone(), seen: answer.body, unanswered: 0 })
}

/// Asks a node how far it is; whether it is still at it.
fn look(asked: &mut Asked<'_>) -> Result<bool, Failure> {
    if matches!(asked.seen["state"].as_str(), Some("done" | "failed")) {
        return Ok(false);
    }
    let answer = match asked.endpoint.ask("GET", "/admin/backup", "") {
        Ok(answer) if answer.status == 200 => answer.body,
        // It may be busy; one that is gone does not come back to this backup.
        Ok(_) | Err(_) if asked.unanswered < UNANSWERED_MAX => {
            asked.unanswered += 1;
            return Ok(true);
        }
        Ok(answer) => return Err(Failure::new(FAILED, format!("{}: {}", asked.address, said(&answer.body)))),
        Err(failure) => return Err(failure),
    };
    asked.unanswered = 0;
    if answer["name"] != asked.name {
        let text = format!("{}: the node was restarted during the backup: no backup was made", asked.address);
        return Err(Failure::new(FAILED, text));
    }
    asked.seen = answer;
    Ok(asked.seen["state"] == "running")
}

/// What a node said, if that was an error.
fn said(body: &Value) -> String {
    body["error"].as_str().or(body.as_str()).unwrap_or("it gives no reason").to_owned()
}

fn tell(args: &Args, end: &Value) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if args.json {
        return Ok(writeln!(out, "{end}")?);
    }
    let of = |key: &str| end[key].as_u64().unwrap_or_default();
    writeln!(
        out,
        "{}: {}, {}",
        end["folder"].as_str().unwrap_or_default(),
        count(of("files"), "file"),
        size(of("bytes"))
    )?;
    let (copied, linked) = (size(of("copied")), size(of("linked")));
    let kept = match end["earlier"].as_str() {
        Some(earlier) => format!(", {} shared with {earlier}", size(of("kept"))),
        None => String::new(),
    };
    Ok(writeln!(out, "{copied} copied, {linked} linked{kept}")?)
}

impl Stop {
    /// Gives it up.
    pub fn run(&self) -> Result<(), Failure> {
        let answer = self.node.ask("POST", "/admin/backup/stop", "")?;
        match answer.status {
            200 => Ok(writeln!(
                io::stdout(),
                "{} is given up",
                answer.body["name"].as_str().unwrap_or_default()
            )?),
            _ => Err(Failure::new(FAILED, said(&answer.body))),
        }
    }
}
