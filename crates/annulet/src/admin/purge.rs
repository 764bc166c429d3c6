//! `annulet admin reap`, `erase`: tombstones or objects of a bucket, counted or removed.

use super::cluster::Shown;
use super::http::encoded;
use super::table::{cell, table};
use crate::failure::Failure;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

/// Commands for the tombstones or the objects of a bucket. A node runs one `reap` or `erase` at a time.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Start in the background, with less priority than clients.
    Start(Start),
    /// Count the objects or tombstones.
    Count(Of),
    /// Show the progress or the result.
    Status(Shown),
    /// Stop early.
    Stop(Shown),
}

/// A run and its pace.
#[derive(clap::Args)]
pub struct Start {
    #[command(flatten)]
    of: Of,
    /// Most keys per second [default: 100].
    #[arg(long, value_name = "COUNT")]
    per_second: Option<u32>,
}

/// Of which keys.
#[derive(clap::Args)]
pub struct Of {
    #[command(flatten)]
    shown: Shown,
    /// The bucket.
    #[arg(value_name = "BUCKET")]
    bucket: String,
    /// The bucket type.
    #[arg(long = "type", value_name = "TYPE", default_value = "default")]
    bucket_type: String,
    /// Only keys from this one on.
    #[arg(long, value_name = "KEY", requires = "last")]
    first: Option<String>,
    /// Only keys up to this one, included.
    #[arg(long, value_name = "KEY", requires = "first")]
    last: Option<String>,
    /// Only objects last modified at this time or later, in seconds since 1970.
    #[arg(long, value_name = "SECONDS")]
    modified_from: Option<u64>,
    /// Only objects last modified at this time or earlier, in seconds since 1970.
    #[arg(long, value_name = "SECONDS")]
    modified_to: Option<u64>,
}

/// Does it; `what` is `reap` or `erase`.
pub fn run(what: &str, command: &Command) -> Result<(), Failure> {
    match command {
        Command::Start(start) => {
            let of = &start.of;
            let body = json!({
                "purge": what,
                "bucket-type": of.bucket_type,
                "bucket": of.bucket,
                "filter": of.filter(),
                "per_second": start.per_second,
            });
            let begun = of.shown.send("POST", "/admin/purge", &body.to_string())?;
            of.shown.tell(&begun, || text(&begun))
        }
        Command::Count(of) => {
            let filter = BASE64_STANDARD.encode(of.filter().to_string());
            let (bucket_type, bucket) = (encoded(of.bucket_type.as_bytes()), encoded(of.bucket.as_bytes()));
            let path =
                format!("/{what}/types/{bucket_type}/buckets/{bucket}?filter={}", encoded(filter.as_bytes()));
            let counted = of.shown.ask(&path)?;
            of.shown.tell(&counted, || cell(&counted["dispatched_count"]))
        }
        Command::Status(shown) => {
            let seen = shown.ask("/admin/purge")?;
            shown.tell(&seen, || text(&seen))
        }
        Command::Stop(shown) => {
            let stopped = shown.send("POST", "/admin/purge/stop", "")?;
            shown.tell(&stopped, || text(&stopped))
        }
    }
}

impl Of {
    fn filter(&self) -> Value {
        let mut filter = Map::new();
        if let (Some(first), Some(last)) = (&self.first, &self.last) {
            filter.insert("key_range".to_owned(), json!({ "start": first, "end": last }));
        }
        if self.modified_from.is_some() || self.modified_to.is_some() {
            let (from, to) = (self.modified_from.unwrap_or(0), self.modified_to.unwrap_or(u64::MAX));
            filter.insert("date_range".to_owned(), json!({ "start": from, "end": to }));
        }
        Value::Object(filter)
    }
}

fn text(seen: &Value) -> String {
    if seen["purge"].is_null() {
        return "no reap or erase since the node's start".to_owned();
    }
    let columns = ["purge", "bucket-type", "bucket", "state", "found", "done", "failed"];
    let row = columns.iter().map(|column| cell(&seen[*column])).collect();
    let shown = table(&["purge", "type", "bucket", "state", "found", "done", "failed"], &[row]);
    match &seen["error"] {
        Value::Null => shown,
        error => format!("{shown}\n\n{}", cell(error)),
    }
}
