//! The page `/admin/whoami`: the user of a request, as the node sees it. `docs/api/admin.yaml`.
//!
//! The source is that of the policy in hand: the one by which the next login of the same user from this address goes.

use crate::membership::Answered;
use crate::socket::ClientOrigin;
use ::security::{Access, Mode, Source, SourceUser};
use serde_json::{Value, json};

/// Answers which user asks.
pub(crate) fn whoami(access: &Access, origin: ClientOrigin) -> Answered {
    let (name, groups, source) = match access.user() {
        None => (Value::Null, Vec::new(), None),
        Some((user, policy)) => {
            let name = policy.name(user);
            let source = match origin {
                ClientOrigin::Address(address) => policy.source(name.as_bytes(), address.ip()),
                ClientOrigin::LocalUid(_) | ClientOrigin::Unknown => None,
            };
            (json!(name.to_string()), policy.groups(user).iter().map(ToString::to_string).collect(), source)
        }
    };
    let login = match (access.is_local(), source) {
        (true, _) => Some("local socket"),
        (false, source) => source.map(|source| source.method.name()),
    };
    let mode = match access.mode() {
        Mode::Off => "off",
        Mode::Permissive => "permissive",
        Mode::On => "on",
    };
    let body = json!({
        "user": name,
        "groups": groups,
        "login": login,
        "source": source.map(source_json),
        "from": origin.to_string(),
        "mode": mode,
    });
    Answered { status: 200, body }
}

fn source_json(source: &Source) -> Value {
    let user = match &source.user {
        SourceUser::All => "all".to_owned(),
        SourceUser::User(name) => name.to_string(),
    };
    json!({ "user": user, "network": source.net.to_string(), "method": source.method.name() })
}

#[cfg(test)]
mod tests {
    use super::super::door_tests::policy;
    use super::*;
    use std::sync::Arc;

    const LINES: [&str; 6] = [
        "add-group staff",
        "add-group apps groups=staff",
        "add-user ann groups=apps",
        "add-source all 10.0.0.0/8 password",
        "add-source ann 10.1.0.0/16 trust",
        "enable",
    ];

    fn asked(access: &Access, from: &str) -> Value {
        whoami(access, ClientOrigin::Address(from.parse().unwrap())).body
    }

    #[test]
    fn a_user_has_groups_and_the_source_that_decides() {
        let mut access = Access::default();
        let nobody = json!({
            "user": null, "groups": [], "login": null, "source": null, "from": "10.0.0.1:1", "mode": "off",
        });
        assert_eq!(asked(&access, "10.0.0.1:1"), nobody);
        access.renew(Arc::new(policy(1, &LINES))).unwrap();
        access.secure();
        access.log_in(b"ann");
        let ann = asked(&access, "10.2.0.1:1");
        assert_eq!((&ann["user"], &ann["groups"]), (&json!("ann"), &json!(["apps", "staff"])));
        assert_eq!((&ann["login"], &ann["mode"]), (&json!("password"), &json!("on")));
        assert_eq!(ann["source"], json!({ "user": "all", "network": "10.0.0.0/8", "method": "password" }));
        assert_eq!(asked(&access, "10.1.0.1:1")["source"]["user"], "ann", "the longer prefix");
    }

    #[test]
    fn the_local_socket_has_no_user() {
        let mut access = Access::default();
        access.serve_locally();
        let body = whoami(&access, ClientOrigin::LocalUid(7)).body;
        assert_eq!((&body["user"], &body["login"]), (&Value::Null, &json!("local socket")));
        assert_eq!(body["from"], "local uid 7");
    }
}
