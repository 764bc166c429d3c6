//! `annulet admin strong recover --all`: the groups of nodes that were restored from backups.
//!
//! 1. All nodes are surveyed: which copies of groups they have, and whether they hold them back.
//! 2. The best copy of each group is chosen (`plan.rs`). The operator sees the counts.
//! 3. With `--accept-loss` the stores of nodes that are left out are declared lost, and the epoch of the foundings is
//!    raised. Then all nodes are surveyed again, in that epoch.
//! 4. Each node that holds its groups back gets its part of the choice, and goes on.
//!
//! After an interruption the command is repeated: nodes that have gone on have a majority in their groups, and the
//! others are chosen for again.
//!
//! Invariant: a node goes on only with the choice of its last survey, which is the node's check.

mod plan;

use std::io::Write;
use std::time::{Duration, Instant};

use self::plan::{Plan, Survey};
use super::cluster::taken;
use super::http::{Endpoint, NodeAddresses};
use super::login::LoginArgs;
use crate::failure::{FAILED, Failure};
use crate::plural::len;
use crate::report::Report;
use serde_json::json;

/// The longest wait for nodes to register their stores, and to hear of the epoch: some elections of the metadata log.
const READY_MAX: Duration = Duration::from_secs(30);

/// How often they are asked for that.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// The nodes that are asked.
#[derive(clap::Args)]
pub struct Nodes {
    #[command(flatten)]
    addresses: NodeAddresses,
    /// Member that is away for good, whose copies are given up. Its stores get no vote again.
    #[arg(long, value_name = "NAME@HOST", requires = "all")]
    without: Vec<String>,
    #[command(flatten)]
    login: LoginArgs,
}

/// Shows the choice among the copies of all groups, and carries it out if that is accepted.
pub fn run(nodes: &Nodes, is_accepted: bool) -> Result<(), Failure> {
    let endpoints = endpoints(nodes)?;
    let without = &nodes.without;
    let mut out = Report::of_stdout();
    let before = survey_all(&endpoints, |_| true)?;
    let plan = Plan::of(&before, without)?;
    if !is_accepted || plan.is_idle() {
        plan.tell(&mut out)?;
        return match plan.is_idle() {
            true => Ok(writeln!(out, "no node holds groups back: nothing to recover")?),
            false => {
                let end = "nothing was changed: --accept-loss recovers the groups, and lets the nodes go on";
                Ok(writeln!(out, "{end}")?)
            }
        };
    }

    let body = json!({ "nodes": without, "accept_loss": true });
    taken(endpoints[0].ask("POST", "/admin/cluster/declare-lost", &body.to_string())?)?;
    let old = before[0].epochs();
    let is_raised = |it: &Survey| it.epochs().iter().all(|(n_val, epoch)| old.get(n_val) < Some(epoch));
    let surveys = survey_all(&endpoints, is_raised)?;
    let plan = Plan::of(&surveys, without)?;
    plan.tell(&mut out)?;
    for (endpoint, survey) in endpoints.iter().zip(&surveys) {
        if let Some(groups) = plan.chosen.get(&survey.here) {
            let body = json!({ "survey": survey.survey, "epochs": survey.epochs(), "groups": groups });
            let answer = taken(endpoint.ask("POST", "/admin/strong/release", &body.to_string())?);
            answer.map_err(|failure| {
                Failure::new(failure.code, format!("{}: {}", survey.here, failure.text))
            })?;
            writeln!(
                out,
                "{} goes on with {}",
                survey.here,
                len(groups.values().map(Vec::len).sum(), "group")
            )?;
        }
    }

    survey_all(&endpoints, |it| it.registered)?;
    let end = "recovered: the nodes refill each other now, see `annulet admin strong status` at each";
    writeln!(out, "{end}")?;
    if plan.refused.is_empty() { Ok(()) } else { Err(Failure::new(FAILED, "")) }
}

fn endpoints(nodes: &Nodes) -> Result<Vec<Endpoint>, Failure> {
    let login = nodes.login.login()?;
    Ok(nodes
        .addresses
        .addresses()
        .into_iter()
        .map(|address| Endpoint::Address(address, login.clone()))
        .collect())
}

/// Surveys all nodes, once each of them holds its groups back or has registered its stores, and `is_ready`.
fn survey_all(endpoints: &[Endpoint], is_ready: impl Fn(&Survey) -> bool) -> Result<Vec<Survey>, Failure> {
    let begun = Instant::now();
    loop {
        let surveys = endpoints.iter().map(survey).collect::<Result<Vec<Survey>, Failure>>()?;
        let waits = |it: &&Survey| !(it.held || it.registered) || !is_ready(it);
        let same = surveys.windows(2).all(|two| two[0].epochs() == two[1].epochs());
        match surveys.iter().find(waits) {
            None if same => return Ok(surveys),
            _ if begun.elapsed() < READY_MAX => std::thread::sleep(ASK_EVERY),
            late => {
                let name = late.map_or("one of the nodes", |it| &it.here);
                let text = "has not registered its stores, or not heard of the recovery: try again";
                return Err(Failure::new(FAILED, format!("{name} {text}")));
            }
        }
    }
}

fn survey(endpoint: &Endpoint) -> Result<Survey, Failure> {
    let told = |text: &str| Failure::new(FAILED, format!("{endpoint}: {text}"));
    let answer = endpoint.ask("GET", "/admin/strong/copies", "")?;
    if answer.status == 404 {
        return Err(told("this node has an older version, without the recovery of restored nodes"));
    }
    let body = taken(answer).map_err(|failure| told(&failure.text))?;
    serde_json::from_value(body).map_err(|error| told(&format!("an unknown answer: {error}")))
}
