//! The process behind `annulet dev N`: it starts the nodes, takes their ends, and carries out requests of other
//! terminals.
//!
//! One thread decides, on events from the others: a node serves, a node's output has ended, a signal came, a request
//! came. `texts.rs` has the texts for people.
//!
//! * A node that ends leaves the others running, however it ended; what is shown says how, and how to start it again.
//! * A signal stops all nodes; a second one kills them. Then this process ends.
//! * It ends by itself only if all nodes have ended before any has served: then something is wrong with all of them.

mod texts;

use super::control::{self, Answer, Request};
use super::node::{Entry, JOIN, Plan, entry};
use super::secure::{Secured, turn_on};
use super::{Args, command_line};
use crate::failure::{FAILED, Failure};
use crate::log;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::{self, Receiver, Sender};
use texts::shown;

/// An event that the supervisor handles.
pub(super) enum Event {
    /// The node of this number, from 0, serves.
    Serves(usize),
    /// It has closed its output: it is gone, or about to be.
    Over(usize),
    /// This process was told to stop.
    Signal,
    /// Security is on, or cannot be turned on for this reason.
    Secured(Result<(), String>),
    /// Its terminal is gone, which is told twice.
    HangUp,
    /// Another terminal asks.
    Asked(Request, Sender<Answer>),
}

/// Runs the nodes until this process is told to stop, or none of them comes to serve. `lock` is held until then.
pub(super) fn run(
    args: &Args,
    data: &Path,
    (plans, secured): (Vec<Plan>, Option<Secured>),
    lock: File,
) -> Result<(), Failure> {
    let (tell, told) = mpsc::channel();
    // Before the first child, so that no signal leaves it behind.
    listen_to_signals(tell.clone())?;
    if let Err(error) = control::listen(data, tell.clone()) {
        // Nodes that cannot be asked about serve all the same.
        log::print_error(&format!("annulet: {}: {error}: other terminals cannot ask\n", data.display()));
    }
    let mut supervisor = Supervisor::new(args, data, (plans, secured), tell);
    let started = supervisor.start_all();
    if started.is_err() {
        supervisor.stop_all(Signal::TERM);
    }
    let ended = supervisor.watch(&told);
    drop(lock);
    started.and(ended)
}

fn listen_to_signals(tell: Sender<Event>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGQUIT, SIGHUP])?;
    let event = |signal| if signal == SIGHUP { Event::HangUp } else { Event::Signal };
    std::thread::spawn(move || signals.forever().try_for_each(|signal| tell.send(event(signal))));
    Ok(())
}

/// How far a node is.
enum State {
    Runs {
        child: Child,
        serves: bool,
    },
    /// With the exit code or the signal.
    Ended(String),
}

struct Node {
    plan: Plan,
    entry: Entry,
    state: State,
    /// It has served before, so its folder is its own.
    has_served: bool,
    /// Its end was asked for.
    is_expected: bool,
}

impl Node {
    fn child(&self) -> Option<&Child> {
        match &self.state {
            State::Runs { child, .. } => Some(child),
            State::Ended(_) => None,
        }
    }

    fn is_starting(&self) -> bool {
        matches!(self.state, State::Runs { serves: false, .. })
    }

    fn serves(&self) -> bool {
        matches!(self.state, State::Runs { serves: true, .. })
    }

    /// Sends a signal, if the process lives. Nobody has waited for it, so its number is still its own.
    fn signal(&self, signal: Signal) {
        if let Some(child) = self.child() {
            kill_process(Pid::from_child(child), signal).ok();
            // One that was paused hears of it now.
            kill_process(Pid::from_child(child), Signal::CONT).ok();
        }
    }
}

/// A terminal that waits until nodes serve or have ended.
struct Waiting {
    nodes: Vec<usize>,
    for_start: bool,
    answer: Sender<Answer>,
}

struct Supervisor<'a> {
    args: &'a Args,
    data: &'a Path,
    nodes: Vec<Node>,
    tell: Sender<Event>,
    waiting: Vec<Waiting>,
    is_stopping: bool,
    is_shown: bool,
    /// The files of a secured cluster.
    secured: Option<Secured>,
    securing: Securing,
}

/// The progress of turning security on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Securing {
    /// It waits for the nodes to serve.
    Waiting,
    UnderWay,
    /// Security is on, or is not asked for.
    Done,
}

impl<'a> Supervisor<'a> {
    fn new(
        args: &'a Args,
        data: &'a Path,
        (plans, secured): (Vec<Plan>, Option<Secured>),
        tell: Sender<Event>,
    ) -> Supervisor<'a> {
        // As the folders are before any node has begun.
        let all: Vec<&Plan> = plans.iter().collect();
        let entries: Vec<Entry> = plans.iter().map(|plan| entry(plan, &all)).collect();
        let node = |(plan, entry)| {
            let state = State::Ended("not started".to_owned());
            Node { plan, entry, state, has_served: false, is_expected: false }
        };
        let nodes = plans.into_iter().zip(entries).map(node).collect();
        let (waiting, is_stopping, is_shown) = (Vec::new(), false, false);
        let securing = if secured.is_some() { Securing::Waiting } else { Securing::Done };
        Supervisor { args, data, nodes, tell, waiting, is_stopping, is_shown, secured, securing }
    }

    fn start_all(&mut self) -> Result<(), Failure> {
        (0..self.nodes.len()).try_for_each(|at| self.start(at))
    }

    fn start(&mut self, at: usize) -> Result<(), Failure> {
        let node = &self.nodes[at];
        if node.has_served {
            let plans: Vec<&Plan> = self.nodes.iter().map(|node| &node.plan).collect();
            self.nodes[at].entry = entry(&node.plan, &plans);
        }
        let node = &mut self.nodes[at];
        node.is_expected = false;
        let child = node.plan.start(self.args, (&node.entry, self.secured.as_ref()), at, &self.tell)?;
        node.state = State::Runs { child, serves: false };
        Ok(())
    }

    fn stop_all(&mut self, signal: Signal) {
        self.is_stopping = true;
        self.nodes.iter().for_each(|node| node.signal(signal));
    }

    fn watch(&mut self, told: &Receiver<Event>) -> Result<(), Failure> {
        loop {
            let all_ended = self.nodes.iter().all(|node| node.child().is_none());
            if all_ended && self.is_stopping {
                return Ok(());
            }
            if all_ended && self.nodes.iter().all(|node| !node.has_served) {
                let ends = self.nodes.iter().map(|node| format!("{} {}", node.plan.name, shown(&node.state)));
                let what = ends.collect::<Vec<_>>().join(", ");
                return Err(Failure::new(FAILED, format!("no node came to serve: {what}")));
            }
            match told.recv().expect("the supervisor holds another end itself") {
                Event::Serves(at) => self.on_serves(at),
                Event::Over(at) => self.on_over(at)?,
                Event::Secured(Ok(())) => {
                    self.securing = Securing::Done;
                    self.show_when_started();
                }
                // The nodes are being stopped.
                Event::Secured(Err(_)) if self.is_stopping => {}
                Event::Secured(Err(error)) => {
                    log::print_error(&format!("annulet: security cannot be turned on: {error}\n"));
                    self.stop_all(Signal::TERM);
                }
                Event::Signal if self.is_stopping => self.stop_all(Signal::KILL),
                Event::Signal | Event::HangUp => self.stop_all(Signal::TERM),
                Event::Asked(request, answer) => self.on_asked(request, answer),
            }
            self.answer_waiting();
        }
    }

    fn on_serves(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let State::Runs { child, serves } = &mut node.state else { return };
        (*serves, node.has_served) = (true, true);
        if self.is_shown {
            log::print(&format!("{} serves, process {}\n", node.plan.name, child.id()));
        }
        self.show_when_started();
    }

    /// Shows the cluster once all nodes that live serve.
    fn show_when_started(&mut self) {
        let is_starting = self.nodes.iter().any(Node::is_starting);
        let any_serves = self.nodes.iter().any(Node::serves);
        if self.is_shown || self.is_stopping || !any_serves || is_starting {
            return;
        }
        match self.securing {
            Securing::Waiting => self.turn_security_on(),
            Securing::UnderWay => {}
            Securing::Done => {
                self.is_shown = true;
                log::print(&self.opening());
            }
        }
    }

    /// Turns security on, on a thread of its own: signals and requests are taken meanwhile.
    fn turn_security_on(&mut self) {
        let Some(secured) = &self.secured else { return };
        let Some(node) = self.nodes.iter().find(|node| node.serves()) else { return };
        self.securing = Securing::UnderWay;
        let (folder, tell) = (node.plan.folder.clone(), self.tell.clone());
        let password = secured.password();
        std::thread::spawn(move || {
            let turned = password.map_err(|failure| failure.text);
            let turned = turned.and_then(|password| turn_on(&folder, &password));
            // Nobody listens any more if all was stopped.
            tell.send(Event::Secured(turned)).ok();
        });
    }

    fn on_over(&mut self, at: usize) -> Result<(), Failure> {
        let node = &mut self.nodes[at];
        let State::Runs { child, .. } = &mut node.state else { return Ok(()) };
        let status = child.wait()?;
        node.plan.forget_pid();
        node.state = State::Ended(status.to_string());
        if !self.is_stopping || !(status.success() || node.is_expected) {
            let text = self.ending(at, status.success());
            log::print_error(&text);
        }
        self.show_when_started();
        Ok(())
    }

    /// The message about a node that has ended.
    fn ending(&self, at: usize, well: bool) -> String {
        let Node { plan, state, is_expected, .. } = &self.nodes[at];
        let others = if self.is_stopping { "" } else { "; the others go on" };
        let mut text = format!("{} {}{others}\n", plan.name, shown(state));
        if !well && !is_expected {
            text.push_str(&format!("  its log, {}, ends with:\n", plan.log().display()));
            text.push_str(&plan.last_log_lines("    "));
        }
        if !self.is_stopping {
            text.push_str(&self.how_to_start(at));
        }
        text
    }

    fn how_to_start(&self, at: usize) -> String {
        format!("  start it again: {}\n", command_line(self.data, &format!("start {}", at + 1)))
    }

    fn on_asked(&mut self, request: Request, answer: Sender<Answer>) {
        let result = match &request {
            _ if self.is_stopping => Err("the cluster is being stopped".to_owned()),
            Request::Status => Ok(Some(self.status())),
            Request::Env(nodes) => self.env(nodes).map(Some),
            Request::Kill(nodes) => self.end(nodes, Signal::KILL).map(|()| None),
            Request::Stop(nodes) => self.end(nodes, Signal::TERM).map(|()| None),
            Request::Start(nodes) => self.start_again(nodes).map(|()| None),
        };
        let (for_start, nodes) = match request {
            Request::Status | Request::Env(_) => (false, Vec::new()),
            Request::Start(nodes) => (true, nodes),
            Request::Kill(nodes) | Request::Stop(nodes) => (false, nodes),
        };
        match result {
            Ok(None) => {
                let nodes = nodes.into_iter().map(|node| usize::from(node) - 1).collect();
                self.waiting.push(Waiting { nodes, for_start, answer });
            }
            // Whoever asked may have gone.
            Ok(Some(text)) => drop(answer.send(Ok(text))),
            Err(text) => drop(answer.send(Err(text))),
        }
    }

    /// The nodes of these numbers, of which all or none must run.
    fn chosen(&self, nodes: &[u16], running: bool) -> Result<Vec<usize>, String> {
        let mut chosen = Vec::new();
        for &number in nodes {
            let at = usize::from(number).checked_sub(1).filter(|&at| at < self.nodes.len());
            let at = at.ok_or_else(|| match self.nodes.len() {
                1 => format!("there is no node {number}: the cluster has node 1 only"),
                many => format!("there is no node {number}: the cluster has nodes 1 to {many}"),
            })?;
            let Node { plan, .. } = &self.nodes[at];
            match self.nodes[at].child() {
                Some(child) if !running => {
                    return Err(format!("{} runs already, as process {}", plan.name, child.id()));
                }
                None if running => {
                    let start = command_line(self.data, &format!("start {number}"));
                    return Err(format!("{} does not run; `{start}` starts it", plan.name));
                }
                _ if !chosen.contains(&at) => chosen.push(at),
                _ => {}
            }
        }
        Ok(chosen)
    }

    fn end(&mut self, nodes: &[u16], signal: Signal) -> Result<(), String> {
        for at in self.chosen(nodes, true)? {
            self.nodes[at].is_expected = true;
            self.nodes[at].signal(signal);
        }
        Ok(())
    }

    fn start_again(&mut self, nodes: &[u16]) -> Result<(), String> {
        let chosen = self.chosen(nodes, false)?;
        chosen.into_iter().try_for_each(|at| self.start(at)).map_err(|failure| failure.text)
    }

    /// Answers terminals whose nodes have reached their state.
    fn answer_waiting(&mut self) {
        for waiting in std::mem::take(&mut self.waiting) {
            let is_done = |&at: &usize| match self.nodes[at].state {
                State::Runs { serves, .. } => serves && waiting.for_start,
                State::Ended(_) => true,
            };
            if !waiting.nodes.iter().all(is_done) {
                self.waiting.push(waiting);
                continue;
            }
            // Whoever asked may have gone.
            waiting.answer.send(self.outcome(&waiting)).ok();
        }
    }

    fn outcome(&self, waiting: &Waiting) -> Answer {
        let mut text = String::new();
        let mut failed = false;
        for &at in &waiting.nodes {
            let Node { plan, state, .. } = &self.nodes[at];
            text.push_str(&format!("{} {}\n", plan.name, shown(state)));
            match (state, waiting.for_start) {
                (State::Ended(_), true) => {
                    failed = true;
                    text.push_str(&format!("  its log, {}, ends with:\n", plan.log().display()));
                    text.push_str(&plan.last_log_lines("    "));
                }
                (State::Ended(_), false) => text.push_str(&self.how_to_start(at)),
                _ => {}
            }
        }
        if failed { Err(text.trim_end().to_owned()) } else { Ok(text) }
    }

    /// The line for a shell that names a node: the one that was chosen, or the first that serves.
    fn env(&self, nodes: &[u16]) -> Answer {
        let node = match self.chosen(nodes, true)?.first() {
            Some(&at) => Some(&self.nodes[at]),
            None => self.nodes.iter().find(|node| node.serves()),
        };
        node.map(|node| self.export(&node.plan)).ok_or_else(|| "no node serves".to_owned())
    }
}
