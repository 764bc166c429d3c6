//! `annulet admin diag`: one file with all that a node tells of itself, for whoever looks into a problem.
//!
//! 1. The node is asked for each part; a part without an answer has the error in its place. 2. The last lines of the
//!    log are read, if a file was named. 3. Secrets are redacted (`redact.rs`). 4. The file is written, readable by its
//!    owner alone.
//!
//! Left out: objects, and files of the data folder. Names of buckets and keys may be in log lines and in slow requests.

use super::http::AdminNode;
use super::redact::{redact, text_without};
use crate::VERSION;
use crate::failure::{FAILED, Failure};
use serde_json::{Map, json};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The pages of a node that go into the file.
const PAGES: [(&str, &str); 8] = [
    ("ready", "/health/ready"),
    ("figures", "/stats"),
    ("cluster", "/admin/cluster"),
    ("transfers", "/admin/cluster/transfers"),
    ("trees", "/admin/aae"),
    ("strong", "/admin/strong"),
    ("slow", "/admin/slow"),
    ("bucket_types", "/admin/bucket-types"),
];

/// The last lines of a log that go into the file, and the bytes of a log file that are read for them.
const LOG_LINES_MAX: usize = 1000;
const LOG_BYTES_MAX: u64 = 1 << 20;

/// The file may have names of customers' objects.
const FILE_MODE: u32 = 0o600;

/// The node, its log, and the file.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    node: AdminNode,
    /// File to write; it must not exist.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// File of the node's log, of which the last lines are taken; - is the standard input.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// Writes the file.
pub fn run(args: &Args) -> Result<(), Failure> {
    let failed = |path: &Path, error: io::Error| Failure::new(FAILED, format!("{}: {error}", path.display()));
    let options = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&args.out);
    let mut file = options.map_err(|error| failed(&args.out, error))?;
    let log = args.log.as_deref().map(|path| last_lines(path).map_err(|error| failed(path, error)));
    let text = bundle(&args.node, log.transpose()?);
    file.write_all(text.as_bytes()).map_err(|error| failed(&args.out, error))?;
    writeln!(io::stdout(), "written: {}; read it before you pass it on", args.out.display())?;
    Ok(())
}

/// The text of the file.
fn bundle(node: &AdminNode, log: Option<Vec<String>>) -> String {
    let mut parts = Map::new();
    for (name, path) in PAGES {
        let part = match node.ask("GET", path, "") {
            Ok(answer) => answer.body,
            Err(failure) => json!({ "no_answer": failure.text }),
        };
        parts.insert(name.to_owned(), part);
    }
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut all = json!({
        "made_at_seconds": since_1970.as_secs(),
        "made_by": format!("annulet {VERSION}"),
        "node": node.endpoint().map(|it| it.to_string()).unwrap_or_default(),
        "parts": parts,
        "log": log,
    });
    redact(&mut all);
    format!("{all:#}\n")
}

/// The last lines of a log, without secrets: a private key has several lines.
fn last_lines(path: &Path) -> io::Result<Vec<String>> {
    let reader: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(LOG_BYTES_MAX)))?;
        Box::new(BufReader::new(file))
    };
    let mut last = VecDeque::new();
    for line in reader.split(b'\n') {
        last.push_back(String::from_utf8_lossy(&line?).into_owned());
        if last.len() > LOG_LINES_MAX {
            last.pop_front();
        }
    }
    let text = Vec::from(last).join("\n");
    Ok(text_without(&text).lines().map(str::to_owned).collect())
}
