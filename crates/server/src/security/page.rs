//! The page `/admin/security`: the words of `riak-admin security` in, Riak's texts out. `docs/api/admin.yaml`.
//!
//! 1. The body is read: words, and a password beside them.
//! 2. The password is hashed. Nothing behind this step has it.
//! 3. The membership's thread makes the change, or answers with a view.
//! 4. A change is noted in the audit log, without the password.
//!
//! `reload` is no command of the policy: it reads the certificates of this node again.

use super::reload::{self, reload};
use super::{DoorGuard, Hashing};
use crate::audit;
use crate::membership::{Answered, Handle, PolicyCommand};
use crate::peer::Peers;
use crate::socket::ClientOrigin;
use ::security::{Command, Mode};
use bytes::Bytes;
use serde::Deserialize;
use std::sync::Arc;
use zeroize::Zeroize;

/// The words that read certificates again, which are of this node alone.
const RELOAD: [&str; 1] = ["reload"];

/// Bytes of a request: a source of a few thousand users fits.
const BODY_BYTES_MAX: usize = 64 << 10;

/// The body of a request. Its texts may have passwords: their memory is overwritten.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    words: Vec<String>,
    password: Option<String>,
    password_hash: Option<String>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.words.zeroize();
        self.password.zeroize();
        self.password_hash.zeroize();
    }
}

/// Answers a request of an operator.
pub(crate) async fn answer(
    body: &Bytes,
    (membership, hashing): (&Handle, &Hashing),
    (guard, peers): (&Arc<DoorGuard>, Option<&Arc<Peers>>),
    from: ClientOrigin,
) -> Answered {
    let asked = match read_asked(body) {
        Ok(asked) => asked,
        Err(answered) => return answered,
    };
    if asked.words == RELOAD {
        let answered = reload::answer(reload(Arc::clone(guard), peers.cloned()).await);
        audit::note_security(&shown(&asked), from, answered.status);
        return answered;
    }
    let command = match read_command(&asked) {
        Ok(command) => command,
        Err(answered) => return answered,
    };
    if command == Command::SetMode(Mode::On) && !guard.has_tls() {
        return Answered::wrong(
            409,
            "Security is not enabled: without --tls-cert no client could log in at this node",
        );
    }
    if command == Command::AcceptOlderLog && !matches!(from, ClientOrigin::LocalUid(_)) {
        // A user of an older log may be one whom the newer log had removed.
        return Answered::wrong(403, "accept-older-log is a command of the local socket: see --data");
    }
    let is_view = matches!(command, Command::Print(_));
    let credential = match command.password() {
        None => Ok(None),
        Some(password) => match hashing.hash(password.to_vec().into()).await {
            None => Err(Answered::wrong(503, "too many passwords are hashed at once")),
            credential => Ok(credential),
        },
    };
    let answered = match credential {
        Ok(credential) => membership.change_policy(PolicyCommand { command, credential }).await,
        Err(answered) => answered,
    };
    if !is_view {
        audit::note_security(&shown(&asked), from, answered.status);
    }
    answered
}

fn read_asked(body: &Bytes) -> Result<Asked, Answered> {
    if body.len() > BODY_BYTES_MAX {
        return Err(Answered::wrong(400, format!("the body has more than {BODY_BYTES_MAX} bytes")));
    }
    let mut asked: Asked =
        serde_json::from_slice(body).map_err(|error| Answered::wrong(400, format!("the body: {error}")))?;
    // It is an option like others, and is no word so that it stands in no list of processes.
    if let Some(hash) = &asked.password_hash {
        let word = format!("password_hash={hash}");
        asked.words.push(word);
    }
    Ok(asked)
}

fn read_command(asked: &Asked) -> Result<Command, Answered> {
    let words: Vec<&str> = asked.words.iter().map(String::as_str).collect();
    let mut command = Command::parse(&words).map_err(|error| Answered::wrong(400, error))?;
    if let Some(password) = &asked.password {
        let password = Bytes::copy_from_slice(password.as_bytes());
        command.set_password(password).map_err(|error| Answered::wrong(400, error))?;
    }
    Ok(command)
}

/// The words without the value of any option that may be a password.
fn shown(asked: &Asked) -> String {
    let shown = |word: &String| match word.split_once('=') {
        Some((name, _)) if name.to_lowercase().contains("password") => format!("{name}=…"),
        _ => word.clone(),
    };
    let beside = asked.password.iter().map(|_| "password=…".to_owned());
    asked.words.iter().map(shown).chain(beside).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn passwords_may_stand_among_the_words_or_beside_them() {
        let read = |body: &str| read_command(&read_asked(&Bytes::from(body.to_owned()))?);
        let password = |body: &str| {
            let command = read(body).unwrap();
            command.password().map(<[u8]>::to_vec)
        };
        assert_eq!(password(r#"{"words":["add-user","a","password=s"]}"#), Some(b"s".to_vec()));
        assert_eq!(password(r#"{"words":["add-user","a"],"password":"s"}"#), Some(b"s".to_vec()));
        assert_eq!(password(r#"{"words":["add-user","a"]}"#), None);
        let error = |body: &str| read(body).map(drop).unwrap_err();
        for bad in [
            "",
            r#"{"words":[]}"#,
            r#"{"words":["dance"]}"#,
            r#"{"words":["status"],"password":"s"}"#,
            r#"{"words":["add-user","a","password=s"],"password":"s"}"#,
            r#"{"words":["status"],"more":1}"#,
            r#"{"words":["status"],"password_hash":"x"}"#,
            r#"{"words":["add-user","a"],"password_hash":"x"}"#,
        ] {
            let answered = error(bad);
            assert_eq!(answered.status, 400, "{bad}");
            assert!(!answered.body.to_string().contains("password=s"));
        }
        assert_eq!(error(&" ".repeat(BODY_BYTES_MAX + 1)).status, 400);
    }

    #[test]
    fn no_password_is_noted() {
        let shown = |words: &[&str], password: Option<&str>| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            shown(&Asked { words, password: password.map(str::to_owned), password_hash: None })
        };
        let words = ["add-user", "a", "password=secret", "OldPassword=secret", "password_hash=secret"];
        assert_eq!(shown(&words, None), "add-user a password=… OldPassword=… password_hash=…");
        assert_eq!(shown(&["alter-user", "a"], Some("secret")), "alter-user a password=…");
    }
}
