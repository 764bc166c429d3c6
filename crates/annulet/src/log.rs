//! The log: lines on standard error, by the levels of `ANNULET_LOG` or of an operator; and all other output of a node.
//!
//! Nothing here waits for a stream: lines go through the bounded queues of [`os::STDERR`] and [`os::STDOUT`], also the
//! message of a panic and the last words of a process.

use crate::failure::{FAILED, Failure};
use server::LogLevels;
use server::config::LogFormat;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::BTreeMap;
use std::io;
use std::panic::PanicHookInfo;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

const VARIABLE: &str = "ANNULET_LOG";

/// How long the end of a process waits for its streams to take the last lines.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Targets whose levels may be set: an operator sets a few.
const TARGETS_MAX: usize = 32;

/// The levels of the log, which operators may set while it runs.
pub struct Levels {
    handle: reload::Handle<Targets, Registry>,
    /// By target; that of all others has no name.
    known: Mutex<BTreeMap<String, LevelFilter>>,
}

/// Starts logging in a form. To be called once.
pub fn start(format: LogFormat) -> Result<Arc<Levels>, Failure> {
    let asked = std::env::var(VARIABLE).unwrap_or_default();
    let level = match &*asked {
        "" => Some(LevelFilter::INFO),
        word => word.parse().ok(),
    };
    let Some(level) = level else {
        let text = format!("{VARIABLE}: {asked:?} is none of off, error, warn, info, debug, trace");
        return Err(Failure::new(FAILED, text));
    };
    os::ignore_output_signals();
    os::STDERR.report_drops_by(report_drops);
    let known = BTreeMap::from([(String::new(), level)]);
    let (filter, handle) = reload::Layer::new(targets(&known));
    // Errors of the subscriber itself would go to the stream directly.
    let lines = fmt::layer().with_writer(|| Lines).log_internal_errors(false);
    let log = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => log.with(lines.with_target(false)).init(),
        LogFormat::Json => log.with(lines.json().flatten_event(true)).init(),
    }
    Ok(Arc::new(Levels { handle, known: Mutex::new(known) }))
}

fn targets(known: &BTreeMap<String, LevelFilter>) -> Targets {
    let named = known.iter().filter(|(target, _)| !target.is_empty());
    let all = known.get("").copied().unwrap_or(LevelFilter::INFO);
    Targets::new().with_targets(named.map(|(target, level)| (target.clone(), *level))).with_default(all)
}

impl LogLevels for Levels {
    fn levels(&self) -> BTreeMap<String, String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(target, level)| (target.clone(), level.to_string())).collect()
    }

    fn set(&self, target: Option<&str>, level: &str) -> Result<(), String> {
        let filter = level
            .parse()
            .map_err(|_| format!("level: {level:?} is none of off, error, warn, info, debug, trace"))?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = known.clone();
        changed.insert(target.unwrap_or_default().to_owned(), filter);
        if changed.len() > TARGETS_MAX + 1 {
            return Err(format!("{TARGETS_MAX} targets have levels already"));
        }
        self.handle.reload(targets(&changed)).map_err(|error| error.to_string())?;
        *known = changed;
        Ok(())
    }
}

/// Writes to standard output without waiting for it.
pub fn print(text: &str) {
    os::STDOUT.write(text.as_bytes());
}

/// Writes to standard error without waiting for it.
pub fn print_error(text: &str) {
    os::STDERR.write(text.as_bytes());
}

/// Gives both streams a bounded time for what was written to them. To be called before the process ends.
pub fn flush() {
    os::STDOUT.flush(FLUSH_MAX / 2);
    os::STDERR.flush(FLUSH_MAX / 2);
}

/// A panic is a mistake of ours after which nothing is known of a shard's memory. A runtime would catch it and go on
/// with that shard; a node that ends is one that its clients, and whoever restarts it, can deal with.
pub fn abort_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        print_error(&panic_text(panic));
        flush();
        std::process::abort();
    }));
}

fn panic_text(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let backtrace = Backtrace::capture();
    let backtrace = match backtrace.status() {
        BacktraceStatus::Captured => backtrace.to_string(),
        _ => String::new(),
    };
    format!("thread {:?} {panic}\n{backtrace}", thread.name().unwrap_or("without a name"))
}

/// Says that lines are missing, at the least urgent level at which it is seen.
fn report_drops(dropped: u64) {
    let lines = if dropped == 1 { "line" } else { "lines" };
    if tracing::enabled!(tracing::Level::WARN) {
        tracing::warn!("{dropped} log {lines} dropped: the log could not be written as fast as it came");
    } else {
        tracing::error!("{dropped} log {lines} dropped: the log could not be written as fast as it came");
    }
}

/// The log's lines, each of which comes by one call.
struct Lines;

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        os::STDERR.write(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
