//! From a scenario to its results.

use super::Scenario;
use super::cgroup::Group;
use super::network::{self, Networks};
use super::nodes::{Nodes, Plan};
use super::steps::Stage;
use bench::{Control, Error, Identity, Observer, Workload};
use results::Summary;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes the plan of a node, from 0: how the program is started is the program's to know.
pub type Launch<'a> = dyn Fn(usize) -> Result<Plan, Error> + 'a;

/// Plays a scenario and writes the results to `out`, which must be empty or missing.
///
/// # Errors
/// [`Error::Unusable`] before anything is started if the file or this machine does not allow it; later if a node or a
/// step failed, and then the results are those up to there.
pub fn play(
    scenario: &Scenario,
    launch: &Launch<'_>,
    out: &Path,
    identity: &Identity,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<Summary, Error> {
    let mut workload = Workload::read(&scenario.workload)?;
    if workload.driver.is_peer() {
        let what = format!(
            "a scenario has nodes of this program, and no server for the driver {}",
            workload.driver.name()
        );
        return Err(Error::Unusable(what));
    }
    if scenario.namespaces {
        Networks::check()?;
        if !network::is_apart() {
            return Err(Error::Unusable(
                "a scenario with networks runs in a namespace of its own".to_owned(),
            ));
        }
    }
    let count = usize::from(scenario.nodes);
    let mut plans = (0..count).map(launch).collect::<Result<Vec<Plan>, Error>>()?;
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
    let mut nodes = Nodes::start_all(plans, scenario.founders.into())?;
    if let Some(name) = &scenario.name {
        workload.name.clone_from(name);
    }
    let plans: Vec<&Plan> = nodes.plans().collect();
    workload.addresses = plans.iter().map(|plan| plan.pb.into()).collect();
    workload.clients = scenario.clients.iter().map(|&node| plans[node].pb.into()).collect();
    workload.stats = plans.iter().map(|plan| plan.http.into()).collect();
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

/// Writes what is to be there before the run. Nothing of it is kept: a write that fails is the end.
fn fill(count: u64, workload: &Workload, identity: &Identity, control: &Control) -> Result<(), Error> {
    for fill in workload.fills(count) {
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
        std::fs::write(&path, "driver = \"redis\"\n[[operation]]\nop = \"ping\"\n").unwrap();
        let scenario = Scenario { workload: path, ..Scenario::parse("workload = \"w.toml\"").unwrap() };
        let launch = |_| panic!("nothing is started");
        let (identity, control) = (Identity::default(), Control::default());
        let refused = play(&scenario, &launch, folder.path(), &identity, &control, &mut ()).unwrap_err();
        assert!(refused.to_string().contains("no server for the driver redis"), "{refused}");
    }
}
