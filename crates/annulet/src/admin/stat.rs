//! `annulet admin stat`: a node's statistics by name, as `/stats` has them. `docs/statistics.md` says what they mean.

use super::cluster::Shown;
use super::table::{cell, table};
use crate::failure::{FAILED, Failure};
use serde_json::{Map, Value};

/// Which statistics.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    shown: Shown,
    /// Names of statistics [default: all]. * stands for any text; a dot separates levels: peers.n2@h.peer_links_up.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// Shows them. A name that none has is a failure.
pub fn show(args: &Args) -> Result<(), Failure> {
    let mut all = Map::new();
    flatten("", args.shown.ask("/stats")?, &mut all);
    for name in &args.names {
        if !all.keys().any(|known| matches(name, known)) {
            return Err(Failure::new(FAILED, format!("there is no statistic {name}")));
        }
    }
    if !args.names.is_empty() {
        all.retain(|known, _| args.names.iter().any(|name| matches(name, known)));
    }
    let rows: Vec<Vec<String>> = all.iter().map(|(name, value)| vec![name.clone(), cell(value)]).collect();
    args.shown.tell(&Value::Object(all), || table(&["statistic", "value"], &rows))
}

/// Puts down each value that has none inside, under the names on the way to it.
fn flatten(name: &str, value: Value, out: &mut Map<String, Value>) {
    let inside = |part: &str| if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
    match value {
        Value::Object(parts) => {
            parts.into_iter().for_each(|(part, value)| flatten(&inside(&part), value, out))
        }
        Value::Array(parts) if parts.iter().any(Value::is_object) => {
            (0..)
                .zip(parts)
                .for_each(|(at, value): (usize, Value)| flatten(&inside(&at.to_string()), value, out));
        }
        value => drop(out.insert(name.to_owned(), value)),
    }
}

/// Whether a name is as a pattern says, in which * stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name) in
            [("a", "a"), ("*", ""), ("*", "abc"), ("a*", "abc"), ("*c", "abc"), ("a*c*e", "abcde")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("a", "ab"), ("a*", "ba"), ("*a", "ab"), ("a*b*c", "acb"), ("ab*ba", "aba"), ("", "a")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_inside_is_named_by_both() {
        let mut all = Map::new();
        flatten("", json!({ "a": 1, "b": { "c": [1, 2], "d": [{ "e": null }] } }), &mut all);
        assert_eq!(Value::Object(all), json!({ "a": 1, "b.c": [1, 2], "b.d.0.e": null }));
    }
}
