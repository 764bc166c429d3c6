//! Real nodes whose standard streams take nothing, or are gone: a node serves and stops all the same.
use crate::common::nodes::{Cluster, count, free_ports, until};
use crate::common::{Server, annulet, http_get};
use bytes::Bytes;
use client::{Content, ReadOptions, WriteOptions};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{File, OpenOptions};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Bytes that a pipe holds by default.
const PIPE_BYTES: usize = 64 << 10;

/// Variables that a node warns of when it starts, each by a line: more than its queue, the batch in hand and a pipe
/// hold.
const WARNINGS: usize = 20_000;

/// A pipe that takes no byte more.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    writer.write_all(&[b'.'; PIPE_BYTES]).unwrap();
    (reader, writer)
}

/// A pipe without a reader.
fn closed_pipe() -> PipeWriter {
    pipe().unwrap().1
}

/// A terminal that nobody reads: its own end, and the one for a program. It takes some kilobytes, and is as one stopped
/// by Ctrl-S then.
fn terminal() -> (File, File) {
    let own = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&own).unwrap();
    unlockpt(&own).unwrap();
    let name = ptsname(&own, Vec::new()).unwrap().into_string().unwrap();
    (File::from(own), OpenOptions::new().read(true).write(true).open(name).unwrap())
}

/// A node that logs whatever it can, from its start on.
fn verbose(dir: &Path, pb: &str, http: &str) -> Command {
    let args = ["serve", "--shards", "1", "--durability", "none", "--pb-listen", pb, "--http-listen", http];
    let mut command = annulet(dir, &args);
    command.envs((0..WARNINGS).map(|at| (format!("ANNULET_NONE_{at}"), "1")));
    command.env("ANNULET_LOG", "trace");
    command
}

/// Puts some objects and gets them.
fn use_node(server: &Server) {
    let mut client = server.connect();
    for key in 0..20 {
        let (key, value) = (format!("{key}"), Bytes::from_static(b"v"));
        let content = Content { value: value.clone(), ..Content::default() };
        client.put(None, b"b", Some(key.as_bytes()), content, &WriteOptions::default()).unwrap();
        let object = client.get(None, b"b", key.as_bytes(), &ReadOptions::default()).unwrap().unwrap();
        assert_eq!(object.siblings[0].value, value);
    }
    assert!(server.http_get("/ping").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_full_pipe_that_nobody_reads_holds_up_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut reader, writer) = full_pipe();
    let server = Server::started(verbose(dir.path(), "127.0.0.1:0", "127.0.0.1:0").stderr(writer));
    use_node(&server);
    let dropped = count(&server, "log_lines_dropped_total");
    assert!(dropped > 0 && dropped < count(&server, "log_lines_total"));
    assert!(server.http_get("/metrics").contains(&format!("\nannulet_log_lines_dropped_total {dropped}\n")));

    // Read again, it says what is missing.
    let (mut text, mut part) = (String::new(), [0; PIPE_BYTES]);
    while !text.contains("log lines dropped") {
        let read = reader.read(&mut part).unwrap();
        text.push_str(std::str::from_utf8(&part[..read]).unwrap());
    }
    // And not any more when it stops.
    server.stop();
}

#[test]
fn a_node_stops_while_its_log_is_blocked() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = full_pipe();
    let server = Server::started(verbose(dir.path(), "127.0.0.1:0", "127.0.0.1:0").stderr(writer));
    use_node(&server);
    server.stop();
    drop(reader);
}

/// A node of which nothing is seen but its ports. It is killed when this is dropped.
struct Unseen {
    child: Child,
    http: String,
}

impl Unseen {
    fn start(dir: &Path, out: impl Into<Stdio>, error: impl Into<Stdio>) -> Unseen {
        let port = free_ports();
        let (pb, http) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{}", port + 1));
        let mut command = verbose(dir, &pb, &http);
        // Not of this terminal's job, if the test has one.
        let child = command.stdout(out).stderr(error).process_group(0).spawn().unwrap();
        Unseen { child, http }
    }

    /// It serves, answers, and stops cleanly.
    fn check(mut self, what: &str) {
        let serves = || std::net::TcpStream::connect(&self.http).is_ok();
        until(what, || {
            assert!(self.child.try_wait().unwrap().is_none(), "{what}: the node has ended");
            serves()
        });
        assert!(http_get(&self.http, "/ping").starts_with("HTTP/1.1 200"), "{what}");
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success(), "{what}");
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn no_stream_ends_or_blocks_a_node() {
    let dir = |name: &str| tempfile::Builder::new().prefix(name).tempdir().unwrap();
    let folder = dir("closed");
    Unseen::start(folder.path(), closed_pipe(), closed_pipe()).check("both closed");

    let folder = dir("full");
    let (reader, writer) = full_pipe();
    Unseen::start(folder.path(), writer.try_clone().unwrap(), writer).check("both on a full pipe");
    drop(reader);

    let folder = dir("disk");
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    Unseen::start(folder.path(), full(), full()).check("a full disk");

    let folder = dir("terminal");
    let (own, theirs) = terminal();
    Unseen::start(folder.path(), theirs.try_clone().unwrap(), theirs).check("a terminal that nobody reads");
    drop(own);

    let folder = dir("gone");
    let (own, theirs) = terminal();
    drop(own);
    Unseen::start(folder.path(), theirs.try_clone().unwrap(), theirs).check("a terminal that is gone");
}

#[test]
fn a_cluster_whose_logs_have_no_reader_serves() {
    let cluster = Cluster::new(3);
    let certs = cluster.dir.path().join("certs");
    let (reader, blocked) = full_pipe();
    let start = |node: usize, error: PipeWriter| {
        let args = Cluster::args(node, &cluster.list(), &certs, &["--durability", "none"]);
        let mut command = annulet(
            cluster.dir.path(),
            &["serve", "--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"],
        );
        Server::started(command.args(args).env("ANNULET_LOG", "trace").stderr(error))
    };
    let one = start(1, closed_pipe());
    let two = start(2, blocked);
    let three = start(3, closed_pipe());
    let has_links = |server: &Server, links| count(server, "peer_links_up") == links;
    for server in [&one, &two, &three] {
        until("links", || has_links(server, 2));
        use_node(server);
    }
    // Links go down and up: members log that, on the threads that serve.
    three.kill();
    for server in [&one, &two] {
        until("a link that goes down", || has_links(server, 1));
        use_node(server);
        assert!(count(server, "log_lines_total") > 0);
    }
    assert!(count(&one, "log_lines_dropped_total") > 0);
    one.stop();
    two.stop();
    drop(reader);
}

#[test]
fn commands_whose_reader_has_left_end_quietly() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--durability", "none"]);
    use_node(&server);
    let kv = |args: &[&str]| [&["kv", args[0], "--address", &server.pb], &args[1..]].concat().join("\t");
    let admin = |word: &str| format!("admin\t--node\t{}\t{word}", server.http);
    let workload = "driver = \"null\"\nduration = \"1s\"\nconcurrency = 1\n[keys]\nkind = \"uniform\"\ncount = 10\n\
                    [load]\nkind = \"fixed\"\nrate = 100\n[[operation]]\nop = \"get\"\n";
    std::fs::write(dir.path().join("w.toml"), workload).unwrap();
    let commands = [
        kv(&["ls", "b"]),
        kv(&["get", "b", "1"]),
        kv(&["head", "b", "1"]),
        kv(&["put", "--return-body", "b", "1", "again"]),
        admin("stat"),
        admin("member-status"),
        "bench\trun\tw.toml\t--out\tresults".to_owned(),
    ];
    for words in commands {
        let words: Vec<&str> = words.split('\t').collect();
        let status =
            annulet(dir.path(), &words).stdout(closed_pipe()).stderr(closed_pipe()).status().unwrap();
        assert_eq!(status.code(), Some(0), "{words:?}");
    }
    server.stop();
}
