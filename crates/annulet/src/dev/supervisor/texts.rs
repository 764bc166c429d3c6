//! The texts about the nodes: the table, the banner of a cluster that has just started, and lines for a shell.

use super::{JOIN, Plan, State, Supervisor, command_line};
use crate::program;

impl Supervisor<'_> {
    pub(super) fn status(&self) -> String {
        let running = self.nodes.iter().filter(|node| node.child().is_some()).count();
        format!("{running} of {} run\n{}", nodes(self.nodes.len()), self.table())
    }

    fn table(&self) -> String {
        let is_secured = self.secured.is_some();
        let http = if is_secured { "HTTPS" } else { "HTTP" };
        let heading = ["node", "protocol buffers", http, "peers", "pid", "state", "folder"];
        let mut rows = vec![heading.map(str::to_owned)];
        rows.extend(self.nodes.iter().map(|node| {
            let Plan { name, pb, peers, folder, .. } = &node.plan;
            let http = if is_secured { &node.plan.https } else { &node.plan.http };
            let pid = node.child().map_or("-".to_owned(), |child| child.id().to_string());
            let state = if node.serves() { "serves".to_owned() } else { shown(&node.state) };
            [name.clone(), pb.clone(), http.clone(), peers.clone(), pid, state, folder.display().to_string()]
        }));
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..heading.len()).map(width).collect();
        let line = |row: &[String; 7]| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
        };
        rows.iter().map(line).collect()
    }

    /// The banner of a cluster that has just started.
    pub(super) fn opening(&self) -> String {
        let program = program::name();
        let (first, last) = (&self.nodes[0].plan, &self.nodes[self.nodes.len() - 1].plan);
        let mut text = format!("{}; Ctrl-C stops all\n{}", nodes(self.nodes.len()), self.table());
        if self.nodes.iter().any(|node| node.entry[0] == JOIN) {
            let node = match &self.secured {
                Some(_) => format!("--data {}", program::quoted(&first.folder.display().to_string())),
                None => format!("--node {}", first.http),
            };
            text.push_str(&format!(
                "nodes that are new own nothing yet:\n  {program} admin cluster plan {node}\n  \
                 {program} admin cluster commit {node}\n"
            ));
        }
        let last_number = self.nodes.len();
        text.push_str("from another terminal:\n");
        for words in ["status".to_owned(), format!("kill {last_number}"), format!("start {last_number}")] {
            text.push_str(&format!("  {}\n", command_line(self.data, &words)));
        }
        if let Some(secured) = &self.secured {
            text.push_str(&format!("{}\n", secured.users()));
        }
        text.push_str(&format!(
            "which node `annulet kv` and `annulet admin` ask (or: eval \"$({})\"):\n  {}",
            command_line(self.data, "env"),
            self.export(first)
        ));
        text.push_str(&self.to_try(&program, first, last));
        text
    }

    /// Commands to begin with.
    fn to_try(&self, program: &str, first: &Plan, last: &Plan) -> String {
        match &self.secured {
            None => format!(
                "try it:\n  {program} kv put --node {} books dune 'A beginning is a very delicate time.'\n  \
                 {program} kv get --node {} books dune\n",
                first.http, last.http
            ),
            Some(secured) => format!(
                "try it, behind the line with export:\n  {program} admin security whoami\n  \
                 {program} kv put books dune 'A beginning is a very delicate time.'\n\
                 as a program with a client certificate does:\n  \
                 env -u ANNULET_USER -u ANNULET_PASSWORD_FILE {program} kv get --node {} {} books dune\n",
                last.pb,
                secured.app_flags()
            ),
        }
    }

    /// A line for a shell after which the command line asks this node.
    pub(super) fn export(&self, plan: &Plan) -> String {
        match &self.secured {
            Some(secured) => secured.export(&plan.https),
            None => format!("export ANNULET_NODE={}\n", plan.http),
        }
    }
}

/// How far a node is, in words that follow its name.
pub(super) fn shown(state: &State) -> String {
    match state {
        State::Runs { serves: false, .. } => "starts".to_owned(),
        State::Runs { child, .. } => format!("serves, process {}", child.id()),
        State::Ended(how) => format!("ended ({how})"),
    }
}

fn nodes(number: usize) -> String {
    crate::plural::len(number, "node")
}
