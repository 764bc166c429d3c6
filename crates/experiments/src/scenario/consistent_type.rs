//! The consistent bucket type of a scenario: created and activated at running nodes, as an operator would.
//!
//! Stores register some seconds after a start, and an activation before that is refused. So it is asked for again,
//! `ACTIVATION_MAX` at most. Then [`await_leaders`] waits until each group has a leader.

use super::nodes::Plan;
use bench::Error;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The properties of the type: three copies, so that groups survive the loss of a node.
const PROPERTIES: &str = "{\"props\":{\"consistent\":true,\"n_val\":3}}";

/// Time for the activation, and for leaders of all groups.
const ACTIVATION_MAX: Duration = Duration::from_secs(60);
const LEADERS_MAX: Duration = Duration::from_secs(60);

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// Creates a type of this name and activates it, by the first of the nodes.
///
/// # Errors
/// [`Error::Unusable`] with the words of the node that refused it.
pub fn make(name: &str, nodes: &[&Plan]) -> Result<(), Error> {
    admin(nodes[0], &["bucket-type", "create", name, PROPERTIES])?;
    let begin = Instant::now();
    while let Err(error) = admin(nodes[0], &["bucket-type", "activate", name]) {
        if begin.elapsed() > ACTIVATION_MAX {
            return Err(error);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Waits until no node holds a group without a leader.
///
/// # Errors
/// [`Error::Unusable`] if a group has none in time.
pub fn await_leaders(nodes: &[&Plan]) -> Result<(), Error> {
    let has_leaders = |node: &&Plan| {
        let counters = bench::counters(node.http);
        counters.and_then(|it| it.get("consistent_groups_without_leader").copied()) == Some(0.0)
    };
    let begin = Instant::now();
    while !nodes.iter().all(has_leaders) {
        if begin.elapsed() > LEADERS_MAX {
            return Err(Error::Unusable(format!(
                "consistent groups are without leaders after {LEADERS_MAX:?}"
            )));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// The prefixes of the groups that a node leads.
///
/// # Errors
/// [`Error::Unusable`] if the node does not tell.
pub fn led_prefixes(node: &Plan) -> Result<BTreeSet<u16>, Error> {
    let told = admin(node, &["strong", "status", "--all", "--json"])?;
    let status: Value = serde_json::from_slice(&told)
        .map_err(|error| Error::Unusable(format!("the status of groups is no JSON: {error}")))?;
    let groups = status["groups"].as_array().map(Vec::as_slice).unwrap_or_default();
    let led = groups.iter().filter(|group| group["role"] == "leader");
    Ok(led.filter_map(|group| group["prefix"].as_u64()?.try_into().ok()).collect())
}

/// Runs a command of an operator at a node; the text that it prints.
fn admin(node: &Plan, words: &[&str]) -> Result<Vec<u8>, Error> {
    let mut command = Command::new(&node.program);
    command.args(["admin", "--node", &node.http.to_string()]).args(words).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().map_err(Error::file(&node.program))?;
    match status.success() {
        true => Ok(stdout),
        false => {
            let told = String::from_utf8_lossy(&stderr);
            Err(Error::Unusable(format!("{}: {}", words.join(" "), told.trim_end())))
        }
    }
}
