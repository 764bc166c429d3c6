//! From a scenario to its results.

use super::cgroup::Group;
use super::network::{self, Networks};
use super::nodes::{Nodes, Plan};
use super::steps::Stage;
use super::{Program, Scenario, consistent_type, etcd};
use bench::workload::Retry;
use bench::{Control, Error, Identity, Observer, Workload};
use results::Summary;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Attempts of a write of the fill, and the pause between them: a consistent group on a busy machine may be without a
/// leader for some seconds.
const FILL_ATTEMPTS: u32 = 20;
const FILL_BACKOFF: Duration = Duration::from_millis(500);

/// Plays a scenario and writes the results to `out`, which must be empty or missing. Its nodes have these plans.
///
/// # Errors
/// [`Error::Unusable`] before anything is started if the file or this machine does not allow it; later if a node or a
/// step failed, and then the results are those up to there.
pub fn play(
    scenario: &Scenario,
    mut plans: Vec<Plan>,
    out: &Path,
    identity: &Identity,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<Summary, Error> {
    let mut workload = Workload::read(&scenario.workload)?;
    scenario.check_driver(workload.driver).map_err(Error::Unusable)?;
    scenario.check_program()?;
    if scenario.namespaces {
        Networks::check()?;
        if !network::is_apart() {
            return Err(Error::Unusable(
                "a scenario with networks runs in a namespace of its own".to_owned(),
            ));
        }
    }
    let count = usize::from(scenario.nodes);
    let mut groups = Vec::new();
    if scenario.has_limits() {
        for plan in &mut plans {
            std::fs::create_dir_all(&plan.data).map_err(Error::file(&plan.data))?;
            let group = Group::make(plan.name.split('@').next().unwrap_or("node"), &plan.data)?;
            group.limit(&scenario.limits)?;
            plan.groups = group.entrances();
            groups.push(group);
        }
    }
    let networks = scenario.namespaces.then(|| Networks::make(count)).transpose()?;
    if let Some(networks) = &networks {
        for (at, plan) in plans.iter_mut().enumerate() {
            plan.command.splice(0..0, networks.prefix(at));
        }
    }
    let mut nodes = start(scenario, plans)?;
    let stage = Stage { nodes: &mut nodes, groups: &groups, networks: networks.as_ref() };
    for command in &scenario.prepare {
        let failed = |error| Error::Unusable(format!("prepare: {}: {error}", command.join(" ")));
        stage.run(command).map_err(failed)?;
    }
    if let Some(name) = &scenario.name {
        workload.name.clone_from(name);
    }
    let plans: Vec<&Plan> = nodes.plans().collect();
    workload.addresses = plans.iter().map(|plan| plan.pb.into()).collect();
    workload.clients = scenario.clients.iter().map(|&node| plans[node].pb.into()).collect();
    if scenario.program == Program::Annulet {
        workload.stats = plans.iter().map(|plan| plan.http.into()).collect();
    }
    workload.data = plans.iter().map(|plan| plan.data.clone()).collect();
    workload.pids = nodes.pids();
    if scenario.fill > 0 {
        fill(scenario.fill, &workload, identity, control)?;
    }

    let is_over = AtomicBool::new(false);
    let (summary, played) = std::thread::scope(|scope| {
        let mut stage = Stage { nodes: &mut nodes, groups: &groups, networks: networks.as_ref() };
        let is_over = &is_over;
        let player = scope.spawn(move || stage.play(scenario, control, &|| is_over.load(Ordering::Relaxed)));
        let summary = bench::run(&workload, out, identity, control, observer);
        is_over.store(true, Ordering::Relaxed);
        (summary, player.join().expect("a step returns its errors"))
    });
    let stopped = nodes.stop_all();
    let summary = summary?;
    played?;
    stopped?;
    Ok(summary)
}

/// Starts the nodes that run from the start, and makes their consistent bucket type.
fn start(scenario: &Scenario, plans: Vec<Plan>) -> Result<Nodes, Error> {
    let founders = usize::from(scenario.founders);
    let mut nodes = Nodes::start_all(plans, founders)?;
    if scenario.program == Program::Annulet {
        nodes.await_peers(founders)?;
    }

    let plans: Vec<&Plan> = nodes.plans().take(founders).collect();
    match (scenario.program, &scenario.consistent_type) {
        (Program::Annulet, None) => {}
        (Program::Annulet, Some(name)) => {
            consistent_type::make(name, &plans)?;
            consistent_type::await_leaders(&plans)?;
        }
        (Program::Etcd, _) => etcd::await_leader(plans[0].pb)?,
    }
    Ok(nodes)
}

/// Writes the keys that are to be there before the run. Nothing of it is kept: a write that fails in all attempts is
/// the end.
fn fill(count: u64, workload: &Workload, identity: &Identity, control: &Control) -> Result<(), Error> {
    for mut fill in workload.fills(count) {
        fill.retry = Retry { attempts: FILL_ATTEMPTS, backoff: FILL_BACKOFF, on: Vec::new() };
        let folder = tempfile::tempdir().map_err(Error::file(&std::env::temp_dir()))?;
        let out = folder.path().join("fill");
        let summary = bench::run(&fill, &out, identity, &control.for_another(), &mut ())?;
        let failures = summary.verdict.failures.join("; ");
        if !summary.verdict.passed || summary.total.failed > 0 {
            let failed = summary.total.failed;
            return Err(Error::Unusable(format!(
                "the store could not be filled: {failed} writes failed {failures}"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_of_another_store_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.toml");
        let (identity, control) = (Identity::default(), Control::default());
        let refused = |driver: &str, program: &str| {
            std::fs::write(&path, format!("driver = \"{driver}\"\n[[operation]]\nop = \"ping\"\n")).unwrap();
            let text = format!("workload = \"w.toml\"\nprogram = \"{program}\"\n");
            let scenario = Scenario { workload: path.clone(), ..Scenario::parse(&text).unwrap() };
            // Without plans nothing can be started.
            let played = play(&scenario, Vec::new(), folder.path(), &identity, &control, &mut ());
            played.unwrap_err().to_string()
        };
        let (redis, pb) = (refused("redis", "annulet"), refused("pb", "etcd"));
        assert!(redis.contains("this program, and no server for the driver redis"), "{redis}");
        assert!(pb.contains("etcd, and no server for the driver pb"), "{pb}");
    }
}
