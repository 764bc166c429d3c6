//! A real node and its supervisor: a socket that takes the notices of the process.
use crate::common::nodes::until;
use crate::common::{Server, annulet, run};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

/// The period of the watchdog. An idle shard turns once a second.
const WATCHDOG_MICROS: &str = "4000000";

/// The longest wait for a notice. Only a failure takes so long.
const NOTICE_MAX: Duration = Duration::from_secs(60);

/// The supervisor's end of the socket.
struct Supervisor {
    socket: UnixDatagram,
    /// The notices so far, a line each.
    seen: Vec<String>,
}

impl Supervisor {
    fn new(path: &Path) -> Supervisor {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(NOTICE_MAX)).unwrap();
        Supervisor { socket, seen: Vec::new() }
    }

    /// Reads on until a notice begins so. The notices of the same message come after it.
    fn read_until(&mut self, start: &str) {
        let mut bytes = [0; 4096];
        let is_there = |lines: &[String]| lines.iter().any(|line| line.starts_with(start));
        let from = self.seen.len();
        while !is_there(&self.seen[from..]) {
            let len = self.socket.recv(&mut bytes).unwrap();
            let text = String::from_utf8_lossy(&bytes[..len]);
            self.seen.extend(text.lines().map(str::to_owned));
        }
    }

    fn place_of(&self, start: &str) -> Option<usize> {
        self.seen.iter().position(|line| line.starts_with(start))
    }
}

#[test]
fn a_supervisor_is_told_of_each_stage_and_fed_while_all_shards_turn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let mut supervisor = Supervisor::new(&path);
    let ports = ["serve", "--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--shards", "2"];
    let mut command = annulet(folder.path(), &ports);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", WATCHDOG_MICROS);
    let server = Server::started(&mut command);
    supervisor.read_until("READY=1");
    assert!(server.http_get("/ping").ends_with("OK"));
    let (extended, ready) = (supervisor.place_of("EXTEND_TIMEOUT_USEC="), supervisor.place_of("READY=1"));
    let places = ["STATUS=opens its stores", "STATUS=asks the other nodes", "STATUS=serves clients"];
    let [opens, asks, served] = places.map(|stage| supervisor.place_of(stage));
    // A start may be over before the first notice.
    assert!(opens < served && asks < served, "{:?}", supervisor.seen);
    assert_eq!(extended.is_some(), opens.or(asks).is_some(), "{:?}", supervisor.seen);
    assert!(extended < ready, "{:?}", supervisor.seen);
    let fed = supervisor.place_of("WATCHDOG=1");
    assert!(fed.is_none_or(|fed| Some(fed) > ready), "{:?}", supervisor.seen);
    for _ in 0..3 {
        supervisor.read_until("WATCHDOG=1");
    }
    server.stop();
    supervisor.read_until("STOPPING=1");
    assert_eq!(supervisor.seen.iter().filter(|line| *line == "READY=1").count(), 1);
}

#[test]
fn a_node_without_a_supervisor_or_with_one_that_is_gone_serves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nobody");
    let ports = ["serve", "--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--shards", "1"];
    for socket in ["", path.to_str().unwrap()] {
        let mut command = annulet(folder.path(), &ports);
        let server = Server::started(command.env("NOTIFY_SOCKET", socket));
        until("an answer", || server.http_get("/ping").ends_with("OK"));
        server.stop();
    }
}

#[test]
fn completions_and_manual_pages_have_all_commands() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, part) in
        [("bash", "complete -F _annulet"), ("zsh", "#compdef annulet"), ("fish", "complete -c annulet")]
    {
        let output = run(folder.path(), &["completions", shell]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains(part), "{shell}: {text}");
        assert!(text.contains("wait-for-service"), "{shell}");
    }
    assert!(run(folder.path(), &["man", "pages"]).status.success());
    for page in ["annulet.1", "annulet-serve.1", "annulet-admin-cluster-plan.1", "annulet-bench-run.1"] {
        let text = std::fs::read_to_string(folder.path().join("pages").join(page)).unwrap();
        assert!(text.contains(".SH NAME"), "{page}");
    }
}
