//! Security of `annulet dev N --secure`.
//!
//! 1. Before the first node starts, [`Secured::prepare`] makes what is missing: an authority and a certificate for the
//!    client ports, a client certificate, and a random password. Only the user of the machine can read the secrets.
//! 2. Once the nodes serve, [`turn_on`] makes two users and turns security on, through the local socket of a node.
//!    `admin` has all permissions and logs in by the password. `app` has those of objects and logs in by the
//!    certificate.
//! 3. Nodes whose folder has the authority are secured again at each later start, with or without the flag.
//!
//! Left out: other users, which `annulet admin security` makes.

use crate::admin::{self, Endpoint};
use crate::failure::{FAILED, Failure};
use crate::program::quoted;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rustls::crypto::ring::default_provider;
use security::Permission;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The host of all client ports.
const HOST: &str = "127.0.0.1";

/// The addresses from which the users log in.
const SOURCE: &str = "127.0.0.1/32";

/// The administrator, and the user of programs.
const ADMIN: &str = "admin";
const APP: &str = "app";

/// Random bytes of a password: nobody guesses 144 bits.
const PASSWORD_BYTES: usize = 18;

/// The file of the password is for the user of the machine alone.
const PASSWORD_MODE: u32 = 0o600;

/// The time in which the members come to know each other, as the first change of the policy needs.
const TURN_ON_MAX: Duration = Duration::from_secs(60);

/// The time between two tries of a change.
const TRY_EVERY: Duration = Duration::from_millis(250);

/// The files of a secured cluster.
pub(super) struct Secured {
    folder: PathBuf,
}

impl Secured {
    /// The files in the folder of the nodes; none unless they are asked for, or there already. Makes what is missing.
    pub(super) fn prepare(data: &Path, is_asked: bool) -> Result<Option<Secured>, Failure> {
        let secured = Secured { folder: data.join("clients") };
        if !is_asked && !secured.ca().exists() {
            return Ok(None);
        }
        admin::make_clients(&secured.folder, &[HOST.to_owned()], &[APP.to_owned()])?;
        make_password(&secured.password_file())?;
        Ok(Some(secured))
    }

    fn ca(&self) -> PathBuf {
        admin::authority_files(&self.folder).certificate
    }

    fn password_file(&self) -> PathBuf {
        self.folder.join("admin.password")
    }

    /// The flags of a node that serves HTTPS at this address.
    pub(super) fn node_flags(&self, https: &str) -> Vec<String> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let flags = [
            ("--https-listen", https.to_owned()),
            ("--tls-cert", file(&format!("{HOST}.pem"))),
            ("--tls-key", file(&format!("{HOST}.key"))),
            ("--tls-client-ca", self.ca().display().to_string()),
        ];
        flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }

    /// The line for a shell that logs the administrator in at the node of this address.
    pub(super) fn export(&self, https: &str) -> String {
        let path = |path: PathBuf| quoted(&path.display().to_string());
        let (ca, password) = (path(self.ca()), path(self.password_file()));
        format!(
            "export ANNULET_NODE={https} ANNULET_CA={ca} ANNULET_USER={ADMIN} ANNULET_PASSWORD_FILE={password}\n"
        )
    }

    /// The flags by which a program logs in with its certificate.
    pub(super) fn app_flags(&self) -> String {
        let file = |name: &str| quoted(&self.folder.join(name).display().to_string());
        let ca = quoted(&self.ca().display().to_string());
        format!("--ca {ca} --cert {} --key {}", file(&format!("{APP}.pem")), file(&format!("{APP}.key")))
    }

    /// The sentence about the users.
    pub(super) fn users(&self) -> String {
        let password = self.password_file();
        format!("security is on: the administrator is {ADMIN}, whose password is in {}", password.display())
    }

    /// The password of the administrator.
    pub(super) fn password(&self) -> Result<String, Failure> {
        let path = self.password_file();
        let read = std::fs::read_to_string(&path);
        let text = read.map_err(|error| Failure::new(FAILED, format!("{}: {error}", path.display())))?;
        Ok(text.trim_end().to_owned())
    }
}

/// Makes the file of a random password, unless it is there.
fn make_password(path: &Path) -> Result<(), Failure> {
    let failed = |what: &dyn std::fmt::Display| Failure::new(FAILED, format!("{}: {what}", path.display()));
    let mut bytes = [0; PASSWORD_BYTES];
    default_provider().secure_random.fill(&mut bytes).map_err(|_| failed(&"the system has no randomness"))?;
    let password = BASE64_URL_SAFE_NO_PAD.encode(bytes);
    match OpenOptions::new().write(true).create_new(true).mode(PASSWORD_MODE).open(path) {
        Ok(mut file) => writeln!(file, "{password}").map_err(|error| failed(&error)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed(&error)),
    }
}

/// Makes the users and turns security on, through the node that runs on this data folder. Nothing is done if it is on.
/// Blocks.
pub(super) fn turn_on(node: &Path, password: &str) -> Result<(), String> {
    let node = Endpoint::Local(node.to_owned());
    let begun = Instant::now();
    loop {
        // A member that is not reached yet refuses the first change.
        match try_to_turn_on(&node, password) {
            Err(_) if begun.elapsed() < TURN_ON_MAX => std::thread::sleep(TRY_EVERY),
            done => return done,
        }
    }
}

fn try_to_turn_on(node: &Endpoint, password: &str) -> Result<(), String> {
    if command(node, &["status"], None)? == "Enabled" {
        return Ok(());
    }
    make_user(node, ADMIN, Some(password))?;
    make_user(node, APP, None)?;
    command(node, &["add-source", ADMIN, SOURCE, "password"], None)?;
    command(node, &["add-source", APP, SOURCE, "certificate"], None)?;

    let names = |of: &dyn Fn(&str) -> bool| {
        let all = Permission::ALL.iter().map(|permission| permission.name());
        all.filter(|name| of(name)).collect::<Vec<_>>().join(",")
    };
    command(node, &["grant", &names(&|_| true), "on", "any", "to", ADMIN], None)?;
    command(node, &["grant", &names(&|name| name.starts_with("riak_kv.")), "on", "any", "to", APP], None)?;
    command(node, &["enable"], None).map(drop)
}

/// Makes a user; one that an earlier try has made gets the password.
fn make_user(node: &Endpoint, name: &str, password: Option<&str>) -> Result<(), String> {
    match command(node, &["add-user", name], password) {
        Err(error) if error.contains("already in use") => match password {
            Some(_) => command(node, &["alter-user", name], password).map(drop),
            None => Ok(()),
        },
        done => done.map(drop),
    }
}

/// The text of a command of `annulet admin security`.
fn command(node: &Endpoint, words: &[&str], password: Option<&str>) -> Result<String, String> {
    let body = json!({ "words": words, "password": password }).to_string();
    let answer = node.ask("POST", "/admin/security", &body).map_err(|failure| failure.text)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if answer.status == 200 { Ok(text(&answer.body["text"])) } else { Err(text(&answer.body["error"])) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn files_are_made_once_and_secure_later_starts() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        assert!(Secured::prepare(data, false).unwrap().is_none(), "nobody has asked for it");
        let secured = Secured::prepare(data, true).unwrap().unwrap();
        let password = secured.password().unwrap();
        assert_eq!(password.len(), PASSWORD_BYTES / 3 * 4);
        assert_eq!(std::fs::metadata(secured.password_file()).unwrap().mode() & 0o777, PASSWORD_MODE);
        let again = Secured::prepare(data, false).unwrap().unwrap();
        assert_eq!(again.password().unwrap(), password);
        for (_, file) in again.node_flags("127.0.0.1:1").chunks(2).skip(1).map(|flag| (&flag[0], &flag[1])) {
            assert!(Path::new(file).exists(), "{file}");
        }
    }
}
