//! What a scenario's file says. Strict: a key that means nothing is refused, with its line.

use super::{LoginFiles, etcd};
use bench::Error;
use bench::workload::DriverKind;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// More nodes would only compete for this machine.
pub const NODES_MAX: u16 = 16;

/// More keys would take hours to write.
const FILL_MAX: u64 = 1_000_000_000;

/// A scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name; the workload's if it has none.
    pub name: Option<String>,
    /// The workload, whose addresses are replaced by those of the nodes.
    pub workload: PathBuf,
    /// How many keys of each bucket are written before the run.
    pub fill: u64,
    /// How many nodes; one is a node alone.
    pub nodes: u16,
    /// How many of them found the cluster and run from the start: the first. The others join when a step starts them.
    pub founders: u16,
    /// The nodes that clients connect to, from 0.
    pub clients: Vec<usize>,
    /// Node i listens on this port + 10 i + 7 (protocol buffers), + 8 (HTTP) and + 9 (other nodes).
    pub base_port: u16,
    /// Options of every node, by their names in a configuration file.
    pub options: BTreeMap<String, String>,
    /// The program of every node.
    pub program: Program,
    /// The consistent bucket type that is made before the fill; none if it is not said.
    pub consistent_type: Option<String>,
    /// Commands that are run before the fill, in order; each must succeed.
    pub prepare: Vec<Vec<String>>,
    /// The login of the fill and the load; none without security.
    pub login: Option<LoginFiles>,
    /// What every node is limited to from its start.
    pub limits: Limits,
    /// Whether each node has a network namespace of its own, so that it can be cut from others.
    pub namespaces: bool,
    /// What is done, in order.
    pub steps: Vec<Step>,
}

/// The program of the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Program {
    /// This one.
    #[default]
    Annulet,
    /// Members of an etcd, as a rival.
    Etcd,
}

/// What a node is limited to by a control group.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes of memory, page cache included.
    pub memory_mib: Option<u64>,
    /// Reads a second of the disk under the data.
    pub read_iops: Option<u64>,
    /// Writes a second of it.
    pub write_iops: Option<u64>,
}

impl Limits {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }
}

/// Something that is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When, since the start of the run, warm-up included.
    pub at: Duration,
    /// What.
    pub action: Action,
}

/// What can be done. Nodes count from 0 here, and from 1 in files.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Kills a node as a crash does.
    Kill(usize),
    /// Stops a node cleanly, and waits until it is gone.
    Stop(usize),
    /// Starts a node that was killed or stopped, or one that joins.
    Start(usize),
    /// Both.
    Restart(usize),
    /// Halts a node: it is there, and does nothing.
    Pause(usize),
    /// Lets it go on.
    Continue(usize),
    /// Changes a node's limits.
    Limit(usize, Limits),
    /// Cuts all traffic between a node and others.
    Cut(usize, Vec<usize>),
    /// Mends all cuts.
    Heal,
    /// Runs a command; it must succeed.
    Run(Vec<String>),
}

impl Action {
    /// Which node it is done to.
    pub fn node(&self) -> Option<usize> {
        match *self {
            Action::Kill(node)
            | Action::Stop(node)
            | Action::Start(node)
            | Action::Restart(node)
            | Action::Pause(node)
            | Action::Continue(node)
            | Action::Limit(node, _)
            | Action::Cut(node, _) => Some(node),
            Action::Heal | Action::Run(_) => None,
        }
    }

    /// How a chart marks it: `fault`, `repair` or `job`.
    pub fn kind(&self) -> &'static str {
        match self {
            Action::Kill(_) | Action::Stop(_) | Action::Pause(_) | Action::Cut(..) | Action::Restart(_) => {
                "fault"
            }
            Action::Start(_) | Action::Continue(_) | Action::Heal => "repair",
            Action::Limit(..) | Action::Run(_) => "job",
        }
    }

    /// What it is, in a few words.
    pub fn text(&self) -> String {
        match self {
            Action::Kill(node) => format!("kill n{}", node + 1),
            Action::Stop(node) => format!("stop n{}", node + 1),
            Action::Start(node) => format!("start n{}", node + 1),
            Action::Restart(node) => format!("restart n{}", node + 1),
            Action::Pause(node) => format!("pause n{}", node + 1),
            Action::Continue(node) => format!("continue n{}", node + 1),
            Action::Limit(node, _) => format!("limit n{}", node + 1),
            Action::Cut(node, others) => {
                let others: Vec<String> = others.iter().map(|other| format!("n{}", other + 1)).collect();
                format!("cut n{} from {}", node + 1, others.join(", "))
            }
            Action::Heal => "heal".to_owned(),
            Action::Run(command) => format!("run {}", command.join(" ")),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    workload: PathBuf,
    #[serde(default)]
    fill: u64,
    #[serde(default = "one")]
    nodes: u16,
    founders: Option<u16>,
    clients: Option<Vec<u16>>,
    #[serde(default = "base_port")]
    base_port: u16,
    #[serde(default)]
    options: BTreeMap<String, Setting>,
    #[serde(default)]
    program: Program,
    consistent_type: Option<String>,
    #[serde(default)]
    prepare: Vec<Vec<String>>,
    login: Option<LoginFiles>,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    namespaces: bool,
    #[serde(default, rename = "at")]
    steps: Vec<FileStep>,
}

fn one() -> u16 {
    1
}

fn base_port() -> u16 {
    13_000
}

/// An option's value: a number or a truth needs no quotes.
#[derive(Deserialize)]
#[serde(untagged)]
enum Setting {
    Word(String),
    Number(i64),
    Truth(bool),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileStep {
    second: f64,
    #[serde(rename = "do")]
    action: Word,
    node: Option<u16>,
    from: Option<Vec<u16>>,
    command: Option<Vec<String>>,
    memory_mib: Option<u64>,
    read_iops: Option<u64>,
    write_iops: Option<u64>,
    /// After so many seconds, the opposite.
    #[serde(rename = "for")]
    lasting: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    Kill,
    Stop,
    Start,
    Restart,
    Pause,
    Continue,
    Limit,
    Cut,
    Heal,
    Run,
}

impl Scenario {
    /// Reads a scenario's file. The workload is beside it.
    pub fn read(path: &Path) -> Result<Scenario, Error> {
        let text = fs::read_to_string(path).map_err(Error::file(path))?;
        let mut scenario =
            Scenario::parse(&text).map_err(|what| Error::Unusable(format!("{}: {what}", path.display())))?;
        scenario.workload = path.parent().unwrap_or(Path::new("")).join(&scenario.workload);
        Ok(scenario)
    }

    /// Reads a scenario's text; what is wrong with it otherwise.
    pub fn parse(text: &str) -> Result<Scenario, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        if !(1..=NODES_MAX).contains(&file.nodes) {
            return Err(format!("nodes: from 1 to {NODES_MAX}"));
        }
        if file.base_port.checked_add(10 * file.nodes + 9).is_none() {
            return Err("base_port: the last port would be beyond 65535".to_owned());
        }
        if file.fill > FILL_MAX {
            return Err(format!("fill: {FILL_MAX} at most"));
        }
        let founders = file.founders.unwrap_or(file.nodes);
        if !(1..=file.nodes).contains(&founders) {
            return Err(format!("founders: from 1 to {}, all nodes", file.nodes));
        }
        let clients: Vec<u16> = file.clients.unwrap_or_else(|| (1..=founders).collect());
        if clients.is_empty() || !clients.iter().all(|node| (1..=founders).contains(node)) {
            return Err(format!("clients: nodes that run from the start, 1 to {founders}"));
        }
        if file.program == Program::Etcd {
            let is_whole = founders == file.nodes && file.options.is_empty();
            if !is_whole || file.consistent_type.is_some() || file.login.is_some() {
                let what = "program \"etcd\": it has no options, consistent_type, login and later founders";
                return Err(what.to_owned());
            }
        }
        if file.prepare.iter().any(Vec::is_empty) {
            return Err("prepare: a command has a program at least".to_owned());
        }
        let mut steps = Vec::new();
        for (at, step) in file.steps.iter().enumerate() {
            let wrong = |what: String| format!("step {} (second {}): {what}", at + 1, step.second);
            steps.extend(step.steps(file.nodes).map_err(wrong)?);
        }
        steps.sort_by_key(|step| step.at);
        let needs_namespaces = steps.iter().any(|step| matches!(step.action, Action::Cut(..) | Action::Heal));
        if needs_namespaces && !file.namespaces {
            return Err(
                "cuts need `namespaces = true`: only then has each node a network of its own".to_owned()
            );
        }
        let text_of = |value: Setting| match value {
            Setting::Word(text) => text,
            Setting::Number(number) => number.to_string(),
            Setting::Truth(truth) => truth.to_string(),
        };
        Ok(Scenario {
            name: file.name,
            workload: file.workload,
            fill: file.fill,
            nodes: file.nodes,
            founders,
            clients: clients.into_iter().map(|node| usize::from(node) - 1).collect(),
            base_port: file.base_port,
            options: file.options.into_iter().map(|(name, value)| (name, text_of(value))).collect(),
            program: file.program,
            consistent_type: file.consistent_type,
            prepare: file.prepare,
            login: file.login,
            limits: file.limits,
            namespaces: file.namespaces,
            steps,
        })
    }

    /// That the program of its nodes is there.
    ///
    /// # Errors
    /// [`Error::Unusable`] with the package to install.
    pub fn check_program(&self) -> Result<(), Error> {
        match self.program {
            Program::Annulet => Ok(()),
            Program::Etcd => etcd::check(),
        }
    }

    /// That a workload has a driver for its nodes; why not otherwise.
    pub fn check_driver(&self, driver: DriverKind) -> Result<(), String> {
        let (fits, program) = match self.program {
            Program::Annulet => (!driver.is_peer(), "this program"),
            Program::Etcd => (driver == DriverKind::Etcd, "etcd"),
        };
        let name = driver.name();
        match fits {
            true => Ok(()),
            false => Err(format!("the scenario has nodes of {program}, and no server for the driver {name}")),
        }
    }

    /// Whether control groups are needed, now or later.
    pub fn has_limits(&self) -> bool {
        !self.limits.is_empty() || self.steps.iter().any(|step| matches!(step.action, Action::Limit(..)))
    }

    /// The address of a node, from 0.
    pub fn host(&self, node: usize) -> IpAddr {
        let last = u8::try_from(node + 1).expect("there are few nodes");
        IpAddr::V4(if self.namespaces { Ipv4Addr::new(10, 77, 0, last) } else { Ipv4Addr::LOCALHOST })
    }
}

impl FileStep {
    /// This step, and the one that ends it if it lasts.
    fn steps(&self, nodes: u16) -> Result<Vec<Step>, String> {
        let at = seconds(self.second)?;
        let action = self.action(nodes)?;
        let Some(lasting) = self.lasting else { return Ok(vec![Step { at, action }]) };
        let end = match &action {
            Action::Pause(node) => Action::Continue(*node),
            Action::Kill(node) | Action::Stop(node) => Action::Start(*node),
            Action::Cut(..) => Action::Heal,
            _ => return Err("`for` goes with pause, kill, stop and cut".to_owned()),
        };
        Ok(vec![Step { at, action }, Step { at: at + seconds(lasting)?, action: end }])
    }

    fn action(&self, nodes: u16) -> Result<Action, String> {
        let index = |number: u16| match (1..=nodes).contains(&number) {
            true => Ok(usize::from(number) - 1),
            false => Err(format!("there is no node {number}, they are 1 to {nodes}")),
        };
        let takes_node = !matches!(self.action, Word::Heal | Word::Run);
        let given = [
            ("node", self.node.is_some(), takes_node),
            ("from", self.from.is_some(), self.action == Word::Cut),
            ("command", self.command.is_some(), self.action == Word::Run),
            ("memory_mib", self.memory_mib.is_some(), self.action == Word::Limit),
            ("read_iops", self.read_iops.is_some(), self.action == Word::Limit),
            ("write_iops", self.write_iops.is_some(), self.action == Word::Limit),
        ];
        if let Some((name, ..)) = given.iter().find(|(_, is_given, fits)| *is_given && !fits) {
            return Err(format!("`{name}` means nothing here"));
        }
        let node = || index(self.node.ok_or("`node` is missing")?);
        Ok(match self.action {
            Word::Kill => Action::Kill(node()?),
            Word::Stop => Action::Stop(node()?),
            Word::Start => Action::Start(node()?),
            Word::Restart => Action::Restart(node()?),
            Word::Pause => Action::Pause(node()?),
            Word::Continue => Action::Continue(node()?),
            Word::Limit => {
                let limits = Limits {
                    memory_mib: self.memory_mib,
                    read_iops: self.read_iops,
                    write_iops: self.write_iops,
                };
                if limits.is_empty() {
                    return Err("`memory_mib`, `read_iops` or `write_iops` is missing".to_owned());
                }
                Action::Limit(node()?, limits)
            }
            Word::Cut => {
                let node = node()?;
                let others: Vec<usize> = match &self.from {
                    None => (0..usize::from(nodes)).filter(|&other| other != node).collect(),
                    Some(from) => from.iter().map(|&other| index(other)).collect::<Result<_, _>>()?,
                };
                if others.is_empty() || others.contains(&node) {
                    return Err("a node is cut from others".to_owned());
                }
                Action::Cut(node, others)
            }
            Word::Heal => Action::Heal,
            Word::Run => match &self.command {
                Some(command) if !command.is_empty() => Action::Run(command.clone()),
                _ => return Err("`command` is missing".to_owned()),
            },
        })
    }
}

/// A time; a day is longer than any scenario.
fn seconds(value: f64) -> Result<Duration, String> {
    match (0.0..=86_400.0).contains(&value) {
        true => Ok(Duration::from_secs_f64(value)),
        false => Err("a time is from 0 to 86400 seconds".to_owned()),
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
