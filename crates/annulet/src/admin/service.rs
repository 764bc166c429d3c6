//! `annulet admin wait-for-service`: for scripts that start a node and go on when it is ready.
//!
//! A node of a version without `/health/ready` counts as ready when it answers `/ping`.

use super::http::{AdminNode, Answer};
use crate::failure::{FAILED, Failure};
use std::time::{Duration, Instant};

/// How often the node is asked.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Which node, and how long to wait.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    node: AdminNode,
    /// Timeout in seconds. With 0, the node is asked once.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    /// Wait until the node answers, ready or not: a check that its process is alive.
    #[arg(long)]
    live: bool,
}

/// Waits until the node is ready; with `--live`, until it answers.
pub fn wait(args: &Args) -> Result<(), Failure> {
    let until = Instant::now() + Duration::from_secs(args.timeout);
    loop {
        let failure = match args.look() {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        if Instant::now() >= until {
            return Err(failure);
        }
        std::thread::sleep(ASK_EVERY);
    }
}

impl Args {
    /// Asks the node once.
    fn look(&self) -> Result<(), Failure> {
        let ready = self.node.ask("GET", "/health/ready", "")?;
        match ready.status {
            200 => Ok(()),
            503 if self.live => Ok(()),
            404 => judge(&self.node.ask("GET", "/ping", "")?),
            _ => judge(&ready),
        }
    }
}

fn judge(answer: &Answer) -> Result<(), Failure> {
    if answer.status == 200 {
        return Ok(());
    }
    let reasons = answer.body["reasons"].as_array().into_iter().flatten().filter_map(|it| it.as_str());
    let reasons: Vec<&str> = reasons.collect();
    let text = match reasons.is_empty() {
        true => format!("the node answers {}: {}", answer.status, answer.body),
        false => format!("the node is not ready: {}", reasons.join("; ")),
    };
    Err(Failure::new(FAILED, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reasons_are_told_as_sentences() {
        let text = |status, body| judge(&Answer { status, body }).map_err(|failure| failure.text);
        assert_eq!(text(200, json!({ "ready": true, "reasons": [] })), Ok(()));
        let not_ready = json!({ "ready": false, "reasons": ["the node is starting", "no majority"] });
        assert_eq!(
            text(503, not_ready),
            Err("the node is not ready: the node is starting; no majority".to_owned())
        );
        assert_eq!(text(500, json!("x")), Err("the node answers 500: \"x\"".to_owned()));
    }
}
