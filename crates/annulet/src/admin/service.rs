//! `annulet admin wait-for-service`: for scripts that start a node and go on when it serves.

use super::http::Node;
use crate::failure::{FAILED, Failure};
use std::time::{Duration, Instant};

/// How often the node is asked.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Which node, and how long to wait.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    node: Node,
    /// Timeout in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

/// Waits until the node answers that it serves.
pub fn wait(args: &Args) -> Result<(), Failure> {
    let until = Instant::now() + Duration::from_secs(args.timeout);
    loop {
        let failure = match args.node.ask("GET", "/ping", "") {
            Ok(answer) if answer.status == 200 => return Ok(()),
            Ok(answer) => {
                Failure::new(FAILED, format!("the node answers {}: {}", answer.status, answer.body))
            }
            Err(failure) => failure,
        };
        if Instant::now() >= until {
            return Err(failure);
        }
        std::thread::sleep(ASK_EVERY);
    }
}
