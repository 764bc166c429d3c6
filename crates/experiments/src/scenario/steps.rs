//! Does each step at its time.

use super::network::Networks;
use super::nodes::Nodes;
use super::{Action, Scenario, Step, cgroup::Group};
use bench::Control;
use bench::Error;
use rustix::process::Signal;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Between two looks at the run's clock: a mark is drawn at the time at which its step was done, not planned.
const POLL: Duration = Duration::from_millis(10);

/// How a mark begins that says when a command has ended.
pub const DONE: &str = "done: ";

/// What steps are done to.
pub struct Stage<'a> {
    /// The processes.
    pub nodes: &'a mut Nodes,
    /// Their limits; empty if nothing is ever limited.
    pub groups: &'a [Group],
    /// Their networks, if they have their own.
    pub networks: Option<&'a Networks>,
}

impl Stage<'_> {
    /// Does the steps while the run goes on; ends with it. A step that fails ends the run.
    pub fn play(
        &mut self,
        scenario: &Scenario,
        control: &Control,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        for step in &scenario.steps {
            while control.elapsed_s().is_none_or(|now| now < step.at.as_secs_f64()) {
                if is_over() || control.is_stopped() {
                    return Ok(());
                }
                std::thread::sleep(POLL);
            }
            self.take(step, control)?;
        }
        Ok(())
    }

    fn take(&mut self, step: &Step, control: &Control) -> Result<(), Error> {
        let action = &step.action;
        let server = action.node().and_then(|node| u32::try_from(node).ok());
        control.mark(action.kind(), &action.text(), server);
        let done = self.act(action);
        if let Err(error) = &done {
            control.mark("note", &format!("failed: {}: {error}", action.text()), server);
            control.stop();
        } else if matches!(action, Action::Run(_)) {
            // What is done to a node is over at once, or when it serves.
            control.mark("note", &format!("{DONE}{}", action.text()), server);
        }
        done.map_err(|error| {
            Error::Unusable(format!("second {}: {}: {error}", step.at.as_secs_f64(), action.text()))
        })
    }

    fn act(&mut self, action: &Action) -> Result<(), Error> {
        let networks = || self.networks.ok_or_else(|| Error::Unusable("there are no networks".to_owned()));
        match action {
            Action::Kill(node) => self.nodes.kill(*node),
            Action::Stop(node) => self.nodes.stop(*node),
            Action::Start(node) => self.nodes.start(*node),
            Action::Restart(node) => self.nodes.stop(*node).and_then(|()| self.nodes.start(*node)),
            Action::Pause(node) => self.nodes.signal(*node, Signal::STOP),
            Action::Continue(node) => self.nodes.signal(*node, Signal::CONT),
            Action::Limit(node, limits) => self.groups[*node].limit(limits),
            Action::Cut(node, others) => networks()?.cut(*node, others),
            Action::Heal => networks()?.heal(),
            Action::Run(command) => self.run(command),
        }
    }

    /// Runs a command; `{n1.pb}`, `{n1.http}`, `{n1.data}` and so on stand for a node's places, `{n1.pid}` for its
    /// process, `{annulet}` for the program of the nodes.
    ///
    /// # Errors
    /// If it cannot be run, or fails; the text has its words.
    pub fn run(&self, command: &[String]) -> Result<(), Error> {
        let filled: Vec<String> = command.iter().map(|word| self.fill(word)).collect();
        let output = Command::new(&filled[0]).args(&filled[1..]).stdin(Stdio::null()).output();
        let output = output.map_err(Error::file(filled[0].as_ref()))?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(Error::Unusable(format!("{}: {}", output.status, said.trim_end())))
            }
        }
    }

    fn fill(&self, word: &str) -> String {
        let mut filled = word.to_owned();
        for ((at, plan), pid) in self.nodes.plans().enumerate().zip(self.nodes.pids()) {
            let node = at + 1;
            filled = filled.replace("{annulet}", &plan.program.display().to_string());
            filled = filled.replace(&format!("{{n{node}.pb}}"), &plan.pb.to_string());
            filled = filled.replace(&format!("{{n{node}.http}}"), &plan.http.to_string());
            filled = filled.replace(&format!("{{n{node}.data}}"), &plan.data.display().to_string());
            filled = filled.replace(&format!("{{n{node}.pid}}"), &pid.to_string());
        }
        filled
    }
}
