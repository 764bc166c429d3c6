//! `annulet admin security`: users, groups, sources and grants, in the words of `riak-admin security`.

use super::cluster::{Shown, each, taken};
use super::table::cell;
use crate::failure::{FAILED, Failure};
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes of a file with a password: a longer one is another file.
const PASSWORD_FILE_BYTES_MAX: u64 = 4 << 10;

/// A command, in Riak's words.
#[derive(clap::Args)]
#[command(after_help = "Commands:
  add-user | alter-user NAME [password=P] [groups=A,B] [OPTION=VALUE…]
  add-group | alter-group NAME [groups=A,B]
  del-user | del-group NAME
  add-source all|USER[,…] CIDR trust|password|certificate
  del-source all|USER[,…] CIDR
  grant PERMISSION[,…] on any|TYPE [BUCKET] to all|{USER|GROUP}[,…]
  revoke PERMISSION[,…] on any|TYPE [BUCKET] from all|{USER|GROUP}[,…]
  print-users | print-groups | print-sources
  print-user | print-group | print-grants NAME
  explain USER PERMISSION any|TYPE [BUCKET]
  ciphers [LIST]
  whoami
  status | enable | permissive | disable
  reload
  accept-older-log")]
pub struct Args {
    #[command(flatten)]
    shown: Shown,
    /// File with the password of add-user or alter-user, or - for standard input: other users of the machine do not see
    /// it, unlike password=P [default: none].
    #[arg(long, value_name = "FILE")]
    new_password_file: Option<PathBuf>,
    /// File with the hash of a password of Riak, for add-user or alter-user, or - for standard input: one line
    /// pbkdf2-hmac-sha1:ITERATIONS:SALT:HASH, salt and hash in hexadecimal digits [default: none].
    #[arg(long, value_name = "FILE", conflicts_with = "new_password_file")]
    new_password_hash_file: Option<PathBuf>,
    /// Command and its words.
    #[arg(value_name = "WORD", required = true)]
    words: Vec<String>,
}

/// Asks the node, and prints its text.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.words == ["whoami"] {
        let answer = args.shown.ask("/admin/whoami")?;
        return args.shown.tell(&answer, || whoami(&answer));
    }
    let mut body = json!({ "words": args.words });
    if let Some(path) = &args.new_password_file {
        body["password"] = json!(password(path)?);
    }
    if let Some(path) = &args.new_password_hash_file {
        body["password_hash"] = json!(password(path)?);
    }
    let answer = taken(args.shown.post("/admin/security", &body)?)?;
    let text = answer["text"].as_str().unwrap_or_default();
    if text.is_empty() && !args.shown.is_json() {
        return Ok(());
    }
    args.shown.tell(&answer, || text.to_owned())
}

/// The user of the command, as the node sees it.
fn whoami(answer: &Value) -> String {
    let source = &answer["source"];
    let login = match (answer["login"].as_str(), source) {
        (None, _) => "none".to_owned(),
        (Some(login), Value::Null) => login.to_owned(),
        (Some(login), source) => {
            format!("{login}, by the source {} {}", cell(&source["user"]), cell(&source["network"]))
        }
    };
    let groups = each(&answer["groups"]).map(cell).collect::<Vec<_>>().join(", ");
    let user = answer["user"].as_str().unwrap_or("none").to_owned();
    let groups = if groups.is_empty() { "none".to_owned() } else { groups };
    let rows = [("user", user), ("groups", groups), ("login", login), ("from", cell(&answer["from"]))];
    let rows = rows.into_iter().chain([("mode", cell(&answer["mode"]))]);
    rows.map(|(name, value)| format!("{name:8}{value}")).collect::<Vec<_>>().join("\n")
}

/// The first line of a file.
pub(super) fn password(path: &Path) -> Result<String, Failure> {
    let failed = |what: String| Failure::new(FAILED, format!("{}: {what}", path.display()));
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().take(PASSWORD_FILE_BYTES_MAX + 1).read_to_string(&mut text)
    } else {
        let file = std::fs::File::open(path);
        file.and_then(|file| file.take(PASSWORD_FILE_BYTES_MAX + 1).read_to_string(&mut text))
    };
    let bytes = read.map_err(|error| failed(error.to_string()))?;
    if bytes as u64 > PASSWORD_FILE_BYTES_MAX {
        return Err(failed(format!("more than {PASSWORD_FILE_BYTES_MAX} bytes are no password")));
    }
    let password = text.lines().next().unwrap_or_default();
    if password.is_empty() {
        Err(failed("there is no password in it".to_owned()))
    } else {
        Ok(password.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_a_command_is_told_with_its_source() {
        let ann = json!({
            "user": "ann", "groups": ["apps", "staff"], "login": "password", "from": "10.0.0.1:9", "mode": "on",
            "source": { "user": "all", "network": "10.0.0.0/8", "method": "password" },
        });
        let told = "user    ann\ngroups  apps, staff\nlogin   password, by the source all 10.0.0.0/8\n\
                    from    10.0.0.1:9\nmode    on";
        assert_eq!(whoami(&ann), told);
        let local = json!({ "user": null, "groups": [], "login": "local socket", "from": "local uid 0", "mode": "on" });
        let told = "user    none\ngroups  none\nlogin   local socket\nfrom    local uid 0\nmode    on";
        assert_eq!(whoami(&local), told);
    }

    #[test]
    fn the_first_line_of_a_file_is_the_password() {
        let folder = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            let path = folder.path().join("password");
            std::fs::write(&path, text).unwrap();
            password(&path).ok()
        };
        assert_eq!(read("se cret\n").as_deref(), Some("se cret"));
        assert_eq!(read("secret\r\nmore").as_deref(), Some("secret"));
        assert_eq!((read(""), read("\nsecret"), read(&"x".repeat(5_000))), (None, None, None));
    }
}
