//! Riak's terms in sentences. On the wire an error is Riak's term, since clients compare it; a person is told what it
//! means, with the term behind it.

use protocol::errors;

/// The meaning of an error answer, with the answer behind it; an answer that is a sentence stays as it is.
pub fn explained(answer: &str) -> String {
    match meaning(answer) {
        Some(meaning) => format!("{meaning} ({answer})"),
        None => answer.to_owned(),
    }
}

fn meaning(answer: &str) -> Option<String> {
    let fixed = match answer {
        errors::MATCH_FOUND => "the object exists already",
        errors::MODIFIED => "the object has changed since it was read",
        errors::FAILED => {
            "nothing was done: the object exists or has changed, and a write replaces the version of its --vclock \
             only; `annulet kv head` shows the present one"
        }
        errors::NOTFOUND => "no such object",
        errors::NO_TYPE => "no active bucket type has that name: `annulet kv types` lists the types",
        errors::TIMEOUT => "timeout: a write may or may not have been carried out",
        errors::UNAVAILABLE => {
            "nothing was done: the object's group has no leader, see `annulet admin strong status` at each node"
        }
        errors::OVERLOAD => "the node is overloaded: try again later",
        errors::RATE_LIMITED => {
            "nothing was done: the user is at a limit of operations or bytes, try again later"
        }
        errors::INSUFFICIENT_VNODES | errors::TOO_MANY_FAILS => "too few replicas answer",
        _ => return term(answer),
    };
    Some(fixed.to_owned())
}

/// The meaning of a term in braces, or of one with a sentence before it.
fn term(answer: &str) -> Option<String> {
    if let Some(reasons) = answer.strip_prefix("Invalid bucket properties: ") {
        return properties(reasons);
    }
    let answer = answer.strip_prefix("Invalid query: ").unwrap_or(answer);
    let parts: Vec<&str> = answer.strip_prefix('{')?.strip_suffix('}')?.split(',').collect();
    match parts[..] {
        ["n_val_violation", n] => Some(format!(
            "the request asks for more replicas than an object has copies: n_val is {n}, and no quorum is above it"
        )),
        ["insufficient_vnodes", have, "need", need] => {
            Some(format!("{} can be reached, and {need} must answer", count(have, "replica")))
        }
        ["unknown_field_type", field] => {
            Some(format!("the index field {field} is neither NAME_bin nor NAME_int, nor $key or $bucket"))
        }
        ["precommit_fail", ..] => Some("the index terms of the object are refused".to_owned()),
        ["field_parsing_failed", ..] => Some("a term of a field NAME_int is no integer".to_owned()),
        [name, want, got] => {
            let quorum = name.strip_suffix("_val_unsatisfied")?;
            Some(format!("{quorum} asks for {}, and {got} answered", of_quorum(quorum, want)))
        }
        _ => None,
    }
}

/// The things that a quorum counts.
fn of_quorum(quorum: &str, want: &str) -> String {
    match quorum {
        "pr" | "pw" => format!("{} that hold the key by the ring", count(want, "node")),
        "node_confirms" => count(want, "node"),
        "dw" => format!("{} with the write on disk", count(want, "replica")),
        _ => count(want, "replica"),
    }
}

fn count(number: &str, what: &str) -> String {
    if number == "1" { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// The meaning of `[{n_val,not_integer},{w,not_valid_quorum}]`, or of a word alone.
fn properties(reasons: &str) -> Option<String> {
    let fixed = match reasons {
        "not_active" => "the bucket type is not active: `annulet admin bucket-type activate` makes it so",
        "no_default_update" => "the properties of the default bucket type cannot be changed",
        _ => {
            let list = reasons.strip_prefix("[{")?.strip_suffix("}]")?;
            let each = list.split("},{").map(|pair| {
                let (name, reason) = pair.split_once(',')?;
                Some(format!("{name} {}", property(name, reason)?))
            });
            return each.collect::<Option<Vec<String>>>().map(|each| each.join("; "));
        }
    };
    Some(fixed.to_owned())
}

/// The meaning of a property's reason, as the rest of a sentence behind its name.
pub fn property(name: &str, reason: &str) -> Option<String> {
    let counts = ["n_val", "old_vclock", "young_vclock", "big_vclock", "small_vclock"];
    let fixed = match reason {
        "not_integer" if counts.contains(&name) => "must be at least 1, a whole number",
        "not_integer" => "must be a whole number from 0",
        "not_boolean" => "must be true or false",
        "not_valid_quorum" if name == "node_confirms" => "must be a number of nodes, from 0 to n_val",
        "not_valid_quorum" if name.starts_with('p') || name == "dw" => {
            "must be one, quorum, all, or a number from 0 to n_val"
        }
        "not_valid_quorum" => "must be one, quorum, all, or a number from 1 to n_val",
        "not_valid_sync_param" => "must be backend, one or all",
        "not_a_name" => "must be a text",
        "not_a_function" => r#"must be a function: {"mod":"M","fun":"F"}"#,
        "not_a_list" => "must be a list",
        _ => return None,
    };
    Some(fixed.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::errors::QuorumName;

    #[test]
    fn every_term_of_the_wire_is_explained_and_kept() {
        let quorums = ["r", "pr", "w", "pw", "dw", "node_confirms"];
        let names = [
            QuorumName::R,
            QuorumName::Pr,
            QuorumName::W,
            QuorumName::Pw,
            QuorumName::Dw,
            QuorumName::NodeConfirms,
        ];
        let unsatisfied = names.map(|name| errors::unsatisfied(name, 2, 1));
        let others = [
            errors::n_val_violation(3),
            errors::insufficient_vnodes(1, 2),
            errors::invalid_props([("n_val", "not_integer"), ("w", "not_valid_quorum")]),
            errors::bad_index_field(b"f_int", b"x"),
            "Invalid query: {unknown_field_type,<<\"f\">>}".to_owned(),
        ];
        let words = [
            errors::MATCH_FOUND,
            errors::MODIFIED,
            errors::FAILED,
            errors::NOTFOUND,
            errors::NO_TYPE,
            errors::TIMEOUT,
            errors::UNAVAILABLE,
            errors::OVERLOAD,
            errors::RATE_LIMITED,
            errors::INSUFFICIENT_VNODES,
            errors::TOO_MANY_FAILS,
        ]
        .map(str::to_owned);
        for term in unsatisfied.iter().chain(&others).chain(&words) {
            let text = explained(term);
            assert!(text.len() > term.len() + 10 && text.ends_with(&format!(" ({term})")), "{text}");
        }
        for (name, term) in quorums.iter().zip(&unsatisfied) {
            assert!(explained(term).starts_with(&format!("{name} asks for 2 ")), "{term}");
        }
        assert!(explained(&errors::insufficient_vnodes(1, 2)).starts_with("1 replica can be reached, and 2"));
        assert!(
            explained(&others[2]).starts_with("n_val must be at least 1, a whole number; w must be one,")
        );
        assert_eq!(explained("a sentence"), "a sentence");
        assert_eq!(explained("{odd}"), "{odd}");
    }
}
