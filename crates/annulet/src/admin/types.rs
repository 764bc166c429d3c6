//! `annulet admin bucket-type`: bucket types, with the words of `riak-admin bucket-type`.

use super::http::{AdminNode, Answer, encoded};
use crate::failure::{FAILED, Failure};
use crate::terms;
use serde_json::{Map, Value};
use std::io::{self, Write};

/// Commands for bucket types.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Create a type, or replace one that is not active yet.
    Create(WithProps),
    /// Change properties of an active type; the others stay.
    Update(WithProps),
    /// Activate a type, for good. Every node of the cluster must be reachable.
    Activate(Named),
    /// Show a type's status and properties.
    Status(Named),
    /// List all types.
    List(AdminNode),
}

/// A type and properties.
#[derive(clap::Args)]
pub struct WithProps {
    #[command(flatten)]
    node: AdminNode,
    /// The type.
    #[arg(value_name = "TYPE")]
    name: String,
    /// Its properties, as {"props":{"allow_mult":false}}.
    #[arg(value_name = "JSON", default_value = "")]
    props: String,
}

/// A type.
#[derive(clap::Args)]
pub struct Named {
    #[command(flatten)]
    node: AdminNode,
    /// The type.
    #[arg(value_name = "TYPE")]
    name: String,
}

/// Does it.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Create(args) => args.send("PUT", "creating", "created"),
        Command::Update(args) => args.send("POST", "updating", "updated"),
        Command::Activate(named) => named.activate(),
        Command::Status(named) => named.show(),
        Command::List(node) => list(node),
    }
}

impl WithProps {
    fn send(&self, method: &str, doing: &str, done: &str) -> Result<(), Failure> {
        let Answer { status, body } = self.node.ask(method, &path(&self.name), &self.props)?;
        if status < 300 {
            return say(&format!("{} {done}", self.name));
        }
        if error_of(&body) == "invalid json" {
            let verb = doing.replace("ing", "e");
            return failed(format!("Cannot {verb} bucket type {}: invalid json", self.name));
        }
        failed(format!("Error {doing} bucket type {}:\n{}", self.name, reasons(&body)))
    }
}

impl Named {
    fn activate(&self) -> Result<(), Failure> {
        let Answer { status, body } = self.node.ask("POST", &format!("{}/activate", path(&self.name)), "")?;
        match error_of(&body).as_str() {
            _ if status < 300 => say(&format!("{} has been activated", self.name)),
            "undefined" => failed(format!("{} is not an existing bucket type", self.name)),
            "not_ready" => failed(format!("{} has been created but cannot be activated yet", self.name)),
            other => failed(format!("Error activating bucket type {}:\n{other}", self.name)),
        }
    }

    fn show(&self) -> Result<(), Failure> {
        let Answer { status, body } = self.node.ask("GET", &path(&self.name), "")?;
        if status == 404 {
            return failed(format!("{} is not an existing bucket type", self.name));
        }
        if status >= 300 {
            return failed(error_of(&body));
        }
        say(&match body["status"].as_str() {
            Some("active") => format!("{} is active", self.name),
            Some("ready") => format!("{} has been created and may be activated", self.name),
            _ => format!("{} has been created but cannot be activated yet", self.name),
        })?;
        say("")?;
        let props = body["props"].as_object().cloned().unwrap_or_default();
        props.iter().try_for_each(|(name, value)| say(&format!("{name}: {value}")))
    }
}

fn list(node: &AdminNode) -> Result<(), Failure> {
    let Answer { status, body } = node.ask("GET", "/admin/bucket-types", "")?;
    if status >= 300 {
        return failed(error_of(&body));
    }
    for entry in body["types"].as_array().into_iter().flatten() {
        let active = if entry["status"] == "active" { "active" } else { "not active" };
        // A name that is no text is told percent-encoded.
        let name = entry["name"].as_str().or(entry["name_percent_encoded"].as_str());
        say(&format!("{} ({active})", name.unwrap_or_default()))?;
    }
    Ok(())
}

fn path(name: &str) -> String {
    format!("/admin/bucket-types/{}", encoded(name.as_bytes()))
}

fn say(line: &str) -> Result<(), Failure> {
    Ok(writeln!(io::stdout(), "{line}")?)
}

fn failed(text: String) -> Result<(), Failure> {
    Err(Failure::new(FAILED, text))
}

fn error_of(body: &Value) -> String {
    body["error"].as_str().or(body.as_str()).unwrap_or_default().to_owned()
}

/// What is wrong, a line for each property.
fn reasons(body: &Value) -> String {
    let Some(props) = body["props"].as_object() else { return error_of(body) };
    let line = |(name, reason): (&String, &Value)| {
        let reason = reason.as_str().unwrap_or_default();
        match terms::property(name, reason) {
            Some(meaning) => format!("{name} {meaning}"),
            None => reason.to_owned(),
        }
    };
    let lines = |props: &Map<String, Value>| props.iter().map(line).collect::<Vec<_>>().join("\n");
    lines(props)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_line_by_line() {
        let body = serde_json::json!({
            "error": "invalid properties",
            "props": { "n_val": "not_integer", "write_once": "Cannot modify write_once property once set to true" },
        });
        assert_eq!(
            reasons(&body),
            "n_val must be at least 1, a whole number\nCannot modify write_once property once set to true"
        );
        assert_eq!(reasons(&serde_json::json!({ "error": "already_active" })), "already_active");
        assert_eq!(reasons(&Value::String("overload".to_owned())), "overload");
    }
}
