//! Queries of several parts: `POST …/query`, JSON in and out.
//!
//! Answers: `{"keys":[…]}`, `{"results":[{"term":"key"},…]}`, `{"match_count":n}`, `{"key_count":n}`,
//! `{"results":{"term":n,…}}`; with a `continuation` where there may be more.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use kv::index::Pick;
use kv::query::{
    Accumulation, Condition, Constant, Findings, Name, ParseError, Pipeline, QueryPart, QueryRequest,
    SetExpression, Substitutions,
};
use kv::{Bucket, Error, Request, Response};
use protocol::http::{Answer, Connection};
use serde_json::{Map, Value, json};

use super::fault::Fault;
use super::names;

fn invalid(stage: &str, why: impl std::fmt::Display) -> Fault {
    Fault::bad(format!("Validation failure at stage {stage} due to {why}"))
}

/// The request in a body.
pub(super) fn request(bucket: Bucket, body: &[u8]) -> Result<Request, Fault> {
    let body: Map<String, Value> =
        serde_json::from_slice(body).map_err(|_| Fault::bad("the body is to be a JSON object"))?;
    let substitutions = substitutions(body.get("substitutions"))?;
    let list = body.get("query_list").and_then(Value::as_array);
    let list = list.ok_or_else(|| invalid("query_list", "a list is needed"))?;
    let parts = list.iter().enumerate().map(|(at, one)| part(at, one, &substitutions));
    let parts = parts.collect::<Result<Vec<QueryPart>, Fault>>()?;
    let sets = text(&body, "aggregation_expression")?;
    let sets = sets.map(SetExpression::parse).transpose();
    let sets = sets.map_err(|error| invalid("aggregation_expression", error))?;
    let accumulation = match text(&body, "accumulation_option")? {
        None => Accumulation::Keys,
        Some(name) => {
            let known = Accumulation::NAMES.iter().find(|(known, _)| *known == name);
            known.ok_or_else(|| invalid("accumulation_option", format!("Unrecognised option {name}")))?.1
        }
    };
    let term = text(&body, "accumulation_term")?.map(|name| name.trim_start_matches('$').to_owned());
    let continuation = text(&body, "continuation")?.map(|text| {
        let place = BASE64_STANDARD.decode(text).map(Bytes::from);
        place.map_err(|_| invalid("continuation", "it is none"))
    });
    let timeout = number(&body, "timeout")?;
    Ok(Request::Query(Box::new(QueryRequest {
        bucket,
        parts,
        sets,
        accumulation,
        term: term.filter(|name| name != "term").map(Name),
        max_results: number(&body, "max_results")?,
        continuation: continuation.transpose()?,
        // It is in seconds, unlike elsewhere.
        timeout: timeout.map(|seconds| seconds.saturating_mul(1000)),
    })))
}

fn part(at: usize, one: &Value, substitutions: &Substitutions) -> Result<QueryPart, Fault> {
    let stage = "query_evaluation";
    let one = one.as_object().ok_or_else(|| invalid("query_list", "a query is to be an object"))?;
    let need = |name| text(one, name)?.ok_or_else(|| invalid(stage, format!("{name} is missing")));
    let tag = number(one, "aggregation_tag")?.unwrap_or(u32::try_from(at + 1).unwrap_or(u32::MAX));
    let regex = text(one, "regular_expression")?;
    let evaluation = text(one, "evaluation_expression")?;
    let filter = text(one, "filter_expression")?;
    let bad = |stage: &'static str| move |error: ParseError| invalid(stage, error);
    let pick = match (regex, evaluation, filter) {
        (None, None, None) => Pick::All,
        (Some(regex), None, None) => Pick::Matching(Bytes::copy_from_slice(regex.as_bytes())),
        (Some(_), ..) => return Err(invalid(stage, "a regular expression stands alone")),
        // What is substituted is written into what travels.
        (None, evaluation, filter) => Pick::Where {
            pipeline: Pipeline::parse(evaluation.unwrap_or_default(), substitutions)
                .map_err(bad("evaluation_expression"))?
                .to_string(),
            condition: match filter {
                None => String::new(),
                Some(filter) => {
                    Condition::parse(filter, substitutions).map_err(bad("filter_expression"))?.to_string()
                }
            },
        },
    };
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    Ok(QueryPart {
        tag,
        field: Bytes::from(need("index_name")?.to_ascii_lowercase()),
        first: bytes(need("start_term")?),
        last: bytes(need("end_term")?),
        pick,
    })
}

/// An object, or a list of objects.
fn substitutions(value: Option<&Value>) -> Result<Substitutions, Fault> {
    let bad = || invalid("substitutions", "an object of texts and numbers is needed");
    let objects: Vec<&Value> = match value {
        None => Vec::new(),
        Some(Value::Array(list)) => list.iter().collect(),
        Some(one) => vec![one],
    };
    let mut all = Substitutions::new();
    for object in objects {
        for (name, value) in object.as_object().ok_or_else(bad)? {
            let constant = match value {
                Value::String(text) => Constant::Text(text.clone()),
                Value::Number(number) => Constant::Number(number.as_i64().ok_or_else(bad)?),
                _ => return Err(bad()),
            };
            all.insert(name.trim_start_matches(':').to_owned(), constant);
        }
    }
    Ok(all)
}

fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, Fault> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid(name, "a text is needed")),
    }
}

fn number(object: &Map<String, Value>, name: &str) -> Result<Option<u32>, Fault> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
            number.map(Some).ok_or_else(|| invalid(name, "a number is needed"))
        }
    }
}

/// Writes the answer.
pub(super) fn respond(result: Result<Response, Error>, connection: Connection, out: &mut Vec<u8>) {
    let findings = match result {
        Ok(Response::Findings(findings)) => findings,
        Ok(other) => unreachable!("the node was asked a query and answered {other:?}"),
        Err(error) => return Fault::from(&error).write(connection, out),
    };
    let mut text = Map::new();
    let mut continuation = None;
    match &findings {
        Findings::Keys(keys, place) => {
            names::put_names(&mut text, "keys", keys.iter().map(|key| &key[..]));
            continuation = place.as_ref();
        }
        Findings::Terms(rows, place) => {
            names::put_pairs(&mut text, "results", rows.iter().map(|(term, key)| (&term[..], &key[..])));
            continuation = place.as_ref();
        }
        Findings::Count(Accumulation::MatchCount, count) => {
            drop(text.insert("match_count".into(), json!(count)))
        }
        Findings::Count(_, count) => drop(text.insert("key_count".into(), json!(count))),
        Findings::TermCounts(counts) => {
            names::put_counts(&mut text, "results", counts.iter().map(|(term, &count)| (&term[..], count)));
        }
    }
    if let Some(place) = continuation {
        text.insert("continuation".into(), BASE64_STANDARD.encode(place).into());
    }
    let mut answer = Answer::new(out, connection, 200);
    answer.header("Content-Type", "application/json");
    answer.body(Value::Object(text).to_string().as_bytes());
}
