//! `annulet kv props` and `annulet kv types`: properties of buckets and of bucket types.
//!
//! They go by HTTP, which carries every property; protocol buffers have no field for some of them.

use super::args::{Bytes, BytesParser};
use crate::admin::http::{Answer, Node, encoded};
use crate::failure::{FAILED, Failure};
use crate::terms;
use serde_json::{Map, Value, json};
use std::io::{self, BufWriter, Write};

/// Commands for the properties of a bucket.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show a bucket's properties.
    Get(Get),
    /// Change some of a bucket's properties; the others stay.
    Set(Set),
    /// Reset a bucket to the properties of its type.
    Reset(Of),
}

/// A bucket.
#[derive(clap::Args)]
pub struct Of {
    #[command(flatten)]
    node: Node,
    /// The bucket's type.
    #[arg(long = "type", value_name = "TYPE")]
    bucket_type: Option<String>,
    #[arg(value_name = "BUCKET", value_parser = BytesParser)]
    bucket: Bytes,
}

/// Arguments of `props get`.
#[derive(clap::Args)]
pub struct Get {
    #[command(flatten)]
    of: Of,
    /// Print JSON in the form of HTTP: {"props":{...}}.
    #[arg(long)]
    json: bool,
}

/// Arguments of `props set`.
#[derive(clap::Args)]
pub struct Set {
    #[command(flatten)]
    of: Of,
    /// A property and its value: a number, true, false, JSON, or a text.
    #[arg(value_name = "NAME=VALUE", required = true, value_parser = property)]
    changes: Vec<(String, Value)>,
}

/// Arguments of `types`.
#[derive(clap::Args)]
pub struct Types {
    #[command(flatten)]
    node: Node,
    /// Show the properties of this active type [default: list all types and their status].
    #[arg(value_name = "TYPE")]
    name: Option<String>,
    /// Print JSON in the form of HTTP.
    #[arg(long)]
    json: bool,
}

/// Carries out what concerns a bucket.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Get(Get { of, json }) => show_props(&of.ask("GET", "")?, json),
        Command::Set(Set { of, changes }) => {
            let props: Map<String, Value> = changes.into_iter().collect();
            of.ask("PUT", &json!({ "props": props }).to_string()).map(drop)
        }
        Command::Reset(of) => of.ask("DELETE", "").map(drop),
    }
}

/// Shows bucket types.
pub fn types(args: &Types) -> Result<(), Failure> {
    if let Some(name) = &args.name {
        let path = format!("/types/{}/props", encoded(name.as_bytes()));
        return show_props(&good(args.node.ask("GET", &path, "")?)?, args.json);
    }
    let all = good(args.node.ask("GET", "/admin/bucket-types", "")?)?;
    if args.json {
        return print([all.to_string()]);
    }
    // A name that is no text is told percent-encoded.
    let text = |of: &Value, name: &str| {
        let beside = of[format!("{name}_percent_encoded")].as_str();
        of[name].as_str().or(beside).unwrap_or_default().to_owned()
    };
    let types = all["types"].as_array().into_iter().flatten();
    print(types.map(|it| format!("{:8} {}", text(it, "status"), text(it, "name"))))
}

impl Of {
    fn ask(&self, method: &str, body: &str) -> Result<Value, Failure> {
        let of_type = self.bucket_type.iter().map(|name| format!("/types/{}", encoded(name.as_bytes())));
        let path = format!("{}/buckets/{}/props", of_type.collect::<String>(), encoded(&self.bucket));
        good(self.node.ask(method, &path, body)?)
    }
}

/// The body of an answer that is no error.
fn good(Answer { status, body }: Answer) -> Result<Value, Failure> {
    if status < 300 {
        return Ok(body);
    }
    let reason = match body {
        Value::String(text) => terms::explained(&text),
        // Properties that cannot be, and why.
        Value::Object(reasons) => {
            let plain = |reason: &Value| reason.as_str().map_or_else(|| reason.to_string(), str::to_owned);
            let each = reasons.iter().map(|(name, reason)| {
                let reason = plain(reason);
                match terms::property(name, &reason) {
                    Some(meaning) => format!("{name} {meaning} ({reason})"),
                    None => format!("{name}: {reason}"),
                }
            });
            each.collect::<Vec<_>>().join("; ")
        }
        _ => format!("the node answered {status}"),
    };
    Err(Failure::new(FAILED, reason))
}

fn show_props(answer: &Value, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return print([answer.to_string()]);
    }
    let props = answer["props"].as_object().into_iter().flatten();
    print(props.map(|(name, value)| format!("{name}: {value}")))
}

fn print(lines: impl IntoIterator<Item = String>) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    lines.into_iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(out.flush()?)
}

/// A change of a property. What is no JSON is a text.
fn property(argument: &str) -> Result<(String, Value), String> {
    let (name, value) = argument.split_once('=').ok_or("there is no = in it")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_json_or_a_text() {
        for (argument, value) in [
            ("n_val=2", json!(2)),
            ("allow_mult=true", json!(true)),
            ("r=quorum", json!("quorum")),
            ("backend=a=b", json!("a=b")),
            ("precommit=[{\"name\":\"f\"}]", json!([{ "name": "f" }])),
            ("backend=", json!("")),
        ] {
            let (name, _) = argument.split_once('=').unwrap();
            assert_eq!(property(argument), Ok((name.to_owned(), value)));
        }
        assert!(property("n_val").is_err());
    }

    #[test]
    fn refusals_are_one_line() {
        let refused = |body| good(Answer { status: 400, body }).unwrap_err().text;
        assert_eq!(
            refused(json!({ "n_val": "not_integer", "r": "x" })),
            "n_val must be at least 1, a whole number (not_integer); r: x"
        );
        assert_eq!(refused(json!("Unknown bucket type: t")), "Unknown bucket type: t");
        assert_eq!(refused(Value::Null), "the node answered 400");
        assert_eq!(good(Answer { status: 204, body: Value::Null }).ok(), Some(Value::Null));
    }
}
