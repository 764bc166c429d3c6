//! Levels of the log at run time: `GET` and `POST /admin/log`.
//!
//! The log itself is the program's, which gives the server this handle on it. A target is a module path, such as
//! `server::peer`, or `audit`.

use crate::membership::Answered;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The handle on the levels of a log.
pub trait LogLevels: Send + Sync {
    /// The levels of targets; that of all others has no name.
    fn levels(&self) -> BTreeMap<String, String>;

    /// Sets the level of a target and all below it, or with `None` of all others.
    ///
    /// # Errors
    /// If there is no such level, or the number of targets is at its bound.
    fn set(&self, target: Option<&str>, level: &str) -> Result<(), String>;
}

/// Answers an operator; a body is a change.
pub(crate) fn ask(log: &dyn LogLevels, body: Option<&[u8]>) -> Answered {
    if let Some(body) = body {
        match read(body) {
            Ok((target, level)) => {
                if let Err(fault) = log.set(target.as_deref(), &level) {
                    return Answered::wrong(400, fault);
                }
            }
            Err(fault) => return Answered::wrong(400, fault),
        }
    }
    let mut targets = log.levels();
    let level = targets.remove("").unwrap_or_default();
    Answered { status: 200, body: json!({ "level": level, "targets": targets }) }
}

/// The target and the level of a body.
fn read(body: &[u8]) -> Result<(Option<String>, String), &'static str> {
    let body: Map<String, Value> = serde_json::from_slice(body).map_err(|_| "invalid json")?;
    if body.keys().any(|name| !matches!(name.as_str(), "level" | "target")) {
        return Err("the fields are level and target");
    }
    let level = body.get("level").and_then(Value::as_str).ok_or("level is to be a text")?;
    let target = match body.get("target") {
        None | Some(Value::Null) => None,
        Some(Value::String(target)) if !target.is_empty() => Some(target.clone()),
        Some(_) => return Err("target is to be a text"),
    };
    Ok((target, level.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    struct Log(Mutex<BTreeMap<String, String>>);

    impl LogLevels for Log {
        fn levels(&self) -> BTreeMap<String, String> {
            self.0.lock().expect("no test panics with it").clone()
        }

        fn set(&self, target: Option<&str>, level: &str) -> Result<(), String> {
            if level == "loud" {
                return Err("there is no level loud".to_owned());
            }
            let mut levels = self.0.lock().expect("no test panics with it");
            levels.insert(target.unwrap_or_default().to_owned(), level.to_owned());
            Ok(())
        }
    }

    #[test]
    fn levels_are_shown_and_set() {
        let log = Log(Mutex::new([(String::new(), "info".to_owned())].into()));
        assert_eq!(ask(&log, None).body, json!({ "level": "info", "targets": {} }));
        let set = |body: &str| ask(&log, Some(body.as_bytes()));
        assert_eq!(set(r#"{"level":"warn","target":null}"#).body["level"], "warn");
        let body = json!({ "level": "warn", "targets": { "server::peer": "debug" } });
        assert_eq!(set(r#"{"level":"debug","target":"server::peer"}"#).body, body);
        for wrong in
            ["", "[]", "{}", r#"{"level":1}"#, r#"{"level":"loud"}"#, r#"{"level":"info","target":""}"#]
        {
            assert_eq!(set(wrong).status, 400, "{wrong}");
        }
        assert_eq!(set(r#"{"level":"info","targets":"a"}"#).status, 400);
        assert_eq!(ask(&log, None).body, body);
    }
}
