//! The properties of buckets and of bucket types.

use bytes::Bytes;
use kv::props::Reason;
use kv::{Bucket, BucketProps, Error, Request, Response, TypeChange};
use protocol::http::{Answer, Connection, Method};
use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::{names, props_json};

/// What an answer depends on beside what the node says.
#[derive(Debug)]
pub(super) enum Asked {
    /// A bucket.
    Bucket(Bucket),
    /// A bucket type.
    Type(Bytes),
}

/// The node's request about a bucket's properties.
pub(super) fn of_bucket(bucket: Bucket, method: Method, body: &[u8]) -> Result<(Request, Asked), Fault> {
    let request = match method {
        Method::Put => Request::SetProps(bucket.clone(), read(body)?),
        Method::Delete => Request::ResetProps(bucket.clone()),
        _ => Request::GetProps(bucket.clone()),
    };
    Ok((request, Asked::Bucket(bucket)))
}

/// The node's request about a bucket type's properties.
pub(super) fn of_type(name: Bytes, method: Method, body: &[u8]) -> Result<(Request, Asked), Fault> {
    let request = match method {
        Method::Put => Request::ChangeType(name.clone(), TypeChange::Update(read(body)?)),
        _ => Request::GetTypeProps(name.clone()),
    };
    Ok((request, Asked::Type(name)))
}

/// The properties that a body names.
pub(super) fn read(body: &[u8]) -> Result<Vec<kv::Prop>, Fault> {
    props_json::read(body).map_err(|error| match error {
        None => Fault::bad("The body is no JSON of the form {\"props\":{…}}"),
        Some(error) => fault(&error),
    })
}

/// Writes the answer.
pub(super) fn respond(
    asked: &Asked,
    result: Result<Response, Error>,
    connection: Connection,
    out: &mut Vec<u8>,
) {
    match result {
        Ok(Response::Props(props)) => {
            let mut answer = Answer::new(out, connection, 200);
            answer.header("Vary", "Accept-Encoding");
            answer.header("Content-Type", "application/json");
            answer.body(json!({ "props": labelled(asked, &props) }).to_string().as_bytes());
        }
        Ok(Response::PropsSet | Response::PropsReset) => Answer::new(out, connection, 204).empty(),
        Ok(other) => unreachable!("the node was asked for properties and answered {other:?}"),
        Err(error) => fault(&error).write(connection, out),
    }
}

/// The properties, with what they are of, as Riak tells them.
fn labelled(asked: &Asked, props: &BucketProps) -> Map<String, Value> {
    let mut all = props_json::write(props);
    match asked {
        Asked::Bucket(bucket) => {
            names::put_name(&mut all, "name", &bucket.name);
            if bucket.bucket_type != kv::bucket::DEFAULT_TYPE {
                names::put_name(&mut all, "bucket_type", &bucket.bucket_type);
                all.insert("active".to_owned(), json!(true));
            }
        }
        Asked::Type(name) => {
            names::put_name(&mut all, "bucket_type", name);
            all.insert("active".to_owned(), json!(true));
        }
    }
    all
}

/// What is wrong with properties: by name, as JSON.
pub(super) fn fault(error: &Error) -> Fault {
    match error {
        Error::InvalidProps(list) => Fault::json(400, &Value::Object(reasons(list))),
        other => Fault::from(other),
    }
}

/// Why each property was refused.
pub(super) fn reasons(list: &[(&'static str, Reason)]) -> Map<String, Value> {
    let text = |reason: &Reason| match reason {
        Reason::Word(word) => json!(word),
        Reason::Text(text) => json!(text),
    };
    list.iter().map(|(name, reason)| ((*name).to_owned(), text(reason))).collect()
}
