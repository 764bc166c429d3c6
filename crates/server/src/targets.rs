//! The answer of `GET /admin/prometheus/targets`: the members, as Prometheus finds them by HTTP (`http_sd_configs`).
//!
//! A member's host is that of its address for other nodes. Its port is the HTTP port of the node that answers, as nodes
//! do not tell each other theirs. Members that an operator declared down are left out.

use crate::membership::Answered;
use os::Address;
use serde_json::{Value, json};

/// The targets, of the answer on members (`GET /admin/cluster`), for a node that serves HTTP here.
pub(crate) fn targets(members: &Answered, http: &Address) -> Answered {
    if members.status != 200 {
        return Answered { status: members.status, body: members.body.clone() };
    }
    let all = members.body["members"].as_array().into_iter().flatten();
    let scraped = all.filter(|member| member["state"] != "down");
    let groups: Vec<Value> = scraped.map(|member| group(member, http)).collect();
    Answered { status: 200, body: Value::Array(groups) }
}

fn group(member: &Value, http: &Address) -> Value {
    let address = member["address"].as_str().unwrap_or_default();
    // A node alone has no address for others.
    let host = address.rsplit_once(':').map(|(host, _)| host.to_owned());
    let target = match host {
        Some(host) => format!("{host}:{}", http.port()),
        None => http.to_string(),
    };
    json!({ "targets": [target], "labels": { "__meta_annulet_node": member["name"] } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_targets_unless_they_are_down() {
        let body = json!({ "members": [
            { "name": "n1@a", "address": "10.0.0.1:8099", "state": "valid" },
            { "name": "n2@b", "address": "[fd00::2]:8099", "state": "leaving" },
            { "name": "n3@c", "address": "10.0.0.3:8099", "state": "down" },
            { "name": "n4@d", "address": "", "state": "valid" },
        ]});
        let here: Address = "10.0.0.1:8098".parse().unwrap_or_else(|_| panic!("it is an address"));
        let answered = targets(&Answered { status: 200, body }, &here);
        let expected = json!([
            { "targets": ["10.0.0.1:8098"], "labels": { "__meta_annulet_node": "n1@a" } },
            { "targets": ["[fd00::2]:8098"], "labels": { "__meta_annulet_node": "n2@b" } },
            { "targets": ["10.0.0.1:8098"], "labels": { "__meta_annulet_node": "n4@d" } },
        ]);
        assert_eq!((answered.status, answered.body), (200, expected));
        let refused = targets(&Answered::wrong(503, "the node is stopping"), &here);
        assert_eq!(refused.status, 503);
    }
}
