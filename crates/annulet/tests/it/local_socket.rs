//! The local socket of a real node: administration without a login, for the node's user alone.

use crate::common::nodes::until;
use crate::common::{Server, annulet, run};
use rustix::process::geteuid;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Output;

const LOOPBACK: &str = "127.0.0.1:0";

/// Starts a node with a certificate for clients on the folder `data`, whose log is a file.
fn start(dir: &Path, pb: &str) -> Server {
    let args = [
        &["serve", "--data", "data", "--pb-listen", pb, "--http-listen", LOOPBACK][..],
        &["--https-listen", "127.0.0.1:0", "--tls-cert", "clients/127.0.0.1.pem"],
        &["--tls-key", "clients/127.0.0.1.key"],
    ];
    let log = fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
    Server::started(annulet(dir, &args.concat()).stderr(log))
}

/// `annulet admin security` by the local socket.
fn security(dir: &Path, words: &[&str]) -> Output {
    run(dir, &[&["admin", "--data", "data", "security"], words].concat())
}

#[track_caller]
fn done(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn error(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The answer to a request by the socket, as other programs send it.
fn ask(dir: &Path, request: &str) -> String {
    let mut socket = UnixStream::connect(dir.join("data/admin.sock")).unwrap();
    write!(socket, "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

/// A word of `annulet admin security` by HTTPS, as root with the password of a file.
fn log_in(dir: &Path, server: &Server, password_file: &str, word: &str) -> Output {
    let https = server.banner.lines().find_map(|line| line.trim_start().strip_prefix("HTTPS ")).unwrap();
    let https = https.split_whitespace().next().unwrap();
    let login = ["--ca", "clients/ca.pem", "--user", "root", "--password-file", password_file];
    run(dir, &[&["admin", "--node", https, "security", word][..], &login].concat())
}

#[test]
fn an_operator_with_a_lost_password_gets_back_in() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    done(run(dir, &["admin", "cert", "--dir", "clients", "--host", "127.0.0.1"]));
    fs::write(dir.join("lost"), "a-password-that-nobody-knows\n").unwrap();
    fs::write(dir.join("new"), "correct-horse-battery\n").unwrap();
    assert!(error(&security(dir, &["status"])).contains("no node runs on the data folder data"));

    let server = start(dir, LOOPBACK);
    done(security(dir, &["add-user", "root", "--new-password-file", "lost"]));
    done(security(dir, &["add-source", "all", "127.0.0.1/32", "password"]));
    done(security(dir, &["grant", "annulet.admin,annulet.stats", "on", "any", "to", "root"]));
    assert_eq!(done(security(dir, &["enable"])), "Enabled\n");
    let plain = run(dir, &["admin", "--node", &server.http, "security", "status"]);
    assert!(error(&plain).contains("Try HTTPS instead"));
    let plain = run(dir, &["kv", "get", "--node", &server.http, "b", "k"]);
    assert!(
        error(&plain).contains("has security on, and this port is in plaintext: --node names the port of")
    );
    assert!(error(&log_in(dir, &server, "new", "status")).contains("Unauthorized"));

    // The folder's other user names are none of the socket's business: it knows the kernel's user.
    done(security(dir, &["alter-user", "root", "--new-password-file", "new"]));
    assert_eq!(done(log_in(dir, &server, "new", "status")), "Enabled\n");
    // A hash of Riak (RFC 6070), which the first login replaces.
    let hash = "pbkdf2-hmac-sha1:4096:73616c74:4b007901b765489abead49d926f721d065a429c1\n";
    fs::write(dir.join("hash"), hash).unwrap();
    fs::write(dir.join("of-riak"), "password\n").unwrap();
    let version = || {
        let told = serde_json::from_str::<Value>(&done(security(dir, &["status", "--json"]))).unwrap();
        told["version"].as_u64().unwrap()
    };
    let before = version();
    done(security(dir, &["alter-user", "root", "--new-password-hash-file", "hash"]));
    assert_eq!(done(log_in(dir, &server, "of-riak", "status")), "Enabled\n");
    until("the hash to be replaced", || version() == before + 2);
    assert_eq!(done(log_in(dir, &server, "of-riak", "status")), "Enabled\n");
    done(security(dir, &["alter-user", "root", "--new-password-file", "new"]));
    let stats = done(run(dir, &["admin", "stat", "--data", "data", "security_logins"]));
    assert!(stats.contains("security_logins"), "{stats}");
    done(run(dir, &["top", "--data", "data", "--once"]));
    for request in ["GET /buckets/b/keys/k", "GET /types/t/props", "GET /cachedtrees/nvals/3/keysclocks"] {
        let answer = ask(dir, request);
        assert!(answer.starts_with("HTTP/1.1 403 "), "{request}: {answer}");
        assert!(answer.contains("The local socket serves administration and statistics alone"), "{answer}");
    }
    assert!(ask(dir, "GET /metrics").starts_with("HTTP/1.1 200 "));

    let whoami: Value = serde_json::from_str(&done(security(dir, &["whoami", "--json"]))).unwrap();
    assert_eq!((&whoami["login"], &whoami["mode"]), (&json!("local socket"), &json!("on")));
    let told = done(log_in(dir, &server, "new", "whoami"));
    assert!(told.contains("user    root\n"), "{told}");
    assert!(told.contains("login   password, by the source all 127.0.0.1/32\n"), "{told}");

    // A killed node leaves its socket, which the next one replaces.
    server.kill();
    assert!(dir.join("data/admin.sock").exists());
    assert!(error(&security(dir, &["status"])).contains("no node runs on the data folder data"));
    // With security on, the node may serve other machines.
    let server = start(dir, "0.0.0.0:0");
    assert_eq!(done(security(dir, &["status"])), "Enabled\n");
    // A second process does not come so far as to take the socket.
    let second = ["serve", "--data", "data", "--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    assert!(error(&run(dir, &second)).contains("another process is using the data"));
    assert_eq!(done(security(dir, &["status"])), "Enabled\n");
    done(security(dir, &["permissive"]));
    server.stop();
    let beyond = ["serve", "--data", "data", "--pb-listen", "0.0.0.0:0", "--http-listen", LOOPBACK];
    assert!(error(&run(dir, &beyond)).contains("and security is permissive"));
    assert!(!dir.join("data/admin.sock").exists());

    let audit = fs::read_to_string(dir.join("log")).unwrap();
    let uid = geteuid().as_raw();
    let line = audit.lines().find(|line| line.contains("alter-user root password=…")).unwrap();
    assert!(line.contains(&format!("from=local uid {uid}")), "{line}");
}

#[test]
fn node_with_an_older_log_is_opened_by_its_operator_alone() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    done(run(dir, &["admin", "cert", "--dir", "clients", "--host", "127.0.0.1"]));
    fs::write(dir.join("password"), "correct-horse-battery\n").unwrap();
    let server = start(dir, LOOPBACK);
    done(security(dir, &["add-user", "root", "--new-password-file", "password"]));
    done(security(dir, &["add-source", "all", "127.0.0.1/32", "password"]));
    done(security(dir, &["grant", "annulet.admin,annulet.stats", "on", "any", "to", "root"]));
    done(security(dir, &["disable"]));
    server.stop();
    fs::copy(dir.join("data/membership/log"), dir.join("older")).unwrap();

    let server = start(dir, LOOPBACK);
    let by_port = run(dir, &["admin", "--node", &server.http, "security", "accept-older-log"]);
    assert!(error(&by_port).contains("a command of the local socket"));
    done(security(dir, &["enable"]));
    server.stop();
    fs::copy(dir.join("older"), dir.join("data/membership/log")).unwrap();

    let server = start(dir, LOOPBACK);
    let plain = || run(dir, &["admin", "--node", &server.http, "security", "status"]);
    assert!(error(&plain()).contains("Try HTTPS instead"), "the doors are closed");
    assert_eq!(done(security(dir, &["status"])), "Enabled\n");
    assert!(error(&security(dir, &["disable"])).contains("say `accept-older-log` at the local socket"));
    done(security(dir, &["accept-older-log"]));
    assert_eq!(done(plain()), "Disabled\n");
    assert!(!dir.join("data/security-on").exists());
    server.stop();
}
